"""`Products` against their naive twin; numbers of rows that cannot be counted."""

from __future__ import annotations

import numpy as np
import pytest

from structures.aggregate.products import Members, Products
from structures.core.kernel import JIT
from tests.naive.products import Member
from tests.structures.aggregate.products_machine import ProductsMachine, packed
from tests.structures.machines import drive


def test_against_the_twin() -> None:
    drive(ProductsMachine, 60 if JIT else 13, 15)


def test_what_is_not_there_cannot_go() -> None:
    with pytest.raises(KeyError, match="not there"):
        Products(2, (), 8).follow(packed([(-1, Member(1, 3, (0, 0)))]))


@pytest.mark.parametrize("column", Members._fields)
def test_columns_that_are_too_short_are_refused_first(column: str) -> None:
    products = Products(2, (), 8)
    members = packed([(1, Member(0, 3, (0, 0))), (1, Member(1, 3, (0, 0)))])
    with pytest.raises(ValueError, match="different lengths"):
        products.follow(members._replace(**{column: getattr(members, column)[:1]}))
    products.follow(members)
    products.check(8)


def test_more_rows_than_can_be_counted() -> None:
    """Sums of so many rows are right to the last bit; one more row is too many."""
    n = 1 << 10
    products = Products(8, [(0, 0)], 8)
    for relation in range(1, 7):
        products.follow(_many(relation, n, 1))
    products.follow(_many(7, 7, 1))
    measured = products.follow(_many(0, 1, -(2**63)))
    assert measured.rows[0] == 7 * 2**60
    low, middle, high = measured.sums[0, 0].tolist()
    assert low + (middle << 32) + (high << 64) == -(2**63) * 7 * 2**60
    products.follow(_many(7, 1, 1))
    with pytest.raises(OverflowError, match="more than"):
        products.follow(_many(0, 1, 1))


def _many(relation: int, n: int, weight: int) -> Members:
    weights = np.full((n, 1), weight, np.int64)
    return Members(np.ones(n, np.int8), np.full(n, relation, np.int8), np.full(n, 5, np.int32), weights)


def test_room() -> None:
    products = Products(2, (), 8)
    products.require(8)
    with pytest.raises(MemoryError, match="at most 8 keys"):
        products.require(9)
