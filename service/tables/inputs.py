"""One alias of a view: which rows of its relation take part, and with which entries in a structure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.planning.meets import span_of
from service.query.computed import real
from service.query.conditions import ColumnRef, Condition
from service.query.model import Query, Span
from service.tables.endpoints import stored_endpoints
from service.tables.masks import select_mask
from service.tables.projection import needed_columns
from service.tables.relations import Relation
from service.tables.resolution import Slots
from service.tables.store import Table, pieces
from structures.core.entries import NO_ENTRIES, Entries

Codes = Callable[[Table, Sequence[str], Slots], Slots]  # `acquire_of` or `look_up_of` of a domain
Mask = npt.NDArray[np.bool_]
_NO_INDICES = np.empty(0, np.int64)
_FEW_KEYS = np.zeros(2, np.int32)  # never written to
NEWEST = 1 << 62  # a version at which a table has its present rows: a view may not have followed the last ones yet


class ChosenEntries(NamedTuple):
    """Entries, and the indices of the rows they were made of (None: all)."""

    entries: Entries
    indices: npt.NDArray[np.int64] | None


class Input:
    """The alias at `position`.

    deciding filters that decide whether a changed row matters: changes of other rows can be ignored (`deciding`)
    output   columns that the view's rows read
    varying  columns that the view reads and that may differ between rows of one key: if they are unchanged, so are the view's rows
    equal    columns that conditions equate with another alias's, or by which alone the latest rows are chosen: rows can be looked up by
             them
    is_keyed whether these are all of them: not where some are computed
    spans    by name, its declared intervals that overlap others
    ends     the columns of these: (start, end)
    living   while a join with parts is built: a further test that rows must pass
    """

    living: Callable[[Slots], Mask] | None = None

    def __init__(self, query: Query, position: int, relation: Relation) -> None:
        self.alias, self.position = query.aliases[position][0], position
        self.relation = relation = relation.computing(query.computed)
        self.filters = [f for f in query.filters if f.alias == self.alias]
        self.deciding = deciding(query, self.alias)
        equal = dict.fromkeys(ref for pair in query.equal for ref in pair if ref.alias == self.alias)
        self.equal = [ref.column for ref in equal if not ref.is_computed]
        self.is_keyed = bool(equal) and len(self.equal) == len(equal)
        if query.latest is not None:
            of_columns = [value.column for value in query.latest.by if isinstance(value, ColumnRef)]
            self.equal = of_columns if len(of_columns) == len(query.latest.by) else []
            self.is_keyed = bool(self.equal)
        refs = [ref for pair in query.overlaps for ref in pair if ref.alias == self.alias]
        self.spans = {ref.interval: span_of(ref, relation.definition) for ref in refs}
        intervals = {name: relation.definition.intervals[name] for name in self.spans}
        self.ends = {name: (interval.start_column, interval.end_column) for name, interval in intervals.items()}
        needed = needed_columns(query, self.alias, relation.definition)
        self.output = needed or relation.key
        self.identity = list(dict.fromkeys([*needed, *relation.key]))
        self._filtered = list(dict.fromkeys(ref.column for f in self.filters for ref in f.columns))
        self.varying = [name for name in _used(query, self.alias, relation) if name not in relation.key]

    @property
    def columns(self) -> set[str]:
        """All columns that the view reads."""
        return {*self.identity, *self.varying}

    @property
    def is_hidden(self) -> bool:
        """Whether structures that are loaded now find no rows in it."""
        return self.relation.hidden is not None and self.relation.hidden.now

    def selected(self, slots: Slots) -> npt.NDArray[np.int64] | None:
        """Return the indices of the rows at these slots that meet the filters; None: all of them."""
        if self.is_hidden:
            return _NO_INDICES
        if self.living is not None:
            chosen = self.living(slots)
            if self.filters:
                chosen &= self.meets(self.filters, slots)
            return np.flatnonzero(chosen)
        if not self.filters:
            return None
        mask = self.meets(self.filters, slots)
        return None if mask.all() else np.flatnonzero(mask)

    def meets(self, filters: Sequence[Condition], slots: Slots) -> Mask:
        """bool[n]: whether the rows at these slots meet these of its filters, at least one."""
        return read(self.relation.table, self._filtered, slots, lambda rows: select_mask(filters, rows))

    def chosen(self, slots: Slots) -> Slots:
        """Return the slots whose rows meet the filters."""
        indices = self.selected(slots)
        return slots if indices is None else slots[indices]

    def masked(self, slots: Slots) -> Slots:
        """Replace the slots that are -1, or whose rows do not meet the filters, by -1."""
        there = np.flatnonzero(slots >= 0)
        chosen = self.selected(slots[there]) if len(there) else None
        if chosen is None:
            return slots
        left = np.full(len(slots), -1, np.int32)
        left[there[chosen]] = slots[there[chosen]]
        return left

    def rows_of(self, version: int) -> list[Slots]:
        """Return the slots of all rows of a version that meet the filters, in pieces."""
        return [self.chosen(slots) for slots in self.relation.table.scanned(version)]


def scanned(relations: Sequence[Relation], version: int, progress: Callable[[float], None]) -> Iterator[tuple[int, Slots]]:
    """Yield all rows of a version, relation by relation, in pieces: the number of the relation, and slots. Four fifths of a build."""
    total, done = sum(relation.table.rows for relation in relations) or 1, 0
    for position, relation in enumerate(relations):
        for slots in relation.table.scanned(version):
            yield position, slots
            done += len(slots)
            progress(0.8 * done / total)


def deciding(query: Query, alias: str) -> list[Condition]:
    """Return the filters that rows of an alias must meet to matter at all. In an as-of join, rows that WHERE excludes still end earlier
    ones of their key; but a filter on columns of the key excludes all rows of it."""
    filters = [one for one in query.filters if one.alias == alias]
    if query.as_of is None or query.as_of.of.alias != alias:
        return filters
    key = {ref for pair in query.equal for ref in pair}
    return [one for one in filters if key.issuperset(one.columns)]


class Source:
    """A side's entries in a structure: of set `set`, by a key of these columns (perhaps none) and a span (None: the same for all)."""

    def __init__(self, input: Input, set_: int, columns: Sequence[str], span: Span | None) -> None:
        self.input, self.set, self.columns, self.span = input, set_, list(columns), span
        self._never_empty = span is None or (span.declared and len(span.columns) > 1)
        self._few_sets = np.full(2, set_, np.uint8)  # never written to

    def entries(self, slots: Slots, codes: Codes | None) -> ChosenEntries:
        """Return the entries of the rows at these slots that take part: the filters hold, no key column is null, and the span is not empty.
        `codes`: returns those of the keys; None without a key. Cost: O(n)."""
        table = self.input.relation.table
        indices = self.input.selected(slots)
        if indices is not None:
            slots = slots[indices]
        left, right = self._ends(table, slots)
        if not self._never_empty:  # before the codes, which gain references
            room: Mask = np.all(left <= right, axis=1) if left.ndim > 1 else left <= right
            if not room.all():
                some = np.flatnonzero(room)
                indices = some if indices is None else indices[some]
                left, right, slots = left[some], right[some], slots[some]
        if codes is None:
            key = _FEW_KEYS[: len(slots)] if len(slots) <= 2 else np.zeros(len(slots), np.int32)
        else:
            key = codes(table, self.columns, slots)
            if len(slots) and key.min() < 0:
                some = np.flatnonzero(key >= 0)
                indices = some if indices is None else indices[some]
                key, left, right, slots = key[some], left[some], right[some], slots[some]
        sets = self._few_sets[: len(slots)] if len(slots) <= 2 else np.full(len(slots), self.set, np.uint8)
        return ChosenEntries(Entries(sets, key, left, right, slots), indices)

    def _ends(self, table: Table, slots: Slots) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        return ends_of(table, self.span, slots)


