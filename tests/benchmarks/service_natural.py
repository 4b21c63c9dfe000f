"""Natural joins through the service, a star, a path and a triangle: batches as Arrow, the first row, the whole view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import httpx
import numpy as np
import pyarrow as pa

from structures.index.indexes import Entries
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.natural_rivals import Batch, DuckDbNatural, Variables
from tests.benchmarks.raw_client import ARROW, post_all
from tests.benchmarks.rivals_of_trees import BY_HAND
from tests.benchmarks.served import LOAD, Pair, count, serving
from tests.benchmarks.service_changes import REPEATS, follower
from tests.benchmarks.service_rows import drain, first_row, share
from tests.server_process import ServerProcess

TITLE = "The service: natural joins of three relations, 300,000 tuples in all (the triangle 100,000)"
AIM = 100e3


class Join(NamedTuple):
    """Atom i is the relation t<i>, its variable v the column v<v>, and an id."""

    name: str
    variables: Variables
    rows: int  # of each relation
    values: int  # of each variable

    @property
    def pair(self) -> Pair:
        """What the readers of views go by."""
        return Pair("t0", "t1", self.name, False)

    @property
    def sql(self) -> str:
        equal = []
        for v in sorted({v for own in self.variables for v in own}):
            having = [i for i, own in enumerate(self.variables) if v in own]
            equal += [f"t{i}.v{v} = t{having[0]}.v{v}" for i in having[1:]]
        columns = ", ".join(f"t{i}.id AS s{i}" for i in range(len(self.variables)))
        return f"SELECT {columns} FROM {', '.join(f't{i}' for i in range(len(self.variables)))} WHERE {' AND '.join(equal)}"

    def drawn(self, rng: np.random.Generator, first: int, count: int) -> list[Entries]:
        """This number of rows of each relation, with ids from `first` on."""
        ids = np.arange(first, first + count, dtype=np.int32)
        return [Entries(rng.integers(0, self.values, (count, len(own))), ids) for own in self.variables]

    def body(self, batch: Batch) -> bytes:
        """As Arrow: first all deletes, then the rest."""
        sink = pa.BufferOutputStream()
        for position in range(2):
            for i, (own, both) in enumerate(zip(self.variables, batch, strict=True)):
                entries = both[position]
                columns = {"id": pa.array(entries.slot.astype(np.int64))}
                if position:
                    columns |= {f"v{v}": pa.array(np.ascontiguousarray(entries.coordinates[:, j])) for j, v in enumerate(own)}
                else:
                    columns["_op"] = pa.array(["delete"] * len(entries.slot))
                if len(entries.slot):
                    rows = pa.RecordBatch.from_pydict(columns, metadata={"livejoin.relation": f"t{i}"})
                    with pa.ipc.new_stream(sink, rows.schema) as writer:
                        writer.write_batch(rows)
        return sink.getvalue().to_pybytes()


class Changes:
    """Batches of which half deletes existing rows and half inserts new ones; the oldest rows are deleted first."""

    def __init__(self, join: Join) -> None:
        self._join, self._rng = join, np.random.default_rng(5)
        self.there = join.drawn(self._rng, 0, join.rows)
        self._next = join.rows

    def take(self, size: int) -> Batch:
        each = size // (2 * len(self.there))
        new = self._join.drawn(self._rng, self._next, each)
        self._next += each
        batch = [(old.take(np.arange(each)), inserted) for old, inserted in zip(self.there, new, strict=True)]
        rest = np.arange(each, self._join.rows)
        self.there = [
            Entries(np.concatenate((old.coordinates[rest], inserted.coordinates)), np.concatenate((old.slot[rest], inserted.slot)))
            for old, inserted in zip(self.there, new, strict=True)
        ]
        return batch


def joins(scale: Scale) -> list[Join]:
    many, few = scale.size(100_000, 1_000), scale.size(33_333, 1_000)
    return [
        Join("star", ((0,), (0,), (0,)), many, many // 2),
        Join("path", ((0, 1), (1, 2), (2, 3)), many, many // 2),
        Join("triangle", ((0, 1), (1, 2), (0, 2)), few, few // 10),
    ]


def run(scale: Scale, note: Note) -> list[Figure]:
    return [figure for join in joins(scale) for figure in measure(join, scale, note)]


def measure(join: Join, scale: Scale, note: Note) -> list[Figure]:
    batch, batches = scale.size(10_000, 120), scale.size(20, 4)
    changes = Changes(join)
    by_hand, anew, soon = rivals_of(join, changes.there, batch)
    with serving(scale) as server:
        algorithm = load(server, join, changes.there)
        name = f"{join.name} by {algorithm}"
        note(f"{name}: loaded")
        before = count(server, join.pair)
        part = share(server, join.pair, scale)
        part.name, part.aim = f"{name}: {part.name}", part.aim if before > 100_000 else None
        drained = [before / drain(server, join.pair) for _ in range(scale.size(5, 2))]
        first = [1e3 * first_row(server, join.pair, ARROW) for _ in range(scale.size(100, 5))]
        note(f"{name}: {before:,} rows, {middle(drained) / 1e6:.1f} M rows/s, first {middle(first):.2f} ms")

        def rates(connections: int) -> list[float]:
            samples = []
            for _ in range(REPEATS):
                bodies = [join.body(changes.take(batch)) for _ in range(batches)]
                samples.append(batch // 6 * 6 * batches / post_all(server.port, bodies, connections))
            note(f"{name}: {connections} connections, {middle(samples) / 1e3:.0f} k/s")
            return samples

        one, four = rates(1), rates(4)
        with follower(server, join.pair):
            followed = rates(2)
    batched = f"{name}: batches of {batch:,} as Arrow"
    return [
        part,
        sampled(f"{batched}, 1 connection", one, "changes/s", aim=AIM, rivals=[by_hand]),
        sampled(f"{batched}, 4 connections", four, "changes/s", aim=AIM, rivals=[by_hand]),
        sampled(f"{batched}, 2 connections, beside a follower who reads JSONL", followed, "changes/s", rivals=[by_hand]),
        sampled(f"{name}: first row, Arrow", first, "ms", aim=10.0, less=True, rivals=[soon]),
        sampled(f"{name}: whole view as Arrow, bytes only", drained, "rows/s", rivals=[anew], note=f"{before:,} rows"),
    ]


def load(server: ServerProcess, join: Join, there: Sequence[Entries]) -> str:
    """Register the relations, load them, and build the view. Return the algorithm that maintains it."""
    nothing = there[0].take(np.arange(0))
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for i, own in enumerate(join.variables):
            columns = [{"name": name, "type": "int64"} for name in ("id", *(f"v{v}" for v in own))]
            client.put(f"/v1/relations/t{i}", json={"columns": columns, "key": ["id"]}).raise_for_status()
        for at in range(0, join.rows, LOAD):
            rows = np.arange(at, min(at + LOAD, join.rows))
            post_all(server.port, [join.body([(nothing, entries.take(rows)) for entries in there])], 1)
        answer = client.put(f"/v1/views/{join.name}", json={"sql": join.sql}).raise_for_status()
        while (shown := client.get(f"/v1/views/{join.name}").json())["state"] != "live":
            assert shown["state"] == "building", shown
        return str(answer.json()["plan"]["algorithm"])


def rivals_of(join: Join, there: Sequence[Entries], batch: int) -> tuple[Rival, Rival, Rival]:
    """DuckDB: its hand-written delta, its query, and the first rows (ms)."""
    duckdb = DuckDbNatural(join.variables, there)
    whole = duckdb.read()
    changes = Changes(join)
    spent = [duckdb.change(changes.take(batch))[0] for _ in range(REPEATS)]
    duckdb.close()
    return (
        Rival("DuckDB", batch / middle(spent), f"{BY_HAND}, in process, not durable"),
        Rival("DuckDB", whole.rows / whole.all, "runs the query again, in process"),
        Rival("DuckDB", 1e3 * whole.first, "in process"),
    )
