"""Killed at every failpoint, and at random, while clients of all kinds are at work: the answers before and after are consistent."""

from __future__ import annotations

import ast
import signal
import time
from functools import partial
from pathlib import Path
from random import Random

import httpx
import pytest

from service.durability.failpoints import STEPS
from tests.datasets import ROOT
from tests.failpoints import AT_A_START, ELSEWHERE
from tests.faults import patches
from tests.histories.checker import anomalies
from tests.histories.clients import Clients
from tests.histories.seeds import NEW, seeds
from tests.server_process import NotStarted, ServerProcess

HERE = [step for step in STEPS if step not in ELSEWHERE]
# how often a failpoint may be passed before the kill; for others 30
TIMES = {"in-build": 4, "in-snapshot": 4, "after-snapshot": 2, "in-log-cleaning": 1, "in-patch": 2, "in-recovery": 8, "in-replay": 8}
EACH, AT_RANDOM, SOAK = 1, 2, 500


def crash(folder: Path, seed: str, step: str | None, *bugs: patches.Patch) -> list[str]:
    """Return one life with a kill in it, and its errors. `bugs` are planted in the service."""
    chance = Random(seed)
    clients = Clients(chance.randrange(1 << 30), writers=chance.randrange(1, 5))
    before = partial(patches.apply, patches.small, *bugs)
    environment = {"LIVEJOIN_FAILPOINT": f"{step}:{chance.randrange(1, TIMES.get(step, 30) + 1)}"} if step else {}
    if step in AT_A_START:  # the next start is killed
        with ServerProcess(folder, before=patches.another_boot) as server:  # and no snapshot leaves too little to replay
            clients.start(server.client())
            clients.work(server.url, 10)
            server.kill()
    try:
        with ServerProcess(folder, before=before, environment=environment) as server:

            def kill_at_random() -> None:
                if step is None:
                    time.sleep(chance.random() * 0.3)
                    server.kill()

            try:
                clients.start(server.client())
                clients.work(server.url, 40, kill_at_random)
                server.process.send_signal(signal.SIGTERM)
            except httpx.TransportError:
                pass
            assert server.wait() == -signal.SIGKILL, f"{environment} was not reached"
    except NotStarted as error:
        assert step in AT_A_START and error.status == -signal.SIGKILL, error
    with ServerProcess(folder, before=before) as server:
        clients.start(server.client())
        clients.work(server.url, 5)
        clients.settle(server.client())
    return anomalies(clients.history.events)


@pytest.mark.parametrize("seed", range(EACH))
@pytest.mark.parametrize("step", HERE)
def test_killed_at_a_failpoint(tmp_path: Path, step: str, seed: int) -> None:
    assert crash(tmp_path / "data", f"{step} {seed}", step) == []


@pytest.mark.parametrize("seed", range(AT_RANDOM))
def test_killed_at_random(tmp_path: Path, seed: int) -> None:
    assert crash(tmp_path / "data", f"random {seed}", None) == []


@pytest.mark.parametrize("bug", [patches.a_row_not_replayed, patches.duplicates_applied, patches.a_feed_loses_versions])
def test_a_bug_is_found(tmp_path: Path, bug: patches.Patch) -> None:
    """By one of a few kills."""
    for seed in range(6):
        try:
            wrong = crash(tmp_path / str(seed), f"after-commit {seed}", "after-commit", bug)
        except AssertionError as error:  # a client noticed it immediately
            assert "was not reached" not in str(error)
            wrong = [str(error)]
        if wrong:
            print(seed, wrong[0])
            return
    pytest.fail("six lives are right, in spite of the bug")


@pytest.mark.parametrize("seed", seeds(0))
def test_killed_for_long(tmp_path: Path, seed: int) -> None:
    assert seed >= NEW
    for number in range(SOAK):
        step = Random(f"{seed} {number}").choice([*HERE, None, None, None])
        print(seed, number, step, flush=True)
        assert crash(tmp_path / str(number), f"{seed} {number}", step) == []


def test_each_failpoint_is_killed_at() -> None:
    """Each failpoint is in one of the two lists, and each entry of the lists is in the code."""
    used = set()
    for path in (ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "reach":
                used |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    assert used == {*STEPS}
    for step, path_of_test in ELSEWHERE.items():
        text = (ROOT / path_of_test).read_text()
        assert step in text or ("_STEPS" in text and step not in HERE), f"{step} is not in {path_of_test}"


def test_a_service_that_does_not_start_is_told(tmp_path: Path) -> None:
    """An unknown failpoint is reported, not ignored."""
    with pytest.raises(NotStarted), ServerProcess(tmp_path / "data", environment={"LIVEJOIN_FAILPOINT": "in-no-step"}):
        pass
