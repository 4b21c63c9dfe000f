"""Single changes that the caller's thread applies itself: when it may, that order and durability are kept, and how it fails."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import service.engine.housekeeping
import service.engine.writer
from service.durability.log import Log
from service.engine.housekeeping import _WORTH_RECLAIMING, Housekeeping
from service.engine.state import Receipt
from service.engine.writer import _SHORT
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from service.wire.batch import Batch
from service.wire.json import decode_json
from tests.forked import finished
from tests.service.running import DEFINITION, PAIR, HeldWriter, batch, check, ids, keep_house, of_ops, opened, rows_of, running


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has much else to do changes nothing."""
    monkeypatch.setattr("service.engine.writer._SHORT", 1e9)
    monkeypatch.setattr("service.engine.writer._TICK", 1e6)
    monkeypatch.setattr("service.engine.housekeeping._RATE", 1e9)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, synchronous="normal")
    ready(engine)
    yield engine
    engine.close()


def ready(engine: Instance) -> None:
    """Let the thread finish all that is left to do."""
    keep_house(engine)
    while engine._writer._unfinished or engine._writer._untidy:
        time.sleep(0.001)
    with engine._writer._turn:  # it has given it back
        pass


def in_turn(engine: Instance, batch: Batch) -> Receipt:
    """Have the thread apply it, and wait until it rests."""
    receipt = engine.apply(batch)
    ready(engine)
    return receipt


def single(id_: int, start: int = 0, tag: str | None = None, **fields: Any) -> Batch:
    return batch(("upsert", "a", rows_of(id_, 1, start, tag=tag)), **fields)


def starts(engine: Instance) -> dict[int, int]:
    return {row[0]: row[1] for row in ids(open_relation_rows(engine.readers, "a"))}


