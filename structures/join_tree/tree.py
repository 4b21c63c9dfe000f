r"""A join whose aliases form a tree, maintained without dead ends: Yannakakis' algorithm under updates.

Problem: under inserts and deletes, report the rows of a join of 2 to 8 aliases: all of them, those of given rows, and the exact change that
an update causes; at any version that is still pinned. Each edge of the tree is one condition: equal codes, overlapping spans, or both.

      u ------ w ------ z       a row of w is *live away from u*  iff  it has a partner in z, live away from w, and one in y
                \------ y       it is *full*  iff  it has live partners along all links: then it takes part in rows of the join

A *link* is a directed edge; a *port* is one alias's rows as an edge sees them, by (code, left, right); edges that see them alike share it.
An edge answers two questions: whether a row has a live partner, and which rows of the other side change when this one becomes live or dies.
With equality only, a count of the live rows of each code answers the first question, and only a code's first and last live row change
others: then all rows of its group. With spans, a tree of the live rows answers it, a bit a row records the answer, and a tree of all rows
has the partners.

Links may lead into *parts*, whose aliases stand behind one link each. A part that has to *exist*, or to be *absent*, is in no row of the
join: its rows have no tree of full rows, and do not depend on the alias that it hangs on. Along an *optional* link a row needs no partner
either: rows of the join have its partners, or -1 in place of the part.

Full rows are in persistent trees, one per port. Readers use only these: from a full row, each step to a full partner leads to
rows. Counts, groups and bits are kept for the newest version only; rows that are not in the join are in no persistent tree.

Invariants of the newest version, by which `check()` names what broke
    J1  bit e of a row is set iff the tree of link e's live rows has a partner of it (links with spans)
    J2  the support of a code along a link is the number of its live rows there; with spans: the live tree has just these rows, or all rows
        are live, as the alias has no other link
    J3  the tree of a port holds the full rows of its alias that it sees
    J4  the groups of a port, or with a span its tree of all rows, hold all rows of its alias that it sees
Liveness away from w does not depend on w's own rows: so the rows of a changed row are reported before it is deleted or after it is
inserted, and its effects lie outward, each alias reached once. Rows of the join that a part adds or ends are those of one run, of the alias
that it hangs on: reported before its rows leave the trees of full rows, or after they have entered them.

Costs (n rows): space O(n); a change O(log n) a row that becomes full or ceases to be (each is one of the delta's) and, with equality only,
O(1) a row of the codes that had no live row before, or have none left; with spans O(log n) a partner of the changed row and of the rows
whose liveness it flipped. Rows of a version: O(log n) between two.
Source: Yannakakis' algorithm under updates (Idris, Ugarte and Vansummeren, The Dynamic Yannakakis Algorithm); docs/design/ij-heap.md
(*Overlaps together with equality*) for the other edges.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from structures.core.arena import COUNT, ROOT, B, words_anew
from structures.core.control import STORE_WORDS, VERSION
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries, tree_order
from structures.core.entry_tree import EntryRoot
from structures.core.kernel import compiled
from structures.core.reserve import SLOTS, reserve
from structures.core.runs import Sink, report
from structures.join_tree.changes import CHANGES_WORDS, RUN, RowChanges, run_changes
from structures.join_tree.check import check_join
from structures.join_tree.cursors import JoinCursor, Start
from structures.join_tree.layout import MOST, TREE_VERSION, TREE_WORDS, WORDS, has_own_live_tree, read_positions
from structures.join_tree.spread import (
    BESIDE_NULL,
    BLOCK,
    FLIPS,
    RUN_WORDS,
    SpreadState,
    change_rows,
    shift_rows,
)
from structures.join_tree.tables import JoinTables, Port, Roots
from structures.join_tree.walk import STEPS as WALK_STEPS
from structures.join_tree.walk import hold
from structures.ordered.cursors import ScanCursor, SearchCursor
from structures.ordered.search import STEPS
from structures.ordered.tree import build

__all__ = ["JoinCursor", "JoinTree", "Port", "Roots", "RowChanges"]

_CHUNK = 1 << 16
_NO_WINDOW = np.empty((0, 2), np.int64)


class JoinTree(JoinTables):
    """See the module's head. One thread writes; any number read roots of pinned versions meanwhile.

    A row is a slot of an alias, below 2**30; `describe` gives its description for the ports before it is inserted.
    """

    def __init__(
        self, ports: Sequence[Port], edges: Sequence[tuple[int, int]], words: int = STORE_WORDS, slots: int = SLOTS,
        kinds: Sequence[int] = (),
    ) -> None:  # fmt: skip
        """`edges`: pairs of ports, of the same domain, both with a span or neither; together a tree over the aliases. `kinds`: for each
        edge (`layout.py`), from the view of its first port; if empty, all are required. `words`, `slots`: address space (not memory), of
        the arena and of each array by slot or code."""
        super().__init__(ports, edges, kinds, words, slots)
        self._rows = reserve((self.aliases + 1) * slots * 4, np.int32)
        self._runs = np.zeros((MOST + 1, RUN_WORDS), np.int64)
        self._Z = np.zeros(CHANGES_WORDS, np.int64)
        self._spreading = SpreadState(self._Z, self._rows, self._runs, np.zeros((BLOCK, 3), np.int64))
        self._newest = self.walking(self._T, _NO_WINDOW)
        self._S = self._newest.state
        self._out = np.empty((self.shown, _CHUNK), np.int32)
        self._version = 0
        self._kept = [1 + port.spanned for port in self.ports]  # trees with rows of the port
        for e, (_, _, p, spanned, *_) in enumerate(self._links.tolist()):
            self._kept[p] += spanned and has_own_live_tree(self._tables, e)

    @property
    def roots(self) -> Roots:
        """The newest version, published or not."""
        return Roots(self._version, self._T[: len(self.ports)].copy())

    # --- writing

    def require(self, rows: Sequence[int]) -> None:
        """Raise MemoryError unless a version with these numbers of rows of the aliases certainly fits: a change may make all full. O(1)."""
        entries = sum(count * rows[port.alias] for count, port in zip(self._kept, self.ports, strict=True))
        self.arena.require_words(words_anew(entries, len(self._T)))

    def load(self, version: int, alias: int, slots: np.ndarray) -> None:
        """Insert many rows of an alias: described rows, there or not. Rows that never take part are skipped. No delta is computed."""
        slots = slots[self.able(alias, slots)]
        if len(slots) == 0:
            return
        self._begin(version)
        n = len(slots)
        self._rows[:n] = self._in_order(self.base[alias], slots)
        runs = self._runs[: change_rows(*self._arrays, self._tables, self._spreading, alias, n, True)].tolist()
        for position, _, first, end, _, sign, emitted in runs:
            for p in self.of_alias[position] if emitted != BESIDE_NULL else ():
                self._shift(p, self._rows[first:end], sign != 0)

    def _begin(self, version: int) -> None:
        self._version = version
        self._T[: len(self.ports), TREE_VERSION] = version

    def _in_order(self, port: int, slots: np.ndarray) -> np.ndarray:
        return slots if len(slots) < 2 else slots[self._order(port, slots)]

    def _order(self, port: int, slots: np.ndarray) -> np.ndarray:
        codes, lefts = np.empty(len(slots), np.int32), np.empty(len(slots), np.int64)
        compiled(read_positions)(self._tables, port, np.ascontiguousarray(slots, np.int32), codes, lefts)
        return tree_order(np.zeros(len(slots), np.uint8), codes, lefts, slots)

    def _shift(self, port: int, slots: np.ndarray, inserted: bool) -> None:
        slots = slots.copy() if port in self.needed else slots[self.seen(port, slots)]
        if inserted and len(slots) > B and self._T[port, COUNT - ROOT] == 0:
            self._build(port, slots)
        elif len(slots):
            shift_rows(*self._arrays, self._tables, port, self._in_order(port, slots), inserted, self._spreading.block)

    def _build(self, port: int, slots: np.ndarray) -> None:
        tree, C = self._T[port], self._C
        C[ROOT : ROOT + TREE_WORDS - 1] = tree[:TREE_VERSION]
        C[VERSION] = tree[TREE_VERSION]
        columns = np.ascontiguousarray(self.codes(port, slots)), *self.ends(port, slots), slots
        build(*self._arrays, Entries(np.zeros(len(slots), np.uint8), *columns), self._order(port, slots))
        tree[:TREE_VERSION] = C[ROOT : ROOT + TREE_VERSION]

    def order(self, alias: int, slots: np.ndarray) -> np.ndarray:
        """Return int64[n]: the places of described rows of an alias in the best order for changing them."""
        return self._order(self.base[alias], slots)

    def apply(self, version: int, changes: RowChanges, ticks: np.ndarray, sink: Sink | None) -> None:
        """Apply changes of able rows one after another (`run_changes`), as `version`; changes.done: zeros. Each reports its delta relative
        to the state left by the changes before it, rows that come and rows that go (`is_inserted`). ticks: int64[n], ascending."""
        self._begin(version)
        given = (*self._arrays, self._tables, self._newest, self._spreading)

        def go_on(end: int, deltas: bool) -> int:
            return int(compiled(run_changes)(*given, changes._replace(signs=changes.signs[:end]), self._out, deltas))

        report(self._Z[RUN:], changes.done, self._out, go_on, ticks, sink)

    # --- reading

    def is_empty(self, roots: Roots) -> bool:
        return bool(roots.trees[self.base[self.always[0]], COUNT - ROOT] == 0)

    def entries(self, roots: Roots) -> int:
        """Full rows, each counted once a port."""
        return int(roots.trees[:, COUNT - ROOT].sum())

    def rows(self, roots: Roots, position: int, start: Start, bounds: np.ndarray = _NO_WINDOW) -> JoinCursor:
        """Rows of a version that begin with these full rows of alias `position`. bounds: int64[p, 2], for each port a closed window
        that its rows' spans must meet; empty: none."""
        return JoinCursor(self, roots.trees, position, start, bounds)

    def all_of(self, roots: Roots, port: int) -> ScanCursor:
        """The full rows of a port's alias."""
        return ScanCursor(self.arena, EntryRoot(int(roots.trees[port, 0]), int(roots.trees[port, 1]), (), True))

    def of_code(self, roots: Roots, port: int, code: int) -> SearchCursor:
        """The full rows of a port's alias with this code."""
        return SearchCursor(self.arena, EntryRoot(int(roots.trees[port, 0]), int(roots.trees[port, 1]), (), True), code, (NEG_INF, POS_INF))

    def holds(self, roots: Roots, alias: int, slots: np.ndarray) -> np.ndarray:
        """bool[n]: which of these rows, described, are full in this version. O(log n) a row."""
        port = self.base[alias]
        held = np.zeros(len(slots), np.uint8)
        root, height = roots.trees[port, :2].tolist()
        hold(self.arena.nodes, self._tables, root, height, port, np.ascontiguousarray(slots), held)
        return held.view(np.bool_)

    @property
    def steps(self) -> int:
        """Nodes, entries and rows visited for all changes and their deltas so far."""
        return int(self._Z[STEPS] + self._S[0, WALK_STEPS])

    @property
    def flips(self) -> int:
        """Rows that became live or died by changes of others so far."""
        return int(self._Z[FLIPS])

    def count_anew(self) -> None:
        """Reset `steps` and `flips` to 0."""
        self._Z[STEPS] = self._Z[FLIPS] = self._S[0, WALK_STEPS] = 0

    def bytes(self, rows: Sequence[int], codes: Sequence[int]) -> int:
        """Bytes of the newest version, given the rows of each alias and the codes in use of each domain."""
        by_slot = sum(4 * int(self._inputs[u, WORDS]) * count for u, count in enumerate(rows))
        by_slot += sum(16 * rows[port.alias] for port in self.ports if port.spanned)
        by_code = sum(4 * self.code_words[domain] * count for domain, count in enumerate(codes))
        return self.arena.live_bytes + by_slot + by_code

    def check(self, rows: Sequence[np.ndarray], others: tuple[Roots, ...] = ()) -> None:
        """Prove the invariants, given the rows of each alias, and that no block is lost, given every version in use."""
        check_join(self, rows, others)
