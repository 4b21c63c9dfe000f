"""`BoxTree` against its naive twin, and what it promises about steps and memory, by counting."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from structures.box.tree import BoxTree, Entries
from structures.core.control import CHUNKS, NEXT_CHUNK
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.kernel import JIT
from tests import datasets
from tests.naive.box_join import Box, entries, in_window, pairs
from tests.structures.batches import apply_batch
from tests.structures.box.boxes import NO_PINS, random_entries, read_all, rows_of
from tests.structures.box.machine import BoxMachine, in_order
from tests.structures.machines import drive

WORLD = "rects_world"
ROOT = Path(__file__).parents[3]


def test_against_the_twin() -> None:
    drive(BoxMachine, 40 if JIT else 12, 15)


def joined(a: Entries, b: Entries) -> Entries:
    return Entries(*(np.concatenate(columns) for columns in zip(a, b, strict=True)))


def count_pairs(entries: Entries) -> int:
    """By comparing with all that begins near enough in dimension 0."""
    here = entries.take(np.argsort(entries.left[:, 0]))
    n = len(here.key)
    near = np.searchsorted(here.left[:, 0], here.right[:, 0], "right") - np.arange(n) - 1
    i = np.repeat(np.arange(n), near)
    j = i + 1 + np.arange(len(i)) - np.repeat(np.cumsum(near) - near, near)
    meet = (here.set[i] != here.set[j]) & ((here.left[i] <= here.right[j]) & (here.left[j] <= here.right[i])).all(axis=1)
    return int(meet.sum())


@pytest.mark.skipif(not JIT, reason="tens of thousands need compiled kernels; the run with the JIT on has them")
@pytest.mark.parametrize(
    ("dimensions", "partners"), [(2, 0.1), (2, 2), pytest.param(2, 30, marks=pytest.mark.soak), pytest.param(3, 2, marks=pytest.mark.soak)]
)
def test_tens_of_thousands(dimensions: int, partners: float) -> None:
    rng = np.random.default_rng(7)
    tree = BoxTree(dimensions, "pair")
    n = 10_000
    here = random_entries(rng, n, dimensions, partners)
    root = tree.bulk_load(1, here)
    count = count_pairs(here)
    for version in range(2, 7):
        keep = rng.random(len(here.key)) > 0.1
        news = random_entries(rng, n // 10, dimensions, partners, version * 100_000, n)
        net = [0]

        def sink(sign: int, slots: np.ndarray, net: list[int] = net) -> bool:
            net[0] += sign * slots.shape[1]
            return True

        root = apply_batch(tree, version, here.take(~keep), news, sink)
        tree.reclaim(version, NO_PINS)
        here = joined(here.take(keep), news)
        count += net[0]
        assert count == count_pairs(here)
        a, b = read_all(tree.rows(root))
        rows = np.sort(a.astype(np.int64) << 32 | b)  # np.unique takes ten times as long
        assert len(rows) == count and (rows[1:] != rows[:-1]).all()
        position = np.zeros(10**6, np.int64)
        position[here.slot] = np.arange(len(here.key))
        a, b = position[a], position[b]
        assert ((here.left[a] <= here.right[b]) & (here.left[b] <= here.right[a])).all()
        assert not here.set[a].any() and here.set[b].all()
    tree.check(root)


def some_boxes(dimensions: int) -> list[Box]:
    """All left ends equal, sides that only touch, points, boxes without ends."""
    same = [Box(i % 2, 0, (5,) * dimensions, (5 + i % 3,) * dimensions, i) for i in range(40)]
    touching = [Box(i % 2, 0, (10 * i,) + (0,) * (dimensions - 1), (10 * i + 10,) + (i,) * (dimensions - 1), 100 + i) for i in range(30)]
    points = [Box(i % 2, 0, (10 * (i // 2),) * dimensions, (10 * (i // 2),) * dimensions, 200 + i) for i in range(20)]
    endless = [Box(i % 2, 0, (NEG_INF,) * dimensions, (POS_INF,) * dimensions, 300 + i) for i in range(6)]
    slabs = [Box(i % 2, 0, (NEG_INF,) + (i,) * (dimensions - 1), (POS_INF,) + (i,) * (dimensions - 1), 400 + i) for i in range(20)]
    return same + touching + points + endless + slabs


@pytest.mark.parametrize("kind", ["pair", "self"])
@pytest.mark.parametrize("dimensions", [2, 3, 4])
def test_ties_touching_sides_points_and_unbounded_ends(dimensions: int, kind: str) -> None:
    boxes = [box if kind == "pair" else box._replace(set=0) for box in some_boxes(dimensions)]
    tree = BoxTree(dimensions, kind, 1 << 22)
    root = tree.bulk_load(1, entries(boxes[::2], dimensions))
    root = apply_batch(tree, 2, entries([], dimensions), entries(boxes[1::2], dimensions), None)
    tree.check(root)
    assert rows_of(tree.rows(root), kind) == sorted(pairs(kind, boxes))
    for lo, hi in ((0, 12), (NEG_INF, 4), (5, 5), (40, POS_INF), (NEG_INF, POS_INF)):
        for dimension in range(dimensions):
            low, high = np.full(dimensions, NEG_INF), np.full(dimensions, POS_INF)
            low[dimension], high[dimension] = lo, hi
            wanted = sorted(pairs(kind, in_window(boxes, low.tolist(), high.tolist())))
            assert rows_of(tree.rows(root, window=(low, high)), kind) == wanted
    root = apply_batch(tree, 3, entries(boxes[:100], dimensions), entries([], dimensions), None)
    tree.check(root)
    assert rows_of(tree.rows(root), kind) == sorted(pairs(kind, boxes[100:]))


def test_look_ups_of_many() -> None:
    boxes = some_boxes(2)
    tree = BoxTree(2, "pair", 1 << 22)
    root = tree.bulk_load(1, entries(boxes, 2))
    for s in (0, 1):
        given = [box for box in boxes[::3] if box.set == s]
        slots = {box.slot for box in given}
        assert rows_of(tree.partners(root, entries(given, 2))) == sorted(r for r in pairs("pair", boxes) if r[s] in slots)
    assert rows_of(tree.partners(root, entries([], 2))) == []


def test_nothing_meets() -> None:
    """A view without rows is known to be empty at once, and the walk does not wander."""
    apart = [Box(i % 2, 0, (10 * i, 0), (10 * i + 3, 100), i) for i in range(500)]
    tree = BoxTree(2, "pair", 1 << 22)
    root = tree.bulk_load(1, entries(apart, 2))
    cursor = tree.rows(root)
    assert tree.is_empty(root) and cursor.done and cursor.steps == 0


@pytest.mark.parametrize("kind", ["pair", "self"])
def test_the_largest_gap_of_a_window_is_none_too_small(kind: str) -> None:
    """Read row by row: the most steps from one row to the next, wherever these are found. Many boxes meet the window and no other box."""
    rng = np.random.default_rng(3)
    n = 1500 if JIT else 300
    here = random_entries(rng, n, 2, 1.0)
    if kind == "self":
        here = here._replace(set=np.zeros(n, np.uint8))
    tree = BoxTree(2, kind, 1 << 22)
    root = tree.bulk_load(1, here)
    cursor = tree.rows(root, window=(np.array([2 * 10**8, 10**8]), np.array([8 * 10**8, 9 * 10**8])))
    last = most = rows = 0
    while not cursor.done:
        is_new = cursor._held.shape[1] == 0
        if cursor.fill(1).shape[1]:
            rows += 1
            if is_new:
                most, last = max(most, cursor.steps - last), cursor.steps
            assert cursor.largest_gap >= most
    assert rows > n // 10 and most > 20 and cursor.largest_gap <= 2 * most


def test_a_box_that_the_table_does_not_have_is_found_by_the_check() -> None:
    here = random_entries(np.random.default_rng(3), 50, 2, 1.0)
    tree = BoxTree(2, "pair", 1 << 22)
    root = tree.bulk_load(1, here)
    tree.check(root)
    tree._boxes[here.set[7], here.slot[7], 3] += 1
    with pytest.raises(AssertionError, match="N5: the table has"):
        tree.check(root)


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_the_delay_grows_with_the_logarithm() -> None:
    """Boxes that meet in one dimension at most, but for three rows far apart: the largest number of steps between two rows and the
    steps of a look-up stay below a constant times log n, besides what a leaf takes."""
    for n in (2_000, 20_000, 200_000):
        sets = (np.arange(n) % 2).astype(np.uint8)
        left = np.stack((np.arange(n) * 10, (np.arange(n) * 7919) % n * 10), axis=1)
        right = left + np.stack((np.where(sets == 0, n // 10, 3), np.full(n, 3)), axis=1)
        for i in (1, n // 2 + 1, n - 1):
            left[i] = left[i - 1] + 1
            right[i] = left[i]
        tree = BoxTree(2, "pair")
        here = Entries(sets, np.zeros(n, np.int32), left, right, np.arange(n, dtype=np.int32))
        root = tree.bulk_load(1, here)
        cursor = tree.rows(root)
        assert rows_of(cursor) == [(0, 1), (n // 2, n // 2 + 1), (n - 2, n - 1)]
        assert cursor.largest_gap <= 1500 + 60 * math.log2(n), (n, cursor.largest_gap)
        cursor = tree.partners(root, here.take(np.array([n // 2])))
        assert rows_of(cursor) == [(n // 2, n // 2 + 1)]
        assert cursor.steps <= 3000 + 40 * math.log2(n) ** 2, (n, cursor.steps)


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_one_old_pin_does_not_hold_what_came_after_it() -> None:
    rng = np.random.default_rng(5)
    tree = BoxTree(2, "pair")
    here = random_entries(rng, 10_000, 2, 2)
    root = tree.bulk_load(1, here)
    old = root
    wanted = read_all(tree.rows(old))
    used = []
    for version in range(2, 102):
        keep = rng.random(len(here.key)) > 0.02
        news = random_entries(rng, int((~keep).sum()), 2, 2, version * 100_000, 10_000)
        root = apply_batch(tree, version, here.take(~keep), news, None)
        here = joined(here.take(keep), news)
        tree.reclaim(version, np.array([1], np.int64))
        used.append(tree.live_bytes + tree.retired_bytes)
    assert used[-1] < 2.5 * used[0] and used[-1] < 1.2 * used[30]
    assert (read_all(tree.rows(old)) == wanted).all()
    tree.check(root, (old,))
    tree.reclaim(101, NO_PINS)
    assert tree.retired_bytes == 0


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_boxes_of_every_width() -> None:
    """Heavy tails: memory stays below a few copies a level, and boxes over everything may come and go."""
    rng = np.random.default_rng(3)
    n = 20_000
    left = rng.integers(0, 10**9, (n, 2))
    inputs = (10 ** rng.uniform(0, 8, (n, 2))).astype(np.int64)
    here = Entries(rng.integers(0, 2, n).astype(np.uint8), np.zeros(n, np.int32), left, left + inputs, np.arange(n, dtype=np.int32))
    tree = BoxTree(2, "pair")
    root = tree.bulk_load(1, here)
    assert tree.live_bytes < 1500 * n
    count, version = count_pairs(here), 1
    assert len(read_all(tree.rows(root))[0]) == count
    cover = Entries(np.zeros(1, np.uint8), np.zeros(1, np.int32), np.full((1, 2), -5), np.full((1, 2), 2 * 10**9), np.full(1, n, np.int32))
    for _ in range(20):
        root = apply_batch(tree, version + 1, cover.take(slice(0)), cover, None)
        root = apply_batch(tree, version + 2, cover, cover.take(slice(0)), None)
        version += 2
        tree.reclaim(version, NO_PINS)
    assert len(read_all(tree.rows(root))[0]) == count
    tree.check(root)


@pytest.mark.skipif(not JIT, reason="counts at sizes that need compiled kernels")
def test_boxes_in_order_of_their_left_ends() -> None:
    """As they come over time: every insert goes to the right end, every delete to the left one."""
    rng = np.random.default_rng(4)
    n = 12_000
    here = random_entries(rng, n, 2, 3)
    here = here.take(np.argsort(here.left[:, 0]))._replace(slot=np.arange(n, dtype=np.int32))
    tree = BoxTree(2, "pair")
    none = here.take(slice(0))
    for version, lo in enumerate(range(0, n, 200), 1):
        old = here.take(slice(lo - 4000, lo - 3800)) if lo >= 4000 else none
        root = apply_batch(tree, version, old, here.take(slice(lo, lo + 200)), None)
        tree.reclaim(version, NO_PINS)
    tree.check(root)
    assert len(read_all(tree.rows(root))[0]) == count_pairs(here.take(slice(n - 4000, n)))


def test_a_sink_may_stop_the_delta() -> None:
    """The batch goes on without its delta: one box that meets everything is not enumerated."""
    tree = BoxTree(2, "pair", 1 << 22)
    points = [Box(0, 0, (i, -i), (i, -i), i) for i in range(300)]
    tree.bulk_load(1, entries(points, 2))
    seen: list[int] = []

    def sink(sign: int, slots: np.ndarray) -> bool:
        seen.append(slots.shape[1])
        return False

    deletes = points[:10]
    root = apply_batch(tree, 2, entries(deletes, 2), entries([Box(1, 0, (i, -5000), (5000, 0), 10_000 + i) for i in range(100)], 2), sink)
    assert len(seen) == 1
    assert len(read_all(tree.rows(root))[0]) == sum(300 - max(i, 10) for i in range(100))
    tree.check(root)


def test_deleting_what_is_not_there_is_an_error() -> None:
    tree = BoxTree(2, "pair", 1 << 20)
    tree.bulk_load(1, entries([Box(0, 0, (1, 1), (2, 2), 3)], 2))
    with pytest.raises(KeyError):
        apply_batch(tree, 2, entries([Box(0, 0, (1, 1), (2, 2), 4)], 2), entries([], 2), None)


def test_a_full_arena_refuses_before_it_begins() -> None:
    tree = BoxTree(2, "pair", 1 << 19)
    root = tree.bulk_load(1, entries([], 2))
    with pytest.raises(MemoryError):
        apply_batch(tree, 2, entries([], 2), entries([Box(0, 0, (i, i), (i, i), i + 10) for i in range(5000)], 2), None)
    assert tree.root == root
    tree.check(root)


def test_a_load_needs_what_its_boxes_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what they could take at worst, of which 10^7 boxes had no room on a machine of 24 GiB."""
    low, n = np.random.default_rng(2).integers(0, 160_000, (16_000, 2)), 16_000
    monkeypatch.setattr("structures.box.tree._SAMPLE", n // 8)
    boxes = entries([Box(i % 2, 0, tuple(low[i]), tuple(low[i] + 20), i) for i in range(n)], 2)
    tree, small = BoxTree(2, "pair", 60 * n), BoxTree(2, "pair", 10 * n)
    with pytest.raises(MemoryError):
        tree.arena.require(n)
    tree.check(tree.bulk_load(1, boxes))
    with pytest.raises(MemoryError):
        small.bulk_load(1, boxes)
    small.check(small.root)


def test_an_arena_that_fills_up_midway_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `require` could not foresee: the version being written is undone, no memory beyond the arena is touched, and all goes on."""
    monkeypatch.setattr(BoxTree, "require", lambda self, changes, applies: None)
    for seed in range(3 if JIT else 2):
        rng, n = np.random.default_rng(seed), 20_000 if JIT else 900
        tree = BoxTree(3, "pair", (11 + seed) << 17 if JIT else 100_000 + 2_000 * seed)
        boxes = [Box(i % 2, 0, *(tuple(input) for input in np.sort(rng.integers(0, 99, (2, 3)), axis=0).tolist()), i) for i in range(n)]
        root = tree.root
        with pytest.raises(MemoryError):
            tree.bulk_load(1, entries(boxes, 3))
        assert tree.root == root
        tree.check(root)
        tree.reclaim(0, NO_PINS)
        root = tree.bulk_load(1, entries(boxes[:8], 3))
        with pytest.raises(MemoryError):
            apply_batch(tree, 2, entries([], 3), entries(boxes[8:], 3), None)
        assert tree.arena.C[NEXT_CHUNK] <= tree.arena.C[CHUNKS] and tree.root == root
        tree.check(root)
        assert rows_of(tree.rows(root)) == sorted(pairs("pair", boxes[:8]))
        tree.reclaim(1, NO_PINS)
        now = apply_batch(tree, 3, entries(boxes[:2], 3), entries(boxes[8:20], 3), None)
        tree.check(now, (root,))
        assert rows_of(tree.rows(now)) == sorted(pairs("pair", boxes[2:20]))


TWENTY = """
import resource
import numpy as np
from structures.box.tree import BoxTree
from tests.naive.box_join import Box, entries
resource.setrlimit(resource.RLIMIT_AS, (32 << 30, 32 << 30))
trees = [BoxTree(2, "pair", 1 << 24) for _ in range(20)]
for slot, tree in enumerate(trees):
    root = tree.bulk_load(1, entries([Box(0, 0, (0, 0), (9, 9), slot), Box(1, 0, (5, 5), (6, 6), slot)], 2))
    cursor = tree.rows(root, None, (np.array([4, 4]), np.array([7, 7])))
    assert cursor.fill(10).tolist() == [[slot], [slot]], slot
print("open")
"""


def test_twenty_pairs_open_in_little_address_space() -> None:
    """The address space of one follows from its arena and the slots that it has seen, not from those that there can be."""
    done = subprocess.run([sys.executable, "-c", TWENTY], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout == "open\n", done.stderr


def test_slots_that_the_table_of_boxes_did_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows under a reading, which goes on; nothing is lost, and nothing is taken for slots that were skipped."""
    monkeypatch.setattr("structures.box.tree._FEWEST_SLOTS", 1 << 18)
    tree = BoxTree(2, "pair", 1 << 22)
    boxes = [Box(i % 2, 0, (i, 0), (i + 5, 9), i) for i in range(40)]
    root, window = tree.bulk_load(1, entries(boxes, 2)), (np.array([10, 0]), np.array([30, 9]))
    reading, wanted = tree.rows(root, None, window), sorted(pairs("pair", in_window(boxes, (10, 0), (30, 9))))
    begun, later = reading.fill(3), []
    for version, slot in enumerate((2**18, 2**18 + 1, 2**22 + 7), 2):
        later.append(Box(slot % 2, 0, (20, 1), (21, 2), slot))
        root = apply_batch(tree, version, entries([], 2), entries(later[-1:], 2), None)
        found = rows_of(tree.rows(root, None, window))
        assert found == sorted(pairs("pair", in_window(boxes + later, (10, 0), (30, 9))))
    assert tree._boxes.shape[1] < 2**25 and len(tree._boxes[0]) > 2**22
    assert sorted(in_order("pair", np.concatenate((begun, read_all(reading)), axis=1))) == wanted


def test_what_the_structure_is_not_for() -> None:
    for dimensions, kind in ((1, "pair"), (9, "pair"), (2, "list")):
        with pytest.raises(ValueError):
            BoxTree(dimensions, kind)


# --- real boxes


def world(name: str, s: int) -> Entries:
    table = datasets.table(WORLD, name)
    left, right = (np.stack([table[c].to_numpy() for c in columns], axis=1) for columns in (("x1", "y1"), ("x2", "y2")))
    n = len(left)
    return Entries(np.full(n, s, np.uint8), np.zeros(n, np.int32), left, right, table["id"].to_numpy().astype(np.int32))


@pytest.mark.skipif(not JIT, reason="thousands of boxes")
@pytest.mark.parametrize("view", [view["name"] for view in datasets.queries(WORLD)])
def test_the_world(view: str) -> None:
    about = datasets.view(WORLD, view)
    names = [part["table"] for part in about["join"]["from"]]
    kind = "self" if names[0] == names[1] else "pair"
    tree = BoxTree(2, kind, 1 << 26)
    every = world(names[0], 0) if kind == "self" else joined(world(names[0], 0), world(names[1], 1))
    root = tree.bulk_load(1, every.take(slice(0, None, 2)))
    root = apply_batch(tree, 2, every.take(slice(0)), every.take(slice(1, None, 2)), None)
    tree.check(root)
    rows = rows_of(tree.rows(root), kind)
    assert len(rows) == about["rows"] and datasets.checksum(rows) == about["checksum"]


@pytest.mark.skipif(not JIT, reason="thousands of boxes")
def test_the_change_log_of_the_world() -> None:
    """Each view follows the log by its deltas alone."""
    folder = datasets.folder(WORLD)
    expected: dict[str, Any] = json.loads((folder / "changes.expected.json").read_text())
    with gzip.open(folder / "changes.jsonl.gz", "rt") as lines:
        log = [json.loads(line) for line in lines]
    for about in datasets.queries(WORLD):
        names = [part["table"] for part in about["join"]["from"]]
        kind = "self" if names[0] == names[1] else "pair"
        tree = BoxTree(2, kind, 1 << 26)
        rows: set[tuple[int, int]] = set()
        version = 0

        def sink(sign: int, slots: np.ndarray, kind: str = kind, rows: set[tuple[int, int]] = rows) -> bool:
            found = in_order(kind, slots)
            assert rows.isdisjoint(found) if sign > 0 else rows.issuperset(found)
            rows.symmetric_difference_update(found)
            return True

        checkpoints = {point["after_seq"]: point["views"][about["name"]] for point in expected["checkpoints"]}
        for change in log:
            if change["relation"] in names:
                row = change["row"]
                box = Box(names.index(change["relation"]), 0, (row["x1"], row["y1"]), (row["x2"], row["y2"]), row["id"])
                version += 1
                one, none = entries([box], 2), entries([], 2)
                apply_batch(tree, version, *((none, one) if change["op"] == "insert" else (one, none)), sink)
                tree.reclaim(version, NO_PINS)
            if change["seq"] in checkpoints:
                wanted = checkpoints[change["seq"]]
                assert len(rows) == wanted["rows"] and datasets.checksum(rows) == wanted["checksum"]
        tree.check(tree.root)
