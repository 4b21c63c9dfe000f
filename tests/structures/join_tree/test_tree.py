"""The join tree beside its naive twin; what it promises about look-ups and memory, by counting."""

from __future__ import annotations

import numpy as np
import pytest

from structures.core.entries import DELETE, INSERT
from structures.core.kernel import JIT
from structures.join_tree import layout
from structures.join_tree.tree import JoinTree, Port
from tests.structures.batches import apply_to_join
from tests.structures.join_tree.machine import JoinMachine
from tests.structures.machines import drive, read_all

PATH = [Port(0, 0, False), Port(1, 0, False), Port(1, 1, False), Port(2, 1, False)], [(0, 1), (2, 3)]


def test_against_the_twin() -> None:
    drive(JoinMachine, 60 if JIT else 8, 12)


def path_of(columns: list[list[np.ndarray]]) -> JoinTree:
    """R(a, b), S(b, c), T(c, d): of each the codes of its join columns, loaded."""
    tree = JoinTree(*PATH, 1 << 24, 1 << 20)
    for alias, codes in enumerate(columns):
        slots = np.arange(len(codes[0]), dtype=np.int32)
        tree.describe(alias, slots, codes, [None] * len(codes))
        tree.load(1, alias, slots)
    return tree


@pytest.mark.parametrize(
    "ports, edges",
    [
        ([Port(0, 0, False)], []),
        ([Port(0, 0, False), Port(1, 1, False)], [(0, 1)]),
        ([Port(0, 0, False), Port(1, 0, True)], [(0, 1)]),
        ([Port(0, 0, False), Port(1, 0, False), Port(2, 1, False)], [(0, 1), (0, 1)]),
        ([Port(u, 0, False) for u in range(9)], [(0, u) for u in range(1, 9)]),
    ],
)
def test_what_is_no_tree(ports: list[Port], edges: list[tuple[int, int]]) -> None:
    """Nine aliases overwrote the list of an alias's ports."""
    with pytest.raises(ValueError, match="make no tree of 2 to 8 aliases"):
        JoinTree(ports, edges, 1 << 22, 1 << 12)


def test_slots_and_codes_beyond_the_arrays() -> None:
    """They were written where those of others lie."""
    tree = JoinTree(*PATH, 1 << 22, 1 << 12)
    for slot, code in ((-1, 0), (1 << 12, 0), (0, -2), (0, 1 << 12)):
        with pytest.raises(ValueError, match="slots are 0 to 4095, codes from -1 on"):
            tree.describe(1, numbers(slot), [numbers(0), numbers(code)], [None, None])
    tree.describe(1, numbers(4095), [numbers(-1), numbers(4095)], [None, None])


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_a_code_that_stays_alive_costs_no_look_at_its_group() -> None:
    """The second row of a live code, and the last but one that goes, turn no partner. The first and the last turn all rows of S."""
    n = 1000
    codes = np.arange(n, dtype=np.int32)
    tree = path_of([[numbers()], [np.zeros(n, np.int32), codes], [codes]])
    tree.describe(0, numbers(0, 1), [numbers(0, 0)], [None])
    looked = []
    for sign, slot in ((INSERT, 0), (INSERT, 1), (DELETE, 0), (DELETE, 1)):
        before = tree.steps
        apply_to_join(tree, 2 + len(looked), 0, numbers(slot), sign == INSERT)
        looked.append(tree.steps - before)
    assert looked[1] <= 2 and looked[2] <= 2 and all(n <= steps <= 4 * n for steps in (looked[0], looked[3])), looked


def test_dangling_rows_are_in_no_tree_and_are_not_looked_at() -> None:
    """All of S has partners in R, none in T: a row of R that comes and goes costs a count, and no tree has an entry."""
    n = 1000
    codes = np.arange(n, dtype=np.int32)
    tree = path_of([[codes], [codes, codes], [codes + n]])
    assert tree.entries(tree.roots) == 0 and tree.is_empty(tree.roots)
    before, emitted = tree.steps, list[np.ndarray]()
    for number in range(10):
        for sign in (DELETE, INSERT):
            apply_to_join(tree, 2 + number, 0, numbers(number), sign == INSERT, lambda inserted, rows: emitted.append(rows) is None)
    assert sum(rows.shape[1] for rows in emitted) == 0
    assert tree.steps - before <= 20 * 3
    tree.check([codes] * 3)


