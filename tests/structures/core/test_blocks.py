"""The store of blocks: what is freed is used again, and memory goes back."""

from __future__ import annotations

import json
import mmap
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from structures.core.blocks import Blocks
from structures.core.check import check_blocks
from structures.core.control import DELETED, HELD, SHIFT, STASHED, UNDER_WAY, UNUSED, VERSION
from structures.core.kernel import JIT
from tests.forked import finished
from tests.structures.core.churn import NO_PINS, Held, churn, emit
from tests.structures.core.churned import IN_PLACE, SUBJECTS
from tests.structures.core.machine import SIZES, BlocksMachine, lose, make


def test_against_the_twin() -> None:
    run_state_machine_as_test(BlocksMachine, settings=settings(max_examples=60, stateful_step_count=30))


def test_the_front_is_filled_first_and_the_rest_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many blocks were retired under a pin, and written anew, the store is as large as what is in use."""
    given: list[int] = []
    monkeypatch.setattr("structures.core.blocks.give_back", lambda array, first, end: given.append(8 * (end - first)))
    store = Blocks((200,), 0, 1 << 22)
    blocks = []
    for _ in range(4_000):
        blocks.append(int(make(store.M, store.C, 0)))
    fresh = store.held_bytes
    pin = np.array([0], np.int64)
    for version in range(1, 3):  # every other block is held
        store.C[VERSION] = version
        for i in range(version % 2, len(blocks), 2):
            lose(store.M, store.writing, blocks[i], 0)
            blocks[i] = int(make(store.M, store.C, 0))
        store.reclaim(version, pin)
    assert store.held_bytes > 1.9 * fresh and store.retired_bytes == 1600 * len(blocks) and store.C[HELD] == 1
    for version in range(3, 7):
        store.C[VERSION] = version
        for i in range(version % 3, len(blocks), 3):
            lose(store.M, store.writing, blocks[i], 0)
            blocks[i] = int(make(store.M, store.C, 0))
            if i % 100 == 0:
                store.reclaim(version, pin[:0])
        store.reclaim(version, pin[:0])
    check_blocks(store, dict.fromkeys(blocks, 0))
    assert store.held_bytes < 1.3 * fresh and store.retired_bytes == 0
    for _ in range(100):  # nothing is needed any more
        store.reclaim(version, pin[:0])
    shift = int(store.C[SHIFT]) + 3
    assert sum(given) >= (int(store.C[UNUSED]) - 16) << shift > 0 == sum(given) % mmap.PAGESIZE


def test_a_reclaim_in_pieces() -> None:
    """What two pins held that have gone, and what waits in the queue, while another pin comes; as much of it as is asked for at a time."""
    store = Blocks((200,), 0, 1 << 22)
    blocks = [int(make(store.M, store.C, 0)) for _ in range(3_000)]
    pins = np.array([0, 1], np.int64)
    for version in range(1, 4):
        store.C[VERSION] = version
        for i in range(version % 3, len(blocks), 3):
            lose(store.M, store.writing, blocks[i], 0)
            blocks[i] = int(make(store.M, store.C, 0))
        if version < 3:
            store.reclaim(version, pins[:version])
    freed, more = [], True
    while more:
        before = store.retired_bytes
        more = store.reclaim(3, np.array([2] if len(freed) > 4 else [], np.int64), 128)
        freed.append((before - store.retired_bytes) // 1600)
        check_blocks(store, dict.fromkeys(blocks, 0))
    assert max(freed) == 128 and sum(freed) + store.retired_bytes // 1600 == 3_000
    assert not store.reclaim(3, NO_PINS) and store.retired_bytes == 0
    assert store.C[DELETED] == store.C[UNDER_WAY] == 0


def test_free_blocks_are_put_back_in_pieces() -> None:
    """A reclaim that finds more free blocks than anybody needed puts them on their chunks' lists, as many at a time as asked for."""
    store = Blocks((200,), 0, 1 << 22)
    blocks = [int(make(store.M, store.C, 0)) for _ in range(3_000)]
    store.C[VERSION] = 1
    for o in blocks[1_000:]:
        lose(store.M, store.writing, o, 0)
    assert not store.reclaim(1, NO_PINS) and store.classes[0, STASHED] == 2_000
    stashed, more = [2_000], True
    while more:
        more = store.reclaim(1, NO_PINS, 128)
        stashed.append(store.classes[0, STASHED].item())
        check_blocks(store, dict.fromkeys(blocks[:1_000], 0))
    assert stashed == [*range(2_000, 0, -128), 0] and store.C[UNDER_WAY] == 0


def test_a_store_that_is_full_says_so_first() -> None:
    store = Blocks(SIZES, 0, 1 << 12)
    made = 0
    while True:
        try:
            store.require_words(40)
        except MemoryError as error:
            assert "the size of its arena" in str(error)
            break
        make(store.M, store.C, 2)
        made += 1
    assert made > 20


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_a_store_takes_again_what_was_freed_of_it() -> None:
    """When its chunks were all in use in part, it refused even what would have freed the rest."""
    store = Blocks((194,), 0, 1 << 16)
    blocks = []
    while store.has_room(194):
        blocks.append(int(make(store.M, store.C, 0)))
    assert 194 * len(blocks) > 0.9 * store.M.size - (2 << store.C.item(SHIFT)) and store.has_room(0)
    store.C[VERSION] = 1
    for o in blocks[::3]:
        lose(store.M, store.writing, o, 0)
    for _ in range(3):
        assert not store.has_room(194 * (len(blocks[::3]) + 1))
        store.reclaim(1, NO_PINS)
        assert store.has_room(194 * len(blocks[::3]))
    check_blocks(store, dict.fromkeys([o for i, o in enumerate(blocks) if i % 3], 0))


def test_a_small_store_takes_little_memory() -> None:
    """A view of a few rows does. Its pins' tables once took two large pages, four megabytes, and twelve milliseconds."""
    pages = Path("/proc/self/statm")
    stores = []
    before = int(pages.read_text().split()[1])
    for _ in range(50):
        store = Blocks((194, 58), 0)
        for cls in range(2):
            lose(store.M, store.writing, int(make(store.M, store.C, cls)), cls)
        store.C[VERSION] = 1
        store.reclaim(1, np.array([0, 1], np.int64))
        store.reclaim(1, np.array([1], np.int64))
        stores.append(store)
    assert (int(pages.read_text().split()[1]) - before) * mmap.PAGESIZE < 50 * 200_000


_SIZE = 200_000
_MOST = {"join_tree": 2.5, "quadtree": 2.5, "index": 4.5, "view_tree": 4.5}  # where it is not 1.5: the views that use these are rebuilt


@pytest.mark.skipif(not JIT, reason="so many entries need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("structure", SUBJECTS)
def test_as_many_changes_as_entries_under_pins(structure: str) -> None:
    """What was held for the pins goes back to the system, as far as chunks are empty. In a process of its own, as resident memory is looked
    at."""
    status, emitted = finished(partial(emit, structure, _SIZE))
    assert status == 0, emitted
    fresh, most, last = (Held(*held) for held in json.loads(emitted))
    print(fresh, most, last)
    assert last.store < _MOST.get(structure, 1.5) * fresh.store
    if structure not in IN_PLACE:
        assert most.store > 2 * fresh.store, "the pins held nothing"
        assert most.resident - last.resident > (most.store - last.store) // 2


@pytest.mark.skipif(not JIT, reason="the run with the JIT on has it")
@pytest.mark.parametrize("structure", SUBJECTS)
def test_a_structure_is_sound_after_churn(structure: str) -> None:
    churn(structure, 10_000, True)
