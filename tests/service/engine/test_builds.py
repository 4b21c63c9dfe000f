"""Views are built beside the writer: what others write meanwhile is applied at once, and shows in the view when it is live."""

from __future__ import annotations

import random
import threading
from concurrent.futures import wait
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.checking.recomputation import beside, recompute, total
from service.engine import build as build_module
from service.engine.builds import Builds
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from service.tables import backlog
from service.tables.loading import IndexLoad
from service.views.joins.reading_join import ReadingJoin
from service.views.live_view import LiveView
from structures.index import planting
from tests.service.definitions import relation
from tests.service.running import ORDER, PAIR, batch, building, check, ids, look, of_ops, opened, parts, rows_of, running

BOXES = relation(
    "id:int64, s:int64, e:int64, t:int64, u:int64, tag:string?",
    {"x": {"start": "s", "end": "e", "bounds": "[]"}, "y": {"start": "t", "end": "u"}},
)
TWO = {"a": "a", "b": "b"}
THREE = TWO | {"c": "a"}
TRIANGLE = [{"equal": ["a.s", "b.s"]}, {"equal": ["b.tag", "c.tag"]}, {"equal": ["c.u", "a.u"]}]
PART = [{"overlaps": ["b.x", "c.x"]}]
SMALL = {"column": "c.s", "op": "<", "value": 9}
VIEWS: dict[str, dict[str, Any]] = {
    "pairs": {"from": TWO, "join": [{"overlaps": ["a.x", "b.x"]}]},
    "keyed": {"from": TWO, "join": [{"overlaps": ["a.x", "b.x"]}, {"equal": ["a.tag", "b.tag"]}]},
    "boxes": {"from": TWO, "join": [{"overlaps": ["a.x", "b.x"]}, {"overlaps": ["a.y", "b.y"]}]},
    "clique": {"from": {"a": "a", "b": "a", "c": "a"}, "join": [{"overlaps": [f"{i}.x", f"{j}.x"]} for i, j in ("ab", "bc", "ac")]},
    "heap": {"from": THREE, "join": [{"overlaps": ["a.x", "b.x"]}, {"overlaps": ["b.x", "c.x"]}], "algorithm": "ij-heap"},
    "tree": {"from": THREE, "join": [{"equal": ["a.tag", "b.tag"]}, {"overlaps": ["b.y", "c.y"]}]},
    "parts": {"from": TWO, "join": [{"equal": ["a.tag", "b.tag"]}], "not_exists": [{"from": {"c": "a"}, "join": PART}]},
    "loop": {"from": TWO, "join": [{"equal": ["a.tag", "b.tag"]}, {"less": ["a.s", "b.t"]}]},
    "qdag": {"from": THREE, "join": TRIANGLE, "algorithm": "qdag"},
    "products": {"from": THREE, "join": [{"equal": ["a.tag", "b.tag"]}, {"cross": ["b", "c"]}], "where": [SMALL]},
    "shared": {"from": TWO, "join": [{"equal": ["a.tag", "b.tag"]}], "algorithm": "view-tree"},
    "tracker": {"from": THREE, "join": [{"equal": ["a.tag", "b.tag"]}, {"equal": ["b.s", "c.s"]}], "algorithm": "tree-tracker"},
    "sweeper": {"from": THREE, "join": TRIANGLE, "algorithm": "minesweeper"},
    "elimination": {"from": THREE, "join": [{"equal": ["a.tag", "b.tag"]}, {"equal": ["b.u", "c.u"]}], "algorithm": "elimination"},
    "intersect": {"from": THREE, "join": [{"equal": ["a.s", "b.s"]}, {"equal": ["b.s", "c.s"]}], "algorithm": "intersect"},
    "bow_tie": {"from": THREE, "join": [{"equal": ["a.s", "b.s"]}, {"equal": ["b.u", "c.u"]}], "algorithm": "bow-tie"},
}  # fmt: skip
SHARING = ["shared", "tracker", "sweeper", "elimination", "intersect", "bow_tie"]


