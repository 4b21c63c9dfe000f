"""The structures' tests in other modes, and with planted bugs, which prove that the state machines detect them. `modes.py` has the table;
`pytest -rP -k test_canary` shows which assertion detected each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.structures.canaries import Nursery
from tests.structures.modes import STRUCTURES
from tests.structures.planted import Canary
from tests.structures.processes import MODES, TINY_MODES, run

_EACH = 3  # of so many canaries of a structure one is not left to the soak
CANARIES = [
    pytest.param(
        structure.machine,
        canary,
        id=f"{name}-{canary.module.removeprefix('structures.')}.{canary.function}",
        marks=pytest.mark.soak if number % _EACH else (),
    )
    for name, structure in STRUCTURES.items()
    for number, canary in enumerate(structure.canaries)
]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def _turns() -> Iterator[Any]:
    """Each structure in every mode; outside the soak, all but one of the tiny modes alternate. Without the JIT, NumPy checks the same
    bounds; the checked build, another minute of compilation, is for errors of compiled code alone."""
    for i, name in enumerate(STRUCTURES):
        for mode in MODES:
            yield pytest.param(name, mode, id=f"{name}-{mode}", marks=[] if mode == TINY_MODES[i % 2] else pytest.mark.soak)


@pytest.mark.parametrize(("structure", "mode"), list(_turns()))
def test_mode(structure: str, mode: str) -> None:
    _, suites, small, _ = STRUCTURES[structure]
    done = run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", small, *suites], mode)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("machine", "canary"), CANARIES)
def test_canary(nursery: Nursery, machine: str, canary: Canary) -> None:
    noticed, how = nursery.verdict(machine, canary)
    assert noticed, how
    print(how)


@pytest.mark.parametrize(
    ("bug", "instead"),
    [
        ("was", "nobody noticed"),
        ("lambda nodes, writing, o: [][0]", "IndexError"),
        ("lambda nodes, writing, o: 1 // 0", "ZeroDivisionError"),
        ("lambda nodes, writing: 0", "takes (nodes"),
        ("lambda nodes, writing, o: (_ for _ in ()).throw(AssertionError)", "AssertionError"),
        ("lambda nodes, writing, o: __import__('os').abort()", "SIGABRT"),
    ],
)
def test_what_is_no_notice(nursery: Nursery, bug: str, instead: str) -> None:
    """No bug, and failures other than by an assertion of a test or of `check()`, do not count."""
    noticed, how = nursery.verdict("interval.machine.IntervalMachine", Canary("structures.ordered.tree", "own_leaf", bug), examples=30)
    assert not noticed and instead in how
