"""The expected contents of the relations, a dictionary for each, and a sender that passes changes to both the service and the model."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import httpx

from tests.end_to_end import talk
from tests.kept.bodies import Body, Change, body
from tests.kept.relations import Row

Key = tuple[Any, ...]


class Model:
    """The rows of each relation by key, each with all its columns, with values as in the service's JSON."""

    def __init__(self) -> None:
        self.definitions: dict[str, dict[str, Any]] = {}
        self.rows: dict[str, dict[Key, Row]] = {}
        self.lock = threading.Lock()

    def define(self, name: str, definition: dict[str, Any]) -> None:
        self.definitions[name], self.rows[name] = definition, {}

    def drop(self, name: str) -> None:
        del self.definitions[name], self.rows[name]

    def key(self, name: str, row: Row) -> Key:
        return tuple(row[column] for column in self.definitions[name]["key"])

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply valid changes, in order."""
        with self.lock:
            for change in changes:
                name = change["relation"]
                rows = self.rows[name]
                if change["op"] == "truncate":
                    rows.clear()
                elif change["op"] == "delete":
                    rows.pop(self.key(name, change["key"]), None)
                else:
                    columns = [column["name"] for column in self.definitions[name]["columns"]]
                    rows[self.key(name, change["row"])] = {column: change["row"].get(column) for column in columns}

    def some(self, name: str, count: int) -> list[Row]:
        """Return the first rows of a relation, in the order of their insertion."""
        return list(self.rows[name].values())[:count]


class Sender:
    """Posts batches over one connection, and keeps the model and the last batch of each source."""

    def __init__(self, client: httpx.Client, model: Model) -> None:
        self.client, self.model = client, model
        self.sources: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.unanswered: Sequence[Change] = ()

    def post(self, form: str, changes: Sequence[Change], bad: Sequence[int] = (), **parameters: Any) -> dict[str, Any]:
        """Send one batch, which is accepted except for the changes numbered in `bad`. An httpx.TransportError leaves it in `unanswered`."""
        sent = body(form, changes, self.model.definitions)
        good = [change for number, change in enumerate(changes) if number not in bad]
        self.unanswered = good
        receipt = talk.ok(post(self.client, sent, parameters))
        self.unanswered = ()
        assert not receipt["duplicate"] and receipt["version"] > self.version, receipt
        assert receipt["skipped_count"] == len(bad), receipt
        self.version = receipt["version"]
        self.model.apply(good)
        if "source" in parameters:
            self._remember(sent, parameters, receipt)
        return dict(receipt)

    def _remember(self, sent: Body, parameters: dict[str, Any], receipt: dict[str, Any]) -> None:
        source = parameters["source"]
        content = sent.content.decode() if sent.media in (talk.JSON, talk.JSONL, talk.CSV, talk.DEBEZIUM) else None
        self.sources[source] = {
            "parameters": {name: value for name, value in parameters.items() if name != "reset"},
            "path": sent.path, "media": sent.media, "content": content, "receipt": receipt,
        }  # fmt: skip


def post(client: httpx.Client, sent: Body, parameters: dict[str, Any]) -> httpx.Response:
    return client.post(sent.path, content=sent.content, headers={"Content-Type": sent.media}, params=parameters)


def canonical(row: Row) -> str:
    """A row as text: equal exactly if the values are, 0.0 and -0.0 told apart. Whole floats have no fraction: JSON has but one number."""
    values = [_without_fraction(value) if isinstance(value, float) else value for value in row.values()]
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _without_fraction(value: float) -> float | int:
    whole = value.is_integer() and abs(value) < 2**53 and (value != 0 or math.copysign(1, value) > 0)
    return int(value) if whole else value
