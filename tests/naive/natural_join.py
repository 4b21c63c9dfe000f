"""The naive twin of `structures.qdag`: sets of tuples with slots, and nested loops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

Entry = tuple[int, ...]
"""Codes, and at last the slot."""


def entries(given: Iterable[Entry], arity: int) -> np.ndarray:
    return np.array(list(given), np.int32).reshape(-1, arity + 1)


def join(relations: Sequence[Iterable[Entry]], variables: Sequence[Sequence[int]], codes: Sequence[int] = ()) -> set[tuple[int, ...]]:
    """The rows: a slot a relation, wherever all agree in their variables, and with `codes` where these are not -1."""
    found = set()
    for row in product(*relations):
        values: dict[int, int] = {v: code for v, code in enumerate(codes) if code >= 0}
        bound = [pair for entry, own in zip(row, variables, strict=True) for pair in zip(own, entry, strict=False)]
        if all(values.setdefault(v, code) == code for v, code in bound):
            found.add(tuple(entry[-1] for entry in row))
    return found
