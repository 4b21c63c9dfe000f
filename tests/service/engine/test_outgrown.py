"""After most rows were deleted, structures that hold much more than they use are rebuilt, and their memory is released."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views.live_view import LiveView
from structures.core import blocks
from structures.core.kernel import JIT
from tests.service.definitions import relation
from tests.service.running import building, check, ids, look, opened, parts
from tests.waiting import until

ROWS = 20_000 if JIT else 1_000
DEFINITION = relation(
    "id:int64, k:int64, s:int64, e:int64, t:int64, u:int64", {"x": {"start": "s", "end": "e"}, "y": {"start": "t", "end": "u"}}
)
LINE = 10**6
VIEWS: dict[str, dict[str, Any]] = {
    "intervals": {"sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.x OVERLAPS b.x"},
    "cliques": {
        "sql": "SELECT x.id AS i, y.id AS j, z.id AS k FROM a x JOIN a y ON x.x OVERLAPS y.x "
        "JOIN a z ON x.x OVERLAPS z.x AND y.x OVERLAPS z.x"
    },
    "boxes": {"sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.x OVERLAPS b.x AND a.y OVERLAPS b.y"},
    "join tree": {"sql": "SELECT x.id AS i, b.id AS j, y.id AS k FROM a x JOIN b ON x.k = b.k AND x.x OVERLAPS b.x JOIN a y ON b.t = y.t"},
    "view tree": {"sql": "SELECT a.id AS i, b.id AS j FROM a JOIN b ON a.k = b.k", "algorithm": "view-tree"},
    "left": {"sql": "SELECT a.id AS i, b.id AS j FROM a LEFT JOIN b ON a.k = b.k AND a.x OVERLAPS b.x"},
    "groups": {"sql": "SELECT a.k AS k, MAX(b.s) AS last FROM a JOIN b ON a.k = b.k AND a.x OVERLAPS b.x GROUP BY a.k"},
}  # fmt: skip


def rows(numbers: np.ndarray, rng: np.random.Generator) -> pa.RecordBatch:
    n = len(numbers)
    s, t = rng.integers(0, LINE, n), rng.integers(0, LINE, n)
    columns = [numbers, rng.integers(0, ROWS // 4, n), s, s + LINE // ROWS, t, t + LINE // 50]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=DEFINITION.arrow_schema())


def change(engine: Instance, op: int, numbers: np.ndarray, rng: np.random.Generator) -> None:
    """The same rows of both relations."""
    n = len(numbers)
    parts = [
        Changes(name, DEFINITION, np.full(n, op, np.uint8), RowBlock(rows(numbers, rng)), np.arange(at * n, at * n + n))
        for at, name in enumerate("ab")
    ]
    engine.apply(Batch(parts, 2 * n, 0, [], 0))


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(blocks, "_WORTH", 1 << 16)
    engine = opened(tmp_path)
    for name in "ab":
        engine.put_relation(name, DEFINITION)
    change(engine, UPSERT, np.arange(ROWS), np.random.default_rng(1))
    yield engine
    engine.close()


def held(engine: Instance) -> int:
    stores = [store for view in engine.views.values() for store in view.stores] + [*parts(engine).state.indexes.stores]
    return sum(store.held_bytes for store in stores)


def delete(engine: Instance, numbers: np.ndarray) -> None:
    for part in np.array_split(numbers, 8):
        change(engine, DELETE, part, np.random.default_rng(2))
        look(engine)


@pytest.mark.skipif(not JIT, reason="so many rows need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("name", VIEWS)
def test_memory_returns_after_most_rows_were_deleted(engine: Instance, name: str) -> None:
    engine.put_view("v", VIEWS[name], wait=120)
    fresh = held(engine)
    delete(engine, np.random.default_rng(3).permutation(ROWS)[: ROWS * 9 // 10])
    until(lambda: (look(engine), held(engine) < fresh // 2)[1], lambda: f"{held(engine)} of {fresh} bytes are held")
    check(engine)
    found = sorted(ids(open_rows(engine.readers, "v")))
    engine.put_view("w", VIEWS[name], wait=120)
    assert found == sorted(ids(open_rows(engine.readers, "w")))


@pytest.mark.skipif(not JIT, reason="so many rows need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("name", VIEWS)
def test_steady_churn_rebuilds_nothing(engine: Instance, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three times as many changes as rows, under a pin now and then."""
    engine.put_view("v", VIEWS[name], wait=120)
    core, rng = engine.views["v"].core, np.random.default_rng(5)
    for round_ in range(60):
        reader = open_rows(engine.readers, "v") if round_ % 7 == 0 else None
        change(engine, UPSERT, rng.choice(ROWS, ROWS // 20, replace=False), rng)
        look(engine)
        if reader is not None:
            reader.close()
    assert engine.views["v"].core is core and not building(engine)


@pytest.mark.skipif(not JIT, reason="so many rows need compiled kernels; the run with the JIT on has them")
def test_what_was_held_for_readers_returns(engine: Instance) -> None:
    engine.put_view("v", VIEWS["view tree"], wait=120)
    fresh, rng = held(engine), np.random.default_rng(5)
    readers = [open_rows(engine.readers, "v")]
    for _ in range(12):
        change(engine, UPSERT, rng.choice(ROWS, ROWS // 10, replace=False), rng)
        readers.append(open_rows(engine.readers, "v"))
        look(engine)
    assert held(engine) > 4 * fresh
    for reader in readers:
        reader.close()
    until(lambda: (look(engine), held(engine) < 3 * fresh)[1], lambda: f"{held(engine)} of {fresh} bytes are held")
    check(engine)


@pytest.mark.skipif(not JIT, reason="so many rows need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("name", ["intervals", "view tree"])
def test_without_room_it_stays_and_is_tried_again(
    engine: Instance, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine.put_view("v", VIEWS[name], wait=120)
    view, tried = engine.views["v"], list[int]()
    core, another = view.core, LiveView.another

    def refuse(view: LiveView) -> Any:
        tried.append(view.bytes)
        raise MemoryError("no room")

    monkeypatch.setattr(LiveView, "another", refuse)
    numbers = np.random.default_rng(3).permutation(ROWS)
    with caplog.at_level(logging.WARNING, "livejoin.views"):
        delete(engine, numbers[: ROWS * 8 // 10])
        until(lambda: (look(engine), bool(tried) and view.refused is not None and not building(engine))[1])
        for _ in range(3):
            look(engine)
    assert len(tried) == 1 or tried[-1] <= 0.75 * tried[-2]
    assert caplog.text.count("there is no room to rebuild the structures of the view v;") == len(tried)
    assert view.state == "live" and view.core is core
    check(engine)
    monkeypatch.setattr(LiveView, "another", another)
    delete(engine, numbers[ROWS * 8 // 10 : ROWS * 95 // 100])
    until(lambda: (look(engine), view.core is not core)[1])
    assert view.refused is None
    check(engine)
