"""Columns of rows as words, in the order of the rows: sequences of int64, none of which is a prefix of another unless the values are equal.

A number is one word. A text has words of seven bytes, at least one; the last byte of a word is one more than the number of the text's bytes
in it, or 9 if more words follow. Null is a word greater or less than all others; where numbers may be any 64 bits, a word before them says
whether they are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from service.tables.arrow import is_text, null_mask
from service.tables.store import Table
from structures.core.encoding import NEG_INF, POS_INF, encode_any_floats

Ints = npt.NDArray[np.int64]

BYTES = 7  # bytes of text per word
_MORE = 9
_SIGN = np.int64(NEG_INF)


class SortedColumn(NamedTuple):
    """A column by which rows are ordered. `has_null_apart`: whether a word of its own says that it is null."""

    name: str
    descending: bool = False
    nulls_first: bool = False
    has_null_apart: bool = False


def words_of(table: Table, columns: Sequence[SortedColumn], slots: npt.NDArray[np.int32], most: int | None = None) -> tuple[Ints, Ints]:
    """Return where the words of n rows begin, int64[n + 1], and all these words, for these columns. most: only so many of a text."""
    n, parts = len(slots), [part for column in columns for part in _of_column(table, column, slots, most)]
    if all(counts is None for counts, _ in parts):
        return np.arange(0, len(parts) * n + 1, len(parts)), np.stack([words for _, words in parts], axis=1).reshape(-1)
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(sum((1 if counts is None else counts for counts, _ in parts), np.zeros(n, np.int64)), out=starts[1:])
    words, positions = np.empty(starts[-1], np.int64), starts[:-1].copy()
    for counts, some in parts:
        words[positions if counts is None else np.repeat(positions, counts) + _within(counts)] = some
        positions += 1 if counts is None else counts
    return starts, words


def first_words(starts: Ints, words: Ints, most: int) -> Ints:
    """int64[n, most]: the first words of each row; 0 where there are fewer."""
    at = starts[:-1, None] + np.arange(most)
    found: Ints = np.where(at < starts[1:, None], words[np.minimum(at, len(words) - 1)], 0)
    return found


def ranks_of(starts: Ints, words: Ints) -> Ints:
    """int64[n]: numbers of rows in the order of their words."""
    data = (words ^ _SIGN).astype(">i8")
    column = pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(8 * starts), pa.py_buffer(data)])
    found: Ints = np.asarray(pc.rank(column)).astype(np.int64)
    return found


def _of_column(
    table: Table, column: SortedColumn, slots: npt.NDArray[np.int32], most: int | None
) -> list[tuple[Ints | None, Ints]]:  # fmt: skip
    """Return numbers of words per row (None: one), and the words of all rows."""
    if is_text(table.type_of(column.name)):
        texts = [_of_texts(rows.column(0), column, most) for _, rows in table.take_pieces([column.name], slots)]
        return [(np.concatenate([counts for counts, _ in texts]), np.concatenate([words for _, words in texts]))]
    ((words,), (null,)) = table.numbers([column.name], slots)
    if pa.types.is_floating(table.type_of(column.name)):
        words = encode_any_floats(words.view(np.float64))
    if column.descending:
        words = ~words
    if null is not None:
        words = np.where(null, 0 if column.has_null_apart else _null(column), words)
    if not column.has_null_apart:
        return [(None, words)]
    apart = np.zeros(len(slots), np.bool_) if null is None else null
    return [(None, (apart != column.nulls_first).astype(np.int64)), (None, words)]


def _null(column: SortedColumn) -> int:
    return NEG_INF if column.nulls_first else POS_INF


def _of_texts(texts: pa.Array, column: SortedColumn, most: int | None) -> tuple[Ints, Ints]:
    null, end = null_mask(texts), None if most is None else BYTES * most + 1
    texts = texts.view(pa.binary())
    texts = texts if null is None else texts.fill_null(b"")
    counts, words = _of_bytes(texts if end is None else pc.binary_slice(texts, 0, end))
    if column.descending:
        words = ~words
    if null is not None:
        words[(np.cumsum(counts) - 1)[null]] = _null(column)
    return counts, words


def _of_bytes(texts: pa.Array) -> tuple[Ints, Ints]:
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = np.diff(ends)
    counts = np.maximum(1, -(-lengths // BYTES))
    last = np.cumsum(counts) - 1
    cells = np.zeros((int(counts.sum()), BYTES + 1), np.uint8)
    cells[:, BYTES] = _MORE
    cells[last, BYTES] = lengths - BYTES * (counts - 1) + 1
    if lengths.any():
        within = _within(lengths)
        at = np.repeat(last + 1 - counts, lengths) + within // BYTES
        cells[at, within % BYTES] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return counts, cells.view(">i8")[:, 0].astype(np.int64) ^ _SIGN


def _within(counts: Ints) -> Ints:
    """Return 0, 1 … for each count."""
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
