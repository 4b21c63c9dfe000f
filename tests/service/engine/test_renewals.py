"""Views whose structures are out of balance are built anew beside the writer, and live on meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine import build as build_module
from service.engine.builds import Builds
from service.instance import Instance
from service.reading.cursors import open_rows
from service.tables import backlog
from service.views.joins import overlap_join
from service.views.joins.overlap_join import OverlapJoin
from structures.adaptive import bow_tie
from structures.box import layout
from tests.service.definitions import relation
from tests.service.engine.test_builds import BOXES, TWO, VIEWS, Held, agrees, ended, filled, rows_like, some_changes
from tests.service.running import ORDER, building, check, ids, look, parts, running
from tests.waiting import until

XY = {"a": "x", "b": "y"}
BOXES_3 = relation(
    "id:int64, s:int64, e:int64, t:int64, u:int64, tag:string?",
    {"x": {"start": "s", "end": "e", "bounds": "[]"}, "y": {"start": "t", "end": "u"}, "z": {"start": "id", "end": "s", "bounds": "[]"}},
)
GROUPS = {"group": ["a.s as s"], "aggregate": [{"count": "*", "as": "n"}, {"sum": "b.t", "as": "sum"}, {"min": "b.s", "as": "least"}]}
CROSSED = {"from": {**TWO, "c": "a"}, "join": [*VIEWS["boxes"]["join"], {"cross": ["b", "c"]}], "where": VIEWS["products"]["where"]}


def keeping(folder: Path, definition: dict[str, Any]) -> Iterator[Instance]:
    """With the view `v`: what a fixture gives."""
    engine = filled(folder, random.Random(1))
    engine.put_view("v", definition, wait=60)
    yield engine
    engine.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    yield from keeping(tmp_path, VIEWS["boxes"])


def renewing(engine: Instance, held: Held) -> Any:
    """The join that the view has, while another one is built."""
    former = engine.views["v"].core
    parts(engine).builds.rebuild(engine.views["v"])
    assert held.loaded.acquire(timeout=60)
    return former


@pytest.mark.parametrize("grouped", [False, True], ids=["rows", "groups"])
@pytest.mark.parametrize(
    "definition", [VIEWS["boxes"], CROSSED, VIEWS["bow_tie"], VIEWS["qdag"]], ids=["boxes", "product", "bow_tie", "qdag"]
)
def test_what_changes_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch, definition: dict[str, Any], grouped: bool) -> None:
    """In rounds of small pieces. Every version in between is readable, followed and right; so is what was pinned before, afterwards. Of
    groups the join below them is another one."""
    if grouped:
        definition = definition | GROUPS
    monkeypatch.setattr(build_module, "_FIRST_LAST", 0)
    monkeypatch.setattr(backlog, "_PIECE", 7)
    rng = random.Random(2)
    engine.drop_view("v")
    engine.put_view("v", definition, wait=60)
    held = Held(monkeypatch)
    before, known = open_rows(engine.readers, "v"), ids(open_rows(engine.readers, "v"))
    former = renewing(engine, held)
    for _ in range(12):
        engine.apply(some_changes(rng, 12))
        look(engine)
        check(engine)
    during, known_during = open_rows(engine.readers, "v"), ids(open_rows(engine.readers, "v"))
    held.go.set()
    ended(engine)
    assert engine.views["v"].core is not former
    for _ in range(3):
        engine.apply(some_changes(rng, 12))
        check(engine)
    agrees(engine, "v")
    assert ids(before) == known and ids(during) == known_during
    assert len(parts(engine).state.recorder) == 0 and engine.views["v"].state == "live"
    before.close(), during.close()
    assert len(engine.versions) == 0


def test_cursors_of_one_version_before_and_after_a_rebuild(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each goes on in the order in which it began."""
    rng = random.Random(2)
    for _ in range(30):
        engine.apply(some_changes(rng, 12))
    begun = []
    held = Held(monkeypatch)
    held.go.set()
    for _ in range(2):
        reader = open_rows(engine.readers, "v")
        first = reader.read(6)
        assert first is not None
        begun.append((reader.version, [tuple(row.values()) for row in first.to_pylist()], reader.token()))
        reader.close()
        renewing(engine, held)
        ended(engine)
    rows = ids(open_rows(engine.readers, "v"))
    assert len({version for version, _, _ in begun}) == 1 and begun[0][1] != begun[1][1]
    for _, first_rows, token in begun:
        assert sorted(first_rows + ids(open_rows(engine.readers, "v", cursor=token))) == rows


