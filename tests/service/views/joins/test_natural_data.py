"""The natural joins of the real data, by every algorithm that is correct for each: all rows, and their change log with every checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, INSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.following.subscriptions import Subscription
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests import datasets
from tests.service.running import check, opened

DATA = "openflights"
Array = npt.NDArray[np.int64]


def definitions() -> dict[str, Any]:
    return {name: parse_relation(datasets.definition(DATA, name)) for name in datasets.tables(DATA)}


def correct(sql: str) -> list[str]:
    found = parse_view("v", {"sql": sql}, definitions())
    return [found.plan.algorithm, *(one.algorithm for one in alternatives(found.query, definitions()))]


def started(folder: Path, relations: list[str]) -> Instance:
    engine = opened(folder)
    for name in relations:
        engine.put_relation(name, definitions()[name])
    return engine


def batch_of(changes: list[tuple[str, int, dict[str, Any]]]) -> Batch:
    parts = []
    for name in dict.fromkeys(name for name, _, _ in changes):
        mine = [i for i, (relation, _, _) in enumerate(changes) if relation == name]
        definition = definitions()[name]
        rows = pa.RecordBatch.from_pylist([changes[i][2] for i in mine], schema=definition.arrow_schema())
        parts.append(Changes(name, definition, np.array([changes[i][1] for i in mine], np.uint8), RowBlock(rows), np.array(mine)))
    return Batch(parts, len(changes), 0, [], 0)


def numbers(parts: list[pa.RecordBatch], width: int) -> Array:
    """int64[n, columns], sorted."""
    rows = np.concatenate([np.empty((0, width), np.int64), *(np.column_stack([column.to_numpy() for column in part]) for part in parts)])
    return rows[np.lexsort(rows.T)]


def read(engine: Instance, name: str, width: int) -> Array:
    reader, parts = open_rows(engine.readers, name), []
    while (part := reader.read(50_000)) is not None:
        parts.append(part)
    reader.close()
    return numbers(parts, width)


def whole(engine: Instance, name: str) -> pa.Table:
    """All rows, of any types, sorted."""
    reader, parts = open_rows(engine.readers, name), []
    while (part := reader.read(50_000)) is not None:
        parts.append(part)
    reader.close()
    table = pa.Table.from_batches(parts)
    return table.sort_by([(column, "ascending") for column in table.column_names]).combine_chunks()


class Emitted:
    """All that a feed has said so far."""

    def __init__(self, engine: Instance, name: str, width: int) -> None:
        feed = engine.views[name].feed
        assert feed is not None
        self._subscription: Subscription = feed.subscribe(None, False)
        self._width = width
        self._rows: dict[str, list[pa.RecordBatch]] = {"insert": [], "delete": []}

    def inserted_to(self, rows: Array) -> None:
        """What came is what went and what is there."""
        while chunks := self._subscription.next():
            for chunk in chunks:
                assert chunk.kind in ("rows", "progress"), chunk
                if chunk.kind == "rows":
                    assert chunk.rows is not None
                    self._rows[chunk.op].append(chunk.rows)
        deleted = numbers(self._rows["delete"], self._width)
        there = np.concatenate((deleted, rows))
        assert np.array_equal(numbers(self._rows["insert"], self._width), there[np.lexsort(there.T)])


CORRECT = {one["name"]: correct(one["sql"]) for one in datasets.queries(DATA)}
LONG = {"nested-loop", "minesweeper", "elimination"}


def chosen(query: str, long: bool) -> list[str]:
    return [one for one in CORRECT[query] if long or one not in LONG]


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_change_log(tmp_path: Path, long: bool) -> None:
    """Every query by every algorithm that the planner accepts (those that take long if `long`), read and followed, at every checkpoint."""
    expected = datasets.expected(DATA)
    size = expected["batch_size"]
    engine = started(tmp_path, list(expected["checkpoints"][0]["live"]))
    names: dict[str, list[str]] = {query: [] for query in expected["views"]}
    widths = {query: len(datasets.view(DATA, query)["result_columns"]) for query in names}
    for query in names:
        for algorithm in chosen(query, long):
            names[query].append(f"{query}_{algorithm.replace('-', '_')}")
            engine.put_view(names[query][-1], {"sql": datasets.view(DATA, query)["sql"], "algorithm": algorithm}, wait=60)
    emitted = {name: Emitted(engine, name, widths[query]) for query, mine in names.items() for name in mine}
    checkpoints = {checkpoint["after_batch"]: checkpoint["views"] for checkpoint in expected["checkpoints"]}
    changes = [(entry["relation"], {"insert": INSERT, "delete": DELETE}[entry["op"]], entry["row"]) for entry in datasets.change_log(DATA)]
    for number, start in enumerate(range(0, len(changes), size), 1):
        engine.apply(batch_of(changes[start : start + size]))
        for query, wanted in checkpoints.pop(number, {}).items():
            first = read(engine, names[query][0], widths[query])
            assert (len(first), datasets.checksum(first.tolist())) == (wanted["rows"], wanted["checksum"]), (query, number)
            for name in names[query]:
                assert np.array_equal(read(engine, name, widths[query]), first), (name, number)
                emitted[name].inserted_to(first)
    assert not checkpoints
    check(engine)
    engine.close()


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_all_rows(tmp_path: Path, long: bool) -> None:
    """Of all views, by every algorithm that the planner accepts (those that take long if `long`). The relations come while the views are
    there, then the views once more."""
    engine = started(tmp_path, datasets.tables(DATA))
    queries = datasets.queries(DATA)
    for one in queries:
        for algorithm in chosen(one["name"], long):
            definition = {"sql": one["sql"], "algorithm": algorithm, "changes": False}
            engine.put_view(f"{one['name']}_{algorithm.replace('-', '_')}", definition, wait=60)
    for name, definition in definitions().items():
        rows = datasets.table(DATA, name).combine_chunks().cast(definition.arrow_schema()).to_batches()[0]
        ops, index = np.full(len(rows), INSERT, np.uint8), np.arange(len(rows))
        engine.apply(Batch([Changes(name, definition, ops, RowBlock(rows), index)], len(rows), 0, [], 0))
    for one in queries:
        first: pa.Table | None = None
        for algorithm in chosen(one["name"], long):
            name = f"{one['name']}_{algorithm.replace('-', '_')}"
            engine.put_view("again", {"sql": one["sql"], "algorithm": algorithm}, wait=60)
            for each in (name, "again"):
                found = whole(engine, each)
                if first is None:
                    first = found
                    rows = list(zip(*(column.to_pylist() for column in first.columns), strict=True))
                    assert (len(rows), datasets.checksum(rows)) == (one["rows"], one["checksum"]), one["name"]
                assert found.equals(first), (one["name"], algorithm)
                engine.drop_view(each)
    engine.close()
