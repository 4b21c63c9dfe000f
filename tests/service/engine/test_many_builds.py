"""Many views that are registered at once: whose turn comes when. What happens is compared in its order, never by a clock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.engine import builds
from service.engine.builds import Builds
from service.instance import Instance
from service.reading.cursors import open_rows
from tests.service.running import DEFINITION, PAIR, batch, ids, opened, parts, rows_of

SMALL: dict[str, Any] = {**PAIR, "from": {"a": "c", "b": "c"}}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    """Small is what has five rows."""
    monkeypatch.setattr(builds, "_FEW", 5)
    engine = opened(tmp_path)
    for name in "abc":
        engine.put_relation(name, DEFINITION)
    engine.apply(batch(*(("upsert", name, rows_of(0, count)) for name, count in (("a", 9), ("b", 9), ("c", 3)))))
    yield engine
    engine.close()


class OneByOne:
    """Builds wait before they load, each until it is let `go`, or one that is dropped until any is; `begun`: their names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self._changed, self._free = threading.Condition(), set[str]()
        load = Builds._load

        def hold(build: Any, version: int) -> None:
            with self._changed:
                self.begun.append(build.view.name)
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: build.view.name in self._free or build.is_over, 60)
            load(build, version)

        monkeypatch.setattr(Builds, "_load", staticmethod(hold))

    def go(self, *names: str) -> None:
        with self._changed:
            self._free.update(names)
            self._changed.notify_all()

    def wait(self, *names: str) -> None:
        """Until these have begun, in any order, and no others."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.begun) >= len(names), 60), self.begun
            assert sorted(self.begun) == sorted(names)


def test_a_small_view_is_live_before_large_ones(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """40 wait, of which two are being built: it is built beside these, and read while they wait."""
    held, large = OneByOne(monkeypatch), [f"large_{number}" for number in range(40)]
    for name in large:
        engine.register(name, PAIR).result()
    held.wait("large_0", "large_1")
    _, built = engine.register("small", SMALL).result()
    held.wait("large_0", "large_1", "small")
    held.go("small")
    assert built is not None
    built.result(60)
    assert len(ids(open_rows(engine.readers, "small"))) == 9
    assert {engine.views[name].state for name in large} == {"building"}
    held.go("large_1")
    held.wait("large_0", "large_1", "small", "large_2")
    for name in large:
        engine.drop_view(name)


def test_drops_wait_for_no_build(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are built, of those that wait, and of others; what is left goes on."""
    engine.put_view("live", PAIR, wait=60)
    held = OneByOne(monkeypatch)
    futures = {name: engine.register(name, PAIR).result()[1] for name in (f"v{number}" for number in range(40))}
    held.wait("v0", "v1")
    for name in ("live", *(name for name in futures if name not in ("v1", "v39"))):
        engine.drop_view(name)
    assert {*engine.views} == {"v1", "v39"}
    held.go()  # those that have noticed
    held.wait("v0", "v1", "v39")
    held.go("v1", "v39")
    for future in futures.values():
        assert future is not None
        future.result(60)
    assert {view.state for view in engine.views.values()} == {"live"}
    assert len(parts(engine).state.recorder) == 0 and len(engine.versions) == 0
