"""View trees against their naive twin, their shapes, and what they promise about steps, memory and errors, by counting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.index.indexes import NO_ENTRIES, Entries, OrderedIndexes
from structures.index.layout import BLOCK
from structures.view_tree.shape import nodes_of
from structures.view_tree.tree import Member, ViewTree, path_orders
from tests.structures.batches import Changes, apply_steps, apply_to_indexes, follow_batch, follow_steps
from tests.structures.index.machine import packed
from tests.structures.machines import drive, read_all
from tests.structures.view_tree.machine import ViewMachine

NO_PINS = np.empty(0, np.int64)


def test_against_the_twin() -> None:
    drive(ViewMachine, 60 if JIT else 8, 12)


@pytest.mark.parametrize(
    ("variables", "orders"),
    [
        ([{0}, {0}, {0}], [(0,), (0,), (0,)]),
        ([{1}, {0, 1}, {0, 1, 2}], [(1,), (1, 0), (1, 0, 2)]),
        ([{0, 1, 2}, {2, 0, 3}], [(0, 2, 1), (0, 2, 3)]),
        ([{0, 1}, {1, 2}, {1}], [(1, 0), (1, 2), (1,)]),
        ([{0}, {0, 1}, {1}], None),  # R(x), S(x, y), T(y): not hierarchical
        ([{0, 1}, {1, 2}, {0, 2}], None),
        ([{0}, {1}], None),  # not connected
    ],
)
def test_path_orders(variables: list[set[int]], orders: list[tuple[int, ...]] | None) -> None:
    assert path_orders([frozenset(own) for own in variables]) == orders


def test_nodes() -> None:
    """A node for each prefix where paths part or an atom ends beside others; none that has one child."""
    nodes = nodes_of([(0,), (0, 1, 2), (0, 1, 2), (0, 3), (0, 1, 2, 4)])
    assert [(node.prefix, node.parent, node.children) for node in nodes] == [(1, -1, [0, 6, 3]), (3, 5, [1, 2, 4])]
    assert [node.prefix for node in nodes_of([(0, 1), (0, 1)])] == [2]


def viewed(variables: Sequence[tuple[int, ...]], given: Sequence[Sequence[tuple[int, ...]]]) -> tuple[OrderedIndexes, ViewTree]:
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    atoms = []
    for own, entries in zip(variables, given, strict=True):
        atoms.append((Member(indexes.add(len(own)), own),))
        indexes.load(atoms[-1][0].index, packed(entries, len(own)))
    view = ViewTree(indexes, atoms)
    view.load()
    return indexes, view


@pytest.mark.parametrize("variables", [[(0,)], [(0,)] * 9, [(0, 1), (1, 0)], [(0,), (1,)], [(0, 0), (0,)]])
def test_no_tree(variables: list[tuple[int, ...]]) -> None:
    indexes = OrderedIndexes(1 << 16)
    with pytest.raises(ValueError, match="no view tree"):
        ViewTree(indexes, [(Member(indexes.add(len(own)), own),) for own in variables])


def test_more_variables_than_coordinates() -> None:
    indexes = OrderedIndexes(1 << 16)
    index = indexes.add(1)
    with pytest.raises(ValueError, match="indexes of"):
        ViewTree(indexes, [(Member(index, (0, 1)),), (Member(index, (0,)),)])
    view = ViewTree(indexes, [(Member(index, (0,)),)] * 2)
    with pytest.raises(ValueError, match="1 variables, 2 are given"):
        view.of_key(view.root, 0, (1, 2))


def test_rows_come_in_the_order_of_the_variables() -> None:
    given = [[(x, y, 10 * x + y) for x in range(5) for y in range(5)], [(x, z, 10 * x + z) for x in range(1, 4) for z in range(4)]]
    _, view = viewed([(0, 1), (0, 2)], given)
    rows = read_all(view.rows(view.root), 7)
    assert rows == [(10 * x + y, 10 * x + z) for x in range(1, 4) for y in range(5) for z in range(4)]


def test_no_dead_ends_whatever_dangles() -> None:
    """A thousand x of R have no S or no T, in the one row's way: it is found at once, and so is that there is nothing more."""
    n = 1000
    singles, even = [(x, x) for x in range(n)], range(0, n, 2)
    indexes, view = viewed([(0,), (0, 1), (0, 1)], [singles, [(x, x, x) for x in even], [(x, x + (x != n - 2), x) for x in even]])
    cursor = view.rows(view.root)
    assert read_all(cursor) == [(n - 2,) * 3] and cursor.steps < 20 and cursor.largest_gap < 10
    indexes.begin(2)
    follow_batch(view, apply_to_indexes(indexes, {view.members[0].index: Changes(packed([(n - 2, n - 2)], 1), NO_ENTRIES)}), None)
    assert view.is_empty(view.root) and view.own_bytes > 0
    assert view.flipped == 1 and view.update_steps == 1, "R has one more child beside it: (x, y) is looked up, and x was live"
    view.check()


