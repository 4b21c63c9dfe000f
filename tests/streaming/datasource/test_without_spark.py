"""Readers and writers of `format("livejoin")`, with a real service, and without Spark."""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

import livejoin
from livejoin.datasource import sink
from livejoin.datasource.errors import DataSourceError
from livejoin.datasource.options import Options
from livejoin.datasource.readers import BatchReader, ChangesPartition, StreamReader, _now, schema_of
from livejoin.datasource.sink import BATCH, STREAM, BatchWriter, StreamWriter
from service.access.access_token import AccessToken, digest, new_text
from service.access.store import add_token
from tests.server_process import ServerProcess

TOKEN = "token.*; give a valid token in the option 'token', or in LIVEJOIN_TOKEN; a stream that is restarted continues where it stopped"
ROWS = pa.record_batch({"id": pa.array([1, 2])})


class Attempts:
    """In place of Spark's TaskContext: each task is another attempt."""

    def __init__(self) -> None:
        self._number = itertools.count()

    def get(self) -> Attempts:
        return self

    def taskAttemptId(self) -> int:
        return next(self._number)


class Query(NamedTuple):
    """Of a service in token mode with the relation r and the view v: a reader of its changes, and a writer. `tokens`: by name; `nightly` is
    that of the query, `former` has expired."""

    service: ServerProcess
    ops: livejoin.Client
    tokens: dict[str, str]

    def reader(self, name: str) -> StreamReader:
        options = self._options(name, "view", view="v", changes="true")
        return StreamReader(options, schema_of(self._options("ops", "view", view="v", changes="true")))

    def writer(self, name: str) -> StreamWriter:
        return StreamWriter(self._options(name, relation="r", source="s", run="1"), overwrite=False)

    def _options(self, name: str, *known: str, **given: str) -> Options:
        return Options({"url": self.service.url, "token": self.tokens[name], **given}, "here", (*STREAM, *known, "changes", "timeType"))


@pytest.fixture
def query(tmp_path: Path) -> Iterator[Query]:
    tokens = {name: new_text() for name in ("ops", "nightly", "former")}
    folder = tmp_path / "data"
    folder.mkdir()
    for name, text in tokens.items():
        expires = 2000.0 if name == "former" else float("inf")
        add_token(folder, AccessToken(name, "admin" if name == "ops" else "write", None, None, expires, 1000.0, digest(text)), begin=True)
    with ServerProcess(folder) as service, livejoin.connect(service.url, token=tokens["ops"]) as ops:
        ops.relation("r").create({"id": "int64"}, "id")
        ops.view("v", "SELECT id FROM r")
        yield Query(service, ops, tokens)


@pytest.mark.parametrize("end", ["the token is revoked", "the token has expired", "the service is away"])
def test_a_query_that_cannot_go_on_names_what_to_do(query: Query, end: str) -> None:
    """The next micro-batch is planned, read and written in vain, whichever comes first."""
    reader, writer = query.reader("nightly"), query.writer("nightly")
    start, limit = reader.initialOffset(), reader.getDefaultReadLimit()
    writer.commit([writer.write(iter([ROWS]))], 0)
    offset = reader.latestOffset(start, limit)
    (stretch,) = reader.partitions(start, offset)
    assert sum(len(rows) for rows in reader.read(cast(ChangesPartition, stretch))) == 2
    if end == "the token is revoked":
        query.ops.revoke_token("nightly")
    elif end == "the token has expired":
        reader, writer = query.reader("former"), query.writer("former")
    else:
        assert query.service.stop() == 0
    steps: list[tuple[str, Callable[[], object]]] = [
        ("the view v: ", lambda: reader.latestOffset(offset, limit)),
        ("the view v: ", lambda: list(reader.read(cast(ChangesPartition, stretch)))),
        ("the relation r, source s, batch 1: ", lambda: writer.commit([writer.write(iter([ROWS]))], 1)),
    ]
    emitted = rf"no service answers at {query.service.url} .*: start one with `livejoin serve" if end == "the service is away" else TOKEN
    for what, step in steps:
        with pytest.raises(DataSourceError) as error:
            step()
        said = str(error.value)
        assert said.startswith(what) and not any(text in said for text in query.tokens.values())
        assert re.search(emitted, said), said


