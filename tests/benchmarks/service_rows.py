"""Reading views over loopback: rows a second as Arrow, and the first row of results of several sizes."""

from __future__ import annotations

import time

import pyarrow as pa

from tests.benchmarks.data import uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import ARROW, bare_seconds, open_stream
from tests.benchmarks.rivals import DuckDb
from tests.benchmarks.rivals_of_trees import RERUN
from tests.benchmarks.served import PLAIN, Pair, count, gauge, load, serving
from tests.server_process import ServerProcess

TITLE = "The service: reading"
JSONL = "application/jsonl"
SHARE = 0.7  # of the rows that the kernel enumerates
READINGS = 15


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = ((2_000, 2), (20_000, 20)) if scale.quick else ((10_000, 20), (100_000, 20), (1_000_000, 2), (1_000_000, 20))
    figures = []
    for n, partners in sizes:
        workload = uniform(n, partners)
        with serving(scale) as server:
            load(server, PLAIN, workload.entries)
            whole = [read_whole(server, PLAIN) for _ in range(scale.size(5, 2))]
            rows = whole[0][0]
            drained = [rows / drain(server, PLAIN) for _ in range(scale.size(5, 2))]
            part = share(server, PLAIN, scale)
            first = {kind: [1e3 * first_row(server, PLAIN, kind) for _ in range(scale.size(100, 5))] for kind in (ARROW, JSONL)}
        rival = DuckDb(workload.entries, False)
        theirs = [rival.read() for _ in range(3)]
        rival.close()
        name = f"{n:,} intervals, {rows:,} rows"
        note(f"{name}: {max(rows / elapsed for _, elapsed in whole) / 1e6:.1f} M rows/s, first {middle(first[ARROW]):.2f} ms")
        about = {"intervals": n, "rows": rows}
        speed = [Rival("DuckDB", rows / middle([one.all for one in theirs]), f"{RERUN}, in process")]
        soon = [Rival("DuckDB", 1e3 * middle([one.first for one in theirs]), "in process")]
        aim = 10e6 if n == 1_000_000 else None
        part.name, part.aim = f"{name}: {part.name}", SHARE if n == 1_000_000 else None
        figures += [
            part,
            sampled(f"{name}: as Arrow, decoded by the client", [rows / elapsed for _, elapsed in whole], "rows/s", aim=aim, rivals=speed,
                    parameters=about),
            sampled(f"{name}: as Arrow, bytes only", drained, "rows/s", rivals=speed, parameters=about),
            sampled(f"{name}: first row, Arrow", first[ARROW], "ms", aim=10.0, less=True, rivals=soon, parameters=about),
            sampled(f"{name}: first row, JSONL", first[JSONL], "ms", aim=10.0, less=True, rivals=soon, parameters=about),
        ]  # fmt: skip
    return figures


def share(server: ServerProcess, pair: Pair, scale: Scale) -> Figure:
    """Rows a second of reading a view, as a share of the rows a second that its structure enumerates. The service enumerates them for a
    count, so both include a request, and the two alternate. The same share is given for a bare socket."""
    size, _ = drained_bytes(server, pair)
    turns = [(read_whole(server, pair), seconds(lambda: count(server, pair))) for _ in range(scale.size(READINGS, 2))]
    rows = turns[0][0][0]
    own = middle([rows / counted for _, counted in turns])
    bare = middle([rows / bare_seconds(size) for _ in range(scale.size(5, 2))])
    return sampled(
        "as Arrow, decoded, of the rows that the kernel finds",
        [rows / elapsed / own for (_, elapsed), _ in turns],
        "x",
        aim=SHARE,
        rivals=[Rival("bare socket", bare / own, "the same number of bytes, without computing them")],
        note=f"{own / 1e6:.1f} M rows/s, counted by the service",
        parameters={"bytes": size},
    )


def read_whole(server: ServerProcess, pair: Pair) -> tuple[int, float]:
    """Rows, and seconds until the last one was decoded."""
    start = time.perf_counter()
    connection, answer, _ = open_stream(server.port, f"/v1/views/{pair.view}/rows", ARROW)
    with pa.ipc.open_stream(answer) as reader:
        rows = sum(batch.num_rows for batch in reader)
    elapsed = time.perf_counter() - start
    connection.close()
    return rows, elapsed


def drain(server: ServerProcess, pair: Pair) -> float:
    """Seconds until the last byte was received."""
    return drained_bytes(server, pair)[1]


def drained_bytes(server: ServerProcess, pair: Pair) -> tuple[int, float]:
    """Bytes of the body, and seconds until the last one was received."""
    start = time.perf_counter()
    connection, answer, _ = open_stream(server.port, f"/v1/views/{pair.view}/rows", ARROW)
    buffer, size = bytearray(1 << 20), 0
    while received := answer.readinto(buffer):
        size += received
    elapsed = time.perf_counter() - start
    connection.close()
    return size, elapsed


def first_row(server: ServerProcess, pair: Pair, kind: str) -> float:
    """Seconds from the request to the first row; the rest is not read."""
    connection, answer, elapsed = open_stream(server.port, f"/v1/views/{pair.view}/rows", kind)
    answer.close()
    connection.close()
    while gauge(server, "livejoin_pins") > 0:  # the disconnected reader must not slow down the next one
        time.sleep(0.002)
    return elapsed
