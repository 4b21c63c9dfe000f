"""A benchmark's views at a service, beside DuckDB."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from livejoin.wire.schema import RelationDefinition
from tests.end_to_end import talk
from tests.service.alike import alike
from tests.service.duck import connected
from tests.service.questions.reading import Question, complaint, read
from tests.service.tpc.data import Batch, Data
from tests.service.tpc.nexmark_data import NexmarkData
from tests.service.tpc.shapes_data import ShapesData
from tests.service.tpc.ssb_data import SsbData
from tests.service.tpc.tpch_data import TpchData

BENCHMARKS: dict[str, type[Data]] = {"tpch": TpchData, "ssb": SsbData, "nexmark": NexmarkData, "shapes": ShapesData}
_MACROS = (
    "date_bin(width, moment, origin) AS time_bucket(width, moment, origin)",
    "to_char(moment, form) AS strftime(moment, CASE form WHEN 'YYYY-MM-DD' THEN '%Y-%m-%d' ELSE '%H:%M' END)",
)


def queries(name: str) -> tuple[dict[str, RelationDefinition], list[Question]]:
    return read(Path(__file__).with_name(f"{name}.sql"))


def named(query: Question) -> str:
    return re.sub(r"\W", "_", query.words.partition(":")[0]).lower()


def sayable(name: str) -> dict[str, str]:
    """Return the queries that are accepted as views, some of them rewritten."""
    relations, asked = queries(name)
    said = {named(one): one.instead or one.sql for one in asked}
    return {query: sql for query, sql in said.items() if complaint(sql, relations) is None}


class Mirror:
    """The relations in DuckDB."""

    def __init__(self, data: Data) -> None:
        self._data, self.duckdb = data, connected()
        for macro in _MACROS:
            self.duckdb.execute(f"CREATE OR REPLACE TEMP MACRO {macro}")
        for name, definition in data.relations.items():
            self.duckdb.register("rows", pa.Table.from_pylist([], definition.sent_schema()))
            self.duckdb.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM rows")

    def apply(self, batch: Batch) -> None:
        for name, definition in self._data.relations.items():
            of = [one for one in batch if one["relation"] == name]
            truncates = [index for index, one in enumerate(of) if one["op"] == "truncate"]
            if truncates:
                self.duckdb.execute(f"DELETE FROM {name}")
                of = of[truncates[-1] + 1 :]
            last = {tuple((one.get("row") or one["key"])[column] for column in definition.key): one for one in of}
            if last:
                schema = definition.sent_schema()
                keys = [dict(zip(definition.key, key, strict=True)) for key in last]
                self.duckdb.register("keys", pa.Table.from_pylist(keys, pa.schema([schema.field(column) for column in definition.key])))
                self.duckdb.execute(f"DELETE FROM {name} WHERE ({', '.join(definition.key)}) IN (SELECT * FROM keys)")
                self.duckdb.register("rows", pa.Table.from_pylist([one["row"] for one in last.values() if "row" in one], schema))
                self.duckdb.execute(f"INSERT INTO {name} SELECT * FROM rows")

    def answer(self, sql: str) -> list[dict[Any, Any]]:
        return _rows(self.duckdb.sql(sql).to_arrow_table())


def _sent(value: Any) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert isinstance(value, Decimal | date)
    return str(value)


def body_of(batch: Batch) -> str:
    return json.dumps({"changes": batch}, default=_sent)


class Compared:
    """The views of a benchmark at a service, beside DuckDB."""

    def __init__(self, client: httpx.Client, data: Data, views: dict[str, str]) -> None:
        self.client, self.data, self.views, self.mirror = client, data, views, Mirror(data)
        self.followers: dict[str, talk.Follower] = {}
        self.filled = Counter[str]()
        for relation, definition in data.relations.items():
            talk.define(client, relation, definition.to_json())

    def register(self, view: str) -> None:
        talk.view(self.client, view, self.views[view], 600)
        self.followers[view] = talk.Follower(self.client, view, snapshot=True)

    def load(self) -> None:
        self.data.load()
        self.mirror.apply(self.data.noted())
        for name, rows in self.data.rows.items():
            table = pa.Table.from_pylist(list(rows.values()), self.data.relations[name].sent_schema())
            talk.load(self.client, name, table, talk.ARROW)

    def refresh(self, count: int) -> None:
        batch = self.data.refresh(count)
        self.mirror.apply(batch)
        self.send(body_of(batch))

    def send(self, body: str) -> None:
        talk.ok(self.client.post("/v1/changes", content=body, headers={"Content-Type": talk.JSON}))

    def compare(self) -> None:
        for view, sql in self.views.items():
            expected = self.mirror.answer(sql)
            answer = self.client.get(f"/v1/views/{view}/rows", headers={"Accept": talk.ARROW})
            talk.ok_status(answer)
            found = _rows(pa.ipc.open_stream(answer.content).read_all())
            assert alike(found, expected), (view, found[:9], expected[:9])
            self.filled[view] += any(value is not None for row in expected for value in row.values())

    def follow(self) -> None:
        for view, follower in self.followers.items():
            talk.ok_poll(follower)
            assert Counter(map(repr, follower.rows.values())) == Counter(map(repr, talk.tuples(self.client, view))), view


def _rows(table: pa.Table) -> list[dict[Any, Any]]:
    return [dict(enumerate(row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]
