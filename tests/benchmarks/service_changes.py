"""Batches of 10,000 changes as Arrow over loopback, with a fully durable log, and the view's changes kept for followers."""

from __future__ import annotations

import http.client
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from structures.core.entries import Entries
from tests.benchmarks.data import LINE, ROOMS, Workload, keyed, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Changes, Note
from tests.benchmarks.raw_client import post_all
from tests.benchmarks.rivals import DuckDb, changes_a_second
from tests.benchmarks.rivals_of_trees import BY_HAND
from tests.benchmarks.served import PLAIN, ROOM, Pair, count, empty_server, load, serving
from tests.server_process import ServerProcess

TITLE = "The service: batches of 10,000 changes as Arrow, durable when acknowledged"

REPEATS = 3


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 20_000)
    plain = (PLAIN, uniform(n, 2), 200e3)
    room = (ROOM, keyed(n, 2, scale.size(ROOMS, 1_000)), 150e3)
    return [figure for pair, workload, aim in (plain, room) for figure in measure(pair, workload, aim, scale, note)]


def measure(pair: Pair, workload: Workload, aim: float, scale: Scale, note: Note) -> list[Figure]:
    batch, batches = scale.size(10_000, 500), scale.size(20, 4)
    changes = Changes(workload)
    name = f"{'rooms' if pair.keyed else 'pairs'}, {len(workload.entries.key):,} intervals"
    rivals = rivals_of(pair, workload, batch, batches)
    note(f"{name}: {', '.join(f'{rival.name} {rival.value / 1e3:.0f} k/s' for rival in rivals)}")
    with serving(scale) as server:
        load(server, pair, workload.entries)
        note(f"{name}: loaded")

        def rates(connections: int) -> list[float]:
            samples = []
            for _ in range(REPEATS):
                bodies = [pair.body(*changes.take(batch)) for _ in range(batches)]
                samples.append(batch * batches / post_all(server.port, bodies, connections))
            note(f"{name}: {connections} connections, {middle(samples) / 1e3:.0f} k/s")
            return samples

        half = "half deletes, half inserts"
        one, four = rates(1), rates(4)
        with follower(server, pair):
            followed = rates(2)
        moved = moves(server, pair, changes.untouched(), batch, batches)
        note(f"{name}: moves {middle(moved) / 1e3:.0f} k/s, {count(server, pair):,} rows at the end")
    return [
        sampled(f"{name}: {half}, 1 connection", one, "changes/s", aim=aim, rivals=rivals),
        sampled(f"{name}: {half}, 4 connections", four, "changes/s", aim=aim, rivals=rivals),
        sampled(f"{name}: {half}, 2 connections, beside a follower who reads JSONL", followed, "changes/s"),
        sampled(f"{name}: upserts that move an interval (a delete and an insert each), 4 connections", moved, "changes/s"),
    ]


def moves(server: ServerProcess, pair: Pair, there: Entries, batch: int, batches: int) -> list[float]:
    """Upserts that move randomly chosen intervals of these to random positions."""
    rng = np.random.default_rng(7)
    samples = []
    for _ in range(REPEATS):
        bodies = []
        for _ in range(batches):
            chosen = there.take(rng.choice(len(there.key), batch, replace=False))
            left = rng.integers(0, LINE, batch)
            bodies.append(pair.body(None, chosen._replace(left=left, right=left + chosen.right - chosen.left)))
        samples.append(batch * batches / post_all(server.port, bodies, 4))
    return samples


def rivals_of(pair: Pair, workload: Workload, batch: int, batches: int) -> list[Rival]:
    """DuckDB on a file, and an empty handler that receives the same bodies."""
    changes = Changes(workload)
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder:
        rival = DuckDb(workload.entries, pair.keyed, str(Path(folder) / "rival.db"))
        theirs = middle(changes_a_second(rival, [changes.take(batch) for _ in range(REPEATS)]))
        rival.close()
    with empty_server() as (port, _):
        bodies = [pair.body(*changes.take(batch))] * batches
        floor = batch * len(bodies) / post_all(port, bodies, 4)
    return [Rival("DuckDB", theirs, f"{BY_HAND}, in process, durable"), Rival("empty handler", floor, "receives the same, discards it")]


@contextmanager
def follower(server: ServerProcess, pair: Pair) -> Iterator[None]:
    """A follower that reads the view's changes as fast as they arrive. Raises AssertionError if the feed has disconnected it."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", f"/v1/views/{pair.view}/changes")
    answer = connection.getresponse()
    tail = b""

    def read() -> None:
        nonlocal tail
        with suppress(OSError, http.client.HTTPException):
            while chunk := answer.read1(1 << 16):
                tail = chunk

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        thread.join()
        connection.close()
    assert b'"op":"error"' not in tail, tail[-500:]
