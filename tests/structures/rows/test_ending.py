"""The newest rows of most things end at once: as in a dict of them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from structures.core.reserve import reserve
from structures.rows.ending import end_others
from structures.rows.key_table import PLAIN
from structures.rows.rows import RowStore
from structures.rows.succession import Succession, SuccessionRows

CODES = 40


class Things:
    """A store of the newest rows of things, and its twin: the slot and the row of each by code."""

    def __init__(self) -> None:
        self.rows = RowStore([PLAIN] * 2, [], False)
        self.succession = Succession(reserve(4 * CODES, np.int32), np.full(2, -1))
        self.newest: dict[int, tuple[int, int]] = {}
        self.version = 0

    def replace(self, given: dict[int, int]) -> None:
        self.version += 1
        codes = np.array([*given], np.int32)
        emitted = np.stack((codes.astype(np.int64), np.array([*given.values()])), axis=1)
        found, _, _ = self.rows.succeed(
            self.version, SuccessionRows(codes, np.zeros(len(codes), np.int64), emitted, np.ones(len(codes), np.bool_)), self.succession
        )
        if len(found.versions):
            for slot in found.slots[found.deletes[0] :].tolist():
                code, value = self.rows.cells[slot].tolist()
                self.newest[code] = slot, value

    def end_others(self, stays: list[bool]) -> None:
        self.version += 1
        ending = {code: slot for code, (slot, _) in self.newest.items() if code < len(stays) and not stays[code]}
        slots = end_others(self.rows, self.version, np.array(stays, np.bool_), self.succession, self.rows.kept)
        assert slots.tolist() == [ending[code] for code in sorted(ending)]
        for code in ending:
            del self.newest[code]

    def agree(self, version: int, expected: dict[int, tuple[int, int]]) -> None:
        """A version has exactly the expected rows."""
        slots, _ = self.rows.scan(version, 0, self.rows.used + 1)
        found = zip(slots.tolist(), self.rows.cells[slots].tolist(), strict=True)
        assert {code: (slot, value) for slot, (code, value) in found} == expected


@pytest.mark.parametrize("seed", range(8))
def test_as_the_twin(seed: int) -> None:
    rng, things = random.Random(seed), Things()
    seen: dict[int, dict[int, tuple[int, int]]] = {}
    for _ in range(40):
        if rng.random() < 0.7:
            things.replace({code: rng.randrange(4) for code in rng.sample(range(CODES), rng.randrange(1, 12))})
        else:
            share = rng.choice([0.0, 0.4])
            things.end_others([rng.random() < share for _ in range(rng.choice([0, 7, CODES]))])
        seen[things.version] = dict(things.newest)
        positions = [things.newest[code][0] + 1 if code in things.newest else 0 for code in range(CODES)]
        assert things.succession.positions[:CODES].tolist() == positions
        things.rows.check()
    for version, expected in seen.items():
        things.agree(version, expected)
    freed = things.rows.reclaim(things.version, np.empty(0, np.int64), 1 << 30)
    things.rows.free(freed)
    things.agree(things.version, things.newest)
    things.rows.check()
    assert things.rows.kept == len(things.newest)
