"""The naive twin of the join tree: rows are bound one alias after another, each tried with all rows of the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Seen = tuple[int, int, int]
"""A row as a port sees it: code, left, right."""

Rows = Sequence[Mapping[int, Mapping[int, Seen]]]
"""Of each alias by slot: the row as each of its ports sees it."""


def meet(one: Seen, other: Seen) -> bool:
    return one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]


def join(rows: Rows, edges: Sequence[tuple[int, int]], alias_of: Sequence[int]) -> set[tuple[int, ...]]:
    """The slots of each row, by alias; `edges`: pairs of ports, in any order; `alias_of` each port."""
    bound: list[dict[int, int]] = [{0: slot} for slot in rows[0]]
    waiting = list(edges)
    done = {0}
    while waiting:
        a, b = next((p, q) for p, q in [*waiting, *((q, p) for p, q in waiting)] if alias_of[p] in done)
        waiting = [edge for edge in waiting if set(edge) != {a, b}]
        near, far = alias_of[a], alias_of[b]
        bound = [{**some, far: slot} for some in bound for slot, row in rows[far].items() if meet(rows[near][some[near]][a], row[b])]
        done.add(far)
    return {tuple(some[u] for u in range(len(rows))) for some in bound}