@pytest.mark.parametrize("n", [200, 20_000 if JIT else 500])
def test_steps_and_bytes(n: int) -> None:
    """A whole view, two partners a link: steps a row and between rows, and the bytes a tuple."""
    rng = np.random.default_rng(7)
    columns = [rng.integers(0, n // 2, n).astype(np.int32) for _ in range(4)]
    tree = path_of([columns[:1], columns[1:3], columns[3:]])
    cursor = tree.rows(tree.roots, 1, tree.all_of(tree.roots, 1))
    rows = read_all(cursor)
    assert len(rows) == len(set(rows)) > 2 * n
    assert cursor.steps <= 4 * len(rows) and cursor.largest_gap <= 60 and cursor.dead_ends == 0
    assert n < 1000 or tree.bytes([n] * 3, [n // 2] * 2) <= 80 * 3 * n
    some = np.arange(0, n, 7, dtype=np.int32)
    held = some[tree.holds(tree.roots, 2, some)]
    assert set(held.tolist()) == {row[2] for row in rows} & set(some.tolist())


@pytest.mark.skipif(not JIT, reason="thousands of rows need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize("kind", [layout.REQUIRED, layout.OPTIONAL, layout.EXISTS, layout.ABSENT])
@pytest.mark.parametrize("middle", [False, True])
def test_thousands_of_rows_at_once(middle: bool, kind: int) -> None:
    """Rows of an alias in the middle have a tree of the live ones, others not; rows come and go in numbers that share leaves, or not."""
    rng, n = np.random.default_rng(3), 3_000
    ports = [Port(0, 0, True), Port(1, 0, True)] + [Port(1, 1, True), Port(2, 1, True)] * middle
    edges = [(0, 1), (2, 3)][: 1 + middle]
    if kind in (layout.ABSENT, layout.OPTIONAL) and not middle:
        ports.append(Port(0, -1, False))  # sees the rows that need no partner
    tree = JoinTree(ports, edges, 1 << 24, 1 << 16, [layout.REQUIRED] * middle + [kind])
    assert len(tree._T) == len(ports) + 2 * len(edges) + 2 * middle
    rows = [np.empty(0, np.int32) for _ in range(2 + middle)]
    for version in range(1, 7):
        for u, here in enumerate(rows):
            deleted = here[rng.random(len(here)) < (0.5, 0.01)[version % 2]]
            inserted = np.arange(version * n, version * n + (n, 50)[version % 2 if version > 1 else 0], dtype=np.int32)
            own = [tree.ports[p] for p in tree.of_alias[u]]
            lefts = [rng.integers(0, 10**6, len(inserted)) for _ in own]
            codes = [rng.integers(0, 50, len(inserted)).astype(np.int32) if port.domain >= 0 else None for port in own]
            ends = [(left, left + rng.integers(-5, 10**4, len(inserted))) for left in lefts]
            tree.describe(u, inserted, codes, [pair if port.spanned else None for port, pair in zip(own, ends, strict=True)])
            apply_to_join(tree, version, u, deleted, False)
            if version == 1:
                tree.load(version, u, inserted)
            else:
                apply_to_join(tree, version, u, inserted, True)
            rows[u] = np.concatenate((np.setdiff1d(here, deleted), inserted))
        tree.reclaim(version, np.empty(0, np.int64))
        tree.check(rows)
    assert kind != layout.REQUIRED or tree.entries(tree.roots) > n


def test_a_row_without_a_live_partner_is_deleted_without_a_search() -> None:
    tree, slots = JoinTree([Port(0, 0, True), Port(1, 0, True)], [(0, 1)], 1 << 20, 1 << 12), np.arange(100, dtype=np.int32)
    for u in range(2):
        tree.describe(u, slots, [np.full(100, u, np.int32)], [(np.zeros(100, np.int64), np.ones(100, np.int64))])
        tree.load(1 + u, u, slots)
    tree.count_anew()
    apply_to_join(tree, 3, 0, slots, False)
    assert tree.steps == 0
    tree.check([slots[:0], slots])
