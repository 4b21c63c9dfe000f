"""Joined values of groups, beside Python's joins."""

from __future__ import annotations

import random

import numpy as np
import pytest

from structures.grouped.joining import ABSENT, LENGTH_BYTES, LONG, MOST, PRESENT, Joining
from structures.grouped.texts import Texts
from tests.structures.grouped.test_texts import Stored


class Joined:
    """Groups with values, by what they are ordered by."""

    def __init__(self) -> None:
        self.stored = Stored(1 << 11)
        self.texts, self.values = Texts(self.stored.rows, 64), [dict[int, bytes]() for _ in range(40)]

    def change(self, group: int, place: int, value: bytes | None) -> None:
        """Give the group this value there, or none."""
        before = self.values[group].pop(place, None)
        for sign, text in ((-1, before), (1, value)):
            if text is not None:
                code = self.stored.code(place.to_bytes(2, "big") + text + len(text).to_bytes(LENGTH_BYTES, "little"))
                self.texts.count(np.array([group], np.int32), np.array([sign], np.int8), np.array([code]), np.zeros(1, np.uint8))
        if value is not None:
            self.values[group][place] = value

    def joined(self, between: bytes, most: int) -> list[bytes | int]:
        """The text of each group, ABSENT or LONG."""
        found = list[bytes | int]()
        for part, (data, ends, states) in Joining(between, most).of(self.texts, np.arange(len(self.values), dtype=np.int32)):
            assert part.stop - part.start == len(states) == len(ends) - 1
            texts = [data[a:b].tobytes() for a, b in zip(ends[:-1], ends[1:], strict=True)]
            assert all(text == b"" for text, state in zip(texts, states, strict=True) if state != PRESENT)
            found += [text if state == PRESENT else state for text, state in zip(texts, states.tolist(), strict=True)]
        return found

    def wanted(self, between: bytes, most: int) -> list[bytes | int]:
        texts = [between.join(some[place] for place in sorted(some)) if some else None for some in self.values]
        return [ABSENT if text is None else LONG if len(text) > most else text for text in texts]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_values_that_come_and_go(seed: int) -> None:
    rng, groups = random.Random(seed), Joined()
    for step in range(60):
        for _ in range(rng.choice((1, 8))):
            value = None if rng.random() < 0.4 else bytes(rng.choices(b"ab\x00\xff", k=rng.choice((0, 1, 7, 30))))
            groups.change(rng.randrange(12), rng.randrange(300), value)
        if step % 10 == 9:
            for between, most in ((b"", 40), (b", ", 100), (b"\x00", MOST)):
                assert groups.joined(between, most) == groups.wanted(between, most)


def test_long_texts_are_joined_some_at_a_time() -> None:
    groups = Joined()
    for group in range(40):
        groups.change(group, 1, b"x" * 20_000)
        groups.change(group, 0, bytes([group]) * (MOST - 20_001))
    groups.change(7, 2, b"")
    found = groups.joined(b",", MOST)
    assert found == groups.wanted(b",", MOST) and found[7] == LONG and {len(text) for text in found if isinstance(text, bytes)} == {MOST}
