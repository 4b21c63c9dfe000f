"""Counted groups in the kernel: COUNT, SUM of values and SUM of lengths in common by key of overlaps, and SUM of a star of three relations.
The rivals are DuckDB, which groups all rows, and SQLite, which keeps a table of counts and sums. Counts maintained in PostgreSQL are not
among them, because it is not a dependency of the tests."""

from __future__ import annotations

import sqlite3

import numpy as np

from structures.aggregate import layout
from structures.aggregate.amounts import Amounts, Measures
from structures.aggregate.groups import Groups, Step
from structures.aggregate.products import Members, Products
from structures.core.encoding import NEG_INF, POS_INF
from structures.core.entries import Entries
from structures.event_tree.counting import COMMON, DELETE, INSERT, MEASURE, OWN, THEIRS, Counting, EventChanges
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note

TITLE = "Counted groups in the kernel: overlaps by key, single and adversarial changes; a star of three, singles and batches"
REPEATS, RUN = 5, 1_000
MOST = 10**6  # of a value


def run(scale: Scale, note: Note) -> list[Figure]:
    return [*overlaps(scale, note, False), *overlaps(scale, note, True), hostile(scale, note), *star(scale, note)]


def accumulators(groups: int) -> Groups:
    """COUNT(*) and SUM of a value of the first relation."""
    steps = Step()
    word = steps.of(layout.INT_SUM, 0)
    return Groups(steps, [(layout.OF_ROWS, 0, 0, 0, 1), (layout.OF_INT_SUM, word, layout.ROWS, 0, 1)], 4, groups)


def overlaps(scale: Scale, note: Note, of_lengths: bool) -> list[Figure]:
    """Insert and delete rows of both sides, one per version, and read each changed group. `of_lengths`: sums lengths in common."""
    n, keys = scale.size(500_000, 5_000), scale.size(100_000, 1_000)
    rng = np.random.default_rng(7)
    counting = Counting((1, 1), ([(COMMON, -1)],) * 2) if of_lengths else Counting((1, 0), ([(OWN, 0)], [(THEIRS, 0)]))
    inputs = [_intervals(rng, n, keys), _intervals(rng, n, keys)]
    values = rng.integers(-MOST, MOST, n)
    weights = values.reshape(n, 1)
    counting.load(inputs[0], inputs[1], (weights, np.zeros((n, counting.weights[1]), np.int64)))
    groups = accumulators(keys)
    groups.begin()
    _add(groups, inputs[0].key, np.full(n, MEASURE, np.int8), counting.follow(_changes(inputs[0], 0, MEASURE, weights)), None)
    rates = []
    for _ in range(REPEATS):
        spent, made = 0.0, scale.size(100, 5)
        for _ in range(made):
            at, input = rng.choice(n, RUN, replace=False), int(rng.integers(0, 2))
            some = inputs[input].take(at)
            for kind in (DELETE, INSERT):
                changes = _changes(some, input, kind, weights[at])
                spent += seconds(lambda changes=changes: _followed(groups, counting, changes))  # type: ignore[misc]
        rates.append(2 * RUN * made / spent)
    summed, what = ("least(a.e, b.e) - greatest(a.s, b.s)", "SUM of lengths in common") if of_lengths else ("a.v", "SUM")
    rival = regrouped(inputs, values, summed)
    note(f"COUNT, {what} of overlaps by key: {middle(rates) / 1e3:.0f} k/s; DuckDB groups all rows again in {rival:.3f} s")
    rivals = [Rival("DuckDB from scratch", 1 / rival, "groups all rows once; each change would cost as much")]
    name = f"COUNT, {what} by {keys:,} keys of overlaps: single changes, each emitted, in the kernel"
    return [sampled(name, rates, "changes/s", aim=None if of_lengths else 250e3, rivals=rivals, parameters={"rows": 2 * n})]


def hostile(scale: Scale, note: Note) -> Figure:
    """Insert and delete an interval that all rows of a group meet."""
    n = scale.size(1_000_000, 5_000)
    rng = np.random.default_rng(8)
    counting, groups = Counting((1, 0), ([(OWN, 0)], [(THEIRS, 0)])), accumulators(1)
    rows = _intervals(rng, n, 1)
    weights = rng.integers(-MOST, MOST, (n, 1))
    counting.load(rows, rows.take(np.empty(0, np.int64)), (weights, np.zeros((0, 0), np.int64)))
    one = Entries(np.ones(1, np.uint8), np.zeros(1, np.int32), np.array([NEG_INF]), np.array([POS_INF]), np.zeros(1, np.int32))
    samples = []
    for number in range(scale.size(4_000, 40)):
        changes = _changes(one, 1, DELETE if number % 2 else INSERT, np.zeros((1, 1), np.int64))
        samples.append(1e6 * seconds(lambda changes=changes: _followed(groups, counting, changes)))  # type: ignore[misc]
        assert groups.rows[0] == (0 if number % 2 else n)
    note(f"hostile: {middle(samples):.1f} µs")
    name = f"COUNT, SUM of overlaps: an interval that {n:,} rows meet, inserted or deleted, in the kernel"
    return sampled(name, samples, "µs", aim=20, less=True, parameters={"rows": n})


