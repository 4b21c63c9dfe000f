"""Hashing with a key that each process draws for itself: who sends values cannot choose them so that they meet in one place of a table.

HalfSipHash-1-3, without the word for the length: what is hashed has a fixed number of words, or says its length itself. All words are below
2**32. Source: Aumasson and Bernstein, *SipHash: a fast short-input PRF*; its half in 32 bits is that of the Linux kernel's hash tables.
"""

from __future__ import annotations

import secrets

import numpy as np

from structures.core.kernel import kernel, wide

State = tuple[int, int, int, int]

_LOW = 0xFFFFFFFF
SECRET: np.ndarray = np.frombuffer(secrets.token_bytes(8), np.uint32).astype(np.int64)  # of this process: two words


@kernel
def _round(a: int, b: int, c: int, d: int) -> State:
    a = (a + b) & _LOW
    b = ((b << 5) & _LOW | b >> 27) ^ a
    a = (a << 16) & _LOW | a >> 16
    c = (c + d) & _LOW
    d = ((d << 8) & _LOW | d >> 24) ^ c
    a = (a + d) & _LOW
    d = ((d << 7) & _LOW | d >> 25) ^ a
    c = (c + b) & _LOW
    b = ((b << 13) & _LOW | b >> 19) ^ c
    c = (c << 16) & _LOW | c >> 16
    return a, b, c, d


@kernel
def begin_hash(key: int, more: int) -> State:
    """The state before the first word; of the two words of a key."""
    return wide(key), wide(more), wide(0x6C796765) ^ key, wide(0x74656462) ^ more


@kernel
def take_word(state: State, word: int) -> State:
    """The state behind one word more."""
    a, b, c, d = state
    a, b, c, d = _round(a, b, c, d ^ word)
    return a ^ word, b, c, d


@kernel
def take_long(state: State, value: int) -> State:
    """The state behind the two halves of an int64, the lower one first."""
    return take_word(take_word(state, value & _LOW), (value >> 32) & _LOW)


@kernel
def end_hash(state: State) -> int:
    """The hash of the words that were taken, below 2**32."""
    a, b, c, d = state
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return b ^ d
