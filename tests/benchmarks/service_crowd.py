"""Many followers of one view, and many views: how late the last follower receives a change, and how much views that a change does not
concern add to its cost. `results/service_crowd_before.json` is from before changes were encoded once and views were found by their
filters."""

from __future__ import annotations

import http.client
import json
import time

import numpy as np

from tests.benchmarks.figures import Figure, Scale, earlier, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import beside, serving
from tests.end_to_end import talk
from tests.server_process import ServerProcess

TITLE = "The service: 500 followers of one view; 200 views not concerned by a change"
RATE = 300  # posts a second
_HOTEL = {
    "columns": [{"name": name, "type": kind} for name, kind in (("id", "int64"), ("hotel", "string"), ("s", "int64"), ("e", "int64"))],
    "key": ["id"],
    "intervals": {"span": {"start": "s", "end": "e"}},
}


def run(scale: Scale, note: Note) -> list[Figure]:
    figures, kept = [*followers(scale, note), *views(scale, note)], {} if scale.quick else earlier("service_crowd")
    for figure in figures:
        figure.rivals += [kept[figure.name]] if figure.name in kept else []
    return figures


class Posts:
    """Single changes over one connection. `post` returns the milliseconds until the answer."""

    def __init__(self, server: ServerProcess) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        self.version = 0

    def post(self, relation: str, row: dict[str, object]) -> float:
        body = json.dumps({"changes": [{"relation": relation, "op": "upsert", "row": row}]})
        start = time.perf_counter()
        self._connection.request("POST", "/v1/changes", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        self.version = json.loads(text)["version"]
        return 1e3 * (time.perf_counter() - start)

    def close(self) -> None:
        self._connection.close()


def followers(scale: Scale, note: Note) -> list[Figure]:
    """Post at a steady rate while many followers follow the view; each post is a version that changes it."""
    crowd, seconds = scale.size(500, 20), scale.size(10, 1)
    with serving(scale) as server:
        client = server.client()
        for relation in ("stays", "repairs"):
            talk.define(client, relation, _HOTEL)
        talk.view(client, "clashes", "SELECT a.id AS x, b.id AS y FROM stays a JOIN repairs b ON overlaps(a.span, b.span)")
        posts = Posts(server)
        posts.post("repairs", _row(0, 0, 1 << 40))
        with beside("crowd_client", str(server.port), "clashes", str(crowd)) as received:
            note(f"{crowd} follow")
            start, taken, first = time.perf_counter(), [], posts.version + 1
            for number in range(RATE * seconds):
                time.sleep(max(0.0, start + number / RATE - time.perf_counter()))
                taken.append(posts.post("stays", _row(number, number, number + 1)))
            rate = len(taken) / (time.perf_counter() - start)
            time.sleep(scale.size(3, 1))
            end = time.monotonic()
            seen = received()
        posts.close()
    behind = _behind(seen, end, first, posts.version)
    note(f"{rate:.0f} posts/s, the last follower {1e3 * max(behind):.0f} ms behind the first at worst")
    about = {"followers": crowd}
    return [
        Figure(f"posts while {crowd} follow, of {RATE} offered", rate, "posts/s", aim=0.98 * RATE, parameters=about),
        sampled("a post, answered", taken, "ms", less=True, parameters=about),
        Figure("the last follower has a version, after the first, at worst", max(behind), "s", aim=1.0, less=True, parameters=about),
        sampled("the last follower has a version, after the first", behind, "s", less=True, parameters=about),
    ]


def _behind(seen: list[list[tuple[float, int]]], end: float, first: int, last: int) -> list[float]:
    """Seconds between the first and the last follower that had each version completely."""
    versions = np.arange(first, last + 1)
    times = []
    for follower in seen:
        had = np.array([version for _, version in [*follower, (end, last)]])  # missing versions count as late until the end
        times.append(np.array([moment for moment, _ in [*follower, (end, last)]])[np.searchsorted(had, versions)])
    every = np.stack(times)
    return list((every.max(axis=0) - every.min(axis=0)).tolist())


def views(scale: Scale, note: Note) -> list[Figure]:
    """A single change, alternately in a service with one view and in one with many more: first views of other relations, then views whose
    filters exclude the row."""
    count, posts_each = scale.size(200, 5), scale.size(400, 5)
    with serving(scale) as plain, serving(scale) as full:
        clients = [plain.client(), full.client()]
        for client in clients:
            for relation in ("stays", "repairs", "others"):
                talk.define(client, relation, _HOTEL)
            talk.view(client, "mine", "SELECT a.id AS x, b.id AS y FROM stays a JOIN repairs b ON overlaps(a.span, b.span)")
        both = [Posts(plain), Posts(full)]
        _by_turns(both, posts_each, 0)
        for number in range(count):
            talk.view(clients[1], f"other{number}", f"SELECT a.id FROM others a WHERE a.hotel = 'h{number}'")
        alone, unrelated = _by_turns(both, posts_each, 1)
        for number in range(count):
            talk.view(clients[1], f"of{number}", f"SELECT a.id AS x, b.id AS y FROM stays a JOIN repairs b ON a.hotel = b.hotel AND "
                  f"overlaps(a.span, b.span) WHERE a.hotel = 'h{number}'")  # fmt: skip
        again, excluded = _by_turns(both, posts_each, 2)
        for posts in both:
            posts.close()
    extra = [middle(unrelated) - middle(alone), middle(excluded) - middle(again)]
    note(f"a change {middle(alone):.2f} ms; {count} views of other relations {extra[0]:+.3f} ms, excluded by filters {extra[1]:+.3f} ms")
    about = {"views": count}
    return [
        sampled("a single change, one view", alone, "ms", less=True),
        Figure(f"{count} views of other relations, together", extra[0], "ms", aim=0.05, less=True, parameters=about),
        Figure(f"{count} more whose filters exclude the row, together", extra[1], "ms", aim=0.3, less=True, parameters=about),
    ]


def _by_turns(both: list[Posts], count: int, turn: int) -> list[list[float]]:
    """Milliseconds of single changes in each service."""
    samples: list[list[float]] = [[], []]
    for number in range(count):
        for posts, taken in zip(both, samples, strict=True):
            taken.append(posts.post("stays", _row(number, number, number + 1 + turn)))
    return samples


def _row(number: int, start: int, end: int) -> dict[str, object]:
    return {"id": number, "hotel": "none", "s": start, "e": end}
