"""The store's kernels on row sets made by hand. The whole is held against twins in tests/service/tables/test_store_twin.py."""

import mmap

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.core.reserve import MEMORY
from structures.rows import key_table, reading, rows
from structures.rows.key_table import FLOAT, PLAIN, TEXT, RowSet
from structures.rows.rows import RowStore
from structures.rows.succession import Succession, SuccessionRows

NO_PINS = np.empty(0, np.int64)
ALL = 2**31  # slots
SEED = 20240611


def row_set(store: RowStore, values: list[list]) -> RowSet:
    """Rows of ints, floats and bytes as the store's layout."""
    cells = np.zeros((len(values), store.width), np.int64)
    positions, heap = np.zeros(max(1, len(values)), np.int64), b""
    for i, row in enumerate(values):
        positions[i] = len(heap)
        for j, value in enumerate(row):
            if isinstance(value, bytes):
                cells[i, j] = len(value)
                heap += value
            else:
                cells[i, j] = np.array([value]).view(np.int64)[0]
    return RowSet(store.kinds, store.key, cells, positions, np.frombuffer(heap + b"?", np.uint8))


def test_true_collisions_go_on_probing():
    store = RowStore([TEXT, PLAIN], [0, 1], False, hash_mask=0)
    values = [[b"k%d" % (i % 5), i] for i in range(200)]
    slots, stored = store.enter(1, row_set(store, values))
    assert stored == 200 and slots.tolist() == list(range(200))
    assert store.find(row_set(store, [*values, [b"k1", 0], [b"k", 1]])).tolist() == [*range(200), -1, -1]
    deleted = slots[::3].copy()
    store.unlink(deleted)
    store.retire(2, deleted)
    store.check()
    assert store.find(row_set(store, values)).tolist() == [-1 if i % 3 == 0 else i for i in range(200)]


