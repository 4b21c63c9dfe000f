"""The naive twin of `structures.aggregate.products`: the rows of the join, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple


class Member(NamedTuple):
    relation: int
    key: int
    weights: tuple[int, ...]


def totals(rows: Sequence[Member], relations: int, sums: Sequence[tuple[int, int]]) -> list[int]:
    """Return the number of rows of the join, and the sums of a relation's weight."""
    inputs = [[row for row in rows if row.relation == relation] for relation in range(relations)]
    found = [one for one in product(*inputs) if len({row.key for row in one}) == 1]
    return [len(found), *(sum(one[relation].weights[weight] for one in found) for relation, weight in sums)]
