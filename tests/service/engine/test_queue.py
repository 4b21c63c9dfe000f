"""The order in which the writer takes what waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.engine.queued import Job, Queue, Stop, Waiting
from service.engine.state import Receipt
from service.errors import Problem
from service.wire.batch import Batch
from tests.service.running import HeldWriter, batch, of_ops, rows_of, running
from tests.waiting import until


@pytest.fixture(autouse=True)
def nothing_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long a batch takes has no effect, unless a test says so."""
    monkeypatch.setattr("service.engine.writer._LONG", 3600.0)
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 3600.0)


def single(id_: int) -> Batch:
    return of_ops("a", ("upsert", id_))


def fails() -> None:
    raise OSError("broken")


def test_a_batch_waits_for_one_job_at_most(tmp_path: Path) -> None:
    """Views that are registered at the same moment are jobs: a change does not wait for all of them."""
    engine = running(tmp_path, {})
    order: list[str] = []
    held = HeldWriter(engine)

    def batch_behind(name: str, id_: int) -> None:
        engine.submit(single(id_), lambda answer: order.append(name))

    def first() -> None:
        order.append("first job")
        batch_behind("during the first job", 3)

    jobs = [engine._writer.call(work) for work in (first, partial(order.append, "second job"), partial(order.append, "third job"))]
    batch_behind("behind the jobs", 1)
    batch_behind("with it in a group", 2)
    held.release()
    for job in jobs:
        job.result(60)
    assert order == ["behind the jobs", "with it in a group", "first job", "during the first job", "second job", "third job"]
    engine.close()


def test_jobs_have_their_turns_among_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that never end do not keep a job waiting: it comes after the next group. Nor does a job overtake a batch before it."""
    monkeypatch.setattr("service.engine.writer._GROUP_BATCHES", 2)
    engine = running(tmp_path, {})
    order: list[str | int] = []
    held = HeldWriter(engine)
    for id_ in range(3):
        engine.submit(single(id_), lambda answer, id_=id_: order.append(id_))  # type: ignore[misc]
    job = engine._writer.call(partial(order.append, "job"))
    for id_ in range(3, 8):
        engine.submit(single(id_), lambda answer, id_=id_: order.append(id_))  # type: ignore[misc]
    held.release()
    job.result(60)
    engine.close()
    assert order == [0, 1, 2, 3, "job", 4, 5, 6, 7]


def test_a_group_ends_when_it_has_taken_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: everybody waited for half a second behind four batches that were expected to take 12 ms, as a box tree had just gone live. The
    others keep their places, and so does the job behind them; single changes are one run, however long it takes."""
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 1e-9)
    engine = running(tmp_path, {})
    order: list[str | int] = []

    def put(id_: int, changes: int) -> None:
        engine.submit(of_ops("a", *(("upsert", id_ + n) for n in range(changes))), lambda answer: order.append(id_))

    for changes, expected in ((2, [0, "first", 10, 20, "second", 30]), (1, [0, 10, 20, 30, "first", "second"])):
        order.clear()
        held = HeldWriter(engine)
        engine._writer._each = 0.0  # they are expected to take no time
        put(0, changes)
        first = engine._writer.call(partial(order.append, "first"))
        for id_ in (10, 20):
            put(id_, changes)
        second = engine._writer.call(partial(order.append, "second"))
        put(30, changes)
        held.release()
        assert (first.result(60), second.result(60)) == (None, None)
        until(lambda: len(order) == 6)
        assert order == expected
    until(lambda: engine._writer.waiting == engine._writer._waiting_bytes == 0)
    engine.close()


@pytest.mark.parametrize("ends_group", [True, False])
def test_a_group_ends_when_a_build_waits(tmp_path: Path, ends_group: bool) -> None:
    """One that waited for the next group had four more batches to follow."""
    engine = running(tmp_path, {})
    order: list[str | int] = []
    held = HeldWriter(engine)
    for id_ in (0, 10, 20):
        engine.submit(of_ops("a", ("upsert", id_), ("upsert", id_ + 1)), lambda answer, id_=id_: order.append(id_))  # type: ignore[misc]
    apply = engine._state.apply

    def ask_meanwhile(*given: Any) -> Any:
        if engine._state.newest == 0:
            engine._writer.call(partial(order.append, "at rest"), urgent=True)
            if ends_group:
                engine._writer.call(partial(order.append, "urgent"), ends_group=True)
        return apply(*given)

    engine._state.apply = ask_meanwhile  # type: ignore[method-assign]
    held.release()
    until(lambda: len(order) == 4 + ends_group)
    assert order == ([0, "at rest", "urgent", 10, 20] if ends_group else [0, 10, 20, "at rest"])
    engine.close()


