"""A small engine for tests: relations `a` and `b` with intervals of integers, and functions that change them."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, INSERT, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationPatch, parse_relation
from service.durability.log import Log
from service.engine.build import Build
from service.engine.builds import Builds
from service.engine.housekeeping import Housekeeping
from service.engine.outcomes import Receipt
from service.engine.rewrites import Rewrites
from service.engine.state import State
from service.engine.truncates import Truncates
from service.engine.writer import Writer
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import RowReader, live_view, open_rows
from service.reading.held import begin_reading
from service.settings import Settings
from tests.relations import declared

DEFINITION = parse_relation(declared("id:int64, s:int64, e:int64, tag:string?", x="s e []"))
PAIR: dict[str, Any] = {"from": {"a": "a", "b": "b"}, "join": [{"overlaps": ["a.x", "b.x"]}], "select": ["a.id as i", "b.id as j"]}
ORDER = {"upsert": UPSERT, "insert": INSERT, "delete": DELETE, "truncate": TRUNCATE}


def opened(folder: Path, **settings: Any) -> Instance:
    # Kernels may have to be compiled under a pin.
    engine = Instance(folder, Settings.model_validate({"data": folder, "pin_idle": 600, **settings}))
    engine.recover()
    return engine


class Parts(NamedTuple):
    writer: Writer
    state: State
    log: Log
    builds: Builds
    housekeeping: Housekeeping
    rewrites: Rewrites
    truncates: Truncates


def parts(engine: Instance) -> Parts:
    """What an engine is made of, for tests of one part beside the others."""
    return Parts(engine._writer, engine._state, engine._log, engine._builds, engine._housekeeping, engine._rewrites, engine._truncates)


def kill(engine: Instance) -> None:
    """End an engine as kill -9 does: there is no snapshot, the log is all there is. Its threads end, which would keep its memory."""
    parts(engine).writer.stop()
    parts(engine).log.close()
    engine.state = "closed"
    engine.retention.stop()
    parts(engine).builds.end()


def building(engine: Instance) -> list[Build]:
    return parts(engine).builds._builds


def refuses_nulls(engine: Instance, column: str, said: str) -> None:
    """Check that relation a cannot be patched to allow nulls in this column, by which a view selects its rows."""
    with pytest.raises(Problem, match=said) as caught:
        engine.patch_relation("a", RelationPatch(nullable=[column]))
    assert caught.value.type == "relation-in-use"


def running(folder: Path, view: dict[str, Any] | None = None, **settings: Any) -> Instance:
    """Return an engine with the relations, and with the view `v` unless it is {}."""
    engine = opened(folder, **settings)
    for name in ("a", "b"):
        engine.put_relation(name, DEFINITION)
    if view != {}:
        assert engine.put_view("v", view or PAIR, wait=60)[1] == "created"
    return engine


def look(engine: Instance) -> None:
    """Do what the writer does once a second, all pieces of it."""
    parts(engine).housekeeping._looked = -100.0
    keep_house(engine)


def keep_house(engine: Instance) -> None:
    """Let the writer do everything that is due."""

    def pieces() -> None:
        while parts(engine).housekeeping.piece():
            pass

    engine.at_rest(pieces)


def check(engine: Instance) -> None:
    """Check the invariants of every structure, while the writer's thread reclaims nothing."""

    def look() -> None:
        for relation in engine.relations.values():
            relation.table.check()
        for view in engine.views.values():
            if view.state == "live":
                view.join.check()

    engine.at_rest(look)


def rows_of(first: int, count: int, start: int = 0, length: int = 1000, tag: str | None = None) -> pa.RecordBatch:
    """Return rows with ids first, first + 1, ..., all with the same interval."""
    ids = np.arange(first, first + count)
    starts = np.full(count, start)
    columns = [pa.array(ids), pa.array(starts), pa.array(starts + length), pa.array([tag] * count, pa.utf8())]
    return pa.RecordBatch.from_arrays(columns, schema=DEFINITION.arrow_schema())


def batch(*changes: tuple[str, str, pa.RecordBatch], **fields: Any) -> Batch:
    """`changes` as (op, relation, rows), with each relation at most once."""
    parts, sent = [], 0
    for op, relation, rows in changes:
        index = np.arange(sent, sent + rows.num_rows)
        parts.append(Changes(relation, DEFINITION, np.full(rows.num_rows, ORDER[op], np.uint8), RowBlock(rows), index))
        sent += rows.num_rows
    return Batch(parts, sent, 0, [], 0, **fields)


def of_ops(relation: str, *changes: tuple[str, int], **fields: Any) -> Batch:
    """`changes` as (op, id), for one relation."""
    rows = pa.RecordBatch.from_pylist(
        [{} if op == "truncate" else {"id": id_} if op == "delete" else {"id": id_, "s": 0, "e": 1} for op, id_ in changes],
        schema=DEFINITION.arrow_schema(),
    )
    ops = np.array([ORDER[op] for op, _ in changes], np.uint8)
    return Batch([Changes(relation, DEFINITION, ops, RowBlock(rows), np.arange(len(changes)))], len(changes), 0, [], 0, **fields)


def ids(reader: RowReader) -> list[tuple[Any, ...]]:
    """Return the ids of all remaining rows, sorted."""
    rows: list[tuple[Any, ...]] = []
    while (part := reader.read(1000)) is not None:
        rows += [tuple(row.values()) for row in part.to_pylist()]
    reader.close()
    return sorted(rows)


class Clock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def in_parts(engine: Instance, view: str, most: int) -> list[RowReader]:
    """Return readers of the parts of a reading, which has ended by then."""
    held, cursors = begin_reading(engine.readers, live_view(engine.readers, view), most, 60, None, "a test")
    assert 1 <= len(cursors) <= most
    readers = [open_rows(engine.readers, view, cursor=cursor) for cursor in cursors]
    engine.readers.holdings.release(held)
    assert {reader.version for reader in readers} == {held.version}
    return readers


def is_empty(reader: RowReader) -> bool:
    while (empty := reader.empty()) is None:
        pass
    return empty


def counted(reader: RowReader) -> int:
    return sum(iter(partial(reader.skip, 1000), None))


class HeldWriter:
    """Keeps the writer busy while batches queue up behind it."""

    def __init__(self, engine: Instance) -> None:
        self.engine, self.go, reached = engine, threading.Event(), threading.Event()

        def wait() -> None:
            reached.set()
            assert self.go.wait(60)

        self.thread = threading.Thread(target=lambda: engine.at_rest(wait), daemon=True)
        self.thread.start()
        assert reached.wait(60)
        self.answers: list[Receipt | Problem] = []

    def submit(self, batch: Batch) -> None:
        self.engine.submit(batch, self.answers.append)

    def release(self) -> list[Receipt | Problem]:
        self.go.set()
        self.thread.join()
        parts(self.engine).writer._thread.join(0.01)
        return self.answers
