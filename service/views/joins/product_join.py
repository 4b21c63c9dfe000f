"""The product of joins that no condition connects: each part has its own structures, and their combinations are not stored.

An odometer reads the rows of a version: a block of rows of the parts before, with all rows of the next part. A changed part reports its
delta, and each row of it is combined with the rows of the others. If a version changes several parts, all of them follow it first; then
deleted rows are combined with what the others had, and inserted rows with what they have.

If a part is known to have no rows, the others report nothing.

Costs: those of the parts; the delay is the sum of theirs, and a block of rows that is read ahead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.tables.changes import Runs, by_version
from service.tables.inputs import Input
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.store import Numbers
from service.views.collecting import Collector
from service.views.deltas import Combination, Sink, emit
from service.views.joins.outer_cursor import CursorChain
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import Filtered, GivenRowsCursor, Wrapper
from service.views.read_counts import Counts

_FIRST, _BLOCK, _CHUNK = 64, 4096, 1 << 14  # rows to read ahead: at first; at most, of the left part and of the right one
_PIECE = 1 << 16  # rows of a delta at a time
_LOOKS = 16  # attempts at parts without rows before a call ends
NO_ROWS: Combination = (NO_SLOTS,)
_Deltas = tuple[Combination, Combination]  # deleted and inserted rows


class Factor(NamedTuple):
    """A part: its join over the aliases with these numbers, ascending; its sides have numbers of their own.

    It is read while a batch goes through it, so all that `rows` reads must be in its structures: tables are ahead of them.
    """

    join: Join
    inputs: Sequence[Input]
    positions: tuple[int, ...]

    def within(self, window: Bounds | None) -> Bounds | None:
        """Return the windows of its own intervals."""
        spans = {span for input in self.inputs for span in input.spans.values()}
        mine = {span: bounds for span, bounds in (window or {}).items() if span in spans}
        return mine or None


class _Pair:
    """Rows of `left`, each with all rows of the cursor that `begin` returns; left's columns come first. The order depends on how many rows
    are read ahead, but not on how many a caller asks for."""

    def __init__(self, left: Enumeration, begin: Callable[[], Enumeration], aliases: int) -> None:
        self._left, self._begin, self._aliases = left, begin, aliases
        self._block = self._chunk = NO_ROWS
        self._at = self._total = 0  # rows of block x chunk
        self._room = _FIRST
        self._right: Enumeration | None = None
        self._some = False  # the right part has a row
        self._ended = Counts()  # of cursors that have ended

    @property
    def done(self) -> bool:
        return self._at == self._total and (self._right is None or self._right.done) and self._left.done

    @property
    def counts(self) -> Counts:
        """The gap is the one that the parts have together: a row of each may have to be found."""
        left, right = self._left.counts, self._ended if self._right is None else self._ended.then(self._right.counts)
        return left.then(right)._replace(largest_gap=left.largest_gap + right.largest_gap)

    def fill(self, limit: int) -> Combination:
        for _ in range(_LOOKS):
            if self._at < self._total or self.done:
                break
            self._advance()
        if self._at == self._total:
            return (NO_SLOTS,) * self._aliases
        rows = np.arange(self._at, min(self._at + limit, self._total))
        self._at += len(rows)
        of_block, of_chunk = np.divmod(rows, len(self._chunk[0]))
        return (*(part[of_block] for part in self._block), *(part[of_chunk] for part in self._chunk))

    def _advance(self) -> None:
        """Go to the next chunk of the right part, and after its last one to the next block of the left part."""
        if self._right is not None and self._right.done:
            self._end_right()
        if self._right is None:
            self._block = self._left.fill(min(self._room, _BLOCK))
            if len(self._block[0]) == 0:
                return
            self._right = self._begin()
        self._chunk = self._right.fill(self._room)
        self._room = min(2 * self._room, _CHUNK)
        self._some = self._some or len(self._chunk[0]) > 0
        self._at, self._total = 0, len(self._block[0]) * len(self._chunk[0])

    def _end_right(self) -> None:
        assert self._right is not None
        self._ended = self._ended.then(self._right.counts)
        self._right = None
        if not self._some:  # then no row of the left part has any
            self._ended = self._ended.then(self._left.counts)
            self._left = GivenRowsCursor(tuple(part[:0] for part in self._block))

    def clone(self) -> _Pair:
        other = copy.copy(self)
        other._left = self._left.clone()
        other._right = self._right.clone() if self._right is not None else None
        return other


class ProductCursor(Wrapper):
    """The product of several parts' cursors, an array per alias. Plain data beside the joins."""

    def __init__(self, first: Enumeration, others: Sequence[Callable[[], Enumeration]], positions: Sequence[tuple[int, ...]]) -> None:
        """`positions`: of the columns of each part, the first one's first."""
        reading, aliases = first, len(positions[0])
        for begin, more in zip(others, positions[1:], strict=True):
            aliases += len(more)
            reading = _Pair(reading, begin, aliases)
        super().__init__(reading)
        self._columns = np.argsort([position for part in positions for position in part]).tolist()

    def fill(self, limit: int) -> Combination:
        found = self._cursor.fill(limit)
        return tuple(found[column] for column in self._columns)


