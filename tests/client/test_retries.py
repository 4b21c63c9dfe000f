"""What is repeated, when, and what never is."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import islice

import orjson
import pytest

import livejoin
from livejoin.problems import Problem, Unreachable, problem_from, problem_of_answer
from livejoin.retries import pause_after, pauses
from tests.client.hotel import Hotel, pairs, restarted, row
from tests.server_process import ServerProcess
from tests.service.scripted import Answer, problem, scripted

RECEIPT = Answer(orjson.dumps({"version": 7, "applied": 1, "ignored": 0, "skipped_count": 0, "skipped": [], "duplicate": False}))
COUNT = Answer(b'{"version":7,"count":3}')
BROKEN = Answer(b"", whole=False)


def refused(kind: str, status: int, retry_after: float | None) -> Problem:
    return problem_from({"type": f"/problems/{kind}" if kind else ""}, "", status, retry_after)


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (Unreachable("", "", sent=True), True, False),
        (Unreachable("", "", sent=False), True, True),
        (refused("too-busy", 429, 1), True, True),
        (refused("too-busy", 429, None), False, False),  # too many readings
        (refused("recovering", 503, 1), True, False),  # a service that ends may still apply what waits
        (refused("disk-full", 503, 10), True, False),
        (refused("view-failed", 503, None), False, False),
        (refused("", 503, 1), True, False),  # a proxy's: the service may have acted
        (refused("", 502, None), True, False),
        (refused("", 429, None), True, False),
        (refused("internal", 500, None), False, False),
        (refused("bad-rows", 422, None), False, False),
        (livejoin.NotLivejoin("u"), False, False),
    ],
)
def test_the_rule(error: livejoin.LivejoinError, read: bool, write: bool) -> None:
    assert (pause_after(error, 0.1, True, True) is not None) is read
    assert (pause_after(error, 0.1, False, True) is not None) is write


def test_pauses_grow_and_retry_after_is_obeyed() -> None:
    found = list(islice(pauses(), 12))
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, *[5.0] * 6]
    assert all(bound / 2 <= pause <= bound for pause, bound in zip(found, bounds, strict=True)) and len(set(found)) == 12
    assert 7 <= (pause_after(refused("too-busy", 429, 7), 0.1, True, True) or 0) <= 7.7
    assert pause_after(refused("too-busy", 429, 0.01), 0.1, True, True) == 0.1
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    assert 90 < (problem_of_answer(503, "", b"", date, "").retry_after or 0) <= 100
    assert problem_of_answer(503, "", b"", "soon", "").retry_after == 1


def test_reads_are_repeated() -> None:
    answers = [BROKEN, problem("recovering", 503, "0.01"), Answer(b"<html>", 502), problem("too-busy", 429, "0"), COUNT]
    with scripted(COUNT, *answers) as (url, asked), livejoin.connect(url) as lj:
        assert lj.view("v").count() == 3  # the service is there
        assert lj.view("v").count() == 3
    assert len(asked) == 1 + len(answers)


def test_batches_with_source_and_epoch_are_repeated_as_they_were() -> None:
    with scripted(COUNT, BROKEN, problem("too-busy", 429, "0"), RECEIPT) as (url, asked), livejoin.connect(url) as lj:
        lj.view("v").count()
        with lj.batch("pms", 3) as batch:
            batch.upsert("r", [{"id": 1}])
    assert batch.receipt is not None and batch.receipt.version == 7
    assert len(asked) == 4 and len({(one.method, one.path, tuple(one.params.items()), one.body) for one in asked[1:]}) == 1
    assert asked[1].params == {"source": "pms", "epoch": "3", "on_error": "reject"}


@pytest.mark.parametrize("answer", [BROKEN, Answer(b"", 503, (("Retry-After", "0"),)), Answer(b"", 502), problem("internal", 500)])
def test_other_posts_are_never_repeated(answer: Answer) -> None:
    with scripted(COUNT, answer, RECEIPT) as (url, asked), livejoin.connect(url) as lj:
        lj.view("v").count()
        with pytest.raises(livejoin.LivejoinError):
            lj.relation("r").upsert([{"id": 1}])
        assert len(asked) == 2
    with scripted(COUNT, answer, RECEIPT) as (url, asked), livejoin.connect(url) as lj:
        lj.view("v").count()
        with pytest.raises(livejoin.LivejoinError), lj.batch() as batch:
            batch.upsert("r", [{"id": 1}])
        assert len(asked) == 2 and batch.receipt is None


def test_what_the_service_did_not_do_is_repeated() -> None:
    with scripted(problem("too-busy", 429, "0"), problem("no-room", 503, "0"), RECEIPT) as (url, asked), livejoin.connect(url) as lj:
        assert lj.relation("r").upsert([{"id": 1}]).applied == 1
    assert len(asked) == 3


def test_retry_after_is_waited_for() -> None:
    with scripted(problem("too-busy", 429, "0.3"), COUNT) as (url, _), livejoin.connect(url) as lj:
        began = time.monotonic()
        lj.view("v").count()
        assert time.monotonic() - began >= 0.3
    with scripted(problem("too-busy", 429, "30"), COUNT) as (url, asked), livejoin.connect(url, patience=5) as lj:
        with pytest.raises(livejoin.TooBusy):  # at once: it would take longer than the patience
            lj.view("v").count()
        assert len(asked) == 1


def test_patience_ends() -> None:
    busy = [problem("too-busy", 429, "0")] * 50
    with scripted(*busy) as (url, asked), livejoin.connect(url, patience=0.5) as lj:
        with pytest.raises(livejoin.TooBusy):
            lj.view("v").count()
        assert 2 < len(asked) < 10
    with scripted(*busy) as (url, asked), livejoin.connect(url, patience=0) as lj, pytest.raises(livejoin.TooBusy):
        lj.view("v").count()
    assert len(asked) == 1


def test_rows_that_break_off_are_no_whole_answer() -> None:
    part = Answer(b'{"id":1}\n', whole=False)
    with scripted(part) as (url, asked), livejoin.connect(url) as lj:
        rows = iter(lj.view("v").rows())
        assert next(rows) == {"id": 1}
        with pytest.raises(livejoin.Unreachable, match="not complete"):
            next(rows)
        assert len(asked) == 1


def test_another_server() -> None:
    html = Answer(b"<html>", 200, (("Content-Type", "text/html"),))
    with scripted(html, html, Answer(b"{}")) as (url, _), livejoin.connect(url) as lj:
        with pytest.raises(livejoin.NotLivejoin, match="check the address"):
            lj.view("v").count()
        with pytest.raises(livejoin.NotLivejoin):
            list(lj.view("v").rows())
        with pytest.raises(livejoin.NotLivejoin):
            lj.relations()


def test_no_service_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("LIVEJOIN_URL", url)
        with livejoin.connect() as lj:
            for ask in (lj.view("v").count, lambda: next(lj.view("v").follow()), lambda: next(lj.view("v").follow(snapshot=True))):
                with pytest.raises(livejoin.Unreachable, match="livejoin serve"):
                    ask()
    for address in ("nowhere", "ftp://h", "http://", "127.0.0.1:8080"):
        with pytest.raises(livejoin.BadAddress, match="http://127.0.0.1:8080"):
            livejoin.connect(address)


def test_a_service_that_is_killed_and_restarted(server: ServerProcess) -> None:
    with livejoin.connect(server.url, patience=300) as lj:
        hotel = Hotel(lj)
        hotel.jobs.upsert([row(1)])
        with restarted(server):
            with lj.batch("pms", 1) as batch:
                batch.upsert("bookings", [row(1)])
            assert batch.receipt is not None and not batch.receipt.duplicate
        with restarted(server):
            assert pairs(hotel.clashes.rows()) == {(1, 1)}
            with lj.batch("pms", 1) as batch:
                batch.upsert("bookings", [row(2)])
            assert batch.receipt is not None and batch.receipt.duplicate and hotel.bookings.get()["rows"] == 1


def test_a_token_is_never_quoted() -> None:
    with scripted(COUNT) as (url, _), livejoin.connect(url, token="secret\n") as lj:
        assert lj.view("v").count() == 3
    for bad in ("sec ret", "sec\x00ret", "geheimnis\u00e4"):
        with pytest.raises(ValueError) as caught:
            livejoin.connect("http://127.0.0.1:9", token=bad)
        assert bad not in str(caught.value)
    with pytest.raises(livejoin.BadAddress) as refused:
        livejoin.connect("http://me:secret@127.0.0.1:9")
    assert "secret" not in str(refused.value)
