"""A join of three relations, and boxes, through the service: batches as Arrow with a follower, rows as Arrow, and how soon a follower has a
change."""

from __future__ import annotations

import http.client
import socket
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa

from structures.ij_heap.heap import Entries, Topology
from tests.benchmarks.boxes import boxes
from tests.benchmarks.data import LINE, Workload
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.heap_data import even, path
from tests.benchmarks.heap_rivals import DuckDbOfMany
from tests.benchmarks.measured_tree import Changes, Note
from tests.benchmarks.raw_client import ARROW, post_all
from tests.benchmarks.rivals_of_trees import BY_HAND
from tests.benchmarks.served import Pair, count, json_change, load, serving
from tests.benchmarks.service_changes import REPEATS, follower
from tests.benchmarks.service_rows import drain, first_row, read_whole, share
from tests.server_process import ServerProcess

TITLE = "The service: a path of 3 relations, 300,000 intervals in all; 2 x 50,000 boxes"
_LIMIT = 60.0  # seconds that a change may take to reach its follower


class Chain(Pair):
    """Three relations; the second one is in the middle."""

    @property
    def relations(self) -> tuple[str, ...]:
        return "a", "b", "c"

    @property
    def sql(self) -> str:
        return "SELECT a.id AS x, b.id AS y, c.id AS z FROM a JOIN b ON overlaps(a.span, b.span) JOIN c ON overlaps(b.span, c.span)"


class Plane(Pair):
    """Boxes of two dimensions."""

    @property
    def definition(self) -> dict[str, object]:
        names = ("x0", "x1", "y0", "y1")
        columns = [{"name": "id", "type": "int64"}, *({"name": name, "type": "int64"} for name in names)]
        intervals = {side: {"start": f"{side}0", "end": f"{side}1", "bounds": "[]"} for side in "xy"}
        return {"columns": columns, "key": ["id"], "intervals": intervals}

    @property
    def sql(self) -> str:
        return f"SELECT a.id AS x, b.id AS y FROM {self.first} a JOIN {self.second} b ON overlaps(a.x, b.x) AND overlaps(a.y, b.y)"

    def rows(self, entries: Entries) -> dict[str, pa.Array]:
        columns = {"id": pa.array(entries.slot.astype(np.int64))}
        for d, side in enumerate("xy"):
            columns |= {f"{side}0": pa.array(entries.left[:, d]), f"{side}1": pa.array(entries.right[:, d])}
        return columns


CHAIN = Chain("a", "b", "chains", False)
PLANE = Plane("p", "q", "meeting", False)


def run(scale: Scale, note: Note) -> list[Figure]:
    return [*chain(scale, note), *plane(scale, note)]


def chain(scale: Scale, note: Note) -> list[Figure]:
    workload = even(3, scale.size(300_000, 3_000), 2)
    batch, batches = scale.size(10_000, 100), 10  # so that all initial rows have been replaced in the end
    changes = Changes(workload)
    by_hand, anew, soon = rivals_of(path(3), workload, batch, note)
    with serving(scale) as server:
        load(server, CHAIN, workload.entries)
        note("loaded")
        figures = reading(server, scale, note, anew, soon)
        figures += posting(server, CHAIN, changes, batch, batches, 50e3, by_hand, note)
        figures += latencies(server, changes.now(), scale, note)
    return figures


def plane(scale: Scale, note: Note) -> list[Figure]:
    workload = boxes(scale.size(100_000, 2_000), 2)
    batch, batches = scale.size(10_000, 100), 3
    by_hand, _, _ = rivals_of(path(2), workload, batch, note)
    with serving(scale) as server:
        load(server, PLANE, workload.entries)
        note("boxes: loaded")
        return posting(server, PLANE, Changes(workload), batch, batches, 25e3, by_hand, note, "boxes: ")


def posting(
    server: ServerProcess, pair: Pair, changes: Changes, batch: int, batches: int, aim: float, by_hand: Rival, note: Note, of: str = ""
) -> list[Figure]:
    """Batches as Arrow over one and over two connections."""
    figures = []
    before = count(server, pair)
    for connections in (1, 2):
        with follower(server, pair):
            samples = []
            for _ in range(REPEATS):
                bodies = [pair.body(*changes.take(batch)) for _ in range(batches)]
                samples.append(batch * batches / post_all(server.port, bodies, connections))
        note(f"{of}{connections} connections, {middle(samples) / 1e3:.0f} k/s beside a follower")
        name = f"{of}batches of {batch:,} as Arrow, {connections} connections, beside a follower who reads JSONL"
        figures.append(sampled(name, samples, "changes/s", aim=aim, rivals=[by_hand]))
    note(f"{of}{before:,} rows before, {count(server, pair):,} after")
    return figures