def test_structures_that_were_replaced_count_while_they_are_read(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    held.go.set()
    view, reader = engine.views["v"], open_rows(engine.readers, "v")
    former = renewing(engine, held)
    ended(engine)
    assert view.retired_bytes >= former.bytes > 0
    reader.close()
    del former, reader
    engine.apply(some_changes(random.Random(3), 5))  # what was published goes, too
    assert view.retired_bytes == view.join.retired_bytes


def test_a_view_that_is_dropped_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    renewing(engine, held)
    (build,) = building(engine)
    engine.drop_view("v")
    held.go.set()
    assert build.future.exception(60) is None
    engine.apply(some_changes(random.Random(4), 9))
    assert not engine.views and len(parts(engine).state.recorder) == 0 and len(engine.versions) == 0


def test_a_view_that_fails_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held(monkeypatch)
    former = renewing(engine, held)

    def fail(*_: object) -> None:
        raise ValueError("a fault")

    monkeypatch.setattr(former, "apply", fail)
    engine.apply(some_changes(random.Random(4), 9))
    held.go.set()
    ended(engine)
    assert engine.views["v"].state == "failed"
    assert len(parts(engine).state.recorder) == 0 and len(engine.versions) == 0


@pytest.mark.parametrize("step", ["_begin", "_load", "_catch_up"])
def test_one_that_finds_no_room(engine: Instance, monkeypatch: pytest.MonkeyPatch, step: str, caplog: pytest.LogCaptureFixture) -> None:
    """The view lives on in what it has, and it is not tried again and again."""
    tried = 0

    def fail(*_: object) -> None:
        nonlocal tried
        tried += 1
        raise MemoryError("no room")

    monkeypatch.setattr(build_module, "_FIRST_LAST", 0)
    monkeypatch.setattr(Builds, step, fail)
    monkeypatch.setattr(OverlapJoin, "is_outgrown", lambda *_: True)
    if step == "_catch_up":
        held = Held(monkeypatch)
        former = renewing(engine, held)
        engine.apply(some_changes(random.Random(5), 9))
        held.go.set()
    else:
        former = engine.views["v"].join
        parts(engine).builds.renew()
    ended(engine)
    parts(engine).builds.renew()
    ended(engine)
    assert tried == 1 and "there is no room to rebuild" in caplog.text
    assert engine.views["v"].join is former and engine.views["v"].state == "live"
    engine.apply(some_changes(random.Random(6), 9))
    check(engine)
    assert len(parts(engine).state.recorder) == 0 and len(engine.versions) == 0


def test_dimensions_in_another_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one in which most rows meet comes last: at once when there are rows, else as soon as there are enough."""
    monkeypatch.setattr(overlap_join, "_FEWEST_ARRANGED", 250)
    engine = running(tmp_path, {})
    for name in "xy":
        engine.put_relation(name, BOXES)
    either = ({"overlaps": ["a.x", "b.x"]}, {"overlaps": ["a.y", "b.y"]})
    for name, join in (("early", either), ("early2", either[::-1])):
        engine.put_view(name, {"from": XY, "join": [*join]}, wait=60)
    number = np.arange(1000)
    columns = [number, 10 * number, 10 * number + 25, number % 7, 5000 + number, pa.nulls(1000, pa.utf8())]
    rows = pa.RecordBatch.from_arrays([*map(pa.array, columns)], schema=BOXES.arrow_schema())
    for name in "xy":
        changes = Changes(name, BOXES, np.full(1000, ORDER["upsert"], np.uint8), RowBlock(rows), number)
        engine.apply(Batch([changes], 1000, 0, [], 0))
    until(lambda: all(first_of(engine, name) == "s" for name in ("early", "early2")))  # it is built anew
    engine.put_view("late", {"from": XY, "join": [*either[::-1]]}, wait=60)
    assert first_of(engine, "late") == "s"
    assert not any(engine.views[name].is_outgrown(engine.versions.published.number) for name in engine.views)
    found = [ids(open_rows(engine.readers, name)) for name in engine.views]
    assert len(found[0]) == 1000 + 2 * 999 + 2 * 998 and found[1:] == found[:1] * 2
    window = {"x": ("100", "120")}
    assert len({len(ids(open_rows(engine.readers, name, window=window))) for name in engine.views}) == 1
    engine.close()


def test_points_that_come_far_from_all_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bow-tie has too few levels for them; with many points, the missing ones are made beside the writer."""
    monkeypatch.setattr(bow_tie, "MOST_AT_ONCE", 10)
    rng = random.Random(6)
    engine = filled(tmp_path, rng)
    engine.put_view("v", VIEWS["bow_tie"], wait=60)
    view, indexes = engine.views["v"], parts(engine).state.indexes
    former, before, known = view.join, open_rows(engine.readers, "v"), ids(open_rows(engine.readers, "v"))
    for name, shift in (("b", 10_000), ("a", 10_000), ("a", 0)):
        rows = rows_like(rng, list(range(100, 130)))
        rows = rows.set_column(1, rows.schema.field(1), pc.add(rows.column(1), shift))
        rows = rows.set_column(2, rows.schema.field(2), pc.add(rows.column(2), shift))
        engine.apply(Batch([Changes(name, BOXES, np.full(30, ORDER["upsert"], np.uint8), RowBlock(rows), np.arange(30))], 30, 0, [], 0))
        check(engine)
        agrees(engine, "v")
    assert view.join is former and view.is_outgrown(engine.versions.published.number)
    engine.at_rest(parts(engine).builds.renew)
    ended(engine)
    assert view.join is not former and not view.is_outgrown(engine.versions.published.number)
    for _ in range(3):
        engine.apply(some_changes(rng, 12))
    check(engine)
    agrees(engine, "v")
    assert ids(before) == known and former.bytes == 0
    before.close()
    look(engine)
    assert len(indexes._trees) == 1 and indexes._leaving == []
    engine.close()


def first_of(engine: Instance, name: str) -> str | None:
    """The column where the interval of the first dimension starts."""
    return cast(OverlapJoin, engine.views[name].join)._boxes[0][0].start


def test_boxes_that_come_over_time(tmp_path: Path) -> None:
    """Long ones among short ones, of three dimensions, so that no rotation balances the tree. Nobody asks for it: the housekeeping of the
    writer notices."""
    engine = running(tmp_path, {})
    for name in "xy":
        engine.put_relation(name, BOXES_3)
    definition = {"from": XY, "join": [{"overlaps": [f"a.{interval}", f"b.{interval}"]} for interval in "xyz"]}
    engine.put_view("v", definition, wait=60)
    rng = np.random.default_rng(7)

    def upsert(name: str, first: int, count: int) -> None:
        keys = np.arange(first, first + count)
        start, low = 10 * keys, rng.integers(0, 1 << 30, count)
        columns = [keys, start, start + np.where(keys % 64 == 0, 8 * n, 40), low, low + (1 << 23)]
        rows = pa.RecordBatch.from_arrays([*map(pa.array, columns), pa.nulls(count, pa.utf8())], schema=BOXES_3.arrow_schema())
        changes = Changes(name, BOXES_3, np.full(count, ORDER["upsert"], np.uint8), RowBlock(rows), np.arange(count))
        engine.apply(Batch([changes], count, 0, [], 0))

    view, n = engine.views["v"], 40 * layout.CAP
    former, count = view.join, n
    for name in "xy":
        upsert(name, 0, n)
    limit = time.monotonic() + 60
    while view.join is former:
        assert time.monotonic() < limit, "it was not built anew"
        if count < 4 * n:
            for name in "xy":
                upsert(name, count, 500)
            count += 500
        else:
            time.sleep(0.01)
    until(lambda: not view.join.is_outgrown(engine.versions.published.number))  # by what came while it was built
    former_rows = sorted(ids(open_rows(engine.readers, "v")))
    engine.drop_view("v")
    engine.put_view("v", definition, wait=60)
    assert sorted(ids(open_rows(engine.readers, "v"))) == former_rows
    engine.close()
