"""Jobs with one source and one out topic, without Kafka and Spark: the job's own code and a real service decide who goes on.

Spark is a query whose batches the test runs; it keeps the files that Spark keeps in a checkpoint. Kafka is a topic that knows its
publisher.
"""

from __future__ import annotations

import contextlib
import json
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from streaming import cli
from streaming.config import Config
from streaming.connection import Service
from streaming.errors import StreamError
from streaming.kafka_client import FoundTopic
from streaming.metrics import Metrics
from streaming.patience import Stopped
from streaming.pipeline import query
from streaming.pipeline.pipeline import Pipeline
from tests.streaming.stream_job import LIMIT

_LOOK = 0.002
Row = int | dict[str, Any]
TAKEN_OVER = "another job has started to publish"


class OutTopic:
    """A topic as its broker sees it: whoever begins to publish fences those before, who notice at the next change."""

    def __init__(self) -> None:
        self.publisher: Job | None = None
        self.changes = self.away = 0  # how often the view has changed, and how often the broker was away: then each publisher begins anew
        self.began = 0  # how often someone has begun
        self.live: dict[Job, int] = {}  # the changes that each publisher has seen

    def publish(self, job: Job, enough: threading.Event, ask: Callable[[], None]) -> None:
        away, seen = -1, self.changes
        self.live[job] = seen
        try:
            while not (job.stop.is_set() or enough.is_set()):
                if away != self.away:  # or at its beginning
                    ask()
                    self.publisher, away, self.began = job, self.away, self.began + 1
                elif self.changes != seen and self.publisher is not job:
                    raise StreamError(TAKEN_OVER)
                self.live[job] = seen = self.changes
                job.stop.wait(_LOOK)
        finally:
            del self.live[job]

    def change(self) -> None:
        """The view changes; returns when each publisher has noticed."""
        self.changes += 1
        while any(seen != self.changes for seen in list(self.live.values())):
            threading.Event().wait(_LOOK)


class Query:
    """Spark's query on a job's checkpoint."""

    def __init__(self, job: Job, pipeline: Pipeline) -> None:
        self.isActive, self.lastProgress, self.status = True, None, {"isTriggerActive": False}
        self._job, self._pipeline, self._folder = job, pipeline, job.checkpoint
        self._failure: Exception | None = None
        for part in ("offsets", "commits"):
            (self._folder / part).mkdir(exist_ok=True)
        with contextlib.suppress(FileExistsError), (self._folder / "metadata").open("x") as file:
            json.dump({"id": str(uuid.uuid4())}, file)
        self._next = self._numbers("commits") + 1
        self._planned = self._numbers("offsets")

    def batch(self, *rows: Row, crash: bool = False) -> None:
        """The next batch, of these rows: whole, or by number. crash: the job dies when it is posted, before Spark has committed it."""
        number, plan = self._next, self._folder / "offsets" / str(self._next)
        if number > self._planned and plan.exists():
            return self._end(Exception("CONCURRENT_STREAM_LOG_UPDATE"))
        plan.write_text(f'v1\n{{}}\n{{"t": {{"0": {number}}}}}')
        self._planned = number
        try:
            self._pipeline.process(self._frame(rows), number)  # type: ignore[arg-type]
        except Exception as failure:
            return self._end(failure)
        if crash:
            return self._end(Exception("crash"))
        (self._folder / "commits" / str(number)).write_text("v1\n{}")
        self._next += 1

    def _frame(self, rows: tuple[Row, ...]) -> SimpleNamespace:
        whole = [row if isinstance(row, dict) else {"id": row, "room": "A", "starts": 0, "ends": 5} for row in rows]
        values = [json.dumps({"op": "c", "after": row}).encode() for row in whole]
        columns: dict[str, Any] = {"topic": pa.array(["t"] * len(rows), pa.string()), "partition": pa.array([0] * len(rows), pa.int32())}
        columns |= {"offset": pa.array(range(len(rows)), pa.int64()), "key": pa.nulls(len(rows), pa.binary())}
        table = pa.table({**columns, "value": pa.array(values, pa.binary())})
        run = json.loads((self._folder / "metadata").read_text())["id"]
        session = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda name: run))
        return SimpleNamespace(select=lambda *names: SimpleNamespace(toArrow=lambda: table), sparkSession=session)

    def _numbers(self, part: str) -> int:
        return max((int(path.name) for path in (self._folder / part).iterdir()), default=-1)

    def _end(self, failure: Exception) -> None:
        self._failure, self.isActive = failure, False

    def exception(self) -> Exception | None:
        return self._failure

    def stop(self) -> None:
        self.isActive = False


