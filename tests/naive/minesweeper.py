"""Minesweeper over lists, with a list of gaps instead of a tree: the twin of `structures.minesweeper`. Exponential."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tests.naive.natural_join import Entry

LEAST, GREATEST = -(2**63), 2**63 - 1
Tuple = tuple[int, ...]
Gap = tuple[dict[int, int], int, int, int]  # values of the levels before a level, that level, least and greatest value


class Miner:
    """Reads all rows: `rows` in order, `probes` in the order in which they were made. `atoms`: the entries and variables of each; `order`:
    the order of the variables."""

    def __init__(self, atoms: Sequence[tuple[Sequence[Entry], Sequence[int]]], order: Sequence[int]) -> None:
        self.n, self.gaps = len(order), list[Gap]()
        self.rows, self.probes, self.outputs = list[Entry](), list[Tuple](), 0
        self._atoms: list[tuple[list[int], dict[Tuple, list[int]]]] = []
        for entries, own in atoms:
            levels = sorted(order.index(v) for v in own)
            groups: dict[Tuple, list[int]] = {}
            for entry in sorted(entries, key=lambda one: one[-1]):
                groups.setdefault(tuple(entry[list(own).index(order[level])] for level in levels), []).append(entry[-1])
            self._atoms.append((levels, groups))
        found: Tuple | None = (LEAST,) * self.n
        while found is not None and (t := self._active(found)) is not None:
            found = self._probe(t)

    def _probe(self, t: Tuple) -> Tuple | None:
        """Probe a tuple; return where to continue."""
        self.probes.append(t)
        keys = [tuple(t[level] for level in levels) for levels, _ in self._atoms]
        inside = [key in groups for key, (_, groups) in zip(keys, self._atoms, strict=True)]
        for key, there, (levels, groups) in zip(keys, inside, self._atoms, strict=True):
            if not there:
                c = max((i for i in range(len(key)) if any(one[:i] == key[:i] for one in groups)), default=0)
                self._gap(groups, levels, key, c, key[c])
        if not all(inside):
            return t
        self.outputs += 1
        self.rows += product(*(groups[key] for key, (_, groups) in zip(keys, self._atoms, strict=True)))
        for key, (levels, groups) in zip(keys, self._atoms, strict=True):
            if levels[-1] == self.n - 1 and key[-1] < GREATEST and (*key[:-1], key[-1] + 1) not in groups:
                self._gap(groups, levels, key, len(key) - 1, key[-1] + 1)
        behind = ((*t[:i], t[i] + 1, *(LEAST,) * (self.n - i - 1)) for i in range(self.n - 1, -1, -1) if t[i] < GREATEST)
        return next(behind, None)

    def _gap(self, groups: dict[Tuple, list[int]], levels: list[int], key: Tuple, c: int, value: int) -> None:
        """Among the values that follow the first c values of the key, return those between which this one lies."""
        there = [one[c] for one in groups if one[:c] == key[:c]]
        low = max((v + 1 for v in there if v < value), default=LEAST)
        high = min((v - 1 for v in there if v > value), default=GREATEST)
        self.gaps.append((dict(zip(levels[:c], key[:c], strict=True)), levels[c], low, high))

    def _active(self, frontier: Tuple) -> Tuple | None:
        """Return the least tuple from the frontier on that is in no gap."""
        return next(self._search((), frontier), None)

    def _search(self, t: Tuple, frontier: Tuple) -> Iterator[Tuple]:
        if len(t) == self.n:
            yield t
            return
        i = len(t)
        y = frontier[i] if t == frontier[:i] else LEAST
        mine = [(low, high) for values, level, low, high in self.gaps if level == i and all(t[j] == v for j, v in values.items())]
        others = sorted({values[i] for values, *_ in self.gaps if i in values})
        while True:
            free = next((high for low, high in mine if low <= y <= high), None)
            if free is None:
                yield from self._search((*t, y), frontier)
                # nothing is free after this value; no other value is better until one that a gap names, or the end of a gap
                ends = [high + 1 for _, high in mine if high < GREATEST] + [y + 1] * (t == frontier[:i] and y == frontier[i] < GREATEST)
                y = min((v for v in (*others, *(v + 1 for v in others if v < GREATEST), *ends) if v > y), default=GREATEST + 1)
            else:
                y = free + 1
            if y > GREATEST:
                return
