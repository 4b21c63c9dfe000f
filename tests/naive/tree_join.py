"""The naive twin of the join tree: rows are bound one alias after another, trying all rows of the next alias for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from structures.join_tree.layout import ABSENT, EXISTS, OPTIONAL

Seen = tuple[int, int, int]
"""A row as a port sees it: code, left, right."""

Rows = Sequence[Mapping[int, Mapping[int, Seen]]]
"""Of each alias by slot: the row as each of its ports sees it."""

Bound = dict[int, int]


def meet(one: Seen, other: Seen) -> bool:
    able = all(code >= 0 and left <= right for code, left, right in (one, other))
    return able and one[0] == other[0] and one[1] <= other[2] and other[1] <= one[2]


class Tree:
    """`edges`: pairs of ports, the first one nearer to alias 0; `alias_of`: the alias of each port; `kinds`: the kind of each edge."""

    def __init__(self, rows: Rows, edges: Sequence[tuple[int, int]], alias_of: Sequence[int], kinds: Sequence[int]) -> None:
        self.rows, self.alias_of = rows, alias_of
        self.edges = list(zip(edges, kinds, strict=True))

    def below(self, u: int) -> Bound:
        """Return the aliases from u outward, all missing."""
        found = {u: -1}
        for (a, b), _ in self.edges:
            if self.alias_of[a] == u:
                found |= self.below(self.alias_of[b])
        return found

    def bound(self, u: int, slot: int) -> list[Bound]:
        """Return what a row of alias u is bound to outward."""
        found = [{u: slot}]
        for (a, b), kind in self.edges:
            if self.alias_of[a] != u:
                continue
            v, mine = self.alias_of[b], self.rows[u][slot][a]
            some = [row for other, seen in self.rows[v].items() if meet(mine, seen[b]) for row in self.bound(v, other)]
            if kind in (EXISTS, ABSENT):
                found = found if bool(some) == (kind == EXISTS) else []
            else:
                some = some or ([self.below(v)] if kind == OPTIONAL else [])
                found = [{**row, **other} for row in found for other in some]
        return found


def join(rows: Rows, edges: Sequence[tuple[int, int]], alias_of: Sequence[int], kinds: Sequence[int], shown: int) -> set[tuple[int, ...]]:
    """Return the slots of each row, by alias, of the first `shown` aliases; -1: missing."""
    tree = Tree(rows, edges, alias_of, kinds)
    return {tuple(row.get(u, -1) for u in range(shown)) for slot in rows[0] for row in tree.bound(0, slot)}
