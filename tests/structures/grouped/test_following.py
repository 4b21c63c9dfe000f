"""Changes that one call follows into groups, beside the steps one by one."""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np
import pytest

from structures.aggregate import layout
from structures.aggregate.groups import Groups, Step
from structures.aggregate.layout import NAN_BITS, GroupedColumns, ordered_bits
from structures.core.reserve import reserve
from structures.expression.steps import CONSTANT, LOAD, MULTIPLY
from structures.grouped.following import FLOAT, NULL, OPERATORS, ORDERED, WORD, GroupChanges, GroupedRows, Reads
from structures.rows.key_counts import KeyCounts
from structures.rows.key_table import FLOAT as FLOAT_KIND
from structures.rows.key_table import PLAIN, RowSet
from structures.rows.reading import Run
from structures.rows.rows import RowStore as StoredRows
from structures.rows.succession import Succession, SuccessionRows, VersionSlots

COLUMNS = 4  # key, a number, a float, another one; all but the key may be null
WIDTH = 5  # of a row of a group: its code, COUNT(*), SUM of the number, MAX of the float, null bits
FLOATS = [0.0, -0.0, 1.5, -2.5, float("nan"), -float("nan"), float("inf")]
READS = Reads(
    np.array([1, 2]), np.array([[NULL, -1, 0], [WORD, -1, 0], [NULL, 2, -1], [FLOAT, 2, -1]]), np.array([[WORD, -1, 3], [ORDERED, 2, -1]]),
    np.array([[LOAD, 1, 0], [CONSTANT, 2, 0], [MULTIPLY, 1, 2]]), np.zeros((0, 3), np.int64),
)  # fmt: skip
HAVING = [[(1, 1, 2)], [(3, 2, 5)], [(5, 1, 2), (2, 2, 20)], [(0, 1, 1)], [(4, 2, -3)]]  # operator, cell, number


class Kept(NamedTuple):
    """All that is kept of groups."""

    keys: StoredRows
    counts: KeyCounts
    groups: Groups
    rows: StoredRows
    succession: Succession

    @property
    def positions(self) -> np.ndarray:
        return self.succession.positions


def kept(shown: int = 15) -> Kept:
    """`shown`: bits of the columns that readers see."""
    steps = Step()
    total, values = steps.of(layout.INT_SUM, 0), steps.of(layout.VALUES, 1)
    count = steps.of(layout.COUNT, 0)
    results = [(layout.OF_ROWS, 0, 0, 0, 1), (layout.OF_INT_SUM, total, count, 0, 1), (layout.OF_GREATEST_FLOAT, values, values, 0, 1)]
    keys = StoredRows([PLAIN, PLAIN, PLAIN, FLOAT_KIND], range(4), False)
    groups = Groups(steps, results, WIDTH, 1 << 12)
    bits = np.array([*(-(shown >> column & 1) for column in range(WIDTH - 1)), shown])
    succession = Succession(reserve(4 << 12, np.int32), bits)
    return Kept(keys, KeyCounts(1 << 12), groups, StoredRows([PLAIN] * 4, [], True), succession)


class Relation:
    """Rows of a table with keys, random ones."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows = StoredRows([PLAIN, PLAIN, FLOAT_KIND, PLAIN], [0], True)
        self.there: dict[int, int] = {}  # slot by key

    def row(self, key: int) -> list[int]:
        rng = self.rng
        number, bits = rng.randrange(-3, 6), int(np.float64(rng.choice(FLOATS)).view(np.int64))
        nulls = sum(1 << column for column in (1, 2, 3) if rng.random() < 0.15)
        return [key, 0 if nulls & 2 else number, 0 if nulls & 4 else bits, rng.randrange(2), nulls]

    def change(self, version: int, versions: int) -> Run:
        """A change each of some versions."""
        offsets, old, new = [], [], []
        for offset, key in enumerate(self.rng.sample(range(40), versions)):
            before = self.there.pop(key, -1)
            after = -1
            if before >= 0:
                self.rows.unlink(np.array([before], np.int32))
            if before < 0 or self.rng.random() < 0.7:
                cells = np.array([self.row(key)])
                if before >= 0 and self.rng.random() < 0.2:  # one that keeps what is read
                    cells[0, 1:3], cells[0, 4] = self.rows.cells[before, 1:3], self.rows.cells[before, 4]
                given = RowSet(self.rows.kinds, self.rows.key, cells, np.zeros(1, np.int64), np.frombuffer(b"", np.uint8))
                ((after,), _) = self.rows.enter(version, given)
                self.there[key] = int(after)
            offsets.append(offset)
            old.append(before)
            new.append(int(after))
        return Run(np.array(offsets), np.array(old, np.int32), np.array(new, np.int32))

    def half(self, *slots: np.ndarray) -> np.ndarray:
        """What is computed of the number, and whether it is null: also where the number is 5."""
        cells = self.rows.cells[np.maximum(np.stack(slots), 0)]
        return np.stack([cells[..., 1] // 2, (cells[..., 4] >> 1 & 1) | (cells[..., 1] == 5)])


def by_steps(of: Kept, relation: Relation, version: int, run: Run, having: list[tuple[int, int, int]]) -> VersionSlots:
    """As the module's other kernels do, one by one."""
    moved = relation.rows.differing(READS.columns, run)
    cells = relation.rows.cells[moved.slots]
    half, no_half = relation.half(moved.slots)[:, 0]
    no_number, no_float = cells[:, 4] >> 1 & 1, cells[:, 4] >> 2 & 1
    plain = np.where(np.isnan(cells[:, 2].view(np.float64)), NAN_BITS, np.where(cells[:, 2].view(np.float64) == 0, 0, cells[:, 2]))
    keys = np.stack([no_half, np.where(no_half, 0, half), no_float, np.where(no_float, 0, plain)], axis=1)
    given = RowSet(of.keys.kinds, of.keys.key, np.ascontiguousarray(keys), np.zeros(1, np.int64), np.frombuffer(b"", np.uint8))
    codes, dropped = of.keys.enter_used(version, given, of.counts.counts, moved.is_inserted)
    of.keys.retire(version, dropped)
    values = np.stack([2 * cells[:, 1], np.array([ordered_bits(np.int64(one)) for one in cells[:, 2].tolist()], np.int64)])
    signs = np.where(moved.is_inserted, 1, -1).astype(np.int8)
    rows = GroupedColumns(codes, signs, np.ascontiguousarray(values), np.stack([no_number, no_float]).astype(np.uint8))
    emitted_codes, numbers, emitted = of.groups.add_in_order(rows, moved.offsets)
    there = emitted[:, 0] >= 0
    for operator, cell, value in having:
        words, valid = emitted[:, cell], (emitted[:, 4] >> cell & 1) == 0
        there &= valid & (words == value, words != value, words < value, words <= value, words > value, words >= value)[operator]
    return of.rows.succeed(version, SuccessionRows(emitted_codes, numbers, emitted, there), of.succession)[0]


