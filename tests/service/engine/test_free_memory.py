"""The memory that structures keep for reuse: it counts for every store of every kind of view."""

from __future__ import annotations

import gc
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from service.instance import Instance
from service.reading.cursors import open_rows
from structures.core.blocks import Blocks
from tests.service.running import PAIR, batch, look, parts, rows_of, running

NATURAL = {"from": {"a": "a", "b": "b"}, "join": [{"equal": ["a.id", "b.id"]}], "select": ["a.id as i", "b.id as j"]}
KINDS: dict[str, dict[str, Any]] = {
    **{name: PAIR | {"algorithm": name} for name in ("interval-tree", "ij-heap", "join-tree", "nested-loop")},
    **{name: NATURAL | {"algorithm": name} for name in ("view-tree", "qdag", "tree-tracker")},
    "box-tree": PAIR | {"join": [*PAIR["join"], {"at_most": ["a.id", "b.id"]}], "algorithm": "box-tree"},
    "clique": {"sql": "SELECT p.id AS i FROM a p, a q, a r WHERE overlaps(p.x, q.x) AND overlaps(q.x, r.x) AND overlaps(p.x, r.x)"
               " AND p.id < q.id AND q.id < r.id"},
    "product": {"sql": "SELECT p.id AS i, q.id AS j, r.id AS k FROM a p JOIN b q ON overlaps(p.x, q.x) CROSS JOIN b r"},
    "match": {"sql": "SELECT p.id AS i, q.id AS j FROM a p LEFT JOIN b q ON overlaps(p.x, q.x)"},
    "outer": {"sql": "SELECT p.id AS i FROM a p LEFT JOIN b q ON overlaps(p.x, q.x) AND p.id <= q.id"},
    "gaps": {"sql": "SELECT p.id, gaps(p.x, q.x) AS free FROM a p LEFT JOIN b q ON overlaps(p.x, q.x)"},
    "coverage": {"sql": "SELECT p.id, coverage(p.x, q.x) AS busy FROM a p JOIN b q ON overlaps(p.x, q.x)"},
    "runs": {"sql": "SELECT p.tag, coverage(p.x) AS busy FROM a p GROUP BY p.tag"},
    "as of": {"sql": "SELECT p.id AS i, q.id AS j FROM a p ASOF JOIN b q ON q.s <= p.s"},
    "latest": {"sql": "SELECT DISTINCT ON (tag) id, tag FROM a ORDER BY tag, s DESC"},
    "counted": {"sql": "SELECT p.id AS i, COUNT(*) AS n FROM a p JOIN b q ON overlaps(p.x, q.x) GROUP BY p.id"},
    "visited": {"sql": "SELECT p.tag AS t, COUNT(*) AS n FROM a p JOIN b q ON overlaps(p.x, q.x) GROUP BY p.tag"},
    "grouped": {"sql": "SELECT p.tag AS t, MAX(q.id) AS n FROM a p JOIN b q ON overlaps(p.x, q.x) GROUP BY p.tag"},
}  # fmt: skip


def stores_of(engine: Instance) -> list[Any]:
    return [*parts(engine).state.indexes.stores, *chain.from_iterable(view.stores for view in engine.views.values())]


@pytest.mark.parametrize("kind", KINDS)
def test_every_store_counts_once(tmp_path: Path, kind: str) -> None:
    gc.collect()
    known = [one for one in gc.get_objects() if isinstance(one, Blocks)]
    engine = running(tmp_path, KINDS[kind])
    engine.apply(batch(("upsert", "a", rows_of(0, 9, tag="x")), ("upsert", "b", rows_of(0, 9, tag="x"))))
    gc.collect()
    earlier = set(map(id, known))
    made = {id(one) for one in gc.get_objects() if isinstance(one, Blocks)} - earlier
    found = [id(one) for one in stores_of(engine)]
    assert set(found) == made and len(found) == len(made) > 0
    engine.close()


def test_what_pins_have_held_is_free_when_they_have_gone(tmp_path: Path) -> None:
    engine = running(tmp_path)
    n = 20_000
    engine.apply(batch(("upsert", "a", rows_of(0, n, length=1))))
    (store,) = stores_of(engine)
    fresh = engine.metrics()["free_bytes"]
    reader = open_rows(engine.readers, "v")
    engine.apply(batch(("upsert", "a", rows_of(0, n, start=5, length=1))))
    assert store.retired_bytes > n * 16
    assert engine.metrics()["free_bytes"] == store.held_bytes - store.live_bytes - store.retired_bytes < fresh + n * 4
    reader.close()
    engine.apply(batch(("upsert", "b", rows_of(0, 1, length=1))))
    look(engine)
    assert store.retired_bytes == 0 and engine.metrics()["free_bytes"] > fresh
    assert engine.metrics()["free_bytes"] == store.held_bytes - store.live_bytes
    engine.close()
