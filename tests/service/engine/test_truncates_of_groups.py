"""Truncates below groups: their codes, and what others write meanwhile."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine import build as build_module
from service.engine import truncates
from service.engine.build import Build, Phase
from service.engine.builds import Builds
from service.tables import backlog
from service.views.stages import columns, groups
from service.views.stages.groups import GroupsStage
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.table import GroupTable
from tests.service.engine.emptying import Meanwhile, add_up, apply_unprepared, left_nothing, truncating
from tests.service.engine.test_builds import BOXES, agrees, filled, rows_like, some_changes
from tests.service.engine.test_truncates import MORE
from tests.service.running import ORDER, batch, building, check, look, of_ops, rows_of, running
from tests.service.views.test_random_sql import Added
from tests.waiting import until


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncates, "_WORTH", 1)
    monkeypatch.setattr(build_module, "_FIRST_LAST", 8)
    monkeypatch.setattr(backlog, "_PIECE", 7)


@pytest.mark.parametrize("name", ["coverage of many groups", "groups of numbers", "groups of absent"])
def test_no_groups_are_left_without_rows(tmp_path: Path, name: str) -> None:
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    view, _ = engine.put_view("v", MORE[name], wait=60)
    assert isinstance(view.shown, KeyStretches | GroupTable) and view.shown.columns.domain is not None
    assert view.shown.columns.domain.keys > 3
    engine.apply(truncating(rng, "a", most=0))
    domain = view.shown.columns.domain

    def is_empty() -> bool:
        look(engine)
        return domain.keys == 0

    until(is_empty)  # once the changes are settled, in another thread
    engine.close()


@pytest.mark.parametrize("worth", [1, 1 << 14])
def test_groups_that_have_ended_are_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int) -> None:
    """Seen: coverage of 60 groups of at most 100 failed after a truncate and 60 other groups."""
    monkeypatch.setattr(truncates, "_WORTH", worth)
    engine = running(tmp_path, {})
    view, _ = engine.put_view("v", {"sql": "SELECT a.id AS g, coverage(a.x) AS busy FROM a GROUP BY a.id", "groups": 100}, wait=60)
    for first in range(0, 6000, 1000):
        engine.apply(of_ops("a", ("truncate", 0)))
        engine.apply(batch(("upsert", "a", rows_of(first, 60))))
        assert view.state == "live" and view.problem is None
    engine.apply(batch(("upsert", "a", rows_of(7000, 41))))
    assert view.problem is not None and view.problem.type == "too-many-groups"
    engine.close()


@pytest.mark.parametrize("name", ["groups of absent", "groups of left", "groups of full", "counted on one key", "counted partners"])
@pytest.mark.parametrize("is_placed", [True, False])
def test_no_codes_of_groups_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_placed: bool) -> None:
    """Others write in all rounds. Codes of rows that come and go are released, also if the new structures are not put in position: the rows
    are then deleted one by one."""
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    view, _ = engine.put_view("v", MORE[name], wait=60)
    assert isinstance(view.shown, GroupTable) and view.shown.columns.domain is not None
    meanwhile, follow_rest = Meanwhile(monkeypatch, lambda: apply_unprepared(engine, some_changes(rng, 20))), Builds.follow_rest

    def follow(builds: Builds, build: Build) -> bool:
        if follow_rest(builds, build) and build.without and not is_placed:
            raise MemoryError("no room")
        return build.phase == Phase.LAST_ROUND

    monkeypatch.setattr(Builds, "follow_rest", follow)
    engine.apply(truncating(rng, "b"))
    left_nothing(engine)
    assert meanwhile.placed == is_placed and view.shown.columns.domain.keys > 0
    deletes = np.full(80, ORDER["delete"], np.uint8)
    for relation in "ab":
        engine.apply(Batch([Changes(relation, BOXES, deletes, RowBlock(rows_like(rng, [*range(80)])), np.arange(80))], 80, 0, [], 0))
    look(engine)
    assert view.shown.columns.domain.keys == 0
    engine.close()


@pytest.mark.parametrize("name", ["groups of left", "groups of full", "groups of absent", "unfollowed groups of left"])
def test_groups_follow_all_that_others_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """At any moment while rows are taken. Both threads give and end codes of groups meanwhile. Others may have emptied the
    relation before."""
    caplog.set_level("INFO", "livejoin.views")
    monkeypatch.setattr(groups, "_FEW_BESIDE", 1)
    rng, twin = random.Random(name), random.Random(f"twin of {name}")
    engine = filled(tmp_path, rng)
    view, _ = engine.put_view("v", MORE[name], wait=60)
    added = None if name.startswith("unfollowed") else Added(engine, "v")
    take, over, written = GroupsStage._take_inserted, threading.Event(), threading.Semaphore(0)

    def take_slowly(*given: Any) -> None:
        if any(build.phase == Phase.LOADING for build in building(engine)):  # batches come between two rows
            while written.acquire(blocking=False):
                pass
            assert over.is_set() or written.acquire(timeout=60)
        take(*given)

    def write() -> None:
        try:
            while not over.is_set():
                apply_unprepared(engine, some_changes(twin, 9))
                written.release()
        finally:
            over.set()
            written.release()

    monkeypatch.setattr(GroupsStage, "_take_inserted", take_slowly)
    meanwhile = Meanwhile(monkeypatch, lambda: None)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            for _ in range(3):
                engine.apply(truncating(rng, "b"))
                apply_unprepared(engine, some_changes(rng, 40))
        finally:
            over.set()
        writing.result(60)
    assert meanwhile.placed > 0 and "could not be rebuilt for a truncate" not in caplog.text
    agrees(engine, "v")
    check(engine)
    if added is not None:
        add_up(engine, added)
    left_nothing(engine)
    engine.close()


@pytest.mark.parametrize("at", range(1, 12))
def test_no_reference_is_released_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """Seen: there was no room in the second domain when rows went, so that their codes in the first one were released again with others:
    the service stopped. The view follows the truncate row by row instead."""
    rng, twin = random.Random(at), random.Random(-at)
    engine = filled(tmp_path, rng)
    view, _ = engine.put_view("v", MORE["groups of full"], wait=60)
    meanwhile = Meanwhile(monkeypatch, lambda: apply_unprepared(engine, some_changes(twin, 20)))
    codes_of, calls = columns._codes_of, 0

    def without_room(*given: Any) -> Any:
        nonlocal calls
        if threading.current_thread().name.startswith("truncates") and (calls := calls + 1) == at:
            raise MemoryError("no room")
        return codes_of(*given)

    monkeypatch.setattr(columns, "_codes_of", without_room)
    engine.apply(truncating(rng, "b"))
    left_nothing(engine)
    assert view.state == "live" and (calls < at or meanwhile.placed == 0)
    agrees(engine, "v")
    check(engine)
    engine.close()


def test_the_view_keeps_codes_for_its_own_groups(tmp_path: Path) -> None:
    """Seen: the groups of a preparation that failed had used all codes, so that the view failed with the next rows."""
    engine = running(tmp_path, {})
    engine.apply(batch(("upsert", "a", rows_of(0, 70_000)), ("upsert", "b", rows_of(0, 70_000))))
    sql = "SELECT a.id AS g, count(*) AS n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id) GROUP BY a.id"
    view, _ = engine.put_view("v", {"sql": sql, "groups": 100}, wait=60)
    given = batch(("upsert", "b", rows_of(0, 70_001)))
    given.changes[0].ops[0] = ORDER["truncate"]
    engine.apply(given)
    left_nothing(engine)
    engine.apply(batch(("upsert", "a", rows_of(80_000, 50))))
    assert view.state == "live" and engine.rows_of("a") == 70_050
    engine.close()
