"""Readers that are slow, disconnect, or hold an old version."""

from __future__ import annotations

import http.client
import time

import numpy as np
import psutil

from tests.benchmarks.data import LINE, uniform
from tests.benchmarks.figures import Figure, Rival, Scale, middle, sampled
from tests.benchmarks.measured_tree import Changes, Note
from tests.benchmarks.raw_client import ARROW, open_stream, post_all
from tests.benchmarks.served import PLAIN, gauge, load, serving
from tests.server_process import ServerProcess

TITLE = "The service: readers that are slow, disconnect, or hold an old version"
PATIENT = {"LIVEJOIN_PIN_IDLE": "3600", "LIVEJOIN_PIN_BYTES": "64GiB"}  # the pin must not be revoked meanwhile
DAWDLE = 4096  # bytes that a slow reader takes between two batches


def run(scale: Scale, note: Note) -> list[Figure]:
    workload = uniform(scale.size(1_000_000, 20_000), scale.size(20, 800))  # more bytes than sockets can buffer
    batch, batches = scale.size(10_000, 20), scale.size(20, 3)
    with serving(scale, PATIENT) as server:
        load(server, PLAIN, workload.entries)
        note("loaded")
        changes = Changes(workload)
        alone = [batch / post_all(server.port, [PLAIN.body(*changes.take(batch))], 1) for _ in range(batches)]
        connection, answer = begin(server)
        beside = []
        for _ in range(batches):
            beside.append(batch / post_all(server.port, [PLAIN.body(*changes.take(batch))], 1))
            answer.read1(DAWDLE)
        note(f"batches beside a slow reader {middle(beside) / 1e3:.0f} k/s, without {middle(alone) / 1e3:.0f} k/s")
        figures = [
            sampled(f"batches of {batch:,}, one connection, while a reader dawdles", beside, "changes/s",
                    rivals=[Rival("without a reader", middle(alone))]),
        ]  # fmt: skip
        figures += memory_under_a_pin(server, changes, scale, note)
        figures.append(forgotten(server, connection, answer, note))
    return figures


def begin(server: ServerProcess) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    """A reader of the whole view that has taken the first bytes, and therefore holds a version."""
    connection, answer, _ = open_stream(server.port, f"/v1/views/{PLAIN.view}/rows", ARROW)
    answer.read1(DAWDLE)
    assert gauge(server, "livejoin_pins") >= 1, "a reading holds no version"
    return connection, answer


def memory_under_a_pin(server: ServerProcess, changes: Changes, scale: Scale, note: Note) -> list[Figure]:
    """Memory while batches move intervals and a reader holds an old version."""
    batch = scale.size(10_000, 20)
    process = psutil.Process(server.process.pid)
    there, rng, at, figures = changes.untouched(), np.random.default_rng(5), 0, []
    for batches in (2, 4, 8) if scale.quick else (10, 20, 40, 80, 160):
        while at < batches:
            at += 1
            chosen = there.take(rng.choice(len(there.key), batch, replace=False))
            left = rng.integers(0, LINE, batch)
            post_all(server.port, [PLAIN.body(None, chosen._replace(left=left, right=left + chosen.right - chosen.left))], 1)
        retired, resident = gauge(server, "livejoin_retired_bytes") / 2**20, process.memory_info().rss / 2**20
        note(f"one old pin, {batches} batches: retired {retired:.1f} MiB, resident {resident:.0f} MiB")
        about = {"batches": batches, "changes": batches * batch, "resident_mib": resident}
        figures.append(
            Figure(f"one old pin, after {batches} batches of {batch:,} moves: held for it by the structure", retired, "MiB", less=True,
                   parameters=about, note=f"resident {resident:.0f} MiB")
        )  # fmt: skip
    return figures


def forgotten(server: ServerProcess, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, note: Note) -> Figure:
    """Seconds from a reader's disconnect until no version is held for it."""
    answer.close()
    connection.close()
    start = time.perf_counter()
    while gauge(server, "livejoin_pins") > 0:
        assert time.perf_counter() - start < 60, "the version of a disconnected reader is still held"
        time.sleep(0.01)
    elapsed = time.perf_counter() - start
    while gauge(server, "livejoin_retired_bytes") > 0:
        assert time.perf_counter() - start < 60, "the memory held for the reader is not returned"
        time.sleep(0.01)
    given_back = time.perf_counter() - start
    note(f"a disconnected reader is noticed after {elapsed:.2f} s, its version is returned after {given_back:.2f} s")
    what = f"everything held for the reader is freed after {given_back:.2f} s"
    return Figure("a reader who leaves is forgotten after", elapsed, "s", less=True, note=what)
