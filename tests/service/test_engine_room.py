"""What the engine does where there is no room: in an array, in memory, in the address space, on the disk at the end."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.cursors import open_rows
from service.engine import Engine
from service.errors import Problem
from service.folder import FolderLock
from service.live_view import LiveView
from tests.service.running import DEFINITION, PAIR, batch, ids, of_ops, opened, rows_of, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = running(tmp_path, {})
    yield engine
    engine.close()


def no_address_space(*_: object) -> Any:
    raise OSError(errno.ENOMEM, "Cannot allocate memory")


# the disk, at the end


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), OverflowError("too much")])
def test_a_last_snapshot_that_fails_does_not_keep_the_service_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 3))))
    feed = engine.views["v"].feed
    assert feed is not None
    follower = feed.subscribe()

    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr("service.checkpoints.write_snapshot", fail)
        engine.close()
    assert engine.state == "closed" and [chunk.kind for chunk in follower.next()] == ["error"]
    FolderLock(tmp_path).release()
    engine = opened(tmp_path)
    assert engine.published.number == 1 and len(ids(open_rows(engine, "v"))) == 9
    engine.close()


# address space


def test_a_relation_that_finds_no_address_space_is_refused(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.relations.Table", no_address_space)
        with pytest.raises(Problem) as caught:
            engine.put_relation("c", DEFINITION)
    assert caught.value.type == "no-room" and "c" not in engine.relations
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 1
    engine.close()
    engine = opened(tmp_path)
    assert set(engine.relations) == {"a", "b"}
    engine.close()


def test_a_view_that_finds_no_address_space_is_refused(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.live_view.IntervalTree", no_address_space)
        with pytest.raises(Problem) as caught:
            engine.put_view("v", PAIR, wait=60)
    assert caught.value.type == "no-room" and not engine.views
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 1
    engine.close()
    engine = opened(tmp_path)
    assert not engine.views and engine.put_view("v", PAIR, wait=60)[1] == "created"
    engine.close()


def test_a_view_that_finds_no_address_space_at_the_start_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path)
    engine.put_view("w", {"from": {"a": "a"}, "select": ["a.id as i"]}, wait=60)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 3))))
    engine.close()
    make_room = LiveView.make_room
    with monkeypatch.context() as patch:
        patch.setattr(LiveView, "make_room", lambda view: no_address_space() if view.name == "v" else make_room(view))
        engine = opened(tmp_path)
    assert (engine.views["v"].state, engine.views["w"].state) == ("failed", "live")
    with pytest.raises(Problem) as caught:
        open_rows(engine, "v")
    assert caught.value.type == "view-failed"
    assert engine.apply(batch(("upsert", "a", rows_of(3, 1)))).version == 2 and len(ids(open_rows(engine, "w"))) == 4
    engine.metrics()
    assert engine.views["v"].statistics()["intervals"] == 0
    engine.drop_view("v")
    assert engine.put_view("v", PAIR, wait=60)[1] == "created" and len(ids(open_rows(engine, "v"))) == 12
    engine.close()
