"""How much writers and builds of views slow each other down: batches of moves over several connections, two views of the same rows that are
built at the same time, and both together; with a live view of the same sort over these rows, and without one. Without one, writers are at
their fastest and slow down once the views are live, so that speed is compared too. Rows count as written meanwhile until the first of both
views is live: from then on, until they are dropped, writers are slower. The writers' client runs on the same cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from tests.benchmarks.figures import Figure, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import ARROW, post_all
from tests.benchmarks.served import serving
from tests.benchmarks.stalls_data import SMALL, WRITTEN, Sort, Stage

TITLE = "The service: writers while two views are built"
_VIEWS, _LIVE = ("one", "other"), "live"
_CONNECTIONS = 4


def run(scale: Scale, note: Note) -> list[Figure]:
    with serving(scale) as server:
        stage = Stage(server, scale.size(1_000_000, 4_000))
        stage.fill()
        note(f"{2 * stage.half:,} rows are loaded")
        moves = cycle([one for _ in range(2) for one in stage.moved("a", stage.half, SMALL)])
        return [figure for sort in WRITTEN for watched in (True, False) for figure in measure(stage, sort, watched, moves, scale, note)]


def measure(stage: Stage, sort: Sort, watched: bool, moves: Iterator[bytes], scale: Scale, note: Note) -> list[Figure]:
    """`watched`: a live view of this sort exists throughout."""
    alone, beside, lone_builds, builds = (list[float]() for _ in range(4))
    cores: list[float] = []  # that the client had beside builds
    words = f"{sort.words}, {'beside a live one' if watched else 'the first ones'}"
    if watched:
        stage.view(_LIVE, sort)
    for _ in range(scale.size(7, 1)):
        alone.append(_alone(stage, moves, scale))
        lone_builds.append(_built(stage, sort, scale.size(1, 0), lambda: 0)[0])
        used, start = time.process_time(), time.perf_counter()
        with _writing(stage, moves) as written:
            seconds, rate = _built(stage, sort, scale.size(2, 0), written)
        cores.append((time.process_time() - used) / (time.perf_counter() - start))
        builds.append(seconds)
        beside.append(rate)
        speeds = f"{alone[-1] / 1e3:.0f} k rows/s, {rate / 1e3:.0f} beside builds"
        note(f"{words}: {speeds}; {lone_builds[-1]:.2f} s, {seconds:.2f} beside writers")
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
    rate = _alone(stage, moves, scale)
    words = f"{name}: rows written meanwhile, of those once both are live"
    return sampled(words, [one / rate for one in beside], "x", aim=1.0, parameters=about, note=f"{rate / 1e3:.0f} k rows/s then")


@contextmanager
def _writing(stage: Stage, moves: Iterator[bytes]) -> Iterator[Callable[[], int]]:
    """Write over all connections, from when this is entered; the function that it gives returns how many rows were sent so far."""
    over, begun, sent = threading.Event(), threading.Event(), 0

    def until_over() -> Iterator[bytes]:
        nonlocal sent
        while not over.is_set():
            sent += SMALL
            begun.set()
            yield next(moves)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(post_all, stage.server.port, until_over(), _CONNECTIONS, kind=ARROW)
        try:
            while not (begun.wait(0.1) or writing.done()):
                pass
            yield lambda: sent
        finally:
            over.set()
        writing.result()


def _alone(stage: Stage, moves: Iterator[bytes], scale: Scale) -> float:
    """Rows a second that writers write while no view is built."""
    with _writing(stage, moves) as written:
        before, start = written(), time.perf_counter()
        time.sleep(scale.size(3, 1))
        return (written() - before) / (time.perf_counter() - start)


def _built(stage: Stage, sort: Sort, least: float, written: Callable[[], int]) -> tuple[float, float]:
    """Build two views that are registered together, and drop them, again and again until the builds have taken `least` seconds. Returns the
    average seconds until both are live, and how many rows a second were written until the first one was."""
    seconds, together, rows = list[float](), 0.0, 0
    with ThreadPoolExecutor(len(_VIEWS)) as pool:
        while not seconds or sum(seconds) < least:
            start, before = time.perf_counter(), written()
            pending = [pool.submit(stage.view, name, sort) for name in _VIEWS]
            wait(pending, return_when=FIRST_COMPLETED)
            together += time.perf_counter() - start
            rows += written() - before
            for live in pending:
                live.result()
            seconds.append(time.perf_counter() - start)
            for name in _VIEWS:
                stage.drop(name)
    return sum(seconds) / len(seconds), rows / together
