"""Checks of the event tree's invariants, for tests: slow, plain Python, independent of the code that maintains summaries."""

from __future__ import annotations

from structures.core.arena import KEY_MAX, B, F
from structures.core.encoding import POS_INF
from structures.event_tree.layout import (
    AT,
    CHILD,
    EVENTS,
    FREE_INNER,
    FREE_LEAF,
    HEIGHT,
    INNER_FIELDS,
    INNER_LEAST,
    INNERS,
    LEAF_LEAST,
    LEAVES,
    LOW32,
    NAME,
    PLAIN,
    ROOT,
    ROW,
    START,
    STARTS,
    VALUE,
    WEIGHTS,
    Tree,
)
from structures.event_tree.summary import NO_FIT

Event = tuple[int, ...]  # key, place, rank, slot, value; further values


def events_of(tree: Tree, o: int) -> list[Event]:
    """The events of a leaf."""
    found = tree.leaves[o, :, : tree.leaf_size[o]].T.tolist()
    return [(one[NAME] >> 32, one[AT], one[NAME] >> 30 & 3, one[NAME] & (2**30 - 1), *one[VALUE:]) for one in found]


def summary_of(events: list[Event], weights: int) -> list[int]:
    """The fields of `summary.py`, by definition."""
    starts, ends = ([e for e in events if e[2] == rank] for rank in (0, 1))
    given = [[e[4 + w] for e in some] for w in range(weights) for some in (starts, ends)]
    sums = [total for some in given for total in (sum(value & LOW32 for value in some), sum(value >> 32 for value in some))]
    positions = [i for i, e in enumerate(events) if e[2] != ROW]
    first = events[positions[0]][:2] if positions else (KEY_MAX, POS_INF)
    fits, depth = [], 0
    for i, event in enumerate(events):
        if event[2] != ROW:
            depth += 1 if event[2] == START else -1
        else:
            behind = next((at for at in positions if at > i), None)
            if behind is not None and (event[0], event[4]) < events[behind][:2]:
                fits.append(depth)
    trail = min(((e[0], e[4]) for e in events[positions[-1] + 1 if positions else 0 :]), default=(KEY_MAX, POS_INF))
    return [len(starts), len(ends), *first, min(fits, default=NO_FIT), *trail, *sums]


def check_below(tree: Tree, o: int, height: int, top: bool, seen: tuple[set[int], set[int]]) -> list[Event]:
    """Prove E1 to E3 of the (sub)tree at node o. Returns its events. `seen`: leaves and inner nodes."""
    assert o not in seen[height > 0], f"E3: node {o} is there twice"
    seen[height > 0].add(o)
    if height == 0:
        events = events_of(tree, o)
        assert len(events) <= B and (top or len(events) >= LEAF_LEAST), f"E3: leaf {o} has {len(events)} events"
    else:
        n = int(tree.inner_size[o])
        assert INNER_LEAST <= n <= F, f"E3: inner node {o} has {n} children"
        events = []
        for c in range(n):
            part = check_below(tree, int(tree.inners[o, CHILD, c]), height - 1, False, seen)
            stored, wanted = tree.inners[o, STARTS:, c].tolist(), summary_of(part, int(tree.control[WEIGHTS]))
            if tree.control[PLAIN]:
                stored, wanted = ([*one[:2], *one[INNER_FIELDS - STARTS :]] for one in (stored, wanted))
            assert stored == wanted, f"E2: child {c} of {o} has {stored}, should be {wanted}"
            if c > 0:
                name, at = tree.inners[o, [NAME, AT], c].tolist()
                begin = (name >> 32, at, name >> 30 & 3, name & (2**30 - 1))
                assert events[-1][:4] < begin <= part[0][:4], f"E1: child {c} of {o} is said to begin at {begin}"
            events += part
    assert all(a[:4] < b[:4] for a, b in zip(events, events[1:], strict=False)), f"E1: events below {o} are out of order"
    return events


def free_nodes(links: list[int], sizes: list[int], first: int) -> list[int]:
    found: list[int] = []
    while first:
        assert len(found) < len(links) and sizes[first] == -1, "E3: a list of free nodes has no end, or one in use"
        found.append(first)
        first = links[first]
    return found


def check_events(tree: Tree) -> list[Event]:
    """Prove E1 to E3. Returns the events in order."""
    control, seen = tree.control.tolist(), (set[int](), set[int]())
    events = check_below(tree, control[ROOT], control[HEIGHT], True, seen)
    assert len(events) == control[EVENTS], f"{control[EVENTS]} events are counted, there are {len(events)}"
    of_leaves = (tree.leaves, tree.leaf_size, control[LEAVES], control[FREE_LEAF])
    of_inners = (tree.inners, tree.inner_size, control[INNERS], control[FREE_INNER])
    for used, (nodes, sizes, most, first) in zip(seen, (of_leaves, of_inners), strict=True):
        free = free_nodes(nodes[: most + 1, NAME, 0].tolist(), sizes[: most + 1].tolist(), first)
        assert sorted([*used, *free]) == list(range(1, most + 1)), "E3: a node is neither in use nor free, or both"
    return events
