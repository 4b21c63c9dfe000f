"""The first start on a machine: an empty folder, and an empty cache of kernels, on two cores. Seconds until `/readyz` says 200, and until
a first view is live that is registered then: its kernels are compiled while it is `building`. All of them are there in the end, with which
the machine's cache is filled.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
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
_READY, _LIVE = 25.0, 100.0  # seconds
_LIMIT = 900.0


def run(scale: Scale, note: Note) -> list[Figure]:
    """A quick run finds the kernels compiled."""
    ready: list[float] = []
    first: list[Figure] = []
    for sort in FIRST[: scale.size(len(FIRST), 1)]:
        until_ready, until_live = start(scale, [sort])
        ready.append(until_ready)
        note(f"ready after {until_ready:.1f} s; {sort.words} live after {until_live:.1f} s")
        first.append(Figure(f"{sort.words}, registered then: seconds from the start until it is live", until_live, "s", _LIVE, True))
    until_ready, until_live = start(scale, FIRST)
    ready.append(until_ready)
    note(f"ready after {until_ready:.1f} s; one view of each sort live after {until_live:.1f} s")
    return [
        sampled("seconds to /readyz 200, two cores", ready, "s", aim=_READY, less=True),
        *first,
        Figure("one of each, registered then: seconds from the start until all are live", until_live, "s", _LIVE, True),
    ]


def start(scale: Scale, sorts: list[Sort] | tuple[Sort, ...]) -> tuple[float, float]:
    """Seconds from the start of the process until it is ready, and until views of these sorts are live, which are registered then."""
    with tempfile.TemporaryDirectory(prefix="livejoin-first-") as folder:
        environment = {} if scale.quick else {"LIVEJOIN_CACHE": str(Path(folder) / "cache")}
        server = ServerProcess(Path(folder) / "data", environment=environment, fresh=True, before=_on_two_cores())
        begun = time.perf_counter()
        with server:
            until_ready = time.perf_counter() - begun
            client = server.client(_LIMIT)
            for name in "ab":
                talk.define(client, name, WIDE)
            views = {sort.algorithm.replace("-", "_"): sort for sort in sorts}
            answers = {name: client.put(f"/v1/views/{name}", json=sort.definition) for name, sort in views.items()}
            for name, answer in answers.items():
                talk.live(answer, client, name, _LIMIT)
            until_live = time.perf_counter() - begun
            assert server.stop() == 0  # which ends the compiling of the others, too
            return until_ready, until_live


def _on_two_cores() -> partial[None] | None:
    """What has a process, and those that it starts, run on two processors; None where there are no more, or none can be chosen."""
    if sys.platform != "linux" or len(here := os.sched_getaffinity(0)) <= _CORES:
        return None
    return partial(os.sched_setaffinity, 0, sorted(here)[:_CORES])
