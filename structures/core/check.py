"""Checks that a store loses no block, for tests: slow, plain Python."""

from __future__ import annotations

from structures.core import control
from structures.core.blocks import Blocks, pin_table
from structures.core.control import chunk_at, chunks_in, pin_at, record_at


def _list(store: Blocks, o: int) -> list[int]:
    """Return the free blocks from o on."""
    found: list[int] = []
    while o:
        assert len(found) < store.M.size, "a list of free blocks has no end"
        found.append(o)
        o = store.M.item(o)
    return found


def retired_blocks(store: Blocks) -> list[tuple[int, int]]:
    """Return the blocks that wait in the queue, or with a pin, and their classes, after checking that every record is in exactly one
    list."""
    C, Q = store.C, store.Q
    table = pin_table(C, C.item(control.INPUT))
    pins = C.item(control.HELD) + C.item(control.DELETED)
    heads = [C.item(control.QUEUE), *(C.item(pin_at(table, i) + control.WAITS) for i in range(pins))]
    lists: list[list[int]] = []
    for head in (C.item(control.SPARE), *heads):
        records, r = [], head
        while r:
            records.append(r)
            r = Q.item(record_at(r) + control.NEXT)
        lists.append(records)
    together = [r for records in lists for r in records]
    assert sorted(together) == list(range(1, C.item(control.RECORDS))), "a record is in no list, or in two"
    assert not lists[1] or lists[1][-1] == C.item(control.LAST), "the last record of the queue is another one"
    return [divmod(Q.item(record_at(r) + control.BLOCK), control.CLASSES) for records in lists[1:] for r in records]


def check_blocks(store: Blocks, seen: dict[int, int]) -> None:
    """Prove I3 and I4; `seen`: the class of every block that a root in use reaches."""
    C, shift, kinds = store.C, store.C.item(control.SHIFT), store.C.item(control.KINDS)
    records = retired_blocks(store)
    retired = dict(records)
    assert len(retired) == len(records), "a block is retired twice"
    used, maps = set(seen) | set(retired), {cls: set(chunks_in(store.map_of(cls))) for cls in range(control.EMPTY + 1)}
    free: list[int] = []
    stashed: dict[int, int] = {}
    fresh: dict[int, int] = {}
    for cls, words in enumerate(store.classes[:kinds].tolist()):
        stash = _list(store, words[control.STASH])
        stashed_here = words[control.STASHED]
        assert len(stash) == stashed_here, f"I3: the stash of class {cls} has {len(stash)} blocks, {stashed_here} are said to be in it"
        free += stash
        stashed |= dict.fromkeys(stash, cls)
        fresh |= dict.fromkeys(range(words[control.FRESH], words[control.END], words[control.SIZE]), cls)
    inside: dict[int, int] = {}
    out, waiting, listed, empty = [0] * kinds, [0] * kinds, [0] * kinds, 0
    for chunk in range(1, C.item(control.NEXT_CHUNK)):
        c = chunk_at(C, chunk)
        cls, count, first = C.item(c + control.CLASS) - 1, C.item(c + control.USED), chunk << shift
        in_maps = {other for other in maps if chunk in maps[other]}
        if cls < 0:
            empty += 1
            assert in_maps == {control.EMPTY}, f"I4: the empty chunk {chunk} is in the maps {in_maps}"
            continue
        size, capacity = store.classes[cls, [control.SIZE, control.CAPACITY]].tolist()
        positions = _list(store, C.item(c + control.FREE))
        assert count + len(positions) == capacity, f"I3: {count} of {capacity} blocks of chunk {chunk} are not free, {len(positions)} are"
        assert in_maps == ({cls} if positions else set()), f"I4: chunk {chunk} is in the maps {in_maps}"
        listed[cls] += len(positions)
        assert all(o >> shift == chunk for o in positions), f"I3: chunk {chunk} has a block of another on its list"
        free += positions
        inside |= dict.fromkeys(range(first, first + capacity * size, size), cls)
    assert len(set(free)) == len(free), "a block is free twice"
    assert not used & set(free), "a block in use or retired is free"
    assert not used & set(fresh), "a block in use was never allocated"
    everywhere = [*used, *free, *fresh]
    assert len(everywhere) == len(inside) and set(everywhere) == set(inside), "I3: a block is neither in use nor free"
    for part in (seen, retired, stashed):
        assert all(inside[o] == cls for o, cls in part.items()), "I3: a block lies in a chunk of another class"
    idle = set(chunks_in(store.map_of(control.IDLE_MAP)))
    assert idle <= maps[control.EMPTY] and len(idle) == C.item(control.IDLE), "I4: a chunk with blocks is said to be idle"
    for o in used:
        out[inside[o]] += 1
    for o in retired:
        waiting[inside[o]] += 1
    assert empty == C.item(control.UNUSED), f"{C.item(control.UNUSED)} chunks are said to be empty, {empty} are"
    assert store.classes[:kinds, control.OUT].tolist() == out, "I3: blocks out by class"
    assert store.classes[:kinds, control.LISTED].tolist() == listed, "I3: blocks on lists by class"
    assert store.classes[:kinds, control.WAITING].tolist() == waiting, "I3: retired blocks by class"
