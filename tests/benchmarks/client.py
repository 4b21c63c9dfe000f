"""The Python client over loopback, compared with plain httpx doing the same: rows as Arrow, following changes, single upserts."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import numpy as np
import orjson
import psutil

import livejoin
from tests.benchmarks.data import LINE, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled, seconds
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.raw_client import ARROW, exchange, post
from tests.benchmarks.served import PLAIN, json_change, load, serving
from tests.server_process import ServerProcess

TITLE = "The Python client"
ROUNDS = 7  # our client and plain httpx alternate, so that changes in the machine's speed affect both
PARTNERS = 20


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(100_000, 2_000)
    with serving(scale, {"LIVEJOIN_SYNCHRONOUS": "normal"}) as server, livejoin.connect(server.url) as lj, _bare(server) as bare:
        load(server, PLAIN, uniform(n, PARTNERS).entries)
        return [*rows(lj, bare, note), *changes(server, lj, bare, n, scale, note), *upserts(server, lj, bare, n, scale, note)]


def _bare(server: ServerProcess) -> httpx.Client:
    return httpx.Client(base_url=server.url, timeout=600, trust_env=False, headers={"Accept-Encoding": "identity"})


def in_turn(ours: Callable[[], int], theirs: Callable[[], int]) -> tuple[list[float], list[float]]:
    """Return how many items a second each of the two processes, round by round, after a warm-up of both."""
    rates: tuple[list[float], list[float]] = ([], [])
    for round_ in range(ROUNDS + 1):
        for work, kept in zip((ours, theirs), rates, strict=True):
            done = [0]

            def timed(work: Callable[[], int] = work, done: list[int] = done) -> None:
                done[0] = work()

            elapsed = seconds(timed)
            if round_:
                kept.append(done[0] / elapsed)
    return rates


def rows(lj: livejoin.Client, bare: httpx.Client, note: Note) -> list[Figure]:
    """Read the whole view, which the client decodes; plain httpx only receives the bytes."""
    view = lj.view(PLAIN.view)
    total = view.count()

    def ours() -> int:
        return sum(batch.num_rows for batch in view.arrow())

    def theirs() -> int:
        with bare.stream("GET", f"/v1/views/{PLAIN.view}/rows", headers={"Accept": ARROW}) as answer:
            for _ in answer.iter_bytes():
                pass
        return total

    mine, other = in_turn(ours, theirs)
    note(f"rows: {middle(mine) / 1e6:.2f} M/s, bare httpx {middle(other) / 1e6:.2f} M/s")
    return [
        sampled(f"{total:,} rows as Arrow, decoded", mine, "rows/s", aim=0.9 * middle(other),
                rivals=[Rival("bare httpx", middle(other), "only receives the bytes")], note="aim: 90 % of bare httpx")
    ]  # fmt: skip


def changes(server: ServerProcess, lj: livejoin.Client, bare: httpx.Client, n: int, scale: Scale, note: Note) -> list[Figure]:
    """Read the changes of many versions, from a token to the newest, each record as an object."""
    view = lj.view(PLAIN.view)
    with view.follow() as follow:
        pass
    token = follow.token
    rng = np.random.default_rng(5)
    requests = [_upsert(key, start, n) for key, start in _keys(rng, n, scale.size(5_000, 200))]
    exchange(server.port, psutil.Process(server.process.pid), requests, 1)

    def ours() -> int:
        return sum(1 for version in view.follow(since=token, wait=0) for _ in version.changes)

    def theirs() -> int:
        found = 0
        with bare.stream("GET", f"/v1/views/{PLAIN.view}/changes", params={"since": token, "wait": "0"}) as answer:
            for line in answer.iter_lines():
                found += orjson.loads(line)["op"] != "progress"
        return found

    mine, other = in_turn(ours, theirs)
    note(f"changes: {middle(mine) / 1e3:.0f} k/s, bare httpx {middle(other) / 1e3:.0f} k/s")
    return [
        sampled("changes followed, each record an object", mine, "changes/s", aim=0.8 * middle(other),
                rivals=[Rival("bare httpx", middle(other), "decodes lines, no grouping by version")], note="aim: 80 % of bare httpx")
    ]  # fmt: skip


def upserts(server: ServerProcess, lj: livejoin.Client, bare: httpx.Client, n: int, scale: Scale, note: Note) -> list[Figure]:
    """One row per call, one call after another; compared with prepared requests over a plain socket, which give the service's own
    figure."""
    count = scale.size(2_000, 50)
    process = psutil.Process(server.process.pid)
    rng = np.random.default_rng(11)
    relations = [lj.relation(name) for name in PLAIN.relations]

    def ours() -> int:
        for key, start in _keys(rng, n, count):
            relations[key % 2].upsert([{"id": key, "s": start, "e": start + 4 * LINE // n}])
        return count

    def theirs() -> int:
        exchange(server.port, process, [_upsert(key, start, n) for key, start in _keys(rng, n, count)], 1)
        return count

    def of_httpx() -> int:
        for key, start in _keys(rng, n, count):
            body = json_change(PLAIN.relations[key % 2], key, start, start + 4 * LINE // n)
            bare.post("/v1/changes", content=body, headers={"Content-Type": "application/json"}).raise_for_status()
        return count

    mine, own = in_turn(ours, theirs)
    _, other = in_turn(ours, of_httpx)
    note(f"single upserts: {middle(mine):.0f}/s, the service {middle(own):.0f}/s, bare httpx {middle(other):.0f}/s")
    rivals = [Rival("the service, by a plain socket", middle(own)), Rival("bare httpx", middle(other))]
    return [
        sampled("single upserts, one connection, synchronous=normal", mine, "requests/s", aim=0.8 * middle(own), rivals=rivals,
                note="aim: 80 % of the service's own figure")
    ]  # fmt: skip


def _keys(rng: np.random.Generator, n: int, count: int) -> list[tuple[int, int]]:
    return list(zip(rng.integers(0, 2 * n, count).tolist(), rng.integers(0, LINE, count).tolist(), strict=True))


def _upsert(key: int, start: int, n: int) -> bytes:
    return post("/v1/changes", json_change(PLAIN.relations[key % 2], key, start, start + 4 * LINE // n), "application/json")
