"""The keyed hash: a twin, and values that were chosen to meet where nothing secret was hashed."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from structures.core.hashing import SECRET, begin_hash, end_hash, take_word
from structures.core.kernel import compiled, kernel
from structures.minesweeper.cds import ConstraintTree, position_of
from structures.rows.key_table import ALL_BITS, PLAIN, RowSet, tag_of

N = 20_000
WORDS = st.integers(0, 2**32 - 1)


@kernel("int64(int64, int64, int64[::1])")
def hash_of(key: int, more: int, words: np.ndarray) -> int:
    state = begin_hash(key, more)
    for word in words:
        state = take_word(state, word)
    return end_hash(state)


@kernel("void(RowSet, int64[::1], int64[::1])")
def tags_of(rows: RowSet, hashing: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(out)):
        out[row] = tag_of(rows, row, hashing)


def twin(key: int, more: int, words: list[int]) -> int:
    """HalfSipHash-1-3 as the paper draws it, in NumPy's own 32 bits."""

    def left(x: np.uint32, bits: int) -> np.uint32:
        return np.uint32((int(x) << bits | int(x) >> (32 - bits)) & 0xFFFFFFFF)

    v = [np.uint32(x) for x in (key, more, 0x6C796765 ^ key, 0x74656462 ^ more)]

    def half(a: int, b: int, bits: int) -> None:
        v[a] = np.uint32((int(v[a]) + int(v[b])) % 2**32)
        v[b] = left(v[b], bits) ^ v[a]

    def turn() -> None:
        half(0, 1, 5)
        v[0] = left(v[0], 16)
        half(2, 3, 8)
        half(0, 3, 7)
        half(2, 1, 13)
        v[2] = left(v[2], 16)

    for word in words:
        v[3] ^= np.uint32(word)
        turn()
        v[0] ^= np.uint32(word)
    v[2] ^= np.uint32(0xFF)
    for _ in range(3):
        turn()
    return int(v[1] ^ v[3])


@given(WORDS, WORDS, st.lists(WORDS, max_size=5))
def test_twin(key: int, more: int, words: list[int]) -> None:
    assert compiled(hash_of)(key, more, np.array(words, np.int64)) == twin(key, more, words)


def former(state: np.ndarray, word: np.ndarray) -> np.ndarray:
    """A round of the hash that keys of rows had before, without a secret."""
    state = state ^ word
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        state = ((state ^ state >> shift) * factor) & 0xFFFFFFFF
    return state ^ (state >> 15)


def test_keys_that_were_chosen_do_not_meet() -> None:
    """Seen: all of these keys of rows had one hash, so a batch of 30,000 took seconds of the writer's turn, and more took their square."""
    low = np.arange(N)
    high = former(np.full(N, 0x5BD1E995), low) ^ 77
    keys = (high << 32 | low).astype(np.int64)
    assert len(np.unique(former(former(np.full(N, 0x5BD1E995), keys & 0xFFFFFFFF), keys >> 32 & 0xFFFFFFFF))) == 1
    heap = np.zeros(0, np.uint8)
    heap.flags.writeable = False
    rows = RowSet(np.array([PLAIN], np.int8), np.zeros(1, np.int64), keys.reshape(-1, 1), np.zeros(1, np.int64), heap)
    tags = np.empty(N, np.int64)
    compiled(tags_of)(rows, np.array([ALL_BITS, *SECRET]), tags)
    assert len(np.unique(tags)) > N - 50
    others = np.empty(N, np.int64)
    compiled(tags_of)(rows, np.array([ALL_BITS, SECRET[0] ^ 1, SECRET[1]]), others)
    assert np.count_nonzero(tags == others) < 50, "another process has other hashes"


def test_values_that_were_chosen_do_not_meet_in_a_constraint_tree() -> None:
    """Seen: of these 40,000 values all had one place, and a reading took 5.9 s in place of 0.16."""
    tree = ConstraintTree()
    arrays = tree.arrays._replace(hashed=np.zeros(1 << 16, np.int64))
    positions = {int(position_of(arrays, 1, i * (2**31 + 1))) for i in range(N)}
    assert len(positions) > 0.8 * N