@pytest.mark.parametrize("seed", range(5))
def test_one_call_does_what_the_steps_do(seed: int) -> None:
    rng = random.Random(seed)
    shown = 15 if seed % 2 else 15 & ~(1 << rng.randrange(1, 4))
    relation, one, other = Relation(rng), kept(shown), kept(shown)
    having = HAVING[seed]
    assert all(0 <= operator < len(OPERATORS) for operator, _, _ in having)
    reads = READS._replace(having=np.array(having))
    grouped = GroupedRows(one.keys, one.counts.counts, one.groups, one.rows, one.succession, reads)
    changed = 0
    for turn in range(1, 40):
        run = relation.change(turn, rng.randrange(1, 20))
        words = relation.half(run.old, run.new)
        assert grouped.has_room(len(run.old))
        followed = grouped.follow((turn, turn), relation.rows.stored, GroupChanges(run, words), True)
        one.keys.retire(turn, followed.dropped)
        wanted, found = by_steps(other, relation, turn, run, having), followed.found
        assert isinstance(found, VersionSlots)
        for mine, its in zip(found, wanted, strict=True):
            assert mine.tolist() == its.tolist()
        assert one.rows.cells[found.slots].tolist() == other.rows.cells[wanted.slots].tolist()
        assert one.rows.used == other.rows.used and followed.lost == sum(found.deletes.tolist())
        codes = other.keys.used
        assert one.keys.used == codes and one.groups.groups == other.groups.groups
        assert np.array_equal(one.keys.cells[:codes], other.keys.cells[:codes]) and np.array_equal(one.positions, other.positions)
        assert np.array_equal(one.counts.counts, other.counts.counts)
        some = np.arange(codes, dtype=np.int32)
        assert np.array_equal(one.groups.emit(some), other.groups.emit(some))
        changed += len(found.slots)
        if turn % 5 == 0:
            for of in (one, other):
                freed = of.keys.reclaim(turn, np.empty(0, np.int64), 1000)
                of.keys.unlink(freed)
                of.keys.free(freed)
                of.rows.free(of.rows.reclaim(turn, np.empty(0, np.int64), 1000))
        for of in (one, other):
            of.groups.check(codes)
            of.keys.check()
    assert changed > 100


def test_told_alone_the_rows_of_groups_stay() -> None:
    rng = random.Random(1)
    relation, one, other = Relation(rng), kept(), kept()
    grouped = GroupedRows(one.keys, one.counts.counts, one.groups, one.rows, one.succession, READS)
    run = relation.change(1, 20)
    words = relation.half(run.old, run.new)
    followed = grouped.follow((1, 1), relation.rows.stored, GroupChanges(run, words), False)
    emitted = followed.found
    assert isinstance(emitted, SuccessionRows) and followed.lost == followed.new == one.rows.used == 0
    one.rows.succeed(1, SuccessionRows(emitted.codes, emitted.versions, emitted.rows, emitted.rows[:, 0] >= 0), one.succession)
    by_steps(other, relation, 1, run, [])
    assert np.array_equal(one.positions, other.positions) and one.rows.used == other.rows.used > 0


def test_too_many_codes_are_noticed_before_anything_is_touched() -> None:
    one = kept()
    grouped = GroupedRows(one.keys, one.counts.counts, one.groups, one.rows, one.succession, READS)
    assert grouped.has_room(1 << 11) and not grouped.has_room((1 << 11) + 1)