class Held:
    """Builds wait once they have loaded, until `go`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go, self.loaded = threading.Event(), threading.Semaphore(0)
        load = Builds._load

        def hold(build: Any, version: int) -> None:
            load(build, version)
            self.loaded.release()
            assert self.go.wait(60)

        monkeypatch.setattr(Builds, "_load", staticmethod(hold))

    def put(self, engine: Instance, name: str, definition: dict[str, Any] = PAIR) -> LiveView:
        view, outcome = engine.put_view(name, definition, wait=0)
        assert outcome == view.state == "building" and self.loaded.acquire(timeout=60)
        return view


def ended(engine: Instance) -> None:
    for build in building(engine):
        build.future.exception(60)


def state(engine: Instance, name: str) -> str:
    ended(engine)
    return engine.views[name].state


def rows_like(rng: random.Random, ids: list[int]) -> pa.RecordBatch:
    def numbers(below: int) -> np.ndarray:
        return np.array([rng.randrange(below) for _ in ids], np.int64)

    starts, lower = numbers(40), numbers(40)
    tags = [rng.choice(["p", "q", "r", None]) for _ in ids]
    columns = [np.array(ids, np.int64), starts, starts + numbers(6), lower, lower + 1 + numbers(6), pa.array(tags, pa.utf8())]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=BOXES.arrow_schema())


def some_changes(rng: random.Random, most: int) -> Batch:
    """Upserts and deletes of both relations, which often meet; at times one of them is emptied first."""
    parts, sent = [], 0
    for name in "ab":
        ids = [rng.randrange(60) for _ in range(rng.randrange(1, most + 1))]
        ops = np.array([ORDER[rng.choice(["upsert", "upsert", "delete"])] for _ in ids], np.uint8)
        if rng.random() < 0.05:
            ops[0] = ORDER["truncate"]
        parts.append(Changes(name, BOXES, ops, RowBlock(rows_like(rng, ids)), np.arange(sent, sent + len(ids))))
        sent += len(ids)
    return Batch(parts, sent, 0, [], 0)


def filled(folder: Path, rng: random.Random) -> Instance:
    engine = opened(folder)
    for name in "ab":
        engine.put_relation(name, BOXES)
        index = np.arange(50)
        rows = RowBlock(rows_like(rng, index.tolist()))
        engine.apply(Batch([Changes(name, BOXES, np.full(50, ORDER["upsert"], np.uint8), rows, index)], 50, 0, [], 0))
    return engine


def table(engine: Instance, name: str) -> pa.RecordBatch:
    with closing(open_relation_rows(engine.readers, name)) as reader:
        parts = list(iter(partial(reader.read, 1000), None))
    return pa.concat_batches(parts) if parts else engine.relations[name].no_rows.arrow


def agrees(engine: Instance, name: str) -> None:
    """With brute force."""
    view = engine.views[name]
    with closing(open_rows(engine.readers, name)) as reader:
        emitted = total(beside(*part) for part in iter(partial(reader.read_with_keys, 1000), None))
    tables = {relation: table(engine, relation) for relation in "ab"}
    found = total(recompute(view.view.query, view.definitions, tables))
    assert emitted == found, name


def test_a_change_does_not_wait_for_a_build(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another relation, and of one that the view reads: it is answered while the build is held, and shows once the view is live."""
    held = Held(monkeypatch)
    engine.put_relation("c", engine.relations["a"].definition)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 1))))
    view = held.put(engine, "v")
    assert engine.apply(of_ops("a", ("upsert", 7), ("delete", 0))).version == 2
    assert engine.apply(of_ops("c", ("upsert", 8))).version == 3
    assert view.state == "building" and 0.0 < view.progress < 1.0
    with pytest.raises(Problem, match="being built"):
        open_rows(engine.readers, "v")
    assert [row[0] for row in ids(open_relation_rows(engine.readers, "a"))][:3] == [1, 2, 7]
    held.go.set()
    assert state(engine, "v") == "live" and view.progress == 1.0
    assert {row[0] for row in ids(open_rows(engine.readers, "v"))} >= {1, 2, 7}
    check(engine)
    assert len(engine.versions) == 0, "a build has left a pin"


