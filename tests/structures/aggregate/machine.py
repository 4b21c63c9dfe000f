"""A Hypothesis state machine that drives the aggregates of groups beside a naive twin: rows that come and go, at once and by version,
with magnitudes and edges that make sums grow and go out of range; what is told, and which of it differs; `check()` after each step."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from structures.aggregate import layout
from structures.aggregate.amounts import Amounts
from structures.aggregate.groups import Groups, Step
from structures.aggregate.layout import GroupedColumns as Given
from structures.rows.key_table import PLAIN
from structures.rows.rows import RowStore
from structures.rows.succession import Succession, SuccessionRows
from tests.naive.aggregate import Row, bits_of, emitted

CODES = 4
NUMBERS = st.one_of(st.none(), st.integers(-3, 12), st.sampled_from((2**63 - 1, -(2**63), 2**62, 2**32, -(2**32), 2**31)))
FLOATS = st.one_of(
    st.none(),
    st.sampled_from((0.0, -0.0, 1.0, -1.0, 0.1, 1e308, -1e308, 5e-324, -5e-324, 2.0**53, 1e16, float("inf"), float("-inf"), float("nan"))),
    st.floats(allow_subnormal=True),
    st.floats(-100, 100).map(lambda value: round(value, 2)),
)
A_ROW = st.builds(lambda number, value: Row(number, None if value is None else bits_of(value)), NUMBERS, FLOATS)
ROWS = st.tuples(st.integers(0, CODES - 1), A_ROW)
COLUMNS = 18


def made() -> Groups:
    """Whole numbers are column 0; floats 1, and 2 in their order."""
    steps = Step()
    count, total, values = steps.of(layout.COUNT, 0), steps.of(layout.INT_SUM, 0), steps.of(layout.VALUES, 0)
    floats, exact, ordered = steps.of(layout.COUNT, 1), steps.of(layout.FLOAT_SUM, 1), steps.of(layout.VALUES, 2)
    results = [
        (layout.OF_ROWS, 0, 0, 0, 1), (layout.OF_COUNT, count, 0, 0, 1), (layout.OF_INT_SUM, total, count, 0, 1),
        (layout.OF_INT_MEAN, total, count, 0, 1), (layout.OF_LEAST, values, values, 0, 1), (layout.OF_GREATEST, values, values, 0, 1),
        (layout.OF_COUNT, values, 0, 0, 1), (layout.OF_COUNT, floats, 0, 0, 1), (layout.OF_FLOAT_SUM, exact, floats, 0, 1),
        (layout.OF_FLOAT_MEAN, exact, floats, 0, 1), (layout.OF_LEAST_FLOAT, ordered, ordered, 1, 1),
        (layout.OF_GREATEST_FLOAT, ordered, ordered, 1, 1), (layout.OF_COUNT, ordered, 0, 0, 1), (layout.OF_WIDE_SUM, total, count, 0, 1),
        (layout.OF_WIDER_SUM, total, count, total, 1), (layout.OF_WIDER_MEAN, total, count, total, 1000),
    ]  # fmt: skip
    return Groups(steps, results, 1 + COLUMNS + 1, 64)


def packed(changes: list[tuple[int, int, Row]]) -> Given:
    """(sign, code, row)"""
    n = len(changes)
    values, nulls = np.zeros((3, n), np.int64), np.zeros((3, n), np.uint8)
    for i, (_, _, row) in enumerate(changes):
        if row.number is None:
            nulls[0, i] = 1
        else:
            values[0, i] = row.number
        if row.bits is None:
            nulls[1:, i] = 1
        else:
            values[1, i] = row.bits
            values[2, i] = layout.ordered_bits(np.int64(row.bits))
    codes, signs = np.array([code for _, code, _ in changes], np.int32), np.array([sign for sign, _, _ in changes], np.int8)
    return Given(codes, signs, values, nulls)


NUMBERS_ALONE = (0, 1, 2, 3, 13, 14)  # columns that are told of rows by their number


def made_for_numbers() -> Groups:
    """Counts and sums alone, to which many rows are added at once."""
    steps = Step()
    count, total = steps.of(layout.COUNT, 0), steps.of(layout.INT_SUM, 0)
    results = [
        (layout.OF_ROWS, 0, 0, 0, 1), (layout.OF_COUNT, count, 0, 0, 1), (layout.OF_INT_SUM, total, count, 0, 1),
        (layout.OF_INT_MEAN, total, count, 0, 1), (layout.OF_WIDE_SUM, total, count, 0, 1),
    ]  # fmt: skip
    return Groups(steps, results, 2 + len(NUMBERS_ALONE), 64)


def amounts(changes: list[tuple[int, int, list[Row]]]) -> Amounts:
    """(sign, code, rows)"""
    sums = np.zeros((len(changes), 2, 3), np.int64)
    for i, (_, _, rows) in enumerate(changes):
        numbers = [row.number for row in rows if row.number is not None]
        for step, amount in enumerate((len(numbers), sum(numbers))):
            sums[i, step] = amount & layout.LOW32, (amount >> 32) & layout.LOW32, amount >> 64
    codes, signs = np.array([code for _, code, _ in changes], np.int32), np.array([sign for sign, _, _ in changes], np.int8)
    return Amounts(codes, signs, np.array([len(rows) for _, _, rows in changes], np.int64), sums)


def unpacked_numbers(row: np.ndarray) -> list[int | None]:
    n = len(NUMBERS_ALONE)
    return [None if int(row[1 + n]) >> (1 + i) & 1 else int(row[1 + i]) for i in range(n)]


def unpacked(row: np.ndarray) -> list[int | None]:
    nulls = int(row[1 + COLUMNS])
    return [None if nulls >> (1 + i) & 1 else int(row[1 + i]) for i in range(COLUMNS)]


class AggregateMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.groups, self.numbers = made(), made_for_numbers()
        self.rows: list[list[Row]] = [[] for _ in range(CODES)]
        self.shown: dict[int, list[int | None]] = {}  # of each group with rows, what was told of it last, and kept
        self.version, self.positions = 0, np.zeros(64, np.int32)
        self.kept = RowStore([PLAIN] * (2 + COLUMNS), [], False)
        self.at: dict[int, int] = {}  # of each group with rows the slot of its row

    def follow(self, changes: list[tuple[int, int, Row]]) -> None:
        for sign, code, row in changes:
            if sign > 0:
                self.rows[code].append(row)
            else:
                self.rows[code].remove(row)

    def leaving(self, data: st.DataObject) -> list[tuple[int, int, Row]]:
        there = [(-1, code, row) for code, rows in enumerate(self.rows) for row in rows]
        if not there:
            return []
        chosen = data.draw(st.lists(st.sampled_from(range(len(there))), unique=True, max_size=len(there)))
        return [there[i] for i in chosen]

    @rule(rows=st.lists(ROWS, max_size=12), data=st.data())
    def batch(self, rows: list[tuple[int, Row]], data: st.DataObject) -> None:
        changes = [*self.leaving(data), *((1, code, row) for code, row in rows)]
        self.groups.begin()
        half = len(changes) // 2
        touched = np.concatenate([self.groups.add(packed(part)) for part in (changes[:half], changes[half:])])
        self.follow(changes)
        assert sorted(touched.tolist()) == sorted({code for _, code, _ in changes})
        together = {(sign, code): [row for s, c, row in changes if (s, c) == (sign, code)] for sign, code, _ in changes}
        self.numbers.begin()
        given = [(-sign, code, list[Row]()) for sign, code in together] + [(sign, code, rows) for (sign, code), rows in together.items()]
        found, _, out = self.numbers.add_amounts(amounts(given), None)
        assert sorted(found.tolist()) == sorted(touched.tolist()) and not len(out)
        self.validate(touched, np.zeros(len(touched), np.int64), self.groups.emit(touched), [self.rows[code] for code in touched.tolist()])

    @rule(rows=st.lists(ROWS, min_size=1, max_size=6), data=st.data())
    def versions(self, rows: list[tuple[int, Row]], data: st.DataObject) -> None:
        """Each change a version of its own, or a pair of them one."""
        changes = data.draw(st.permutations([*self.leaving(data), *((1, code, row) for code, row in rows)]))
        ends = [end for end in range(1, len(changes)) if data.draw(st.booleans())] + [len(changes)]
        numbers = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        codes, versions, out = self.groups.add_in_order(packed(changes), numbers)
        at_once = self.numbers.add_amounts(amounts([(sign, code, [row]) for sign, code, row in changes]), np.array(ends, np.int64))
        assert at_once[0].tolist() == codes.tolist() and at_once[1].tolist() == versions.tolist()
        for row, other in zip(at_once[2], out, strict=True):
            assert int(row[0]) == int(other[0]) and unpacked_numbers(row) == [unpacked(other)[i] for i in NUMBERS_ALONE]
        start, wanted = 0, list[tuple[int, int, list[Row]]]()
        for version, end in enumerate(ends):
            self.follow(changes[start:end])
            wanted += [(version, code, list(self.rows[code])) for code in dict.fromkeys(code for _, code, _ in changes[start:end])]
            start = end
        assert list(zip(versions.tolist(), codes.tolist(), strict=True)) == [(version, code) for version, code, _ in wanted]
        self.validate(codes, versions, out, [members for _, _, members in wanted])

    def validate(self, codes: np.ndarray, versions: np.ndarray, out: np.ndarray, members: list[list[Row]]) -> None:
        """What was told, and which of it goes and comes."""
        n = len(codes)
        for code, row, mine in zip(codes.tolist(), out, members, strict=True):
            assert int(row[0]) == (code if mine else -1 - code)
            assert unpacked(row) == emitted(mine), (code, mine)
        if not n:
            return
        self.version += 1
        succession = Succession(self.positions, np.full(out.shape[1], -1))
        found, lost, inserted = self.kept.succeed(self.version, SuccessionRows(codes, versions, out, out[:, 0] >= 0), succession)
        by_version: dict[int, tuple[list[int], list[int]]] = {}  # the groups whose rows go, and those that get one
        for code, version, mine in zip(codes.tolist(), versions.tolist(), members, strict=True):
            before, now = self.shown.pop(code, None), emitted(mine) if mine else None
            is_deleted, is_inserted = by_version.setdefault(version, ([], []))
            if before != now and before is not None:
                is_deleted.append(code)
            if before != now and now is not None:
                is_inserted.append(code)
            if now is not None:
                self.shown[code] = now
        wanted = [(version, *both) for version, both in by_version.items() if any(both)]
        assert found.versions.tolist() == [version for version, _, _ in wanted]
        ends = found.starts.tolist()
        for (_, is_deleted, is_inserted), start, end, deletes in zip(wanted, ends[:-1], ends[1:], found.deletes.tolist(), strict=True):
            slots = found.slots[start:end].tolist()
            assert slots[:deletes] == [self.at.pop(code) for code in is_deleted]
            assert self.kept.cells[slots[deletes:], 0].tolist() == is_inserted
            self.at.update(zip(is_inserted, slots[deletes:], strict=True))
        assert (lost, inserted) == (
            sum(len(is_deleted) for _, is_deleted, _ in wanted), sum(len(is_inserted) for _, _, is_inserted in wanted)
        )
        assert {code: int(position) - 1 for code, position in enumerate(self.positions) if position} == self.at
        for code, slot in self.at.items():
            assert int(self.kept.cells[slot][0]) == code and unpacked(self.kept.cells[slot]) == self.shown[code]
        if self.version % 2:  # what has gone is used again
            self.kept.free(self.kept.reclaim(self.version, np.empty(0, np.int64), 1 << 20))
        living, _, _ = self.kept.check()
        assert living.tolist() == sorted(self.at.values())

    @precondition(lambda self: any(self.rows))
    @rule()
    def empty(self) -> None:
        changes = [(-1, code, row) for code, rows in enumerate(self.rows) for row in rows]
        self.groups.begin()
        touched = self.groups.add(packed(changes))
        self.numbers.begin()
        self.numbers.add_amounts(amounts([(sign, code, [row]) for sign, code, row in changes]), None)
        self.follow(changes)
        self.validate(touched, np.zeros(len(touched), np.int64), self.groups.emit(touched), [[] for _ in touched])
        assert self.groups.groups == 0 and self.groups.out_of_range == 0

    @invariant()
    def holds(self) -> None:
        self.groups.check(CODES)
        self.numbers.check(CODES)
        assert self.groups.groups == self.numbers.groups == sum(map(bool, self.rows))
        for row, mine in zip(self.numbers.emit(np.arange(CODES, dtype=np.int32)), self.rows, strict=True):
            assert unpacked_numbers(row) == [emitted(mine)[i] for i in NUMBERS_ALONE]
        wide = [emitted(rows) for rows in self.rows if any(row.number is not None for row in rows)]
        assert self.groups.out_of_range == sum(row[at] is None for row in wide for at in (2, 13, 15))