class Watch(SimpleNamespace):
    """What the job sees of its topic, which stays as it is."""

    def __init__(self, *arguments: object) -> None:
        nothing = dict.fromkeys(("compare", "reached", "note", "last_look"), lambda *arguments: None)
        super().__init__(failure=None, partitions={"t": 1}, behind=dict, **nothing)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class Job:
    """A job of a file; `said` is what it ended with, each time that it ended by itself. Other keywords go into [[topic]]."""

    def __init__(
        self,
        house: House,
        name: str,
        url: str,
        checkpoint: Path,
        token: str = "",
        relation: str = "stays",
        reset: bool = False,
        **more: Any,
    ) -> None:
        self.house, self.checkpoint, self.token = house, checkpoint, token
        stream = {"name": name, "checkpoint": str(checkpoint), "reset": reset}
        topic = {"name": "t", "relation": relation, "format": "debezium", **more}
        file = {"service": {"url": url}, "kafka": {"brokers": "127.0.0.1:1"}, "stream": stream, "topic": [topic]}
        self.config = Config.model_validate({**file, "out": [{"view": "v", "topic": "out"}]})
        self.stop, self.said, self.metrics = threading.Event(), list[str](), Metrics()
        self.query: Query | None = None
        self._thread = threading.Thread()

    def start(self) -> None:
        """Returns when its query has started, or it has ended."""
        self.begin()
        self.wait_until(lambda: self.query is not None)

    def begin(self) -> None:
        if not self.runs:
            self.stop, self.query = threading.Event(), None
            self.house.jobs[self.stop] = self
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(Stopped):
            try:
                cli._run(self.config, self.stop, self.metrics)
            except StreamError as failure:
                self.said.append(str(failure))

    def wait_until(self, condition: Any) -> None:
        """Or until it has ended."""
        for _ in range(int(LIMIT / _LOOK)):
            if condition() or not self.runs:
                return
            self._thread.join(_LOOK)
        raise AssertionError("nothing came of it")

    def batch(self, *rows: Row, crash: bool = False) -> None:
        """One of its query, and what the view then shows; returns when everyone has noticed."""
        if self.runs and self.query is not None:
            self.query.batch(*rows, crash=crash)
            if rows:
                self.house.topic.change()
            for job in list(self.house.jobs.values()):
                job.wait_until(lambda job=job: not job.stop.is_set() and (job.query is None or job.query.isActive))

    def end(self) -> None:
        self.stop.set()
        self.wait_until(lambda: False)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    @property
    def publishes(self) -> bool:
        return self.runs and self.house.topic.publisher is self and self in self.house.topic.live


class House:
    """What jobs share: their out topic. `jobs`: by the event that stops them."""

    def __init__(self) -> None:
        self.topic, self.jobs = OutTopic(), dict[threading.Event, Job]()
        self._lock = threading.Lock()

    def service(self, url: str, stop: threading.Event, *more: Any) -> Service:
        """With the access token of its job."""
        with self._lock, pytest.MonkeyPatch.context() as patch:
            patch.setenv("LIVEJOIN_TOKEN", self.jobs[stop].token)
            return Service(url, stop, *more)

    def publisher(self, kafka: object, service: Service, out: object, stop: threading.Event, enough: threading.Event, *more: object) -> Any:
        return SimpleNamespace(run=lambda ask: self.topic.publish(self.jobs[stop], enough, lambda: ask(service)))

    def query(self, spark: object, job: Any, pipeline: Pipeline) -> Query:
        mine = self.jobs[job.stop]
        mine.query = Query(mine, pipeline)
        return mine.query

    @contextlib.contextmanager
    def open(self) -> Iterator[House]:
        """Jobs run in here; those that still do at the end are stopped."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cli, "_spark", lambda name, stop: contextlib.nullcontext())
            patch.setattr(cli, "Service", self.service)
            patch.setattr(cli, "Publisher", self.publisher)
            patch.setattr(query, "Service", self.service)
            patch.setattr(query, "_wait_for_topics", lambda *arguments: {"t": FoundTopic("id of t", 1)})
            patch.setattr(query, "admin_of", lambda kafka: None)
            patch.setattr(query, "TopicWatch", Watch)
            patch.setattr(query, "start_query", self.query)
            patch.setattr(query, "_LOOK_SECONDS", _LOOK)
            try:
                yield self
            finally:
                for job in self.jobs.values():
                    job.end()


def run_of(checkpoint: Path) -> str | None:
    path = checkpoint / "metadata"
    return json.loads(path.read_text())["id"] if path.exists() else None


