"""The writer keeps house in pieces, and looks at its queue between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from service.engine.housekeeping import Owed
from service.engine.queued import Stop
from service.instance import Instance
from service.reading.cursors import open_rows
from service.tables.store import Table
from service.views.live_view import LiveView
from tests.service.running import HeldWriter, batch, check, counted, keep_house, look, of_ops, rows_of, running

_ALL = float("inf")  # seconds


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, synchronous="normal")
    yield engine
    engine.close()


def test_what_comes_is_not_behind_all_pieces(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.housekeeping._PIECE", 0.0)
    monkeypatch.setattr("service.engine.housekeeping._SHARE", 0.0)
    happened: list[str] = []
    ended = threading.Event()

    def piece() -> bool:
        happened.append("piece")
        if len(happened) == 3:
            engine.submit(of_ops("a", ("upsert", 2)), lambda answer: happened.append("change"))
        if len(happened) == 10:
            ended.set()
        return not ended.is_set()

    engine.at_rest(lambda: engine._housekeeping._tasks.appendleft(piece))
    engine.apply(of_ops("a", ("upsert", 1)))
    assert ended.wait(60), "pieces are done while nothing waits"
    assert happened == ["piece"] * 3 + ["change"] + ["piece"] * 6


@pytest.mark.parametrize(("most", "is_taken", "before"), [(_ALL, False, 1), (_ALL, True, 0), (0.0, False, 5), (0.0, True, 5)])
def test_what_a_group_owes_is_put_off_while_somebody_waits(
    engine: Instance, monkeypatch: pytest.MonkeyPatch, most: float, is_taken: bool, before: int
) -> None:
    """Not more than so many seconds of it: under changes that never pause it is done in between all the same. `is_taken`: who waits
    was taken from the queue and put back, and waits for no piece at all."""
    monkeypatch.setattr("service.engine.housekeeping._PIECE", 0.0)
    monkeypatch.setattr("service.engine.housekeeping._SHARE", 1e9)
    monkeypatch.setattr("service.engine.housekeeping._MOST_OWED", most)
    monkeypatch.setattr("service.engine.queued._FEW_CHANGES", 1)
    monkeypatch.setattr("service.engine.writer._LONG", 0.0)
    happened: list[str] = []
    ended = threading.Event()

    def submit() -> None:
        engine.submit(of_ops("a", ("upsert", 2), ("upsert", 3)), lambda answer: happened.append("change"))

    def piece() -> bool:
        if not held.answers:  # the job that holds the writer owes, too
            return False
        happened.append("piece")
        if len(happened) == 1 and not is_taken:
            submit()
        if happened.count("piece") == 5:
            ended.set()
        return not ended.is_set()

    held = HeldWriter(engine)
    monkeypatch.setattr(engine._writer, "_housekeep", piece)
    held.submit(of_ops("a", ("upsert", 1)))
    if is_taken:
        submit()
    held.release()
    assert ended.wait(60)
    engine._writer.call(lambda: None).result()  # behind the change
    assert happened.index("change") == before


@pytest.mark.parametrize(("owed", "pieces"), [(0.02, 1), (0.03, 3), (0.04, 3), (0.0905, 13)])
def test_what_cannot_be_put_off_is_spread_over_turns(engine: Instance, monkeypatch: pytest.MonkeyPatch, owed: float, pieces: int) -> None:
    """A change that waits behind a batch does not also wait for as much housekeeping as the batch has taken."""
    now, done, writer = [0.0], list[float](), engine._writer

    def piece() -> bool:
        now[0] += 1e-3
        done.append(now[0])
        return True

    def tidy() -> None:
        with monkeypatch.context() as inside:
            inside.setattr(writer, "_housekeep", piece)
            inside.setattr(writer, "_queue", [Stop()])  # somebody waits
            inside.setattr("service.engine.housekeeping.time", SimpleNamespace(monotonic=lambda: now[0]))
            before, writer._owed.seconds = writer._owed.seconds, owed
            writer._tidy()
            assert writer._owed.seconds == pytest.approx(owed - 1e-3 * pieces)
            writer._owed.seconds = before

    engine.at_rest(tidy)
    assert len(done) == pieces


@pytest.mark.parametrize(("short", "applied"), [(_ALL, 2), (0.0, 1)])
def test_small_batches_that_have_waited_for_a_long_one_do_not_wait_for_its_housekeeping(
    engine: Instance, monkeypatch: pytest.MonkeyPatch, short: float, applied: int
) -> None:
    """Seen: behind batches of 2,000 changes they waited for 2 to 4 ms more, and for 1.3 ms more while the event loop sent the answer to the
    long one, and then competed with housekeeping to send theirs. Those that come during the housekeeping wait for a piece. `short`: seconds
    of a commit for which the long one waits; `applied`: the newest version when it is answered."""
    monkeypatch.setattr("service.engine.writer._LONG", 0.0)
    monkeypatch.setattr("service.engine.writer._TICK", 1e9)
    monkeypatch.setattr("service.engine.housekeeping._PIECE", 0.0)
    monkeypatch.setattr("service.engine.housekeeping._SHARE", 1e9)
    monkeypatch.setattr("service.engine.housekeeping._MOST_OWED", 0.0)
    happened: list[str | int] = []
    apply, ended = engine._state.apply, threading.Event()
    clock = SimpleNamespace(monotonic=time.monotonic, perf_counter=time.perf_counter, sleep=lambda seconds: happened.append("sending"))
    monkeypatch.setattr("service.engine.writer.time", clock)
    monkeypatch.setattr("service.engine.writer._FAST_COMMIT", short)

    def submit_meanwhile(*given: Any) -> Any:
        engine._state.apply = apply  # type: ignore[method-assign]
        engine.submit(of_ops("a", ("upsert", 100)), lambda answer: happened.append("change"))
        return apply(*given)

    def piece() -> bool:
        if not happened:  # the job that holds the writer owes, too
            return False
        happened.append("piece")
        if happened.count("piece") == 3:
            ended.set()
        return not ended.is_set()

    held = HeldWriter(engine)
    monkeypatch.setattr(engine._writer, "_housekeep", piece)
    engine._state.apply = submit_meanwhile  # type: ignore[method-assign]
    engine.submit(of_ops("a", *(("upsert", id_) for id_ in range(20))), lambda answer: happened.append(engine._state.newest))
    held.release()
    assert ended.wait(60)
    assert happened == [applied, "change", "sending", "piece", "piece", "piece"]


def test_a_long_batch_does_not_wait_for_housekeeping_behind_those_that_overtake_it(
    engine: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: it waited for 1 to 2 ms more, and with it small ones that had come in the meantime, which may not overtake it, too."""
    monkeypatch.setattr("service.engine.writer._LONG", 0.0)
    monkeypatch.setattr("service.engine.writer._TICK", 1e9)
    monkeypatch.setattr("service.engine.housekeeping._SHARE", 1e9)
    monkeypatch.setattr("service.engine.housekeeping._MOST_OWED", 0.0)
    happened: list[str] = []

    def submit(name: str, changes: int) -> None:
        engine.submit(of_ops("a", *(("upsert", id_) for id_ in range(changes))), lambda answer: happened.append(name))

    def piece() -> bool:
        if happened:  # the job that holds the writer owes, too
            happened.append("piece")
        return False

    held = HeldWriter(engine)
    submit("long", 20)
    submit("small", 1)
    monkeypatch.setattr(engine._writer, "_housekeep", piece)
    held.release()
    engine._writer.call(lambda: None).result(60)
    assert happened[:3] == ["small", "long", "piece"]


