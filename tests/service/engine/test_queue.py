"""The order in which the writer takes what waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from livejoin.wire.batch import Batch
from service.engine.outcomes import Receipt
from service.engine.queued import Item, Job, Queue, QueuedBatch, is_small
from service.errors import Problem
from tests.service.running import HeldWriter, batch, of_ops, parts, rows_of, running
from tests.waiting import until


def single(id_: int) -> Batch:
    return of_ops("a", ("upsert", id_))


def fails() -> None:
    raise OSError("broken")


def waiting(changes: int, source: str | None = None, op: str = "upsert") -> QueuedBatch:
    return QueuedBatch(of_ops("a", *((op, id_) for id_ in range(changes)), source=source), lambda answer: None, 0)


KINDS: list[Callable[[], QueuedBatch]] = [
    *(partial(waiting, changes, source) for changes in (1, 2, 20) for source in (None, "s", "t")),
    partial(waiting, 1, op="truncate"),
]


class Queued(RuleBasedStateMachine):
    """What is taken, against the list of all that has been put."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.left: list[Item] = []  # in the order of their arrival
        self.group: list[QueuedBatch] = []  # taken last
        self.was_small = False

    @rule(kind=st.sampled_from(KINDS))
    def put(self, kind: Callable[[], QueuedBatch]) -> None:
        self.left.append(one := kind())
        self.queue.put(one)

    @rule()
    def put_job(self) -> None:
        self.left.append(job := Job(fails, Future()))
        self.queue.put(job)

    @rule(batches=st.integers(1, 4), changes=st.integers(1, 40), only_small=st.booleans())
    def take(self, batches: int, changes: int, only_small: bool) -> None:
        self.queue.release()
        self.group = self.queue.take(0.0, batches, changes, only_small)
        small = [is_small(one.batch) for one in self.group]
        there = [one for one in self.left if isinstance(one, QueuedBatch)]
        assert len(self.group) <= batches
        if not only_small:
            assert self.group or not there
        else:
            assert all(small)
        for one in self.group:
            source = one.batch.source
            before = self.left[: index_of(self.left, one)]
            assert source is None or not any(isinstance(other, QueuedBatch) and other.batch.source == source for other in before)
            del self.left[index_of(self.left, one)]
        self.was_small = bool(small) and all(small)

    @rule(done=st.integers(1, 4))
    def put_back(self, done: int) -> None:
        back, self.group = self.group[done:], self.group[:done]
        if back:
            self.queue.put_back(back)
            self.left[:0] = back
            self.group = []

    @rule()
    def jobs(self) -> None:
        for job in self.queue.jobs():
            del self.left[index_of(self.left, job)]

    @invariant()
    def nothing_is_lost(self) -> None:
        assert len(self.queue) == len(self.left)


def index_of(items: Any, item: Item) -> int:
    return next(number for number, one in enumerate(items) if one is item)


TestQueued = Queued.TestCase


def test_a_job_passes_no_batch_unless_it_is_urgent_or_large_ones_may_not_be_taken() -> None:
    large, small, job, urgent = waiting(20), waiting(1), Job(fails, Future()), Job(fails, Future())
    queue = Queue()
    for item in (large, small, job):
        queue.put(item)
    queue.put(urgent, urgent=True)
    assert queue.take(0.0, 9, 99, only_small=True) == [small] and queue.jobs() == [urgent, job]
    queue.put(job)
    assert queue.jobs() == [job] and queue.take(0.0, 9, 99) == [large]


def test_batches_of_a_source_keep_their_order_among_senders_of_the_same_rights() -> None:
    """A stranger's batch, which will be refused, does not hold up the owner's; nor does one that is done."""
    queue = Queue()
    large, small, other, strange = waiting(20, "s"), waiting(1, "s"), waiting(1, "s"), waiting(20, "s")
    strange.batch.writes = frozenset("b")
    queue.put(small)
    queue.put(strange)
    assert queue.take(0.0, 9, 99, only_small=True) == [small]
    queue.release()
    assert queue.has_of(strange.batch) and not queue.has_of(small.batch)
    queue.put(large)
    queue.put(other)
    assert queue.take(0.0, 9, 99, only_small=True) == []
    assert queue.take(0.0, 9, 99) == [strange, large, other]
    assert queue.has_of(other.batch), "it is being applied"
    queue.release()
    assert not queue.has_of(other.batch) and not queue.has_of(waiting(1).batch)
    queue.put(small)
    assert queue.take(0.0, 9, 99, only_small=True) == [small]