def test_small_batches_overtake_larger_ones_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: with 16 connections, a single change waited for 0.14 s behind batches over a box tree. Between two groups of small ones, a
    larger one is processed. Those of a source keep their order: otherwise the larger one would be taken for a duplicate."""
    monkeypatch.setattr("service.engine.writer._LONG", 1e-12)
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 0.0)
    engine = running(tmp_path, {})
    engine._writer._each = 1.0
    order: list[str | int] = []
    apply = engine._state.apply

    def put(id_: int, changes: int, **source: Any) -> None:
        def done(answer: Receipt | Problem) -> None:
            assert isinstance(answer, Receipt) and answer.applied == changes
            order.append(id_)

        engine.submit(of_ops("a", *(("upsert", id_ + n) for n in range(changes)), **source), done)

    def put_more(*given: Any) -> Any:
        if engine._state.newest < 3:
            put(1000 + engine._state.newest, 1)
        return apply(*given)

    engine._state.apply = put_more  # type: ignore[method-assign]
    held = HeldWriter(engine)
    put(0, 20)
    put(100, 20, source="s", epoch=1)
    job = engine._writer.call(partial(order.append, "job"))
    put(200, 1, source="s", epoch=2)
    put(300, 1, source="t", epoch=1)
    put(400, 1)
    held.release()
    job.result(60)
    until(lambda: len(order) == 8)
    assert order == [300, 400, 0, 1000, 1002, 100, 200, "job"]
    until(lambda: engine._writer.waiting == engine._writer._waiting_bytes == 0)
    engine.close()


@pytest.mark.parametrize("has_truncate", [False, True])
def test_small_batches_wait_for_a_group_or_an_urgent_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_truncate: bool) -> None:
    """Seen: a single change waited for 100 ms: for the rest of a group, for the last round of a build, and for the next group. A small
    truncate is not overtaken in this way."""
    engine = running(tmp_path, {})
    order: list[str | int] = []
    apply = engine._state.apply

    def put(id_: int, changes: int, op: str = "upsert") -> None:
        ops = ((op, id_ + n) for n in range(changes))
        engine.submit(of_ops("a", *ops), lambda answer: order.append(id_))

    def urgent() -> None:
        order.append("urgent")
        put(400, 20)
        put(500, 1)

    def ask_meanwhile(*given: Any) -> Any:
        if engine._state.newest == 0:
            put(100, 20)
            put(200, 1)
            if has_truncate:
                put(250, 1, "truncate")
            put(300, 1)
            engine._writer.call(urgent, ends_group=True)
        return apply(*given)

    engine._state.apply = ask_meanwhile  # type: ignore[method-assign]
    held = HeldWriter(engine)
    put(0, 20)
    held.release()
    until(lambda: len(order) == 7 + has_truncate)
    assert order == ([0, 200, "urgent", 100, 250, 300, 400, 500] if has_truncate else [0, 200, 300, "urgent", 500, 100, 400])
    until(lambda: engine._writer.waiting == engine._writer._waiting_bytes == 0)
    engine.close()


def waiting(changes: int, source: str | None = None, op: str = "upsert", emptied: bool = False) -> Waiting:
    sent = of_ops("a", *((op, id_) for id_ in range(changes)), source=source, emptied=[None] if emptied else [])
    return Waiting(sent, lambda answer: None, 0)


def taken(queue: Queue) -> list[Waiting | Stop]:
    """The batches that are left."""
    return list(iter(lambda: queue.batch(0.0), None))  # type: ignore[arg-type]


def test_what_may_overtake_what() -> None:
    large, of_s, small, job = waiting(20), waiting(20, "s"), [waiting(1) for _ in range(4)], Job(fails, Future())
    behind, truncate, prepared, last = waiting(1, "s"), waiting(1, op="truncate"), waiting(17, emptied=True), waiting(1)
    queue = Queue()
    items = [large, small[0], of_s, job, small[1], behind, truncate, small[2], small[3], prepared, last]
    for item in items:
        queue.put(item)
    assert queue.quick_waits and queue.batch(0.0) is large
    assert queue.quick(3, large) == [small[0], small[1], small[2]] and queue.quick_waits
    queue.quick_waits = False
    queue.put_back([small[1], small[2]])  # there was no time for them
    assert queue.quick_waits
    assert [queue.batch(0.0) for _ in range(3)] == [small[1], small[2], large]
    assert queue.quick(3, large) == [], "it has its turn"
    assert queue.job() is None
    assert queue.quick(3) == [small[3]]
    assert queue.quick(3) == [] and queue.quick_waits, "one is behind a larger one of its source"
    assert taken(queue) == [of_s, behind, truncate, prepared, last] and queue.job() is job
    assert queue.quick(3) == [] and not queue.quick_waits
    queue.put(small[0])
    assert queue.quick(3, prepared) == [] and queue.quick_waits, "its structures would be outdated"
    assert taken(queue) == [small[0]]
    for item in (large, small[0], behind, truncate, small[1]):
        queue.put(item)
    assert queue.quick(3, keeps_small=True) == [small[0], behind] and queue.quick_waits, "a small one is not passed"
    assert queue.quick(3, keeps_small=True) == [] and taken(queue) == [large, truncate, small[1]]


@pytest.mark.parametrize("is_put_back", [True, False])
def test_what_a_group_leaves_is_refused_like_all_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_put_back: bool) -> None:
    """Whether it has put them back already or not."""
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 0.0)
    engine = running(tmp_path, {})
    writer, apply = engine._writer, engine._state.apply
    answers: list[Receipt | Problem] = []

    def answered(answer: Receipt | Problem) -> None:
        answers.append(answer)
        if is_put_back:
            writer.refuse_waiting()

    def refuse_meanwhile(*given: Any) -> Any:
        if not is_put_back:
            writer.refuse_waiting()
        return apply(*given)

    engine._state.apply = refuse_meanwhile  # type: ignore[method-assign]
    held = HeldWriter(engine)
    for id_, done in ((0, answered), (10, answers.append), (20, answers.append)):
        engine.submit(of_ops("a", ("upsert", id_), ("upsert", id_ + 1)), done)
    held.release()
    until(lambda: len(answers) == 3 and writer._unfinished == 0)
    assert sorted(type(answer).__name__ for answer in answers) == ["Problem", "Problem", "Receipt"]
    assert writer.waiting == writer._waiting_bytes == 0 and engine.rows_of("a") == 2
    engine.close()


def test_the_end_waits_for_all_jobs(tmp_path: Path) -> None:
    engine = running(tmp_path, {})
    done: list[int] = []
    held = HeldWriter(engine)
    for number in range(3):
        engine._writer.call(partial(done.append, number))
    engine.submit(single(1), lambda answer: None)
    ending = threading.Thread(target=engine._writer.stop)
    ending.start()
    until(lambda: engine._writer._ended)
    held.release()
    ending.join(60)
    assert not ending.is_alive()
    assert done == [0, 1, 2] and engine.rows_of("a") == 1
    engine.close()


def test_a_failure_reaches_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was to write fails, while another one and a batch have been taken from the queue already."""
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 0.0)
    engine = running(tmp_path, {})
    answers: list[Receipt | Problem] = []
    held = HeldWriter(engine)
    first, second = (engine._writer.call(work) for work in (fails, fails))
    engine.submit(single(1), answers.append)
    engine.submit(batch(("upsert", "a", rows_of(0, 100))), answers.append)
    held.go.set()
    engine._writer._thread.join(60)
    assert isinstance(first.exception(60), Problem) and isinstance(second.exception(60), Problem)
    assert [type(answer) for answer in answers] == [Receipt, Problem]
    assert engine.close() is False
