"""Concurrent clients of a service, which record what they do and what they receive. They outlive the service, and continue with the next
one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import orjson

from tests.end_to_end import talk
from tests.histories import batches
from tests.histories.history import Expired, Extended, History, Poll, Reading, Record, Start, Write
from tests.histories.model import ADDED, COLUMNS, DEFINITION, RELATIONS, VIEWS, Change, drawn, row_of
from tests.server_process import client_of


class Refused(Exception):
    """The service cannot accept a request now: 503, or 429."""


def define(client: httpx.Client) -> None:
    """Create missing definitions; existing ones may have been extended since."""
    there = {one["name"] for one in talk.ok(client.get("/v1/relations"))["relations"]}
    for name in RELATIONS:
        if name not in there:
            talk.define(client, name, DEFINITION)
    for name, view in VIEWS.items():
        talk.view(client, name, view.sql)


_BY_MISTAKE = 0.1


@dataclass
class Writer:
    """A source. Without an answer, it sends the same batch again and learns whether it was applied; occasionally, it repeats an answered
    batch, too."""

    history: History
    source: str
    chance: Random
    epoch: int = 0
    unanswered: tuple[Change, ...] | None = None

    def step(self, client: httpx.Client) -> None:
        again = self.unanswered is not None
        if self.unanswered is None:
            self.epoch += 1
            self.unanswered = drawn(self.chance, columns=self.history.columns)
        began = self.history.now()
        answer = self._send(client, self.unanswered)
        if answer.status_code in (503, 429):
            raise Refused(answer.text)
        done = talk.ok(answer)
        ended = self.history.now()
        assert again or not done["duplicate"], f"epoch {self.epoch} of {self.source} was there before it was sent"
        version = done["first"]["version"] if done["duplicate"] else done["version"]
        self.history.add(Write(self.source, self.epoch, self.unanswered, version, done["duplicate"], began, ended))
        sent, self.unanswered = self.unanswered, None
        if self.chance.random() < _BY_MISTAKE:
            answer = self._send(client, sent)
            if answer.status_code == 200:
                done = answer.json()
                taken_once = done["duplicate"] and done["first"]["version"] == version
                assert taken_once, f"epoch {self.epoch} of {self.source} was taken twice: {done}"

    def _send(self, client: httpx.Client, changes: tuple[Change, ...]) -> httpx.Response:
        return batches.send(client, changes, self.source, self.epoch)


@dataclass
class Reader:
    """Reads relations and views, in one request or by pages, between which others write."""

    history: History
    chance: Random

    def step(self, client: httpx.Client) -> None:
        name = self.chance.choice([*COLUMNS])
        path = f"/v1/{'views' if name in VIEWS else 'relations'}/{name}/rows"
        limit = self.chance.choice((None, 5, 40))
        parameters: dict[str, Any] = {} if limit is None else {"limit": limit}
        rows: list[dict[str, Any]] = []
        version = None
        began = self.history.now()
        while True:
            answer = client.get(path, params=parameters, headers={"Accept": talk.JSON if limit else talk.JSONL})
            if answer.status_code == 503:
                raise Refused(answer.text)
            talk.ok_status(answer)
            at = int(answer.headers["livejoin-version"])
            assert version in (None, at), f"a page of {name} is of version {at}, the first one of {version}"
            version = at
            page = answer.json() if limit else {"rows": map(orjson.loads, answer.content.splitlines()), "next": None}
            rows += page["rows"]
            if page["next"] is None:
                self.history.add(_reading(name, at, rows, began, self.history.now()))
                return
            parameters["cursor"] = page["next"]


@dataclass
class Extender:
    """Extends definitions, also by columns that they already have."""

    history: History
    chance: Random

    def step(self, client: httpx.Client) -> None:
        relation, column = self.chance.choice(RELATIONS), self.chance.choice(ADDED)
        began = self.history.now()
        added = {"name": column, "type": "int64", "nullable": True}
        answer = client.patch(f"/v1/relations/{relation}", json={"add_columns": [added]})
        if answer.status_code in (503, 429):
            raise Refused(answer.text)
        assert added in talk.ok(answer)["columns"]
        self.history.add(Extended(relation, column, began, self.history.now()))


@dataclass
class Follower:
    """Follows a view by polls and by streams that it aborts at any point; keeps the last token."""

    history: History
    name: str
    view: str
    chance: Random
    token: str | None = None
    at: int | None = None

    def step(self, client: httpx.Client) -> None:
        parameters: dict[str, Any] = {"since": self.token} if self.token else {"snapshot": "true"}
        style = self.chance.random()
        parameters["wait"] = 0 if style < 0.7 else 0.05
        if style < 0.3:
            parameters["limit"] = self.chance.randrange(1, 4)
        most = self.chance.randrange(1, 40) if style > 0.5 else None  # lines to read before the connection is aborted
        self._read(client, parameters, most)

    def catch_up(self, client: httpx.Client) -> None:
        self._read(client, {"since": self.token} if self.token else {"snapshot": "true"}, None, wait=0)

    def _read(self, client: httpx.Client, parameters: dict[str, Any], most: int | None, **more: Any) -> None:
        since, began = self.at, self.history.now()
        records: list[Record] = []
        try:
            with client.stream("GET", f"/v1/views/{self.view}/changes", params=parameters | more) as answer:
                if answer.status_code == 410:
                    self.token = self.at = None
                    self.history.add(Expired(self.name, since or 0, began, self.history.now()))
                    return
                if answer.status_code == 503:
                    raise Refused(answer.read())
                talk.ok_status(answer)
                for line in answer.iter_lines():
                    record = orjson.loads(line)
                    if record["op"] == "error":
                        raise AssertionError(record)
                    records.append(self._record(record))
                    if record["op"] == "progress":
                        self.token, self.at = record["token"], record["version"]
                    if most is not None and len(records) >= most:
                        break
        finally:
            if records:
                self.history.add(Poll(self.name, self.view, since, tuple(records), began, self.history.now()))

    def _record(self, record: dict[str, Any]) -> Record:
        if record["op"] == "progress":
            return Record("progress", record["version"])
        identity = orjson.dumps(record["key"], option=orjson.OPT_SORT_KEYS).decode()
        return Record(record["op"], record["version"], identity, tuple(record["row"][column] for column in COLUMNS[self.view]))


Client = Writer | Reader | Extender | Follower


@dataclass
class Clients:
    """Some clients of each kind, and their history."""

    seed: int
    writers: int = 3
    readers: int = 1
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        def chance(name: str) -> Random:
            return Random(f"{self.seed} {name}")

        self.of_writers = [Writer(self.history, f"s{i}", chance(f"writer {i}")) for i in range(self.writers)]
        self.of_readers = [Reader(self.history, chance(f"reader {i}")) for i in range(self.readers)]
        self.extender = Extender(self.history, chance("extender"))
        self.followers = [Follower(self.history, f"follower of {view}", view, chance(view)) for view in VIEWS]
        self.wrong: list[BaseException] = []

    def start(self, client: httpx.Client) -> None:
        """Record that the service has started, and create missing definitions."""
        began = self.history.now()
        version = talk.ok(client.get("/v1/status"))["version"]
        self.history.add(Start(version, began, self.history.now()))
        if version == 0:
            define(client)

    def work(self, url: str, steps: int, while_working: Callable[[], None] | None = None) -> None:
        """Let all clients work concurrently, each for this number of steps (followers and the extender a third), until a connection breaks
        or a request is refused."""
        working = [*self.of_writers, *self.of_readers, self.extender, *self.followers]
        threads = [threading.Thread(target=self._run, args=(one, url, steps), daemon=True) for one in working]
        for thread in threads:
            thread.start()
        if while_working:
            while_working()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive(), "a client is stuck"
        if self.wrong:
            raise self.wrong[0]

    def _run(self, one: Client, url: str, steps: int) -> None:
        try:
            with client_of(url) as client:
                for _ in range(steps // 3 if isinstance(one, Follower | Extender) else steps):
                    one.step(client)
        except (httpx.TransportError, Refused):
            pass
        except BaseException as error:
            self.wrong.append(error)

    def settle(self, client: httpx.Client) -> None:
        """Repeat the batches without an answer, read everything, and let the followers catch up."""
        for writer in self.of_writers:
            if writer.unanswered is not None:
                writer.step(client)
        for name in COLUMNS:
            self._read_all(client, name)
        for follower in self.followers:
            follower.catch_up(client)
            if follower.token is None:
                follower.catch_up(client)

    def _read_all(self, client: httpx.Client, name: str) -> None:
        began = self.history.now()
        answer = client.get(f"/v1/{'views' if name in VIEWS else 'relations'}/{name}/rows")
        talk.ok_status(answer)
        rows = [orjson.loads(line) for line in answer.content.splitlines()]
        self.history.add(_reading(name, int(answer.headers["livejoin-version"]), rows, began, self.history.now()))


def _reading(name: str, version: int, rows: list[dict[str, Any]], began: int, ended: int) -> Reading:
    columns = frozenset.intersection(*map(frozenset, rows)) if rows else frozenset()
    return Reading(name, version, tuple(row_of(name, row) for row in rows), began, ended, columns)
