"""Rows by slot: columns, texts, life and key of each, readable by many while one writes.

    cells   [slot, w]   one int64 a column, side by side, then null bits: a row is found with one cache miss,
                        and one set of kernels serves every schema (`key_table.py` describes the layout)
    texts   (places, heap)   each row's texts, back to back; replaced as a pair when half of it is garbage
    life    born, died  visible at version v iff born <= v < died, or died = LIVING; free: born = NEVER. Where nothing has
                        died, `died` is never written, and takes no memory
            kept        for each stretch of slots, the number not free: a scan skips stretches of free ones

Arrays are reserved (`core/reserve.py`) and never move. A reader takes the pair `texts` once and uses only slots that its pinned version
sees; those are in the pair that it holds, old or new, because a rewrite copies all texts that any reader can see and never changes the
old pair. So nobody waits, and the old pair is freed when its last reader releases it. A rewrite proceeds by slots, some bytes at a time
(`tidy`); texts entered meanwhile at a slot that it has passed go into both heaps.

Invariants
    I1  every slot below `used` is living, or retired, or free: exactly one of them
    I2  the texts of the slots that are not free lie in the heap below `heap_used`, apart from each other;
        `heap_used` less their lengths is `garbage`
    I3  `kept` counts the slots of each stretch that are living or retired
    I4  the key table holds exactly the linked slots (the owner says which: the living, or all that are not free)

Costs: find, enter, unlink, retire, free, gather O(1) a row, plus the bytes of its texts; scan O(slots of the stretches
that are not free, and stretches passed).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from structures.core.kernel import arrays, compiled, kernel, prefetch, wide
from structures.core.reserve import MEMORY, SLOTS, reserve
from structures.rows.key_counts import KeyUses, count_both
from structures.rows.key_table import AHEAD, ALL_BITS, NULLS_A_CELL, TEXT, KeyTable, RowSet, SlotRows, entry_of, find_rows, probe, tag_of
from structures.rows.reading import STRETCH_BITS, RowMoves, Run, differing, gather, gather_text, gather_valid, same, scan, scan_from
from structures.rows.retired import LIVING, NEVER, RetiredSlots
from structures.rows.succession import (
    NewestRows,
    Slots,
    Succession,
    SuccessionRows,
    VersionSlots,
    begin_life,
    prefetch_slot,
    slot_of,
    succeed,
)

HEAP_BYTES = min(1 << 37, max(1 << 30, MEMORY))  # more could not be used, and other relations need address space, too
LIFE_BYTES = 8 + 8 + 4  # of a slot: when it was born and died, and its place among the free ones
HEAP_WORTH_REWRITING = 1 << 20  # bytes
SLOT_BYTES = 16  # the cost of visiting a slot, in bytes copied
_REWRITTEN_AT_ONCE = 64 << 10  # bytes: half a millisecond; two where they wait for memory


@arrays("int64[::1]", "uint8[::1]")
class Texts(NamedTuple):
    positions: np.ndarray
    heap: np.ndarray


class _Rewrite:
    """A rewrite in progress: `texts` has the texts of the slots below `at` that are not free, in `used` bytes; `garbage` of them belong to
    slots freed since."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.at = self.used = self.garbage = 0


@kernel(inline="always")
def _text_bytes(kinds: Any, cells: Any, row: int) -> int:
    length = wide(0)
    for column in range(len(kinds)):
        if kinds[column] == TEXT:
            length += cells[row, column]
    return length


@kernel("UniTuple(int64, 2)(int64[::1], int64[::1], SlotRows, RowSet, Slots, int64, int64, int32[::1])")
def _enter(
    entries: Any, hashing: Any, stored_rows: SlotRows, given: RowSet, slots: Slots, version: int, heap_used: int, out: Any
) -> tuple[int, int]:  # fmt: skip
    """`store_rows` as an entry point. O(1) a row, expected, and a byte of text."""
    return store_rows(entries, hashing, stored_rows, given, slots, version, heap_used, out)


