"""What changes come to while a view is built, against a count of every slot; and version by version, for several that are replayed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from service.tables import backlog as backlogs
from service.tables.backlog import Backlog, Net, Recorder
from service.tables.changes import Run
from service.tables.relations import Relation
from structures.rows import change_queue

VERSIONS = 500
Change = tuple[int, int]
"""Old slot, new slot; -1: none."""


def noted(recorder: Recorder, version: int, changes: dict[str, list[Change]]) -> None:
    runs = {}
    for name, pairs in changes.items():
        old, new = (np.array(input, np.int32) for input in zip(*pairs, strict=True))
        runs[name] = Run(1, np.zeros(len(pairs), np.int64), old, new, len(pairs))
    recorder.note(version, runs)


def found(nets: list[Net]) -> dict[str, tuple[list[int], list[int]]]:
    return {net.relation.name: (net.deleted.tolist(), net.inserted.tolist()) for net in nets}


def opened(*names: str) -> tuple[Recorder, Backlog]:
    recorder = Recorder()
    return recorder, recorder.open(relations(*names))


def relations(*names: str) -> list[Relation]:
    return [cast(Relation, SimpleNamespace(name=name, no_keys=None)) for name in names]


def test_a_slot_counts_once_whatever_was_in_it_between() -> None:
    """Rows move, go and come at random, to slots that others have left."""
    rng = np.random.default_rng(5)
    (recorder, backlog), at_first, living = opened("r"), set(range(40)), set(range(40))
    version = 1
    for _ in range(60):
        for _ in range(int(rng.integers(1, 30))):
            version += 1
            old = int(rng.choice(sorted(living))) if living and rng.random() < 0.7 else -1
            new = int(rng.choice(sorted(set(range(300)) - living))) if old < 0 or rng.random() < 0.7 else -1
            noted(recorder, version, {"r": [(old, new)]})
            living = (living - {old}) | ({new} - {-1})
        wanted = sorted(at_first - living), sorted(living - at_first)
        assert found(backlog.take(version)) == {"r": wanted} and backlog.left == 0
        at_first = set(living)


def test_later_versions_and_other_relations_wait() -> None:
    recorder, backlog = opened("r", "s")
    noted(recorder, 2, {"r": [(0, 5), (-1, 6)], "t": [(1, 2)]})
    noted(recorder, 3, {"r": [(5, 7)], "s": [(-1, 1), (-1, 3)]})
    assert backlog.left == 5
    assert found(backlog.take(2)) == {"r": ([0], [5, 6])}
    assert backlog.left == 3
    assert found(backlog.take(3)) == {"r": ([5], [7]), "s": ([], [1, 3])}
    assert backlog.take(9) == [] and backlog.left == 0


def test_what_came_before_a_relation_is_read_is_skipped() -> None:
    recorder, backlog = opened("r", "s")
    noted(recorder, 2, {"r": [(0, 5)], "s": [(4, -1)]})
    noted(recorder, 3, {"r": [(5, 7), (1, -1)]})
    noted(recorder, 4, {"r": [(7, 8)]})
    backlog.skip("r", 3)
    assert backlog.left == 2
    assert found(backlog.take(3)) == {"s": ([4], [])}
    backlog.skip("s", 4)
    assert found(backlog.take(4)) == {"r": ([7], [8])} and backlog.left == 0


def test_what_is_noted_while_others_are_taken_comes_behind_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer does not wait while the changes are looked at."""
    recorder, backlog = opened("r")
    slots, versions = backlogs._slots, iter(range(3, 9))

    def slowly(parts: Any) -> Any:
        version = next(versions)
        noted(recorder, version, {"r": [(version, version + 1)]})
        return slots(parts)

    monkeypatch.setattr(backlogs, "_slots", slowly)
    noted(recorder, 1, {"r": [(1, 2)]})
    noted(recorder, 2, {"r": [(2, 3)]})
    assert found(backlog.take(1)) == {"r": ([1], [2])}
    assert backlog.left == 3
    assert found(backlog.take(2)) == {"r": ([2], [3])}
    assert found(backlog.take(4)) == {"r": ([3], [5])}
    assert backlog.left == 4


class Slow:
    """A lock before which others get their turn: what was looked at without it may be another thing by then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        time.sleep(1e-5)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything is forgotten at once, and threads take turns all the time."""
    monkeypatch.setattr(backlogs, "_SOME", 5)
    monkeypatch.setattr(change_queue, "_BLOCK", 4)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("eager")
def test_each_replay_takes_every_version_once() -> None:
    """Others come and go meanwhile, and what all are past is dropped."""
    recorder, newest, some = Recorder(), [0], relations("r", "s")
    recorder._lock = Slow()  # type: ignore[assignment]
    recorder.keep(0, some)
    backlogs_ = [recorder.open_replay(some) for _ in range(4)]
    recorder.begin()
    taken: list[list[int]] = [[] for _ in backlogs_]

    def go(number: int) -> None:
        backlog = backlogs_[number]
        while backlog.version < VERSIONS:
            for step in backlog.steps(newest[0]):
                taken[number] += sorted(version for run in step.runs.values() for version in (step.first + run.offsets).tolist())
            backlog.passed()
            assert backlog.left >= 0

    threads = [threading.Thread(target=go, args=(number,), daemon=True) for number in range(len(backlogs_))]
    for thread in threads:
        thread.start()
    for version in range(1, VERSIONS + 1):
        other = recorder.open(some)
        noted(recorder, version, {"rs"[version % 2]: [(version - 1, version)]})
        newest[0] = version
        assert other.left == 1
        recorder.close(other)
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert taken == [list(range(1, VERSIONS + 1))] * len(backlogs_)
    for backlog in backlogs_:
        assert recorder.floor(some[0]) == VERSIONS
        recorder.close(backlog)
    assert len(recorder) == 0 and recorder.floor(some[0]) is None


def test_a_version_that_is_larger_than_what_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two relations, none of whose versions may be taken in halves. What was recorded for nobody is not kept."""
    monkeypatch.setattr(backlogs, "_SOME", 2)
    recorder, some = Recorder(), relations("r", "s")
    recorder.keep(7, [*some, *relations("t")])
    backlog = recorder.open_replay(some)
    recorder.begin()
    noted(recorder, 8, {"r": [(-1, slot) for slot in range(5)], "s": [(-1, 0)], "t": [(-1, 0)]})
    noted(recorder, 9, {"s": [(-1, slot) for slot in range(1, 4)]})
    assert (backlog.version, backlog.left, backlog.changes) == (7, 9, 9)
    sizes = list[dict[str, int]]()
    while backlog.left:
        sizes += [{name: len(run.old) for name, run in step.runs.items()} for step in backlog.steps(9)]
        backlog.passed()
    assert sizes == [{"r": 5, "s": 1}, {"s": 3}] and backlog.version == 9


def test_a_backlog_that_was_closed_is_empty() -> None:
    """Its build has yet to notice."""
    recorder, backlog = opened("r")
    noted(recorder, 1, {"r": [(-1, 1)]})
    recorder.close(backlog)
    recorder.close(backlog)
    assert backlog.take(1) == [] and backlog.steps(1) == []