def test_the_hash_tells_neighbours_apart():
    """31 bits for 50,000 keys: some collisions by chance (0.6 expected), not many."""
    n = 50_000 if JIT else 2_000
    for kinds, values in (
        ([PLAIN, PLAIN], [[i % 100, i // 100] for i in range(n)]),
        ([PLAIN, PLAIN], [[i << 32, 0] for i in range(n)]),
        ([TEXT, TEXT], [[b"%d" % (i % 100), b"%d" % (i // 100)] for i in range(n)]),
    ):
        store = RowStore(kinds, [0, 1], False)
        given = row_set(store, values[:2000]) if TEXT in kinds else row_set(store, values)
        store.enter(1, given)
        entries = store.table.entries[store.table.entries != 0]
        assert len(np.unique(entries >> 32)) >= len(entries) - 10
        positions = np.flatnonzero(store.table.entries)
        distance = (positions - (entries >> 32)) & (len(store.table.entries) - 1)
        assert distance.mean() < 4


def test_texts_of_one_key_do_not_run_into_each_other():
    store = RowStore([TEXT, TEXT], [0, 1], False)
    values = [[b"ab", b"c"], [b"a", b"bc"], [b"", b"abc"], [b"abc", b""]]
    assert store.enter(1, row_set(store, values))[1] == 4
    assert store.find(row_set(store, values)).tolist() == [0, 1, 2, 3]


def test_zeros_and_nans_are_one_key_each():
    store = RowStore([FLOAT], [0], False)
    other_nan = np.array([0x7FF0000000000001]).view(np.float64)[0]
    slots, stored = store.enter(1, row_set(store, [[0.0], [-0.0], [np.nan], [-np.nan], [other_nan], [np.inf], [-np.inf]]))
    assert stored == 4 and slots.tolist() == [0, 0, 1, 1, 1, 2, 3]


def test_a_removed_entry_leaves_its_followers_reachable():
    random = np.random.default_rng(SEED)
    store = RowStore([PLAIN], [0], False, hash_mask=63)
    living: dict[int, int] = {}
    for version in range(1, 60):
        fresh = [int(key) for key in np.unique(random.integers(0, 300, 20)) if int(key) not in living]
        slots, _ = store.enter(version, row_set(store, [[key] for key in fresh]))
        living |= dict(zip(fresh, slots.tolist(), strict=True))
        leaving = [int(key) for key in random.permutation(list(living))[:15]]
        deleted = np.array([living.pop(key) for key in leaving], np.int32)
        store.unlink(deleted)
        store.retire(version, deleted)
        store.free(store.reclaim(version, NO_PINS, ALL))
        store.check()
    assert len(living) == store.linked


def test_the_heap_is_rewritten_and_the_old_one_stays_whole(monkeypatch):
    monkeypatch.setattr(rows, "HEAP_WORTH_REWRITING", 100)
    store = RowStore([PLAIN, TEXT], [0], False)
    slots, _ = store.enter(1, row_set(store, [[i, b"text %03d" % i] for i in range(100)]))
    old = store._texts
    before = old.heap[:800].copy()
    deleted = slots[10:80].copy()
    store.unlink(deleted)
    store.retire(2, deleted)
    store.free(store.reclaim(2, np.array([1]), ALL))
    assert store._texts is old, "held by the pin"
    store.free(store.reclaim(2, NO_PINS, ALL))
    while store.tidy():
        assert store._texts is old
    assert store._texts is not old and store._heap_used == 240
    store.check()
    store.enter(3, row_set(store, [[i, b"other"] for i in range(200, 260)]))
    assert np.array_equal(old.heap[:800], before)
    kept = np.concatenate([slots[:10], slots[80:]])
    offsets, data = store.gather_text(1, kept, store.gather(np.array([1]), kept)[0])
    assert data.tobytes() == b"".join(b"text %03d" % i for i in kept) and offsets[-1] == 240


def test_memory_that_is_not_there_changes_nothing(monkeypatch):
    monkeypatch.setattr(rows, "HEAP_BYTES", 64)
    store = RowStore([PLAIN, TEXT], [0], False)
    store.enter(1, row_set(store, [[1, b"x" * 40]]))
    with pytest.raises(MemoryError):
        store.enter(2, row_set(store, [[2, b"x" * 40]]))
    monkeypatch.setattr(store, "most", 1)
    with pytest.raises(MemoryError):
        store.enter(2, row_set(store, [[2, b""]]))
    store.check()
    assert store.linked == 1


@pytest.mark.parametrize("columns", [1, 1000])
def test_no_more_address_space_than_the_memory_could_fill(columns):
    """So that as many relations as there may be find room, whatever they look like."""
    store = RowStore([PLAIN, *[TEXT] * (columns - 1)], [0], True)
    arrays = [store.cells, store.born, store.died, store._free]
    assert sum(one.nbytes for one in arrays) <= MEMORY and store._texts.heap.nbytes <= MEMORY


def test_rows_that_have_not_died_take_no_memory_for_it():
    """Pages of `died` are written when a row dies, and not before."""
    n = 1 << 16 if JIT else 1 << 12
    store = RowStore([PLAIN], [0], False)
    written = store.died
    written.base.obj.madvise(mmap.MADV_DONTDUMP)  # else the system puts its mapping and those beside it together
    store.enter(1, RowSet(store.kinds, store.key, np.arange(n).reshape(n, 1), np.zeros(1, np.int64), np.frombuffer(b"?", np.uint8)))
    assert pages(written) == 0 and store.sees(1, n - 1) and not store.sees(0, n - 1)
    assert len(store.scan(1, 0, n)[0]) == n and pages(written) == 0, "reading takes none either"
    deleted = np.array([5], np.int32)
    store.unlink(deleted)
    store.retire(2, deleted)
    assert pages(written) == 1 and not store.sees(2, 5) and store.sees(1, 5)
    assert len(store.scan(2, 0, n)[0]) == n - 1
    store.check()


def pages(array: np.ndarray) -> int:
    """Pages of memory that have been written."""
    first = array.ctypes.data
    for line in open("/proc/self/smaps"):
        head, _, rest = line.partition(" ")
        if "-" in head and not head.endswith(":"):
            low, high = (int(end, 16) for end in head.split("-"))
            inside = low <= first < high
        elif inside and head == "Anonymous:":
            return int(rest.split()[0]) // 4
    raise LookupError("no mapping has it")


def test_texts_are_rewritten_in_pieces_beside_changes(monkeypatch):
    monkeypatch.setattr(rows, "HEAP_WORTH_REWRITING", 100)
    monkeypatch.setattr(rows, "_REWRITTEN_AT_ONCE", 400)
    store = RowStore([PLAIN, TEXT], [0], False)
    slots, _ = store.enter(1, row_set(store, [[i, b"text %03d" % i] for i in range(200)]))
    drop(store, 2, slots[:150])
    texts, pieces, next_key = store._texts, 0, 200
    while store._rewrite is not None:
        before = store._rewrite.at
        if store.tidy():
            assert 0 < store._rewrite.at - before <= 400 // rows.SLOT_BYTES, "more than a piece"
        pieces += 1
        inserted, _ = store.enter(2 + pieces, row_set(store, [[next_key + i, b"come %03d" % i] for i in range(4)]))
        drop(store, 2 + pieces, inserted[:2])
        next_key += 4
        store.check()
    assert pieces >= 8 and store._texts is not texts
    kept = np.array([150, 199], np.int32)
    assert store.gather_text(1, kept, store.gather(np.array([1]), kept)[0])[1].tobytes() == b"text 150text 199"


def test_all_keys_are_removed_at_once(monkeypatch):
    store = RowStore([PLAIN], [0], False)
    slots, _ = store.enter(1, row_set(store, [[i] for i in range(500)]))
    monkeypatch.setattr(key_table, "remove_rows", None)
    store.unlink(slots)
    store.retire(2, slots)
    assert store.linked == 0 and (store.find(row_set(store, [[i] for i in range(500)])) == -1).all()
    store.enter(3, row_set(store, [[i] for i in range(400, 900)]))
    store.check()


def drop(store: RowStore, version: int, slots: np.ndarray) -> None:
    store.unlink(slots.copy())
    store.retire(version, slots.copy())
    store.free(store.reclaim(version, NO_PINS, ALL))


def test_a_scan_passes_over_stretches_of_free_slots():
    """Of 40,000 rows three are left, in the first stretch, at the end of one and at the end of all; what comes later takes free slots."""
    n, size = 40_000, 1 << reading.STRETCH_BITS
    store, positions = RowStore([PLAIN], [], False), np.zeros(n, np.int32)

    def inserted(version: int, count: int) -> np.ndarray:
        codes, rows = np.arange(count, dtype=np.int32), np.zeros((count, 1), np.int64)
        emitted = SuccessionRows(codes, np.zeros(count, np.int64), rows, np.ones(count, np.bool_))
        found, lost, new = store.succeed(version, emitted, Succession(positions, np.full(1, -1)))
        assert (lost, new, found.deletes.tolist()) == (0, count, [0])
        return found.slots

    slots = inserted(1, n)
    left = [7, 3 * size - 1, n - 1]
    store.retire(2, np.delete(slots, left))
    store.free(store.reclaim(2, np.array([1]), ALL))
    assert len(store.scan(1, 0, n)[0]) == n, "held by the pin"
    store.free(store.reclaim(2, NO_PINS, ALL))
    store.check()
    found, following = store.scan(2, 0, n)
    assert found.tolist() == left and following == -1
    assert store.passed(0, n) == 2 * size + n % size + n // size - 2, "two stretches, what the last one has of slots, one of each other"
    assert store.passed(0, 0) == 0 and store.passed(size + 5, size + 9) == 4
    assert [store.scan(2, 0, 1)[1], store.scan(2, 8, 1)[1]] == [8, 3 * size]
    for starts in ([], [0], [7, 8], [5, 6, 7, 8, 9, size, 3 * size], [0, n - 1], [3 * size, n - 2], range(0, n, size // 3)):
        first = sorted({slots[0] for start in starts if len(slots := store.scan(2, start, 1)[0])})
        assert store.scan_from(2, np.array(starts, np.int64)).tolist() == first
    assert store.scan_from(2, np.array([8, 3 * size])).tolist() == left[1:] and store.scan_from(0, np.arange(n)).tolist() == []
    positions[:] = 0
    again = inserted(3, 9)
    store.check()
    assert store.scan(2, 0, n)[0].tolist() == left and store.scan(3, 0, n)[0].tolist() == sorted([*left, *again.tolist()])
