"""Dangling rows, which every pairwise plan multiplies and TreeTracker visits once; and cases in which a join tree, which stores the live
rows, is better.

    group         R(x) has n rows that match one group of S(x, y), whose n rows have no match in T(y)
    both ends     half of S is a group that matches R but not T, half one that matches T but not R, so no order of the three helps
    star          C(x, y, z) of n rows, each of which has no match in one of three spokes, and √n matches in the other two
    few live      a path R(x, y), S(y, z), T(z, w) of n rows each, with one row of S in 400 between two partners

Times are processor times of all threads together: most are too short for a clock on a machine that other processes use as well.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from livejoin.wire.batch import UPSERT, Changes, RowBlock
from livejoin.wire.batch import Batch as WireBatch
from livejoin.wire.schema import parse_relation
from service.instance import Instance
from service.reading.cursors import open_rows
from structures.index.indexes import Entries, OrderedIndexes
from structures.tree_tracker.tracker import Member, TreeTracker, index_orders
from tests.benchmarks import natural_path
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.log_plot import Series, log_plot
from tests.benchmarks.measured_natural import ANEW, PLAN, Data, single_changes
from tests.benchmarks.measured_tree import NO_PINS, Note
from tests.benchmarks.natural_rivals import DuckDbNatural, Variables, arrow_whole, select
from tests.structures.batches import apply_steps, follow_steps

TITLE = "TreeTracker: dangling rows, n from 1,000 to 300,000"
ALGORITHMS = ("tree-tracker", "join-tree", "nested-loop")
PATIENCE = 250.0  # ms: whatever takes longer is not measured at larger sizes
LONGEST = 20.0  # seconds for a query
RUN = 1_000

T = TypeVar("T")


def _data(name: str, variables: Variables, columns: Sequence[np.ndarray]) -> Data:
    entries = [Entries(np.ascontiguousarray(one.reshape(len(one), -1)), np.arange(len(one), dtype=np.int32)) for one in columns]
    return Data(name, variables, entries)


def _odd(n: int) -> int:
    """Return an odd value among the even values up to 2 n, so that the ranges of two columns do not show that they have nothing in
    common."""
    return n + 1 - n % 2


def group(n: int) -> Data:
    zeros, even = np.zeros(n, np.int64), 2 * np.arange(n)
    return _data("group", ((0,), (0, 1), (1,)), [zeros, np.column_stack((zeros, even)), zeros + _odd(n)])


def both_ends(n: int) -> Data:
    half = n // 2
    zeros, even = np.zeros(half, np.int64), 2 * np.arange(1, half + 1)
    pairs = np.column_stack((np.concatenate((zeros, even)), np.concatenate((even, zeros))))
    ends = np.concatenate((zeros, zeros + _odd(half)))
    return _data("both ends", ((0,), (0, 1), (1,)), [ends, pairs, ends])


def star(n: int) -> Data:
    third, copies = n // 3, round(n**0.5)
    parts = np.zeros((3, third, 3), np.int64)
    for lacking in range(3):
        parts[lacking, :, lacking] = 2 * np.arange(1, third + 1)
    spoke = np.append(np.zeros(copies, np.int64), _odd(third))
    columns = [parts.reshape(-1, 3), spoke, spoke, spoke]
    return _data("star", ((0, 1, 2), (0,), (1,), (2,)), columns)


CASES: dict[str, Callable[[int], Data]] = {"group": group, "both ends": both_ends, "star": star}


class Engine:
    """The service's engine, in process: a relation t<i> for each atom, and a view for each algorithm."""

    def __init__(self, folder: Path, data: Data, algorithms: Sequence[str]) -> None:
        self._engine, self._variables = Instance(folder), data.variables
        self._engine.recover()
        names = [f"t{i}" for i in range(len(data.variables))]
        self._definitions = []
        for name, own in zip(names, data.variables, strict=True):
            columns = [{"name": column, "type": "int64"} for column in ("s", *(f"v{v}" for v in own))]
            self._definitions.append(parse_relation({"columns": columns, "key": ["s"]}))
            self._engine.put_relation(name, self._definitions[-1])
        self.put(data.entries)
        for algorithm in algorithms:
            definition = {"sql": select(data.variables, names), "algorithm": algorithm, "changes": False}
            self._engine.put_view(algorithm.replace("-", "_"), definition, wait=600)

    def put(self, entries: Sequence[Entries]) -> None:
        """Upsert these rows in one version."""
        parts, count = [], 0
        for i, (one, own, definition) in enumerate(zip(entries, self._variables, self._definitions, strict=True)):
            arrays = [one.slot.astype(np.int64), *(np.ascontiguousarray(one.coordinates[:, j]) for j in range(len(own)))]
            rows = pa.RecordBatch.from_arrays([pa.array(values) for values in arrays], schema=definition.arrow_schema())
            indices = np.arange(count, count + len(rows))
            parts.append(Changes(f"t{i}", definition, np.full(len(rows), UPSERT, np.uint8), RowBlock(rows), indices))
            count += len(rows)
        self._engine.apply(WireBatch(parts, count, 0, [], 0))

    def read(self, algorithm: str) -> tuple[float, int, int]:
        """Milliseconds, rows and look-ups of a reading of the whole view."""
        name = algorithm.replace("-", "_")
        counts = self._engine.views[name].read_counts
        before, rows, start = counts.to_json()["counters"].get("lookups", 0), 0, time.process_time()
        reader = open_rows(self._engine.readers, name)
        while (found := reader.find(1 << 16)) is not None:
            rows += len(found[0])
        reader.close()
        return 1e3 * (time.process_time() - start), rows, counts.to_json()["counters"]["lookups"] - before

    def close(self) -> None:
        self._engine.close()


