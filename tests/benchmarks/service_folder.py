"""The data folder: how soon it can be read after a start, how long a stop takes, how much a backup slows the writer down, and how much is
written per change."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

from tests.benchmarks.data import ROOMS, keyed
from tests.benchmarks.figures import Figure, Scale, middle, sampled
from tests.benchmarks.measured_tree import Changes, Note
from tests.benchmarks.raw_client import post_all
from tests.benchmarks.served import ROOM, count, gauge, load
from tests.server_process import ServerProcess

TITLE = "The data folder: starts, stops, backups, and bytes written"
_AIMS = {1_000_000: 3.0, 10_000_000: 20.0}  # seconds until the relations can be read
_EARLY = {"LIVEJOIN_READY": "relations"}


def run(scale: Scale, note: Note) -> list[Figure]:
    sizes = [scale.size(1_000_000, 20_000), *([10_000_000] if scale.large and not scale.quick else [])]
    return [figure for n in sizes for figure in measure(n, scale, note)]


def measure(n: int, scale: Scale, note: Note) -> list[Figure]:
    workload = keyed(n, 2, scale.size(ROOMS, 1_000))
    changes = Changes(workload)
    batch, batches = scale.size(10_000, 500), scale.size(20, 4)

    def bodies(count: int = batches) -> list[bytes]:
        return [ROOM.body(*changes.take(batch)) for _ in range(count)]

    with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder:
        data = Path(folder) / "data"
        with ServerProcess(data, fresh=True) as server:
            load(server, ROOM, workload.entries)
            rows = count(server, ROOM)
            note(f"{n:,} rows loaded")
            figures = [of_log(server, bodies(2), 2 * batch), written(server, bodies(), batch * batches)]
            figures += backed_up(server, Path(folder) / "backup", bodies, batch * batches, note)
            rows = count(server, ROOM)
            figures.append(Figure("a stop, with a snapshot written", stopped(server), "s", aim=2.0, less=True))
        stops, ready, live = [], [], []
        for _ in range(scale.size(3, 1)):
            server = ServerProcess(data, environment=_EARLY, fresh=True)
            begun = time.perf_counter()
            with server:
                ready.append(time.perf_counter() - begun)
                live.append(until_live(server, begun))
                assert count(server, ROOM) == rows
                stops.append(stopped(server))
        note(f"ready after {middle(ready):.2f} s, views after {middle(live):.2f} s, stop {middle(stops):.2f} s")
        figures += [
            sampled("a stop, nothing changed", stops, "s", aim=2.0, less=True),
            sampled("clean start to `/readyz`, relations", ready, "s", aim=_AIMS.get(n), less=True),
            sampled("clean start until all views are live", live, "s"),
        ]
        with ServerProcess(data, fresh=True) as server:
            post_all(server.port, bodies(), 4)
            rows = count(server, ROOM)
        server = ServerProcess(data, environment=_EARLY, fresh=True)  # after a kill
        begun = time.perf_counter()
        with server:
            figures.append(Figure(f"start after a kill, {batch * batches:,} changes in the log", time.perf_counter() - begun, "s"))
            until_live(server, begun)
            assert count(server, ROOM) == rows
    for figure in figures:
        figure.name = f"{n:,} rows: {figure.name}"
    return figures


def until_live(server: ServerProcess, begun: float) -> float:
    with httpx.Client(base_url=server.url, timeout=600) as client:
        while client.get(f"/v1/views/{ROOM.view}").json()["state"] != "live":
            time.sleep(0.02)
    return time.perf_counter() - begun


def stopped(server: ServerProcess) -> float:
    begun = time.perf_counter()
    assert server.stop() == 0
    return time.perf_counter() - begun


def of_log(server: ServerProcess, bodies: list[bytes], changes: int) -> Figure:
    """Bytes of the log per change, if no snapshot truncates the log meanwhile."""
    while True:
        snapshot, before = snapshot_version(server), gauge(server, "livejoin_log_bytes")
        post_all(server.port, bodies, 1)
        grown = gauge(server, "livejoin_log_bytes") - before
        if snapshot_version(server) == snapshot and grown > 0:
            return Figure("bytes of the log per change", grown / changes, "B", less=True)


def snapshot_version(server: ServerProcess) -> float:
    try:
        return gauge(server, "livejoin_snapshot_version")
    except LookupError:  # there is no log yet
        return 0


def written(server: ServerProcess, bodies: list[bytes], changes: int) -> Figure:
    """All bytes written to disk by snapshots, checkpoints and the log, until the service is idle, per byte that clients sent."""
    process = psutil.Process(server.process.pid)
    before = process.io_counters().write_bytes
    post_all(server.port, bodies, 4)
    sent, last = sum(map(len, bodies)), -1
    while (now := process.io_counters().write_bytes) != last:
        last = now
        time.sleep(3)
    note = f"{changes:,} changes, {sent / changes:.0f} bytes each"
    return Figure("bytes written per byte of changes", (last - before) / sent, "", less=True, note=note)


def backed_up(server: ServerProcess, target: Path, bodies: Callable[[], list[bytes]], changes: int, note: Note) -> list[Figure]:
    """The rate of a writer alone, and during a backup; a backup that ends before the writer is repeated."""
    alone = [changes / post_all(server.port, bodies(), 4) for _ in range(3)]
    seconds: list[float] = []
    ended = threading.Event()

    def back_up() -> None:
        number = 0
        with httpx.Client(base_url=server.url, timeout=600) as client:
            while not ended.is_set():
                number += 1
                begun = time.perf_counter()
                client.post("/v1/backup", json={"target": f"{target}{number}"}).raise_for_status()
                while (state := client.get("/v1/backup").raise_for_status().json())["state"] == "running":
                    time.sleep(0.02)
                assert state["state"] == "done", state
                seconds.append(time.perf_counter() - begun)

    prepared = [bodies() for _ in range(3)]
    thread = threading.Thread(target=back_up)
    thread.start()
    beside = [changes / post_all(server.port, some, 4) for some in prepared]
    ended.set()
    thread.join()
    note(f"{middle(alone) / 1e3:.0f} k changes/s alone, {middle(beside) / 1e3:.0f} beside backups of {middle(seconds):.1f} s")
    return [
        sampled("changes a second", alone, "/s"),
        sampled("changes a second beside a backup", beside, "/s", aim=0.8 * middle(alone)),
        sampled("a backup, beside a writer", seconds, "s"),
    ]
