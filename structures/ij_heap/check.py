"""Checks of the IJ-heap's invariants, for tests: slow, plain Python, independent of the composition step.

The least V-tuple below a node is found from all entries below it, by advancing every entry that ends before a neighbour begins.
"""

from __future__ import annotations

from structures.core.arena import KEY_MAX
from structures.core.entry_tree import EntryRoot
from structures.multiway.check import Entry, check_nodes
from structures.multiway.layout import MultiwayArena, key_at, near_at, slot_at
from structures.multiway.topology import SPAN, Topology


def extreme_of(entries: list[Entry], topology: Topology, members: list[int], which: int) -> list[tuple[int, int]] | None:
    """(key, near endpoint) of each member in the least (`which` 0) or greatest tuple, by definition; None if there is no tuple."""
    sign = 1 if which == 0 else -1
    runs = {}
    for i in members:
        mine = [x for x in entries if x[2] % 8 == i]
        ends = [((sign * k, sign * left), (sign * k, sign * right)) for k, left, _, right in mine]
        runs[i] = sorted((near, far) if which == 0 else (far, near) for near, far in ends)
    at = dict.fromkeys(members, 0)
    moved = True
    while moved:
        moved = False
        for i in members:
            for j in members:
                while topology.near[i] >> j & 1:
                    if at[i] == len(runs[i]) or at[j] == len(runs[j]):
                        return None
                    if runs[i][at[i]][1] >= runs[j][at[j]][0]:
                        break
                    at[i], moved = at[i] + 1, True
    if any(at[i] == len(runs[i]) for i in members):
        return None
    return [(sign * runs[i][at[i]][0][0], sign * runs[i][at[i]][0][1]) for i in members]


def check_summary(A: MultiwayArena, topology: Topology, o: int, entries: list[Entry]) -> None:
    """Prove I2 of node o: keys and near endpoints agree with the definition, and each stored tuple is a real one."""
    table, by_code = A.table, {x[2]: x for x in entries}
    for which in (0, 1):
        position, near, slot = 0, int(near_at(table, o, which)), int(slot_at(table, o, which))
        for v, members in enumerate(topology.members):
            wanted = extreme_of(entries, topology, members, which)
            key = int(A.W[key_at(table, o, which) + v])
            if wanted is None:
                assert key == (KEY_MAX if which == 0 else -1), f"I2: extreme {which} of {members} at {o} has key {key}, should be absent"
            else:
                stored = [(key, int(A.M[near + position + m])) for m in range(len(members))]
                assert stored == wanted, f"I2: extreme {which} of {members} at {o} is {stored}, should be {wanted}"
                for m, i in enumerate(members):
                    k, left, _, right = by_code[8 * int(A.W[slot + position + m]) + i]
                    ends = (left, right) if which == 0 else (right, left)
                    assert (k, *ends) == (
                        key, *(int(A.M[near + f * int(table[SPAN]) + position + m]) for f in (0, 1))
                    ), "I2: a stored tuple"
            position += len(members)


def check_heap(A: MultiwayArena, topology: Topology, root: EntryRoot, others: tuple[EntryRoot, ...]) -> None:
    """Prove I1 to I3 of the version, and I3 of the arena when all roots in use are given."""
    entries = check_nodes(A, topology.t, root, others, lambda o, below: check_summary(A, topology, o, below))
    assert root.live == (extreme_of(entries, topology, list(range(topology.t)), 0) is not None), f"live is {root.live}"
