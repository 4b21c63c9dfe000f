"""The texts of groups in order, beside a dict of counts."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from structures.grouped.texts import Texts
from structures.rows.key_table import SlotRows

WORDS = [b"", b"a", b"ab", b"abc", b"b", b"\xff", b"\x00", b"zebra", *(f"prefix {n:03}".encode() for n in range(200))]


class Stored:
    """Codes of texts, which are given to others when the last one of a text is gone."""

    def __init__(self, most: int = len(WORDS) + 1) -> None:
        self.heap = np.zeros(1 << 22, np.uint8)
        self.positions, self.cells, self.used = np.zeros(1 << 12, np.int64), np.zeros((1 << 12, 1), np.int64), 0
        self.codes: dict[bytes, int] = {}
        self.free = list(range(most))

    def code(self, text: bytes) -> int:
        if text not in self.codes:
            self.codes[text] = code = self.free.pop()
            self.positions[code], self.cells[code, 0] = self.used, len(text)
            self.heap[self.used : self.used + len(text)] = np.frombuffer(text, np.uint8)
            self.used += len(text)
        return self.codes[text]

    def drop(self, text: bytes) -> None:
        self.free.insert(0, self.codes.pop(text))
        random.Random(len(self.free)).shuffle(self.free)

    def rows(self) -> SlotRows:
        return SlotRows(np.zeros(1, np.int8), np.zeros(1, np.int64), self.cells, self.positions, self.heap)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ends_of_texts_that_come_and_go(seed: int) -> None:
    rng, stored = random.Random(seed), Stored()
    texts, counts, groups = Texts(stored.rows, 8), [Counter[bytes]() for _ in range(4)], 4
    for step in range(120):
        changes = list[tuple[int, int, bytes]]()
        for _ in range(rng.choice((1, 3, 40))):
            group, there = rng.randrange(groups), [(g, text) for g, some in enumerate(counts) for text in some]
            if there and rng.random() < (0.7 if step % 40 > 25 else 0.4):
                group, text = rng.choice(there)
                counts[group][text] -= 1
                counts[group] = +counts[group]
                changes.append((group, -1, text))
            else:
                text = rng.choice(WORDS)
                counts[group][text] += 1
                changes.append((group, 1, text))
        codes = np.array([stored.code(text) for _, _, text in changes], np.int64)
        columns = [np.array([one[at] for one in changes], kind) for at, kind in ((0, np.int32), (1, np.int8))]
        texts.count(*columns, codes, np.zeros(len(codes), np.uint8))
        texts.check(groups)
        for text in set(stored.codes) - {text for some in counts for text in some}:
            stored.drop(text)
        of = {code: text for text, code in stored.codes.items()}
        for greatest, pick in ((False, min), (True, max)):
            found = texts.ends(np.arange(groups, dtype=np.int32), greatest).tolist()
            assert [of.get(code) for code in found] == [pick(some) if some else None for some in counts]


def test_what_was_not_there() -> None:
    stored = Stored()
    texts = Texts(stored.rows, 2)
    columns = np.zeros(1, np.int32), np.array([-1], np.int8), np.array([stored.code(b"a")], np.int64)
    texts.count(*columns, np.ones(1, np.uint8))  # null
    with pytest.raises(KeyError, match="1 texts went out of groups that did not have them"):
        texts.count(*columns, np.zeros(1, np.uint8))
