"""Ad hoc SQL: counting a view's rows by group, compared with reading the same column as Arrow in process; and the minimum cost of a
query."""

from __future__ import annotations

import time

import httpx
import numpy as np
import pyarrow as pa

from service.instance import Instance
from service.reading.cursors import open_rows
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import post_all
from tests.benchmarks.served import LOAD, serving
from tests.server_process import ServerProcess

TITLE = "The service: ad hoc SQL"
AIM = 1.5  # times reading in process
GROUPS = 1000
PARTNERS = 10
CHUNK = 65_536  # rows of a reading in process

DEFINITION = {
    "columns": [{"name": name, "type": "int64"} for name in ("id", "g", "s", "e")],
    "key": ["id"],
    "intervals": {"span": {"start": "s", "end": "e"}},
}
VIEW = "SELECT a.id AS x, a.g AS g, b.id AS y FROM a JOIN b ON overlaps(a.span, b.span)"
QUERY = "SELECT g, count(*) AS n FROM pairs GROUP BY g"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 20_000)  # rows of each relation
    repeats = scale.size(5, 2)
    with serving(scale) as server:
        load(server, n)
        with httpx.Client(base_url=server.url, timeout=600) as client:
            rows = int(client.get("/v1/views/pairs/count").json()["count"])
            note(f"loaded: {rows:,} rows of the view")
            cold = seconds(lambda: ask(client, "SELECT 1 AS a"))
            time.sleep(scale.size(3, 1))  # the next child is ready
            warm = []
            for _ in range(repeats):
                warm.append(seconds(lambda: ask(client, "SELECT 1 AS a")))
                time.sleep(scale.size(2, 1))
            counted = []
            for _ in range(repeats):
                counted.append(seconds(lambda: ask(client, QUERY)))
                time.sleep(scale.size(2, 1))
        note(f"SELECT 1: {cold:.3f} s, with a child in reserve {middle(warm):.3f} s; by group {middle(counted):.2f} s")
        server.stop()
        alone = reading(server, repeats, rows)
    note(f"read in process: {middle(alone):.2f} s")
    about = {"rows": rows, "groups": GROUPS}
    return [
        Figure("count by group of a view, in times of reading its column in process", middle(counted) / middle(alone), "times", aim=AIM,
               less=True, parameters=about, note=f"{middle(counted):.2f} s and {middle(alone):.2f} s"),
        sampled("count by group of a view", counted, "s", less=True, rivals=[Rival("reading its column in process", middle(alone))],
                parameters=about),
        sampled("SELECT 1, with a child in reserve", warm, "s", less=True, rivals=[Rival("without", cold)]),
    ]  # fmt: skip


def ask(client: httpx.Client, sql: str) -> None:
    answer = client.post("/v1/query", json={"sql": sql}, headers={"Accept": "application/vnd.apache.arrow.stream"})
    answer.raise_for_status()
    with pa.ipc.open_stream(answer.content) as reader:
        reader.read_all()


def load(server: ServerProcess, n: int) -> None:
    rng = np.random.default_rng(20)
    line = n * 100
    length = PARTNERS * line // (2 * n)
    with httpx.Client(base_url=server.url, timeout=600) as client:
        bodies = []
        for name in ("a", "b"):
            client.put(f"/v1/relations/{name}", json=DEFINITION).raise_for_status()
            for first in range(0, n, LOAD):
                ids = np.arange(first, min(first + LOAD, n))
                start = rng.integers(0, line, len(ids))
                end = start + rng.integers(1, 2 * length, len(ids))
                columns = {"id": ids, "g": rng.integers(0, GROUPS, len(ids)), "s": start, "e": end}
                batch = pa.RecordBatch.from_pydict(columns, metadata={"livejoin.relation": name})
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
                bodies.append(sink.getvalue().to_pybytes())
        post_all(server.port, bodies, 1)
        client.put("/v1/views/pairs", json={"sql": VIEW}).raise_for_status()
        while client.get("/v1/views/pairs").json()["state"] != "live":
            time.sleep(0.05)


def reading(server: ServerProcess, repeats: int, rows: int) -> list[float]:
    """Seconds to read the column of the view as Arrow in this process, from the same folder."""
    engine = Instance(server.data)
    try:
        engine.recover()
        while engine.views["pairs"].state != "live":
            time.sleep(0.05)
        return [seconds(lambda: read(engine, rows)) for _ in range(repeats)]
    finally:
        engine.close()


def read(engine: Instance, rows: int) -> None:
    reader, found = open_rows(engine.readers, "pairs", columns=["g"]), 0
    while (batch := reader.read(CHUNK)) is not None:
        found += batch.num_rows
    reader.close()
    assert found == rows
