"""A view whose kernels are still being compiled: it is building, and nobody else waits."""

from __future__ import annotations

import threading
from pathlib import Path

from service.instance import Instance
from service.reading.cursors import open_rows
from service.settings import Settings
from service.warming import Kernels, _kernels_of
from tests.service.running import PAIR, batch, check, ids, rows_of, running
from tests.waiting import until

HEAP = {**PAIR, "algorithm": "ij-heap"}


class Held(Kernels):
    """Those of some rooms are not compiled before `release`."""

    def __init__(self, *rooms: str) -> None:
        super().__init__()
        self._missing = {name for name in _kernels_of(rooms) if name.split(".")[1] in rooms}

    def release(self) -> None:
        with self._changed:
            self._missing.clear()
        self._emit()


def test_batches_and_other_views_go_on(tmp_path: Path) -> None:
    engine = running(tmp_path / "data", {})
    engine.kernels = kernels = Held("ij_heap")
    view, outcome = engine.put_view("v", HEAP, wait=0.05)
    assert (outcome, view.state, view.has_room) == ("building", "building", False), "to make its structures, some would be compiled"
    engine.apply(batch(("upsert", "a", rows_of(0, 2)), ("upsert", "b", rows_of(0, 2))))
    assert engine.put_view("w", PAIR, wait=60)[1] == "created"
    engine.apply(batch(("delete", "a", rows_of(1, 1))))
    check(engine)
    assert view.state == "building"
    kernels.release()
    until(lambda: view.state != "building")
    assert ids(open_rows(engine.readers, "v")) == ids(open_rows(engine.readers, "w")) == [(0, 0), (0, 1)]
    engine.close()


def test_very_many_that_wait_for_their_kernels_hold_up_nobody(tmp_path: Path) -> None:
    """However many there are: they hold no threads. They are built once the kernels are there."""
    engine = running(tmp_path / "data", {})
    engine.kernels = kernels = Held("ij_heap")
    views = [engine.put_view(f"v{number}", HEAP, wait=0)[0] for number in range(100)]
    before = threading.active_count()
    assert engine.put_view("w", PAIR, wait=60)[1] == "created"
    assert threading.active_count() <= before + 4
    engine.drop_view("v7")
    kernels.release()
    until(lambda: all(view.state == "live" for view in views if view.name != "v7"))
    assert views[7].state == "building"
    engine.close()


def test_a_stop_while_views_wait_for_kernels(tmp_path: Path) -> None:
    engine = running(tmp_path / "data", {})
    engine.kernels = Held("ij_heap")
    _, built = engine.register("v", HEAP).result()
    assert built is not None
    engine.close()
    engine.kernels.end()
    built.result(60)


def test_one_that_is_dropped_meanwhile_is_not_built(tmp_path: Path) -> None:
    engine = running(tmp_path / "data", {})
    engine.kernels = kernels = Held("ij_heap")
    view, _ = engine.put_view("v", HEAP, wait=0)
    engine.drop_view("v")
    kernels.release()
    again, outcome = engine.put_view("v", PAIR, wait=60)
    assert (view.state, again.state, outcome) == ("building", "live", "created")
    engine.close()


def test_without_kernels_a_view_fails_alone_until_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    engine = running(data, {})
    engine.kernels = Held("ij_heap")
    engine.kernels._fail("no room in the cache")
    view, _ = engine.put_view("v", HEAP, wait=60)
    assert view.state == "failed" and "could not be built: no room in the cache" in str(view.problem)
    engine.apply(batch(("upsert", "a", rows_of(0, 1)), ("upsert", "b", rows_of(0, 1))))
    engine.close()

    engine = Instance(data, Settings(data=data))
    engine.kernels = Held("ij_heap")
    engine.kernels._fail("still no room")
    engine.recover()
    assert engine.view("v").state == "failed"
    engine.close()

    engine = Instance(data, Settings(data=data))
    engine.recover()
    assert ids(open_rows(engine.readers, "v")) == [(0, 0)]
    engine.close()