def rivals_of(topology: Topology, workload: Workload, batch: int, note: Note) -> tuple[Rival, Rival, Rival]:
    """DuckDB on a file: its hand-written delta, its query, and the first rows (ms)."""
    changes = Changes(workload)
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder:
        duckdb = DuckDbOfMany(topology, workload.entries, str(Path(folder) / "rival.db"))
        spent = [duckdb.change(*changes.take(batch)) for _ in range(REPEATS)]
        whole = duckdb.read()
        duckdb.close()
    assert whole is not None and None not in spent, "DuckDB was interrupted"
    rate = batch / middle([done[0] for done in spent])
    note(f"DuckDB {rate / 1e3:.1f} k/s, {whole.rows / whole.all / 1e6:.1f} M rows/s")
    return (
        Rival("DuckDB", rate, f"{BY_HAND}, in process, durable"),
        Rival("DuckDB", whole.rows / whole.all, "runs the query again, in process"),
        Rival("DuckDB", 1e3 * whole.first, "in process"),
    )


def reading(server: ServerProcess, scale: Scale, note: Note, anew: Rival, soon: Rival) -> list[Figure]:
    repeats = scale.size(5, 2)
    whole = [read_whole(server, CHAIN) for _ in range(repeats)]
    rows = whole[0][0]
    assert rows == count(server, CHAIN), "a reading does not have the counted rows"
    decoded = [rows / elapsed for _, elapsed in whole]
    drained = [rows / drain(server, CHAIN) for _ in range(repeats)]
    first = [1e3 * first_row(server, CHAIN, ARROW) for _ in range(scale.size(100, 5))]
    note(f"{rows:,} rows, {middle(decoded) / 1e6:.1f} M rows/s, first {middle(first):.2f} ms")
    about = {"rows": rows}
    return [
        share(server, CHAIN, scale),
        sampled("whole view as Arrow, decoded by the client", decoded, "rows/s", aim=8e6, rivals=[anew], parameters=about),
        sampled("whole view as Arrow, bytes only", drained, "rows/s", rivals=[anew], parameters=about),
        sampled("first row, Arrow", first, "ms", aim=10.0, less=True, rivals=[soon], parameters=about),
    ]


class Follower(threading.Thread):
    """Follows the view from now on, and records when each version was read completely."""

    def __init__(self, server: ServerProcess) -> None:
        super().__init__(daemon=True)
        self._seen: dict[int, float] = {}
        self._news = threading.Condition()
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port)
        self._connection.request("GET", f"/v1/views/{CHAIN.view}/changes")
        self._answer = self._connection.getresponse()

    def run(self) -> None:
        for line in self._answer:
            if b'"op":"progress"' in line[:80]:
                now = time.perf_counter()
                with self._news:
                    self._seen[orjson.loads(line)["version"]] = now
                    self._news.notify_all()

    def wait_for(self, version: int) -> float:
        with self._news:
            assert self._news.wait_for(lambda: version in self._seen, _LIMIT), f"version {version} did not arrive"
            return self._seen[version]

    def __enter__(self) -> Follower:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        assert self._connection.sock is not None
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.join()
        self._connection.close()


def latencies(server: ServerProcess, there: Entries, scale: Scale, note: Note) -> list[Figure]:
    """Milliseconds from a change's answer until a follower has read its version whole (below 0: before the answer).

    One change per request: an interval of b grows long enough to be sure to meet some of a and c, so that each version changes the view.
    """
    middles = there.take(there.set == 1).take(slice(0, scale.size(400, 20)))
    length = 36 * LINE // len(there.key)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=_LIMIT)
    samples = []
    with Follower(server) as reader:
        for key, left in zip(middles.slot.tolist(), middles.left.tolist(), strict=True):
            connection.request("POST", "/v1/changes", json_change("b", key, left, left + length), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            answered = time.perf_counter()
            assert answer.status == 200, text
            samples.append(1e3 * (reader.wait_for(orjson.loads(text)["version"]) - answered))
    connection.close()
    late = sorted(samples)[len(samples) * 99 // 100]
    note(f"a follower has a change {middle(samples):.2f} ms after its answer, {late:.2f} ms at the 99th percentile")
    return [
        sampled("a follower has a change, after its answer", samples, "ms", aim=20.0, less=True, note="below 0: before the answer"),
        Figure("a follower has a change, after its answer, 99th percentile", late, "ms", less=True),
    ]
