"""One change per request, as JSON, compared with an empty FastAPI handler with the same server settings."""

from __future__ import annotations

import numpy as np
import psutil

from tests.benchmarks.data import LINE, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import Spent, exchange, post
from tests.benchmarks.served import PLAIN, empty_server, fsync_seconds, json_change, load, serving

TITLE = "The service: one change per request"
JSON = "application/json"
CONNECTIONS = 64
ROUNDS = 5  # the service and the empty handler alternate, so that changes in the machine's speed affect both


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    return [*one_connection(n, scale, note), *many_connections(n, scale, note)]


def one_connection(n: int, scale: Scale, note: Note) -> list[Figure]:
    with serving(scale, {"LIVEJOIN_SYNCHRONOUS": "normal"}) as server, empty_server() as empty:
        load(server, PLAIN, uniform(n, 2).entries)
        ours, theirs = in_turn((server.port, server.process.pid), empty, 1, scale.size(4_000, 100), n)
    note(f"one connection: {rate(ours):.0f}/s, the empty handler {rate(theirs):.0f}/s")
    return figures_of("1 connection, synchronous=normal", ours, theirs, rate(theirs) / 2, [])


def many_connections(n: int, scale: Scale, note: Note) -> list[Figure]:
    with serving(scale) as server, empty_server() as empty:
        load(server, PLAIN, uniform(n, 2).entries)
        fsync = middle(fsync_seconds(server.data))
        ours, theirs = in_turn((server.port, server.process.pid), empty, CONNECTIONS, scale.size(8_000, 200), n)
    bound = CONNECTIONS / fsync
    note(f"{CONNECTIONS} connections: {rate(ours):.0f}/s, the empty handler {rate(theirs):.0f}/s, an fsync {1e6 * fsync:.0f} us")
    of_disk = Rival(f"{CONNECTIONS} divided by the fsync", bound, f"an fsync takes {1e6 * fsync:.0f} µs")
    return figures_of(f"{CONNECTIONS} connections, full durability", ours, theirs, min(rate(theirs) / 2, bound), [of_disk])


def in_turn(
    ours_at: tuple[int, int], empty_at: tuple[int, int], connections: int, count: int, n: int
) -> tuple[list[Spent], list[Spent]]:  # fmt: skip
    """Send the same requests to the service and to the empty handler, round by round, after a warm-up. Half of them insert a row, half move
    one; no round repeats requests of another one."""
    (port, pid), (empty, empty_pid) = ours_at, empty_at
    process, empty_process = psutil.Process(pid), psutil.Process(empty_pid)
    rng = np.random.default_rng(11)
    ours, theirs = [], []
    for round_ in range(ROUNDS + 1):
        requests = []
        for key, start in zip(rng.integers(0, 2 * n, count).tolist(), rng.integers(0, LINE, count).tolist(), strict=True):
            relation = PLAIN.relations[key % 2]
            requests.append(post("/v1/changes", json_change(relation, key, start, start + 4 * LINE // n), JSON))
        spent = exchange(port, process, requests, connections), exchange(empty, empty_process, requests, connections)
        if round_:
            ours.append(spent[0])
            theirs.append(spent[1])
    return ours, theirs


def rate(spent: list[Spent]) -> float:
    return middle([one.rate for one in spent])


def figures_of(name: str, ours: list[Spent], theirs: list[Spent], aim: float, more: list[Rival]) -> list[Figure]:
    rivals = [Rival("empty FastAPI handler", rate(theirs)), *more]
    limit = middle([one.own_limit for one in ours])
    spent, their_spent = ([1e6 * one.server / one.requests for one in all_] for all_ in (ours, theirs))
    return [
        sampled(f"one change a request, {name}", [one.rate for one in ours], "requests/s", aim=aim, rivals=rivals,
                note="aim: half of the empty handler's rate, or what the disk allows"),
        sampled(f"processor time of the server a request, {name}", spent, "µs", less=True,
                rivals=[Rival("empty FastAPI handler", middle(their_spent))]),
        Figure(f"the client's own limit, {name}", limit, "requests/s", note="by its processor time"),
    ]  # fmt: skip
