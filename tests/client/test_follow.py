"""Following a view: each version once and whole, over broken connections, restarts and expired tokens."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import orjson
import pytest

import livejoin
from livejoin import versions as versions_module
from tests.client.hotel import Copy, Hotel, pairs, restarted, row
from tests.listener import Listener
from tests.server_process import ServerProcess
from tests.service.scripted import Answer, problem, scripted

# -- by a server that answers as the test has it


def jsonl(*records: dict[str, object], whole: bool = True) -> Answer:
    return Answer(b"".join(orjson.dumps(record) + b"\n" for record in records), whole=whole)


def change(version: int, op: str, number: int) -> dict[str, object]:
    return {"version": version, "op": op, "key": {"a": {"id": number}}, "row": {"id": number}}


def progress(version: int, token: str | None = "") -> dict[str, object]:
    return {"version": version, "op": "progress", "token": f"t{version}" if token == "" else token}


def ended(kind: str, token: str | None = None) -> dict[str, object]:
    return {"op": "error", "problem": {"type": f"/problems/{kind}", "title": kind, "status": 410, "detail": "because"}, "token": token}


def followed(url: str, **how: Any) -> tuple[list[list[dict[str, Any]]], livejoin.LivejoinError | None]:
    """The records of each version, and what it ended with."""
    found = []
    with livejoin.connect(url, patience=2) as lj:
        try:
            for version in lj.view("v").follow(**how):
                found.append([orjson.loads(line) for line in version.lines()])
        except livejoin.LivejoinError as error:
            return found, error
    return found, None


def test_a_follower_that_has_raised_connects_again() -> None:
    with scripted(problem("token-expired", 410), jsonl(change(1, "insert", 1), progress(1))) as (url, asked), livejoin.connect(url) as lj:
        follower = lj.view("v").follow(since="t0", wait=0)
        with pytest.raises(livejoin.TokenExpired):
            next(follower)
        assert next(follower).version == 1
    assert [request.params["since"] for request in asked] == ["t0", "t0"]


def test_a_token_file_needs_its_folder(tmp_path: Path) -> None:
    with livejoin.connect("http://127.0.0.1:9") as lj, pytest.raises(FileNotFoundError, match="create it"):
        lj.view("v").follow(store=tmp_path / "none" / "token")


def test_each_version_comes_once_over_broken_connections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "livejoin.client")
    first = jsonl(change(3, "insert", 1), change(3, "insert", 2), progress(3), change(4, "delete", 1), whole=False)
    second = jsonl(change(4, "delete", 1), change(4, "insert", 9), progress(4), whole=False)
    with scripted(first, second) as (url, asked):
        versions, error = followed(url, snapshot=True)
    assert versions == [
        [change(3, "insert", 1), change(3, "insert", 2), progress(3)],
        [change(4, "delete", 1), change(4, "insert", 9), progress(4)],
    ]
    assert [request.params for request in asked] == [{"snapshot": "true"}, {"since": "t3"}, {"since": "t4"}]
    assert isinstance(error, livejoin.TokenExpired)
    emitted = [record.getMessage() for record in caplog.records]
    assert sum("resuming from the last token" in text for text in emitted) == 2 and emitted.count("reconnected") == 1


def test_from_now_on_has_a_token_at_once() -> None:
    answers = [jsonl(progress(5)), Answer(b"", whole=False), jsonl(change(6, "insert", 1), progress(6), progress(7))]
    with scripted(*answers) as (url, asked):
        versions, _ = followed(url)
    assert versions == [[change(6, "insert", 1), progress(6)]]
    assert [request.params for request in asked] == [{"wait": "0"}, {"since": "t5"}, {"since": "t5"}, {"since": "t7"}]
    with scripted(*answers) as (url, _):
        versions, _ = followed(url, idle=True)
    assert versions == [[progress(5)], [change(6, "insert", 1), progress(6)], [progress(7)]]


def test_a_snapshot_that_breaks_begins_again() -> None:
    """Progress without a token only says that the service is there."""
    part = jsonl(change(3, "insert", 1), progress(3, None), whole=False)
    whole = jsonl(change(4, "insert", 1), progress(4, None), change(4, "insert", 2), progress(4))
    with scripted(part, jsonl(ended("snapshot-expired")), whole) as (url, asked):
        versions, _ = followed(url, snapshot=True)
    assert versions == [[change(4, "insert", 1), change(4, "insert", 2), progress(4)]]
    assert [request.params for request in asked] == [{"snapshot": "true"}] * 3 + [{"since": "t4"}]


def test_rows_may_say_what_ends_a_version() -> None:
    said = [{**change(3, "insert", number), "row": {"progress": "error", "op": "progress"}} for number in range(3)]
    with scripted(jsonl(*said[:2], progress(3), said[2], change(4, "delete", 1), progress(4))) as (url, _):
        versions, _ = followed(url, since="t2", wait=0)
    assert versions == [[*said[:2], progress(3)], [said[2], change(4, "delete", 1), progress(4)]]


def test_too_slow_goes_on_and_a_gap_ends_it() -> None:
    slow = jsonl(progress(3), change(4, "insert", 1), ended("reader-too-slow", "t3b"))
    gap = jsonl(change(4, "insert", 1), progress(4), ended("delta-too-large", "t4"))
    with scripted(slow, gap) as (url, asked):
        versions, error = followed(url, since="t2")
    assert versions == [[change(4, "insert", 1), progress(4)]]
    assert [request.params for request in asked] == [{"since": "t2"}, {"since": "t3b"}]
    assert type(error) is livejoin.DeltaTooLarge and isinstance(error, livejoin.TokenExpired)


@pytest.mark.parametrize("gap", [problem("token-expired", 410), jsonl(ended("delta-too-large", "t4"))])
def test_a_restart_begins_again_with_every_row(gap: Answer) -> None:
    answers = [jsonl(change(3, "insert", 1), progress(3)), gap, jsonl(change(8, "insert", 5), progress(8)), problem("view-failed", 503)]
    with scripted(*answers) as (url, asked), livejoin.connect(url) as lj:
        found = []
        with pytest.raises(livejoin.ViewFailed):
            for version in lj.view("v").follow(since="t2", restart="snapshot"):
                found.append((version.version, version.snapshot, version.size))
    assert found == [(3, False, 1), (8, True, 1)]
    assert [request.params for request in asked] == [{"since": "t2"}, {"since": "t3"}, {"snapshot": "true"}, {"since": "t8"}]
    with pytest.raises(ValueError, match="snapshot"):
        livejoin.connect(url).view("v").follow(restart="yes")  # type: ignore[arg-type]


def test_a_poll_ends() -> None:
    with scripted(jsonl(change(3, "insert", 1), progress(3), progress(4))) as (url, asked), livejoin.connect(url) as lj:
        versions = lj.view("v").follow(since="t2", wait=0.5)
        assert [version.size for version in versions] == [1] and versions.token == "t4"
    assert asked[0].params == {"since": "t2", "wait": "0.5"}


def test_the_token_is_kept_after_the_body(tmp_path: Path) -> None:
    store = tmp_path / "v.token"
    answers = [jsonl(change(number, "insert", number), progress(number), whole=number == 5) for number in (3, 4, 5)]
    with scripted(*answers) as (url, _), livejoin.connect(url) as lj:
        seen = []
        with pytest.raises(ZeroDivisionError):
            for version in lj.view("v").follow(snapshot=True, store=store):
                seen.append((version.version, store.read_text() if store.exists() else None))
                if version.version == 5:
                    raise ZeroDivisionError
        assert seen == [(3, None), (4, "t3\n"), (5, "t4\n")] and store.read_text() == "t4\n"
    with scripted(answers[2]) as (url, asked):
        versions, _ = followed(url, snapshot=True, since="other", store=str(store))
        assert versions == [[change(5, "insert", 5), progress(5)]] and asked[0].params == {"since": "t4"}
    assert store.read_text() == "t5\n" and [path.name for path in tmp_path.iterdir()] == ["v.token"]


def test_versions_are_kept_by_whoever_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions_module, "_IN_MEMORY", 100)  # so that they lie in files
    answer = jsonl(*(change(3, "insert", number) for number in range(100)), progress(3), change(4, "delete", 7), progress(4))
    with scripted(answer) as (url, _), livejoin.connect(url) as lj:
        first, second = islice(lj.view("v").follow(since="t"), 2)
    assert [one.row["id"] for one in first.changes] == list(range(100)) == [one.row["id"] for one in first.changes]
    assert list(second.changes) == [livejoin.Change("delete", {"a": {"id": 7}}, {"id": 7})]


@pytest.mark.parametrize("read", ["follow", "rows"])
def test_who_is_dropped_is_gone_without_the_garbage_collector(read: str) -> None:
    """That may run while the pool of connections is locked; closing a connection there would wait for the lock for ever."""
    records = [change(3, "insert", 1), progress(3), progress(4)]
    gc.disable()
    try:
        with scripted(jsonl(*records)) as (url, _), livejoin.connect(url) as lj:
            view = lj.view("v")
            reading = iter(view.follow(since="t") if read == "follow" else view.rows())
            next(reading)
            assert len(pool_of(lj)) == 1
            del reading
            assert pool_of(lj) == []
    finally:
        gc.enable()


def pool_of(lj: livejoin.Client) -> list[Any]:
    """The connections of a client."""
    connections: list[Any] = lj._http._http._transport._pool.connections  # type: ignore[attr-defined]
    return connections


# -- the real service


class Cutter(Listener):
    """Between client and service: passes bytes on, and cuts each connection after some of them."""

    def __init__(self, port: int, seed: int) -> None:
        super().__init__()
        self._to, self._chance = port, random.Random(seed)
        self.cuts = 0

    def _take(self, client: socket.socket) -> None:
        service = socket.create_connection(("127.0.0.1", self._to))
        threading.Thread(target=self._pass, args=(client, service, 1 << 60), daemon=True).start()
        threading.Thread(target=self._pass, args=(service, client, self._chance.randrange(1500, 5000)), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, left: int) -> None:
        try:
            while left and (data := source.recv(min(left, 1 << 14))):
                left -= len(data)
                sink.sendall(data)
        except OSError:
            pass
        if not left:
            self.cuts += 1
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def writing(hotel: Hotel, count: int, seed: int) -> Iterator[None]:
    """Batches while the body runs; the last one brings booking 99."""
    chance = random.Random(seed)

    def write() -> None:
        for _ in range(count):
            numbers = chance.sample(range(20), chance.randint(1, 3))
            if chance.random() < 0.4:
                hotel.bookings.delete([{"id": number} for number in numbers])
            else:
                hotel.bookings.upsert([row(number, end=chance.randint(5, 9)) for number in numbers])
        hotel.bookings.upsert([row(99)])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def test_nothing_is_lost_or_repeated_when_connections_break(shared_server: ServerProcess, hotel: Hotel) -> None:
    hotel.jobs.upsert([row(number) for number in range(3)])
    copy = Copy()
    with writing(hotel, 300, 7), Cutter(shared_server.port, 7) as cutter, livejoin.connect(cutter.url) as lj:
        for version in lj.view(hotel.clashes.name).follow(snapshot=True):
            copy.apply(version)
            if (99, 0) in copy.rows:
                break
    assert copy.rows == pairs(hotel.clashes.rows()) and len(copy.versions) > 100
    assert cutter.cuts > 5


def test_the_same_with_asyncio(shared_server: ServerProcess, hotel: Hotel) -> None:
    hotel.jobs.upsert([row(number) for number in range(3)])
    copy = Copy()

    async def follow(url: str) -> None:
        async with livejoin.connect_async(url) as lj, (await lj.view(hotel.clashes.name)).follow(snapshot=True) as versions:
            async for version in versions:
                copy.apply(version)
                if (99, 0) in copy.rows:
                    break

    with writing(hotel, 100, 8), Cutter(shared_server.port, 8) as cutter:
        asyncio.run(follow(cutter.url))
    assert copy.rows == pairs(hotel.clashes.rows()) and cutter.cuts > 1


def test_a_follower_with_a_store_goes_on_where_it_was(hotel: Hotel, tmp_path: Path) -> None:
    """It comes and goes; a version whose body was left comes again."""
    hotel.jobs.upsert([row(0)])
    copy, store = Copy(), tmp_path / "clashes.token"
    with writing(hotel, 100, 9):
        while (99, 0) not in copy.rows:
            for number, version in enumerate(hotel.clashes.follow(snapshot=True, store=store, wait=5)):
                if number == 7:
                    break  # before it is applied
                copy.apply(version)
    assert copy.rows == pairs(hotel.clashes.rows())


def test_a_service_that_is_restarted(server: ServerProcess) -> None:
    """It goes on from its token, without another snapshot: nothing is lost."""
    with livejoin.connect(server.url, patience=300) as lj:
        hotel = Hotel(lj)
        hotel.jobs.upsert([row(0)])
        copy = Copy()
        versions = hotel.clashes.follow(snapshot=True)  # TokenExpired, if it did not go on
        copy.apply(next(versions))
        for number in (1, 2):
            with restarted(server):
                with lj.batch("writer", number) as batch:
                    batch.upsert("bookings", [row(number)])
                while (number, 0) not in copy.rows:
                    copy.apply(next(versions))
        assert copy.rows == {(1, 0), (2, 0)}


def test_an_expired_token(lj: livejoin.Client, hotel: Hotel) -> None:
    hotel.jobs.upsert([row(0)])
    view = lj.view(f"{hotel.clashes.name}_short", hotel.sql, changes={"retain_rows": 10})
    with view.follow() as versions:
        hotel.bookings.upsert([row(1)])
        token = next(versions).token
    for number in range(30):
        hotel.bookings.upsert([row(number + 2)])
    with pytest.raises(livejoin.TokenExpired) as caught:
        next(view.follow(since=token))
    assert caught.value.status == 410 and caught.value.page.endswith("/problems/token-expired")
    again = next(view.follow(since=token, restart="snapshot"))
    assert again.snapshot and again.size == 31
    with view.follow(restart="snapshot") as versions:  # a change that is larger than what the view keeps
        hotel.bookings.upsert([row(number) for number in range(100, 150)])
        after = next(versions)
        assert after.snapshot and after.size == 81