@kernel("UniTuple(int64, 2)(int64[::1], int64[::1], SlotRows, RowSet, Slots, int64, int32[::1], KeyUses)")
def _enter_used(
    entries: Any, hashing: Any, stored_rows: SlotRows, given: RowSet, slots: Slots, version: int, out: Any, uses: KeyUses
) -> tuple[int, int]:  # fmt: skip
    """Do the same as `_enter` for keys without texts, then count them as `count_both` does. Returns the number of rows stored, and the
    result of `count_both`. O(1) a row, expected."""
    stored, _ = store_rows(entries, hashing, stored_rows, given, slots, version, 0, out)
    return stored, count_both(slots.died, out, uses)


@kernel
def store_rows(
    entries: Any, hashing: Any, stored_rows: SlotRows, given: RowSet, slots: Slots, version: int, heap_used: int, out: Any
) -> tuple[int, int]:  # fmt: skip
    """Store every given row whose key is not there; out[i] is the slot that has the key of row i. Returns the number of rows stored, and
    the new heap_used. New slots come from the top of `free`, then from `used` on."""
    cells, positions, heap = stored_rows.cells, stored_rows.positions, stored_rows.heap
    kinds2, cells2, places2, heap2 = given.kinds, given.cells, given.positions, given.heap
    stored, last, end, words = 0, len(entries) - 1, len(out) - 1, cells.reshape(cells.size)
    for row in range(len(out)):
        out[row] = tag_of(given, row, hashing)
    for row in range(len(out)):
        prefetch(entries, wide(out[min(row + 2 * AHEAD, end)]) & last)
        prefetch_slot(words, cells.shape[1], slots, slot_of(slots, stored + AHEAD))  # if all rows until then are new
        tag = wide(out[row])
        slot, at = probe(entries, stored_rows, tag, given, row)
        if slot < 0:
            slot = slot_of(slots, stored)
            for i in range(cells2.shape[1]):
                cells[slot, i] = cells2[row, i]
            length = _text_bytes(kinds2, cells2, row)
            if length:
                positions[slot] = heap_used
                start = places2[row]
                for i in range(length):
                    heap[heap_used + i] = heap2[start + i]
                heap_used += length
            begin_life(slots, slot, version)
            entries[at] = entry_of(tag, slot)
            stored += 1
        out[row] = slot
    return stored, heap_used


@kernel("void(Slots, int32[::1])")
def _free(slots: Slots, freed: Any) -> None:
    """Push slots onto the stack of free ones, whose count the caller raises. O(1) a slot."""
    for i in range(len(freed)):
        slots.free[slots.free_count + i] = freed[i]
        slots.kept[freed[i] >> STRETCH_BITS] -= 1


@kernel("int64(int64[::1], int64[::1], int32[::1], int64)")
def _end(born: Any, died: Any, slots: Any, version: int) -> int:
    """End the lives of these slots at `version`. Returns how many were not living. O(1) a slot."""
    wrong = 0
    for slot in slots:
        if died[slot] != LIVING or born[slot] == NEVER:
            wrong += 1
        died[slot] = version
    return wrong


@kernel("int64(int8[::1], int64[:,::1], int32[::1])")
def _count_text(kinds: Any, cells: Any, slots: Any) -> int:
    """Return the bytes of text of these rows in all. O(1) a text column of a row."""
    total = wide(0)
    for slot in slots:
        total += _text_bytes(kinds, cells, slot)
    return total


@kernel
def _copy_text(stored: SlotRows, slot: int, texts: Texts, end: int) -> int:
    """Append the texts of a stored row to `texts`. Returns the end of the texts then."""
    texts.positions[slot] = end
    start = stored.positions[slot]
    length = _text_bytes(stored.kinds, stored.cells, slot)
    for i in range(length):
        texts.heap[end + i] = stored.heap[start + i]
    return end + length


@kernel("UniTuple(int64, 2)(SlotRows, int64[::1], int64, int64, Texts, int64, int64)")
def _rewrite(stored: SlotRows, born: Any, at: int, used: int, texts: Texts, end: int, most: int) -> tuple[int, int]:
    """Copy the texts of the slots [at, used) that are not free, about `most` bytes. Returns the slot from which to continue, and the end of
    the new texts. O(most + slots passed)."""
    slot, stop = wide(at), end + most
    while slot < used and end + (slot - at) * SLOT_BYTES < stop:
        if born[slot] != NEVER:
            end = _copy_text(stored, slot, texts, end)
        slot += 1
    return slot, end


