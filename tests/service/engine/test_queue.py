"""The order in which the writer takes what waits for it."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest

from service.engine.state import Receipt
from service.errors import Problem
from service.wire.batch import Batch
from tests.service.engine.test_kernels import until
from tests.service.running import HeldWriter, batch, of_ops, rows_of, running


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


def test_batches_that_take_long_do_not_share_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a build waited half a second for its turn, behind a group of four batches over a box tree. Small batches share one whatever the
    last change took."""
    monkeypatch.setattr("service.engine.writer._FEW_CHANGES", 1)
    engine = running(tmp_path, {})
    order: list[str | int] = []

    def put(id_: int, changes: int) -> None:
        engine.submit(of_ops("a", *(("upsert", id_ + n) for n in range(changes))), lambda answer: order.append(id_))

    for changes, expected in ((2, [0, "job", 10, 20]), (1, [0, 10, 20, "job"])):
        order.clear()
        held = HeldWriter(engine)
        engine._writer._each = 3600.0  # measured again by the first of the large batches
        put(0, changes)
        job = engine._writer.call(partial(order.append, "job"))
        for id_ in (10, 20):
            put(id_, changes)
        held.release()
        job.result(60)
        until(lambda: len(order) == 4)
        assert order == expected
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
    assert done == [0, 1, 2] and engine.published.counts["a"] == 1
    engine.close()


def test_a_failure_reaches_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was to write fails, while another one and a long batch have been taken from the queue already."""
    monkeypatch.setattr("service.engine.writer._LONG", 0.0)
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