@pytest.mark.parametrize("name", VIEWS)
def test_what_changes_during_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Batches and slots used again, in rounds of small pieces."""
    monkeypatch.setattr(build_module, "_FIRST_LAST", 0)
    monkeypatch.setattr(backlog, "_PIECE", 7)
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    held = Held(monkeypatch)
    held.put(engine, name, VIEWS[name])
    for _ in range(12):
        engine.apply(some_changes(rng, 12))
        look(engine)
    held.go.set()
    assert state(engine, name) == "live", engine.views[name].problem
    check(engine)
    agrees(engine, name)
    for _ in range(3):  # it follows from then on
        engine.apply(some_changes(rng, 12))
    check(engine)
    agrees(engine, name)
    engine.close()


@pytest.mark.parametrize("name", SHARING)
def test_what_changes_between_the_steps_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Indexes are put in one by one, and what is read by them comes tree by tree."""
    monkeypatch.setattr(build_module, "_FIRST_LAST", 0)
    monkeypatch.setattr(planting, "PIECE", 3)
    rng, left, settle = random.Random(name), iter(range(25)), ReadingJoin.settle
    engine = filled(tmp_path, rng)

    def between(join: ReadingJoin[Any]) -> None:
        settle(join)
        if next(left, None) is not None:
            engine.apply(some_changes(rng, 12))
            look(engine)

    monkeypatch.setattr(ReadingJoin, "settle", between)
    for view in (name, "again"):
        engine.put_view(view, VIEWS[name], wait=0)
        assert state(engine, view) == "live", engine.views[view].problem
        left = iter(range(25))
    for _ in range(3):
        engine.apply(some_changes(rng, 12))
    check(engine)
    for view in (name, "again"):
        agrees(engine, view)
        engine.drop_view(view)
    look(engine)
    assert parts(engine).state.indexes.structure.live_bytes == 0 and len(parts(engine).state.recorder) == 0
    engine.close()


def test_an_index_that_another_view_has_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it was there nobody else has loaded it: it is loaded after all, beside the writer."""
    rng = random.Random(8)
    engine = filled(tmp_path, rng)
    engine.put_view("first", VIEWS["tracker"], wait=60)
    held = Held(monkeypatch)
    held.put(engine, "second", VIEWS["tracker"])
    engine.drop_view("first")
    engine.apply(some_changes(rng, 12))
    look(engine)
    loaded, load = list[str](), IndexLoad.load

    def noted(loading: IndexLoad, *arguments: Any) -> None:
        loaded.append(threading.current_thread().name)
        load(loading, *arguments)

    monkeypatch.setattr(IndexLoad, "load", noted)
    held.go.set()
    assert state(engine, "second") == "live" and loaded and all("builder" in name for name in loaded)
    check(engine)
    agrees(engine, "second")
    engine.close()


def test_all_are_built_while_two_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered at once, under changes that never pause, each as a group or alone; followed by a start with all of them."""
    monkeypatch.setattr(build_module, "_FIRST_LAST", 1)
    engine = filled(tmp_path, random.Random(1))
    enough = threading.Event()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        while not enough.is_set():
            engine.apply(some_changes(rng, rng.choice([1, 1, 5])))

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (2, 3)]
    for one in writers:
        one.start()
    try:
        for name, definition in VIEWS.items():
            engine.put_view(name, definition, wait=0)
        ended(engine)
    finally:
        enough.set()
        for one in writers:
            one.join()
    assert {view.state for view in engine.views.values()} == {"live"}
    for name in VIEWS:
        agrees(engine, name)
    check(engine)
    engine.close()
    engine = opened(tmp_path)
    for name in VIEWS:
        agrees(engine, name)
    engine.close()