@pytest.mark.parametrize(
    ("owed", "waits", "is_worth"), [(0.0009, False, False), (0.0011, False, True), (0.019, True, False), (0.021, True, True)]
)
def test_answers_are_sent_first_if_much_housekeeping_is_due(owed: float, waits: bool, is_worth: bool) -> None:
    """Seen: callers that sent one change after another, each when the one before was answered, waited for a pause after each."""
    due = Owed(lambda: waits)
    due.add(owed)
    assert due.is_worth_a_pause == is_worth


def test_jobs_owe_it_too(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: while jobs came one behind the other, nothing was done: neither were pins given up nor was memory let be reused."""
    monkeypatch.setattr("service.engine.housekeeping._MOST_OWED", 0.0)
    monkeypatch.setattr("service.engine.writer._TICK", 1e9)
    happened: list[str] = []
    ended = threading.Event()

    def piece() -> bool:
        happened.append("piece")
        return not ended.is_set()

    def job() -> None:
        happened.append("job")
        if happened.count("job") < 20:
            engine._writer.call(job)
            time.sleep(0.001)
        else:
            ended.set()

    held = HeldWriter(engine)
    monkeypatch.setattr(engine._writer, "_housekeep", piece)
    engine._writer.call(job)
    held.release()
    assert ended.wait(60)
    assert happened.count("job") == 20 and "jj" not in "".join([what[0] for what in happened])


def test_a_checkpoint_of_the_log_is_a_piece(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bool] = []

    def look() -> None:
        engine._housekeeping._tasks.appendleft(lambda: bool(done.append(True)))
        monkeypatch.setattr("service.durability.log._WAL_BYTES", -1)
        assert engine._log.checkpoint_due and engine._housekeeping.piece() and not done
        monkeypatch.undo()
        assert not engine._log.checkpoint_due and engine._housekeeping.piece() and done

    engine.at_rest(look)


def test_the_slots_of_a_truncate_are_freed_in_pieces(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.tables.store._LOOKED_AT", 50)
    monkeypatch.setattr("service.engine.housekeeping._PIECE", 0.0)
    engine.apply(batch(("upsert", "a", rows_of(0, 1000, tag="t")), ("upsert", "b", rows_of(0, 1))))
    kept = [engine.relation("a").table._rows.kept]
    reclaim = Table.reclaim

    def watched(table: Table, oldest: int, pins: np.ndarray) -> bool:
        more = reclaim(table, oldest, pins)
        if table is engine.relation("a").table:
            kept.append(table._rows.kept)
        return more

    monkeypatch.setattr(Table, "reclaim", watched)
    reader = open_rows(engine.readers, "v")
    engine.apply(of_ops("a", ("truncate", 0)))
    look(engine)
    assert kept[-1] == 1000 and counted(reader) == 1000, "held by a reader"
    reader.close()
    look(engine)
    assert kept[-1] == 0 and max(before - after for before, after in zip(kept, kept[1:], strict=False)) == 50
    assert engine.apply(batch(("upsert", "a", rows_of(0, 1000)))).applied == 1000
    keep_house(engine)
    check(engine)
    assert engine.relation("a").table.used == 1000, "the slots are used again"


def test_only_views_that_were_changed_are_asked_what_they_have_put_off(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.put_view("other", {"sql": "SELECT b.id FROM b b"}, wait=60)
    keep_house(engine)
    asked, left = list[str](), [2]

    def maintain(view: LiveView, steps: int) -> bool:
        asked.append(view.name)
        left[0] -= 1
        return left[0] >= 0

    monkeypatch.setattr(LiveView, "maintain", maintain)
    keep_house(engine)
    assert not asked
    engine.apply(batch(("upsert", "a", rows_of(0, 1))))
    keep_house(engine)
    assert asked == ["v"] * 3  # until there is no more
    engine.put_view("new", {"sql": "SELECT a.id FROM a a"}, wait=60)
    keep_house(engine)
    assert "new" in asked  # what its build has left