@kernel("int64(SlotRows, int32[::1], int64, int64, Texts, int64)")
def _rewrite_new(stored: SlotRows, slots: Any, at: int, since: int, texts: Texts, end: int) -> int:
    """Copy the texts of those slots (each once) below `at` whose texts lie from `since` on. Returns the end of the new texts. O(bytes)."""
    for slot in slots:
        if slot < at and stored.positions[slot] >= since and _text_bytes(stored.kinds, stored.cells, slot) > 0:
            end = _copy_text(stored, slot, texts, end)
    return end


@kernel("void(int64[::1], Array(uint8, 1, 'C', True), int64[::1], int64[::1], uint8[::1])")
def join_texts(starts: Any, data: Any, lengths: Any, ends: Any, heap: Any) -> None:
    """Append text i of one column, data[starts[i]:][:lengths[i]], at ends[i] of `heap`, and advance ends[i]. O(bytes)."""
    for i in range(len(starts)):
        for at in range(lengths[i]):
            heap[ends[i] + at] = data[starts[i] + at]
        ends[i] += lengths[i]


class RowStore:
    """All rows of one schema. Methods from `find` to `free` are for the one writer, the others may be called in any thread."""

    def __init__(self, kinds: Sequence[int], key: Sequence[int], nullable: bool, hash_mask: int = ALL_BITS) -> None:
        columns = len(kinds)
        self.kinds = np.array(kinds, np.int8)
        self.key = np.array(key, np.int64)
        self.width = columns + (-(-columns // NULLS_A_CELL) if nullable else 0)
        self.most = min(SLOTS, MEMORY // (8 * self.width + LIFE_BYTES))  # slots
        self.cells = reserve(self.most * self.width * 8, np.int64).reshape(self.most, self.width)
        self.born = reserve(self.most * 8, np.int64)
        self.died = reserve(self.most * 8, np.int64)
        self._kept = reserve(((self.most >> STRETCH_BITS) + 1) * 4, np.int32)
        self._free = reserve(self.most * 4, np.int32)
        self._free_count = 0
        self._text_columns = np.flatnonzero(self.kinds == TEXT)
        self._use(self._new_texts())
        self._heap_used, self._garbage = 0, 0
        self._rewrite: _Rewrite | None = None  # under way
        self.used = 0
        self.table = KeyTable(hash_mask)
        self.retired = RetiredSlots(self.born, self.died)

    def _new_texts(self) -> Texts:
        if len(self._text_columns):
            return Texts(reserve(self.most * 8, np.int64), reserve(HEAP_BYTES, np.uint8))
        return Texts(np.zeros(1, np.int64), np.zeros(1, np.uint8))

    def _use(self, texts: Texts) -> None:
        self._texts = texts
        self.stored = SlotRows(self.kinds, self.key, self.cells, *texts)

    def find(self, given: RowSet) -> np.ndarray:
        """int32[n]: the linked slot with each row's key, or -1."""
        out = np.empty(len(given.cells), np.int32)
        compiled(find_rows)(self.table.entries, self.table.hashing, self.stored, given, out)
        return out

    def require(self, more: int, text_bytes: int) -> None:
        """Make room for `more` keys in the key table. Raises MemoryError, with nothing changed, unless `more` rows with `text_bytes` bytes
        of text surely fit."""
        self.require_slots(more)
        if self._heap_used + text_bytes > len(self._texts.heap) and len(self._text_columns):
            raise MemoryError(f"the texts of a relation hold at most {HEAP_BYTES} bytes, by the memory of this machine")
        self.table.make_room(more)

    def require_slots(self, more: int) -> None:
        if self.used + more - self._free_count > self.most:
            raise MemoryError(f"this relation holds at most {self.most} rows, retired ones included, by the memory of this machine")

    def slots(self) -> Slots:
        return Slots(self.born, self.died, self._kept, self._free, self._free_count, self.used)

    def succeed(self, version: int, emitted: SuccessionRows, succession: Succession) -> tuple[VersionSlots, int, int]:
        """Let the rows in `emitted` replace the previous ones (`succession.py`); they have neither texts nor keys. Returns what the
        versions change, the number of rows removed, and the number of rows added. MemoryError, with nothing changed, if there may be
        too few slots."""
        n = len(emitted.codes)
        self.require_slots(n)
        found = VersionSlots(np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty(n, np.int64), np.empty(2 * n, np.int32))
        deleted = np.empty(n, np.int32)
        changed, lost, new = compiled(succeed)(NewestRows(self.cells, self.slots(), succession), emitted, version, found, deleted)
        self.took(new)
        if lost:
            self.retired.add(version, deleted[:lost].copy())
        slots = found.slots[: lost + new].copy()
        return VersionSlots(found.versions[:changed], found.starts[: changed + 1], found.deletes[:changed], slots), lost, new

    def took(self, count: int) -> None:
        """Note that the next `count` slots are in use."""
        reused = min(count, self._free_count)
        self._free_count -= reused
        self.used += count - reused

    def enter(self, version: int, given: RowSet) -> tuple[np.ndarray, int]:
        """Store the rows whose keys are not linked. Returns int32[n], the slots of stored or existing rows, and the number stored.

        Raises MemoryError, with nothing changed, when the slots or the heap are full.
        """
        self.require(len(given.cells), len(given.heap))
        out = np.empty(len(given.cells), np.int32)
        table = self.table
        enter, before = compiled(_enter), self._heap_used
        stored, self._heap_used = enter(table.entries, table.hashing, self.stored, given, self.slots(), version, before, out)
        self.took(stored)
        table.count += stored
        new = self._rewrite
        if new is not None and self._heap_used > before:
            new.used = compiled(_rewrite_new)(self.stored, np.unique(out), new.at, before, new.texts, new.used)
        return out, stored

    def enter_used(self, version: int, given: RowSet, counts: np.ndarray, inserted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Enter keys without texts. Then count one more use (`counts`, by slot) of each key that comes (bool[n]), which is then living, and
        after that one use less of each of the others, which have come before. Returns int32[n] slots, and the slots that are no longer in
        use. Raises MemoryError as `enter` does."""
        n, table = len(given.cells), self.table
        self.require(n, 0)
        out, uses = np.empty(n, np.int32), KeyUses(counts, inserted, np.empty(n, np.int32))
        stored, dropped = compiled(_enter_used)(table.entries, table.hashing, self.stored, given, self.slots(), version, out, uses)
        self.took(stored)
        table.count += stored
        assert dropped >= 0, "a key was given up more often than it was taken"
        return out, uses.dropped[:dropped]

    def unlink(self, slots: np.ndarray) -> None:
        """Remove the keys of these linked slots from the key table."""
        self.table.remove(self.stored, slots)

    def retire(self, version: int, slots: np.ndarray) -> None:
        """End the lives of these living slots at `version`."""
        wrong = _end(self.born, self.died, slots, version)
        assert not wrong, f"{wrong} slots are not living"
        self.retired.add(version, slots)

    def reclaim(self, oldest_needed: int, pins: np.ndarray, most: int) -> np.ndarray:
        """Return int32[n], retired slots that are no longer visible to any reader, found among at most `most` that are visited; the caller
        must `free` them."""
        return self.retired.reclaim(oldest_needed, pins, most)

    def is_due(self, oldest_needed: int) -> bool:
        """Return whether another `reclaim` would have slots to visit."""
        return self.retired.is_due(oldest_needed)

    def free(self, slots: np.ndarray) -> None:
        """Make slots from `reclaim`, which are unlinked, available for reuse."""
        compiled(_free)(self.slots(), slots)
        self._free_count += len(slots)
        if len(self._text_columns):
            self._garbage += self.all_text(slots)
            if self._rewrite is not None:
                self._rewrite.garbage += self.all_text(slots[slots < self._rewrite.at])
            elif self._garbage * 2 > self._heap_used > HEAP_WORTH_REWRITING:
                self._rewrite = _Rewrite(self._new_texts())

    def tidy(self) -> bool:
        """Continue a rewrite of the texts by a part of a megabyte. Returns whether there is more of it."""
        new = self._rewrite
        if new is None:
            return False
        new.at, new.used = compiled(_rewrite)(self.stored, self.born, new.at, self.used, new.texts, new.used, _REWRITTEN_AT_ONCE)
        if new.at < self.used:
            return True
        self._heap_used, self._garbage, self._rewrite = new.used, new.garbage, None
        self._use(new.texts)
        return False

    def scan(self, version: int, start: int, limit: int) -> tuple[np.ndarray, int]:
        """Return up to `limit` slots visible at `version` from slot `start` on, and the slot from which to continue, or -1."""
        used = self.used
        out = np.empty(max(0, min(limit, used - start)), np.int32)
        count, following = scan(self.born, self.died, self._kept, version, start, used, out)
        return out[:count], int(following) if following < used else -1

    def scan_from(self, version: int, starts: np.ndarray) -> np.ndarray:
        """Return the first slot visible at `version` from each of these ascending slots on, each slot once: int32[n], ascending."""
        out = np.empty(len(starts), np.int32)
        return out[: compiled(scan_from)(self.born, self.died, self._kept, version, self.used, starts, out)]

    def passed(self, start: int, end: int) -> int:
        """Return how many slots a scan from `start` to `end` visits: a stretch of free slots counts as one, any other stretch in full."""
        if end - start <= 1 << STRETCH_BITS:
            return end - start
        edges = np.arange(start >> STRETCH_BITS, -(-end >> STRETCH_BITS) + 1) << STRETCH_BITS
        slots = np.diff(np.clip(edges, start, end))
        return int(np.where(self._kept[edges[:-1] >> STRETCH_BITS] == 0, 1, slots).sum())

    def sees(self, version: int, slot: int) -> bool:
        """Return whether `version` sees the row at this slot."""
        died = self.died[slot]
        return bool(self.born[slot] <= version and (died == LIVING or version < died))

    def same(self, columns: np.ndarray, slots: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return bool[n], whether the rows at both slots are identical in these columns: bit by bit, null equal to null."""
        out = np.empty(len(slots), np.bool_)
        compiled(same)(self.stored, columns, slots, others, out)
        return out

    def differing(self, columns: np.ndarray, run: Run) -> RowMoves:
        """Return the rows that changes to one of these columns remove and add; of each change, the removed row comes first."""
        n = 2 * len(run.old)
        moved = RowMoves(np.empty(n, np.int64), np.empty(n, np.bool_), np.empty(n, np.int32))
        n = compiled(differing)(self.stored, columns, run, moved)
        return RowMoves(moved.offsets[:n], moved.is_inserted[:n], moved.slots[:n])

    def gather(self, columns: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return int64[k, n], the cells of these columns."""
        out = np.empty((len(columns), len(slots)), np.int64)
        gather(self.cells, columns, slots, out)
        return out

    def gather_valid(self, column: int, slots: np.ndarray) -> tuple[np.ndarray, int]:
        """Return Arrow's validity bitmap of a column of a row set with null bits, and the number of nulls."""
        bitmap = np.zeros((len(slots) + 7) >> 3, np.uint8)
        cell = len(self.kinds) + column // NULLS_A_CELL
        return bitmap, gather_valid(self.cells, cell, column % NULLS_A_CELL, slots, bitmap)

    def all_text(self, slots: np.ndarray) -> int:
        """Return the bytes of text of these rows."""
        return _count_text(self.kinds, self.cells, slots) if len(self._text_columns) else 0

    def text_bytes(self, columns: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return int64[n], the bytes of text in these columns."""
        texts = columns[self.kinds[columns] == TEXT]
        return self.gather(texts, slots).sum(axis=0) if len(texts) else np.zeros(len(slots), np.int64)

    def gather_text(self, column: int, slots: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Arrow's int32[n + 1] offsets and the bytes of a text column, whose `lengths` are its gathered cells.

        Raises OverflowError above 2**31 - 1 bytes.
        """
        ends = np.cumsum(lengths)
        if len(slots) and ends[-1] >= 1 << 31:
            raise OverflowError("more than 2 GiB of text in one column: take fewer rows")
        offsets = np.zeros(len(slots) + 1, np.int32)
        offsets[1:] = ends
        data = np.empty(max(1, offsets[-1]), np.uint8)
        gather_text(self.kinds, self.cells, *self._texts, column, slots, offsets, data)
        return offsets, data[: offsets[-1]]

    @property
    def linked(self) -> int:
        """The number of keys in the key table."""
        return self.table.count

    @property
    def bytes(self) -> int:
        """The bytes of the slots that are not free, and of the key table."""
        return self.kept * self.row_bytes + self._heap_used - self._garbage + self.table.bytes

    @property
    def held(self) -> dict[str, int]:
        """The bytes of memory by use: slots that are not free, the key table, and memory kept for reuse."""
        nulls = self.width - len(self.kinds)
        texts = len(self._text_columns) > 0
        free = self.used - self.kept
        return {
            "columns": self.kept * len(self.kinds) * 8,
            "null bits": self.kept * nulls * 8,
            "texts": self._heap_used - self._garbage + (self.kept * 8 if texts else 0),
            "life": self.kept * 16,
            "key table": self.table.bytes,
            "free slots": free * (self.row_bytes + 4),
            "garbage of texts": self._garbage,
        }

    @property
    def kept(self) -> int:
        """The number of slots that are not free."""
        return self.used - self._free_count

    @property
    def row_bytes(self) -> int:
        """The bytes of a slot without its texts."""
        return self.width * 8 + 16 + (8 if len(self._text_columns) else 0)

    def check(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Prove the invariants. Returns the slots that are living, retired, and linked (int32, sorted). O(n log n)."""
        born, died = self.born[: self.used], self.died[: self.used]
        free = self._free[: self._free_count]
        living = np.flatnonzero((died == LIVING) & (born != NEVER)).astype(np.int32)
        retired = self.retired.slots()
        kept = np.union1d(living, retired)
        assert (born[free] == NEVER).all(), "I1: a free slot that can be seen"
        assert (born[retired] <= died[retired]).all() and (died[retired] != LIVING).all(), "I1: the life of a retired slot"
        assert np.array_equal(np.sort(np.concatenate([living, retired, free])), np.arange(self.used)), "I1: partition"
        stretches = np.bincount(kept >> STRETCH_BITS, minlength=(self.used >> STRETCH_BITS) + 1)
        assert np.array_equal(self._kept[: len(stretches)], stretches), "I3: slots of a stretch that are not free"
        if len(self._text_columns):
            lengths = self.cells[kept][:, self._text_columns].sum(axis=1)
            positions = self._texts.positions[kept]
            order = np.lexsort((lengths, positions))
            ends = (positions + lengths)[order]
            assert (ends[:-1] <= positions[order][1:]).all() and (ends <= self._heap_used).all(), "I2: texts overlap"
            assert self._heap_used - lengths.sum() == self._garbage, "I2: garbage"
            self._check_rewrite(kept)
        entries = self.table.entries[self.table.entries != 0]
        linked = ((entries & 0xFFFFFFFF) - 1).astype(np.int32)
        self.table.check()
        texts = [array.view() for array in self._texts]
        texts[1].flags.writeable = False
        positions = texts[0][linked] if len(self._text_columns) else texts[0]
        own = RowSet(self.kinds, self.key, np.ascontiguousarray(self.cells[linked]), positions, texts[1])
        assert np.array_equal(self.find(own), linked), "I4: a key is not found at its slot"
        return living, retired, np.sort(linked)

    def _check_rewrite(self, kept: np.ndarray) -> None:
        """Prove that a rewrite in progress has the texts of the slots that it has passed. `kept`: the slots that are not free."""
        new = self._rewrite
        if new is None:
            return
        done = kept[kept < new.at]
        lengths = self.cells[done][:, self._text_columns].sum(axis=1)
        assert new.used - lengths.sum() == new.garbage, "I2: garbage of the new texts"
        for slot, length in zip(done.tolist(), lengths.tolist(), strict=True):
            old, there = self._texts.positions[slot], new.texts.positions[slot]
            assert not length or there + length <= new.used, "I2: a text behind the new heap's end"
            assert (self._texts.heap[old : old + length] == new.texts.heap[there : there + length]).all(), "I2: a rewritten text differs"
