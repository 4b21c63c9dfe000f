"""A file's bytes depend on its rows alone."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from livejoin.wire.schema import RelationPatch
from service.api.files import writing
from service.api.files.writing import KINDS, make
from service.api.rows import RowsEndpoint
from service.reading.cursors import open_rows
from tests.service.running import batch, rows_of, running

SEED = 20261124
SCHEMA = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "UTC"), "text": pa.utf8(), "price": pa.decimal128(12, 2), "on": pa.bool_()})


def rows(random_: random.Random, count: int) -> pa.RecordBatch:
    table: dict[str, Any] = {
        "id": [random_.getrandbits(60) for _ in range(count)],
        "at": [None if random_.random() < 0.2 else random_.getrandbits(40) for _ in range(count)],
        "text": [None if random_.random() < 0.2 else "ö" * random_.choice((0, 1, 5, 400)) for _ in range(count)],
        "price": [None if random_.random() < 0.1 else f"{random_.randrange(10**6)}.25" for _ in range(count)],
        "on": [random_.random() < 0.5 for _ in range(count)],
    }
    table["price"] = pa.array(table["price"], pa.utf8()).cast(pa.decimal128(12, 2))
    return pa.record_batch([pa.array(table[field.name], field.type) for field in SCHEMA], schema=SCHEMA)


def written(suffix: str, chunks: list[pa.RecordBatch]) -> bytes:
    file = make(suffix, 7, SCHEMA)
    return b"".join([file.head(), *(piece for chunk in chunks for piece in file.chunk(chunk)), file.end(None)])


def cut(random_: random.Random, whole: pa.RecordBatch) -> list[pa.RecordBatch]:
    positions = sorted(random_.randrange(whole.num_rows + 1) for _ in range(random_.randrange(12)))
    return [whole.slice(start, stop - start) for start, stop in zip([0, *positions], [*positions, whole.num_rows], strict=True)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "GROUP_ROWS", 50)
    monkeypatch.setattr(writing, "GROUP_BYTES", 8000)


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.usefixtures("small")
def test_the_same_rows_give_the_same_bytes(suffix: str) -> None:
    print(f"seed {SEED}")
    random_ = random.Random(SEED)
    for count in (0, 1, 49, 50, 51, 100, 333):
        whole = rows(random_, count)
        assert len({written(suffix, cut(random_, whole)) for _ in range(30)}) == 1


@pytest.mark.usefixtures("small")
def test_groups_are_bounded_by_rows_and_by_bytes() -> None:
    random_ = random.Random(SEED)
    whole = rows(random_, 1000)
    for file in (written("parquet", cut(random_, whole)) for _ in range(5)):
        found = pq.ParquetFile(io.BytesIO(file))
        assert found.read().equals(pa.Table.from_batches([whole]))
        groups = [found.read_row_group(number) for number in range(found.num_row_groups)]
        assert all(group.num_rows <= 50 and group.nbytes < 9000 for group in groups)
        assert any(group.num_rows == 50 for group in groups) and any(group.num_rows < 50 for group in groups[:-1])
    batches = list(pa.ipc.open_stream(written("arrow", cut(random_, whole))))
    assert [batch.num_rows for batch in batches] == [group.num_rows for group in groups]
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches([whole]))


@pytest.mark.usefixtures("small")
def test_a_row_larger_than_a_group_is_one_by_itself() -> None:
    table = {"id": [1, 2, 3], "at": [0] * 3, "text": ["a", "b" * 20_000, "c"], "price": [None] * 3, "on": [True] * 3}
    whole = pa.record_batch([pa.array(table[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
    batches = list(pa.ipc.open_stream(written("arrow", [whole])))
    assert [batch.column("id").to_pylist() for batch in batches] == [[1], [2], [3]]


def test_a_file_without_rows_is_one() -> None:
    assert pq.read_table(io.BytesIO(written("parquet", []))).schema.equals(SCHEMA)
    assert pa.ipc.open_stream(written("arrow", [])).read_all().num_rows == 0
    assert written("csv", []) == b"id,at,text,price,on\n" and written("jsonl", []) == b""


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.usefixtures("small")
def test_a_column_that_comes_to_allow_nulls_while_it_is_written(tmp_path: Path, suffix: str) -> None:
    """A file in Parquet broke off there: what was collected of a group and what came to it were of two schemas."""
    engine = running(tmp_path, {"sql": "SELECT id AS i, s AS s, SUM(e) AS e FROM a GROUP BY id, s"}, synchronous="normal")
    engine.apply(batch(("upsert", "a", rows_of(0, 5000))))
    made: list[bytes] = []
    for patched in (False, True):
        reader = open_rows(engine.readers, "v")
        file = RowsEndpoint(reader, make(suffix, reader.version, reader.schema), None)
        parts, more = [], True
        while more:
            part, more = file.step()
            parts.append(b"".join(part))
            if patched and len(parts) == 2:
                engine.patch_relation("a", RelationPatch(nullable=["s", "e"]))
        file.close()
        made.append(b"".join(parts))
        assert len(parts) > 3
    assert made[0] == made[1] and engine.relation("a").definition.column("s").nullable
    engine.close()
