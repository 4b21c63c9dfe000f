"""Large bodies from many clients at once: they take no more memory than `--max-body-memory`, and other requests are answered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pytest

from service.api.http import media
from service.settings import Settings
from tests.end_to_end import talk
from tests.server_process import ServerProcess

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2 * 3600)]

MIB = 1 << 20
CLIENTS = int(os.environ.get("LIVEJOIN_CLIENTS") or 100)
_LIMIT = 1800.0  # seconds for a body to be accepted
_PATIENCE = 60.0  # maximum seconds that a single change may wait behind large batches
_ONE_BY_ONE = 6  # bodies: the relation holds what earlier ones wrote until that is freed
_TEXT = 240  # letters


def _pieces(body: bytes) -> Iterator[bytes]:
    """Yield the body in pieces: if it were sent in one piece, the client would copy the rest of it with each packet."""
    for start in range(0, len(body), MIB):
        yield body[start : start + MIB]


def _flood(server: ServerProcess, body: bytes) -> int:
    """Post the body until it is accepted. Return how often it was refused for lack of memory."""
    headers = {"Content-Type": media.ARROW, "Content-Length": str(len(body))}
    with server.client(_LIMIT) as client:
        refused, end = 0, time.monotonic() + _LIMIT
        while time.monotonic() < end:
            try:
                answer = client.post("/v1/changes", content=_pieces(body), headers=headers)
            except httpx.TransportError:  # closed before the answer to a refused body was read
                answer = httpx.Response(429)
            if answer.status_code not in (429, 503):
                talk.ok(answer)
                return refused
            refused += 1
            time.sleep(float(answer.headers.get("Retry-After", 1)))
    raise AssertionError(f"refused {refused} times")


def test_a_hundred_large_bodies_at_once(tmp_path: Path) -> None:
    """Each has nearly 256 MiB and as many rows as a batch may have. All are accepted in the end, and the service needs no more memory than
    for one after the other, plus the limit for all bodies."""
    limits = Settings()
    rows = limits.max_batch_rows
    ids = np.arange(rows)
    columns = {"id": pa.array(ids), "text": pa.array([f"{id_:0{_TEXT}}" for id_ in ids.tolist()])}
    body = talk.arrow_bytes(pa.table(columns), "large")
    assert 0.9 * limits.max_body < len(body) <= limits.max_body
    over, sizes, waits = threading.Event(), [0], list[float]()
    with ServerProcess(tmp_path / "data", fresh=True) as server:
        client = server.client(_LIMIT)
        for name, more in (("large", [{"name": "text", "type": "string"}]), ("small", [])):
            talk.define(client, name, {"columns": [{"name": "id", "type": "int64"}, *more], "key": ["id"]})
        process = psutil.Process(server.process.pid)

        def look() -> None:
            while not over.wait(0.1):
                sizes.append(process.memory_info().rss)

        def change() -> None:
            with server.client(_LIMIT) as other:
                while not over.is_set():
                    start = time.monotonic()
                    talk.ok(talk.send(other, [{"relation": "small", "op": "upsert", "row": {"id": len(waits)}}]))
                    waits.append(time.monotonic() - start)

        with ThreadPoolExecutor(CLIENTS + 2) as pool:
            others = [pool.submit(look), pool.submit(change)]
            try:
                for _ in range(_ONE_BY_ONE):
                    _flood(server, body)
                one_by_one = max(sizes)
                floods = [pool.submit(_flood, server, body) for _ in range(CLIENTS)]
                refusals = [flood.result() for flood in floods]
            finally:
                over.set()
            for other in others:
                other.result()
        talk.ok(client.get("/readyz"))
        time.sleep(5)
        after = process.memory_info().rss
    resident = f"MiB: {one_by_one // MIB} one by one, {max(sizes) // MIB} together, {after // MIB} after"
    print(f"{CLIENTS} bodies of {len(body) // MIB} MiB, refused {sum(refusals)} times; {resident}")
    print(f"{len(waits)} single changes, p50 {1e3 * np.median(waits):.1f} ms, at most {max(waits):.1f} s")
    assert max(sizes) < one_by_one + limits.max_body_memory
    assert len(waits) > 1 and max(waits) < _PATIENCE
