"""How much writers and builds of views slow each other down: batches of moves over several connections, two views of the same rows that are
built at the same time, and both together; with a live view of the same sort over these rows, and without one. Without one, writers are at
their fastest and slow down once the views are live, so that speed is compared too. The writers' client runs on the same cores.

Where no live view slows the writers down, the aims are hardest to meet on two cores. Processor time of the threads during the two builds:

    |          | a row: service, client | both builds, a row | loads of both | rows/s by writers alone |
    | box tree | 3.0 + 0.3 µs           | 1.8 µs             | 3.2 s         | 400 k                   |

In three times the seconds of builds alone (1.6), two cores have 9.6 seconds. Without the loads, this is enough for 260 k rows/s, 0.65 of
what writers reach alone, if no core ever waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

from tests.benchmarks.figures import Figure, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import ARROW, post_all
from tests.benchmarks.served import serving
from tests.benchmarks.stalls_data import OF_BUILDS, SMALL, Sort, Stage

TITLE = "The service: writers while two views are built"
_VIEWS, _LIVE = ("one", "other"), "live"
_CONNECTIONS = 4


def run(scale: Scale, note: Note) -> list[Figure]:
    with serving(scale) as server:
        stage = Stage(server, scale.size(1_000_000, 4_000), 0)
        stage.fill()
        note(f"{2 * stage.half:,} rows are loaded")
        moves = cycle([one for _ in range(2) for one in stage.moved("a", stage.half, SMALL)])
        return [figure for sort in OF_BUILDS for watched in (True, False) for figure in measure(stage, sort, watched, moves, scale, note)]


def measure(stage: Stage, sort: Sort, watched: bool, moves: Iterator[bytes], scale: Scale, note: Note) -> list[Figure]:
    """`watched`: a live view of this sort exists throughout."""
    alone, beside, lone_builds, builds = (list[float]() for _ in range(4))
    cores: list[float] = []  # that the client had beside builds
    words = f"{sort.words}, {'beside a live one' if watched else 'the first ones'}"
    if watched:
        stage.view(_LIVE, sort)
    for _ in range(scale.size(7, 1)):
        alone.append(_written(stage, moves, lambda: time.sleep(scale.size(3, 1)))[0])
        lone_builds.append(_built(stage, sort, scale.size(1, 0)))
        used = time.process_time()
        rate, seconds = _written(stage, moves, lambda: builds.append(_built(stage, sort, scale.size(2, 0))))
        cores.append((time.process_time() - used) / seconds)
        beside.append(rate)
        speeds = f"{alone[-1] / 1e3:.0f} k rows/s, {rate / 1e3:.0f} beside builds"
        note(f"{words}: {speeds}; {lone_builds[-1]:.2f} s, {builds[-1]:.2f} beside writers ({seconds:.2f} in all)")
    name = f"{2 * stage.half:,} rows, two views: {words}"
    about = {"connections": _CONNECTIONS, "batch": SMALL, "client_cores": round(middle(cores), 2)}
    figures = [] if watched else [_lived_with(stage, sort, beside, moves, scale, name, about)]
    stage.clear()
    shares = [with_builds / without for with_builds, without in zip(beside, alone, strict=True)]
    factors = [with_writers / without for with_writers, without in zip(builds, lone_builds, strict=True)]
    return [
        sampled(f"{name}: rows written meanwhile, of those without builds", shares, "x", aim=0.5, parameters=about,
                note=f"{middle(beside) / 1e3:.0f} k rows/s, {middle(alone) / 1e3:.0f} without"),
        sampled(f"{name}: built beside writers, against alone", factors, "x", aim=3.0, less=True, parameters=about,
                note=f"{middle(builds):.2f} s, {middle(lone_builds):.2f} alone"),
        *figures,
    ]  # fmt: skip


def _lived_with(
    stage: Stage, sort: Sort, beside: list[float], moves: Iterator[bytes], scale: Scale, name: str, about: dict[str, Any]
) -> Figure:
    """Compare what writers write during the builds with what they write once both views are live."""
    for view in _VIEWS:
        stage.view(view, sort)
    rate, _ = _written(stage, moves, lambda: time.sleep(scale.size(3, 1)))
    words = f"{name}: rows written meanwhile, of those once both are live"
    return sampled(words, [one / rate for one in beside], "x", aim=1.0, parameters=about, note=f"{rate / 1e3:.0f} k rows/s then")


def _written(stage: Stage, moves: Iterator[bytes], act: Callable[[], object]) -> tuple[float, float]:
    """Rows a second that writers write during an action, and for how many seconds. The start and the end of their connections count as
    well, so the action should take seconds."""
    over, sent = threading.Event(), 0

    def until_over() -> Iterator[bytes]:
        nonlocal sent
        while not over.is_set():
            sent += 1
            yield next(moves)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(post_all, stage.server.port, until_over(), _CONNECTIONS, kind=ARROW)
        try:
            act()
        finally:
            over.set()
        seconds = writing.result()
    return sent * SMALL / seconds, seconds


def _built(stage: Stage, sort: Sort, least: float = 0.0) -> float:
    """Seconds until two views that are registered together are live. They are dropped afterwards. Building and dropping are repeated
    until the builds have taken `least` seconds; returns the average time of building."""
    seconds: list[float] = []
    with ThreadPoolExecutor(len(_VIEWS)) as pool:
        while not seconds or sum(seconds) < least:
            start = time.perf_counter()
            for live in [pool.submit(stage.view, name, sort) for name in _VIEWS]:
                live.result()
            seconds.append(time.perf_counter() - start)
            for name in _VIEWS:
                stage.drop(name)
    return sum(seconds) / len(seconds)
