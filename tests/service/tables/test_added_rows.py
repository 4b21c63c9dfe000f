"""Rows without a key, what differs in changes of rows, and codes of keys that come and go at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import RowBlock
from service.tables.domains import Domain
from service.tables.store import Table
from structures.rows.reading import Run
from structures.rows.succession import Succession, SuccessionRows

SCHEMA = pa.schema([pa.field("k", pa.int64(), False), pa.field("t", pa.utf8()), pa.field("n", pa.int64())])
NUMBERS = pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.int64(), False)])


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_a_key(seed: int) -> None:
    """Of nine things, some of which have rows. Each pinned version sees its own, whatever comes and goes and is reclaimed meanwhile."""
    rng, table, positions = np.random.default_rng(seed), Table(NUMBERS, []), np.zeros(9, np.int32)
    at: dict[int, int] = {}  # the slots of the newest rows
    rows: dict[int, tuple[int, ...]] = {}  # by slot, of the newest version
    pinned: dict[int, dict[int, tuple[int, ...]]] = {}
    for version in range(1, 60):
        numbers = np.repeat(np.arange(3), rng.integers(0, 5, 3))
        codes = np.concatenate([rng.permutation(9)[:count] for count in np.bincount(numbers, minlength=3)]).astype(np.int32)
        cells, there = np.stack([codes, rng.integers(0, 2, len(codes))], axis=1).astype(np.int64), rng.random(len(codes)) < 0.7
        emitted = list(zip(numbers.tolist(), codes.tolist(), cells[:, 1].tolist(), there.tolist(), strict=True))
        found = table.succeed(version, SuccessionRows(codes, numbers, cells, there), Succession(positions, np.full(2, -1)))
        deltas = {}
        for number, start, end, deletes in zip(found.versions, found.starts[:-1], found.starts[1:], found.deletes, strict=True):
            deltas[int(number)] = found.slots[start : start + deletes].tolist(), found.slots[start + deletes : end].tolist()
        for number in range(3):
            deleted, inserted = deltas.get(number, ([], []))
            before = {code: rows[slot][1] for code, slot in at.items()}
            changed = [(code, n, is_) for of, code, n, is_ in emitted if of == number and before.get(code) != (n if is_ else None)]
            assert deleted == [at[code] for code, _, _ in changed if code in at]
            for code, _, _ in changed:
                rows.pop(at.pop(code, -1), None)
            new = [(code, n) for code, n, is_ in changed if is_]
            assert table.store.cells[inserted].tolist() == [[*one] for one in new]
            assert not {*inserted} & {*rows, *(slot for seen in pinned.values() for slot in seen)}, "a slot is used again too early"
            at.update((code, slot) for (code, _), slot in zip(new, inserted, strict=True))
            rows.update(zip(inserted, new, strict=True))
        if rng.random() < 0.5:
            pinned[version] = dict(rows)
        elif pinned and rng.random() < 0.5:
            del pinned[min(pinned)]
        while table.reclaim(version, np.array(sorted(pinned), np.int64)):
            pass
        for seen_at, wanted in [*pinned.items(), (version, rows)]:
            seen, rest = table.scan(seen_at, 0, 1000)
            assert seen.tolist() == sorted(wanted) and rest == -1
            assert [table.sees(seen_at, slot) for slot in range(table.used)] == [slot in wanted for slot in range(table.used)]
            assert [*map(tuple, table.store.cells[seen].tolist())] == [wanted[slot] for slot in sorted(wanted)]
        assert table.rows == len(rows) and {code: position - 1 for code, position in enumerate(positions.tolist()) if position} == at
        table.check()


def test_rows_that_look_alike_do_not_succeed() -> None:
    """Of the columns b and c, both of which may be null, readers see b. A change of c alone is written in place."""
    fields = [pa.field("a", pa.int64(), False), pa.field("b", pa.int64()), pa.field("c", pa.int64())]
    table, succession = Table(pa.schema(fields), []), Succession(np.zeros(2, np.int32), np.array([0, -1, 0, 1 << 1]))

    def emit(version: int, cells: list[int]) -> list[int]:
        emitted = SuccessionRows(np.zeros(1, np.int32), np.zeros(1, np.int64), np.array([cells]), np.ones(1, np.bool_))
        found = table.succeed(version, emitted, succession)
        if len(found.slots):
            slots[:] = found.slots[-1:]
        assert table.store.cells[slots[0]].tolist() == cells
        return found.slots.tolist()

    slots = [-1]
    assert len(emit(1, [0, 5, 7, 0])) == 1
    assert [emit(version, [0, 5, *hidden]) for version, hidden in ((2, (8, 0)), (3, (0, 1 << 2)), (4, (7, 0)))] == [[], [], []]
    assert len(emit(5, [0, 0, 7, 1 << 1])) == len(emit(6, [0, 6, 7, 0])) == 2
    table.check()


def test_what_differs() -> None:
    """Texts of one length, nulls, rows that only go or only come."""
    rows = [(1, "ab", 5), (2, "ac", 5), (3, "ab", 5), (4, None, 0), (5, "", 0), (6, "ab", None), (7, "ab", 0)]
    table = Table(SCHEMA, ["k"])
    given = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    assert table.insert(1, RowBlock(given)).tolist() == [*range(7)]
    changes = [(0, 1), (0, 2), (3, 4), (5, 6), (2, -1), (-1, 0), (-1, -1), (6, 6)]
    old, new = (np.array(slots, np.int32) for slots in zip(*changes, strict=True))
    for names, alike in ((["t", "n"], {(0, 2), (6, 6)}), (["t"], {(0, 2), (5, 6), (6, 6)}), (["n"], {(0, 1), (0, 2), (3, 4), (6, 6)})):
        found = table.differing(names, Run(np.arange(10, 18), old, new))
        apart = [(i, one) for i, one in enumerate(changes) if one not in alike]
        wanted = [(10 + i, is_inserted, slot) for i, one in apart for is_inserted, slot in enumerate(one) if slot >= 0]
        assert list(zip(*(part.tolist() for part in found), strict=True)) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_codes_of_keys_that_come_and_go(seed: int) -> None:
    """As if those that come were counted by one call, and those that go released by another."""
    rng, there, types = np.random.default_rng(seed), list[tuple[int, int]](), [pa.int64(), pa.int64()]
    at_once, apart = Domain(types), Domain(types)
    for version in range(1, 60):
        inserted = [tuple(row) for row in rng.integers(0, 4, (int(rng.integers(0, 6)), 2)).tolist()]
        deleted = [there.pop(int(rng.integers(len(there)))) for _ in range(int(rng.integers(0, 1 + len(there))))]
        is_inserted = rng.permutation(np.arange(len(inserted) + len(deleted)) < len(inserted))
        rows = [inserted.pop() if one else deleted.pop() for one in is_inserted]
        there += [row for row, one in zip(rows, is_inserted, strict=True) if one]
        cells = np.array(rows, np.int64).reshape(-1, 2)
        codes = at_once.count_cells(cells, is_inserted, version)
        batches = [
            pa.RecordBatch.from_arrays([pa.array(column) for column in cells[some].T], ["a", "b"]) for some in (is_inserted, ~is_inserted)
        ]
        wanted = np.empty(len(rows), np.int32)
        wanted[is_inserted], wanted[~is_inserted] = apart.acquire(batches[0]), apart.look_up(batches[1])
        apart.release(wanted[~is_inserted], version)
        assert codes.tolist() == wanted.tolist() and at_once.keys == apart.keys
        for domain in (at_once, apart):
            domain.reclaim(version, np.array([version - 2] if version % 3 else [], np.int64))
            domain.check()
        assert at_once.keys == apart.keys
