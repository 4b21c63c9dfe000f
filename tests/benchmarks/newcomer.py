"""From `git clone` to the demo's timeline in the browser, as a new user experiences it: nothing installed, nothing cached.

The clone is local: the time that a download adds depends on the network, as does that of the packages.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
from playwright.sync_api import sync_playwright

from streaming.kafka_broker import free_port
from tests.benchmarks.figures import Figure, Scale
from tests.benchmarks.measured_tree import Note
from tests.dashboard.chromium import launched
from tests.server_process import ROOT

TITLE = "From git clone to the timeline"
AIM = 120.0  # seconds
VIEW = "presidents_with_vices"
_PATIENCE = 900.0  # seconds for a stage
_OURS = ("LIVEJOIN_", "PYTHON", "VIRTUAL_ENV", "XDG_", "MAKE", "MFLAGS", "NUMBA_")  # of whoever runs the benchmark


class Watch:
    """The seconds at which each stage was complete, from the start."""

    def __init__(self, note: Note) -> None:
        self.stages: dict[str, float] = {}
        self._note, self._began = note, time.perf_counter()

    def over(self, stage: str) -> None:
        self.stages[stage] = time.perf_counter() - self._began
        self._note(f"{self.stages[stage]:6.1f} s: {stage}")

    def wait(self, stage: str, is_over: Callable[[], bool], demo: subprocess.Popen[bytes], log: Path) -> None:
        """Wait for this stage. Raises RuntimeError if the demo ends first, or takes too long."""
        until = time.monotonic() + _PATIENCE
        while not is_over():
            if demo.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"not reached: {stage}. The demo said:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)
        self.over(stage)


def run(scale: Scale, note: Note) -> list[Figure]:
    """A quick run uses the checkout and its virtual environment as they are, without Kafka."""
    with tempfile.TemporaryDirectory(prefix="livejoin-newcomer-") as folder, sync_playwright() as playwright:
        browser = launched(playwright, "UTC")
        page = browser.new_page()
        position, port = Path(folder), free_port()
        log, url = position / "log", f"http://127.0.0.1:{port}"
        watch = Watch(note)
        if scale.quick:
            command, where = [sys.executable, "-m", "service.cli", "demo", "--no-kafka", "--port", f"{port}"], ROOT
        else:
            where = position / "livejoin"
            subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(where)], check=True)
            watch.over("cloned")
            command = ["make", "demo", f"PYTHON={getattr(sys, '_base_executable', sys.executable)}", f"ARGS=--port {port}"]
        with _started(command, where, log, dict(os.environ) if scale.quick else _empty(position)) as demo:
            if not scale.quick:
                done = where / ".venv" / ".done"
                watch.wait("packages of the service installed", (done / "service").exists, demo, log)
                watch.wait("project installed", (done / "project").exists, demo, log)
            watch.wait("service ready", lambda: _answers(url), demo, log)
            watch.wait("views live, address printed", lambda: "Open http" in log.read_text(), demo, log)
            page.goto(f"{url}/#/views/{VIEW}")
            page.locator(".timeline .note", has_text=re.compile(r"^[1-9]\d* rows? in view")).wait_for()
            watch.over("timeline's first window")
            if not scale.quick and "Running without Kafka" not in log.read_text():
                watch.wait("changes come through Kafka and Spark", lambda: "(through Kafka and Spark)" in log.read_text(), demo, log)
        browser.close()
    return figures(watch.stages)


def figures(stages: Mapping[str, float]) -> list[Figure]:
    shown = "timeline's first window"
    others = [Figure(f"until: {stage}", seconds, "s", less=True) for stage, seconds in stages.items() if stage != shown]
    return [Figure(f"until: {shown}", stages[shown], "s", aim=AIM, less=True), *others]


def _empty(position: Path) -> dict[str, str]:
    """The environment of a user who has none of our files: with its own home and caches."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    (position / "home").mkdir()
    return {**environment, "HOME": str(position / "home"), "MAVEN_ARGS": f"-Dmaven.repo.local={position / 'home' / 'maven'}"}


@contextmanager
def _started(command: list[str], folder: Path, log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        demo = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True)
    try:
        yield demo
    finally:
        with suppress(ProcessLookupError):
            os.killpg(demo.pid, signal.SIGINT)
        demo.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", trust_env=False, timeout=5).is_success
    except httpx.HTTPError:
        return False
