"""Mutations of valid inputs: a few steps that truncate, repeat, flip, splice and insert. The steps are data: a random number generator
draws them by the million, and Hypothesis draws and shrinks them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from hypothesis import strategies as st

MOST_BYTES = 1 << 16  # maximum size of a mutated input, so that repeated steps do not grow it without bound
_NUMBER = re.compile(rb"[0-9]+")
WORDS: tuple[bytes, ...] = (
    b"",
    b"\0",
    b"\xff",
    b"\xff\xfe",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xf4\x90\x80\x80",
    b"\r\n",
    b"\n\n",
    b"\t",
    b" ",
    b"\x1b",
    b"\xe2\x80\xa8",
    b"\\ud800",
    b"\\udc00\\ud800",
    b"\\u0000",
    b'"',
    b"'",
    b"\\",
    b",",
    b";",
    b":",
    b"[",
    b"]",
    b"{",
    b"}",
    b"(",
    b")",
    b"[" * 600,
    b'{"a":' * 300,
    b"(" * 300,
    b"%",
    b"%00",
    b"%ff",
    b"%ed%a0%80",
    b"%2e%2e/",
    b"+",
    b"&",
    b"=",
    b"-",
    b"--",
    b"/*",
    b"0",
    b"-0",
    b"-0.0",
    b"1e999",
    b"-1e-999",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"null",
    b"true",
    b"false",
    b"2147483648",
    b"4294967296",
    b"9223372036854775807",
    b"9223372036854775808",
    b"-9223372036854775808",
    b"-9223372036854775809",
    b"18446744073709551615",
    b"18446744073709551616",
    b"9" * 400,
    b"1" * 5000,
    b"0." + b"3" * 2000,
    b"0x7f",
    b"1_000",
    b"\xd9\xa3",
    b"-1",
    b"1.5",
    b"+2000000-01-01",
    b"-290308-12-21T19:59:05.224192Z",
    b"294247-01-10T04:00:54.775807Z",
    b"2026-02-30",
    b"2026-01-01T24:00:00Z",
    b"2026-01-01T12:00:00.1234567Z",
    b"2026-01-01T12:00:00+99:99",
    b"_op",
    b"upsert",
    b"delete",
    b"truncate",
    b"insert",
)


class Step(NamedTuple):
    """One change of an input. `where` and `other` are positions as 16-bit fractions of its length; `size` is a number of bytes."""

    kind: int
    where: int
    other: int
    size: int
    word: int


_KINDS = 10


def mutated(sample: bytes, steps: Sequence[Step], others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Return the sample after the steps, truncated to MOST_BYTES. `others` are samples to splice with, `words` are inserted."""
    data = bytearray(sample)
    for step in steps:
        _apply(data, step, others, words)
        del data[MOST_BYTES:]
    return bytes(data)


def _apply(data: bytearray, step: Step, others: Sequence[bytes], words: Sequence[bytes]) -> None:
    at, other = step.where * len(data) >> 16, step.other * len(data) >> 16
    end = min(at + 1 + step.size, len(data))
    word = words[step.word % len(words)]
    if step.kind == 0 and data:
        data[at] ^= 1 << step.size % 8
    elif step.kind == 1 and data:
        data[at] = step.word & 0xFF
    elif step.kind == 2:
        del data[at:end]
    elif step.kind == 3:
        del data[at:]
    elif step.kind == 4:
        data[other:other] = data[at:end] * (1 + step.word % 64)
    elif step.kind == 5:
        data[at:at] = word
    elif step.kind == 6:
        data[at : at + len(word)] = word
    elif step.kind == 7:
        spliced = others[step.word % len(others)]
        data[at:] = spliced[step.other * len(spliced) >> 16 :]
    elif step.kind == 8:
        if (number := _NUMBER.search(data, at)) is not None:
            data[number.start() : number.end()] = word
    elif data and (token := re.compile(rb"\w+|[^\w\s]").search(data, at)) is not None:
        data[token.start() : token.end()] = word


def drawn(chance: Random) -> list[Step]:
    """Return one to four random steps."""
    return [
        Step(
            chance.randrange(_KINDS), chance.getrandbits(16), chance.getrandbits(16), _SIZES[chance.getrandbits(3)], chance.getrandbits(16)
        )
        for _ in range(_COUNTS[chance.getrandbits(3)])
    ]


_SIZES = (0, 1, 1, 3, 3, 7, 20, 200)
_COUNTS = (1, 1, 1, 2, 2, 2, 3, 4)
_BITS = st.integers(0, 0xFFFF)
STEPS = st.lists(st.builds(Step, st.integers(0, _KINDS - 1), _BITS, _BITS, st.sampled_from(_SIZES), _BITS), min_size=1, max_size=4)
