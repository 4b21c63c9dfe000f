"""The first start on a machine: no kernels are compiled, and there are two cores. Seconds until `/readyz` returns 200, with an empty folder
and with one that has a view of each sort; and with an empty folder, seconds until a first view that is registered then is live: its kernels
are compiled while it is `building`."""

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

TITLE = "The service: the first start, no kernels compiled"
FIRST = (INTERVALS, JOIN_TREE, VIEW_TREE, BOW_TIE, BOXES, GRID)
_CORES = 2
_EMPTY, _WITH_VIEWS = 25.0, 100.0  # seconds
_LIMIT = 900.0


def run(scale: Scale, note: Note) -> list[Figure]:
    """In a quick run, the kernels are already compiled."""
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
    """Seconds from the start of the process until it is ready, and until a view of this sort, which is registered then, is live."""
    environment = {} if scale.quick else {"LIVEJOIN_CACHE": str(folder / "cache")}
    server = ServerProcess(folder / "data", environment=environment, fresh=True, before=_on_two_cores())
    begun = time.perf_counter()
    with server:
        until_ready = time.perf_counter() - begun
        if sort is not None:
            register(server, [sort])
        until_live = time.perf_counter() - begun
        assert server.stop() == 0  # this also ends the compilation of the others
    return until_ready, until_live


def register(server: ServerProcess, sorts: Iterable[Sort]) -> None:
    """Register the views; return when they are live."""
    client = server.client(_LIMIT)
    for name in "ab":
        talk.define(client, name, WIDE)
    for sort in sorts:
        talk.view(client, sort.algorithm.replace("-", "_"), sort.definition, _LIMIT)


def _on_two_cores() -> partial[None] | None:
    """A prefix of a command that restricts a process and its children to two processors; None if there are no more, or none can be
    chosen."""
    if sys.platform != "linux" or len(here := os.sched_getaffinity(0)) <= _CORES:
        return None
    return partial(os.sched_setaffinity, 0, sorted(here)[:_CORES])
