"""Rows read by their address: DuckDB, Polars and pandas, over HTTP, with an access token in the header."""

from __future__ import annotations

import urllib.error
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import duckdb
import fsspec
import httpx
import pandas
import polars
import pyarrow as pa
import pytest
from fsspec.implementations.http import HTTPFileSystem

from service.access.access_token import AccessToken, digest, new_text
from service.access.store import add_token
from tests.end_to_end import talk
from tests.server_process import ServerProcess

COUNT = 150_000  # more than two row groups
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def load(client: httpx.Client) -> None:
    """A relation `tool_a`, and a view `tool_v` with its rows."""
    columns = [
        {"name": "id", "type": "int64"},
        {"name": "begun", "type": "timestamp"},
        {"name": "room", "type": "string", "nullable": True},
    ]
    talk.define(client, "tool_a", {"columns": columns, "key": ["id"]})
    times = pa.array([BEGIN + timedelta(seconds=number) for number in range(COUNT)], pa.timestamp("us", "UTC"))
    rooms = [None if number % 7 == 0 else f"room {number % 100}" for number in range(COUNT)]
    talk.load(client, "tool_a", pa.table({"id": range(COUNT), "begun": times, "room": rooms}), "application/vnd.apache.arrow.stream")
    talk.view(client, "tool_v", "SELECT a.id AS id, a.begun AS begun, a.room AS room FROM tool_a a JOIN tool_a b ON a.id = b.id")


class Service(NamedTuple):
    """Of a service in token mode: the address of the view's rows, and the headers of one who may read it only."""

    url: str
    headers: dict[str, str]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("tools") / "data"
    folder.mkdir()
    admin, reader = new_text(), new_text()
    for name, text, scope, views in (("ops", admin, "admin", None), ("tool", reader, "read", frozenset({"tool_v"}))):
        relations = None if views is None else frozenset[str]()
        add_token(folder, AccessToken(name, scope, relations, views, float("inf"), 1000.0, digest(text)), begin=True)
    with ServerProcess(folder) as server, server.client() as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        load(client)
        yield Service(f"{server.url}/v1/views/tool_v/rows", {"Authorization": f"Bearer {reader}"})


@pytest.fixture(scope="module")
def open_url(shared_server: ServerProcess) -> str:
    """The same of a service without tokens: Polars sends no headers."""
    load(shared_server.client())
    return f"{shared_server.url}/v1/views/tool_v/rows"


def is_right(ids: Any, rooms: Any) -> None:
    found = dict(zip(ids, rooms, strict=True))
    assert len(found) == COUNT and all(found[number] == f"room {number % 100}" for number in range(COUNT) if number % 7)


@pytest.mark.parametrize(
    ("how", "suffix"), [("read_parquet", "parquet"), ("scan_parquet", "parquet"), ("scan_csv", "csv"), ("scan_ndjson", "jsonl")]
)
def test_polars(open_url: str, how: str, suffix: str) -> None:
    frame = getattr(polars, how)(f"{open_url}.{suffix}").lazy().collect()
    is_right(frame["id"].to_list(), frame["room"].to_list())


@pytest.mark.parametrize(("how", "suffix"), [("read_parquet", "parquet"), ("read_ipc_stream", "arrow"), ("read_csv", "csv")])
def test_polars_through_fsspec(service: Service, how: str, suffix: str) -> None:
    with fsspec.open(f"{service.url}.{suffix}", client_kwargs={"headers": service.headers}) as file:
        frame = getattr(polars, how)(file)
    is_right(frame["id"].to_list(), frame["room"].to_list())


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_pandas(service: Service, suffix: str) -> None:
    options = {"storage_options": service.headers}
    if suffix == "parquet":
        frame = pandas.read_parquet(f"{service.url}.parquet", **options)
        assert frame["begun"].min().to_pydatetime() == BEGIN
    elif suffix == "csv":
        frame = pandas.read_csv(f"{service.url}.csv", **options)
    else:
        frame = pandas.read_json(f"{service.url}.jsonl", lines=True, **options)
    is_right(frame["id"].tolist(), frame["room"].tolist())


class Dated(HTTPFileSystem):  # type: ignore[misc]
    """DuckDB asks when a file was changed, which fsspec tells of no address. Its own extension for HTTP is not in its wheel."""

    def modified(self, path: str) -> datetime:
        return BEGIN


@pytest.mark.parametrize(("suffix", "function"), [("parquet", "read_parquet"), ("csv", "read_csv"), ("jsonl", "read_json")])
def test_duckdb(service: Service, suffix: str, function: str) -> None:
    with duckdb.connect() as connection:
        connection.register_filesystem(Dated(client_kwargs={"headers": service.headers}))
        rows = connection.sql(f"SELECT id, room FROM {function}('{service.url}.{suffix}')").fetchall()
        is_right(*zip(*rows, strict=True))
        some = connection.sql(f"SELECT count(*), min(id) FROM {function}('{service.url}.{suffix}?where.a.id=77')").fetchall()
        assert some == [(1, 77)]


def test_without_the_token_nothing_is_read(service: Service) -> None:
    with pytest.raises(urllib.error.HTTPError, match="401"):
        pandas.read_csv(f"{service.url}.csv")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        pandas.read_csv(service.url.replace("views/tool_v/", "relations/tool_a/") + ".csv", storage_options=service.headers)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        pandas.read_csv(f"{service.url}.csv?token={service.headers['Authorization'].removeprefix('Bearer ')}")
    with pytest.raises(PermissionError, match="401"):
        polars.read_parquet(f"{service.url}.parquet")
