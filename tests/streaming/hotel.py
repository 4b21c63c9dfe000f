"""The history of a hotel, sent to a stage, and the check that every record was processed exactly once."""

from __future__ import annotations

import json
import random
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any

from confluent_kafka import Message

from tests.end_to_end import talk
from tests.streaming.history import COLUMNS, TABLES, VIEWS, History
from tests.streaming.kill_stage import Kill, Stage
from tests.streaming.out_job import Believer

DEAD = "dead"
_PARTITIONS = 3


class Hotel:
    """`with Hotel(…) as hotel:` starts broker, service and job. A batch has at most `size` records.

    retain_rows: of the changes of each view; stream: as StreamJob has them.
    """

    def __init__(self, folder: Path, dice: random.Random, size: int = 40, retain_rows: int = 1_000_000, **stream: Any) -> None:
        self.dice = dice
        self.history = History(dice, _PARTITIONS)
        topics = [(relation, relation) for relation in TABLES]
        self.stage = Stage(folder, dice, topics, max_offsets=size, dead_letters=DEAD, max_dead_letters=size, **stream)
        with self.stage.job.path.open("a") as file:
            file.writelines(f'\n[[out]]\nview = "{view}"\ntopic = "{view}.out"\n' for view in VIEWS)
        self._believers: dict[str, Believer] = {}
        self._size = size
        self._retained = {"retain_rows": retain_rows, "retain_bytes": 256 << 20}

    def __enter__(self) -> Hotel:
        stage = self.stage.__enter__()
        try:
            stage.topics.make(*TABLES, partitions=_PARTITIONS)
            stage.topics.make(DEAD)
            stage.topics.make(*(f"{view}.out" for view in VIEWS), partitions=2)
            client = stage.server.client()
            for name, table in TABLES.items():
                talk.define(client, name, table.definition)
            for name, sql in VIEWS.items():
                talk.view(client, name, {"sql": sql, "changes": self._retained})
            stage.start_job()
        except BaseException as error:
            stage.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for believer in self._believers.values():
            believer.close()
        self.stage.__exit__(kind, error, trace)

    def feed(self, count: int) -> None:
        for record in self.history.emit(count):
            self.stage.put(record.relation, record.partition, record.key, record.value)

    def suffer(self, kill: Kill) -> None:
        """Kill something in the middle of batches, and start everything again."""
        self.stage.strike(kill, lambda: self.feed(5 * self._size))
        self.stage.revive(kill.parts)

    def end(self) -> None:
        """Stop the job; check that its topics have no duplicates."""
        assert self.stage.job.stop() == 0
        for believer in self._believers.values():
            rows = dict(believer.rows)
            believer.read_to_end()
            assert believer.rows == rows

    def check(self) -> None:
        """Check that all records are consumed, that relations, views and their topics have the expected state, and that the dead letters
        are the bad records."""
        self.stage.settle()
        client = self.stage.server.client()
        for relation, rows in self.history.rows.items():
            answer = client.get(f"/v1/relations/{relation}/rows", headers={"Accept": talk.JSONL})
            there = [json.loads(line) for line in answer.content.splitlines()]
            assert sorted(there, key=itemgetter("id")) == sorted(rows.values(), key=itemgetter("id"))
        for view in VIEWS:
            pairs, truth = talk.read(client, view, talk.ARROW, COLUMNS), self.history.pairs(view)
            assert len(pairs) == talk.count(client, view) == len(truth)
            assert set(pairs) == truth
            if view not in self._believers:
                self._believers[view] = Believer(self.stage.broker.address, f"{view}.out")
            self._believers[view].believe_until([dict(zip(COLUMNS, pair, strict=True)) for pair in truth])
        letters = self.stage.whole(DEAD)
        assert {letter.value() for letter in letters} == self.history.bad
        assert len({_origin(letter) for letter in letters}) == self.history.bad_emitted


def _origin(letter: Message) -> tuple[bytes, ...]:
    """Return which record a dead letter was; the headers distinguish repeated records."""
    head = dict(letter.headers())
    return tuple(head[f"livejoin.{name}"] for name in ("topic", "partition", "offset"))
