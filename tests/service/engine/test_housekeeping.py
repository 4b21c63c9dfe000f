"""The writer keeps house in pieces, and looks at its queue between them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from service.instance import Instance
from service.reading.cursors import open_rows
from service.tables.store import Table
from tests.service.running import HeldWriter, batch, check, counted, keep_house, look, of_ops, parts, rows_of, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path, synchronous="normal")
    yield engine
    engine.close()


def test_what_comes_is_not_behind_all_pieces(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.writer._PIECE", 0.0)
    happened: list[str] = []
    ended = threading.Event()

    def piece() -> bool:
        happened.append("piece")
        if len(happened) == 3:
            engine.submit(of_ops("a", ("upsert", 2)), lambda answer: happened.append("change"))
        if len(happened) == 10:
            ended.set()
        return not ended.is_set()

    engine.at_rest(lambda: parts(engine).housekeeping._tasks.appendleft(piece))
    engine.apply(of_ops("a", ("upsert", 1)))
    assert ended.wait(60), "pieces are done while nothing waits"
    assert happened == ["piece"] * 3 + ["change"] + ["piece"] * 6


@pytest.mark.parametrize(("debt", "pieces"), [(0.0, 0), (0.0005, 1), (0.0015, 2), (0.1, 2), (0.2495, 2), (0.3, 20)])
def test_housekeeping_is_done_in_pieces_while_others_wait(
    engine: Instance, monkeypatch: pytest.MonkeyPatch, debt: float, pieces: int
) -> None:
    """For as long as is owed, two milliseconds at most, and ten times as long once a quarter of a second is owed."""
    now, done, writer = [0.0], list[float](), parts(engine).writer

    def piece() -> bool:
        now[0] += 1.001e-3
        done.append(now[0])
        return True

    def tidy() -> None:
        with monkeypatch.context() as inside:
            inside.setattr(writer, "_housekeep", piece)
            inside.setattr(writer, "_queue", [None])  # somebody waits
            inside.setattr("service.engine.writer.time", SimpleNamespace(monotonic=lambda: now[0]))
            inside.setattr(writer, "_debt", debt)
            writer._tidy()
            assert writer._debt == pytest.approx(max(0.0, debt - 1.001e-3 * pieces))

    engine.at_rest(tidy)
    assert len(done) == pieces


def test_it_is_done_between_jobs_too(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: while jobs came one behind the other, nothing was done: neither were pins given up nor was memory let be reused."""
    monkeypatch.setattr("service.engine.writer._TICK", 0.0)
    happened: list[str] = []
    ended = threading.Event()

    def piece() -> bool:
        happened.append("piece")
        return not ended.is_set()

    def job() -> None:
        happened.append("job")
        if happened.count("job") < 20:
            parts(engine).writer.call(job)
            time.sleep(0.001)
        else:
            ended.set()

    held = HeldWriter(engine)
    monkeypatch.setattr(parts(engine).writer, "_housekeep", piece)
    parts(engine).writer.call(job)
    held.release()
    assert ended.wait(60)
    assert happened.count("job") == 20 and "jj" not in "".join([what[0] for what in happened])


def test_a_checkpoint_of_the_log_is_a_piece(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[bool] = []

    def look() -> None:
        parts(engine).housekeeping._tasks.appendleft(lambda: bool(done.append(True)))
        monkeypatch.setattr("service.durability.log._WAL_BYTES", -1)
        assert parts(engine).log.checkpoint_due and parts(engine).housekeeping.piece() and not done
        monkeypatch.undo()
        assert not parts(engine).log.checkpoint_due and parts(engine).housekeeping.piece() and done

    engine.at_rest(look)


def test_the_slots_of_a_truncate_are_freed_in_pieces(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.tables.store.LOOKED_AT", 50)
    monkeypatch.setattr("service.engine.writer._PIECE", 0.0)
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
