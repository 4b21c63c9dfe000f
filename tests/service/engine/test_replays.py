"""Views that are replayed after a start: followers go on from their tokens as if nothing had happened, whatever is written meanwhile."""

from __future__ import annotations

import json
import random
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.durability.checksums import json_checksum
from service.engine import builds
from service.engine.builds import Builds
from service.following.segments import to_merge
from service.instance import Instance
from service.tables import backlog
from structures.rows import change_queue
from tests.service.engine.test_engine import Follower, compare, grouped, prepared
from tests.service.following.test_feeds import all_of, feed, killed, refused
from tests.service.random_views import NATURAL, by_all_algorithms
from tests.service.running import DEFINITION, PAIR, batch, building, check, keep_house, kill, look, of_ops, opened, parts, rows_of, running
from tests.service.twin import MANY, VIEWS, Source, Twin, TwinView, of_different_rows, to_batch
from tests.service.views.joins.test_random_views import drawn
from tests.service.views.stages.test_groups import JOINS, SINGLE


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken at once has a few changes only."""
    monkeypatch.setattr(backlog, "_SOME", 8)
    monkeypatch.setattr(change_queue, "_BLOCK", 4)


class Gate:
    """Views that are built or replayed wait once they are loaded, until it is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        load = Builds._load

        def hold(build: Any, version: int) -> None:
            load(build, version)
            assert self.open.wait(60)

        monkeypatch.setattr(Builds, "_load", staticmethod(hold))


