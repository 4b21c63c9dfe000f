"""Hashing with a random key for each process: clients cannot choose values that collide in a table.

HalfSipHash-1-3, without the word for the length: hashed values have a fixed number of words, or include their length. All words are below
2**32. Source: Aumasson and Bernstein, *SipHash: a fast short-input PRF*; its 32-bit half is used by the Linux kernel's hash tables.
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
    """Return the state before the first word. `key`, `more`: the two words of the key."""
    return wide(key), wide(more), wide(0x6C796765) ^ key, wide(0x74656462) ^ more


@kernel
def take_word(state: State, word: int) -> State:
    """Return the state after one more word."""
    a, b, c, d = state
    a, b, c, d = _round(a, b, c, d ^ word)
    return a ^ word, b, c, d


@kernel
def take_long(state: State, value: int) -> State:
    """Return the state after the two halves of an int64, the lower one first."""
    return take_word(take_word(state, value & _LOW), (value >> 32) & _LOW)


@kernel
def end_hash(state: State) -> int:
    """Return the hash of the words taken, below 2**32."""
    a, b, c, d = state
    c ^= 0xFF
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return b ^ d