class BoxSource(Source):
    """The same with a span per dimension: left and right are int64[n, d]."""

    def __init__(self, input: Input, set_: int, columns: Sequence[str], spans: Sequence[Span]) -> None:
        super().__init__(input, set_, columns, None)
        self.spans = spans
        self._never_empty = all(span.declared and len(span.columns) > 1 for span in spans)

    def _ends(self, table: Table, slots: Slots) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        ends = [ends_of(table, span, slots) for span in self.spans]
        return np.stack([left for left, _ in ends], axis=1), np.stack([right for _, right in ends], axis=1)


def ends_of(table: Table, span: Span | None, slots: Slots) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """int64[n] twice: the closed, encoded span of the rows at these slots; None: the same for all."""
    if span is None:
        ends = np.zeros(len(slots), np.int64)
        return ends, ends
    return stored_endpoints(table, span, slots)


def read(table: Table, names: list[str], slots: Slots, work: Callable[[pa.RecordBatch], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the results of `work` on these columns, a number per row, computed piece by piece."""
    parts = [work(rows) for _, rows in table.take_pieces(names, slots)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def text_pieces(columns: Sequence[tuple[Table, str, Slots]]) -> Iterator[slice]:
    """Return pieces of equally long columns of several tables, each within `store.PIECE_BYTES`."""
    total = np.zeros(len(columns[0][2]), np.int64)
    for table, name, slots in columns:
        total += table.text_bytes([name], slots)
    return pieces(total)


def _used(query: Query, alias: str, relation: Relation) -> list[str]:
    """Return the columns that the view reads of an alias, or of another one of the same relation: one set may represent both."""
    aliases = [other for other, name in query.aliases if name == relation.name]
    used = [column for other in aliases for column in needed_columns(query, other, relation.definition)]
    pairs: list[tuple[ColumnRef, ...]] = [*query.equal, *(one.columns for one in query.compared)]
    used += [ref.column for pair in pairs for ref in real(pair, query.computed) if ref.alias in aliases]
    for pair in query.overlaps:
        used += [name for ref in pair if ref.alias in aliases for name in span_of(ref, relation.definition).columns]
    used += [ref.column for f in (*query.filters, *query.outer_filters) if f.alias == alias for ref in real(f.columns, query.computed)]
    used += [ref.column for ref in query.choosing if ref.alias in aliases]
    return list(dict.fromkeys(used))


def joined(parts: list[Entries]) -> Entries:
    """Concatenate the parts."""
    if len(parts) == 1:
        return parts[0]
    parts = [part for part in parts if len(part.slot)]
    if not parts:
        return NO_ENTRIES
    if len(parts) == 1:
        return parts[0]
    return Entries(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
