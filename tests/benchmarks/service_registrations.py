"""Many views at once: 32 large ones are registered over HTTP, each over a connection of its own, then 8 small ones, and one large one of
another client. Meanwhile, other views are read and dropped, and single changes are made to a relation that no view uses. All sorts of views
alternate; each has been registered before, because the first one of a process loads its code. Which views are live is polled ten times a
second.

The clients run on the same two cores.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import httpx

from tests.benchmarks.figures import Figure, Scale, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import serving
from tests.benchmarks.stalls import Scenario, Watched, figures_of, nothing, together, watched
from tests.benchmarks.stalls_data import INTERVALS, SORTS, WIDE, Sort, Stage
from tests.end_to_end import talk

TITLE = "The service: registering many views at once"
_LARGE, _SMALL, _DROPPED = 32, 8, 5  # views
_FEW = 1_000  # rows of each relation of a small view
_FIRST, _BETWEEN, _ASKED = 0.3, 0.1, 0.1  # seconds until all large ones are registered; between two drops; between two polls
_LIMIT = 900.0
_PROMPT = 1.0  # seconds
_BEFORE = 4  # large views that may go live while a view waits that was registered after all of them
_MEMORY = Path("/dev/shm")


class Seen(NamedTuple):
    """The observations of one view, in wall-clock time."""

    began: float
    answered: float
    live: float


def run(scale: Scale, note: Note) -> list[Figure]:
    with serving(scale, {"LIVEJOIN_SYNCHRONOUS": "normal"}, _MEMORY if _MEMORY.is_dir() else None) as server:
        stage = Stage(server, scale.size(200_000, 4_000), scale.size(3, 0))
        stage.fill()
        for name in "cd":
            talk.define(stage.client, name, WIDE)
            stage.post(stage.new(name, _FEW, _FEW))
        for sort in SORTS:
            stage.view("first", _small(sort))
            stage.clear()
        turns, seen = list[Turn](), list[Watched]()
        for _ in range(scale.size(3, 1)):
            turn = Turn(stage)
            seen.append(watched(stage, turn.act))
            longest = f"at most {seen[-1].waits.max():.1f} ms; {seen[-1].stood_still}"
            note(f"all live after {turn.all_live:.1f} s; at most {turn.before_small} large ones while a small one waited; {longest}")
            turns.append(turn)
            stage.clear()
    words = f"{_LARGE} views over {2 * stage.half:,} rows are registered at once, with {_SMALL} small ones"
    all_seen = together(seen)
    small = [one.live - one.began for turn in turns for one in turn.of("small")]
    return [
        *figures_of(2 * stage.half, Scenario(words, nothing), all_seen, {}, all_seen.stood_still),
        Figure(f"{words}: seconds until a small one is live, the longest", max(small), "s", _PROMPT, True, samples=small),
        sampled("large ones that went live while a small one waited, at most",
                [turn.before_small for turn in turns], "views", aim=_BEFORE, less=True),
        sampled("large ones of one client that went live while the large one of another waited",
                [turn.before_other for turn in turns], "views", aim=_BEFORE, less=True),
        sampled("seconds until all are live", [turn.all_live for turn in turns], "s", less=True),
        *_longest("answer to a registration, which waits a second for its view", [one.answered - one.began for turn in turns for one in
                  turn.seen.values()], 2 * _PROMPT),
        *_longest("drop of another view meanwhile", [one for turn in turns for one in turn.drops], _PROMPT),
        *_longest("first rows of a live view meanwhile", [one for turn in turns for one in turn.reads], _PROMPT),
    ]  # fmt: skip


def _longest(words: str, found: list[float], aim: float) -> list[Figure]:
    return [Figure(f"the longest {words}", max(found), "s", aim, True, samples=found)]


def _small(sort: Sort) -> Sort:
    """The same view over the small relations."""
    return sort._replace(sql=sort.sql.replace("FROM a JOIN b ON", "FROM c a JOIN d b ON").replace("JOIN a c ON", "JOIN c c ON"))


class Turn:
    """One complete run, and what was observed."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._registered: dict[str, tuple[float, float]] = {}  # when each registration began, and was answered
        self._live: dict[str, float] = {}
        self.drops: list[float] = []
        self.reads: list[float] = []
        stage.view("read", INTERVALS)
        for number in range(_DROPPED):
            stage.view(f"dropped_{number}", INTERVALS)

    @property
    def seen(self) -> dict[str, Seen]:
        return {name: Seen(*times, self._live[name]) for name, times in self._registered.items()}

    @property
    def all_live(self) -> float:
        return max(one.live for one in self.seen.values()) - min(one.began for one in self.seen.values())

    @property
    def before_small(self) -> int:
        return max(map(self._before, self.of("small")))

    @property
    def before_other(self) -> int:
        return self._before(self.seen["other"])

    def of(self, kind: str) -> list[Seen]:
        return [one for name, one in self.seen.items() if name.startswith(kind)]

    def _before(self, late: Seen) -> int:
        """Return how many large views went live after the request for this one and before it, or were seen live in the same poll."""
        return sum(late.began < one.live <= late.live for one in self.of("large"))

    def act(self) -> None:
        large = [(f"large_{number}", sort) for number, sort in enumerate(islice(cycle(SORTS), _LARGE))]
        small = [(f"small_{number}", _small(sort)) for number, sort in enumerate(islice(cycle(SORTS), _SMALL))]
        count = _LARGE + _SMALL
        clients = [self.stage.server.client(_LIMIT) for _ in range(count)]
        other = httpx.Client(base_url=self.stage.server.url, timeout=_LIMIT, transport=httpx.HTTPTransport(local_address="127.0.0.2"))
        with other, ThreadPoolExecutor(count + 2) as pool:
            looking = pool.submit(self._look, count + 1)
            begun = [pool.submit(self._put, client, *named) for client, named in zip(clients, large, strict=False)]
            time.sleep(_FIRST)
            begun += [pool.submit(self._put, client, *named) for client, named in zip(clients[_LARGE:], small, strict=True)]
            begun.append(pool.submit(self._put, other, "other", INTERVALS))
            self._read_and_drop()
            for one in (*begun, looking):
                one.result()
        for client in clients:
            client.close()

    def _put(self, client: httpx.Client, name: str, sort: Sort) -> None:
        self.stage.expect(name)
        began = time.perf_counter()
        answer = client.put(f"/v1/views/{name}", json=sort.definition)
        self._registered[name] = began, time.perf_counter()
        talk.ok(answer, 201, 202)

    def _look(self, count: int) -> None:
        """Record when each of these views is live."""
        with self.stage.server.client(_LIMIT) as client:
            end = time.monotonic() + _LIMIT
            while len(self._live) < count and time.monotonic() < end:
                states = {view["name"]: view["state"] for view in talk.ok(client.get("/v1/views"))["views"]}
                now = time.perf_counter()
                for name, state in states.items():
                    if state == "live" and name.startswith(("large", "small", "other")):
                        self._live.setdefault(name, now)
                time.sleep(_ASKED)

    def _read_and_drop(self) -> None:
        client = self.stage.client
        for number in range(_DROPPED):
            self.drops.append(seconds(partial(self.stage.drop, f"dropped_{number}")))
            self.reads.append(seconds(lambda: client.get("/v1/views/read/rows", params={"limit": 10}).raise_for_status()))
            time.sleep(_BETWEEN)
