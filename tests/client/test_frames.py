"""Frames in and out: pandas, polars, DuckDB."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest

import livejoin
from livejoin.display import Line
from livejoin.frames import record_batches
from tests.client.hotel import Hotel, row
from tests.server_process import ServerProcess

COLUMNS = {
    "id": "int64",
    "count": {"type": "int64", "nullable": True},
    "share": {"type": "float64", "nullable": True},
    "at": {"type": "timestamp", "nullable": True},
    "day": {"type": "date", "nullable": True},
    "kind": {"type": "string", "nullable": True},
    "price": {"type": "decimal", "precision": 12, "scale": 2, "nullable": True},
    "on": {"type": "bool", "nullable": True},
}
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"id": 1, "count": 2**60 + 1, "share": 0.5, "at": AT, "day": date(2026, 1, 1), "kind": "a", "price": Decimal("12.50"), "on": True},
    {"id": 2, "count": None, "share": None, "at": None, "day": None, "kind": None, "price": None, "on": None},
    {"id": 3, "count": 7, "share": 2.0, "at": AT, "day": date(2026, 2, 1), "kind": "b", "price": Decimal("0.01"), "on": False},
]


@pytest.fixture
def things(lj: livejoin.Client, request: pytest.FixtureRequest) -> livejoin.Relation:
    name = "frames_" + "".join(c if c.isalnum() else "_" for c in request.node.name.lower())
    return lj.relation(name[:60]).create(COLUMNS, "id")


def rows_of(things: livejoin.Relation) -> list[dict[str, Any]]:
    return sorted(things.to_arrow().to_pylist(), key=lambda one: int(one["id"]))


def test_pandas(things: livejoin.Relation) -> None:
    arrow = pa.Table.from_pylist(ROWS)
    assert things.upsert(arrow).applied == 3
    frame = things.to_pandas()
    assert frame["count"].tolist()[:1] == [2**60 + 1] and frame["at"].dtype == "datetime64[us, UTC]"
    things.truncate()
    assert things.upsert(frame).applied == 3
    assert rows_of(things) == ROWS, "there and back"


@pytest.mark.parametrize("engine", ["numpy_nullable", "pyarrow"])
def test_types_of_pandas(things: livejoin.Relation, engine: str) -> None:
    table = pa.Table.from_pylist(ROWS)
    things.upsert(table.to_pandas(types_mapper=pandas.ArrowDtype) if engine == "pyarrow" else table.to_pandas().convert_dtypes())
    assert [one["kind"] for one in rows_of(things)] == ["a", None, "b"]


def test_what_pandas_makes_of_missing_integers(things: livejoin.Relation) -> None:
    frame = pandas.DataFrame({"id": [1, 2, 3], "count": [5, None, 7], "share": [1.0, None, 3.5], "kind": [None, None, None]})
    assert frame["count"].dtype == "float64"
    things.upsert(frame)
    assert [(one["count"], one["share"], one["kind"]) for one in rows_of(things)] == [(5, 1.0, None), (None, None, None), (7, 3.5, None)]
    things.upsert(pandas.DataFrame({"id": [1, 2], "share": [4, None]}))
    assert rows_of(things)[0]["share"] == 4.0, "integers are floats too where the column has them"
    with pytest.raises(livejoin.MalformedBody, match="count"):
        things.upsert(pandas.DataFrame({"id": [1, 2], "count": [0.5, None]}))
    with pytest.raises(livejoin.MalformedBody, match="count"):
        things.upsert(pandas.DataFrame({"id": [1, 2], "count": [2.0**60, None]}))  # which it was is not known


def test_indexes_of_pandas(things: livejoin.Relation) -> None:
    frame = pandas.DataFrame({"id": [1, 2, 3], "kind": pandas.Categorical(["a", "b", "a"])})
    things.upsert(frame[frame.id > 1])
    assert [one["id"] for one in rows_of(things)] == [2, 3]
    things.upsert(frame.set_index("id"))
    assert [(one["id"], one["kind"]) for one in rows_of(things)] == [(1, "a"), (2, "b"), (3, "a")]
    things.delete(frame[["id"]][:2])
    assert [one["id"] for one in rows_of(things)] == [3]


def test_times_without_a_zone_are_refused_in_words(things: livejoin.Relation) -> None:
    with pytest.raises(livejoin.MalformedBody, match="without a time zone"):
        things.upsert(pandas.DataFrame({"id": [1], "at": pandas.to_datetime(["2026-01-01"])}))


def test_polars(things: livejoin.Relation) -> None:
    frame = polars.DataFrame(ROWS)
    assert things.upsert(frame).applied == 3 and rows_of(things) == ROWS
    assert things.to_polars().sort("id").equals(frame.with_columns(polars.col("price").cast(polars.Decimal(12, 2))))
    things.upsert(frame.with_columns(polars.col("kind").cast(polars.Categorical), polars.lit(4).cast(polars.Int8).alias("count")))
    assert [(one["kind"], one["count"]) for one in rows_of(things)] == [("a", 4), (None, 4), ("b", 4)]
    things.delete(frame.select("id").head(1))
    assert [one["id"] for one in rows_of(things)] == [2, 3]


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
def test_duckdb(things: livejoin.Relation) -> None:
    with duckdb.connect() as connection:
        things.upsert(connection.sql("SELECT 1 AS id, 2.5::DECIMAL(9, 2) AS price, DATE '2026-01-01' AS day"))
        things.upsert(connection.execute("SELECT 2 AS id, 'x' AS kind"))
        connection.execute("CREATE TYPE colour AS ENUM ('red')")
        things.upsert(connection.sql("SELECT 3 AS id, 'red'::colour AS kind"))
    assert [(one["id"], one["price"], one["kind"]) for one in rows_of(things)] == [
        (1, Decimal("2.50"), None),
        (2, None, "x"),
        (3, None, "red"),
    ]


OTHERS = {"id": "uuid", "at": "time", "note": {"type": "json", "nullable": True}, "data": {"type": "bytes", "nullable": True}}
OTHER_ROWS: list[dict[str, Any]] = [
    {"id": f"{UUID(int=1)}", "at": time(12, 30), "note": '{"a": 1}', "data": b"\x00\xff"},
    {"id": f"{UUID(int=2)}", "at": time(0, 0, 0, 5), "note": None, "data": None},
]


@pytest.mark.parametrize("kind", ["dictionaries", "texts", "pandas", "polars", "duckdb"])
def test_uuids_times_json_and_bytes(lj: livejoin.Client, kind: str) -> None:
    """Each kind of frame takes what another one has given."""
    others = lj.relation(f"frames_of_others_{kind}").create(OTHERS, "id")
    with_objects = [{**one, "id": UUID(one["id"])} for one in OTHER_ROWS]
    made: dict[str, Callable[[], Any]] = {
        "dictionaries": lambda: with_objects,
        "texts": lambda: [{**one, "at": one["at"].isoformat()} for one in OTHER_ROWS],
        "pandas": lambda: pandas.DataFrame(OTHER_ROWS),
        "polars": lambda: polars.DataFrame(OTHER_ROWS),
        "duckdb": lambda: connection.from_arrow(pa.Table.from_pylist(OTHER_ROWS)).project('id::UUID AS id, "at", note, data'),
    }
    with duckdb.connect() as connection:
        assert others.upsert(made[kind]()).applied == 2
    assert rows_of_others(others) == OTHER_ROWS
    for frame in (others.to_pandas(), others.to_polars(), others.to_arrow()):
        others.truncate()
        assert others.upsert(frame).applied == 2 and rows_of_others(others) == OTHER_ROWS, "there and back"
    frame = others.to_pandas()
    assert frame["data"].tolist()[0] in (b"\x00\xff", None) and others.to_polars()["at"].dtype == polars.Time
    assert others.delete(others.to_polars().select("id")).applied == 2


def rows_of_others(others: livejoin.Relation) -> list[dict[str, Any]]:
    return sorted(others.to_arrow().to_pylist(), key=lambda one: str(one["id"]))


def test_frames_in_a_batch(lj: livejoin.Client, things: livejoin.Relation) -> None:
    with lj.batch() as batch:
        batch.upsert(things.name, pandas.DataFrame({"id": [1, 2], "count": [3, None]}))
        batch.upsert(things.name, polars.DataFrame({"id": [3]}))
        batch.delete(things.name, pandas.DataFrame({"id": [1]}))
    assert [(one["id"], one["count"]) for one in rows_of(things)] == [(2, None), (3, None)]


def test_rows_of_a_view(hotel: Hotel) -> None:
    hotel.bookings.upsert([row(1), row(2)])
    hotel.jobs.upsert([row(7)])
    assert sorted(hotel.clashes.to_pandas()["booking"].tolist()) == [1, 2]
    assert hotel.clashes.to_polars(where={"b.id": 2})["booking"].to_list() == [2]
    assert hotel.clashes.to_pandas(limit=1).shape == (1, 2)
    hotel.bookings.truncate()
    assert hotel.clashes.to_pandas().shape == (0, 2) and hotel.clashes.to_polars().columns == ["booking", "job"]


def test_the_same_with_asyncio(shared_server: ServerProcess) -> None:
    async def run() -> None:
        async with livejoin.connect_async(shared_server.url) as lj:
            things = await lj.relation("frames_async").create(COLUMNS, "id")
            await things.upsert(polars.DataFrame(ROWS))
            assert (await things.to_pandas()).shape == (3, 8) and (await things.to_polars(limit=2)).height == 2
            assert (await things.to_arrow()).num_rows == 3

    asyncio.run(run())


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_without_the_package(hotel: Hotel, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # importing it fails
    with pytest.raises(ImportError, match=rf"to_{name} needs {name}: install it, or livejoin-client\[{name}\]"):
        getattr(hotel.clashes, f"to_{name}")()


def test_what_is_no_frame() -> None:
    assert record_batches([{"a": 1}]) is None and record_batches("path") is None


def test_progress(things: livejoin.Relation, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("livejoin.encoding.ROWS", 10)
    monkeypatch.setattr("livejoin.files.ROWS", 10)
    heard: list[tuple[int, float | None]] = []

    def hear(rows: int, done: float | None) -> None:
        heard.append((rows, done))

    things.upsert([{"id": number} for number in range(25)], progress=hear)
    assert heard == [(10, 0.4), (20, 0.8), (25, 1.0)]
    heard.clear()
    things.upsert(pa.table({"id": range(25)}), progress=hear)
    assert heard == [(10, 0.4), (20, 0.8), (25, 1.0)]
    heard.clear()
    things.upsert(({"id": number} for number in range(15)), progress=hear)
    assert heard == [(10, None), (15, 1.0)]
    heard.clear()
    path = tmp_path / "things.csv"
    path.write_text("id\n1\n2\n")
    things.upsert(path, progress=hear)
    assert heard == [(2, 1.0)]


def test_a_line_of_progress() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        line = Line("things", stream)
        line(1000, 0.5)
        line(1001, 0.5)
        line(2000, 1.0)
    assert terminal.getvalue() == "\rthings: 1,000 rows (50%)\rthings: 2,000 rows (100%)\n" and pipe.getvalue() == ""