def timed(work: Callable[[], T]) -> tuple[float, T]:
    """Milliseconds of processor time of all threads, and the result."""
    start = time.process_time()
    result = work()
    return 1e3 * (time.process_time() - start), result


@contextmanager
def engine_of(data: Data, algorithms: Sequence[str] = ALGORITHMS) -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder:
        engine = Engine(Path(folder) / "data", data, algorithms)
        try:
            yield engine
        finally:
            engine.close()


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [300, 1_000] if scale.quick else [1_000, 3_000, 10_000, 30_000, 100_000, 300_000]
    figures = []
    for make in CASES.values():
        patient = [*ALGORITHMS, "DuckDB", "Arrow"]
        for n in sizes:
            found = dangling(make(n), n, patient, scale, note)
            patient = ["tree-tracker", *(one.name for one in found[0].rivals if one.value <= PATIENCE)]
            figures += found
    return [*figures, *few_live(scale, note), one_by_one(scale, note)]


def dangling(data: Data, n: int, asked: Sequence[str], scale: Scale, note: Note) -> list[Figure]:
    """Measure a reading by each of these algorithms and rivals."""
    times, algorithms = scale.size(3, 1), [one for one in ALGORITHMS if one in asked]
    with engine_of(data, algorithms) as engine:
        spent = {one: [engine.read(one) for _ in range(times)] for one in algorithms}
    (_, rows, look_ups), *_ = spent["tree-tracker"]
    assert all(found[1] == rows for one in spent.values() for found in one)
    rivals = [Rival(one, middle([found[0] for found in spent[one]])) for one in algorithms[1:]]
    if "DuckDB" in asked:
        duck = DuckDbNatural(data.variables, data.entries)
        elapsed, theirs = timed(lambda: duck.read_within(LONGEST))
        assert theirs is None or theirs.rows == rows
        about = "interrupted" if theirs is None else f"its joins produce {duck.joined():,} rows"
        rivals.append(Rival("DuckDB", elapsed, f"{ANEW}, {about}"))
        duck.close()
    if "Arrow" in asked:
        rivals.append(Rival("Arrow", timed(lambda: arrow_whole(data.variables, data.entries))[0], PLAN))
    mine = [found[0] for found in spent["tree-tracker"]]
    note(f"{data.name}, {n:,}: {middle(mine):.3g} ms, {look_ups:,} look-ups, {[f'{one.name} {one.value:.3g}' for one in rivals]}")
    parameters = {"series": data.name, "n": n, "rows": rows, "look-ups": look_ups}
    name, most, per_tuple = f"{data.name}, n = {n:,}", len(data.variables) - 1, look_ups / (data.n + rows)
    return [
        sampled(f"{name}: a reading", mine, "ms", less=True, rivals=rivals, parameters=parameters | {"kind": "ms"}),
        Figure(f"{name}: look-ups per tuple and row", per_tuple, "", aim=most, less=True, parameters=parameters),
    ]


