"""Changes of a relation's rows, followed into groups by one call.

    changes ──> rows of those that differ ──> cells of keys ──> codes, counted                      (`rows.rows`)
                                         └──> values ──> accumulators, reported after each version  (`aggregate.changes`)
                                                               └──> rows of groups in the places of those before   (`rows.succession`)

Each step is also a separate kernel, for any number of rows. For a few changes, the calls and the arrays between them cost more than their
work: with these alone, a change takes 2.4 times as long.

A cell of a key, or a value, is derived by its form from the word of a column or of a register. Registers have the words that the caller
computed, and then those of the steps of arithmetic (`expression.steps`):

    NULL      whether it is null
    WORD      the word, or 0 for null
    FLOAT     the same for a float's bits: -0.0 is 0.0, and all NaNs are equal
    ORDERED   the same, in the order of floats

Costs: those of the steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from structures.aggregate.changes import add_versions
from structures.aggregate.groups import Groups
from structures.aggregate.layout import INFINITY_BITS, NAN_BITS, SIGN, GroupedColumns, Plan, Store, ordered_bits
from structures.core.kernel import arrays, compiled, kernel, wide
from structures.expression.steps import CONSTANT, FROM_INT, LOAD, NULLS, WORDS, result
from structures.rows.key_counts import KeyUses, count_both
from structures.rows.key_table import NULLS_A_CELL, RowSet, SlotRows
from structures.rows.reading import Run, look_alike
from structures.rows.rows import RowStore as StoredRows
from structures.rows.rows import store_rows
from structures.rows.succession import NewestRows, Slots, Succession, SuccessionRows, VersionSlots, take_positions

MOST = 128  # changes: their buffers are allocated in each call
NULL, WORD, FLOAT, ORDERED = range(4)
FORM, COLUMN, REGISTER = range(3)
OPERATORS = "=", "!=", "<", "<=", ">", ">="

OFFSETS, INSERTED, SIGNS, EMITTED_VERSIONS, THERE, VERSIONS, STARTS, DELETES, VALUES = range(9)  # lines of `Buffers.numbers`
CODES, DROPPED, EMITTED_CODES, DELETED, SLOTS, SLOT_LINES = range(6)  # of `Buffers.slots`


@arrays(Run, "int64[:, :, ::1]")
class GroupChanges(NamedTuple):
    """words[2k, 0], words[2k, 1]: the computed words number k of the row before each change, and of the row after it; words[2k + 1]: 1
    where they are null."""

    run: Run
    words: np.ndarray


@arrays("int64[::1]", "int64[:, ::1]", "int64[:, ::1]", "int64[:, ::1]", "int64[:, ::1]")
class Reads(NamedTuple):
    """columns: a change that changes none of them is skipped. keys, values: for each cell of a key, and for each value, its form, its
    column, and the register that is read instead (-1: none). steps: each an operation and its two arguments. having: for each condition on
    the reported rows of groups the operator, the cell, and the number with which it is compared; a null meets no condition."""

    columns: np.ndarray
    keys: np.ndarray
    values: np.ndarray
    steps: np.ndarray
    having: np.ndarray


@arrays("int64[::1]", "int64[::1]", SlotRows, Slots, "int64[::1]")
class Keys(NamedTuple):
    """The parts of a `rows.rows.Rows`: entries, hashing, keys and slots; and counts by code."""

    entries: np.ndarray
    hashing: np.ndarray
    stored: SlotRows
    slots: Slots
    counts: np.ndarray


@arrays(Plan, Store)
class Accumulators(NamedTuple):
    plan: Plan
    store: Store


@arrays("int64", "int64", "int64", "int64", "int64")
class Numbers(NamedTuple):
    """The version since which new keys count as known; the version being written; the stamp of the first version; how many cells of a
    group's row are columns; and whether these rows succeed the previous ones (1), or are only reported (0)."""

    known: int
    version: int
    stamp: int
    columns: int
    succeeds: int


@arrays("int64[:, ::1]", "int32[:, ::1]", "int64[:, ::1]", "int64[:, ::1]", "int64[:, ::1]")
class Buffers(NamedTuple):
    """Buffers for the results: lines of numbers and of slots, the cells of keys, the reported rows of groups, and a row's registers."""

    numbers: np.ndarray
    slots: np.ndarray
    keys: np.ndarray
    rows: np.ndarray
    registers: np.ndarray


class FollowResult(NamedTuple):
    """found: what the versions change, or, if rows of groups do not succeed the previous ones, what was reported of groups. lost, new: the
    numbers of rows of groups removed and added. dropped: int32[k], codes that are no longer in use."""

    found: SuccessionRows | VersionSlots
    lost: int
    new: int
    dropped: np.ndarray


