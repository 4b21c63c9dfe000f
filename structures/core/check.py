"""Checks that a store loses no block, for tests: slow, plain Python."""

from __future__ import annotations

from structures.core.blocks import Blocks, pin_table
from structures.core.control import (
    CAPACITY,
    CLASS,
    CLASSES,
    EMPTY,
    END,
    FREE,
    FRESH,
    HELD,
    IDLE,
    IDLE_MAP,
    KINDS,
    LAST,
    LISTED,
    NEXT_CHUNK,
    OUT,
    QUEUE,
    RECORDS,
    SHIFT,
    SIDE,
    SIZE,
    SPARE,
    STASH,
    STASHED,
    UNUSED,
    USED,
    WAITING,
    chunk_at,
    chunks_in,
)


def _list(store: Blocks, o: int) -> list[int]:
    """The free blocks from o on."""
    found: list[int] = []
    while o:
        assert len(found) < store.M.size, "a list of free blocks has no end"
        found.append(o)
        o = store.M.item(o)
    return found


def retired_blocks(store: Blocks) -> list[tuple[int, int]]:
    """Those that wait in the queue, or with a pin, and their classes; every record is in one list."""
    C, Q = store.C, store.Q
    table = pin_table(C, C.item(SIDE))
    heads = [C.item(QUEUE), *(C.item(table + 2 * i + 1) for i in range(C.item(HELD)))]
    lists: list[list[int]] = []
    for head in (C.item(SPARE), *heads):
        records, r = [], head
        while r:
            records.append(r)
            r = Q.item(3 * r + 2)
        lists.append(records)
    together = [r for records in lists for r in records]
    assert sorted(together) == list(range(1, C.item(RECORDS))), "a record is in no list, or in two"
    assert not lists[1] or lists[1][-1] == C.item(LAST), "the last record of the queue is another one"
    return [divmod(Q.item(3 * r), CLASSES) for records in lists[1:] for r in records]


def check_blocks(store: Blocks, seen: dict[int, int]) -> None:
    """Prove I3 and I4; `seen`: the class of every block that a root in use reaches."""
    C, shift, kinds = store.C, store.C.item(SHIFT), store.C.item(KINDS)
    records = retired_blocks(store)
    retired = dict(records)
    assert len(retired) == len(records), "a block is retired twice"
    used, maps = set(seen) | set(retired), {cls: set(chunks_in(store.map_of(cls))) for cls in range(EMPTY + 1)}
    free: list[int] = []
    stashed: dict[int, int] = {}
    fresh: dict[int, int] = {}
    for cls, words in enumerate(store.classes[:kinds].tolist()):
        stash = _list(store, words[STASH])
        assert len(stash) == words[STASHED], f"I3: the stash of class {cls} has {len(stash)} blocks, {words[STASHED]} are said to be in it"
        free += stash
        stashed |= dict.fromkeys(stash, cls)
        fresh |= dict.fromkeys(range(words[FRESH], words[END], words[SIZE]), cls)
    inside: dict[int, int] = {}
    out, waiting, listed, empty = [0] * kinds, [0] * kinds, [0] * kinds, 0
    for chunk in range(1, C.item(NEXT_CHUNK)):
        c = chunk_at(C, chunk)
        cls, count, first = C.item(c + CLASS) - 1, C.item(c + USED), chunk << shift
        in_maps = {other for other in maps if chunk in maps[other]}
        if cls < 0:
            empty += 1
            assert in_maps == {EMPTY}, f"I4: the empty chunk {chunk} is in the maps {in_maps}"
            continue
        size, capacity = store.classes[cls, [SIZE, CAPACITY]].tolist()
        places = _list(store, C.item(c + FREE))
        assert count + len(places) == capacity, f"I3: {count} of {capacity} blocks of chunk {chunk} are not free, {len(places)} are"
        assert in_maps == ({cls} if places else set()), f"I4: chunk {chunk} is in the maps {in_maps}"
        listed[cls] += len(places)
        assert all(o >> shift == chunk for o in places), f"I3: chunk {chunk} has a block of another on its list"
        free += places
        inside |= dict.fromkeys(range(first, first + capacity * size, size), cls)
    assert len(set(free)) == len(free), "a block is free twice"
    assert not used & set(free), "a block in use or retired is free"
    assert not used & set(fresh), "a block in use was never allocated"
    everywhere = [*used, *free, *fresh]
    assert len(everywhere) == len(inside) and set(everywhere) == set(inside), "I3: a block is neither in use nor free"
    for part in (seen, retired, stashed):
        assert all(inside[o] == cls for o, cls in part.items()), "I3: a block lies in a chunk of another class"
    idle = set(chunks_in(store.map_of(IDLE_MAP)))
    assert idle <= maps[EMPTY] and len(idle) == C.item(IDLE), "I4: a chunk with blocks is said to be idle"
    for o in used:
        out[inside[o]] += 1
    for o in retired:
        waiting[inside[o]] += 1
    assert empty == C.item(UNUSED), f"{C.item(UNUSED)} chunks are said to be empty, {empty} are"
    assert store.classes[:kinds, OUT].tolist() == out, "I3: blocks out by class"
    assert store.classes[:kinds, LISTED].tolist() == listed, "I3: blocks on lists by class"
    assert store.classes[:kinds, WAITING].tolist() == waiting, "I3: retired blocks by class"
