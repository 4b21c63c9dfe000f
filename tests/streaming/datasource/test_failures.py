"""What readers and writers of a running query say where it cannot go on. With a real service, and without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pytest

import livejoin
from service.access.access_token import AccessToken, digest, new_text
from service.access.store import add_token
from streaming.datasource import sink
from streaming.datasource.options import Options
from streaming.datasource.readers import StreamReader, Stretch, schema_of
from streaming.datasource.sink import STREAM, StreamWriter
from streaming.errors import StreamError
from tests.server_process import ServerProcess

TOKEN = "token.*; give a valid one by the option 'token', or LIVEJOIN_TOKEN; a stream that is started again goes on where it was"
ROWS = pa.record_batch({"id": pa.array([1, 2])})


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
        return Options({"url": self.service.url, "token": self.tokens[name], **given}, "here", (*STREAM, *known, "changes"))


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
    assert sum(len(rows) for rows in reader.read(cast(Stretch, stretch))) == 2
    if end == "the token is revoked":
        query.ops.revoke_token("nightly")
    elif end == "the token has expired":
        reader, writer = query.reader("former"), query.writer("former")
    else:
        assert query.service.stop() == 0
    steps: list[tuple[str, Callable[[], object]]] = [
        ("the view v: ", lambda: reader.latestOffset(offset, limit)),
        ("the view v: ", lambda: list(reader.read(cast(Stretch, stretch)))),
        ("the relation r, source s, batch 1: ", lambda: writer.commit([writer.write(iter([ROWS]))], 1)),
    ]
    told = rf"no service answers at {query.service.url} .*: start one with `livejoin serve" if end == "the service is away" else TOKEN
    for what, step in steps:
        with pytest.raises(StreamError) as error:
            step()
        said = str(error.value)
        assert said.startswith(what) and not any(text in said for text in query.tokens.values())
        assert re.search(told, said), said


def test_a_batch_that_is_too_large_is_refused_before_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the task that has it, or where those of all tasks come together. There is no service."""
    monkeypatch.setattr(sink, "LARGEST", 1 << 20)
    writer = StreamWriter(Options({"relation": "r", "source": "s", "run": "1"}, "here", STREAM), overwrite=False)
    rows = pa.record_batch({"id": pa.array(range(100_000))})
    said = "the relation r, source s: a batch may have 1 MiB, and this one has more: let the source of the query read less at once"
    with pytest.raises(StreamError, match=said):
        writer.write(iter([rows, rows]))
    written = [writer.write(iter([rows])) for _ in range(2)]
    with pytest.raises(StreamError, match=said):
        writer.commit([*written, None], 0)
