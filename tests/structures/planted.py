"""The entries of the table in `modes.py`: structures, and bugs that are planted in them."""

from __future__ import annotations

from typing import NamedTuple


class Canary(NamedTuple):
    """A mistake that one could make: `bug`, a lambda with the same parameters, in place of the function; `was` is the function itself.

    seed: of examples that show it early, where the usual ones take long.
    """

    module: str
    function: str
    bug: str
    seed: int | None = None


class Structure(NamedTuple):
    """machine: room, module and class in `tests.structures`; suites: files, of which a mode runs what `small` (`-k`) selects."""

    machine: str
    suites: tuple[str, ...]
    small: str
    canaries: tuple[Canary, ...]


# What a pin holds is used again: each state machine is to notice.
PIN_IGNORED = Canary("structures.core.blocks", "holder", "lambda pins, born, retired: -1")