class SeparateJoins(Join):
    """Joins that are kept separately; `protocol` describes the methods."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self.factors, self.joins = list(factors), [factor.join for factor in factors]

    @property
    def root(self) -> tuple[Any, ...]:
        return tuple(join.root for join in self.joins)

    def is_outgrown(self, version: int) -> bool:
        return any(join.is_outgrown(version) for join in self.joins)

    @property
    def update_steps(self) -> int:
        return sum(join.update_steps for join in self.joins)

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        for done, join in enumerate(self.joins):
            join.build(version, lambda part, done=done: progress((done + part) / len(self.joins)))  # type: ignore[misc]

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        for join in self.joins:
            join.require(resolved)

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        return any(join.reclaim(oldest_needed, pins) for join in self.joins)

    def entries(self, root: tuple[Any, ...]) -> int:
        return sum(join.entries(its) for join, its in zip(self.joins, root, strict=True))

    @property
    def bytes(self) -> int:
        return sum(join.bytes for join in self.joins)

    @property
    def retired_bytes(self) -> int:
        return sum(join.retired_bytes for join in self.joins)

    @property
    def stores(self) -> Sequence[Store]:
        return [store for join in self.joins for store in join.stores]

    def check(self) -> None:
        for join in self.joins:
            join.check()

    def of_alias(self, position: int) -> tuple[int, Factor]:
        return next((index, factor) for index, factor in enumerate(self.factors) if position in factor.positions)


class ProductJoin(SeparateJoins):
    """See the module docstring; `protocol` describes the methods."""

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        for offset, changes in by_version(runs):
            touched = [factor for factor in self.factors if any(input.relation.name in changes for input in factor.inputs)]
            if sink is None or len(touched) < 2:
                for factor in touched:
                    factor.join.apply(version, changes, self._sink_of(factor, offset, sink))
                continue
            collectors = {factor.positions: Collector(sink.limit, 1) for factor in touched}
            for factor in touched:
                factor.join.apply(version, changes, collectors[factor.positions])
            deltas = {factor.positions: collectors[factor.positions].left(factor.inputs) for factor in touched}
            self._emit(deltas, offset, sink)

    def _emit(self, deltas: Mapping[tuple[int, ...], _Deltas | None], offset: int, sink: Sink) -> None:
        """Emit the delta of a version that changes several factors, which have followed it: their deltas by position, None for one that is
        too large. Each row belongs to the first factor that changes it."""
        if None in deltas.values():
            sink.exceeded(offset)
            return
        wanted = True
        for is_inserted in (False, True):
            for index, factor in enumerate(self.factors):
                if (delta := deltas.get(factor.positions)) is None:
                    continue
                others = [(other, other_index < index) for other_index, other in enumerate(self.factors) if other is not factor]
                begins = [partial(self._rows_of, other, is_before, is_inserted, deltas.get(other.positions)) for other, is_before in others]
                positions = [factor.positions, *(other.positions for other, _ in others)]
                cursor = ProductCursor(GivenRowsCursor(delta[is_inserted]), begins, positions)
                while wanted and not cursor.done:
                    wanted = emit(sink, offset, is_inserted, cursor.fill(_PIECE))

    @staticmethod
    def _rows_of(factor: Factor, is_before: bool, is_inserted: bool, delta: _Deltas | None) -> Enumeration:
        """Read the rows of another factor after the version, if `is_inserted`, or else before it; if `is_before`, those of both."""
        rows: Enumeration = factor.join.rows(factor.join.root, None)
        if delta is None or (is_inserted and not is_before):
            return rows
        deleted, inserted = delta
        excluded = _packed(inserted)
        kept: Enumeration = Filtered(rows, lambda some: ~np.isin(_packed(some), excluded)) if len(excluded) else rows
        return kept if is_before else CursorChain([lambda: kept, lambda: GivenRowsCursor(deleted)], len(deleted))

    def _sink_of(self, factor: Factor, offset: int, sink: Sink | None) -> _ProductSink | None:
        """None if there is no sink, or one of the other parts has no rows."""
        others = [other for other in self.factors if other is not factor]
        if sink is None or any(other.join.is_empty(other.join.root) for other in others):
            return None
        return _ProductSink(factor, others, offset, sink)

    def rows(self, root: tuple[Any, ...], window: Bounds | None) -> Enumeration:
        first = self.factors[0]
        return self._reading(root, 0, first.join.rows(root[0], first.within(window)), window)

    def partners(self, root: tuple[Any, ...], position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        index, factor = self.of_alias(position)
        given = factor.join.partners(root[index], factor.positions.index(position), slots, factor.within(window))
        return self._reading(root, index, given, window)

    def of_key(self, root: tuple[Any, ...], position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        index, factor = self.of_alias(position)
        given = factor.join.of_key(root[index], factor.positions.index(position), key, factor.within(window))
        return self._reading(root, index, given, window)

    def _reading(self, root: tuple[Any, ...], index: int, first: Enumeration, window: Bounds | None) -> Enumeration:
        """Combine the rows that `first` reads of the factor `index` with all rows of the others that meet the window."""
        others = [(factor, its) for at, (factor, its) in enumerate(zip(self.factors, root, strict=True)) if at != index]
        positions = [self.factors[index].positions, *(factor.positions for factor, _ in others)]
        if self.is_empty(root):
            first = GivenRowsCursor((NO_SLOTS,) * len(positions[0]))
        return ProductCursor(first, [partial(factor.join.rows, its, factor.within(window)) for factor, its in others], positions)

    def is_empty(self, root: tuple[Any, ...]) -> bool | None:
        known = {factor.join.is_empty(its) for factor, its in zip(self.factors, root, strict=True)}
        return True if True in known else None if None in known else False


def _packed(rows: Combination) -> npt.NDArray[Any]:
    """Return a value for each row."""
    return np.ascontiguousarray(np.stack(rows, axis=1)).view([("", np.int32)] * len(rows)).reshape(-1)


class _ProductSink:
    """Combines the rows of version `offset` that one part reports, as its only version, with the current rows of the others."""

    def __init__(self, factor: Factor, others: Sequence[Factor], offset: int, sink: Sink) -> None:
        self._others, self._offset, self._sink = others, offset, sink
        self._positions = [factor.positions, *(other.positions for other in others)]
        self._wanted = True
        self.limit = sink.limit

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        for is_inserted in (False, True):
            begins = [partial(other.join.rows, other.join.root, None) for other in self._others]
            cursor = ProductCursor(GivenRowsCursor(tuple(slots[inserted == is_inserted] for slots in rows)), begins, self._positions)
            while self._wanted and not cursor.done:
                self._wanted = emit(self._sink, self._offset, is_inserted, cursor.fill(_PIECE))
        return self._wanted

    def exceeded(self, offset: int) -> None:
        self._sink.exceeded(self._offset)
        self._wanted = False
