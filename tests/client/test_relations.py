"""Rows of every kind into relations, and what becomes of bad ones."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import livejoin
from livejoin import encoding
from tests.client.hotel import Hotel, row


def stored(relation: livejoin.Relation) -> list[dict[str, Any]]:
    return sorted(relation.rows(), key=lambda row: row["id"])


def test_dictionaries(hotel: Hotel) -> None:
    bookings = hotel.bookings
    receipt = bookings.upsert([row(1), row(2, end=None)])
    assert receipt[1:6] == (2, 0, 0, [], False) and receipt.version > 0
    assert stored(bookings) == [row(1), row(2, end=None)]
    assert bookings.insert([row(3)]).applied == 1
    assert bookings.delete([{"id": 1}, {"id": 77}])[1:3] == (1, 1)
    assert bookings.load([{**row(4)}, {"id": 2, "_op": "delete"}]).applied == 2
    for write in (bookings.upsert, bookings.insert, bookings.delete):
        with pytest.raises(ValueError, match="use load"):
            write([{**row(4), "_op": "truncate"}])
    assert stored(bookings) == [row(3), row(4)]
    assert bookings.get()["rows"] == 2
    assert bookings.truncate().applied == 1 and stored(bookings) == []
    assert bookings.upsert([]) == livejoin.Receipt()
    assert bookings.upsert(row(number) for number in range(3)).applied == 3
    assert [one["name"] for one in hotel.lj.relations() if one["name"] == bookings.name]


def test_windows_and_keys(hotel: Hotel) -> None:
    bookings = hotel.bookings
    bookings.upsert([row(1), row(2, start=20, end=30), row(3, start=40, end=None)])
    assert [one["id"] for one in bookings.rows(overlaps=(25, 39))] == [2]
    assert {one["id"] for one in bookings.rows(overlaps={"stay": (None, 20)})} == {1, 2}
    assert list(bookings.rows(where={"id": 3})) == [row(3, start=40, end=None)] and not list(bookings.rows(where={"id": 4}))
    assert bookings.to_arrow(where={"id": 1}, overlaps=(50, None)).num_rows == 0
    assert bookings.to_pandas(overlaps=(45, None))["id"].tolist() == bookings.to_polars(where={"id": 3})["id"].to_list() == [3]
    with bookings.rows(limit=1) as page:
        list(page)
    bookings.truncate()
    assert len(list(bookings.rows(version=page.version))) == 3 and not list(bookings.rows())
    with pytest.raises(livejoin.BadParameter, match="by its whole key"):
        list(bookings.rows(where={"room": "A"}))
    with pytest.raises(livejoin.BadParameter, match="declares stay"):
        bookings.to_arrow(overlaps={"visit": (1, 2)})


@pytest.mark.parametrize("rows", [row(1), "nowhere.txt", 5, [5], b"{}"])
def test_what_is_no_rows(hotel: Hotel, rows: Any) -> None:
    with pytest.raises((TypeError, livejoin.BadFile)):
        hotel.bookings.upsert(rows)


def arrow(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), pa.schema([("id", pa.int32()), ("room", pa.utf8()), ("s", pa.int64()), ("e", pa.int64())]))


def test_arrow_data(hotel: Hotel) -> None:
    bookings = hotel.bookings
    table = arrow(*(row(number) for number in range(10)))
    assert bookings.upsert(table).applied == 10
    assert bookings.delete(table.select(["id"]).slice(0, 5)).applied == 5
    assert bookings.insert(table.slice(0, 2).to_batches()[0]).applied == 2
    assert bookings.upsert(pa.RecordBatchReader.from_batches(table.schema, table.slice(0, 3).to_batches())).applied == 3
    assert bookings.upsert(duckdb.sql("SELECT 50 AS id, 'B' AS room, 1 AS s, NULL::BIGINT AS e")).applied == 1
    with pytest.raises(livejoin.BadRows) as caught:
        bookings.insert(table)
    assert caught.value.errors[0]["reason"] == "key-exists"
    assert [one["id"] for one in stored(bookings)] == [0, 1, 2, 5, 6, 7, 8, 9, 50]
    assert sorted(bookings.arrow().to_table()["id"].to_pylist()) == [0, 1, 2, 5, 6, 7, 8, 9, 50]


@pytest.mark.parametrize("ending", ["parquet", "arrow", "csv", "jsonl"])
def test_files(hotel: Hotel, tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"rows.{ending}"
    table = arrow(*(row(number) for number in range(10)))
    if ending == "parquet":
        pq.write_table(table, path)
    elif ending == "arrow":
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    elif ending == "csv":
        path.write_text("id,room,s,e\n" + "".join(f"{number},A,0,10\n" for number in range(10)))
    else:
        path.write_text("".join(f'{{"id":{number},"room":"A","s":0,"e":10}}\n' for number in range(10)))
    assert hotel.bookings.upsert(path).applied == 10
    assert hotel.bookings.load(str(path)).applied == 10
    assert stored(hotel.bookings) == [row(number) for number in range(10)]
    with pytest.raises(TypeError, match="load"):
        hotel.bookings.insert(path)  # type: ignore[arg-type]


def test_values(lj: livejoin.Client) -> None:
    columns = {"id": "int64", "x": {"type": "float64", "nullable": True}, "t": "timestamp", "d": "date", "b": "bool"}
    values = lj.relation("readings").create(columns, "id", {"at": "t", "open": ("t", "t", "[]")})
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)
    numbers = [1.5, math.nan, math.inf, -math.inf, None, np.float64(2.5), np.float64("nan"), np.float32("inf")]
    rows = [{"id": np.int64(i), "x": x, "t": moment, "d": date(2026, 1, 2), "b": True} for i, x in enumerate(numbers)]
    values.upsert(rows)
    assert [one["x"] for one in stored(values)] == [1.5, "NaN", "Infinity", "-Infinity", None, 2.5, "NaN", "Infinity"]
    assert stored(values)[0] == {"id": 0, "x": 1.5, "t": "2026-01-01T12:00:00Z", "d": "2026-01-02", "b": True}
    with lj.batch() as batch:  # Arrow data beside dictionaries travels as JSON
        batch.upsert("readings", values.arrow().to_table())
        batch.upsert("readings", [rows[0] | {"b": False}])
    assert batch.receipt is not None and batch.receipt.applied == len(rows) + 1
    assert [one["x"] for one in stored(values)] == [1.5, "NaN", "Infinity", "-Infinity", None, 2.5, "NaN", "Infinity"]
    view = lj.view("moments", "SELECT v.id, v.t FROM readings v")
    assert view.count(where={"v.id": 3}) == 1


def test_bad_rows_are_counted_from_the_first_row(hotel: Hotel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(encoding, "ROWS", 10)
    bad = [row(number, start=0 if number not in (3, 25, 26) else 50) for number in range(30)]  # which end before they start
    with pytest.raises(livejoin.BadRows) as caught:
        hotel.bookings.upsert(bad[4:])
    assert [error["index"] for error in caught.value.errors] == [21, 22]
    assert caught.value.receipt is not None and caught.value.receipt.applied == 20 and len(stored(hotel.bookings)) == 20
    receipt = hotel.bookings.upsert(bad, on_error="skip")
    assert (receipt.applied, receipt.skipped_count) == (27, 3)
    assert [error["index"] for error in receipt.skipped] == [3, 25, 26]
    (tmp_path / "r.csv").write_text("id,room,s,e\n1,A,0,5\n\ntwo,A,1,5\n")
    with pytest.raises(livejoin.BadRows) as caught:
        hotel.bookings.load(tmp_path / "r.csv")
    assert [(error["index"], error["line"], error["column"]) for error in caught.value.errors] == [(1, 4, "id")]


def test_many_rows_are_several_bodies(hotel: Hotel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "BODY", 2000)
    rows = [row(number) for number in range(500)]
    assert hotel.bookings.upsert(rows).applied == 500
    table = arrow(*rows)
    assert len(list(encoding.bodies(table, "upsert"))) > 3 and len(list(encoding.bodies(rows, "upsert"))) > 3
    assert hotel.bookings.insert(table, on_error="skip").skipped_count == 500
    assert hotel.bookings.delete(table).applied == 500


def test_a_batch_is_one_version(hotel: Hotel) -> None:
    lj, bookings, jobs = hotel.lj, hotel.bookings, hotel.jobs
    before = jobs.upsert([row(1)]).version
    with lj.batch("pms", 7) as batch:
        batch.upsert(bookings.name, [row(1), row(2)])
        batch.truncate(jobs.name)
        batch.insert(jobs.name, [row(5)])
        batch.delete(bookings.name, [{"id": 2}])
    assert batch.receipt is not None and batch.receipt.version == before + 1 and not batch.receipt.duplicate
    assert hotel.clashes.count() == 1
    with lj.batch("pms", 7) as batch:
        batch.truncate(bookings.name)
    assert batch.receipt is not None and batch.receipt.duplicate and hotel.clashes.count() == 1
    with lj.batch("pms", 8) as batch:  # all of it as Arrow
        batch.truncate(bookings.name)
        batch.upsert(bookings.name, arrow(row(3), row(4)))
        batch.delete(jobs.name, arrow(row(5)).select(["id"]))
        batch.insert(jobs.name, arrow(row(6)))
    assert batch.receipt is not None and batch.receipt.version == before + 2
    assert sorted((one["booking"], one["job"]) for one in hotel.clashes.rows()) == [(3, 6), (4, 6)]
    with pytest.raises(livejoin.SourceReset), lj.batch("pms", 9, run="other"):
        pass
    with lj.batch("pms", 1, run="other", reset=True) as batch:
        pass
    assert batch.receipt is not None and batch.receipt.version == before + 3


def test_a_batch_that_fails_or_is_left_has_no_effect(hotel: Hotel) -> None:
    with pytest.raises(livejoin.BadRows) as caught, hotel.lj.batch() as batch:
        batch.upsert(hotel.bookings.name, [row(1)])
        batch.upsert(hotel.jobs.name, [row(1, start=99)])
    assert [error["index"] for error in caught.value.errors] == [1]
    with pytest.raises(ZeroDivisionError), hotel.lj.batch() as batch:
        batch.upsert(hotel.bookings.name, [row(1)])
        raise ZeroDivisionError
    assert batch.receipt is None and stored(hotel.bookings) == []
    with pytest.raises(TypeError, match="source and epoch"):
        hotel.lj.batch("pms")
