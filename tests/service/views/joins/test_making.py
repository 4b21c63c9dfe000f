"""What a view's join takes of `structures`: a start compiles what `rooms_of` names, so it must name all."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import structures
from service.query.model import ALGORITHMS
from service.reading.cursors import open_rows
from service.views.joins.making import rooms_of
from service.warming import EVERY_BATCH
from structures.core.sources import Sources
from tests.service.running import batch, check, ids, rows_of, running

NAMES = "SELECT a.id AS a, b.id AS b FROM a, b WHERE "
THREE = "SELECT p.id AS p, q.id AS q, r.id AS r FROM a p, a q, a r WHERE "
PATH = "SELECT p.id AS p, b.id AS b, q.id AS q FROM a p, b, a q WHERE p.s = b.s AND b.e = q.e"
VIEWS = {
    "interval-tree": ["SELECT id FROM a", NAMES + "overlaps(a.x, b.x)", THREE + "overlaps(p.x, q.x) AND overlaps(q.x, r.x) AND "
                      "overlaps(p.x, r.x) AND p.id < q.id AND q.id < r.id", "SELECT a.id AS a, b.id AS b FROM a CROSS JOIN b"],
    "ij-heap": [NAMES + "overlaps(a.x, b.x)"],
    "box-tree": [NAMES + "overlaps(a.x, b.x) AND a.id < b.id"],
    "view-tree": [NAMES + "a.id = b.id"],
    "join-tree": [PATH, NAMES + "overlaps(a.x, b.x) AND a.id = b.id",
                  "SELECT a.id AS a FROM a WHERE NOT EXISTS (SELECT 1 FROM b, a c WHERE a.s = b.s AND b.e = c.e)"],
    "qdag": [PATH],
    "nested-loop": [PATH, NAMES + "overlaps(a.x, b.x)"],
    "tree-tracker": [PATH],
    "minesweeper": [PATH],
    "elimination": [PATH, NAMES + "a.id = b.id"],
    "intersect": [NAMES + "a.id = b.id"],
    "bow-tie": [PATH],
    "lqdag": ["SELECT s AS s FROM a EXCEPT SELECT s AS s FROM b",
              "SELECT a.id AS a FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.s = a.s)"],
    "match-tree": ["SELECT a.id AS a FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE overlaps(a.x, b.x))",
                   "SELECT a.id AS a, b.id AS b FROM a FULL JOIN b ON a.id = b.id AND overlaps(a.x, b.x)",
                   "SELECT a.id AS a FROM a WHERE a.id IN (SELECT b.id FROM b)",
                   "SELECT a.id AS a, b.id AS b FROM a LEFT JOIN b ON a.id = b.id"],
    "event-tree": ["SELECT COUNT(*) AS n FROM a JOIN b ON overlaps(a.x, b.x)",
                   "SELECT a.id AS a, gaps(a.x, b.x) AS free FROM a LEFT JOIN b ON overlaps(a.x, b.x)",
                   "SELECT a.id AS a, coverage(a.x, b.x) AS busy FROM a JOIN b ON overlaps(a.x, b.x)",
                   "SELECT a.tag AS tag, coverage(a.x) AS busy FROM a GROUP BY a.tag"],
}  # fmt: skip


@pytest.fixture
def entered() -> Iterator[set[str]]:
    """The rooms of `structures` whose code runs, in this thread and in new ones."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("structures.") and not name.endswith(".shape"):  # these tell the planner what is possible, without kernels
            found.add(name.split(".")[1])

    sys.setprofile(note)
    threading.setprofile(note)
    yield found
    threading.setprofile(None)
    sys.setprofile(None)


def test_every_algorithm_is_here() -> None:
    assert {*VIEWS} == {*ALGORITHMS}


@pytest.mark.parametrize(("algorithm", "sql"), [(algorithm, sql) for algorithm, views in VIEWS.items() for sql in views])
def test_a_view_takes_the_rooms_that_are_named(tmp_path: Path, entered: set[str], algorithm: str, sql: str) -> None:
    engine = running(tmp_path / "data", {})
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(1, 4))))
    of_tables = set(entered)
    view, _ = engine.put_view("v", {"sql": sql, "algorithm": algorithm}, wait=60)
    engine.apply(batch(("upsert", "a", rows_of(3, 2)), ("delete", "b", rows_of(1, 1))))
    engine.apply(batch(("upsert", "b", rows_of(7, 1)), ("truncate", "a", rows_of(0, 0))))
    engine.apply(batch(("upsert", "a", rows_of(0, 9))))
    ids(open_rows(engine.readers, "v"))
    check(engine)
    engine.close()
    sources = Sources(Path(structures.__path__[0]))
    needed = {base: sources.needed_by(base) for base in {*EVERY_BATCH} | rooms_of(view.view.plan)}
    assert view.state == "live" and view.view.plan.algorithm == algorithm
    assert of_tables <= set().union(*(needed[base] for base in EVERY_BATCH))
    assert entered <= set().union(*needed.values())
    assert rooms_of(view.view.plan) - {"netting"} <= entered, "what no view takes is compiled for nothing"  # not each nets something here
