"""A cell's log of effects: a replay gives the relations, and the log stays short."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from livejoin.wire.batch import DELETE, UPSERT, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.engine.headless import Cell
from service.views.parse import parse_view
from streaming.cluster import state_log
from streaming.cluster.state_log import LoggedCell
from tests.streaming.cluster.local import Blobs

COLUMNS = [{"name": "id", "type": "int64"}, {"name": "room", "type": "string", "nullable": True}]
RELATIONS = {name: parse_relation({"columns": COLUMNS, "key": ["id"]}) for name in ("p", "q")}
VIEW = parse_view("v", {"sql": "SELECT p.id AS id, p.room AS room FROM p WHERE p.room IS NOT NULL"}, RELATIONS)
ROOMS = st.sampled_from(["a", "b", None])


def empty() -> Cell:
    return Cell(RELATIONS, [VIEW])


def changed(name: str, given: list[tuple[int, str | None, bool]]) -> Changes:
    rows = [{"id": id_, "room": None if deleted else room} for id_, room, deleted in given]
    batch = pa.RecordBatch.from_pylist(rows, schema=RELATIONS[name].arrow_schema())
    ops = np.array([DELETE if deleted else UPSERT for _, _, deleted in given], np.uint8)
    return Changes(name, RELATIONS[name], ops, RowBlock(batch), np.arange(len(given)))


def all_of(cell: Cell) -> list[dict[str, Any]]:
    return sorted((row for part in cell.rows("v") for row in part.to_pylist()), key=str)


class Log(RuleBasedStateMachine):
    """Few keys, so that rows are replaced, deleted and made again; many keys in one step now and then, so that effects are parted."""

    @initialize()
    def begin(self) -> None:
        self.blobs, self.logged = Blobs(), LoggedCell(empty())
        self.rows: dict[str, dict[int, str | None]] = {"p": {}, "q": {}}
        self.steps = 0

    @rule(name=st.sampled_from("pq"), given=st.lists(st.tuples(st.integers(0, 9), ROOMS, st.booleans()), max_size=8))
    def step(self, name: str, given: list[tuple[int, str | None, bool]]) -> None:
        self.apply(name, given)

    @rule(name=st.sampled_from("pq"), room=st.sampled_from("ab"), first=st.integers(0, 100), deleted=st.booleans())
    def many(self, name: str, room: str, first: int, deleted: bool) -> None:
        self.apply(name, [(id_, room, deleted) for id_ in range(first, first + 60)])

    def apply(self, name: str, given: list[tuple[int, str | None, bool]]) -> None:
        self.logged.step([changed(name, given)] if given else [], self.blobs)
        self.steps += 1
        for id_, room, deleted in given:
            self.rows[name].pop(id_, None)
            if not deleted:
                self.rows[name][id_] = room

    @rule()
    def replay(self) -> None:
        """As after a failure."""
        self.logged = LoggedCell.replayed(empty(), self.logged.extent, self.blobs)
        gc.collect()  # of the address space that cells have reserved

    @invariant()
    def is_whole(self) -> None:
        self.logged.check(self.blobs, empty())
        expected = [{"id": id_, "room": room} for id_, room in self.rows["p"].items() if room is not None]
        assert all_of(self.logged.cell) == sorted(expected, key=str)
        assert all(len(blob) <= 2048 for blob in self.blobs.values())


@pytest.mark.parametrize("times", [0, 3], ids=["compacted in each step", "compacted as it grows"])
def test_a_replay_gives_what_the_steps_gave(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    monkeypatch.setattr(state_log, "_TIMES", times)
    monkeypatch.setattr(state_log, "_LARGEST", 2048)
    monkeypatch.setattr(state_log, "_SMALL", 256)
    run_state_machine_as_test(Log, settings=settings(max_examples=8, stateful_step_count=12, deadline=None))


@pytest.mark.parametrize("least", [1, 512], ids=["small blobs stay small", "small blobs are filled up"])
def test_steps_of_several_blobs_leave_a_short_log(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More blobs than two a step came, and two went: under a load that lasts the log grew without bound. Rows are drawn from many, and in
    between few change at a time, so that the oldest blobs are small."""
    monkeypatch.setattr(state_log, "_SMALL", least)
    monkeypatch.setattr(state_log, "_LARGEST", 1024)
    blobs, logged, rng = Blobs(), LoggedCell(empty()), np.random.default_rng(1)
    logged.step([changed("p", [(id_, "a", False) for id_ in range(500)])], blobs)
    most = 0
    for number in range(300):
        some = rng.choice(500, 3 if number // 50 % 2 else 200, replace=False)
        before = logged.extent.next
        logged.step([changed("p", [(int(id_), f"{number}", False) for id_ in some])], blobs)
        most = max(most, logged.extent.next - before)
        assert logged.cell.live == 500 and logged.extent.rows <= 4 * 500, number
    assert most > 8, "of a step there are many blobs"
    logged.check(blobs, empty())


def test_a_log_stays_short_over_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys change again and again: what later blobs tell is not kept twice."""
    monkeypatch.setattr(state_log, "_SMALL", 1)
    blobs, logged = Blobs(), LoggedCell(empty())
    for number in range(60):
        logged.step([changed("p", [(id_, f"{number}", False) for id_ in range(20)])], blobs)
        if number % 10 == 9:
            logged = LoggedCell.replayed(empty(), logged.extent, blobs)
        assert logged.extent.rows <= 4 * 20 and len(blobs) <= 5
    for _ in range(4):
        logged.step([changed("p", [(id_, None, True) for id_ in range(20)])], blobs)
    assert not logged.cell.live and not blobs and logged.extent.rows == 0
