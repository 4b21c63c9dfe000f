"""The first start on a machine: the cache of kernels is empty, on two cores. Seconds until `/readyz` says 200, of an empty folder and of
one with a view of each sort; and of an empty one until a first view is live that is registered then: its kernels are compiled while it
is `building`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.benchmarks.figures import Figure, Scale, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.stalls_data import BOW_TIE, BOXES, GRID, INTERVALS, JOIN_TREE, VIEW_TREE, WIDE, Sort
from tests.end_to_end import talk
from tests.server_process import ServerProcess

TITLE = "The service: the first start, nothing compiled"
FIRST = (INTERVALS, JOIN_TREE, VIEW_TREE, BOW_TIE, BOXES, GRID)
_CORES = 2
_EMPTY, _WITH_VIEWS = 25.0, 100.0  # seconds
_LIMIT = 900.0


def run(scale: Scale, note: Note) -> list[Figure]:
    """A quick run finds the kernels compiled."""
    ready: list[float] = []
    first: list[Figure] = []
    for sort in FIRST[: scale.size(len(FIRST), 1)]:
        with tempfile.TemporaryDirectory(prefix="livejoin-first-") as folder:
            until_ready, until_live = start(Path(folder), scale, sort)
        ready.append(until_ready)
        note(f"ready after {until_ready:.1f} s; {sort.words} live after {until_live:.1f} s")
        first.append(Figure(f"empty folder, then {sort.words}: seconds from the start until it is live", until_live, "s", less=True))
    with tempfile.TemporaryDirectory(prefix="livejoin-first-") as folder:
        with ServerProcess(Path(folder) / "data", fresh=True) as server:
            register(server, FIRST)
            assert server.stop() == 0
        with_views, _ = start(Path(folder), scale, None)
    note(f"ready after {with_views:.1f} s with a view of each sort")
    return [
        sampled("empty folder: seconds to /readyz 200", ready, "s", aim=_EMPTY, less=True),
        Figure("a view of each sort: seconds to /readyz 200", with_views, "s", _WITH_VIEWS, True),
        *first,
    ]


def start(folder: Path, scale: Scale, sort: Sort | None) -> tuple[float, float]:
    """Seconds from the start of the process until it is ready, and until a view of this sort is live, which is registered then."""
    environment = {} if scale.quick else {"LIVEJOIN_CACHE": str(folder / "cache")}
    server = ServerProcess(folder / "data", environment=environment, fresh=True, before=_on_two_cores())
    begun = time.perf_counter()
    with server:
        until_ready = time.perf_counter() - begun
        if sort is not None:
            register(server, [sort])
        until_live = time.perf_counter() - begun
        assert server.stop() == 0  # which ends the compiling of the others, too
    return until_ready, until_live


def register(server: ServerProcess, sorts: Iterable[Sort]) -> None:
    """Returns when the views are live."""
    client = server.client(_LIMIT)
    for name in "ab":
        talk.define(client, name, WIDE)
    for sort in sorts:
        talk.view(client, sort.algorithm.replace("-", "_"), sort.definition, _LIMIT)


def _on_two_cores() -> partial[None] | None:
    """What has a process, and those that it starts, run on two processors; None where there are no more, or none can be chosen."""
    if sys.platform != "linux" or len(here := os.sched_getaffinity(0)) <= _CORES:
        return None
    return partial(os.sched_setaffinity, 0, sorted(here)[:_CORES])