def star(scale: Scale, note: Note) -> list[Figure]:
    """Three relations, joined on one key."""
    n, keys = scale.size(333_333, 3_000), scale.size(100_000, 1_000)
    rng = np.random.default_rng(9)
    products, groups = Products(3, [(0, 0)], keys), accumulators(keys)
    members = Members(
        np.ones(3 * n, np.int8), np.repeat(np.arange(3, dtype=np.int8), n), rng.integers(0, keys, 3 * n).astype(np.int32),
        rng.integers(-MOST, MOST, (3 * n, 1)),
    )  # fmt: skip
    _multiplied(groups, products, members, False)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for singles in (True, False):
        for _ in range(REPEATS):
            spent, made = 0.0, scale.size(100, 5)
            for _ in range(made):
                at = rng.choice(3 * n, RUN, replace=False)
                for sign in (-1, 1):
                    some = Members(np.full(RUN, sign, np.int8), *(column[at] for column in members[1:]))
                    spent += seconds(lambda some=some, singles=singles: _multiplied(groups, products, some, singles))  # type: ignore[misc]
            rates[singles].append(2 * RUN * made / spent)
    rival = kept_by_sqlite(members, scale.size(50_000, 1_000))
    note(f"star: {middle(rates[True]) / 1e3:.0f} k/s singles, {middle(rates[False]) / 1e3:.0f} k/s batches; SQLite {rival / 1e3:.0f} k/s")
    rivals, of = [Rival("SQLite, a kept table", rival, "counts and sums by key, in memory")], f"SUM by {keys:,} keys, star of three"
    return [
        sampled(f"{of}: {what}, in the kernel", rates[singles], "changes/s", aim=aim, rivals=rivals, parameters={"rows": 3 * n})
        for what, singles, aim in (("single changes, each emitted", True, 300e3), (f"batches of {RUN:,}", False, 1e6))
    ]


def _intervals(rng: np.random.Generator, n: int, keys: int) -> Entries:
    left = rng.integers(0, 1_000_000, n)
    key = rng.integers(0, keys, n).astype(np.int32)
    return Entries(np.zeros(n, np.uint8), key, left, left + rng.integers(0, 400_000, n), np.arange(n, dtype=np.int32))


def _changes(some: Entries, input: int, kind: int, weights: np.ndarray) -> EventChanges:
    n = len(some.slot)
    former = np.full(n, -1, np.int32)
    kinds, inputs = np.full(n, kind, np.int8), np.full(n, input, np.int8)
    return EventChanges(kinds, inputs, some.key, some.left, some.right, some.slot, former, np.ascontiguousarray(weights))


def _followed(groups: Groups, counting: Counting, changes: EventChanges) -> None:
    _add(groups, changes.key, changes.kind, counting.follow(changes), np.arange(1, len(changes.kind) + 1))


def _add(groups: Groups, keys: np.ndarray, kinds: np.ndarray, measured: Measures, ends: np.ndarray | None) -> None:
    groups.add_amounts(Amounts(keys, np.where(kinds == DELETE, -1, 1).astype(np.int8), *measured), ends)


def _multiplied(groups: Groups, products: Products, members: Members, singles: bool) -> None:
    measured = products.follow(members)
    groups.begin()
    codes = groups.add_amounts(Amounts(members.keys, members.signs, *measured), np.arange(1, len(members.keys) + 1) if singles else None)[0]
    if not singles:
        groups.emit(codes)


def regrouped(inputs: list[Entries], values: np.ndarray, summed: str) -> float:
    """Seconds in which DuckDB joins and groups all rows, and sums this expression."""
    import duckdb
    import pyarrow as pa

    with duckdb.connect() as other:
        for name, input in zip("ab", inputs, strict=True):
            other.register(f"given_{name}", pa.table({"k": input.key, "s": input.left, "e": input.right, "v": values}))
            other.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
        grouped = f"SELECT a.k, count(*), sum({summed}) FROM a JOIN b ON a.k = b.k AND a.s <= b.e AND b.s <= a.e GROUP BY a.k"
        query = f"SELECT count(*) FROM ({grouped})"
        return min(seconds(lambda: other.execute(query).fetchall()) for _ in range(3))


def kept_by_sqlite(members: Members, changes: int) -> float:
    """Changes a second of a table with the counts and the sum of each key; after each change, the row of the group is read."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("CREATE TABLE kept (k INTEGER PRIMARY KEY, n0 INTEGER, n1 INTEGER, n2 INTEGER, s INTEGER)")
    keys = np.unique(members.keys)
    counts = [np.bincount(members.keys[members.roles == role], minlength=int(keys[-1]) + 1) for role in range(3)]
    sums = np.bincount(members.keys, np.where(members.roles == 0, members.weights[:, 0], 0), int(keys[-1]) + 1).astype(np.int64)
    db.executemany("INSERT INTO kept VALUES (?, ?, ?, ?, ?)", [(k, *(int(one[k]) for one in counts), int(sums[k])) for k in keys.tolist()])
    some = list(zip(members.roles[:changes].tolist(), members.keys[:changes].tolist(), members.weights[:changes, 0].tolist(), strict=True))

    def change() -> None:
        for sign in (-1, 1):
            for role, key, value in some:
                more = value if role == 0 else 0
                db.execute(f"UPDATE kept SET n{role} = n{role} + ?, s = s + ? WHERE k = ?", (sign, sign * more, key))
                db.execute("SELECT n0 * n1 * n2, s * n1 * n2 FROM kept WHERE k = ?", (key,)).fetchall()

    return 2 * len(some) / seconds(change)
