"""The values that STRING_AGG and ARRAY_AGG list: each as bytes in the order of the group, for `structures.grouped.joining`; and the
resulting texts of groups.

    entry   for each value of ORDER BY a byte that says whether it is null, and bytes in its order, none of which is the beginning of
            others; then what is listed, and the length of that

What is listed of ARRAY_AGG is the value in JSON, and the text of a group is an array of JSON.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.kinds import kept
from livejoin.wire.rows import json_texts
from service.query.model import MOST_LISTED, Aggregate, SortKey
from service.tables.arrow import is_text, numbers_in_order
from service.tables.domains import Domain
from service.tables.projection import one_zero
from service.tables.resolution import Slots
from service.views.stages import wide
from structures.core.reserve import reserve
from structures.grouped.joining import LENGTH_BYTES, LONG, PRESENT, JoinedTexts

Ints = npt.NDArray[np.int64]

_BYTES, _NOTHING = pa.binary(), pa.scalar(b"", pa.binary())
_SIGN = np.int64(-(2**63))
_TOO_LONG = -1


def most_of(one: Aggregate) -> int:
    """Return how many bytes the values of a group may have, with what separates them."""
    return MOST_LISTED - len("[]") if one.type == "json" else MOST_LISTED


def entries(one: Aggregate, column: Callable[[int], pa.Array]) -> pa.Array:
    """Return the entry of each row, null for a row of which nothing is listed. column: returns an output."""
    assert one.of is not None and one.listing is not None
    texts = column(one.of)
    if not len(texts):
        return pa.array([], _BYTES)
    if one.type == "json":
        texts = texts.fill_null("null") if one.listing.of_json else json_texts(one_zero(texts) if one.listing.distinct else texts)
    texts = texts.cast(_BYTES)
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > MOST_LISTED:  # too long anyway
        texts = pc.binary_slice(texts, 0, MOST_LISTED + 1)
    lengths = pc.binary_length(texts).fill_null(0)
    behind = _fixed(np.asarray(lengths).astype("<i4").view(np.uint8).reshape(-1, LENGTH_BYTES))
    found = pc.binary_join_element_wise(*(_position(column(key.of), key) for key in one.listing.order), texts, behind, _NOTHING)
    if one.listing.where is None:
        return found
    return pc.if_else(column(one.listing.where).fill_null(False), found, pa.scalar(None, _BYTES))


def _position(values: pa.Array, key: SortKey) -> pa.Array:
    if wide.is_wide(values.type):
        made = wide.encoded(values)
    elif is_text(values.type):
        escaped = pc.replace_substring(values.cast(_BYTES), pattern=b"\0", replacement=b"\0\xff")
        made = pc.binary_join_element_wise(escaped, b"\0\0", _NOTHING)
    else:
        made = _fixed((numbers_in_order(kept(values)) ^ _SIGN).astype(">i8").view(np.uint8).reshape(-1, 8))
    null = values.is_null()
    if values.null_count:
        made = pc.if_else(null, _NOTHING, made)
    if key.descending:
        made = _inverted(made)
    flags = pc.if_else(null, pa.scalar(b"\0" if key.nulls_first else b"\2", _BYTES), pa.scalar(b"\1", _BYTES))
    return pc.binary_join_element_wise(flags, made, _NOTHING)


def _fixed(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Return rows of bytes, uint8[n, width], as a column."""
    ends = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.Array.from_buffers(_BYTES, len(rows), [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))])


def _inverted(column: pa.Array) -> pa.Array:
    """Return the bytes in the opposite order; none is null."""
    _, ends, data = column.buffers()
    turned = ~np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return pa.Array.from_buffers(_BYTES, len(column), [None, ends, pa.py_buffer(turned)], offset=column.offset)


def texts_at(domain: Domain, type_: pa.DataType, codes: pa.Array) -> pa.Array:
    """Return the texts with these codes, null for null, of a readable version."""
    valid = np.asarray(codes.is_valid())
    found = domain.take(pa.schema([pa.field("", type_, False)]), np.asarray(codes.filter(pa.array(valid))).astype(np.int32)).column(0)
    return found if valid.all() else found.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def bytes_at(domain: Domain, codes: Slots) -> Ints:
    """int64[n]: the bytes of these texts; 0 for -1."""
    found, there = np.zeros(len(codes), np.int64), codes >= 0
    found[there] = domain.text_bytes(codes[there])
    return found


class ListedTexts:
    """The text of each group by an aggregate, as last reported. Used by the writer, or the view's builder; `domain` by any thread."""

    def __init__(self, one: Aggregate, most_groups: int) -> None:
        """OSError, MemoryError: there is no room."""
        self._is_array = one.type == "json"
        self.domain = Domain([pa.utf8()])
        self._reported = reserve(4 * most_groups, np.int32)  # by group: 1 + the code of its text; 0: none; _TOO_LONG
        self.version = 0  # at which a text that is replaced ends
        self.too_long = 0  # groups whose text is

    def code(self, groups: Slots, texts: JoinedTexts) -> Ints:
        """As `JoinedText.code`."""
        found = pa.Array.from_buffers(pa.utf8(), len(groups), [None, pa.py_buffer(texts.ends), pa.py_buffer(texts.data)])
        if self._is_array:
            found = pc.binary_join_element_wise("[", found, "]", "")
        found = pc.if_else(pa.array(texts.states == PRESENT), found, pa.scalar(None, pa.utf8()))
        codes: Slots = self.domain.acquire(pa.RecordBatch.from_arrays([found], [""]))
        before, now = self._reported[groups], np.where(texts.states == LONG, _TOO_LONG, codes + 1).astype(np.int32)
        self.too_long += int(np.count_nonzero(now == _TOO_LONG)) - int(np.count_nonzero(before == _TOO_LONG))
        self._reported[groups] = now
        self.domain.release(before[before > 0] - 1, self.version)
        return codes.astype(np.int64)

    def clear(self, version: int, groups: int) -> None:
        """Drop the texts of all groups, which are below `groups`; those that have rows are reported again."""
        self._reported[:groups] = 0
        self.too_long = 0
        self.domain.release_all(version)

    @property
    def bytes(self) -> int:
        return self.domain.bytes

    def check(self, groups: int) -> None:
        """AssertionError: a text is not that of as many groups as it is counted for."""
        self.domain.check()
        reported = self._reported[:groups]
        assert np.count_nonzero(reported == _TOO_LONG) == self.too_long, "the texts that are too long"
        _, counts = self.domain.counted
        codes = reported[reported > 0] - 1
        assert np.array_equal(np.bincount(codes, minlength=self.domain.codes), counts[: self.domain.codes]), "the uses of a text"
