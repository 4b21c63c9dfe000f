"""Words of rows against Python's order of their values: texts that begin alike, of all lengths about those of words, bytes, numbers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import RowBlock
from service.tables.store import Table
from service.views.words import SortedColumn, first_words, ranks_of, words_of


def table_of(**columns: pa.Array) -> tuple[Table, np.ndarray]:
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    schema = pa.schema([field.with_nullable(False) for field in rows.schema])
    table = Table(schema, schema.names)
    return table, table.insert(1, RowBlock(rows.cast(schema)))


def sequences(table: Table, names: list[str], slots: np.ndarray) -> list[tuple[int, ...]]:
    starts, words = words_of(table, [SortedColumn(name) for name in names], slots)
    return [tuple(words[first:last].tolist()) for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


TEXTS = [
    *("a" * n for n in range(23)),
    *("a" * n + "b" for n in (0, 5, 6, 7, 13)),
    "a\0",
    "a\0\0",
    "\0",
    "é" * 7,
    "ü",
    "日本語の長い名前",
    "𝄞",
    "z",
]


@pytest.mark.parametrize("kind", ["texts", "bytes"])
def test_order_of_texts(kind: str) -> None:
    random.Random(3).shuffle(texts := [text.encode() for text in TEXTS])
    column = pa.array(texts, pa.binary())
    table, slots = table_of(name=column.cast(pa.utf8()) if kind == "texts" else column)
    found = dict(zip(texts, sequences(table, ["name"], slots), strict=True))
    assert sorted(texts) == sorted(texts, key=found.__getitem__)
    for text, words in found.items():
        assert len(words) == max(1, -(-len(text) // 7))
        assert not any(other != text and more[: len(words)] == words for other, more in found.items()), "one begins another"


def test_columns_one_after_another() -> None:
    rng = random.Random(4)
    made: list[tuple[Any, ...]] = [
        (
            rng.choice(("", "a", "aaaaaaa", "aaaaaaab")),
            rng.randrange(-2, 3),
            rng.choice((-1.5, 0.0, 2.25, float("inf"))),
            rng.random() < 0.5,
        )
        for _ in range(200)
    ]
    rows = sorted(set(made), key=lambda _: rng.random())
    types = (pa.utf8(), pa.int64(), pa.float64(), pa.bool_())
    table, slots = table_of(
        **{name: pa.array(column, type_) for name, column, type_ in zip("tnfb", zip(*rows, strict=True), types, strict=True)}
    )
    found = dict(zip(rows, sequences(table, list("tnfb"), slots), strict=True))
    assert sorted(rows) == sorted(rows, key=found.__getitem__)
    turned = sequences(table, list("nt"), slots[::-1])
    assert [words[1:] for words in turned] == [words[: len(words) - 3] for words in reversed(found.values())]


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize(("descending", "nulls_first"), [(False, False), (False, True), (True, False), (True, True)])
def test_directions_and_nulls(descending: bool, nulls_first: bool, few: bool) -> None:
    """Also the first words alone, which ties do not change, and numbers of all bits; a few rows have the words that many have."""
    rng = random.Random(5)
    texts = (None, *(text for text in TEXTS if len(text.encode()) < 15), "zz", "\U0010ffff" * 7)
    values = {"t": texts, "y": (None, b"", b"\0", b"\xff" * 7, b"\xff" * 8), "n": (None, -(2**63), -1, 0, 2**63 - 1), "d": (None, -3, 0, 3)}
    types = {"t": pa.utf8(), "y": pa.binary(), "n": pa.int64(), "d": pa.int64()}
    made = [{name: rng.choice(some) for name, some in values.items()} | {"k": at} for at in range(300)]
    schema = pa.schema([pa.field("k", pa.int64(), False), *(pa.field(name, type_) for name, type_ in types.items())])
    table = Table(schema, ["k"])
    slots = table.insert(1, RowBlock(pa.RecordBatch.from_pylist(made, schema)))
    columns = [SortedColumn(name, descending, nulls_first, name == "n") for name in types]

    def place(row: dict[str, Any]) -> Any:
        null = (0, 0) if nulls_first != descending else (2, 0)
        return [null if row[name] is None else (1, row[name].encode() if name == "t" else row[name]) for name in types]

    wanted = sorted(made, key=place, reverse=descending)
    size = 3 if few else len(slots)
    parts = [words_of(table, columns, slots[at : at + size]) for at in range(0, len(slots), size)]
    found = [words[first:last].tolist() for starts, words in parts for first, last in zip(starts[:-1], starts[1:], strict=True)]
    assert [place(row) for row in sorted(made, key=lambda row: found[row["k"]])] == list(map(place, wanted))
    starts, words = words_of(table, columns, slots)
    ranks = ranks_of(starts, words)
    assert [place(made[at]) for at in np.argsort(ranks)] == list(map(place, wanted))
    cut = first_words(*words_of(table, columns, slots, 3), 3).tolist()
    assert cut == first_words(starts, words, 3).tolist() == [(row + [0, 0])[:3] for row in found]


def test_no_rows() -> None:
    table, slots = table_of(name=pa.array(["x"]))
    starts, words = words_of(table, [SortedColumn("name")], slots[:0])
    assert starts.tolist() == [0] and not len(words)
