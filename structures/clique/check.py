"""Checks of a clique tree's invariants, for tests: slow, plain Python, independent of the composition step.

I1 to I3 are those of `multiway.tree`; the summary of a node (I2) is computed from all entries below it.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from structures.core.arena import KEY_MAX
from structures.core.entry_tree import EntryRoot
from structures.multiway.check import Entry, check_nodes
from structures.multiway.clique_summary import keys_at, top_at
from structures.multiway.layout import MultiwayArena
from structures.multiway.topology import CLIQUE


def leasts_of(entries: list[Entry], t: int) -> list[tuple[int, int] | None]:
    """mn[1..t] by definition: the least (key, left) that k - 1 entries before it cover; the entries are in order."""
    found: list[tuple[int, int] | None] = [None] * t
    ends: list[int] = []
    last = -1
    for key, left, _, right in entries:
        if key != last:
            last, ends = key, []
        covers = len(ends) - bisect_left(ends, left)
        for k in range(min(covers + 1, t)):
            found[k] = found[k] or (key, left)
        insort(ends, right)
    return found


def check_summary(A: MultiwayArena, o: int, entries: list[Entry]) -> None:
    """Prove I2 of node o."""
    t, keys, tops = int(A.table[CLIQUE]), int(keys_at(A.table, o)), int(top_at(o))
    last = entries[-1][0] if entries else -1
    wanted = sorted((right for key, _, _, right in entries if key == last), reverse=True)[:t]
    head = int(A.W[keys]), int(A.W[keys + 1])
    assert head == (last, len(wanted)), f"I2: last key and its entries at {o} are {head}, should be {(last, len(wanted))}"
    stored = A.M[tops : tops + len(wanted)].tolist()
    assert stored == wanted, f"I2: largest right endpoints at {o} are {stored}, should be {wanted}"
    for k, least in enumerate(leasts_of(entries, t)):
        key = int(A.W[keys + 2 + k])
        at = None if key == KEY_MAX else (key, int(A.M[tops + t + k]))
        assert at == least, f"I2: {k + 1} share a point below {o} first at {at}, should be {least}"


def check_clique(A: MultiwayArena, root: EntryRoot, others: tuple[EntryRoot, ...]) -> None:
    """Prove I1 to I3 of the version, and I3 of the arena when all roots in use are given."""
    entries = check_nodes(A, 1, root, others, lambda o, below: check_summary(A, o, below))
    live = leasts_of(entries, int(A.table[CLIQUE]))[-1] is not None
    assert root.live == live, f"live is {root.live}"
