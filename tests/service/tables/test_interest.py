"""Whom a change concerns: everybody whose filters one of the rows meets, and nobody whose equalities exclude all of them."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import RowBlock
from livejoin.wire.schema import parse_relation
from service.query.conditions import ColumnRef, Condition, Filter
from service.query.filters import either
from service.tables.interest import Interest, Selection, TouchedRows
from service.tables.masks import select_mask
from service.tables.relations import Relation
from service.tables.resolution import Resolution

COLUMNS = {
    "id": ("int64", [0, 1, 2]),
    "n": ("int64", [None, -(2**63), 0, 1, 2**63 - 1]),
    "x": ("float64", [None, math.nan, -0.0, 0.0, 1.5, math.inf]),
    "t": ("string", [None, "", "a", "ä"]),
    "ok": ("bool", [None, True, False]),
    "at": ("timestamp", [None, 0, 10**15]),
    "day": ("date", [None, 0, -5]),
}
DEFINITION = {"columns": [{"name": name, "type": kind, "nullable": name != "id"} for name, (kind, _) in COLUMNS.items()], "key": ["id"]}


def random_conditions(chance: random.Random) -> list[Condition]:
    if chance.random() < 0.7:
        return [random_filter(chance)]
    return either([all_of(chance, chance.choice((1, 1, 2))) for _ in range(chance.choice((2, 2, 3)))])


def all_of(chance: random.Random, count: int) -> list[Condition]:
    return [one for _ in range(count) for one in random_conditions(chance)]


def random_filter(chance: random.Random) -> Filter:
    column = chance.choice(list(COLUMNS))
    values = [value for value in COLUMNS[column][1] if value is not None and value == value]
    op = chance.choice(["=", "=", "in", "!=", "not_null", "is_null"])
    value = chance.choice(values) if op in ("=", "!=") else tuple(sorted(chance.sample(values, 2))) if op == "in" else None
    return Filter(ColumnRef("a", column), op, value)


def rows_of(relation: Relation, rows: list[tuple[Any, ...]], few: bool) -> RowBlock:
    made = RowBlock.few(rows, pa.struct(relation.schema))
    return made if few else RowBlock(made.arrow)


@pytest.mark.parametrize("few", [True, False], ids=["as values", "as Arrow"])
@pytest.mark.parametrize("seed", range(10))
def test_against_the_filters(seed: int, few: bool) -> None:
    chance = random.Random(seed)
    relation = Relation(1, "r", parse_relation(DEFINITION))
    numbers = itertools.count(100)

    def row() -> tuple[Any, ...]:
        values = [chance.choice(values) for _, values in COLUMNS.values()]
        return (next(numbers), *values[1:])

    things = [[Selection("r", all_of(chance, chance.randrange(3))) for _ in range(chance.choice((1, 1, 2)))] for _ in range(60)]
    interest = Interest((number, takes) for number, takes in enumerate(things))
    assert interest.using("r") == list(range(60)) and interest.using("s") == []
    for _ in range(20):
        old, new = [row() for _ in range(chance.randrange(3))], [row() for _ in range(chance.choice((0, 1, 1, 2000)))]
        slots = relation.table.insert(1, rows_of(relation, old, False)) if old else np.empty(0, np.int32)
        inserts = rows_of(relation, new, few) if new else relation.no_rows
        one = Resolution(relation, False, inserts, np.full(len(new), -1, np.int32), slots, relation.no_keys, 0, np.empty(0, np.int64))
        concerned = interest.concerned(TouchedRows([one]))
        assert concerned == sorted(set(concerned))
        both = rows_of(relation, old + new, False) if old or new else None
        for number, takes in enumerate(things):
            met = both is not None and any(select_mask(taken.filters, both.arrow).any() for taken in takes)
            assert not met or number in concerned, f"{takes} are met"
            alone = [taken for taken in takes if len(taken.filters) == 1 and getattr(taken.filters[0], "op", "") in ("=", "in")]
            if len(alone) == len(takes):
                assert met == (number in concerned), f"{takes} exclude all of the rows"


def test_or_with_an_equality_in_each_case_is_looked_up() -> None:
    n, t = ColumnRef("a", "n"), ColumnRef("a", "t")
    both = either([[Filter(n, "=", 1), Filter(t, "=", "a")], [Filter(n, "in", (2, 3)), Filter(t, "like", "b%")]])
    one = either([[Filter(n, "=", 1)], [Filter(t, "=", "a")]])
    relation = Relation(1, "r", parse_relation(DEFINITION))
    interest = Interest([("both", [Selection("r", both)]), ("one", [Selection("r", one)])])
    for value, expected in ((1, ["both", "one"]), (3, ["both", "one"]), (0, ["one"])):
        inserts = rows_of(relation, [(9, value, None, None, None, None, None)], True)
        none = np.empty(0, np.int32)
        touched = TouchedRows(
            [Resolution(relation, False, inserts, np.full(1, -1, np.int32), none, relation.no_keys, 0, np.empty(0, np.int64))]
        )
        assert interest.concerned(touched) == expected


def test_of_several_relations() -> None:
    interest = Interest([("both", [Selection("r", []), Selection("s", [])]), ("s", [Selection("s", [])])])
    assert interest.using("r") == ["both"] and interest.using("s") == ["both", "s"]
    assert interest.concerned(TouchedRows(())) == []
