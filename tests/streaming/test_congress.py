"""Real changes through a real broker and real Spark into the real service: every log, every checkpoint, kills between them."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import datasets
from tests.end_to_end import talk
from tests.streaming.kill_stage import Kill, Stage, dice
from tests.streaming.shared_spark import SharedSpark

# One a checkpoint; Java dies in test_kills.
KINDS = [set(), {"driver"}, {"service"}, {"broker"}, {"service", "broker"}, {"driver", "service", "broker"}]
ONCE = [set(), set(), set(), set(), set(), {"driver", "service", "broker"}]


class Congress:
    """One log with relations, views and topics of its own; `schemas` wraps its records as a connector with schemas enabled does."""

    def __init__(self, log: str, schemas: bool = False) -> None:
        self._mark = f"{log}_schemas" if schemas else log
        self._schemas = schemas
        self._records = datasets.debezium(log)
        expected = datasets.expected("congress", log)
        self._checkpoints = expected["checkpoints"]
        self._tables = list(self._checkpoints[0]["live"])
        self._views = [view for view in datasets.queries("congress") if view["name"] in expected["views"]]
        self._followers: list[talk.Follower] = []
        self._sent = 0
        self.topics = {f"{self._mark}.{table}": self._name(table) for table in self._tables}

    def _name(self, name: str) -> str:
        return f"{self._mark}_{name}"

    def define(self, client: httpx.Client) -> None:
        for table in self._tables:
            talk.define(client, self._name(table), datasets.definition("congress", table))
        for view in self._views:
            sql = re.sub(rf"\b({'|'.join(self._tables)})\b", lambda found: self._name(found[0]), view["sql"])
            talk.view(client, self._name(view["name"]), sql)
            self._followers.append(talk.Follower(client, self._name(view["name"]), view["result_columns"]))

    def feed(self, stage: Stage, checkpoint: int) -> None:
        """The records before the checkpoint of this number."""
        end = self._checkpoints[checkpoint]["after_records"]
        for record in self._records[self._sent : end]:
            table = record["topic"].rsplit(".", 1)[1]
            key, value = record["key"], record["value"]
            if self._schemas:
                key, value = _with_schemas(table, key, value)
            stage.put(f"{self._mark}.{table}", record["partition"], key, value)
        self._sent = end

    def check(self, client: httpx.Client, checkpoint: int) -> None:
        """Relations, and views as read and as followed, are what the checkpoint says."""
        expected = self._checkpoints[checkpoint]
        for table, live in expected["live"].items():
            assert talk.ok(client.get(f"/v1/relations/{self._name(table)}"))["rows"] == live
        for view, follower in zip(self._views, self._followers, strict=True):
            answer = expected["views"][view["name"]]
            rows = talk.read(client, self._name(view["name"]), talk.ARROW, view["result_columns"])
            assert (len(rows), datasets.checksum(rows)) == (answer["rows"], answer["checksum"])
            follower.resume(client)
            assert (len(follower.rows), follower.checksum) == (answer["rows"], answer["checksum"])


def _with_schemas(table: str, key: Any, value: Any) -> tuple[Any, Any]:
    """Key and value as the connector sends them with schemas enabled; a tombstone stays null."""
    columns = [{"field": each["name"], "type": each["type"]} for each in datasets.definition("congress", table)["columns"]]
    row = {"type": "struct", "fields": columns, "optional": True}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
    envelope = {"type": "struct", "fields": fields, "optional": False, "name": f"{table}.Envelope"}
    keys = {"type": "struct", "fields": [{"field": "id", "type": "int64"}], "optional": False}
    return {"schema": keys, "payload": key}, None if value is None else {"schema": envelope, "payload": value}


@pytest.mark.parametrize("kinds", [ONCE, pytest.param(KINDS, marks=pytest.mark.soak)], ids=["one kill", "kills"])
def test_every_log_and_checkpoint_with_kills(tmp_path: Path, shared_spark: SharedSpark, kinds: list[set[str]]) -> None:
    chance = dice()
    logs = [Congress("cdc"), Congress("cdc_default_identity"), Congress("cdc_redelivered"), Congress("cdc", schemas=True)]
    topics = [topic for log in logs for topic in log.topics.items()]
    with Stage(tmp_path, chance, topics, max_offsets=400, spark=shared_spark) as stage:
        stage.topics.make(*(name for name, _ in topics))
        for log in logs:
            log.define(stage.server.client())
        stage.start_job()
        for checkpoint, parts in enumerate(chance.sample(kinds, len(kinds))):
            kill = Kill.at_random(parts, chance, fewest=1)
            stage.strike(kill, partial(_feed, logs, stage, checkpoint))
            stage.revive(kill.parts)
            stage.settle()
            for log in logs:
                log.check(stage.server.client(), checkpoint)
        assert stage.job.stop() == 0


def _feed(logs: list[Congress], stage: Stage, checkpoint: int) -> None:
    for log in logs:
        log.feed(stage, checkpoint)