def few_live(scale: Scale, note: Note) -> list[Figure]:
    """Measure repeated readings, also after changes: TreeTracker visits the dangling rows each time."""
    n = scale.size(100_000, 2_000)
    data = natural_path.path(3 * n, dangling=True)
    rng, figures = np.random.default_rng(17), list[Figure]()
    duck = DuckDbNatural(data.variables, data.entries)
    with engine_of(data) as engine:
        for k in (0, 1, 100, scale.size(10_000, 500)):
            of_each = [one.take(rng.permutation(n)[: (k + 2 - i) // 3]) for i, one in enumerate(data.entries)]
            inserted = [one._replace(coordinates=rng.permutation(one.coordinates)) for one in of_each]
            if k:
                engine.put(inserted)
                duck.change(list(zip(of_each, inserted, strict=True)))
                for one, some in zip(data.entries, inserted, strict=True):
                    one.coordinates[some.slot] = some.coordinates
            times = scale.size(5, 1)
            spent = {one: [engine.read(one) for _ in range(times)] for one in ALGORITHMS}
            theirs = [timed(duck.read) for _ in range(times)]
            (_, rows, look_ups), *_ = spent["tree-tracker"]
            assert all(found[1] == rows for one in spent.values() for found in one) and theirs[0][1].rows == rows
            mine, *others = (middle([found[0] for found in spent[one]]) for one in ALGORITHMS)
            rivals = [Rival(one, spent) for one, spent in zip(ALGORITHMS[1:], others, strict=True)]
            rivals.append(Rival("DuckDB", middle([elapsed for elapsed, _ in theirs]), ANEW))
            name = f"path of 3 x {n:,}, {rows:,} rows: a reading after {k:,} changes"
            note(f"{name}: {mine:.3g} ms, {[f'{one.name} {one.value:.3g}' for one in rivals]}")
            figures.append(Figure(name, mine, "ms", less=True, rivals=rivals, note=f"{look_ups:,} look-ups"))
    duck.close()
    return figures


class Live:
    """The structure with its own indexes."""

    def __init__(self, data: Data) -> None:
        self.indexes, self.version, edges = OrderedIndexes(), 1, [(0, 1), (1, 2)]
        self.indexes.begin(1)
        self._variables, atoms = data.variables, []
        for own, orders, entries in zip(data.variables, index_orders(data.variables, edges), data.entries, strict=True):
            atoms.append(tuple(Member(self.indexes.add(len(order)), order) for order in orders))
            for member in atoms[-1]:
                self.indexes.load(member.index, self._by(own, member, entries))
        self.atoms, self.tree = atoms, TreeTracker(self.indexes, atoms, edges)

    def _by(self, own: tuple[int, ...], member: Member, entries: Entries) -> Entries:
        return Entries(np.ascontiguousarray(entries.coordinates[:, [own.index(v) for v in member.variables]]), entries.slot)

    def singles(self, positions: np.ndarray, signs: np.ndarray, entries: Entries) -> int:
        """Apply changes one by one, with their deltas; return the rows of these deltas."""
        rows = 0
        for first in range(0, len(signs), RUN):
            self.version += 1
            self.indexes.begin(self.version)
            parts = []  # number of the change, index, entries
            for position, (own, atom) in enumerate(zip(self._variables, self.atoms, strict=True)):
                mine = first + np.flatnonzero(positions[first : first + RUN] == position)
                parts += [(mine, np.full(len(mine), member.index), self._by(own, member, entries.take(mine))) for member in atom]
            numbers = np.concatenate([part[0] for part in parts])
            order = np.argsort(numbers, kind="stable")
            joined = Entries(np.concatenate([part[2].coordinates for part in parts]), np.concatenate([part[2].slot for part in parts]))
            index = np.concatenate([part[1] for part in parts])[order]
            run = apply_steps(self.indexes, index, signs[numbers[order]], joined.take(order), numbers[order])
            rows += sum(found.shape[1] for found in follow_steps(self.tree, run, 1 << 20).values())
            self.indexes.reclaim(self.version, NO_PINS)
        return rows


def one_by_one(scale: Scale, note: Note) -> Figure:
    """Measure runs of single changes with their deltas."""
    data = natural_path.path(scale.size(100_000, 1_200))
    part = scale.size(20_000, 30)
    rng = np.random.default_rng(4)
    of_each = [one.take(rng.permutation(len(one.slot))[:part]) for one in data.entries]
    mine, rows = single_changes(Live(data), of_each, np.random.default_rng(5))
    theirs, same = single_changes(natural_path.Live(data), of_each, np.random.default_rng(5))
    assert rows == same
    note(f"one by one: {mine:,.0f} changes/s; join-tree {theirs:,.0f}")
    return Figure(f"{data.name}: single changes with delta, indexes included", mine, "changes/s", rivals=[Rival("join-tree", theirs)])


def plot(figures: list[Figure]) -> str:
    """Plot milliseconds of a reading against n, for each algorithm and case, as SVG."""
    series: dict[str, Series] = {}
    for figure in figures:
        if figure.parameters.get("kind") == "ms" and figure.parameters["series"] != "group":
            for rival in (Rival("tree-tracker", figure.value), *figure.rivals):
                name = f"{figure.parameters['series']}: {rival.name}"
                one = series.setdefault(name, Series(name, [], []))
                one.x.append(figure.parameters["n"])
                one.y.append(rival.value)
    return log_plot("Dangling rows: a reading", "n", "ms of the processor", list(series.values()))
