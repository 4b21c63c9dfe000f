"""Views that are replayed after a start: followers go on from their tokens as if nothing had happened, whatever is written meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.engine.builds import Builds
from service.instance import Instance
from service.tables import history
from tests.service.engine.test_engine import Follower, compare, grouped, prepared
from tests.service.random_views import NATURAL, by_all_algorithms
from tests.service.running import check, keep_house, look
from tests.service.twin import MANY, VIEWS, Source, Twin, TwinView, of_different_rows, to_batch
from tests.service.views.joins.test_random_views import drawn


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken at once has a few changes only."""
    monkeypatch.setattr(history, "_PIECE", 8)
    monkeypatch.setattr(history, "_DROPPED", 4)


class Gate:
    """Views that are built or replayed wait once they are loaded, until it is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        load = Builds._load

        def hold(build: Any, join: Any, version: int) -> None:
            load(build, join, version)
            assert self.open.wait(60)

        monkeypatch.setattr(Builds, "_load", staticmethod(hold))


class Restarted:
    """An engine that is killed or closed and started again; what is within `meanwhile` is done before any view is live."""

    def __init__(self, folder: Path, gate: Gate) -> None:
        self.folder, self.gate = folder, gate

    def begin(self, engine: Instance, clean: bool) -> Instance:
        if clean:
            engine.close()
        else:
            engine._writer.stop()
            engine._log.close()
            engine.state = "closed"
        self.gate.open.clear()
        again, opened_ = Instance(self.folder, engine.settings), threading.Event()
        self.starter = threading.Thread(target=again.recover, args=(None, opened_.set))
        self.starter.start()
        assert opened_.wait(60)
        return again

    def end(self) -> None:
        self.gate.open.set()
        self.starter.join(120)
        assert not self.starter.is_alive()


def some_batches(engine: Instance, twin: Twin, source: Source, count: int, most: int) -> None:
    for _ in range(count):
        changes = source.changes(source.random.randrange(most), twin.relations)
        if source.random.random() < 0.5:
            grouped(engine, twin, of_different_rows(changes + source.changes(6, twin.relations), twin.relations), [])
        elif twin.apply(changes, "skip") is not None:
            engine.apply(to_batch(changes, on_error="skip"))


def restarts(folder: Path, gate: Gate, seed: int, views: dict[str, TwinView], rounds: int = 5, keys: int = 10) -> None:
    print("seed", seed)
    source, twin = Source(seed, keys), Twin(views)
    engine = prepared(folder, views)
    pick, restart = source.random, Restarted(folder, gate)
    followers = [Follower(engine, name, twin, True) for name in views for _ in range(2)]
    for number in range(rounds):
        some_batches(engine, twin, source, 4, 12)
        for follower in followers:
            if number == 0 or pick.random() < 0.5:
                follower.catch_up()
        some_batches(engine, twin, source, 2, 12)
        engine = restart.begin(engine, clean=pick.random() < 0.4)
        some_batches(engine, twin, source, pick.randrange(4), 12)
        if pick.random() < 0.2:  # killed again before any view is live
            engine = restart.begin(engine, clean=pick.random() < 0.5)
            some_batches(engine, twin, source, 1, 12)
        restart.end()
        assert {view.state for view in engine.views.values()} == {"live"} and engine._state.history is None
        some_batches(engine, twin, source, 1, 12)
        compare(engine, twin)
        for follower in followers:
            follower.go_on(engine, False)
            if pick.random() < 0.7:
                follower.catch_up()
        check(engine)
    for follower in followers:
        follower.catch_up()
    look(engine)
    keep_house(engine)
    engine.close()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.soak)])
@pytest.mark.parametrize("views", [VIEWS, MANY], ids=["two", "many"])
def test_followers_go_on(tmp_path: Path, gate: Gate, views: dict[str, TwinView], seed: int) -> None:
    restarts(tmp_path, gate, 1000 + seed, views)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("style", ["heap", "boxes", "self", "mixed", "clique", "product", *NATURAL])
def test_by_all_algorithms(tmp_path: Path, gate: Gate, style: str, seed: int) -> None:
    views = by_all_algorithms(drawn(random.Random(f"{style} {seed}"), style, 4, 10), "v")
    restarts(tmp_path, gate, 1100 + seed, views, rounds=3)