def test_drops(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are being built, further ones wait; any of them may be dropped, and registered again."""
    held = Held(monkeypatch)
    monkeypatch.setattr("service.engine.builds._FEW", 0)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 1))))
    first, _ = held.put(engine, "v"), held.put(engine, "w")
    queued = engine.put_view("x", PAIR, wait=0)[0]
    engine.put_view("y", PAIR, wait=0)
    assert not held.loaded.acquire(timeout=0.05), "three builds at a time"
    with pytest.raises(Problem, match="is used by v, w, x, y"):
        engine.drop_relation("a")
    all_four = [build.future for build in building(engine)]
    engine.drop_view("v")
    engine.drop_view("x")
    assert set(engine.views) == {"w", "y"} and len(parts(engine).state.recorder) == 1
    again = engine.put_view("v", PAIR, wait=0)[0]
    assert again is not first
    engine.apply(of_ops("a", ("upsert", 7), ("upsert", 8)))
    held.go.set()
    assert {state(engine, name) for name in "vwy"} == {"live"}
    assert first.state == queued.state == "building" and first.feed is None
    assert all(len(ids(open_rows(engine.readers, name))) == 5 for name in "vwy")
    assert not wait(all_four, 60).not_done
    assert len(engine.versions) == 0 and len(parts(engine).state.recorder) == 0


def test_views_that_want_the_same_indexes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are built at once, each with indexes of its own; the first one's stay. Of a view that is dropped meanwhile nothing stays."""
    rng = random.Random(5)
    engine = filled(tmp_path, rng)
    held = Held(monkeypatch)
    first, second = SHARING[0], SHARING[3]
    held.put(engine, first, VIEWS[first])
    held.put(engine, second, VIEWS[second])
    engine.apply(some_changes(rng, 12))
    held.go.set()
    assert state(engine, first) == state(engine, second) == "live"
    for name in (first, second):
        agrees(engine, name)
    held.go.clear()
    held.put(engine, "dropped", VIEWS["tracker"])
    engine.apply(some_changes(rng, 12))
    builds_ = [build.future for build in building(engine)]
    engine.drop_view("dropped")
    engine.drop_view(first)
    engine.drop_view(second)
    held.go.set()
    for future in builds_:
        future.exception(60)
    for _ in range(3):
        engine.apply(some_changes(rng, 3))
        look(engine)
    indexes = parts(engine).state.indexes
    assert indexes._texts.keys == 0 and indexes.structure.live_bytes == 0
    check(engine)
    engine.close()


def test_a_build_that_fails_in_a_round(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a thread of its own, or in the writer's turn: the view fails, alone."""
    held = Held(monkeypatch)

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    for name, last in (("v", 0), ("w", 64)):
        monkeypatch.setattr(build_module, "_FIRST_LAST", last)
        view = held.put(engine, name)
        monkeypatch.setattr(view.join, "apply", fail)
    other = engine.put_view("x", PAIR, wait=0)[0]
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 1))))
    held.go.set()
    assert [state(engine, name) for name in "vwx"] == ["failed", "failed", "live"]
    assert other.problem is None and len(ids(open_rows(engine.readers, "x"))) == 3
    assert len(parts(engine).state.recorder) == 0 and len(engine.versions) == 0


def test_a_stop_in_the_midst_of_a_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for it, and the next start builds the view. Relations are read and written before it is live."""
    engine = running(tmp_path, {})
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 1))))
    held = Held(monkeypatch)
    held.put(engine, "v")
    engine.close()
    held.go.set()
    held.go.clear()
    engine = Instance(tmp_path)
    open_, stages = threading.Event(), list[str]()
    starter = threading.Thread(target=engine.recover, args=(lambda stage, part: stages.append(stage), open_.set))
    starter.start()
    assert open_.wait(60) and held.loaded.acquire(timeout=60)
    assert engine.state == "recovering" and engine.views["v"].state == "building"
    assert engine.apply(of_ops("a", ("upsert", 7))).version == 2
    assert len(ids(open_relation_rows(engine.readers, "a"))) == 4
    held.go.set()
    starter.join(60)
    assert engine.state == "ready" and len(ids(open_rows(engine.readers, "v"))) == 4
    assert stages[-1] == "ready" and "building the views" in stages
    engine.close()


def test_closing_a_start_that_still_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has taken meanwhile is kept."""
    running(tmp_path).close()
    held = Held(monkeypatch)
    engine, open_ = Instance(tmp_path), threading.Event()
    starter = threading.Thread(target=engine.recover, kwargs={"opened": open_.set})
    starter.start()
    assert open_.wait(60)
    assert engine.apply(of_ops("a", ("upsert", 7))).version == 1
    engine.close()
    starter.join(60)
    assert not starter.is_alive() and engine.state == "closed"
    held.go.set()
    engine = opened(tmp_path)
    assert len(ids(open_relation_rows(engine.readers, "a"))) == 1 and engine.views["v"].state == "live"
    engine.close()
