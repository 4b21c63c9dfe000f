"""Random topologies and conditions, kept by every algorithm that is correct, against naive twins; and what strict classes count."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from livejoin.wire.schema import parse_relation
from service.views.joins.overlap_join import OverlapJoin
from service.views.joins.reading_join import ViewTreeJoin
from service.views.parse import parse_view
from structures.ij_heap.goals import FUEL_MOST
from tests.service.engine.test_engine import prepared, run
from tests.service.random_views import LEAST_ROWS, MOST_ROWS, NATURAL, SPANS, RandomView, TooMany, by_all_algorithms
from tests.service.running import check
from tests.service.twin import DEFINITIONS, Row, Source, Twin, TwinView, to_batch

STYLES = ["heap", "boxes", "self", "mixed", "clique", "product", *NATURAL]


def drawn(rng: random.Random, style: str, most: int, keys: int) -> RandomView:
    """A view that has some rows, and no more than its twin can bear, of relations as full as the test's."""
    while True:
        source, twin = Source(rng.randrange(1 << 30), keys), Twin({})
        twin.apply(source.changes(6 * keys, twin.relations), "skip")
        view = RandomView(rng, style, most)
        try:
            if LEAST_ROWS <= len(view.combinations(twin.relations)) <= MOST_ROWS:
                return view
        except TooMany:
            pass


CASES = [(0, 1, 10), *(pytest.param(seed, 2, 22, marks=pytest.mark.soak) for seed in range(2))]  # with the numbers of views and of steps


@pytest.mark.parametrize(("seed", "count", "steps"), CASES)
@pytest.mark.parametrize("style", STYLES)
def test_all_algorithms(tmp_path: Path, style: str, seed: int, count: int, steps: int) -> None:
    """By the engine's twin: every version, followers, look-ups, windows, held readers, runs of single changes, restarts."""
    rng = random.Random(f"{style} {seed}")
    views: dict[str, TwinView] = {}
    for number in range(count):
        view = drawn(rng, style, 4, 10)
        print(number, view.definition)
        views |= by_all_algorithms(view, f"v{number}")
    run(tmp_path, 700 + seed, steps, lambda source: source.random.randrange(12), 10, views)


MORE = (("at", "(]"), ("()", "(]"), ("[]", "[)"), ("()", "()"))
BOUNDS = [("(]", "()"), *(pytest.param(pair, marks=pytest.mark.soak) for pair in MORE)]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_all_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounds: tuple[str, str]) -> None:
    """Intervals of a and b with these bounds; `at`: points. Ends are later by 2, so that none is empty."""
    for name, own in zip("ab", bounds, strict=True):
        definition = DEFINITIONS[name].to_json()
        interval = {"at": "starts"} if own == "at" else {"start": "starts", "end": "ends", "bounds": own}
        monkeypatch.setitem(DEFINITIONS, name, parse_relation(definition | {"intervals": {SPANS[name][0]: interval}}))
        monkeypatch.setitem(SPANS, name, (SPANS[name][0], closed(own)))
    row = Source.row
    monkeypatch.setattr(Source, "row", lambda source, name: later(row(source, name)))
    rng = random.Random(" ".join(bounds))
    views: dict[str, TwinView] = {}
    for number, style in enumerate(("heap", "mixed", "boxes", "self", "clique")):
        view = drawn(rng, style, 4, 10)
        print(number, view.definition)
        views |= by_all_algorithms(view, f"v{number}")
    run(tmp_path, 900, 20, lambda source: source.random.randrange(12), 10, views)


def later(row: Row) -> Row:
    return row | {"ends": None if row["ends"] is None else row["ends"] + 2}


def closed(bounds: str) -> Callable[[Row], tuple[float, float]]:
    """The closed interval of a row, in whole microseconds."""
    if bounds == "at":
        return lambda row: (row["starts"], row["starts"])
    after, before = bounds[0] == "(", bounds[1] == ")"

    def ends(row: Row) -> tuple[float, float]:
        start, end = row["starts"], row["ends"]
        return -math.inf if start is None else start + after, math.inf if end is None else end - before

    return ends


