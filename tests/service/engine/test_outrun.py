"""Changes that are faster than a build: what waits for it, for how long, and when it is given up."""

from __future__ import annotations

import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from livejoin.wire.batch import Batch
from service.engine import build as build_module
from service.engine.build import Build, LargeLane, Phase
from service.engine.builds import Builds
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from tests.service.engine.test_builds import Held, state
from tests.service.running import PAIR, building, check, of_ops
from tests.waiting import until


def test_large_batches_wait_for_a_build_that_has_much_to_follow(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones do not; nor do jobs behind the large ones."""
    held = Held(monkeypatch)
    held.put(engine, "v")
    monkeypatch.setattr(build_module, "_MANY_CHANGES", 17)
    large = of_ops("a", *(("upsert", n) for n in range(18)))
    assert engine.large_batches_wait_for is None and engine.apply(large).version == 1
    waits = Future[Any]()
    engine.submit(large, waits.set_result)
    for n in range(17):
        assert engine.apply(of_ops("a", ("upsert", n))).version == 2 + n
    assert engine.large_batches_wait_for == "v" and not waits.done()
    engine.put_relation("c", engine.relations["a"].definition)
    held.go.set()
    assert waits.result(60).version == 19 and state(engine, "v") == "live"
    until(lambda: engine.large_batches_wait_for is None)


def test_a_build_that_has_had_its_rounds_must_end(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each leaves too much for the last one, as large batches are written meanwhile."""
    monkeypatch.setattr(build_module, "_FIRST_LAST", 1)
    monkeypatch.setattr(build_module, "_LAST_SECONDS", 0.0)
    waits, rounds, catch_up = list[Future[Any]](), list[bool](), Builds._catch_up

    def large() -> Batch:
        return of_ops("a", *(("upsert", 18 * len(waits) + n) for n in range(18)))

    def outrun(build: Any, version: int, piece: Any) -> None:
        catch_up(build, version, piece)
        rounds.append(build.must_end)
        waits.append(Future())
        engine.submit(large(), waits[-1].set_result)
        until(lambda: waits[-1].done() or engine.large_batches_wait_for == "v")

    held = Held(monkeypatch)
    monkeypatch.setattr(Builds, "_catch_up", staticmethod(outrun))
    held.put(engine, "v")
    assert engine.apply(large()).version == 1
    held.go.set()
    assert state(engine, "v") == "live" and rounds == [False, False, False, True]
    assert all(isinstance(wait.result(60), Receipt) for wait in waits)


def test_a_build_that_is_outrun_by_small_batches_fails_alone(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come over 32 connections. The pipeline beside them has its turns between the two times for which large batches wait."""
    for name, value in (("_FIRST_LAST", 1), ("_LAST_SECONDS", 0.0), ("_MOST_CLOSED", 0.3), ("_LEAST_OPEN", 0.3)):
        monkeypatch.setattr(build_module, name, value)
    relations, catch_up = engine.relations, Builds._catch_up
    engine.put_relation("c", relations["a"].definition)
    is_over, answered, opened = threading.Event(), [0] * 32, list[str | None]()

    def outrun(build: Any, version: int, piece: Any) -> None:
        before, left = sum(answered), build.backlog.changes
        catch_up(build, version, piece)
        until(lambda: build.backlog.changes > left + 1 and sum(answered) > before + 32)

    def write(number: int) -> None:
        while not is_over.is_set():
            engine.apply(of_ops("a", ("upsert", 32 * answered[number] + number)))
            answered[number] += 1

    def pipe() -> int:
        for epoch in count(1):
            if is_over.is_set():
                return epoch - 1
            answer = engine.apply(of_ops("c", *(("upsert", n) for n in range(100)), source="pipeline", epoch=epoch))
            assert not answer.duplicate and answer.applied == 100
            opened.append(engine.large_batches_wait_for)
        raise AssertionError

    held = Held(monkeypatch)
    monkeypatch.setattr(Builds, "_catch_up", staticmethod(outrun))
    with ThreadPoolExecutor(33) as threads:
        writing, piping = [threads.submit(write, number) for number in range(32)], threads.submit(pipe)
        try:
            view = held.put(engine, "v")
            until(lambda: building(engine)[0].backlog.changes > 1)
            held.go.set()
            seen = set[str | None]()
            until(lambda: seen.add(engine.large_batches_wait_for) or view.state != "building")
            before = len(opened)
            until(lambda: len(opened) > before + 3)
        finally:
            is_over.set()
        assert piping.result(60) == len(opened)
        for one in writing:
            one.result(60)
    assert seen == {None, "v"} and None in opened
    assert view.state == "failed" and view.problem is not None and "change faster than it can be built" in view.problem.detail
    check(engine)
    engine.put_view("w", PAIR, wait=0)
    assert state(engine, "w") == "live" and engine.large_batches_wait_for is None


def test_the_lane_of_large_batches() -> None:
    """Is closed while a build must end, for two minutes at most, and then open for one, for whichever build that must end."""
    now = [0.0]
    lane = LargeLane(lambda: now[0])
    view: Any = SimpleNamespace(name="v", relations={})
    first, second, loading = (Build(view) for _ in range(3))
    loading.enter(Phase.LOADING)

    def at(time: float, *asking: Build) -> bool:
        now[0] = time
        return lane.close_for(asking)

    assert [at(5, first, loading), at(100, first, second), at(125, second), at(126, first, second, loading)] == [True, True, True, False]
    assert (first.closings, second.closings, loading.closings, lane.closed_for) == (1, 0, 0, None)
    assert [at(130), at(185, second), at(186, second), at(190), at(249, first), at(250, first)] == [False, False, True, False, False, True]
    assert (first.closings, second.closings) == (1, 0)
    assert not at(371, first) and first.closings == 2
    gone = weakref.ref(second)
    assert at(431, second) and not at(552, first)
    del second
    assert gone() is None
    with pytest.raises(Problem, match="faster than it can be built"):
        first.require()
