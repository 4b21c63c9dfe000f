"""The natural joins of the real data, by every algorithm that is correct for each: all rows, and their change log with every checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from service.following.subscriptions import Subscription
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from service.wire.batch import DELETE, INSERT, Batch, Changes, RowBlock
from service.wire.schema import parse_relation
from tests import datasets
from tests.service.engine.test_engine import opened, read_all
from tests.service.running import check

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


class Told:
    """All that a feed has said so far."""

    def __init__(self, engine: Instance, name: str, width: int) -> None:
        feed = engine.views[name].feed
        assert feed is not None
        self._subscription: Subscription = feed.subscribe(None, False)
        self._width = width
        self._rows: dict[str, list[pa.RecordBatch]] = {"insert": [], "delete": []}

    def come_to(self, rows: Array) -> None:
        """What came is what went and what is there."""
        while chunks := self._subscription.next():
            for chunk in chunks:
                assert chunk.kind in ("rows", "progress"), chunk
                if chunk.kind == "rows":
                    assert chunk.rows is not None
                    self._rows[chunk.op].append(chunk.rows)
        gone = numbers(self._rows["delete"], self._width)
        there = np.concatenate((gone, rows))
        assert np.array_equal(numbers(self._rows["insert"], self._width), there[np.lexsort(there.T)])


@pytest.mark.parametrize("query", list(datasets.expected(DATA)["views"]))
def test_change_log(tmp_path: Path, query: str) -> None:
    expected = datasets.expected(DATA)
    about = datasets.view(DATA, query)
    width, size = len(about["result_columns"]), expected["batch_size"]
    engine = started(tmp_path, list(expected["checkpoints"][0]["live"]))
    names = {algorithm: algorithm.replace("-", "_") for algorithm in correct(about["sql"])}
    for algorithm, name in names.items():
        engine.put_view(name, {"sql": about["sql"], "algorithm": algorithm}, wait=60)
    told = {name: Told(engine, name, width) for name in names.values()}
    checkpoints = {checkpoint["after_batch"]: checkpoint["views"][query] for checkpoint in expected["checkpoints"]}
    changes = [(entry["relation"], {"insert": INSERT, "delete": DELETE}[entry["op"]], entry["row"]) for entry in datasets.change_log(DATA)]
    for number, start in enumerate(range(0, len(changes), size), 1):
        engine.apply(batch_of(changes[start : start + size]))
        wanted = checkpoints.pop(number, None)
        if wanted is None:
            continue
        first = read(engine, next(iter(names.values())), width)
        assert (len(first), datasets.checksum(first.tolist())) == (wanted["rows"], wanted["checksum"]), number
        for algorithm, name in names.items():
            assert np.array_equal(read(engine, name, width), first), (algorithm, number)
            told[name].come_to(first)
    assert not checkpoints
    check(engine)
    engine.close()


SOAKED = [pytest.param(algorithm, marks=pytest.mark.soak) for algorithm in ("minesweeper", "nested-loop")]


@pytest.mark.parametrize("algorithm", ["view-tree", "join-tree", "tree-tracker", *SOAKED])
def test_all_rows(tmp_path: Path, algorithm: str) -> None:
    """Of all but the view of 1.8 million rows. The relations come while the views are there, then the views once more; by qdag they are
    in `test_qdag_join`."""
    engine = started(tmp_path, datasets.tables(DATA))
    queries = [one for one in datasets.queries(DATA) if algorithm in correct(one["sql"])]
    for one in queries:
        engine.put_view(one["name"], {"sql": one["sql"], "algorithm": algorithm, "changes": False}, wait=60)
    for name, definition in definitions().items():
        rows = datasets.table(DATA, name).combine_chunks().cast(definition.arrow_schema()).to_batches()[0]
        ops, index = np.full(len(rows), INSERT, np.uint8), np.arange(len(rows))
        engine.apply(Batch([Changes(name, definition, ops, RowBlock(rows), index)], len(rows), 0, [], 0))
    for one in queries:
        engine.put_view("again", {"sql": one["sql"], "algorithm": algorithm}, wait=60)
        for name in (one["name"], "again"):
            found = read_all(open_rows(engine.readers, name), 50_000)
            assert (sum(found.values()), datasets.checksum(found.elements())) == (one["rows"], one["checksum"]), one["name"]
            engine.drop_view(name)
    engine.close()
