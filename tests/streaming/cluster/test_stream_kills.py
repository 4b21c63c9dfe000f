"""A join of streams whose driver, JVM or Python workers are killed: each epoch's changes are told once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.server_process import ROOT
from tests.streaming.cluster.churn import Churn, follow
from tests.streaming.cluster.stream_query import told, write
from tests.streaming.cluster.test_batch import VIEWS

NAME = "keyed pair with a hot key"
PROMPT = 240  # seconds for a batch on a busy machine
pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


class Process:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = (folder / "log").open("ab")
        self.running = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.streaming.cluster.stream_query", str(self.folder)]
        return subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=self.log)

    def below(self, word: str) -> list[psutil.Process]:
        """The processes that it has started with this in their command lines."""
        return [one for one in psutil.Process(self.running.pid).children(recursive=True) if word in " ".join(one.cmdline())]

    def kill(self, what: str) -> None:
        workers = self.below("pyspark.daemon")
        if what == "worker":
            for one in workers:  # the daemon, and the workers that it has forked
                one.kill()
        elif what == "jvm":
            for one in self.below("SparkSubmit"):
                one.kill()
        else:
            self.running.kill()
        if what != "worker":
            jvms = self.below("SparkSubmit") if self.running.poll() is None else []
            self.running.kill()
            self.running.wait()
            for one in [*jvms, *workers]:
                if one.is_running():
                    one.kill()

    def again(self) -> None:
        if self.running.poll() is None:
            return
        self.running = self._started()

    def until(self, epochs: int) -> None:
        """So many epochs are told."""
        end = time.monotonic() + PROMPT
        while len(told(self.folder)) < epochs:
            assert time.monotonic() < end, (self.folder / "log").read_text()[-3000:]
            self.again()
            time.sleep(0.3)


@pytest.mark.parametrize("what", ["driver", "jvm", "worker"])
def test_killed_again_and_again(what: str, tmp_path: Path) -> None:
    churn, rng = Churn(11, ["a", "b"], "ordered", 40), random.Random(what)
    for name in ("a", "b", "out"):
        (tmp_path / name).mkdir()
    (tmp_path / "view.json").write_text(json.dumps({"sql": VIEWS[NAME], "names": ["a", "b"], "kind": "ordered", "width": 16}))
    process = Process(tmp_path)
    try:
        for number in range(12):
            for name, rows in churn.epoch(40).items():
                write(tmp_path, name, "ordered", number, rows)
            process.until(max(1, number - 1))
            if number % 2:
                time.sleep(rng.random() * 2)
                process.kill(what)
        process.until(6)
        (tmp_path / "end").touch()
        while process.running.wait(PROMPT):  # an error is a kill that it has just noticed
            process.again()
    finally:
        process.kill("driver")
    assert not (tmp_path / "differs").exists(), (tmp_path / "differs").read_text()
    now: Counter[tuple[Any, ...]] = Counter()
    found = told(tmp_path)
    assert sorted(found) == list(range(len(found))), "an epoch is missing"
    for epoch in sorted(found):
        follow(now, found[epoch], ["x.id", "y.nr"])
    assert +now == churn.expected(VIEWS[NAME])