def test_jobs_have_their_turns_among_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that never end do not keep a job waiting. Nor does a job pass a batch before it, or a batch more than one job."""
    monkeypatch.setattr("service.engine.writer._GROUP_BATCHES", 2)
    engine = running(tmp_path, {})
    order: list[str | int] = []

    def put(id_: int) -> None:
        engine.submit(single(id_), lambda answer: order.append(id_))

    held = HeldWriter(engine)
    for id_ in range(3):
        put(id_)
    first, second = (parts(engine).writer.call(partial(order.append, name)) for name in ("first job", "second job"))
    for id_ in range(3, 8):
        put(id_)
    held.release()
    first.result(60)
    second.result(60)
    engine.close()
    assert order == [0, 1, 2, 3, "first job", 4, 5, "second job", 6, 7]


def test_a_group_ends_when_it_has_taken_long_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others keep their places, and so does the job behind them; single changes are one run, however long it takes."""
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 1e-9)
    engine = running(tmp_path, {})
    order: list[str | int] = []

    def put(id_: int, changes: int) -> None:
        engine.submit(of_ops("a", *(("upsert", id_ + n) for n in range(changes))), lambda answer: order.append(id_))

    for changes, expected in ((2, [0, 10, "first", 20, 30, "second"]), (1, [0, 10, 20, 30, "first", "second"])):
        order.clear()
        held = HeldWriter(engine)
        put(0, changes)
        put(10, changes)
        first = parts(engine).writer.call(partial(order.append, "first"))
        put(20, changes)
        put(30, changes)
        second = parts(engine).writer.call(partial(order.append, "second"))
        held.release()
        assert (first.result(60), second.result(60)) == (None, None)
        until(lambda: len(order) == 6)
        assert order == expected
    until(lambda: parts(engine).writer.waiting == parts(engine).writer._waiting_bytes == 0)
    engine.close()


def test_small_batches_wait_for_one_large_one(tmp_path: Path) -> None:
    """Which ends its group, if small ones arrive meanwhile; large ones have their turns among small ones that never end. Those of a source
    keep their order: otherwise the larger one would be taken for a duplicate. An urgent job comes after the group."""
    engine = running(tmp_path, {})
    order: list[str | int] = []
    apply = parts(engine).state.apply

    def put(id_: int, changes: int, **source: Any) -> None:
        def done(answer: Receipt | Problem) -> None:
            assert isinstance(answer, Receipt) and answer.applied == changes
            order.append(id_)

        engine.submit(of_ops("a", *(("upsert", id_ + n) for n in range(changes)), **source), done)

    def put_more(*given: Any) -> Any:
        if parts(engine).state.newest == 0:
            parts(engine).writer.call(partial(order.append, "urgent"), urgent=True)
        put(1000 + parts(engine).state.newest, 1)
        return apply(*given)

    held = HeldWriter(engine)
    put(0, 20)
    put(100, 20, source="s", epoch=1)
    put(200, 1, source="s", epoch=2)
    put(300, 1, source="t", epoch=1)
    parts(engine).state.apply = put_more  # type: ignore[method-assign]
    held.release()
    until(lambda: 200 in order)
    parts(engine).state.apply = apply  # type: ignore[method-assign]
    until(lambda: parts(engine).writer.waiting == parts(engine).writer._waiting_bytes == 0)
    large = [one for one in order if one in (0, 100, 200)]
    assert order[:2] == [300, "urgent"] and large == [0, 100, 200]
    between = [order.index(one) for one in large]
    assert between[1] > between[0] + 1, "small ones between two large ones"
    engine.close()


@pytest.mark.parametrize("is_put_back", [True, False])
def test_what_a_group_leaves_is_refused_like_all_that_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_put_back: bool) -> None:
    """Whether it has put them back already or not."""
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 0.0)
    engine = running(tmp_path, {})
    writer, apply = parts(engine).writer, parts(engine).state.apply
    answers: list[Receipt | Problem] = []

    def answered(answer: Receipt | Problem) -> None:
        answers.append(answer)
        if is_put_back:
            writer.refuse_waiting()

    def refuse_meanwhile(*given: Any) -> Any:
        if not is_put_back:
            writer.refuse_waiting()
        return apply(*given)

    parts(engine).state.apply = refuse_meanwhile  # type: ignore[method-assign]
    held = HeldWriter(engine)
    for id_, done in ((0, answered), (10, answers.append), (20, answers.append)):
        engine.submit(of_ops("a", ("upsert", id_), ("upsert", id_ + 1)), done)
    held.release()
    until(lambda: len(answers) == 3 and writer.waiting == writer._waiting_bytes == 0)
    assert sorted(type(answer).__name__ for answer in answers) == ["Problem", "Problem", "Receipt"]
    assert engine.rows_of("a") == 2
    engine.close()


def test_the_end_waits_for_all_jobs(tmp_path: Path) -> None:
    engine = running(tmp_path, {})
    done: list[int] = []
    held = HeldWriter(engine)
    for number in range(3):
        parts(engine).writer.call(partial(done.append, number))
    engine.submit(single(1), lambda answer: None)
    ending = threading.Thread(target=parts(engine).writer.stop)
    ending.start()
    until(lambda: parts(engine).writer._ended)
    held.release()
    ending.join(60)
    assert not ending.is_alive()
    assert done == [0, 1, 2] and engine.rows_of("a") == 1
    engine.close()


def test_a_failure_reaches_all_who_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was to write fails, while another one and a batch wait behind it."""
    monkeypatch.setattr("service.engine.writer._GROUP_SECONDS", 0.0)
    engine = running(tmp_path, {})
    answers: list[Receipt | Problem] = []
    held = HeldWriter(engine)
    engine.submit(single(1), answers.append)
    first, second = (parts(engine).writer.call(work) for work in (fails, fails))
    engine.submit(batch(("upsert", "a", rows_of(0, 100))), answers.append)
    held.go.set()
    parts(engine).writer._thread.join(60)
    assert isinstance(first.exception(60), Problem) and isinstance(second.exception(60), Problem)
    assert [type(answer) for answer in answers] == [Receipt, Problem]
    assert engine.close() is False
