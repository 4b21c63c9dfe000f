"""The arrays of a join tree, shared by its writer, cursors and checks, and the descriptions of its rows for the ports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from structures.core.arena import KIND, ROOT, Arena
from structures.core.kernel import compiled
from structures.core.reserve import reserve
from structures.core.versioned import VersionedStructure
from structures.join_tree import layout
from structures.join_tree.layout import Tables, see_all
from structures.join_tree.walk import LEVEL_WORDS, LIST, JoinTreeWalk, walk
from structures.ordered.summary import LIST as LIST_KIND
from structures.ordered.tree import make_empty

_HIDING = (layout.EXISTS, layout.ABSENT)


class Port(NamedTuple):
    """Rows of alias `alias` as an edge sees them: by codes of a domain (-1: all alike), and optionally by a span."""

    alias: int
    domain: int
    spanned: bool


class Roots(NamedTuple):
    """One version: for each port the tree's root, height, entries, and two more words."""

    version: int
    trees: np.ndarray


class JoinTables(VersionedStructure[Arena]):
    """The trees' blocks, the tables of links, ports and aliases, and the rows as `describe` presents them to the ports of their alias.

    A description is valid until the row is described again, which must not happen while a pinned version sees it.
    shown     the number of aliases that rows of the join have: the first ones
    always    those of them that each row has
    base      for each alias a port that sees all rows that can take part
    """

    def __init__(self, ports: Sequence[Port], edges: Sequence[tuple[int, int]], kinds: Sequence[int], words: int, slots: int) -> None:
        self.ports, self.aliases, self._slots = list(ports), len(edges) + 1, slots
        self.of_alias = [[p for p, port in enumerate(ports) if port.alias == u] for u in range(self.aliases)]
        self._require_tree(edges)
        links = [link for a, b in edges for link in ((a, b), (b, a))]
        self.near, self.far = ([ports[link[i]].alias for link in links] for i in range(2))
        given = list(kinds) or [layout.REQUIRED] * len(edges)
        self.kinds = [kind for one in given for kind in (one, layout.FREE if one in _HIDING else layout.REQUIRED)]
        hidden, optional = self._behind(_HIDING), self._behind((layout.OPTIONAL,))
        self.shown = self.aliases - len(hidden)
        assert hidden == set(range(self.shown, self.aliases)), "aliases that no row has come last"
        self.always = [u for u in range(self.shown) if u not in optional]
        self._absent = self._behind((layout.ABSENT,))
        may_miss = (layout.ABSENT, layout.OPTIONAL)
        partial = {a for (a, _), kind in zip(links, self.kinds, strict=True) if kind in may_miss}
        needed = {a for (a, _), kind in zip(links, self.kinds, strict=True) if kind not in may_miss}
        self.needed = [p for p in range(len(ports)) if p in needed or p not in partial]
        self.base = [next(p for p in own if p in self.needed) for own in self.of_alias]
        self.arena = Arena(words)
        self.arena.C[KIND] = LIST_KIND
        self._lay_out(links, slots)
        for tree in range(len(self._T)):
            self._C[ROOT : ROOT + layout.TREE_VERSION] = 0
            make_empty(*self._arrays)
            self._T[tree, :layout.TREE_VERSION] = self._C[ROOT : ROOT + layout.TREE_VERSION]
            self._T[tree, layout.TREE_VERSION] = layout.UNVERSIONED
        self._paths = self._outward()

    def _require_tree(self, edges: Sequence[tuple[int, int]]) -> None:
        """ValueError unless the edges join ports of the same kind, and form a tree of 2 to MOST aliases."""
        ends = [(self.ports[a], self.ports[b]) for a, b in edges]
        aliases, reached = set(range(self.aliases)), {0}
        for _ in edges:
            for a, b in ends:
                if a.alias in reached or b.alias in reached:
                    reached |= {a.alias, b.alias}
        is_tree = 2 <= self.aliases <= layout.MOST and reached == {port.alias for port in self.ports} == aliases
        if not is_tree or any(a[1:] != b[1:] for a, b in ends) or max(map(len, self.of_alias)) > layout.MOST:
            raise ValueError(f"edges {list(edges)} make no tree of 2 to {layout.MOST} aliases over {self.ports}")

    def _behind(self, kinds: Sequence[int]) -> set[int]:
        """The aliases to which links of these kinds lead, and those behind them."""
        found = [far for far, kind in zip(self.far, self.kinds, strict=True) if kind in kinds]
        for u in found:  # grows during the loop
            for e, near in enumerate(self.near):
                back = self.kinds[e] == layout.FREE or self.kinds[e ^ 1] == layout.OPTIONAL
                if near == u and not back and self.far[e] not in found:
                    found.append(self.far[e])
        return set(found)

    def _lay_out(self, links: Sequence[tuple[int, int]], slots: int) -> None:
        ports, count = self.ports, len(self.ports)
        self._links = np.zeros((len(links), layout.LINK_WORDS), np.int64)
        self._links[:, layout.KIND] = self.kinds
        self._ports = np.zeros((count, layout.MOST), np.int64)
        self._inputs = np.zeros((self.aliases, layout.INPUT_WORDS), np.int64)
        records = ends = 0
        for u, own in enumerate(self.of_alias):
            out = [e for e in range(len(links)) if self.near[e] == u]
            width = 1 + 3 * len(own)
            self._inputs[u, [layout.BASE, layout.WORDS, layout.OUT, layout.HAS]] = records, width, len(out), len(own)
            self._inputs[u, layout.HIDDEN] = u >= self.shown
            self._inputs[u, layout.FIRST_LINK : layout.FIRST_LINK + len(out)] = out
            self._inputs[u, layout.FIRST_PORT : layout.FIRST_PORT + len(own)] = own
            for j, p in enumerate(own):
                self._ports[p, [layout.ALIAS, layout.CODE, layout.WIDTH, layout.SPAN]] = u, records + 1 + 3 * j, width, ports[p].spanned
                if ports[p].spanned:
                    self._ports[p, layout.ENDS] = ends
                    ends += 2 * slots
            self._links[out, layout.BIT] = 1 << np.arange(len(out))
            records += width * slots
        codes, trees = 0, count
        self.code_words = {}
        for domain in {port.domain for port in ports}:
            grouped = [p for p in range(count) if ports[p].domain == domain and not ports[p].spanned]
            counted = [e for e, (_, p) in enumerate(links) if p in grouped]
            self.code_words[domain] = step = len(grouped) + len(counted)
            self._ports[grouped, layout.HEAD], self._ports[grouped, layout.STEP_] = codes + np.arange(len(grouped)), step
            self._links[counted, layout.SUPPORT], self._links[counted, layout.STEP] = codes + len(grouped) + np.arange(len(counted)), step
            codes += step * slots
        for p in range(count):
            if ports[p].spanned:
                self._ports[p, layout.ALL_TREE], trees = trees, trees + 1
        for e, (_, p) in enumerate(links):
            self._links[e, [layout.NEAR, layout.FAR, layout.PORT, layout.SPANNED]] = self.near[e], self.far[e], p, ports[p].spanned
            if ports[p].spanned and self.near.count(self.far[e]) == 1:
                self._links[e, layout.LIVE_TREE] = self._ports[p, layout.ALL_TREE]
            elif ports[p].spanned:
                self._links[e, layout.LIVE_TREE], trees = trees, trees + 1
        self._T = np.zeros((trees, layout.TREE_WORDS), np.int64)
        self._X = reserve(records * 4, np.int32)
        self._Y = reserve(max(codes, 1) * 4, np.int32)
        self._E = reserve(max(ends, 1) * 8, np.int64)
        self._records = [
            self._X[base : base + width * slots].reshape(slots, width)
            for base, width in self._inputs[:, [layout.BASE, layout.WORDS]].tolist()
        ]
        self._C = self.arena.C
        self._arrays = self.arena.nodes, self.arena.writing
        self._tables = Tables(self._T, self._links, self._ports, self._inputs, self._X, self._Y, self._E)

    def _outward(self) -> np.ndarray:
        """int64[t, t, 2]: outward from each alias that rows have, the link that binds the next alias, and the level where it begins."""
        paths = np.zeros((self.shown, self.shown, 2), np.int64)
        for start in range(self.shown):
            order = [start]
            for level, u in enumerate(order):  # grows during the loop: breadth first
                for e, near in enumerate(self.near):
                    if near == u and self.far[e] < self.shown and self.far[e] not in order:
                        paths[start, len(order)] = e, level
                        order.append(self.far[e])
        return paths

    def describe(
        self, alias: int, slots: np.ndarray, codes: Sequence[np.ndarray | None], ends: Sequence[tuple[np.ndarray, np.ndarray] | None]
    ) -> None:
        """Describe rows to the ports of the alias (`of_alias`): codes (int32[n], -1: none) for ports with a domain, closed spans.
        ValueError, and nothing done: there is no room for such slots or codes."""
        for least, found in ((0, slots), *((-1, given) for given in codes if given is not None)):
            if len(found) and not least <= found.min() <= found.max() < self._slots:
                raise ValueError(f"slots are 0 to {self._slots - 1}, codes from -1 on: {found.min()} to {found.max()} are given")
        for j, p in enumerate(self.of_alias[alias]):
            given, span = codes[j], ends[j]
            self._records[alias][slots, 1 + 3 * j] = 0 if given is None else given
            if span is not None:
                at = self._ports[p, layout.ENDS] + 2 * slots.astype(np.int64)
                self._E[at], self._E[at + 1] = span

    def codes(self, port: int, slots: np.ndarray) -> np.ndarray:
        """int32[n], as described."""
        return self._records[self.ports[port].alias][slots, self._column(port)]

    def _column(self, port: int) -> int:
        return 1 + 3 * self.of_alias[self.ports[port].alias].index(port)

    def ends(self, port: int, slots: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64[n] twice, as described; zeros for a port without span."""
        if not self.ports[port].spanned:
            return np.zeros(len(slots), np.int64), np.zeros(len(slots), np.int64)
        at = self._ports[port, layout.ENDS] + 2 * slots.astype(np.int64)
        return self._E[at], self._E[at + 1]

    def able(self, alias: int, slots: np.ndarray) -> np.ndarray:
        """bool[n]: rows with a code and a nonempty span at each port that requires them; others never take part."""
        return self._seen([p for p in self.of_alias[alias] if p in self.needed], slots)

    def seen(self, port: int, slots: np.ndarray) -> np.ndarray:
        """bool[n]: rows with a code and a nonempty span at this port."""
        return self._seen([port], slots)

    def _seen(self, ports: Sequence[int], slots: np.ndarray) -> np.ndarray:
        seen = np.empty(len(slots), np.bool_)
        compiled(see_all)(self._tables, np.array(ports, np.int64), np.ascontiguousarray(slots, np.int32), seen)
        return seen

    def is_inserted(self, alias: int, inserted: bool, rows: np.ndarray) -> np.ndarray:
        """bool[n]: which of the join's rows that a change of a row of this alias reports come; the others go."""
        if alias >= self.shown:
            return np.full(rows.shape[1], inserted != (alias in self._absent))
        is_inserted: np.ndarray = (rows[alias] >= 0) == inserted
        return is_inserted

    def walking(self, roots: np.ndarray, bounds: np.ndarray) -> JoinTreeWalk:
        """A walk over a version, in the window of each port, before its first start."""
        state, lists = np.zeros((self.shown, LEVEL_WORDS), np.int64), np.empty((self.shown, LIST), np.int32)
        return JoinTreeWalk(roots, self._paths, bounds, state, lists)

    def walk(self, walking: JoinTreeWalk, starts: np.ndarray, out: np.ndarray, n: int) -> int:
        """As `walk.walk`."""
        return int(compiled(walk)(self.arena.nodes, self._tables, walking, starts, out, n))
