"""The plans of walks: atoms by the order of the variables, each with its part of a tuple.

A plan is for items that have the first `PREFIX` values of a tuple; its positions are the atoms. Position 0 may be given, entry by entry,
with these values: the changed atom of a delta. An atom's part of a tuple begins at its *offset*. It is 0 except for the third atom of a
bow-tie, which has the second variable only: it is not asked before the atoms of the first variable agree in it (NEEDS).

    chain    A(x)  B(x, y)  C(x, y, z)   offsets 0, 0, 0: a walk through all, or below an entry of A, of B or of C
    bow-tie  R(x)  S(x, y)    T(y)       offsets 0, 0, 1: Algorithm 9, or below an entry of R or of S
             T(y)  S(y, x)    R(x)       the same below an entry of T

Source: docs/design/natural-joins.md (*intersect*, *bow-tie*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_ATOMS = 8

# Words of a plan; then of a position.
POSITIONS, PREFIX, GIVEN, WIDTH, WIDEST, POSITION = range(6)  # how many; 1: the first is given; values of a tuple; who has the last
MEMBER, ARITY_, OFFSET, ATOM, NEEDS, POSITION_WORDS = range(6)  # NEEDS: positions, as bits


class AtomPart(NamedTuple):
    """An atom in a plan: the number of its member, its variables in the member's order, and their offset in a tuple."""

    atom: int
    member: int
    arity: int
    offset: int


def plan_of(parts: Sequence[AtomPart], prefix: int, given: bool) -> np.ndarray:
    """The plan. `given`: the first part is given, with `prefix` values."""
    ends = [part.offset + part.arity for part in parts]
    width = max(ends)
    words = [len(parts), prefix, int(given), width, max(q for q, end in enumerate(ends) if end == width)]
    for part in parts:
        needs = sum(1 << q for q, other in enumerate(parts) if part.offset > 0 and other.offset + other.arity <= part.offset)
        words += [part.member, part.arity, part.offset, part.atom, needs]
    return np.array(words, np.int64)


def is_chain(variables: Sequence[Sequence[int]]) -> bool:
    """Whether, of any two of these orders, one is a prefix of the other."""
    return all(tuple(one[: len(other)]) == tuple(other[: len(one)]) for one in variables for other in variables)
