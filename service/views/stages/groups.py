"""Groups of a join's rows: a sink of the join's delta, with its own table of rows, one per group.

    the join's delta ──> codes and values (`columns`) ──> accumulators by code, in place (`structures.aggregate`)
    a changed group's row, compared with its previous one ──> a table of rows, each valid from one version to another

The delta is taken in pieces, so it is never too large. The group's row of a version is a slot like any relation's: pins, cursors, the
deltas of the feed and reclaiming work as for relations. A run of several versions goes directly to the last one, which alone can be read;
rows of the versions in between, which the feed reports, are inserted and deleted in the last one.

The accumulators hold only the newest version, so a start reads the join again. Costs: O(1) a row of the join's delta, O(log n) with MIN,
MAX or COUNT(DISTINCT), and O(1) a changed group. A read scans the table, skipping free slots and those of other versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.errors import Problem
from service.query.model import Query
from service.tables.changes import Runs, of_versions, versions_of
from service.tables.masks import Mask
from service.tables.resolution import NO_SLOTS, Indices, Resolution, Slots
from service.tables.store import NO_NUMBERS, PIECE_ROWS, Numbers
from service.views.collecting import ReportedRows, RowCollector, joined
from service.views.deltas import UNBOUNDED, Combination, Sink
from service.views.joins.protocol import Bounds, Enumeration, Join, Store
from service.views.joins.slots_cursor import GivenRowsCursor, Scan
from service.views.stages.columns import References, StageRows
from service.views.stages.following import GroupFollower
from service.views.stages.selection import Selection
from service.views.stages.table import GroupTable
from structures.aggregate.groups import Groups
from structures.aggregate.layout import GroupedColumns
from structures.grouped.following import FollowResult
from structures.rows.succession import SuccessionRows, VersionSlots

Cells = npt.NDArray[np.int64]

_NO_CELLS = np.empty((0, 0), np.int64)
_SPARE_CODES = 1 << 16
_MOST_TOGETHER, _FEW_ROWS = 64, 1 << 14  # versions that are followed together; rows of a delta up to which that number grows
_FEW_BESIDE = 1 << 13  # rows taken beside the writer at once: it waits for their codes
_ALL = np.zeros(1, np.int32)


class GroupsRoot(NamedTuple):
    """version: at which the table is read. rows: their number at that version."""

    version: int
    rows: int


class LoadedGroups(NamedTuple):
    """Groups of the rows of a new core, and the references of these rows."""

    groups: Groups
    references: References


class GroupsStage(Join):
    """See the module docstring; `protocol` describes the methods."""

    root = GroupsRoot(0, 0)

    def __init__(self, query: Query, core: Join, table: GroupTable, of_rows: bool, most_codes: int | None = None) -> None:
        """`table`: where the rows are stored; `of_rows`: the delta of a change is the changed row; `most_codes`: of groups, including those
        without rows. OSError, MemoryError: there is no room."""
        groups = query.groups
        assert groups is not None
        self.core, self._grouping, self._table = core, groups, table
        self._of_rows = of_rows
        table.open()
        self._columns = table.columns
        self._groups = table.groups_of(most_codes or 4 * groups.most + _SPARE_CODES)
        table.make_positions(self._groups.most_codes)
        self._following = self._follow_few()
        self._together = 1  # versions that the next part of a run may have

    def _follow_few(self) -> GroupFollower | None:
        if isinstance(self.core, Selection) and self._columns.are_numbers and not self._table.is_filled:
            return GroupFollower(self.core.input, self._table, self._groups)
        return None

    @property
    def update_steps(self) -> int:
        return self.core.update_steps

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Cost: that of the join, and O(1) or O(log n) a row of it."""
        self.core.build(version, lambda part: progress(part / 2))
        self._table.begin(version)
        self._groups.begin()
        self._begin_with(version, self._take_rows(version, lambda: progress(0.5)))
        progress(1.0)

    def _take_rows(self, version: int, then: Callable[[], None] = lambda: None) -> list[Slots]:
        """Add all rows of the join to their groups, calling `then` now and then; return the codes of groups touched for the first time."""
        codes: list[Slots] = []
        cursor = self.core.rows(self.core.root, None)
        while not cursor.done:
            rows = cursor.fill(PIECE_ROWS)
            codes += self._take_all(version, np.ones(len(rows[0]), np.bool_), rows)
            then()
        return codes

    def _begin_with(self, version: int, codes: Sequence[Slots]) -> None:
        """Write the first rows of these groups."""
        self._write_all(version, codes if self._grouping.columns else [_ALL], 0, None)

    def hold(self, version: int) -> None:
        self.core.hold(version)

    def settle(self) -> None:
        self.core.settle()

    def conclude(self, version: int) -> bool:
        return self.core.conclude(version)

    def abandon(self, version: int) -> None:
        self.core.abandon(version)

    def is_outgrown(self, version: int) -> bool:
        """As the join below: the groups are the same in any structures."""
        return self.core.is_outgrown(version)

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        """Checks only the join: only its delta shows how many groups will change. If there is no room for those, the view fails alone."""
        self.core.require(resolved)

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Follow the versions of a run together, a few of them at first, and one by one while their deltas are large."""
        assert sink is None or isinstance(sink, RowCollector)
        self._table.begin(version)
        versions, first = versions_of(runs), 0
        while first < versions:
            end = min(versions, first + (_MOST_TOGETHER if self._of_rows else self._together))
            some = of_versions(runs, first, end)
            rows = (self._apply_one if end - first == 1 else self._apply_run)(version, some, first, sink)
            self._together = min(_MOST_TOGETHER, 2 * self._together) if rows < _FEW_ROWS else max(1, self._together // 4)
            first = end

    def _apply_one(self, version: int, runs: Runs, first: int, sink: RowCollector | None) -> int:
        """Apply version `first`; return the number of rows of the join's delta. A large delta is taken in pieces, and its groups are
        reported at the end."""
        if isinstance(self.core, Selection) and sum([run.rows for run in runs.values()]) <= PIECE_ROWS:
            return self._apply_run(version, runs, first, sink)
        self._groups.begin()
        codes: list[Slots] = []
        rows = self._take_delta(version, runs, codes)
        self._write_all(version, codes, first, sink)
        return rows

    def nothing_taken(self) -> LoadedGroups:
        """Return what `take_beside` fills, beside the writer. OSError: no address space. O(groups)."""
        return LoadedGroups(self._groups.without_rows(), References())

    def take_beside(self, taken: LoadedGroups, core: Join, report: Callable[[float], None]) -> None:
        """Add all rows of a new core to new groups, beside the writer, while the core does not change. The references of `taken` must be
        dropped later, or taken over by `apply_without`, even if this raises. MemoryError: there is no room. O(1) a row."""
        cursor = core.rows(core.root, None)
        while not cursor.done:
            report(1.0)
            self._take_inserted(taken, cursor.fill(_FEW_BESIDE))

    def follow_taken(self, taken: LoadedGroups, core: Join, version: int, runs: Runs, report: Callable[[float], None]) -> None:
        """As `Join.catch_up` for a new core whose rows `taken` has: also add and remove the rows that come and go. Beside the writer, or in
        its turn. Raises as `take_beside`: the references must then be dropped, and nothing else can be used."""

        def take(offsets: Indices, inserted: Mask, rows: Combination) -> None:
            for first in range(0, len(inserted), _FEW_BESIDE):
                report(1.0)
                at = np.arange(first, min(first + _FEW_BESIDE, len(inserted)))
                self._take_inserted(taken, tuple(slots[at[inserted[at]]] for slots in rows))
                self._take_deleted(taken, version, tuple(slots[at[~inserted[at]]] for slots in rows))

        core.catch_up(version, runs, _GroupLoader(take))

    def _take_inserted(self, taken: LoadedGroups, rows: Combination) -> None:
        """Add rows to new groups."""
        if not (n := len(rows[0])):
            return
        every = np.ones(n, np.bool_)
        # The view must not run out of codes because of these; afterwards, as the writer may have given some meanwhile.
        taken.groups.require(self._columns.codes + n + _SPARE_CODES // 2, n)
        read = self._columns.read(rows, (every, 0))  # none goes, at whatever version
        taken.references.add(self._columns.codes_of(read))
        taken.groups.require(self._columns.codes, n)
        taken.groups.add(_given(read, every))

    def _take_deleted(self, taken: LoadedGroups, version: int, rows: Combination) -> None:
        """Remove rows from new groups. References are released last: if this fails, none is counted that is no more."""
        if not (n := len(rows[0])):
            return
        read = self._columns.read(rows, None)
        taken.groups.add(_given(read, np.zeros(n, np.bool_)))
        taken.references.add(self._columns.codes_of(read), -1)
        self._columns.release(read, np.ones(n, np.bool_), version)

    def drop(self, taken: LoadedGroups, version: int) -> None:
        """Drop the references of what is not taken over. In the writer's turn."""
        self._columns.drop(taken.references, version)

    def apply_without(self, version: int, runs: Runs, sink: RowCollector | None, taken: LoadedGroups) -> None:
        """Follow a batch that truncates relations; the core is already a new one, without their rows, which `taken` has. Cost: O(1) a
        group, and that of the inserted rows."""
        self._groups, references = taken
        had_none = self._groups.groups == 0
        self._columns.release_all(version, references)
        self._table.begin(version)
        self._table.clear_texts(version)
        self._following = self._follow_few()
        self._require_few()
        self._groups.begin()
        codes: list[Slots] = []
        self._take_delta(version, runs, codes)
        if not self._grouping.columns:
            self._write_all(version, [_ALL], 0, sink)
            return
        counts = self._groups.rows[: self._columns.codes]  # a page that was never touched takes long to read
        found = np.concatenate([NO_SLOTS, *codes]) if had_none else np.flatnonzero(counts).astype(np.int32)
        found = found[counts[found] > 0]
        stays = np.zeros(self._columns.codes, np.bool_)
        stays[found] = True
        self._succeed(version, self._table.end_others(version, stays), 0, sink)
        self._write_all(version, [found], 0, sink)

    def _take_delta(self, version: int, runs: Runs, codes: list[Slots]) -> int:
        """Take the join's delta; append the codes of groups that it touches for the first time. Return its number of rows."""
        taking = _GroupLoader(lambda offsets, inserted, rows: codes.extend(self._take_all(version, inserted, rows)))
        self.core.apply(version, runs, taking)
        return taking.rows

    def _write_all(self, version: int, codes: Sequence[Slots], first: int, sink: RowCollector | None) -> None:
        """Write the rows of these groups, each once, as they are after version `first`."""
        for part in pieces_of(codes):
            self._write(version, part, np.zeros(len(part), np.int64), self._groups.emit(part), first, sink)

    def _apply_run(self, version: int, runs: Runs, first: int, sink: RowCollector | None) -> int:
        """Apply some versions from `first` on; return the number of rows of the join's delta."""
        if isinstance(self.core, Selection):
            run = self.core.chosen(version, runs)
            if run is None:
                return 0
            if self._following is not None and (followed := self._following.follow(version, run)) is not None:
                self._went_on(version, followed, first, sink)
                return 2 * len(run.old)
            changed = self.core.differing(run)
        else:
            changed = self._changed(version, runs)
        if changed is None:
            return 0
        offsets, inserted, rows = changed
        self._write(version, *self._take(version, rows, inserted, offsets), first, sink)
        return len(inserted)

    def _changed(self, version: int, runs: Runs) -> ReportedRows | None:
        """Return the join's delta, in the form of `Selection.follow`."""
        parts: list[ReportedRows] = []
        self.core.apply(version, runs, _GroupLoader(lambda offsets, inserted, rows: parts.append(ReportedRows(offsets, inserted, rows))))
        return joined(parts, 1) if parts else None

    def _take_all(self, version: int, inserted: Mask, rows: Combination) -> list[Slots]:
        """Add rows to their groups or remove them; return the codes of groups touched for the first time."""
        found = []
        for first in range(0, len(rows[0]), PIECE_ROWS):
            some = tuple(slots[first : first + PIECE_ROWS] for slots in rows)
            found.append(self._take(version, some, inserted[first : first + PIECE_ROWS], None)[0])
        return found

    def _take(self, version: int, rows: Combination, inserted: Mask, offsets: Numbers | None) -> tuple[Slots, Numbers, Cells]:
        """Take these rows in order. `offsets`: as in `Groups.add_in_order`, whose result is returned; None: return the codes of groups
        touched for the first time. Problem `too-many-groups`."""
        read = self._columns.read(rows, (inserted, version))
        self._groups.require(self._columns.codes, len(inserted))
        given = _given(read, inserted)
        if offsets is None:
            found = self._groups.add(given), NO_NUMBERS, _NO_CELLS
        else:
            found = self._groups.add_in_order(given, offsets)
        self._require_few()
        return found

    def _require_few(self) -> None:
        """Problem `too-many-groups`."""
        require_few(self._groups.groups, self._grouping.most)

    def _write(self, version: int, codes: Slots, offsets: Numbers, cells: Cells, first: int, sink: RowCollector | None) -> None:
        """Write the reported rows of these groups, version after version (by its offset from `first`), and report the
        differences."""
        if not len(codes):
            return
        self._succeed(
            version, self._table.change(version, SuccessionRows(codes, offsets, cells, self._there(codes, cells))), first, sink
        )

    def _succeed(self, version: int, found: VersionSlots, first: int, sink: RowCollector | None) -> None:
        """Take over the new rows of groups, and report them to the sink."""
        if len(found.versions):
            self.root = GroupsRoot(version, self._table.rows_now)
            if sink is not None and len((seen := self._table.seen(found)).versions):
                sink.take(first, seen)

    def _went_on(self, version: int, followed: FollowResult, first: int, sink: RowCollector | None) -> None:
        """Take over the result of `GroupFollower.follow`. Problem `too-many-groups`."""
        self._require_few()
        found = followed.found
        if isinstance(found, VersionSlots):
            self._succeed(version, found, first, sink)
        else:
            self._write(version, found.codes, found.versions, found.rows, first, sink)

    def _there(self, codes: Slots, cells: Cells) -> Mask:
        """bool[n]: whether the group has a row in the view: it has rows of its own, or is the only group, and meets HAVING."""
        there = cells[:, 0] >= 0 if self._grouping.columns else np.ones(len(codes), np.bool_)
        if self._grouping.having and len(codes):
            there = there & self._table.meets(codes, cells)
        return there

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        """The join is never read at an older version than the newest."""
        return self.core.reclaim(oldest_needed, NO_NUMBERS) or self._table.reclaim(oldest_needed, pins)

    def rows(self, root: GroupsRoot, window: Bounds | None) -> Enumeration:
        return Scan(self._table.table, root.version)

    def partners(self, root: GroupsRoot, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        """For rows of groups."""
        return GivenRowsCursor((slots,))

    def of_key(self, root: GroupsRoot, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        raise TypeError("a group is looked up in the table of groups")

    def is_empty(self, root: GroupsRoot) -> bool | None:
        return root.rows == 0

    def entries(self, root: GroupsRoot) -> int:
        """Entries of the join."""
        return self.core.entries(self.core.root)

    @property
    def groups(self) -> int:
        return self._groups.groups

    @property
    def sums_out_of_range(self) -> int:
        return self._groups.out_of_range

    @property
    def texts_too_long(self) -> int:
        return self._table.texts_too_long

    @property
    def bytes(self) -> int:
        return self.core.bytes + self._table.bytes + self._groups.bytes

    @property
    def retired_bytes(self) -> int:
        return self.core.retired_bytes + self._table.retired_bytes

    @property
    def stores(self) -> Sequence[Store]:
        return self.core.stores

    def check(self) -> None:
        """Also verify that each living row of the table is at the place of its group, and equals what the group reports now."""
        self.core.check()
        self._groups.check(self._columns.codes)
        self._table.check()
        cursor, parts = self.rows(self.root, None), [NO_SLOTS]
        while not cursor.done:
            parts += cursor.fill(PIECE_ROWS)
        slots = np.concatenate(parts)
        assert len(slots) == self.root.rows == self._table.rows_now, "the rows are miscounted"
        if len(slots):
            cells, positions = self._table.cells[slots], self._table.positions
            codes = cells[:, 0].astype(np.int32)
            assert np.array_equal(positions[codes], slots + 1), "the place of a group's row"
            assert np.count_nonzero(positions[: self._columns.codes]) == len(slots), "a place without a row"
            emitted = self._groups.emit(codes)
            assert np.array_equal(emitted[:, 1:], cells[:, 1:]), "a row differs from its group"
            assert self._there(codes, emitted).all(), "a row of a group that has none"


class _GroupLoader:
    """Takes all rows of a join's delta. `rows`: their number."""

    limit = UNBOUNDED

    def __init__(self, take: Callable[[Indices, Mask, Combination], object]) -> None:
        self._take, self.rows = take, 0

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        if len(inserted):
            self.rows += len(inserted)
            self._take(offsets, inserted, rows)
        return True

    def exceeded(self, offset: int) -> None:
        raise AssertionError("a delta without a bound has exceeded it")


def require_few(groups: int, most: int) -> None:
    """Problem `too-many-groups`."""
    if groups > most:
        instead = 'register it with a larger "groups", or group more coarsely'
        raise Problem("too-many-groups", f"the view has more than {most} groups; {instead}")


def _given(read: StageRows, inserted: Mask) -> GroupedColumns:
    return GroupedColumns(read.codes, 2 * inserted.view(np.int8) - np.int8(1), read.values, read.nulls)


def pieces_of(codes: Sequence[Slots]) -> Iterator[Slots]:
    """Yield the codes, some thousand at a time."""
    joined = codes[0] if len(codes) == 1 else np.concatenate([NO_SLOTS, *codes])
    for first in range(0, len(joined), PIECE_ROWS):
        yield joined[first : first + PIECE_ROWS]
