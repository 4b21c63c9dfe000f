"""A join of streams whose driver, JVM, executors or Python workers are killed in the middle of epochs: each one's changes are told once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.server_process import ROOT
from tests.streaming.cluster.churn import Churn, follow
from tests.streaming.cluster.stream_query import emitted, write
from tests.streaming.cluster.test_batch import VIEWS

NAME = "keyed pair with a hot key"
PROMPT = 240  # seconds for an epoch on a busy machine, a start of Spark included
EXECUTOR, JVM, PYTHON = "CoarseGrainedExecutorBackend", "SparkSubmit", "pyspark.daemon"
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


class Process:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._log = (folder / "log").open("ab")
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.streaming.cluster.stream_query", str(self.folder)]
        path = os.pathsep.join((str(ROOT), str(ROOT / "client")))
        env = os.environ | {"PYTHONPATH": path, "SPARK_WORKER_DIR": str(self.folder / "work")}
        self.running = subprocess.Popen(command, cwd=ROOT, env=env, stdout=self._log, stderr=self._log)

    def kill(self, what: str) -> None:
        """The driver with all that it has started, its JVM alone, an executor, or all Python workers."""
        below = self._below()
        words = {"driver": "", "jvm": JVM, "executor": EXECUTOR, "worker": PYTHON}[what]
        chosen = [one for one, command in below if words in command]
        for one in chosen[:1] if what == "executor" else chosen:
            _kill(one)
        if what in ("driver", "jvm"):
            self.running.kill()
            self.running.wait()
            for one, _ in below:
                _kill(one)

    def _below(self) -> list[tuple[psutil.Process, str]]:
        if self.running.poll() is not None:
            return []
        found = []
        for one in psutil.Process(self.running.pid).children(recursive=True):
            try:
                found.append((one, " ".join(one.cmdline())))
            except psutil.NoSuchProcess:
                continue
        return found

    def until(self, condition: Callable[[], bool]) -> None:
        """Started again whenever it has ended: Spark fails a query, in local mode, whose worker is lost."""
        end = time.monotonic() + PROMPT
        while not condition():
            assert time.monotonic() < end, (self.folder / "log").read_text()[-3000:]
            if self.running.poll() is not None:
                self.start()
            time.sleep(0.02)

    def numbers(self, log: str) -> list[int]:
        return sorted(int(one.name) for one in (self.folder / "checkpoint" / log).glob("[0-9]*"))

    def in_an_epoch(self) -> bool:
        """One is planned, and not done."""
        return len(self.numbers("offsets")) > len(self.numbers("commits"))


def _kill(one: psutil.Process) -> None:
    try:
        one.kill()
    except psutil.NoSuchProcess:
        pass


@pytest.mark.parametrize(
    ("master", "kills"),
    [
        ("local[2]", ["worker", "driver", "jvm", "worker", "jvm", "driver"]),
        ("local-cluster[2,1,1024]", ["executor", "worker", "executor", "executor", "worker"]),
    ],
)
def test_killed_again_and_again(master: str, kills: list[str], tmp_path: Path) -> None:
    churn, rng = Churn(11, ["a", "b"], "ordered", 40), random.Random(master)
    for name in ("a", "b", "out"):
        (tmp_path / name).mkdir()
    view = {"sql": VIEWS[NAME], "names": ["a", "b"], "kind": "ordered", "width": 16}
    (tmp_path / "view.json").write_text(json.dumps({"master": master, "view": view}))
    process, hits = Process(tmp_path), 0
    try:
        for number, what in enumerate(["", *kills, ""]):
            for name, rows in churn.epoch(40).items():
                write(tmp_path, name, "ordered", number, rows)
            if what:
                process.until(process.in_an_epoch)
                time.sleep(rng.random() * 0.8)
                process.kill(what)
                hits += process.in_an_epoch()
            process.until(lambda done=number + 1: len(process.numbers("commits")) >= done)
        (tmp_path / "end").touch()
        while process.running.wait(PROMPT):  # an error is a kill that it has just noticed
            process.start()
    finally:
        process.kill("driver")
    assert hits > len(kills) // 2, "the others came between epochs"
    assert not (tmp_path / "differs").exists(), (tmp_path / "differs").read_text()
    now: Counter[tuple[Any, ...]] = Counter()
    found = emitted(tmp_path)
    assert sorted(found) == list(range(len(found))), "an epoch is missing"
    for epoch in sorted(found):
        follow(now, found[epoch], ["x.id", "y.nr"])
    assert +now == churn.expected(VIEWS[NAME])
