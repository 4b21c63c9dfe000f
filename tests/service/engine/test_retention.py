"""Old rows: which are deleted, by what batches, and what happens to those that change meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.errors import BadDefinition
from livejoin.wire.schema import RelationDefinition, parse_patch, parse_relation
from service.engine import retention
from service.engine.retention import SOURCE
from service.instance import Instance
from service.query.conditions import ColumnRef, Filter
from service.tables.relations import Relation
from service.tables.rewriting import Removal, slots_that_meet
from tests.service.running import opened, parts

DAY = 86_400_000_000


def events(kind: str) -> RelationDefinition:
    columns = [{"name": "id", "type": "int64"}, {"name": "at", "type": kind, "nullable": True}]
    return parse_relation({"columns": columns, "key": ["id"], "retain": {"column": "at", "for": "P10D"}})


def upsert(engine: Instance, rows: list[tuple[int, int | None]]) -> None:
    definition = engine.relation("events").definition
    kind = definition.arrow_schema().field("at").type
    at = pa.array([at for _, at in rows], pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    block = RowBlock(pa.RecordBatch.from_arrays([pa.array([id_ for id_, _ in rows]), at], schema=definition.arrow_schema()))
    changes = Changes("events", definition, np.full(len(rows), UPSERT, np.uint8), block, np.arange(len(rows)))
    engine.apply(Batch([changes], len(rows), 0, [], 0))


def ids(engine: Instance) -> list[int]:
    table = engine.relation("events").table
    found: list[int] = table.take(["id"], table.scan(engine.published.number, 0, 100_000)[0])["id"].to_pylist()
    return sorted(found)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = opened(tmp_path, synchronous="normal")
    engine.retention.clock = lambda: 100 * DAY / 1e6
    yield engine
    engine.close()


def test_a_relation_that_is_created_again_meanwhile(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next check looks at the new one."""
    engine.put_relation("events", events("timestamp"))
    upsert(engine, [(day, day * DAY) for day in range(100)])

    def late(relation: Relation, *given: Any) -> Removal:
        engine.drop_relation("events")
        engine.put_relation("events", relation.definition)
        upsert(engine, [(1, 1 * DAY), (95, 95 * DAY)])
        return Removal(relation, *given)

    with monkeypatch.context() as inside:
        inside.setattr(retention, "Removal", late)
        assert engine.retention.look() == 0
    assert ids(engine) == [1, 95]
    assert engine.retention.look() == 1 and ids(engine) == [95]


@pytest.mark.parametrize(("kind", "unit"), [("timestamp", DAY), ("date", 1)])
def test_old_rows_go(engine: Instance, kind: str, unit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_ROWS", 7)
    engine.put_relation("events", events(kind))
    upsert(engine, [(day, day * unit) for day in range(100)] + [(1000, None)])
    before = engine.published.number
    assert engine.retention.look() == 90
    assert ids(engine) == [*range(90, 100), 1000]
    assert engine.published.number == before + 13, "batches of seven rows"
    assert parts(engine).state.sources[SOURCE] == (None, 13) and engine.sources()[SOURCE].epoch == 13
    assert engine.retention.look() == 0 and engine.published.number == before + 13
    engine.retention.clock = lambda: 101.5 * DAY / 1e6
    assert engine.retention.look() == (2 if kind == "timestamp" else 1)
    assert parts(engine).state.sources[SOURCE][1] == 14


@pytest.mark.parametrize(("kind", "unit"), [("timestamp", DAY), ("date", 1)])
def test_a_patch_says_how_many_rows_go(engine: Instance, monkeypatch: pytest.MonkeyPatch, kind: str, unit: int) -> None:
    engine.put_relation("events", events(kind))
    upsert(engine, [(day, day * unit) for day in range(91, 100)] + [(1000, None)])
    woken = list[None]()
    monkeypatch.setattr(engine.retention, "wake", lambda: woken.append(None))

    def patch(data: dict[str, Any], dry_run: bool = False) -> int | None:
        return engine.patch_relation("events", parse_patch(data), dry_run).expired

    kept = engine.relation("events").definition
    shorter = {"retain": {"column": "at", "for": "P5D"}}
    assert patch(shorter, True) == 4 and engine.relation("events").definition == kept and not woken
    assert patch({"nullable": ["at"]}) is None and patch({"retain": None}, True) == 0
    late = {"name": "late", "type": "date", "nullable": True}
    assert patch({"add_columns": [late], "retain": {"column": "late", "for": "P5D"}}, True) == 0, "a new column is null"
    with pytest.raises(BadDefinition):
        patch({"retain": {"column": "none", "for": "P5D"}}, True)
    assert engine.relation("events").definition == kept
    assert patch(shorter) == 4 and woken and engine.retention.look() == 4
    assert patch(shorter, True) == patch(shorter) == 0 and ids(engine) == [*range(95, 100), 1000]


def test_a_row_that_has_changed_stays(engine: Instance) -> None:
    engine.put_relation("events", events("timestamp"))
    upsert(engine, [(1, 0), (2, 0), (3, 99 * DAY)])
    relation = engine.relation("events")
    with engine.versions.holding() as version:
        removal = Removal(relation, version, slots_that_meet(relation, version, [Filter(ColumnRef("events", "id"), ">", 0)]))
        upsert(engine, [(2, 98 * DAY)])
        assert removal.count == 3 and engine.retention._delete(removal) == 2
    assert ids(engine) == [2]


def test_none_without_retention(engine: Instance) -> None:
    engine.put_relation("events", events("timestamp"))
    engine.patch_relation("events", parse_patch({"retain": None}))
    upsert(engine, [(1, 0)])
    assert engine.retention.look() == 0 and ids(engine) == [1]


def run_once(engine: Instance, monkeypatch: pytest.MonkeyPatch, look: Callable[[], int]) -> None:
    """One round of the thread's work, in this thread."""

    def once() -> int:
        try:
            return look()
        finally:
            engine.retention.stop()

    monkeypatch.setattr(engine.retention, "look", once)
    engine.retention._over = False
    engine.retention._run()


def test_a_stop_is_no_failure(engine: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    engine.retention.stop()
    engine.retention._thread.join(60)
    engine.put_relation("events", events("timestamp"))
    upsert(engine, [(1, 0)])
    engine.refuse_waiting()
    run_once(engine, monkeypatch, engine.retention.look)
    assert ids(engine) == [1] and not caplog.records


def test_a_failure_is_logged(engine: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    engine.retention.stop()
    engine.retention._thread.join(60)
    run_once(engine, monkeypatch, lambda: 1 // 0)
    assert "ZeroDivisionError" in caplog.text and "could not be deleted" in caplog.text
