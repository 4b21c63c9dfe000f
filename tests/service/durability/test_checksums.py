"""Checksums are over bytes that nothing but a new format may change."""
from __future__ import annotations

import zlib

from hypothesis import given
from hypothesis import strategies as st

from service.durability.checksums import batch_checksum, checksum

VALUES = st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary()), max_size=6)


def test_known_ones() -> None:
    """As they were when format 2 was made."""
    encoded = b"ns" + (2).to_bytes(8, "little") + "ä".encode() + b"i" + (-2).to_bytes(8, "little", signed=True) + b"b" + bytes(8)
    assert checksum(None, "ä", -2, b"") == zlib.crc32(encoded) == 0x40EED1B3
    assert checksum() == 0 and checksum("format", 2) == 0xBBB138FF
    assert batch_checksum(7, "pms", None, 9, b"payload") == 0xD36387F2
    assert batch_checksum(7, None, None, None, b"payload") == zlib.crc32(b"payload", checksum(7, None, None, None)) == 0xCF47ADFD


@given(VALUES, VALUES)
def test_equal_values_alone_have_equal_checksums(some: list[int | str | bytes | None], others: list[int | str | bytes | None]) -> None:
    assert checksum(*some) == checksum(*some)
    if some != others:
        assert checksum(*some) != checksum(*others), "one in four billion"


def test_the_same_text_in_another_type_or_place() -> None:
    assert len({checksum("a", "b"), checksum("ab", ""), checksum("", "ab"), checksum(b"a", "b"), checksum("a", "b", None)}) == 5
