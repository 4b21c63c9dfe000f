"""The structures' tests in other modes, and with planted bugs, which prove that the state machines detect them. `modes.py` has the table;
`pytest -rP -k test_canary` shows which assertion detected each. Outside the soak, only the state machines run with tiny blocks, with few
examples, and of ten canaries of a structure one is planted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.structures.canaries import Nursery
from tests.structures.modes import STRUCTURES
from tests.structures.planted import Canary
from tests.structures.processes import MODES, run

_EACH = 10  # of so many canaries of a structure one is not left to the soak
_EXAMPLES = 2  # of a state machine with tiny blocks, outside the soak
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


@pytest.mark.parametrize("structure", STRUCTURES)
def test_tiny_blocks(nursery: Nursery, structure: str) -> None:
    """The state machine without the JIT: what is planted is the function itself."""
    machine, _, _, (one, *_) = STRUCTURES[structure]
    assert nursery.verdict(machine, one._replace(bug="was"), examples=_EXAMPLES).how == "nobody noticed"


@pytest.mark.soak
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("structure", STRUCTURES)
def test_mode(structure: str, mode: str) -> None:
    """Without the JIT, NumPy checks bounds; the checked build, another minute of compilation, is for errors of compiled code alone."""
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
        ("lambda nodes, writing, o: [][0]", "IndexError"),
        ("lambda nodes, writing, o: 1 // 0", "ZeroDivisionError"),
        ("lambda nodes, writing: 0", "takes (nodes"),
        ("lambda nodes, writing, o: (_ for _ in ()).throw(AssertionError)", "AssertionError"),
        ("lambda nodes, writing, o: __import__('os').abort()", "SIGABRT"),
    ],
)
def test_what_is_no_notice(nursery: Nursery, bug: str, instead: str) -> None:
    """Failures other than by an assertion of a test or of `check()`, do not count."""
    noticed, how = nursery.verdict("interval.machine.IntervalMachine", Canary("structures.ordered.tree", "own_leaf", bug), examples=30)
    assert not noticed and instead in how
