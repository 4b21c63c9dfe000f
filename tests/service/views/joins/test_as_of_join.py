"""ASOF joins against naive twins: every version, followers, look-ups, held readers, runs of single changes, restarts; hostile data."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.engine.test_engine import Follower, compare, prepared, read_all, run
from tests.service.latest import AsOfView
from tests.service.running import check, opened, refuses_nulls
from tests.service.twin import DEFINITIONS, Row, Source, Twin, TwinView, to_batch, values
from tests.service.views.stages.test_groups import compare_with_brute_force

_V = {"where": [{"column": "y.tag", "op": "=", "value": "v"}]}
_ODD = {"where": [{"expression": "(coalesce(y.id, 1) + x.floor) % 2 = 1 OR x.tag = 'v'"}]}


def _is_odd(x: Row, y: Row) -> bool:
    number = None if x["floor"] is None else (1 if y["id"] is None else y["id"]) + x["floor"]
    return (number is not None and math.fmod(number, 2) == 1) or x["tag"] == "v"


INNER: dict[str, TwinView] = {
    "latest": AsOfView(("b", "a"), ["room"], "starts", "<=", "starts", False),
    "earlier": AsOfView(("a", "a"), ["room", "floor"], "starts", "<", "starts", False),
    "next": AsOfView(("a", "b"), ["room"], "starts", ">=", "starts", False),
    "behind": AsOfView(("b", "b"), [], "starts", ">", "ends", False),
    "tagged": AsOfView(("a", "a"), ["room"], "starts", "<=", "ends", False, _V, lambda x, y: y["tag"] == "v"),
    "few": AsOfView(("a", "b"), ["floor"], "nr", "<=", "id", False, {"where": [{"column": "x.tag", "op": "!=", "value": "u"}]},
                    lambda x, y: x["tag"] != "u"),
    "odd": AsOfView(("a", "a"), ["room"], "starts", "<=", "ends", False, _ODD, _is_odd),
}  # fmt: skip
LEFT: dict[str, TwinView] = {
    "latest": AsOfView(("b", "a"), ["room"], "starts", "<=", "starts", True),
    "earlier": AsOfView(("a", "a"), ["room", "floor"], "starts", "<", "starts", True),
    "next": AsOfView(("a", "b"), ["room"], "starts", ">=", "starts", True),
    "last": AsOfView(("b", "b"), [], "starts", ">", "ends", True),
    "whole": AsOfView(("b", "a"), ["floor"], "id", "<=", "nr", True, {"where": [{"column": "x.site", "op": "!=", "value": "N"}]},
                      lambda x, y: x["site"] != "N"),
    "odd": AsOfView(("a", "a"), ["room"], "starts", "<=", "ends", True, _ODD, _is_odd),
}  # fmt: skip


def test_what_is_promised() -> None:
    plans = {name: parse_view("v", view.definition, DEFINITIONS).plan for name, view in INNER.items()}
    assert {name: plan.guarantee for name, plan in plans.items()} == {name: "best-effort" if name == "odd" else "strict" for name in plans}
    with pytest.raises(Problem, match="rows that WHERE excludes by a condition on both relations"):
        parse_view("v", INNER["odd"].definition | {"guarantee": "strict"}, DEFINITIONS)
    assert plans["latest"].algorithm == "interval-tree" and plans["latest"].cls == "as-of join, 1-D, 2 relations, keyed"
    left = parse_view("v", LEFT["last"].definition, DEFINITIONS).plan
    assert left.cls == "left outer as-of join, 1-D, 2 relations" and any("is joined with nulls" in note for note in left.notes)
    with pytest.raises(Problem, match='joins two relations as of x.starts; write "algorithm": "interval-tree"'):
        parse_view("v", INNER["next"].definition | {"algorithm": "nested-loop"}, DEFINITIONS)
    by_weight = {"from": {"x": "a", "y": "a"}, "join": [{"as_of": ["y.weight", "<=", "x.weight"]}], "select": ["x.id as i"]}
    with pytest.raises(Problem, match="y.weight, which may be NaN, is not supported: declare") as caught:
        parse_view("v", by_weight, DEFINITIONS)
    assert caught.value.type == "unsupported-query"


@pytest.mark.parametrize("views", [INNER, LEFT], ids=["inner", "left"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_small_batches(tmp_path: Path, seed: int, views: dict[str, TwinView]) -> None:
    run(tmp_path, 700 + seed, 50, lambda source: source.random.randrange(5), 12, views)


@pytest.mark.parametrize("views", [INNER, LEFT], ids=["inner", "left"])
def test_large_batches(tmp_path: Path, views: dict[str, TwinView]) -> None:
    run(tmp_path, 750, 15, lambda source: source.random.randrange(60), 30, views)


@pytest.mark.parametrize("views", [INNER, LEFT], ids=["inner", "left"])
def test_recomputed_rows_and_look_ups_are_those_of_the_view(tmp_path: Path, views: dict[str, TwinView]) -> None:
    """By the columns that join them, of either alias."""
    source, twin = Source(8, 12), Twin(views)
    engine = prepared(tmp_path, views)
    for _ in range(8):
        changes = source.changes(20, twin.relations)
        twin.apply(changes, "skip")
        engine.apply(to_batch(changes, on_error="skip"))
        compare_with_brute_force(engine)
        check(engine)
        for position, alias in enumerate("xy"):
            rows = views["latest"].combinations(twin.relations)
            for room in ("A", "B", "nowhere"):
                mine = [row for row in rows if row[position]["room"] == room]
                found = read_all(open_rows(engine.readers, "latest", point=(alias, {"room": room})))
                assert found == Counter(values(views["latest"].select(*row)) for row in mine), (alias, room)
    engine.close()


def test_one_row_takes_the_points_of_many_and_gives_them_back(tmp_path: Path) -> None:
    """Only those from its own place on, each told once; columns that the view does not use tell nothing."""
    views = {"v": LEFT["latest"]}
    twin, engine = Twin(views), prepared(tmp_path, views)

    def applied(*changes: tuple[str, int, dict[str, Any]]) -> int:
        """And how many rows of the view are told."""
        twin.apply(list(changes), "reject")
        feed = engine.views["v"].feed
        assert feed is not None
        before = feed.emitted
        engine.apply(to_batch(list(changes)))
        compare(engine, twin)
        return feed.emitted - before

    def price(number: int, at: int, room: str = "A", **more: Any) -> tuple[str, int, dict[str, Any]]:
        row = {"id": number, "room": room, "floor": None, "starts": at, "ends": None, "tag": "u", "weight": None} | more
        return "a", UPSERT, row

    points = [{"nr": at, "site": "N", "room": "A", "floor": None, "starts": at, "ends": None, "note": None} for at in range(40)]
    assert applied(*(("b", UPSERT, row) for row in points)) == 40
    follower = Follower(engine, "v", twin, True)
    follower.catch_up()
    assert applied(price(1, 10)) == 60
    assert applied(price(2, 30)) == 20
    assert applied(price(3, 20)) == 20
    assert applied(price(3, 20, tag="v")) == 0
    assert applied(price(4, 20)) == 20, "of equal ones the greatest key"
    assert applied(price(0, 20)) == 0
    assert applied(("a", DELETE, {"id": 4})) == 20
    assert applied(price(3, 25)) == 20, "five go back to another one of that place, five stay with it, and are told with its new time"
    assert applied(price(5, 20, "B")) == 0
    assert applied(("a", DELETE, {"id": 3}), ("a", DELETE, {"id": 2}), price(6, 25)) == 20 + 10
    assert applied(*(("a", DELETE, {"id": number}) for number in (0, 1, 5, 6))) == 60
    follower.catch_up()
    check(engine)
    engine.close()


_OF_TEXTS = {
    "quotes": parse_relation(
        {
            "columns": [
                {"name": name, "type": type_} for name, type_ in (("name", "string"), ("no", "bytes"), ("at", "int64"), ("price", "int64"))
            ],
            "key": ["name", "no"],
        }
    ),
    "trades": parse_relation({"columns": [{"name": "id", "type": "int64"}, {"name": "at", "type": "int64"}], "key": ["id"]}),
}


def test_of_rows_at_one_time_the_greatest_text_is_found_without_reading_them(tmp_path: Path) -> None:
    """Names that begin alike for long, in batches, runs and single changes; a change looks at no more of them as they grow."""
    engine = opened(tmp_path / "data")
    for name, definition in _OF_TEXTS.items():
        engine.put_relation(name, definition)
    join = "FROM trades t ASOF LEFT JOIN quotes q ON q.at <= t.at"
    assert engine.put_view("v", {"sql": f"SELECT t.id AS id, q.name AS name, q.no AS no {join}"}, wait=60)[1] == "created"

    def apply(changes: list[tuple[str, int, dict[str, Any]]]) -> None:
        engine.apply(to_batch(changes, _OF_TEXTS))

    apply([("trades", UPSERT, {"id": at, "at": at}) for at in range(4)])
    rng, there = random.Random(5), dict[tuple[str, bytes], int]()
    names = ["", *("longer than a word" * n + end for n in range(3) for end in ("", "a", "b", "é"))]
    view = engine.views["v"]

    def validate() -> None:
        best = [max(((at, *key) for key, at in there.items() if at <= time), default=(0, None, None)) for time in range(4)]
        assert read_all(open_rows(engine.readers, "v")) == Counter((time, name, no) for time, (_, name, no) in enumerate(best))
        check(engine)

    for _ in range(40):
        changes = []
        for _ in range(rng.choice((1, 1, 2, 9, 30))):
            key = rng.choice(names), rng.choice((b"", b"\0", b"0123456", b"01234567"))
            if key in there and rng.random() < 0.5:
                del there[key]
                changes.append(("quotes", DELETE, {"name": key[0], "no": key[1]}))
            else:
                there[key] = rng.randrange(3)
                changes.append(("quotes", UPSERT, {"name": key[0], "no": key[1], "at": there[key], "price": rng.randrange(2)}))
        apply(changes)
        validate()
    steps = list[int]()
    for many in (100, 10_000):
        apply([("quotes", UPSERT, {"name": f"quote number {at:06}", "no": b"", "at": 3, "price": 1}) for at in range(many)])
        before = view.statistics()["steps_per_update"] * view.changed_rows
        for kind in (UPSERT, DELETE):
            row = {"name": "quote number 000050 and more", "no": b"", "at": 3, "price": 1}
            apply([("quotes", kind, row if kind == UPSERT else {"name": row["name"], "no": b""})])
        steps.append(view.statistics()["steps_per_update"] * view.changed_rows - before)
    assert steps[1] <= steps[0] + 4, "it reads those at its time"
    engine.close()
    engine = opened(tmp_path / "data")
    assert read_all(open_rows(engine.readers, "v"))[(3, "quote number 009999", b"")] == 1
    check(engine)
    engine.close()


def test_a_column_by_which_it_joins_stays_as_it_is(tmp_path: Path) -> None:
    engine = prepared(tmp_path, {"v": INNER["latest"]})
    refuses_nulls(engine, "starts", "'starts' is a column by which v joins")
    engine.close()


def test_a_change_that_where_leaves_out_ends_another_row(tmp_path: Path) -> None:
    """The latest row does not meet WHERE, which selects by equality: then there is none, though an earlier one would."""
    views = {"tagged": INNER["tagged"]}
    twin, engine = Twin(views), prepared(tmp_path, views)
    rows = [
        {"id": number, "room": "A", "floor": None, "starts": at, "ends": 50, "tag": tag, "weight": None}
        for number, at, tag in ((1, 5, "v"), (2, 7, "u"))
    ]
    for row in rows:
        twin.apply([("a", UPSERT, row)], "reject")
        engine.apply(to_batch([("a", UPSERT, row)]))
        compare(engine, twin)
    assert not twin.history[twin.version]["tagged"]
    engine.close()


def test_groups_of_an_as_of_join(tmp_path: Path) -> None:
    """Counted with those that have nobody."""
    engine = prepared(tmp_path, {"left": LEFT["latest"]})
    join = "FROM b x ASOF LEFT JOIN a y ON x.room = y.room AND y.starts <= x.starts"
    for name, text in (
        ("groups", f"SELECT y.tag AS tag, COUNT(*) AS n, MAX(x.nr) AS m {join} GROUP BY y.tag"),
        ("distinct", f"SELECT DISTINCT x.site AS site, x.nr AS nr {join}"),
    ):
        assert engine.put_view(name, {"sql": text}, wait=60)[1] == "created", engine.views[name].problem
    source, twin = Source(9, 12), Twin({"left": LEFT["latest"]})
    for _ in range(8):
        changes = source.changes(12, twin.relations)
        twin.apply(changes, "skip")
        engine.apply(to_batch(changes, on_error="skip"))
        compare_with_brute_force(engine)
        counts = Counter(y["tag"] for _, y in LEFT["latest"].combinations(twin.relations))
        assert {row[0]: row[1] for row in read_all(open_rows(engine.readers, "groups"))} == counts
        check(engine)
    engine.close()
