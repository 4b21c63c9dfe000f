"""Many views at once: 40 are registered over HTTP, each over a connection of its own, most of them large, the small ones last, and one of
another client behind them all; while live views are read and dropped, and single changes go to a relation that none of this concerns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.benchmarks.figures import Figure, Scale, middle
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import serving
from tests.benchmarks.stalls import figures_of, watched
from tests.benchmarks.stalls_data import INTERVALS, SORTS, WIDE, Sort, Stage
from tests.end_to_end import talk

TITLE = "The service: many views are registered, read and dropped at once"
_LARGE, _SMALL = 32, 8  # views
_LIVE = 6  # views before; those that are dropped meanwhile
_FEW = 1_000  # rows of a small relation
_LIMIT = 900.0
_ANSWERED, _DROPPED, _READ = 2.0, 1.0, 1.0  # seconds; the first waits a second for its view itself


class Answer(NamedTuple):
    name: str
    seconds: float  # until the answer
    live: float  # seconds from the beginning until the view was live


def run(scale: Scale, note: Note) -> list[Figure]:
    parent = Path("/dev/shm")
    with serving(scale, {"LIVEJOIN_SYNCHRONOUS": "normal"}, parent if parent.is_dir() else None) as server:
        stage = Stage(server, scale.size(200_000, 4_000), scale.size(3, 0))
        stage.fill()
        for name in "cd":
            talk.define(stage.client, name, WIDE)
            stage.post(stage.new(name, _FEW, _FEW))
        found = Registrations(stage)
        waits, _, late = watched(stage, found.run)
        return found.figures(note)


def _small(sort: Sort) -> Sort:
    return sort._replace(sql=sort.sql.replace("FROM a JOIN b ON", "FROM c a JOIN d b ON").replace("JOIN a c ON", "JOIN c ON"))


class Registrations:
    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.order: list[tuple[float, str]] = []
        self.puts: dict[str, float] = {}
        self.drops: list[float] = []
        self.reads: list[float] = []
        for n in range(_LIVE):
            stage.view(f"live_{n}", INTERVALS)
        self.start = 0.0

    def run(self) -> None:
        url = self.stage.server.url
        views = [(f"large_{n}", SORTS[n % len(SORTS)]) for n in range(_LARGE)]
        small = [(f"small_{n}", _small(SORTS[n % len(SORTS)])) for n in range(_SMALL)]
        self.start = time.perf_counter()

        def put(named: tuple[str, Sort]) -> None:
            name, sort = named
            with httpx.Client(base_url=url, timeout=_LIMIT) as client:
                begun = time.perf_counter()
                made = talk.ok(client.put(f"/v1/views/{name}", json=sort.definition), 200, 201, 202)
                self.puts[name] = time.perf_counter() - begun
                while made["state"] == "building":
                    time.sleep(0.05)
                    made = talk.ok(client.get(f"/v1/views/{name}"))
                assert made["state"] == "live", made
                self.order.append((time.perf_counter() - self.start, name))

        def others() -> None:
            with httpx.Client(base_url=url, timeout=_LIMIT) as client:
                for n in range(1, _LIVE):
                    begun = time.perf_counter()
                    talk.ok(client.delete(f"/v1/views/live_{n}"), 204)
                    self.drops.append(time.perf_counter() - begun)
                    begun = time.perf_counter()
                    client.get("/v1/views/live_0/rows", params={"limit": 10}).raise_for_status()
                    self.reads.append(time.perf_counter() - begun)
                    time.sleep(0.2)

        with ThreadPoolExecutor(_LARGE + _SMALL + 1) as pool:
            futures = [pool.submit(put, one) for one in views]
            time.sleep(0.3)
            futures.append(pool.submit(others))
            futures += [pool.submit(put, one) for one in small]
            for f in futures: f.result()

    def figures(self, note):
        for at, name in self.order: note(f"{at:6.2f} {name} put {self.puts[name]:.2f}")
        note(f"drops {self.drops} reads {self.reads}")
        return []
