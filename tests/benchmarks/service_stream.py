"""Reading a result of 400 million rows completely: the server's memory does not grow."""

from __future__ import annotations

import threading

import psutil

from tests.benchmarks.data import uniform
from tests.benchmarks.figures import Figure, Rival, Scale
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.rivals import DuckDb
from tests.benchmarks.served import PLAIN, load, serving
from tests.benchmarks.service_rows import read_whole

TITLE = "The service: a result of 400,000,000 rows"
GROWTH = 64.0  # MiB: chunks in transit, not the result, which has gigabytes


def run(scale: Scale, note: Note) -> list[Figure]:
    n, partners = (20_000, 200) if scale.quick else (1_000_000, 802)
    entries = uniform(n, partners).entries
    with serving(scale) as server:
        load(server, PLAIN, entries)
        memory = Memory(psutil.Process(server.process.pid))
        rows, elapsed = read_whole(server, PLAIN)
        samples = memory.stop()
    note(f"{rows:,} rows in {elapsed:.1f} s, resident {samples[0]:.0f} MiB, and {growth(samples):.1f} MiB more at most")
    rival = DuckDb(entries, False)
    memory = Memory(psutil.Process())
    theirs = rival.read()
    their_samples = memory.stop()
    rival.close()
    assert theirs.rows == rows
    note(f"DuckDB: {theirs.all:.1f} s, and {growth(their_samples):.1f} MiB more at most")
    about = {"rows": rows, "seconds": elapsed, "resident_mib": samples[:: max(len(samples) // 100, 1)]}
    return [
        Figure(f"{rows:,} rows, as Arrow", rows / elapsed, "rows/s", 10e6, rivals=[Rival("DuckDB", rows / theirs.all, "in process")],
               parameters=about),
        Figure("growth of the server's memory meanwhile", growth(samples), "MiB", GROWTH, True,
               rivals=[Rival("DuckDB", growth(their_samples), "in process")], note=f"resident {samples[0]:.0f} MiB before"),
    ]  # fmt: skip


def growth(samples: list[float]) -> float:
    return max(samples) - samples[0]


class Memory(threading.Thread):
    """Samples the resident memory of a process, in MiB, ten times a second from the start."""

    def __init__(self, process: psutil.Process) -> None:
        super().__init__(daemon=True)
        self._process, self._ended = process, threading.Event()
        self._samples: list[float] = []
        self._sample()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.1):
            self._sample()

    def stop(self) -> list[float]:
        self._ended.set()
        self.join()
        self._sample()
        return self._samples

    def _sample(self) -> None:
        self._samples.append(round(self._process.memory_info().rss / 2**20, 1))
