"""The load of a build, and its rounds: which changes they follow, how many rounds there are, how long the last one may be."""

from __future__ import annotations

import gc
import random
import weakref
from pathlib import Path
from typing import Any

import pytest

from service.engine import builds
from service.engine.builds import Builds
from service.instance import Instance
from service.reading.cursors import open_rows
from tests.service.engine.test_builds import VIEWS, Held, agrees, ended, filled, some_changes, state
from tests.service.running import batch, check, ids, look, rows_of
from tests.waiting import until


def test_more_is_written_between_two_rounds_than_may_be_left(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build allows for more and more in its last round, and comes to an end."""
    monkeypatch.setattr(builds, "_FIRST_LAST", 4)
    monkeypatch.setattr(builds, "_MOST_LAST", 4)
    held, rounds = Held(monkeypatch), list[int]()
    view = held.put(engine, "v")
    settle = view.join.settle

    def settle_late() -> None:
        settle()
        rounds.append(len(rounds))
        assert len(rounds) < 50, "the view never becomes live"
        engine.apply(batch(("upsert", "a", rows_of(100 * len(rounds), 20))))

    monkeypatch.setattr(view.join, "settle", settle_late)
    engine.apply(batch(("upsert", "a", rows_of(0, 20)), ("upsert", "b", rows_of(0, 1))))
    held.go.set()
    assert state(engine, "v") == "live" and 1 < len(rounds) < 10
    assert len(ids(open_rows(engine.readers, "v"))) == 20 * (len(rounds) + 1)
    check(engine)


@pytest.mark.parametrize(("waited", "most"), [(0.0, 9), (3600.0, 2)])
def test_the_last_round_may_be_as_long_as_one_that_is_shorter_than_the_wait_for_the_turn(
    engine: Instance, monkeypatch: pytest.MonkeyPatch, waited: float, most: int
) -> None:
    """Seen: eight rounds of 8,000 changes each, which took 60 ms and waited 100, while the limit was doubled from 2,000 on."""
    monkeypatch.setattr(builds, "_FIRST_LAST", 1)
    monkeypatch.setattr(builds, "_MOST_LAST", 1)
    monkeypatch.setattr(builds, "_LONGEST_LAST", 3600.0)
    held, rounds = Held(monkeypatch), 0
    view = held.put(engine, "v")
    settle, take_turn = view.join.settle, Builds._in_turn

    def in_turn(builds_: Any, build: Any, *given: Any, **named: Any) -> Any:
        try:
            return take_turn(builds_, build, *given, **named)
        finally:
            build.waited = waited

    def settle_late() -> None:
        nonlocal rounds
        settle()
        rounds += 1
        engine.apply(batch(("upsert", "a", rows_of(100 * rounds, 20))))

    monkeypatch.setattr(Builds, "_in_turn", in_turn)
    monkeypatch.setattr(view.join, "settle", settle_late)
    engine.apply(batch(("upsert", "a", rows_of(0, 20)), ("upsert", "b", rows_of(0, 1))))
    held.go.set()
    assert state(engine, "v") == "live" and (rounds <= most if waited else 2 < rounds <= most), rounds
    assert len(ids(open_rows(engine.readers, "v"))) == 20 * (rounds + 1)
    check(engine)


def test_a_build_keeps_no_old_structures_of_other_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads rows only, as a snapshot does. Seen: for as long as one was built or written, each batch over a million boxes took 37 MB of
    new memory, and a third longer. A reader that came meanwhile has its version."""
    rng = random.Random("kept")
    engine = filled(tmp_path, rng)
    engine.put_view("boxes", VIEWS["boxes"], wait=60)
    live = engine.views["boxes"].join
    held = Held(monkeypatch)
    held.put(engine, "pairs", VIEWS["pairs"])
    snapshot = engine.versions.pin(rows_only=True)

    def change() -> int:
        for _ in range(12):
            engine.apply(some_changes(rng, 12))
        look(engine)
        return live.retired_bytes

    assert change() == 0
    expected, reader = ids(open_rows(engine.readers, "boxes")), open_rows(engine.readers, "boxes")
    assert change() > 0 and ids(reader) == expected
    assert change() == 0
    held.go.set()
    assert state(engine, "pairs") == "live"
    engine.versions.release(snapshot)
    check(engine)
    for name in ("pairs", "boxes"):
        agrees(engine, name)
    engine.close()


@pytest.mark.parametrize("name", ["pairs", "boxes"])
def test_a_build_changes_what_it_has_built_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Nobody has read it yet. Seen: each round copied all leaves that it changed, which for boxes took a third of its time."""
    monkeypatch.setattr(builds, "_FIRST_LAST", 0)
    monkeypatch.setattr(builds, "_LAST_SECONDS", 0.0)
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    held, kept = Held(monkeypatch), list[int]()
    view = held.put(engine, name, VIEWS[name])
    settle, by_load = view.join.settle, view.join.retired_bytes  # the blocks of an empty structure

    def look_at() -> None:
        settle()
        kept.append(view.join.retired_bytes - by_load)

    monkeypatch.setattr(view.join, "settle", look_at)
    for _ in range(12):
        engine.apply(some_changes(rng, 12))
    held.go.set()
    assert state(engine, name) == "live" and kept and max(kept) <= 0
    engine.apply(some_changes(rng, 12))
    check(engine)
    agrees(engine, name)
    engine.close()


@pytest.mark.parametrize("name", ["tree", "parts"])
def test_what_changes_while_relations_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Relations are read one by one, at versions of their own, with changes before, between and after. None is followed that comes before
    its relation is read."""
    monkeypatch.setattr(builds, "_FIRST_LAST", 0)
    rng, hold_newest = random.Random(name), Builds._hold_newest
    engine, left = filled(tmp_path, rng), dict[str, int]()

    def change() -> None:
        for _ in range(3):
            engine.apply(some_changes(rng, 12))
            look(engine)

    def between(self: Builds, build: Any, held: Any, relation: Any) -> int:
        change()
        queues = build.backlog._queues
        left.update({one: queue.end - queue.begin for one, queue in queues.items()})
        version = hold_newest(self, build, held, relation)
        assert left.pop(relation.name) > 0 and all(queues[one].end - queues[one].begin == count for one, count in left.items())
        assert queues[relation.name].begin == queues[relation.name].end
        change()
        return version

    monkeypatch.setattr(Builds, "_hold_newest", between)
    for view in map(str, range(10)):
        left.clear()
        engine.put_view(f"v{view}", VIEWS[name], wait=0)
        assert state(engine, f"v{view}") == "live" and left, engine.views[f"v{view}"].problem
        change()
        check(engine)
        agrees(engine, f"v{view}")
        engine.drop_view(f"v{view}")
    engine.close()


PAIRS = {"from": {"a": "a", "b": "b"}, "join": [{"equal": ["a.tag", "b.tag"]}, {"overlaps": ["a.x", "b.x"]}], "algorithm": "join-tree"}


@pytest.mark.parametrize(("definition", "changed", "last"), [(PAIRS, "a", "a"), (PAIRS, "b", "b"), (VIEWS["parts"], "a", "b")])
def test_which_relation_is_read_last(
    engine: Instance, monkeypatch: pytest.MonkeyPatch, definition: dict[str, Any], changed: str, last: str
) -> None:
    """The one that changed last, but those of NOT EXISTS come first."""
    hold_newest, read = Builds._hold_newest, list[str]()

    def note(self: Builds, build: Any, held: Any, relation: Any) -> int:
        read.append(relation.name)
        return hold_newest(self, build, held, relation)

    monkeypatch.setattr(Builds, "_hold_newest", note)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 3))))
    engine.apply(batch(("upsert", changed, rows_of(3, 6))))
    engine.put_view("w", definition, wait=60)
    assert read == [last]


def test_a_view_that_is_dropped_while_it_is_loaded_gives_its_memory_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = filled(tmp_path, random.Random(1))
    loaded = list[weakref.ref[Any]]()

    def drop(self: Builds, build: Any, held: Any, relation: Any) -> int:
        loaded.append(weakref.ref(build.view.join))
        engine.drop_view("v")
        raise builds._Cancelled

    monkeypatch.setattr(Builds, "_hold_newest", drop)
    gc.disable()
    try:
        engine.put_view("v", VIEWS["tree"], wait=0)
        ended(engine)
        until(lambda: [one() for one in loaded] == [None])
    finally:
        gc.enable()
    engine.close()
