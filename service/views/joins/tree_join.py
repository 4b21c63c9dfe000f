"""A tree-shaped join without dead ends, maintained by `structures.join_tree`: how its ports see rows, how a batch goes through the aliases.

A port is the rows of an alias as an edge sees them: their key and span, and whether they meet the conditions of a part that hangs on them.
A row that does not meet these has no code there, as one with a null in its key.

In each version first all deletes, alias by alias, while the later aliases still have theirs, then all inserts, so that each row of the
delta belongs to exactly one of its parts. Columns that edges set equal share a domain of codes; a deleted row is found by the codes it was
inserted with. With parts (EXISTS, NOT EXISTS, LEFT JOIN) a version may report a row several times, as one partner is deleted and another
inserted: they are netted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.planning.binding import Index
from service.planning.tree_shape import Edge, behind, outward
from service.tables.changes import DELETE, ENTER, INSERT, SIGNS, AliasChanges, DividedRun, Runs, in_order, parted
from service.tables.domains import Domain
from service.tables.inputs import NEWEST, Input, ends_of, read
from service.tables.masks import Mask, select_mask
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.store import FREED_AT_ONCE, Numbers, Table
from service.views.deltas import Sink
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import Filtered, GivenRowsCursor, SlotsCursor, scan_of
from structures.core.encoding import NEG_INF, POS_INF
from structures.join_tree import layout
from structures.join_tree.changes import MOVE
from structures.join_tree.cursors import Start
from structures.join_tree.tree import JoinTree, Port, Roots, RowChanges

_NO_WINDOW = np.empty((0, 2), np.int64)
_SIGNS = SIGNS.copy()
_SIGNS[ENTER] = MOVE
_KINDS = {"required": layout.REQUIRED, "exists": layout.EXISTS, "absent": layout.ABSENT, "optional": layout.OPTIONAL}


class TreeJoin(Join):
    """See the module docstring; `protocol` describes the methods."""

    def __init__(self, inputs: Sequence[Input], tree: Sequence[Edge], never: bool) -> None:
        """`inputs`: of the aliases of rows, then of those of EXISTS and NOT EXISTS. `tree`: each edge followed by its opposite."""
        self.inputs, self.never = list(inputs), never
        ends = [(Index(edge.far, edge.far_columns, edge.far_span), edge.filters) for edge in tree]
        self.has_parts = any(edge.kind != "required" for edge in tree)
        # A row that can have no partner in a part must still be found: by a port of another edge, or by one of no edge.
        finding = {edge.near for edge in tree if edge.kind not in ("absent", "optional")}
        alone = [(Index(input.position, (), None), ()) for input in inputs if input.position not in finding]
        seen = list(dict.fromkeys([*ends, *alone]))
        self.indexes, self._filters = [index for index, _ in seen], [filters for _, filters in seen]
        domain_of = domains_of(tree)
        self.domains: list[Domain] = []
        for index in self.indexes:
            if domain_of.get(index[:2]) == len(self.domains):
                types = inputs[index.position].relation.schema
                self.domains.append(Domain([types.field(name).type for name in index.columns]))
        ports = [Port(index.position, domain_of.get(index[:2], -1), index.span is not None) for index in self.indexes]
        edges = [(seen.index(ends[e + 1]), seen.index(ends[e])) for e in range(0, len(tree), 2)]
        self.tree = JoinTree(ports, edges, kinds=[_KINDS[edge.kind] for edge in tree[::2]] if self.has_parts else ())
        self._middle = outward(tree)[0]
        self._hidden = behind(tree, "exists", "absent")
        self._version = 0

    def _domain(self, port: int) -> Domain | None:
        domain = self.tree.ports[port].domain
        return self.domains[domain] if domain >= 0 else None

    @property
    def root(self) -> Roots:
        return self.tree.roots._replace(version=self._version)

    @property
    def update_steps(self) -> int:
        return self.tree.steps

    @property
    def flips(self) -> int:
        """Number of rows that became live or dead through changes of others so far."""
        return self.tree.flips

    # --- writing

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: O(n log n)."""
        versions: dict[str, int] = {}
        for done, input in enumerate([] if self.never else sorted(self.inputs, key=self._reading_order)):
            name = input.relation.name
            if done and self.hold_newest is not None and name not in versions:
                version = self.hold_newest(input.relation)
            parts = input.rows_of(versions.setdefault(name, version))
            for slots in parts:
                self._describe(input, slots)
            self.tree.load(version, input.position, np.concatenate(parts))
            progress((done + 1) / len(self.inputs))
        self._version = version
        self.tree.count_anew()

    def _reading_order(self, input: Input) -> tuple[bool, int]:
        """Return the sort key of a side for loading: those of EXISTS and NOT EXISTS first, because fewer rows flip then; otherwise the
        relation that changed last is read last."""
        return input.position not in self._hidden, input.relation.table.changed

    def _describe(self, input: Input, slots: Slots) -> None:
        """Describe inserted rows: their codes gain references."""
        codes = [self._codes(input, p, slots, Domain.acquire_of) for p in self.tree.of_alias[input.position]]
        self.tree.describe(input.position, slots, codes, self._ends(input, slots))

    def _codes(self, input: Input, port: int, slots: Slots, of: Callable[[Domain, Table, Sequence[str], Slots], Slots]) -> Slots | None:
        """Return the rows' codes at a port, by `of`; -1 for those that it does not see. None: it sees all rows, and all alike."""
        domain, filters, table = self._domain(port), self._filters[port], input.relation.table
        columns = self.indexes[port].columns
        if not filters:
            return None if domain is None else of(domain, table, columns, slots)
        names = list(dict.fromkeys(ref.column for one in filters for ref in one.columns))
        codes = np.full(len(slots), -1, np.int32)
        able = np.flatnonzero(read(table, names, slots, lambda rows: select_mask(filters, rows)))
        codes[able] = 0 if domain is None else of(domain, table, columns, slots[able])
        return codes

    def _ends(self, input: Input, slots: Slots) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None]:
        spans = [self.indexes[p].span for p in self.tree.of_alias[input.position]]
        return [None if span is None else ends_of(input.relation.table, span, slots) for span in spans]

    def _describe_moved(self, input: Input, before: Slots, after: Slots) -> None:
        """Describe rows that only move: they are unchanged."""
        ports = self.tree.of_alias[input.position]
        ends = [self.tree.ends(p, before) if self.tree.ports[p].spanned else None for p in ports]
        self.tree.describe(input.position, after, [self.tree.codes(p, before) for p in ports], ends)

    def _release(self, version: int, input: Input, slots: Slots) -> None:
        for p in self.tree.of_alias[input.position]:
            domain = self._domain(p)
            if domain is not None:
                domain.release(self.tree.codes(p, slots), version)

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        named = [resolved.get(input.relation.name) for input in self.inputs]
        if not any(named):
            return
        self.tree.require(
            [input.relation.table.rows + (one.inserts.num_rows if one else 0) for input, one in zip(self.inputs, named, strict=True)]
        )
        for p, port in enumerate(self.tree.ports):
            one, domain = named[port.alias], self._domain(p)
            if one is not None and domain is not None:
                domain.require(one.inserts.num_rows, one.inserts.bytes)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        self._version = version
        parts: dict[int, DividedRun] = {}
        for input in [] if self.never else self.inputs:
            run = runs.get(input.relation.name)
            if run is not None:
                parts[input.position] = self._selected(input, parted(input, run, sink is not None))
        work: list[tuple[int, int, AliasChanges]] = []
        for position, part in parts.items():
            input = self.inputs[position]
            if len(part.moved.new):
                self._describe_moved(input, part.moved.old, part.moved.new)
            if len(part.deleted.old):  # these codes are not reused before `reclaim`
                self._release(version, input, part.deleted.old)
            if len(part.inserted.new):
                self._describe(input, part.inserted.new)
            for kind, some in ((ENTER, part.moved), (DELETE, part.deleted), (INSERT, part.inserted)):
                slots = some.old if kind == DELETE else some.new
                able = np.flatnonzero(self.tree.able(position, slots))
                if len(able) > 1:
                    able = able[self.tree.order(position, slots[able])]
                work.append((kind, position, some.only(able)))
        found = in_order([(kind, some.offsets) for kind, _, some in work])
        if not len(found.order):
            return
        positions = np.repeat(np.array([position for _, position, _ in work]), [len(some.offsets) for _, _, some in work])[found.order]
        old, new = np.concatenate([some.old for _, _, some in work]), np.concatenate([some.new for _, _, some in work])
        changes = RowChanges(_SIGNS[found.kinds], positions, old[found.order], new[found.order], np.zeros(len(positions), np.int64))

        def emit(sink: Sink, at: Indices, rows: npt.NDArray[np.int32]) -> int:
            offsets, inserted_rows = found.offsets[at], found.kinds[at] == INSERT
            if self.has_parts:
                inserted_rows = self._is_inserted(positions[at], inserted_rows, rows)
            return 0 if sink(offsets, inserted_rows, tuple(rows)) else offsets.item(-1) + 1

        self.tree.apply(version, changes, found.offsets, None if sink is None else partial(emit, sink))

    def _selected(self, input: Input, part: DividedRun) -> DividedRun:
        """Drop the rows that the filters exclude."""
        deleted, inserted, moved = part
        selected = input.selected
        return DividedRun(
            deleted.only(selected(deleted.old)), inserted.only(selected(inserted.new)), moved.only(selected(moved.new))
        )  # fmt: skip

    def _is_inserted(self, positions: npt.NDArray[np.int64], inserted: Mask, rows: npt.NDArray[np.int32]) -> Mask:
        """bool[n]: which of these rows are inserted; and for each the alias of the change that reports it, and whether that is an
        insert."""
        inserted_rows = np.empty(len(inserted), np.bool_)
        for position in np.unique(positions).tolist():
            for kind in (False, True):
                some = np.flatnonzero((positions == position) & (inserted == kind))
                inserted_rows[some] = self.tree.is_inserted(position, kind, rows[:, some])
        return inserted_rows

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        if self.tree.reclaim(oldest_needed, pins, FREED_AT_ONCE):
            return True
        return any(domain.reclaim(oldest_needed, pins) for domain in self.domains)

    # --- reading

    def _cursor(self, root: Roots, position: int, start: Start, window: Bounds | None) -> SlotsCursor:
        bounds = _NO_WINDOW
        if window:
            spans = [index.span for index in self.indexes]
            bounds = np.array([window.get(span, (NEG_INF, POS_INF)) if span else (NEG_INF, POS_INF) for span in spans])
        return SlotsCursor(self.tree.rows(root, position, start, bounds))

    def rows(self, root: Roots, window: Bounds | None) -> SlotsCursor:
        return self._cursor(root, self._middle, self.tree.all_of(root, self.tree.base[self._middle]), window)

    def partners(self, root: Roots, position: int, slots: Slots, window: Bounds | None) -> SlotsCursor:
        given = GivenRowsCursor((NO_SLOTS if self.never else self.inputs[position].chosen(slots),))
        return self._cursor(root, position, self._live(root, position, given), window)

    def _live(self, root: Roots, position: int, cursor: Enumeration) -> Filtered:
        """Of the rows of a cursor, those that take part, as alias `position`, in rows of the version."""
        return Filtered(cursor, lambda rows: self.tree.holds(root, position, rows[0]))

    def of_key(self, root: Roots, position: int, key: pa.RecordBatch, window: Bounds | None) -> SlotsCursor:
        """If no port has exactly these columns, and surely sees all rows with them, the alias's rows are scanned."""
        for p in self.tree.of_alias[position]:
            domain, columns = self._domain(p), self.indexes[p].columns
            if domain is not None and set(columns) == set(key.schema.names) and self._sees_all(p):
                code = int(domain.look_up(key.select(columns))[0])
                return self._cursor(root, position, self.tree.of_code(root, p, code), window)
        scan = GivenRowsCursor((NO_SLOTS,)) if self.never else scan_of(self.inputs[position], root.version, key)
        return self._cursor(root, position, self._live(root, position, scan), window)

    def _sees_all(self, port: int) -> bool:
        """Whether a port sees all rows of the view's that have a key there: those of a part that they may lack need no span."""
        span = self.indexes[port].span
        return port in self.tree.needed or (not self._filters[port] and (span is None or (span.declared and len(span.columns) > 1)))

    def is_empty(self, root: Roots) -> bool:
        return self.tree.is_empty(root)

    def entries(self, root: Roots) -> int:
        return self.tree.entries(root)

    @property
    def bytes(self) -> int:
        rows = [input.relation.table.rows for input in self.inputs]
        kept = self.tree.bytes(rows, [domain.keys for domain in self.domains])
        return kept + sum(domain.bytes for domain in self.domains)

    @property
    def stores(self) -> Sequence[Store]:
        return (self.tree.arena,)

    def check(self) -> None:
        if self.never:
            return
        rows = [np.concatenate(input.rows_of(NEWEST)) for input in self.inputs]
        for p, index in enumerate(self.indexes):
            slots = rows[index.position]
            table = self.inputs[index.position].relation.table
            codes = self._codes(self.inputs[index.position], p, slots, Domain.look_up_of) if len(slots) else None
            assert codes is None or np.array_equal(codes, self.tree.codes(p, slots)), f"the codes of port {p} differ from its columns'"
            if index.span is not None:
                assert all(map(np.array_equal, ends_of(table, index.span, slots), self.tree.ends(p, slots))), (
                    f"the spans of port {p} differ"
                )
        for domain in self.domains:
            domain.check()
        self.tree.check(rows)


def domains_of(tree: Sequence[Edge]) -> dict[tuple[int, tuple[str, ...]], int]:
    """Number the domains, by alias and columns, in the order of the edges' far ends: one for all columns that edges set equal."""
    found: dict[tuple[int, tuple[str, ...]], set[tuple[int, tuple[str, ...]]]] = {}
    for edge in tree:
        if edge.near_columns:
            near, far = (edge.near, edge.near_columns), (edge.far, edge.far_columns)
            together = found.get(near, {near}) | found.get(far, {far})
            found.update(dict.fromkeys(together, together))
    ends = [(edge.far, edge.far_columns) for edge in tree if edge.far_columns]
    classes = list(dict.fromkeys(frozenset(found[end]) for end in ends))
    return {end: classes.index(frozenset(found[end])) for end in ends}