@pytest.mark.parametrize("most", [6, *(pytest.param(most, marks=pytest.mark.soak) for most in (7, 8))])
@pytest.mark.parametrize("style", ["heap", "mixed", "product"])
def test_many_aliases(tmp_path: Path, style: str, most: int) -> None:
    """After each batch: the rows by every algorithm, and the invariants; deltas by followers."""
    rng = random.Random(f"many {style} {most}")
    while True:
        view = drawn(rng, style, most, 7)
        if len(view.aliases) >= most - 1:
            break
    print(view.definition)
    run(tmp_path, 800 + most, 16, lambda source: source.random.randrange(9), 7, by_all_algorithms(view, "v"))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))])
def test_no_dead_ends(tmp_path: Path, seed: int) -> None:
    """Of what promises a delay: no row that is bound leads nowhere; an IJ-heap enters a constant number of nodes, and one a row, for
    nothing (`ij_cursors`), a tree of cliques the leaf where a look-up begins: whole views and look-ups."""
    rng = random.Random(f"strict {seed}")
    views: dict[str, TwinView] = {}
    for style in ("heap", "heap", "mixed", "mixed", "product", "product", "hierarchical"):
        views |= by_all_algorithms(drawn(rng, style, 5, 8), f"v{len(views)}")
    cliques = (drawn(rng, "clique", 5, 8) for _ in range(100))
    strict = (one for one in cliques if parse_view("v", one.definition, DEFINITIONS).plan.guarantee == "strict")
    views |= {f"clique{number}": one for number, one in enumerate(islice(strict, 2))}
    source, twin = Source(seed, 8), Twin(views)
    engine = prepared(tmp_path, views)
    promised = {name: one for name, one in engine.views.items() if one.view.plan.guarantee != "best-effort"}
    counted = {name for name, one in promised.items() if one.view.plan.algorithm in ("ij-heap", "join-tree", "view-tree")}
    assert counted
    met: Counter[str] = Counter()
    for epoch in range(15):
        changes = source.changes(rng.randrange(1, 9), twin.relations)
        if twin.apply(changes, "skip") is not None:
            engine.apply(to_batch(changes, source="s", epoch=epoch, on_error="skip"))
        check(engine)
        for name, view in promised.items():
            join = view.join
            for input in [None, *view.inputs]:
                slots = None if input is None else input.relation.table.scan(engine.published.number, 0, 3)[0]
                cursor = join.rows(join.root, None) if slots is None else join.partners(join.root, input.position, slots, None)
                rows = 0
                while not cursor.done:
                    rows += len(cursor.fill(7)[0])
                if cursor.counts.dead_ends is None:
                    continue
                plan = view.view.plan
                starts = 1 if slots is None else max(1, len(slots))
                plans = [part.plan for part in plan.parts] or [plan]
                heaps = sum(one.algorithm == "ij-heap" for one in plans)
                sets = sum(one.shape.startswith("clique") for one in plans)
                trees = sum(one.algorithm == "view-tree" for one in plans)  # a given entry without rows is looked up
                assert heaps or sets or trees or cursor.counts.dead_ends == 0, (name, cursor.counts.dead_ends)
                if isinstance(join, OverlapJoin) and heaps:
                    most = starts * (FUEL_MOST + (join.root.height + 1) * len(plan.order)) + rows
                elif isinstance(join, OverlapJoin):
                    most = sets * (0 if slots is None else starts)
                    met["clique"] += sets
                elif isinstance(join, ViewTreeJoin):
                    most = starts  # a view without rows is looked up as well
                else:  # a product reads a part again for each block of the ones before
                    most = (heaps + sets + trees) * (starts + rows) * (FUEL_MOST + 2 * len(plan.order)) + rows
                assert cursor.counts.dead_ends <= most, (name, cursor.counts.dead_ends, rows)
                met[plan.algorithm] += 1
    print(met)
    assert met["ij-heap"] and met["join-tree"] and met["clique"] and met["view-tree"]
    engine.close()
