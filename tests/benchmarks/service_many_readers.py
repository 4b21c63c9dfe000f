"""How long single changes, counts and first pages take while hundreds of clients begin to read a view at the same time.

`results/service_many_readers_before.json` is from before large writes took turns in the event loop. The clients share the processors with
the service.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time

import numpy as np

from tests.benchmarks.figures import Figure, Scale, earlier
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import serving
from tests.benchmarks.stalls_data import INTERVALS, Stage
from tests.server_process import ROOT

TITLE = "The service: 300 clients read a view at once; how long others wait"
_PAUSE = 0.02  # seconds between two requests of the same kind
_AIMS = {"a single change": (50.0, 200.0), "a count": (250.0, 1000.0), "a first page": (100.0, 400.0)}  # ms: the median, and 9 of 10


def run(scale: Scale, note: Note) -> list[Figure]:
    clients, kept = scale.size(300, 10), {} if scale.quick else earlier("service_many_readers")
    with serving(scale) as server:
        stage = Stage(server, scale.size(400_000, 2_000), 0)
        stage.fill()
        stage.view("made", INTERVALS)
        waits: dict[str, list[float]] = {name: [] for name in _AIMS}
        alone: dict[str, list[float]] = {name: [] for name in _AIMS}
        change = json.dumps({"changes": [{"relation": "unrelated", "op": "upsert", "row": {"id": 1, "s": 1, "e": 2}}]})
        requests = {
            "a single change": ("POST", "/v1/changes", change),
            "a count": ("GET", "/v1/views/made/count", None),
            "a first page": ("GET", "/v1/views/made/rows?limit=10", None),
        }
        ended = threading.Event()

        def ask(name: str, found: list[float], once: bool = False) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
            method, path, body = requests[name]
            while not ended.is_set():
                start = time.perf_counter()
                connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
                answer = connection.getresponse()
                answer.read()
                found.append(1e3 * (time.perf_counter() - start))
                assert answer.status == 200, answer.status
                if once and len(found) >= 20:
                    break
                time.sleep(_PAUSE)
            connection.close()

        for name, found in alone.items():
            ask(name, found, True)
        threads = [threading.Thread(target=ask, args=(name, found)) for name, found in waits.items()]
        command = [sys.executable, "-m", "tests.benchmarks.readers_client", str(server.port), "/v1/views/made/rows", str(clients)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as readers:
            assert readers.stdout is not None and readers.stdout.readline() == "ready\n"
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            try:
                received = json.loads(readers.stdout.readline())
            finally:
                ended.set()
            seconds = time.perf_counter() - start
        for thread in threads:
            thread.join()
        stage.clear()
    assert len(received) == clients and min(received) > 0
    note(f"{clients} clients read {sum(received) / 1e9:.2f} GB in {seconds:.1f} s")
    figures = [Figure("all clients have read the view", seconds, "s", None, True)]
    for name, (median, most) in _AIMS.items():
        half, nine = np.percentile(waits[name], (50, 90))
        said = f"{len(waits[name])} of them, at most {max(waits[name]):.0f} ms; alone {np.median(alone[name]):.1f}"
        figures.append(Figure(f"{name}, meanwhile: the median", float(half), "ms", median, True, note=said))
        figures.append(Figure(f"{name}, meanwhile: 9 of 10 within", float(nine), "ms", most, True))
    for figure in figures:
        figure.rivals += [kept[figure.name]] if figure.name in kept else []
    return figures