class Restarted:
    """An engine that is killed or closed and started again; what is within `meanwhile` is done before any view is live."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.folder, self.gate = folder, gate

    def begin(self, engine: Instance, clean: bool) -> Instance:
        if clean:
            engine.close()
        else:
            kill(engine)
        self.gate.open.clear()
        again, opened_ = Instance(self.folder, engine.settings), threading.Event()
        self.starter = threading.Thread(target=again.recover, kwargs={"opened": opened_.set})
        self.starter.start()
        assert opened_.wait(60)
        return again

    def end(self) -> None:
        self.gate.open.set()
        self.starter.join(120)
        assert not self.starter.is_alive()


def some_batches(engine: Instance, twin: Twin, source: Source, count: int, most: int) -> None:
    for _ in range(count):
        changes = source.changes(source.random.randrange(most), twin.relations)
        if source.random.random() < 0.5:
            grouped(engine, twin, of_different_rows(changes + source.changes(6, twin.relations), twin.relations), [])
        elif twin.apply(changes, "skip") is not None:
            engine.apply(to_batch(changes, on_error="skip"))


def restarts(folder: Path, gate: Gate, seed: int, views: dict[str, TwinView], rounds: int = 5, keys: int = 10) -> None:
    print("seed", seed)
    source, twin = Source(seed, keys), Twin(views)
    engine = prepared(folder, views)
    pick, restart = source.random, Restarted(folder, gate)
    followers = [Follower(engine, name, twin, True) for name in views for _ in range(2)]
    for number in range(rounds):
        some_batches(engine, twin, source, 4, 12)
        for follower in followers:
            if number == 0 or pick.random() < 0.5:
                follower.catch_up()
        some_batches(engine, twin, source, 2, 12)
        engine = restart.begin(engine, clean=pick.random() < 0.4)
        some_batches(engine, twin, source, pick.randrange(4), 12)
        if pick.random() < 0.2:  # killed again before any view is live
            engine = restart.begin(engine, clean=pick.random() < 0.5)
            some_batches(engine, twin, source, 1, 12)
        restart.end()
        assert {view.state for view in engine.views.values()} == {"live"} and not parts(engine).state.recorder.is_replaying
        some_batches(engine, twin, source, 1, 12)
        compare(engine, twin)
        for follower in followers:
            follower.go_on(engine, False)
            if pick.random() < 0.7:
                follower.catch_up()
        check(engine)
    for follower in followers:
        follower.catch_up()
    look(engine)
    keep_house(engine)
    engine.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2, 3))])
@pytest.mark.parametrize("views", [VIEWS, MANY, SINGLE, JOINS], ids=["two", "many", "groups", "groups of joins"])
def test_followers_go_on(tmp_path: Path, gate: Gate, views: dict[str, TwinView], seed: int) -> None:
    restarts(tmp_path, gate, 1000 + seed, views)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("style", ["heap", "boxes", "self", "mixed", "clique", "product", *NATURAL])
def test_by_all_algorithms(tmp_path: Path, gate: Gate, style: str, seed: int) -> None:
    views = by_all_algorithms(drawn(random.Random(f"{style} {seed}"), style, 4, 10), "v")
    restarts(tmp_path, gate, 1100 + seed, views, rounds=3)


# what a snapshot has of a feed


def changed(engine: Instance, ids: range) -> list[str]:
    """Each a version that changes the view; the token after it."""
    subscription, tokens = feed(engine).subscribe(), list[str]()
    for id_ in ids:
        engine.apply(of_ops("a", ("upsert", id_)))
        tokens += [chunk.token for chunk in all_of(subscription) if chunk.token is not None]
    assert len(tokens) == len(ids)
    return tokens


def versions_after(engine: Instance, token: str) -> list[int]:
    return [chunk.version for chunk in all_of(feed(engine).subscribe(token)) if chunk.kind == "progress"]


def files(folder: Path) -> list[Path]:
    """Of the newest snapshot."""
    snapshots = sorted((folder / "snapshots").iterdir(), key=lambda path: int(path.name))
    return sorted(snapshots[-1].glob("view-*.arrow")) if snapshots else []


def with_rows(folder: Path, **view: Any) -> Instance:
    engine = running(folder, {**PAIR, **view})
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    return engine


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "another form"])
def test_a_damaged_file_costs_tokens_and_not_the_start(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    engine = with_rows(tmp_path)
    tokens = changed(engine, range(5))  # versions 2 to 6
    engine.close()
    (file,) = files(tmp_path)
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "another form":
        relation = next((tmp_path / "snapshots").glob("*/[0-9].arrow")).read_bytes()
        rewrite_manifest(file, relation)
    else:
        file.write_bytes(data[:-9] if damage == "cut" else bytes([*data[:200], data[200] ^ 1, *data[201:]]))
    engine = opened(tmp_path)
    assert "tokens" in caplog.text
    assert [refused(engine, token) for token in tokens[:-1]] == ["token-expired"] * 4
    tokens = [tokens[-1], *changed(engine, range(5, 8))]
    assert versions_after(engine, tokens[0]) == [7, 8, 9]
    engine.close()
    engine = opened(tmp_path)
    assert versions_after(engine, tokens[0]) == [7, 8, 9]
    engine.close()


def rewrite_manifest(file: Path, data: bytes) -> None:
    """Put these bytes in its place, with a checksum that fits."""
    file.write_bytes(data)
    path = file.parent / "manifest.json"
    manifest = json.loads(path.read_text())
    crc = manifest.pop("crc")
    assert crc == json_checksum(manifest)
    (feed_file,) = manifest["feeds"].values()
    feed_file |= {"bytes": len(data), "crc": zlib.crc32(data)}
    path.write_text(json.dumps(manifest | {"crc": json_checksum(manifest)}))


def test_bounds_hold_over_restarts(tmp_path: Path) -> None:
    engine = with_rows(tmp_path, changes={"retain_rows": 5, "retain_bytes": 1 << 20})
    tokens = changed(engine, range(8))  # versions 2 to 9
    for clean in (True, False, True, False):
        if clean:
            engine.close()
        engine = opened(tmp_path) if clean else killed(engine, tmp_path)
        for position, token in enumerate(tokens):
            if len(tokens) - position > 6:
                assert refused(engine, token) == "token-expired", position
            else:
                assert versions_after(engine, token) == list(range(3 + position, 2 + len(tokens)))
        tokens += changed(engine, range(len(tokens), len(tokens) + 2))
    engine.close()


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_version_that_was_too_large_is_a_gap_after_a_restart(tmp_path: Path, clean: bool) -> None:
    engine = with_rows(tmp_path, changes={"retain_rows": 5, "retain_bytes": 1 << 20})
    before = changed(engine, range(2))
    engine.apply(batch(("upsert", "a", rows_of(10, 9))))  # version 4
    after = changed(engine, range(20, 23))
    if clean:
        engine.close()
    engine = opened(tmp_path) if clean else killed(engine, tmp_path)
    assert {refused(engine, token) for token in before} == {"token-expired"}
    assert versions_after(engine, after[0]) == [6, 7]
    engine.close()


def test_a_quiet_view_loses_nothing(tmp_path: Path) -> None:
    """What others write makes no token old, over any number of snapshots."""
    engine = with_rows(tmp_path)
    (token,) = changed(engine, range(1))
    for number in range(3):
        for _ in range(4):
            engine.apply(batch(("upsert", "c", rows_of(0, 3)))) if number else engine.apply(of_ops("a", ("delete", 77)))
        if number == 0:
            engine.put_relation("c", DEFINITION)
        engine.close()
        assert len(files(tmp_path)) == 1
        engine = opened(tmp_path)
        assert versions_after(engine, token) == []
    assert versions_after(engine, token) == [] and len(changed(engine, range(1, 2))) == 1
    assert versions_after(engine, token) == [engine.published.number]
    engine.close()


def test_small_segments_are_merged_when_they_are_restored(tmp_path: Path) -> None:
    engine = with_rows(tmp_path)
    tokens = changed(engine, range(250))
    assert len(feed(engine).segments) > 20
    engine.close()
    engine = opened(tmp_path)
    assert not to_merge(feed(engine).segments) and len(feed(engine).segments) < 20
    assert versions_after(engine, tokens[99]) == [*range(102, 252)]
    engine.close()


def test_the_snapshot_before_the_newest(tmp_path: Path) -> None:
    """Where the newest is damaged, the one before it and the log give followers the same."""
    engine = with_rows(tmp_path)
    tokens = changed(engine, range(3))  # versions 2 to 4
    engine.close()
    engine = opened(tmp_path)
    tokens += changed(engine, range(3, 6))
    engine.close()
    (file,) = files(tmp_path)
    table = next(file.parent.glob("[0-9]*.arrow"))
    table.write_bytes(table.read_bytes()[:-1] + b"!")
    engine = opened(tmp_path)
    tokens += changed(engine, range(6, 7))
    for position, token in enumerate(tokens):
        assert versions_after(engine, token) == list(range(3 + position, 9))
    engine.close()


def test_no_snapshot_before_all_views_are_replayed(tmp_path: Path, gate: Gate) -> None:
    """Its feeds would lack changes. A stop leaves all to the next start."""
    engine = with_rows(tmp_path)
    tokens = changed(engine, range(3))
    engine.close()
    before = files(tmp_path)
    restart = Restarted(tmp_path, gate)
    engine = restart.begin(opened(tmp_path), clean=False)
    engine.apply(of_ops("a", ("upsert", 50)))
    engine.snapshots.consider()
    assert parts(engine).state.recorder.is_replaying and not engine.snapshots.under_way
    engine = restart.begin(engine, clean=True)
    assert files(tmp_path) == before, "none was written at the end either"
    restart.end()
    assert versions_after(engine, tokens[0]) == [3, 4, 5]
    engine.close()
    assert files(tmp_path) != before


def test_no_snapshot_once_a_stop_has_cancelled_all_replays(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that has yet to begin notices the stop in the writer's turn, and then no replay is left."""
    engine = with_rows(tmp_path)
    tokens = changed(engine, range(3))
    engine.close()
    before, begin, end = files(tmp_path), Builds._begin_and_load, Builds.end

    def wait_and_begin(builds: Builds, build: Any) -> None:
        assert gate.open.wait(60)
        begin(builds, build)

    def end_and_wait(builds: Builds) -> None:
        end(builds)
        gate.open.set()
        deadline = time.monotonic() + 60
        while parts(engine).state.recorder.is_replaying:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    monkeypatch.setattr(Builds, "_begin_and_load", wait_and_begin)
    restart = Restarted(tmp_path, gate)
    engine = restart.begin(opened(tmp_path), clean=False)
    engine.apply(of_ops("a", ("upsert", 50)))
    monkeypatch.setattr(Builds, "end", end_and_wait)
    engine.close()
    assert files(tmp_path) == before
    monkeypatch.setattr(Builds, "end", end)
    restart.end()
    engine = opened(tmp_path)
    assert versions_after(engine, tokens[0]) == [3, 4, 5]
    engine.close()


