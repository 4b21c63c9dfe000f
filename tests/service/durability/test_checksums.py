"""Checksums are over bytes that nothing but a new format may change."""
from __future__ import annotations

import json
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from service.durability.checksums import batch_checksum, checksum, json_checksum

JSON = st.recursive(
    st.one_of(st.none(), st.integers(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=12,
)
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


def test_known_documents() -> None:
    """As they were when the manifests of format 2 were made."""
    document = {"b": [1, None, "ä"], "a": {}, "c": True}
    flat = ("{", 3, "a", "{", 0, "b", "[", 3, 1, None, "ä", "c", 1)
    assert json_checksum(document) == checksum(*flat) == 0xB30C43E6
    assert json_checksum([]) == 0x5FF61251


@given(JSON)
def test_a_document_has_the_same_checksum_however_it_is_written(document: Any) -> None:
    for more in ({}, {"indent": 1}, {"ensure_ascii": False}, {"sort_keys": True}):
        assert json_checksum(json.loads(json.dumps(document, **more))) == json_checksum(document)


@given(JSON, JSON)
def test_other_documents_have_others(some: Any, other: Any) -> None:
    if some != other:
        assert json_checksum(some) != json_checksum(other), "one in four billion"