def test_it_is_on_disk_and_published_when_the_call_returns(engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []
    commit = Log.commit

    def noted(log: Log) -> None:
        threads.append(threading.current_thread())
        commit(log)

    monkeypatch.setattr(Log, "commit", noted)
    in_turn(engine, batch(("upsert", "b", rows_of(7, 1))))
    assert engine.apply_at_once(single(1, source="s", epoch=1)) == Receipt(2, 1, 0, 0, [], False)
    assert [thread.name for thread in threads] == ["writer", threading.current_thread().name]
    assert engine.published.number == 2 and engine._log._committed.reach.version == 2
    assert ids(open_rows(engine.readers, "v")) == [(1, 7)]
    again = engine.apply_at_once(single(1, 5, source="s", epoch=1))
    assert again is not None and again.duplicate and again.version == 2
    assert engine.apply_at_once(of_ops("a", ("delete", 1))) == Receipt(3, 1, 0, 0, [], False)
    with pytest.raises(Problem) as caught:
        engine.apply_at_once(of_ops("b", ("insert", 7)))
    assert caught.value.type == "bad-rows" and engine.state == "ready"
    assert engine._writer.batches == 3 and engine._writer.changes == 3


def test_what_may_take_long_is_left_to_the_thread(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine.apply_at_once(batch(("upsert", "a", rows_of(0, 2)))) is None
    assert engine.apply_at_once(of_ops("a", ("truncate", 0))) is None
    for name, target in (("checkpoint_due", Log), ("under_way", type(engine._snapshots)), ("is_due", Housekeeping)):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, True)
            assert engine.apply_at_once(single(1)) is None, name
    view = engine.view("v")
    assert view.feed is not None
    monkeypatch.setattr(view.feed, "_pending_rows", 100_000)
    assert engine.apply_at_once(single(1)) is None
    monkeypatch.undo()
    assert engine.put_view("w", {**PAIR, "algorithm": "nested-loop"}, wait=60)[1] == "created"
    assert engine.apply_at_once(single(1)) is None, "a plan without a promise"
    engine.drop_view("w")
    assert engine.published.number == 0
    ready(engine)
    assert engine.apply_at_once(single(1)) is not None


def test_nothing_with_an_fsync_is_done_at_once(tmp_path: Path) -> None:
    engine = running(tmp_path)
    assert engine.apply_at_once(single(1)) is None
    engine.close()


def test_slow_changes_move_those_after_them_to_the_thread(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("service.engine.writer._SHORT", _SHORT)
    monkeypatch.setattr("service.engine.writer.time.perf_counter", lambda: clock[0])
    view = engine.view("v")
    apply = view.apply

    def slow(*arguments: Any) -> Any:
        clock[0] += 3 * _SHORT
        return apply(*arguments)

    for changing in (slow, apply, slow, slow):  # one alone is forgiven
        monkeypatch.setattr(view, "apply", changing)
        assert engine.apply_at_once(single(1, clock[0] != 0)) is not None
    monkeypatch.setattr(view, "apply", apply)
    queued = 0
    while engine.apply_at_once(single(2)) is None:
        in_turn(engine, single(2))
        queued += 1
    assert queued == 11, "3 ms fade by a tenth a change"


def test_housekeeping_is_the_threads(engine: Instance) -> None:
    done = 0
    while engine.apply_at_once(single(done % 10, done)) is not None:
        done += 1
        assert done <= _WORTH_RECLAIMING
    in_turn(engine, single(0, done))
    assert not engine._housekeeping.is_due and engine.apply_at_once(single(0)) is not None


def test_it_does_not_overtake_what_waits(engine: Instance) -> None:
    held = HeldWriter(engine)
    held.submit(single(1, 10))
    assert engine.apply_at_once(single(1, 20)) is None
    held.submit(single(1, 30))
    held.release()
    ready(engine)
    assert [answer.version for answer in held.answers if isinstance(answer, Receipt)] == [1, 2]
    assert starts(engine) == {1: 30} and engine.apply_at_once(single(1, 40)) is not None
    assert starts(engine) == {1: 40}


def test_many_threads_at_once_and_queued(engine: Instance, tmp_path: Path) -> None:
    rounds, threads, at_once = 150, 4, []
    versions: list[int] = []
    wrong: list[BaseException] = []

    def post(number: int) -> None:
        """Each thread has a row and a source of its own, and counts up."""
        try:
            for epoch in range(rounds):
                sent = single(number, epoch, source=f"s{number}", epoch=epoch)
                receipt = engine.apply_at_once(sent) if (epoch + number) % 3 else None
                at_once.append(receipt is not None)
                receipt = receipt or engine.apply(sent)
                assert not receipt.duplicate
                versions.append(receipt.version)
                assert engine.published.number >= receipt.version and starts(engine)[number] == epoch
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=post, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for view in ("w", "x"):
        engine.put_view(view, PAIR, wait=60)
    for worker in workers:
        worker.join()
    assert not wrong and any(at_once) and not all(at_once)
    assert sorted(versions) == list(range(1, rounds * threads + 1))
    engine.apply(batch(("upsert", "b", rows_of(7, 1, rounds))))
    expected = dict.fromkeys(range(threads), rounds - 1)
    for _ in range(2):
        assert starts(engine) == expected
        for name in ("v", "w", "x"):
            assert ids(open_rows(engine.readers, name)) == [(number, 7) for number in range(threads)]
        check(engine)
        assert engine._state.sources == {f"s{number}": (None, rounds - 1) for number in range(threads)}
        engine.close()
        engine = opened(tmp_path)
    engine.close()


@pytest.mark.parametrize("step", ["append", "commit"])
def test_a_failure_ends_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    engine = running(tmp_path, synchronous="normal")
    in_turn(engine, single(1))
    told: list[BaseException] = []
    waiting: list[Receipt | Problem] = []
    engine.on_failure = told.append

    def fail(*_: Any) -> None:
        engine.submit(single(3), waiting.append)  # comes while this one is under way
        raise OSError("the disk is gone")

    monkeypatch.setattr(engine._log, step, fail)
    with pytest.raises(Problem) as caught:
        engine.apply_at_once(single(2))
    assert caught.value.type == "internal"
    engine._writer._thread.join(60)
    assert not engine._writer._thread.is_alive()
    assert [problem.type for problem in waiting if isinstance(problem, Problem)] == ["internal"]
    assert engine.state == "failed" and [str(error) for error in told] == ["the disk is gone"]
    assert engine.published.number == 1 and starts(engine).keys() == {1}, "nobody sees what is not on disk"
    with pytest.raises(Problem):
        engine.apply(single(2))
    assert engine.apply_at_once(single(2)) is None
    engine.close()
    engine = opened(tmp_path)
    assert starts(engine).keys() == {1}
    engine.close()


def test_none_is_applied_once_those_that_wait_were_refused(engine: Instance) -> None:
    engine.refuse_waiting()
    assert engine.apply_at_once(single(1)) is None and engine.published.number == 0
    with pytest.raises(Problem) as caught:
        engine.submit(single(1), lambda answer: None)
    assert caught.value.type == "recovering"


def test_a_failure_of_the_thread_ends_it_for_callers(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(engine._log, "commit", fail)
    with pytest.raises(Problem):
        engine.apply(single(1))
    assert engine.apply_at_once(single(2)) is None and engine.published.number == 0


def test_a_shutdown_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path, synchronous="normal")
    ready(engine)
    commit, reached, go = engine._log.commit, threading.Event(), threading.Event()

    def held() -> None:
        reached.set()
        assert go.wait(60)
        commit()

    monkeypatch.setattr(engine._log, "commit", held)
    receipts: list[Receipt | None] = []
    caller = threading.Thread(target=lambda: receipts.append(engine.apply_at_once(single(1))))
    caller.start()
    assert reached.wait(60)
    assert engine.apply_at_once(single(2)) is None, "there is one writer"
    closing = threading.Thread(target=engine.close)
    closing.start()
    closing.join(0.05)
    assert closing.is_alive()
    go.set()
    closing.join(60)
    caller.join(60)
    assert receipts == [Receipt(1, 1, 0, 0, [], False)] and engine.state == "closed"
    assert engine.apply_at_once(single(2)) is None
    engine = opened(tmp_path)
    assert starts(engine).keys() == {1}
    engine.close()


def test_published_later(engine: Instance) -> None:
    """The answer comes first; nobody else writes until it is published, and an end publishes what was left."""
    left: list[Callable[[], None]] = []
    receipt = engine.apply_at_once(single(1), left.append)
    assert receipt == Receipt(1, 1, 0, 0, [], False) and engine.published.number == 0 and len(left) == 1
    assert engine.apply_at_once(single(2), left.append) is None
    following = threading.Thread(target=lambda: engine.apply(single(2)))
    following.start()
    following.join(0.05)
    assert following.is_alive() and engine.published.number == 0
    left[0]()
    following.join(60)
    assert engine.published.number == 2 and starts(engine).keys() == {1, 2}
    left[0]()
    ready(engine)
    assert engine.apply_at_once(single(3), left.append) is not None and engine.published.number == 2
    engine.close()
    assert engine.published.number == 3
    left[-1]()


def test_publishing_fails_later(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Callable[[], None]] = []
    assert engine.apply_at_once(single(1), left.append) is not None

    def fails(version: object) -> None:
        raise MemoryError("no")

    monkeypatch.setattr(engine.versions, "publish", fails)
    left[0]()
    assert engine.state == "failed" and engine.apply_at_once(single(2)) is None


def work(folder: Path) -> None:
    """The child: applies change after change at once, and says so."""
    service.engine.writer._SHORT = service.engine.writer._TICK = service.engine.housekeeping._RATE = 1e6
    engine = running(folder, {}, synchronous="normal")
    ready(engine)
    for epoch in range(1, 20):
        receipt = engine.apply_at_once(single(epoch % 5, epoch, source="s", epoch=epoch))
        assert receipt is not None and receipt.version == epoch
        print(epoch, flush=True)


@pytest.mark.parametrize("step", ["before-append", "after-append", "after-commit", "before-publish"])
def test_killed_at(step: str, tmp_path: Path) -> None:
    status, told = finished(partial(work, tmp_path), {"LIVEJOIN_FAILPOINT": f"{step}:9"})
    assert status == -signal.SIGKILL, told
    assert told.split()[-1] == "8"
    engine = opened(tmp_path, synchronous="normal")
    version = 8 if step in ("before-append", "after-append") else 9
    assert engine.published.number == version
    assert starts(engine) == {epoch % 5: epoch for epoch in range(version - 4, version + 1)}
    for epoch in range(1, 11):  # a client that repeats everything
        assert engine.apply(single(epoch % 5, epoch, source="s", epoch=epoch)).duplicate == (epoch <= version)
    engine.close()


def test_rows_of_json_come_back_from_the_log(engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[Callable[[int], str]] = [
        lambda i: f'{{"relation":"a","op":"upsert","row":{{"id":{i},"s":-5,"e":{i},"tag":"größer {i}"}}}}',
        lambda i: f'{{"relation":"a","op":"upsert","row":{{"id":{i},"s":{-(2**62)},"e":{2**62 - 1}}}}}',
        lambda i: f'{{"relation":"a","op":"delete","key":{{"id":{i - 2}}}}}',
    ]
    for number in range(30):
        sent = decode_json(f'{{"changes":[{bodies[number % 3](number)}]}}'.encode(), lambda name: DEFINITION)
        assert engine.apply_at_once(sent) is not None
    rows = ids(open_relation_rows(engine.readers, "a"))
    assert len(rows) == 10 and rows[0] == (1, -(2**62), 2**62 - 1, None)
    monkeypatch.setattr(engine._snapshots, "finish", lambda: None)  # no snapshot: all is in the log
    engine.close()
    again = opened(tmp_path)
    assert ids(open_relation_rows(again.readers, "a")) == rows and again.published.number == 30
    again.close()


def test_a_checkpoint_is_the_threads(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.durability.log._WAL_BYTES", 10_000)
    ran = []
    checkpoint = Log.checkpoint_if_due

    def noted(log: Log) -> None:
        if log.checkpoint_due:
            ran.append(threading.current_thread().name)
        checkpoint(log)

    monkeypatch.setattr(Log, "checkpoint_if_due", noted)
    queued = 0
    for number in range(40):
        if engine.apply_at_once(single(number)) is None:
            in_turn(engine, single(number))
            queued += 1
    assert set(ran) == {"writer"} and len(ran) == queued > 1
    assert engine.metrics()["checkpoint_seconds"].count == queued
    assert np.array_equal(sorted(starts(engine)), np.arange(40))
