"""Cliques of interchangeable aliases: which views they are, one entry a row, every combination once or in all orders."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, INSERT, UPSERT
from service.planning.planner import alternatives
from service.reading.cursors import RowReader, open_rows
from service.views.joins.overlap_join import OverlapJoin
from service.views.shapes import Shape
from structures.clique.tree import CliqueTree
from tests.service.definitions import RELATIONS, sql
from tests.service.engine.test_engine import prepared
from tests.service.running import check
from tests.service.twin import Row, to_batch

ALL = "overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND overlaps(a.span, c.span)"
ROOMS = "a.room = b.room AND b.room = c.room"


@pytest.mark.parametrize(
    ("conditions", "shape"),
    [
        (f"{ALL} AND a.nr < b.nr AND b.nr < c.nr", "clique_less"),
        (f"{ALL} AND {ROOMS} AND c.nr < a.nr AND a.nr < b.nr", "clique_less"),
        (f"{ALL} AND {ROOMS} AND a.nr < b.nr AND b.nr < c.nr AND a.nr < c.nr", "clique_less"),
        (f"{ALL} AND {ROOMS} AND a.room < b.room AND b.room < c.room", "clique_less"),
        (f"{ALL} AND {ROOMS} AND a.nr <> b.nr AND b.nr <> c.nr AND a.nr <> c.nr", "clique_not_equal"),
        (f"{ALL} AND {ROOMS} AND a.nr <> b.nr AND b.nr <> c.nr", "heap"),  # a and c may be one row
        (f"{ALL} AND a.nr <> b.nr AND b.nr <> c.nr AND a.nr <> c.nr", "heap"),  # nr is not the key
        (f"{ALL} AND a.nr < b.nr AND a.nr < c.nr", "heap"),  # b and c have no order
        (f"{ALL} AND {ROOMS} AND a.nr < b.nr AND b.tag < c.tag", "heap"),
        (f"{ALL} AND {ROOMS} AND a.nr < b.nr AND b.nr < c.nr AND c.s > 3", "heap"),
        (f"{ALL} AND a.room = b.room AND a.nr < b.nr AND b.nr < c.nr", "join_tree"),
        ("overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND a.nr < b.nr AND b.nr < c.nr", "heap"),
    ],
)
def test_plans(conditions: str, shape: str) -> None:
    view = sql(f"SELECT a.room FROM shifts a, shifts b, shifts c WHERE {conditions}")
    if shape == "join_tree":
        assert not view.plan.shape.startswith("clique")
        return
    assert view.plan.shape == shape
    if shape.startswith("clique"):
        plan, notes = view.plan, view.plan.notes
        keyed = "a.nr < b.nr" in conditions or shape == "clique_not_equal"
        exact = keyed and ROOMS in conditions
        assert (plan.algorithm, plan.guarantee) == ("interval-tree", "strict" if exact else "best-effort")
        assert plan.theorem == "Tao and Yi, Theorem 4" and plan.bounds["update"].startswith("O(log n)")
        assert any("are skipped" in note for note in notes) == (not exact)
        assert any("a window without a key" in note for note in notes) == (ROOMS in conditions)
        assert "ij-heap" in [one.algorithm for one in alternatives(view.query, RELATIONS)]


def definition(t: int, less: bool) -> dict[str, Any]:
    names = [f"t{i}" for i in range(t)]
    pairs = list(combinations(names, 2))
    emitted = [{"less": [f"{x}.id", f"{y}.id"]} for x, y in zip(names, names[1:], strict=False)] if less else []
    emitted += [] if less else [{"not_equal": [f"{x}.id", f"{y}.id"]} for x, y in pairs]
    return {
        "from": dict.fromkeys(names, "a"),
        "join": [*({"overlaps": [f"{x}.stay", f"{y}.stay"]} for x, y in pairs), *emitted],
        "select": [f"{name}.id as {name}" for name in names],
    }


def _a(rng: random.Random, number: int) -> Row:
    start = rng.randrange(100)  # many begin together
    end = None if rng.random() < 0.05 else start + 1 + rng.randrange(12)
    return {"id": number, "room": "A", "floor": 1, "starts": start, "ends": end, "tag": "u", "weight": None}


def cliques(rows: dict[int, Row], t: int, less: bool) -> Counter[tuple[int, ...]]:
    ends = {number: (row["starts"], 1 << 60 if row["ends"] is None else row["ends"]) for number, row in sorted(rows.items())}
    found = []
    for some in combinations(ends, t):
        if max(ends[number][0] for number in some) < min(ends[number][1] for number in some):
            found += [some] if less else permutations(some)
    return Counter(found)


@pytest.mark.parametrize(("t", "less"), [(3, True), (3, False), (4, True), (4, False), (5, True)])
def test_large_batches(tmp_path: Path, t: int, less: bool) -> None:
    """60 intervals come, go and move at a time: rows that several of them take part in are told once."""
    rng = random.Random(t)
    print("seed", t)
    engine = prepared(tmp_path, {})
    assert engine.put_view("v", definition(t, less), wait=60)[1] == "created"
    view = engine.views["v"]
    assert isinstance(view.join, OverlapJoin) and isinstance(view.join.tree, CliqueTree) and view.feed is not None
    subscription = view.feed.subscribe(None, False)
    rows: dict[int, Row] = {}
    followed: Counter[tuple[int, ...]] = Counter()
    count = {3: 90, 4: 50, 5: 44}[t]
    for _ in range(8):
        changes: list[tuple[str, int, Row]] = []
        for number in rng.sample(range(count), 2 * count // 3):
            if number in rows and rng.random() < 0.4:
                changes.append(("a", DELETE, {"id": number}))
                del rows[number]
            else:
                changes.append(("a", UPSERT, rows.setdefault(number, _a(rng, number)) if rng.random() < 0.1 else _a(rng, number)))
                rows[number] = changes[-1][2]
        engine.apply(to_batch(changes))
        expected = cliques(rows, t, less)
        assert Counter(_read(engine, 17)) == expected
        for _ in range(10):
            _look_up(engine, rng, rows, expected, rng.randrange(t))
        while chunks := subscription.next():
            for chunk in chunks:
                for row in [] if chunk.rows is None else chunk.rows.to_pylist():
                    followed[tuple(row.values())] += 1 if chunk.op == "insert" else -1
                    assert followed[tuple(row.values())] in (0, 1)
        assert +followed == expected
        check(engine)
    assert len(followed) > 100
    engine.close()


def _look_up(engine: Any, rng: random.Random, rows: dict[int, Row], expected: Counter[tuple[int, ...]], position: int) -> None:
    """The rows of one row, in a window beside or around it."""
    number = rng.choice(list(rows))
    low = rows[number]["starts"] + rng.randrange(-8, 16)
    window = {"": tuple(f"1970-01-01T00:00:00.{max(0, end):06}Z" for end in (low, low + 3))}
    mine = {
        row: count
        for row, count in expected.items()
        if row[position] == number and all(_meets(rows[one], max(0, low), max(0, low + 3)) for one in row)
    }
    reader = open_rows(engine.readers, "v", window=window, point=(f"t{position}", {"id": str(number)}))
    assert Counter(_rows_of(reader, 5)) == mine, (number, position, low)


def _meets(row: Row, low: int, high: int) -> bool:
    return row["starts"] <= high and (row["ends"] is None or row["ends"] - 1 >= low)


def _read(engine: Any, chunk: int) -> list[tuple[int, ...]]:
    return _rows_of(open_rows(engine.readers, "v"), chunk)


def _rows_of(reader: RowReader, chunk: int) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    while (batch := reader.read(chunk)) is not None:
        rows += [tuple(row.values()) for row in batch.to_pylist()]
    reader.close()
    return rows


def test_what_it_saves(tmp_path: Path) -> None:
    """Against the IJ-heap, which keeps an entry for each alias and finds each combination in every order, and rows with themselves."""
    rng, found = random.Random(5), {}
    rows = [_a(rng, number) | {"ends": 0} for number in range(300)]
    for row in rows:
        row["starts"] = rng.randrange(2000)
        row["ends"] = row["starts"] + 1 + rng.randrange(40)
    for algorithm in ("interval-tree", "ij-heap"):
        engine = prepared(tmp_path / algorithm, {})
        engine.put_view("v", definition(4, True) | {"algorithm": algorithm}, wait=60)
        engine.apply(to_batch([("a", INSERT, row) for row in rows]))
        count = len(_read(engine, 1000))
        statistics = engine.views["v"].statistics()
        found[algorithm] = (count, statistics["intervals"], statistics["dead_ends"])
        engine.close()
    assert found["interval-tree"][:2] == (found["ij-heap"][0], 300) and found["ij-heap"][1] == 1200
    assert found["interval-tree"][2] == 0 and found["ij-heap"][2] > 20 * found["ij-heap"][0] > 0


def test_all_orders_come_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """13 intervals of one point give 1,235,520 rows of six: a delta that the feed does not keep is never gathered."""
    engine = prepared(tmp_path, {})
    assert engine.put_view("v", definition(6, False), wait=60)[1] == "created"
    sizes: list[int] = []
    emitted = Shape.emitted

    def counted(self: Shape, *slots: Any) -> Any:
        rows, which = emitted(self, *slots)
        sizes.append(len(rows[0]))
        return rows, which

    monkeypatch.setattr(Shape, "emitted", counted)
    engine.apply(to_batch([("a", INSERT, _a(random.Random(1), number) | {"starts": 5, "ends": 9}) for number in range(13)]))
    feed = engine.views["v"].feed
    assert feed is not None and sum(sizes) >= 1_000_000 and max(sizes) <= 1 << 16
    assert engine.views["v"].statistics()["intervals"] == 13
    engine.close()


def test_three_values_of_two() -> None:
    """In order by a column of two values nothing is a row: a join that asks on the way looks at the fewest candidates."""
    meets = ALL.replace("span", "stay")
    order = 'a."sold as is" < b."sold as is" AND b."sold as is" < c."sold as is"'
    view = sql(f"SELECT a.room FROM bookings a, bookings b, bookings c WHERE {meets} AND {order}")
    assert not view.plan.shape.startswith("clique")