def test_slots_come_back_when_all_views_are_live(tmp_path: Path, gate: Gate) -> None:
    engine = with_rows(tmp_path)
    engine.close()
    restart = Restarted(tmp_path, gate)
    engine = restart.begin(opened(tmp_path), clean=False)
    for _ in range(5):
        engine.apply(batch(("upsert", "a", rows_of(0, 1000))))
    look(engine)
    assert engine.relations["a"].table.used == 5000, "each version is still to be read"
    restart.end()
    look(engine)
    look(engine)
    engine.apply(batch(("upsert", "a", rows_of(0, 1000))))
    assert engine.relations["a"].table.used == 5000
    engine.close()


def test_too_much_is_written_while_a_view_waits_for_its_turn(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives up what its feed had, says so, and is built as any other; the views whose turn has come go on."""
    monkeypatch.setattr(builds, "_MOST_UNBEGUN", 3)
    monkeypatch.setattr(builds, "_FEW", 0)
    engine = with_rows(tmp_path)
    for name in ("w", "x", "y"):
        engine.put_view(name, PAIR, wait=60)
    token = {name: feed(engine, name).subscribe().idle_progress().token for name in ("v", "w", "x", "y")}
    engine.close()
    restart = Restarted(tmp_path, gate)
    engine = restart.begin(opened(tmp_path), clean=False)
    while len(begun := {build.view.name for build in building(engine) if build.has_begun}) < 2:
        time.sleep(0.01)
    for id_ in range(8):
        engine.apply(of_ops("a", ("upsert", id_)))
    look(engine)
    restart.end()
    for name, since in token.items():
        assert since is not None and engine.views[name].state == "live"
        if name in begun:
            found = [chunk.version for chunk in all_of(feed(engine, name).subscribe(since)) if chunk.kind == "progress"]
            assert found == list(range(2, engine.published.number + 1))
        else:
            assert refused(engine, since, name) == "token-expired"
        now = feed(engine, name).subscribe()
        engine.apply(of_ops("a", ("delete", 1), ("upsert", 1 + engine.published.number)))
        assert len([chunk for chunk in all_of(now) if chunk.kind == "progress"]) == 1
    engine.close()
