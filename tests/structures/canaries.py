"""Plants bugs (canaries) in a structure and runs its state machine, to prove that it finds them.

A canary counts as detected when an assertion fails, either of a test or of the structure's `check()`. Any other exception means that the
bug breaks the code, not that a test would detect a wrong answer.

`python -m tests.structures.canaries` is the process with which `Nursery` communicates: it imports everything once, and forks for each
canary.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.structures.modes import STRUCTURES
from tests.structures.planted import Canary
from tests.structures.processes import CANARY_MODE, MODES, ROOT

TOO_LONG = 120.0  # seconds of processor time
TESTS, CODE = ROOT / "tests", ROOT / "structures"


class Verdict(NamedTuple):
    """Whether the canary was detected; by which assertion, or the exception raised instead."""

    noticed: bool
    how: str


def machine_of(name: str) -> Any:
    """Return the state machine "room.module.Class" of `tests.structures`."""
    module, cls = name.rsplit(".", 1)
    return getattr(import_module(f"tests.structures.{module}"), cls)


def drive(machine: str, number: int | None = None, **options: Any) -> None:
    """Run a state machine, with the seed `number`, otherwise with the same examples each time."""
    cls = machine_of(machine)
    checks = settings(
        deadline=None,
        derandomize=number is None,
        database=None,
        report_multiple_bugs=False,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.generate),
        **options,
    )
    run_state_machine_as_test(cls if number is None else seed(number)(cls), settings=checks)


def plant(canary: Canary) -> None:
    home = import_module(canary.module)
    was = getattr(home, canary.function)
    bug = eval(canary.bug, {**vars(home), "was": was})
    if list(signature(bug).parameters) != list(signature(was).parameters):
        raise TypeError(f"{canary.function} takes {signature(was)}, its canary {signature(bug)}")
    setattr(home, canary.function, bug)


def validate(failure: BaseException) -> Verdict:
    """Return the verdict on what a state machine raised."""
    frames = traceback.extract_tb(failure.__traceback__)
    position = Path(frames[-1].filename)
    proof = any("check" in (frame.name, Path(frame.filename).stem) and Path(frame.filename).is_relative_to(CODE) for frame in frames)
    own = position.is_relative_to(TESTS) or proof
    if type(failure) is AssertionError and own:
        said = str(failure).partition("\n")[0] or frames[-1].line
        return Verdict(True, f"{position.relative_to(ROOT)}:{frames[-1].lineno}: {said}")
    return Verdict(False, "".join(traceback.format_exception(failure)))


def verdict(machine: str, canary: Canary, examples: int = 2000) -> Verdict:
    """Return the verdict of this process, which keeps the bug."""
    try:
        plant(canary)
        drive(machine, canary.seed, max_examples=examples, stateful_step_count=20)
    except Exception as failure:
        return validate(failure)
    return Verdict(False, "nobody noticed")


def serve() -> None:
    """Print a verdict for each line of input: machine, canary, and optionally a number of examples."""
    for structure in STRUCTURES.values():
        machine_of(structure.machine)
    replies = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr = open(os.devnull, "w")  # Hypothesis prints what it found at length
    for line in sys.stdin:
        machine, canary, options = json.loads(line)
        child = os.fork()
        if child == 0:
            signal.setitimer(signal.ITIMER_PROF, TOO_LONG)
            print(json.dumps(verdict(machine, Canary(*canary), **options)), file=replies, flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            ended = signal.Signals(-code).name if (code := os.waitstatus_to_exitcode(status)) < 0 else f"status {code}"
            print(json.dumps(Verdict(False, f"ended by {ended}")), file=replies, flush=True)


class Nursery:
    """The process in which canaries are planted."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.structures.canaries"],
            cwd=ROOT,
            env={**os.environ, **MODES[CANARY_MODE]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def verdict(self, machine: str, canary: Canary, **options: int) -> Verdict:
        assert self._process.stdin and self._process.stdout
        print(json.dumps([machine, canary, options]), file=self._process.stdin, flush=True)
        return Verdict(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


if __name__ == "__main__":
    serve()
