"""The naive twin of `structures.qdag.qdag`: sets of tuples with slots, joined one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

Entry = tuple[int, ...]
"""Codes, and at last the slot."""


def entries(given: Iterable[Entry], arity: int) -> np.ndarray:
    return np.array(list(given), np.int32).reshape(-1, arity + 1)


Group = Sequence[tuple[Iterable[Entry], Sequence[int]]]
"""Relations, each with its variables."""


def join(
    relations: Sequence[Iterable[Entry]], variables: Sequence[Sequence[int]], codes: Sequence[int] = (), absent: Sequence[Group] = ()
) -> set[tuple[int, ...]]:
    """Return the rows, one slot per relation, in which all relations agree in their variables, and agree with `codes` where these are not
    -1; except for rows whose values are in all relations of a group."""
    known = {v: code for v, code in enumerate(codes) if code >= 0}
    rows: list[tuple[dict[int, int], tuple[int, ...]]] = [(known, ())]
    bound = set(known)
    for relation, own in zip(relations, variables, strict=True):
        shared = [at for at, v in enumerate(own) if v in bound]
        agreeing: dict[tuple[int, ...], list[Entry]] = {}
        for entry in relation:
            agreeing.setdefault(tuple(entry[at] for at in shared), []).append(entry)
        rows = [
            (values | dict(zip(own, entry, strict=False)), (*slots, entry[-1]))
            for values, slots in rows
            for entry in agreeing.get(tuple(values[own[at]] for at in shared), ())
        ]
        bound |= set(own)
    groups = [[({entry[:-1] for entry in relation}, own) for relation, own in group] for group in absent]

    def stands(values: dict[int, int]) -> bool:
        return not any(all(tuple(values[v] for v in own) in tuples for tuples, own in group) for group in groups)

    return {slots for values, slots in rows if stands(values)}
