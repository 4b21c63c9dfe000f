"""Columns of rows as words, in the order of the rows: sequences of int64, none of which is a prefix of another unless the values are equal.

A number is one word. A text has words of seven bytes, at least one; the last byte of a word is the number of the text's bytes in it, or 8
if more words follow.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.tables.store import Table
from structures.core.encoding import encode_floats

Ints = npt.NDArray[np.int64]

BYTES = 7  # bytes of text per word
_MORE = 8


def words_of(table: Table, names: Sequence[str], slots: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return where the words of n rows begin, int64[n + 1], and all these words, for these columns, none of which is null."""
    columns = [_of_column(table, name, slots) for name in names]
    counts = np.sum([count for count, _ in columns], axis=0, dtype=np.int64)
    starts = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    words, positions = np.empty(starts[-1], np.int64), starts[:-1].copy()
    for count, some in columns:
        words[np.repeat(positions, count) + _within(count)] = some
        positions += count
    return starts, words


def _of_column(table: Table, name: str, slots: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return the number of words per row, and all words."""
    type_ = table.type_of(name)
    if not (pa.types.is_string(type_) or pa.types.is_binary(type_)):
        ((numbers,), _) = table.numbers([name], slots)
        return np.ones(len(slots), np.int64), encode_floats(numbers.view(np.float64), 0) if pa.types.is_floating(type_) else numbers
    parts = [_of_texts(rows.column(0)) for _, rows in table.take_pieces([name], slots)]
    return np.concatenate([counts for counts, _ in parts]), np.concatenate([words for _, words in parts])


def _of_texts(texts: pa.Array) -> tuple[Ints, Ints]:
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    lengths = np.diff(ends)
    counts = np.maximum(1, -(-lengths // BYTES))
    last = np.cumsum(counts) - 1
    cells = np.zeros((int(counts.sum()), BYTES + 1), np.uint8)
    cells[:, BYTES] = _MORE
    cells[last, BYTES] = lengths - BYTES * (counts - 1)
    if lengths.any():
        within = _within(lengths)
        at = np.repeat(last + 1 - counts, lengths) + within // BYTES
        cells[at, within % BYTES] = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return counts, (cells.view(">u8")[:, 0].astype(np.uint64) ^ np.uint64(1 << 63)).view(np.int64)


def _within(counts: Ints) -> Ints:
    """Return 0, 1 … for each count."""
    total = int(counts.sum())
    return np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