@kernel
def is_null(cells: Any, columns: int, row: int, column: int) -> bool:
    """Return whether a column of a row is null. The null bits are in the cells of the row from `columns` on, if there are any."""
    if cells.shape[1] == columns:
        return False
    return (cells[row, columns + column // NULLS_A_CELL] >> (column % NULLS_A_CELL)) & 1 == 1


@kernel
def compute(relation: SlotRows, changes: GroupChanges, steps: Any, at: tuple[int, int, int], registers: Any) -> None:
    """Fill the registers for a row. `at`: its slot, whether it is the row after the change, and the number of the change."""
    slot, is_inserted, change = at
    given = len(changes.words) // 2
    for r in range(given):
        registers[WORDS, r] = changes.words[2 * r, is_inserted, change]
        registers[NULLS, r] = changes.words[2 * r + 1, is_inserted, change]
    for s in range(len(steps)):
        operation, a, b = steps[s, 0], steps[s, 1], steps[s, 2]
        if operation == LOAD:
            word, null = relation.cells[slot, a], is_null(relation.cells, len(relation.kinds), slot, a)
        elif operation == CONSTANT:
            word, null = a, b == 1
        else:
            word, null = wide(0), registers[NULLS, a] + (operation != FROM_INT) * registers[NULLS, b] > 0
            if not null:
                word, null = result(operation, registers[WORDS, a], registers[WORDS, b])
        registers[WORDS, given + s] = word
        registers[NULLS, given + s] = null


@kernel
def is_null_in(relation: SlotRows, registers: Any, read: Any, slot: int) -> bool:
    """Return whether what is read of a row is null."""
    if read[REGISTER] < 0:
        return is_null(relation.cells, len(relation.kinds), slot, read[COLUMN])
    return registers[NULLS, read[REGISTER]] != 0


@kernel
def word_of(relation: SlotRows, registers: Any, read: Any, slot: int) -> int:
    """Return the word that is read of a row."""
    form, null = read[FORM], is_null_in(relation, registers, read, slot)
    if form == NULL or null:
        return wide(1 if form == NULL and null else 0)
    word = relation.cells[slot, read[COLUMN]] if read[REGISTER] < 0 else registers[WORDS, read[REGISTER]]
    if form == FLOAT:
        magnitude = word & ~SIGN
        word = wide(NAN_BITS) if magnitude > INFINITY_BITS else word if magnitude else wide(0)
    elif form == ORDERED:
        word = wide(ordered_bits(word))
    return wide(word)


@kernel
def meets(rows: Any, k: int, having: Any, columns: int) -> bool:
    """Return whether row number k meets all conditions; its cells from `columns` on have null bits."""
    for c in range(len(having)):
        operator, column, value = having[c, 0], having[c, 1], having[c, 2]
        if is_null(rows, columns, k, column):
            return False
        cell = rows[k, column]
        if operator < 2:
            met = (cell == value) == (operator == 0)
        elif operator < 4:
            met = cell < value or (operator == 3 and cell == value)
        else:
            met = cell > value or (operator == 5 and cell == value)
        if not met:
            return False
    return True


@kernel
def read_rows(relation: SlotRows, changes: GroupChanges, reads: Reads, room: Buffers) -> int:
    """Read the rows that the changes remove and add. Returns their number."""
    run, numbers, operands = changes.run, room.numbers, len(reads.values)
    n = wide(0)
    for i in range(len(run.old)):
        old, new = wide(run.old[i]), wide(run.new[i])
        if old >= 0 and new >= 0 and look_alike(relation, reads.columns, old, new):
            continue
        for is_inserted in range(2):
            slot = new if is_inserted else old
            if slot < 0:
                continue
            numbers[OFFSETS, n], numbers[INSERTED, n], numbers[SIGNS, n] = run.offsets[i], is_inserted, 2 * is_inserted - 1
            compute(relation, changes, reads.steps, (slot, is_inserted, i), room.registers)
            for k in range(len(reads.keys)):
                room.keys[n, k] = word_of(relation, room.registers, reads.keys[k], slot)
            for k in range(operands):
                numbers[VALUES + k, n] = word_of(relation, room.registers, reads.values[k], slot)
                numbers[VALUES + operands + k, n] = is_null_in(relation, room.registers, reads.values[k], slot)
            n += 1
    return n


@kernel("UniTuple(int64, 7)(SlotRows, GroupChanges, Reads, Keys, Accumulators, NewestRows, Numbers, Buffers)")
def follow(
    relation: SlotRows, changes: GroupChanges, reads: Reads, keys: Keys, groups: Accumulators, newest: NewestRows, given: Numbers,
    room: Buffers
) -> tuple[int, int, int, int, int, int, int]:  # fmt: skip
    """Follow the changes into groups. Returns the number of rows removed and added; the number of new keys; the number of keys that are no
    longer in use (-1: one was not in use at all); the number of reported rows of groups; and the results of `rows.succession.succeed`.
    Cost: that of the steps."""
    numbers, slots, operands = room.numbers, room.slots, len(reads.values)
    n = read_rows(relation, changes, reads, room)
    codes, known = slots[CODES, :n], keys.stored
    stored, _ = store_rows(
        keys.entries, keys.hashing, known, RowSet(
            known.kinds, known.key, room.keys, known.positions, known.heap
        ), keys.slots, given.known, 0,
        codes,
    )  # fmt: skip
    dropped = count_both(keys.slots.died, codes, KeyUses(keys.counts, numbers[INSERTED], slots[DROPPED]))
    values, nulls = numbers[VALUES : VALUES + operands], numbers[VALUES + operands :]
    rows = GroupedColumns(codes, numbers[SIGNS], values, nulls)
    emitted_codes, emitted_versions = slots[EMITTED_CODES], numbers[EMITTED_VERSIONS]
    emitted = add_versions(groups.plan, groups.store, rows, numbers[OFFSETS, :n], given.stamp, emitted_codes, emitted_versions, room.rows)
    there = numbers[THERE]
    for k in range(emitted):
        there[k] = room.rows[k, 0] >= 0 and meets(room.rows, k, reads.having, given.columns)
    changed, lost, new = wide(0), wide(0), wide(0)
    if given.succeeds:
        these = SuccessionRows(emitted_codes[:emitted], emitted_versions, room.rows, there)
        found = VersionSlots(numbers[VERSIONS], numbers[STARTS], numbers[DELETES], slots[SLOTS])
        changed, lost, new = take_positions(newest, these, given.version, found, slots[DELETED])
    return n, stored, dropped, emitted, changed, lost, new


class GroupedRows:
    """The groups of one relation's rows: codes of their keys, accumulators, and the newest row of each group. Every row has a key. For the
    writer only."""

    def __init__(
        self, keys: StoredRows, counts: np.ndarray, groups: Groups, newest: StoredRows, succession: Succession, reads: Reads
    ) -> None:  # fmt: skip
        """keys, counts: of the codes; newest: the reported rows of groups, and how they succeed one another."""
        self._keys, self._counts, self._groups, self._newest, self._succession = keys, counts, groups, newest, succession
        self._reads, self._accumulators = reads, Accumulators(*groups.parts)
        self._lines = VALUES + 2 * len(reads.values)

    def has_room(self, changes: int) -> bool:
        """Return whether `changes` changes surely have room for all that they may need; otherwise `follow` must not be called. Raises
        MemoryError if there is no room for their keys."""
        rows = 2 * changes
        self._keys.require(rows, 0)
        self._newest.require_slots(rows)
        self._groups.require(0, rows)
        return self._keys.used + rows <= self._groups.most_codes

    def follow(self, numbers: tuple[int, int], relation: SlotRows, changes: GroupChanges, succeeds: bool) -> FollowResult:
        """Follow a few changes (MOST), in ascending order of their offsets. `numbers`: the version since which new keys count as known, and
        the version being written. `succeeds`: rows of groups succeed the previous ones; otherwise they are only reported. The caller
        retires the codes that are dropped."""
        n, keys, groups = 2 * len(changes.run.old), self._keys, self._groups
        reads, newest = self._reads, self._newest
        room = Buffers(
            np.empty((self._lines, n + 1), np.int64), np.empty((SLOT_LINES, 2 * n), np.int32), np.empty((n, len(reads.keys)), np.int64),
            np.empty((n, groups.width), np.int64), np.empty((2, len(changes.words) // 2 + len(reads.steps)), np.int64),
        )  # fmt: skip
        known = Keys(keys.table.entries, keys.table.hashing, keys.stored, keys.slots(), self._counts)
        there = NewestRows(newest.cells, newest.slots(), self._succession)
        given = Numbers(*numbers, groups.next_stamp, len(newest.kinds), int(succeeds))
        rows, stored, dropped, emitted, changed, lost, new = compiled(follow)(
            relation, changes, reads, known, self._accumulators, there, given, room
        )  # fmt: skip
        line, slots = room.numbers, room.slots
        keys.took(stored)
        keys.table.count += stored
        assert dropped >= 0, "a key was given up more often than it was taken"
        if emitted:
            groups.went_on(int(line[EMITTED_VERSIONS, emitted - 1]))
        newest.took(new)
        if lost:
            newest.retired.add(numbers[1], slots[DELETED, :lost].copy())
        found: SuccessionRows | VersionSlots
        if succeeds:
            found = VersionSlots(
                line[VERSIONS, :changed], line[STARTS, : changed + 1], line[DELETES, :changed], slots[SLOTS, : lost + new].copy()
            )
        else:
            found = SuccessionRows(
                slots[EMITTED_CODES, :emitted], line[EMITTED_VERSIONS, :emitted], room.rows[:emitted], line[THERE, :emitted]
            )
        return FollowResult(found, lost, new, slots[DROPPED, :dropped].copy())
