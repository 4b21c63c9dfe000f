"""From a clean stop to `/readyz` 200, with a million intervals and their view, and compiled kernels."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.benchmarks.data import ROOMS, Workload, keyed, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.rivals import DuckDb
from tests.benchmarks.served import PLAIN, ROOM, Pair, count, load
from tests.server_process import ServerProcess

TITLE = "The service: start after a clean stop, 1,000,000 intervals"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 20_000)
    figures = []
    for pair, workload in ((PLAIN, uniform(n, 2)), (ROOM, keyed(n, 2, scale.size(ROOMS, 1_000)))):
        with tempfile.TemporaryDirectory(prefix="livejoin-bench-") as folder:
            samples = starts(Path(folder) / "data", pair, workload, scale.size(3, 1))
            path = str(Path(folder) / "rival.db")
            DuckDb(workload.entries, pair.keyed, path).close()
            theirs = middle([first_row_of(path, pair.keyed) for _ in range(3)])
        note(f"{pair.view}: {middle(samples):.2f} s")
        figures.append(
            sampled(f"{n:,} intervals, view {pair.view}: seconds to /readyz 200", samples, "s", aim=10.0, less=True,
                    rivals=[Rival("DuckDB", theirs, "opens its file and returns the first row")])
        )  # fmt: skip
    return figures


def starts(data: Path, pair: Pair, workload: Workload, repeats: int) -> list[float]:
    """Seconds of each start. Raises AssertionError if the view differs afterwards."""
    with ServerProcess(data, fresh=True) as server:
        load(server, pair, workload.entries)
        rows = count(server, pair)
        assert server.stop() == 0
    samples = []
    for _ in range(repeats):
        server = ServerProcess(data, fresh=True)
        begun = time.perf_counter()
        with server:
            samples.append(time.perf_counter() - begun)
            assert count(server, pair) == rows
            assert server.stop() == 0
    return samples


def first_row_of(path: str, keyed: bool) -> float:
    """Seconds to open DuckDB's file and to get the first rows of the join."""
    start = time.perf_counter()
    rival = DuckDb(None, keyed, path)
    elapsed = time.perf_counter() - start + rival.read().first
    rival.close()
    return elapsed