def test_a_batch_that_is_too_large_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the task that has it, or where those of all tasks come together. There is no service."""
    monkeypatch.setattr(sink, "LARGEST", 1 << 20)
    writer = StreamWriter(Options({"relation": "r", "source": "s", "run": "1"}, "here", STREAM), overwrite=False)
    rows = pa.record_batch({"id": pa.array(range(100_000))})
    said = "the relation r, source s: the batch is larger than the maximum of 1 MiB: limit how much the source of the query reads at once"
    with pytest.raises(DataSourceError, match=said):
        writer.write(iter([rows, rows]))
    written = [writer.write(iter([rows])) for _ in range(2)]
    with pytest.raises(DataSourceError, match=said):
        writer.commit([*written, None], 0)


def test_a_task_that_is_slower_than_the_service_waits_goes_on_behind_its_rows(tmp_path: Path) -> None:
    """As where what follows in Spark takes minutes for a batch: the service closes the connection, and holds the version still."""
    with ServerProcess(tmp_path / "data", arguments=["--pin-idle", "1"]) as server, livejoin.connect(server.url) as lj:
        lj.relation("wide").create({"id": "int64", "text": "string"}, "id")
        lj.view("all", "SELECT id, text FROM wide")
        lj.relation("wide").load(pa.table({"id": range(40_000), "text": ["x" * 1000] * 40_000}))  # more than sockets hold
        reader = batch_reader(server.url, view="all", parts="1")
        (part,) = reader.partitions()
        batches = reader.read(part)
        found = [next(batches)]
        while "read nothing" not in server.output():
            time.sleep(0.05)
        found.extend(batches)
    assert pa.Table.from_batches(found)[0].to_pylist() == list(range(40_000))


def batch_reader(url: str, **given: str) -> BatchReader:
    options = Options({"url": url} | given, "for reading", ("view", "parts", "version", "hold", "timeType"))
    return BatchReader(options, schema_of(options))


def test_a_task_whose_reading_is_gone_fails(tmp_path: Path) -> None:
    """It never continues at another version, also where a restarted service knows of no reading."""
    with ServerProcess(tmp_path / "data") as server, livejoin.connect(server.url) as lj:
        rows = lj.relation("r").create({"id": "int64"}, "id")
        rows.upsert([{"id": number} for number in range(10)])
        lj.view("v", "SELECT id FROM r")
        ended, restarted = batch_reader(server.url, view="v", parts="2", hold="1"), batch_reader(server.url, view="v", parts="2")
        first = [pa.Table.from_batches(reader.read(reader.partitions()[0])).num_rows for reader in (ended, restarted)]
        rows.upsert([{"id": 10}])
        again = pa.Table.from_batches(restarted.read(restarted.partitions()[0])).num_rows
        rest = pa.Table.from_batches(restarted.read(restarted.partitions()[1])).num_rows
        assert [first, again + rest] == [[again, again], 10]
        time.sleep(3)
        for number in range(2):
            with pytest.raises(DataSourceError, match="the view v: .*the reading has ended: run the action again"):
                list(ended.read(ended.partitions()[number]))
        assert server.stop() == 0
        server.start()
        with pytest.raises(DataSourceError, match="the view v: .*the reading has ended: run the action again"):
            list(restarted.read(restarted.partitions()[1]))


def test_a_token_that_is_not_valid_any_more_is_named(tmp_path: Path) -> None:
    (tmp_path / "boss").write_text("lj_" + "a" * 40)
    (tmp_path / "boss").chmod(0o600)
    with ServerProcess(tmp_path / "data", environment={"LIVEJOIN_ADMIN_TOKEN_FILE": str(tmp_path / "boss")}) as guarded:
        options = {"url": guarded.url, "view": "v", "token": "lj_" + "b" * 40}
        with pytest.raises(DataSourceError, match="token.*; give a valid token in the option 'token', or in LIVEJOIN_TOKEN") as error:
            schema_of(Options(options, "for reading", ("view", "timeType")))
        assert "bbb" not in str(error.value)


@pytest.mark.parametrize("op", [[], ["_op"]])
def test_some_of_the_rows_that_were_skipped_are_told(
    shared_server: ServerProcess, caplog: pytest.LogCaptureFixture, op: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "TaskContext", Attempts())
    with livejoin.connect(shared_server.url) as lj:
        lj.relation("skipped").create({"id": "int64", "room": "string"}, "id")
    options = Options({"url": shared_server.url, "relation": "skipped", "on_error": "skip"}, "for writing", BATCH)
    schema = StructType([StructField("id", LongType()), *(StructField(name, StringType()) for name in ("room", *op))])
    writer = BatchWriter(options, schema, False)
    written = [writer.write(iter([pa.record_batch({"id": ids, "room": [None, "A"]})])) for ids in ([1, 2], [3, 4])]
    writer.commit([*written, None])
    assert "2 bad rows were skipped" in caplog.text and "room of row 0: " in caplog.text
    assert caplog.text.count("room of row 0: ") == 2 if op else "room of row 2: " in caplog.text


def test_changes_that_come_while_the_newest_token_is_asked_for() -> None:
    """The answer has their version then, before its progress."""

    class Busy:
        @contextlib.contextmanager
        def changes(self, wait: float, limit: int) -> Iterator[Busy]:
            yield self

        def lines(self) -> Iterator[bytes]:
            yield b'{"op":"insert","version":7,"row":{}}\n'
            yield b'{"op":"insert","version":7,"row":{}}\n{"op":"progress","version":7,"token":"t7"}\n'

    assert _now(cast(livejoin.View, Busy())) == {"token": "t7", "version": 7}