def test_a_delta_beyond_the_limit_is_given_up_and_the_rest_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("structures.view_tree.tree.CHUNK", 1 << 10)
    n = 60
    indexes, view = viewed([(0,)] * 3, [[(0, i) for i in range(n)], [(0, i) for i in range(n)], [(1, 0)]])
    indexes.begin(2)
    last = view.members[2].index
    run = apply_steps(indexes, np.array([last] * 3, np.int64), np.array([1, -1, 1], np.int8), packed([(0, 1), (1, 0), (0, 2)], 1))
    assert follow_steps(view, run, 3_000) == {}
    view.check()
    indexes.begin(3)
    run = apply_steps(indexes, np.array([last] * 2, np.int64), np.array([-1, 1], np.int8), packed([(0, 1), (0, 1)], 1))
    found = follow_steps(view, run, n * n)
    assert [rows.shape[1] for _, rows in sorted(found.items())] == [n * n] * 2
    assert len(set(map(tuple, found[1].T.tolist()))) == n * n
    indexes.begin(4)
    run = apply_steps(indexes, np.array([last], np.int64), np.array([-1], np.int8), packed([(0, 1)], 1))
    before = view.update_steps
    assert follow_steps(view, run, None) == {} and view.update_steps == before, "(0, 2) has the value as well"


def test_a_sink_that_wants_no_more() -> None:
    n = 60
    indexes, view = viewed([(0,)] * 2, [[(0, i) for i in range(n)]] * 2)
    indexes.begin(2)
    same = packed([(0, i) for i in range(n)], 1)
    batch = apply_to_indexes(indexes, {view.members[0].index: Changes(same, same)})
    emitted: list[tuple[int, int]] = []

    def sink(sign: int, slots: np.ndarray) -> bool:
        emitted.append((sign, slots.shape[1]))
        return False

    follow_batch(view, batch, sink)
    assert emitted == [(-1, n * n)], "less than a chunk"
    view.check()
    assert len(read_all(view.rows(view.root))) == n * n


def test_closing_gives_back_what_was_taken() -> None:
    pairs = [(x, x, x) for x in range(50)]
    indexes, view = viewed([(0,), (0, 1), (0, 1)], [[(x, x) for x in range(50)], pairs, pairs])
    own = sum(indexes.bytes(one.index) for one in view.members)
    assert indexes.live_bytes == own + view.own_bytes
    assert view.flips({view.members[0].index: 3, view.members[1].index: 2}) == 3 + 2 * 2
    for _ in range(view.own_bytes // (8 * BLOCK) - 1):
        indexes.begin(2)
        assert not view.close(1)
        indexes.check()
    assert view.close(1)
    indexes.reclaim(2, NO_PINS)
    assert indexes.live_bytes == own and indexes.retired_bytes == 0
    indexes.check()


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
def test_tens_of_thousands() -> None:
    """A star of three; rows and deltas are counted by the groups' sizes."""
    rng = np.random.default_rng(7)
    n, values, version = 30_000, 10_000, 1
    here = [rng.integers(0, values, n) for _ in range(3)]
    slots = np.arange(n, dtype=np.int32)
    indexes = OrderedIndexes(1 << 24)
    indexes.begin(1)
    members = [Member(indexes.add(1), (0,)) for _ in here]
    for member, column in zip(members, here, strict=True):
        indexes.load(member.index, Entries(column.reshape(-1, 1), slots))
    view = ViewTree(indexes, [(member,) for member in members])
    view.load()

    def counted() -> int:
        sizes = [np.bincount(column, minlength=values) for column in here]
        return int((sizes[0] * sizes[1] * sizes[2]).sum())

    count = counted()
    for _ in range(5):
        version += 1
        indexes.begin(version)
        changes = {}
        for position, member in enumerate(members):
            some = rng.choice(n, 3_000, replace=False)
            deleted = Entries(here[position][some].reshape(-1, 1), slots[some])
            here[position] = here[position].copy()
            here[position][some] = rng.integers(0, values, 3_000)
            changes[member.index] = Changes(deleted, Entries(here[position][some].reshape(-1, 1), slots[some]))
        gained: list[int] = []

        def sink(sign: int, rows: np.ndarray, gained: list[int] = gained) -> bool:
            assert all((here[0][rows[0]] == here[position][rows[position]]).all() for position in (1, 2) if sign > 0)
            gained.append(sign * rows.shape[1])
            return True

        follow_batch(view, apply_to_indexes(indexes, changes), sink)
        indexes.reclaim(version, NO_PINS)
        count += sum(gained)
        cursor = view.rows(view.root)
        rows = 0
        while not cursor.done:
            rows += cursor.fill(1 << 16).shape[1]
        assert count == counted() == rows and cursor.largest_gap < 20
    view.check()
    indexes.check()
    assert indexes.live_bytes < 40 * 3 * n
