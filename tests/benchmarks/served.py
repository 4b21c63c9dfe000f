"""Relations, views and changes for the service's subjects, and a server for them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import psutil
import pyarrow as pa

from structures.core.entries import Entries
from tests.benchmarks.figures import Scale
from tests.benchmarks.raw_client import open_stream, post_all
from tests.server_process import ROOT, ServerProcess

LOAD = 100_000  # rows per batch while loading


class Pair(NamedTuple):
    """Two relations and the view over them. `keyed`: with a room, as text, and timestamps; otherwise plain integers."""

    first: str
    second: str
    view: str
    keyed: bool

    @property
    def relations(self) -> tuple[str, str]:
        return self.first, self.second

    @property
    def definition(self) -> dict[str, object]:
        kind = "timestamp" if self.keyed else "int64"
        columns = [{"name": "id", "type": "int64"}, {"name": "s", "type": kind}, {"name": "e", "type": kind}]
        if self.keyed:
            columns.insert(1, {"name": "room", "type": "string"})
        return {"columns": columns, "key": ["id"], "intervals": {"span": {"start": "s", "end": "e", "bounds": "[]"}}}

    @property
    def sql(self) -> str:
        equal = "a.room = b.room AND " if self.keyed else ""
        return f"SELECT a.id AS x, b.id AS y FROM {self.first} a JOIN {self.second} b ON {equal}overlaps(a.span, b.span)"

    def rows(self, entries: Entries) -> dict[str, pa.Array]:
        ends = [pa.array(entries.left), pa.array(entries.right)]
        if self.keyed:
            ends = [end.cast(pa.timestamp("us", "UTC")) for end in ends]
        columns = {"id": pa.array(entries.slot.astype(np.int64)), "s": ends[0], "e": ends[1]}
        if self.keyed:
            columns["room"] = pa.array([f"room {key}" for key in entries.key.tolist()])
        return columns

    def body(self, deletes: Entries | None, upserts: Entries) -> bytes:
        """A batch of both relations as Arrow: first all deletes, then the rest."""
        sink = pa.BufferOutputStream()
        for op, entries in (("delete", deletes), ("upsert", upserts)):
            for position, name in enumerate(self.relations):
                chosen = None if entries is None else entries.take(entries.set == position)
                if chosen is None or len(chosen.key) == 0:
                    continue
                columns = self.rows(chosen) if op == "upsert" else {"id": pa.array(chosen.slot.astype(np.int64))}
                if op == "delete":
                    columns["_op"] = pa.array([op] * len(chosen.key))
                batch = pa.RecordBatch.from_pydict(columns, metadata={"livejoin.relation": name})
                with pa.ipc.new_stream(sink, batch.schema) as writer:
                    writer.write_batch(batch)
        return sink.getvalue().to_pybytes()


PLAIN = Pair("a", "b", "pairs", False)
ROOM = Pair("bookings", "maintenance", "clashes", True)


@contextmanager
def serving(scale: Scale, environment: Mapping[str, str] | None = None, parent: Path | None = None) -> Iterator[ServerProcess]:
    """A server on a new folder, with the log on. The folder is in `parent`, by default on the disk of temporary files. The server has come
    to rest (except in a quick run)."""
    with tempfile.TemporaryDirectory(prefix="livejoin-bench-", dir=parent) as folder:
        with ServerProcess(Path(folder) / "data", environment=environment, fresh=True) as server:
            at_rest(server, scale)
            yield server


def at_rest(server: ServerProcess, scale: Scale) -> None:
    """Wait until a server that has just been started does nothing any more, except in a quick run."""
    process = psutil.Process(server.process.pid)
    while not scale.quick and max(process.cpu_percent(1.0) for _ in range(2)) > 10:  # an idle one takes 1 to 5 %, a compiler 100
        pass


def load(server: ServerProcess, pair: Pair, entries: Entries) -> None:
    """Register the relations, load them, and build the view; return when it is live."""
    with httpx.Client(base_url=server.url, timeout=600) as client:
        for name in pair.relations:
            client.put(f"/v1/relations/{name}", json=pair.definition).raise_for_status()
        bodies = [pair.body(None, entries.take(slice(at, at + LOAD))) for at in range(0, len(entries.key), LOAD)]
        post_all(server.port, bodies, 1)
        client.put(f"/v1/views/{pair.view}", json={"sql": pair.sql}).raise_for_status()
        while (state := client.get(f"/v1/views/{pair.view}").json()["state"]) != "live":
            assert state == "building", state
            time.sleep(0.05)


def count(server: ServerProcess, pair: Pair) -> int:
    connection, answer, _ = open_stream(server.port, f"/v1/views/{pair.view}/count", "application/json")
    with closing(connection):
        return int(json.load(answer)["count"])


def gauge(server: ServerProcess, name: str) -> float:
    """One value of /metrics."""
    for line in httpx.get(f"{server.url}/metrics", timeout=60).text.splitlines():
        if line.startswith(name + " "):
            return float(line.rpartition(" ")[2])
    raise LookupError(name)


@contextmanager
def empty_server() -> Iterator[tuple[int, int]]:
    """Port and process id of an empty FastAPI handler, `POST /v1/changes`, in a separate process."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "tests.benchmarks.empty_server", str(port)], cwd=ROOT)
    try:
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                if process.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.05)
        yield port, process.pid
    finally:
        process.kill()
        process.wait()


def fsync_seconds(folder: Path, repeats: int = 200) -> list[float]:
    """Seconds of an fsync after writing 4 KiB, in the folder of the log."""
    path = folder / "fsync"
    samples = []
    handle = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(repeats):
            os.write(handle, bytes(4096))
            start = time.perf_counter()
            os.fsync(handle)
            samples.append(time.perf_counter() - start)
    finally:
        os.close(handle)
        path.unlink()
    return samples


def json_change(relation: str, key: int, start: int, end: int) -> bytes:
    """The body of one upsert, as compact as clients send it."""
    row = {"id": key, "s": start, "e": end}
    return json.dumps({"changes": [{"relation": relation, "op": "upsert", "row": row}]}, separators=(",", ":")).encode()


@contextmanager
def beside(name: str, *arguments: str) -> Iterator[Callable[[], Any]]:
    """Run a module of this package as a process that prints "ready", and what it has found as a line of JSON when its input ends. Yields,
    once it is ready, a function that ends it and returns what it has found."""
    command = [sys.executable, "-m", f"tests.benchmarks.{name}", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ended() -> Any:
            stdin.close()
            return json.loads(stdout.readline())

        try:
            assert stdout.readline() == "ready\n"
            yield ended
        except BaseException:
            process.kill()
            raise
