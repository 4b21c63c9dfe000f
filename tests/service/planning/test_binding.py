"""In which order a join by look-ups binds its aliases: the cheapest by counts, and what the counts are."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest

from livejoin.wire.batch import INSERT
from service.instance import Instance
from service.planning.binding import Binding, Counts, _Binder, bind
from service.planning.meets import meets_of
from service.query.model import Meet
from service.tables.estimates import estimates_of
from service.views.parse import parse_view
from tests.service.engine.test_engine import prepared
from tests.service.random_views import RandomView
from tests.service.twin import DEFINITIONS, Row, Source, to_batch


class Drawn:
    """Counts out of the air."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._known = rng, dict[object, float]()

    def _of(self, what: object, most: float) -> float:
        return self._known.setdefault(what, self._rng.random() * most)

    def rows(self, position: int) -> float:
        return self._of(position, 1000)

    def of_key(self, position: int, columns: tuple[str, ...]) -> float:
        return self._of((position, columns), 50)

    def share(self, meet: Meet) -> float:
        return self._of(meet, 1)


def cost_of(binder: _Binder, counts: Counts, order: tuple[int, ...]) -> float:
    cost, rows, bound = 0.0, 1.0, 1 << order[0]
    for position in order[1:]:
        candidates, kept = binder._found(position, bound, counts)
        cost, rows, bound = cost + rows * (1 + candidates), rows * candidates * kept, bound | 1 << position
    return cost


@pytest.mark.parametrize("seed", range(20))
def test_no_order_is_much_cheaper(seed: int) -> None:
    """With counts out of the air a set of aliases comes to other rows in another order, so the best order may be passed over, by little."""
    rng = random.Random(seed)
    print("seed", seed)
    query = parse_view("v", RandomView(rng, "mixed", 5).definition, DEFINITIONS).query
    counts = Drawn(rng)
    binder = _Binder(query, DEFINITIONS, counts)
    for start in range(len(query.aliases)):
        others = [position for position in range(len(query.aliases)) if position != start]
        cost, order = binder.cheapest(start, counts)
        assert order[0] == start and sorted(order) == sorted([start, *others])
        assert cost == pytest.approx(cost_of(binder, counts, order))
        assert cost <= 2 * min(cost_of(binder, counts, (start, *rest)) for rest in permutations(others))


TRIANGLE = {
    "from": {"x": "a", "y": "b", "z": "a"},
    "join": [{"overlaps": ["x.stay", "y.slot"]}, {"equal": ["y.floor", "z.floor"]}, {"equal": ["x.room", "z.room"]}],
    "select": ["x.id as i", "y.nr as n", "z.id as j"],
}


def binding(engine: Instance) -> Binding:
    found = engine.views["v"].view.plan.binding
    assert found is not None
    return found


def _a(number: int, room: str, floor: int) -> Row:
    return {"id": number, "room": room, "floor": floor, "starts": number, "ends": number + 1, "tag": "u", "weight": None}


def _b(number: int, floor: int) -> Row:
    return {"nr": number, "site": "N", "room": "A", "floor": floor, "starts": number, "ends": number, "note": None}


def test_the_order_follows_the_rows(tmp_path: Path) -> None:
    """A room of a's is one of two, a floor one of 500; the spans of a and b meet in one pair of 500. From x, y is found by its span before
    z by its room; from z, y by its floor, then x by room and span. Empty relations know no better than the kinds of the conditions."""
    engine = prepared(tmp_path, {})
    empty = engine.put_view("v", TRIANGLE | {"algorithm": "nested-loop"}, wait=60)[0]
    assert "by rules" in empty.view.plan.notes[-1]
    by_rules = binding(engine)
    assert by_rules == bind(empty.view.query, DEFINITIONS, None) and by_rules.orders[0] == (0, 2, 1)
    engine.drop_view("v")
    engine.apply(to_batch([("a", INSERT, _a(i, "AB"[i % 2], i)) for i in range(500)] + [("b", INSERT, _b(i, i)) for i in range(500)]))
    view = engine.put_view("v", TRIANGLE | {"algorithm": "nested-loop"}, wait=60)[0]
    by_counts = binding(engine)
    assert by_counts.orders[0] == (0, 1, 2) and by_counts.orders[2] == (2, 1, 0)
    assert "by row counts" in view.view.plan.notes[-1]
    assert [view.view.query.aliases[position][0] for position in by_counts.orders[by_counts.first]] == list(view.view.plan.order)
    engine.drop_view("v")
    engine.put_view("v", TRIANGLE | {"algorithm": "nested-loop"}, wait=60)
    assert binding(engine) == by_counts
    engine.close()


@pytest.mark.parametrize("seed", range(3))
def test_estimates_of_small_relations_are_exact(tmp_path: Path, seed: int) -> None:
    engine = prepared(tmp_path, {})
    source = Source(seed, 40)
    print("seed", seed)
    changes = [(name, INSERT, source.row(name) | key) for name in "ab" for number in range(200) for key in [_key(name, number)]]
    engine.apply(to_batch(changes))
    rows = {name: [row for relation, _, row in changes if relation == name] for name in "ab"}
    definition = {**TRIANGLE, "where": [{"column": "x.tag", "op": "=", "value": "u"}]}
    query = parse_view("v", definition, DEFINITIONS).query
    counts = engine.at_rest(lambda: estimates_of(query, engine.relations, engine.published.number))
    assert counts is not None
    mine = [row for row in rows["a"] if row["tag"] == "u"]
    assert (counts.rows(0), counts.rows(1)) == (pytest.approx(len(mine)), 200)
    keyed = [row for row in mine if row["room"] is not None and row["floor"] is not None]
    assert counts.of_key(0, ("room", "floor")) == pytest.approx(len(keyed) / len({(row["room"], row["floor"]) for row in keyed}))
    met = sum(_meets(x, y) for x in mine for y in rows["b"])
    (meet,) = meets_of(query, DEFINITIONS)
    assert counts.share(meet) == pytest.approx(met / (len(mine) * 200))
    engine.close()


def test_estimates_of_a_large_relation(tmp_path: Path) -> None:
    """30,000 rows, of which each key has three, none of them beside each other."""
    engine = prepared(tmp_path, {})
    rows = [_a(i, "A", i % 10_000) for i in range(30_000)]
    engine.apply(to_batch([("a", INSERT, row) for row in rows]))
    query = parse_view("v", {"from": {"x": "a", "y": "a"}, "join": [{"equal": ["x.floor", "y.floor"]}]}, DEFINITIONS).query
    one, two = (engine.at_rest(lambda: estimates_of(query, engine.relations, engine.published.number)) for _ in range(2))
    assert one is not None and two is not None and one.rows(0) == 30_000
    assert 1.5 <= one.of_key(0, ("floor",)) <= 6 and one.of_key(0, ("floor",)) == two.of_key(0, ("floor",))
    assert 20_000 <= one.of_key(0, ("room",)) <= 30_000
    engine.close()


def _key(name: str, number: int) -> Row:
    return {"id": number} if name == "a" else {"nr": number, "site": "N"}


def _meets(x: Row, y: Row) -> bool:
    begins = y["starts"] is None or x["ends"] is None or y["starts"] < x["ends"]
    return begins and (y["ends"] is None or x["starts"] <= y["ends"])
