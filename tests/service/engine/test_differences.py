"""What a truncate has changed in a view is read after its turn, from the former structures and the new ones."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine import truncates
from service.instance import Instance
from service.views import differences
from service.views.differences import Difference
from tests.service.engine.emptying import Meanwhile, add_up, apply_unprepared, left_nothing, truncating
from tests.service.engine.test_builds import BOXES, VIEWS, agrees, filled, rows_like, some_changes
from tests.service.engine.test_renewals import keeping
from tests.service.engine.test_truncates import MORE
from tests.service.running import ORDER, look
from tests.service.views.test_random_sql import Added
from tests.waiting import HeldCall, until


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truncates, "_WORTH", 1)
    monkeypatch.setattr(differences, "_CHUNK", 16)
    monkeypatch.setattr(differences, "_COMPARED", 20)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    yield from keeping(tmp_path, VIEWS["pairs"])


@pytest.mark.parametrize("name, kept, truncated, unused", [
    ("left", "a", "b", "t"), ("right", "b", "a", "u"), ("left by key", "a", "b", "t"), ("as of or null", "a", "b", "t")
])  # fmt: skip
@pytest.mark.parametrize("most", [0, 60])
def test_rows_that_only_move(tmp_path: Path, name: str, kept: str, truncated: str, unused: str, most: int) -> None:
    """The batch also replaces rows of the other relation by rows that look the same in the view."""
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    rows = rows_like(rng, [*range(80)])
    upserts = np.full(80, ORDER["upsert"], np.uint8)
    engine.apply(Batch([Changes(kept, BOXES, upserts, RowBlock(rows), np.arange(80))], 80, 0, [], 0))
    engine.put_view("v", MORE[name], wait=60)
    added = Added(engine, "v")
    add_up(engine, added)
    at = rows.schema.get_field_index(unused)
    others = rows.set_column(at, rows.schema.field(at), pc.add(rows.column(at), 1000))
    batch = truncating(rng, truncated, most=most)
    batch.changes.append(Changes(kept, BOXES, upserts, RowBlock(others), np.arange(batch.sent, batch.sent + 80)))
    batch.sent += 80
    engine.apply(batch)
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)
    engine.close()


@pytest.mark.parametrize("name", ["absent", "full", "gaps"])
def test_more_rows_gained_than_the_feed_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Its followers are told that."""
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    engine.put_view("v", MORE[name], wait=60)
    monkeypatch.setattr(differences, "most_candidates", lambda _: 3)
    added, meanwhile = Added(engine, "v"), Meanwhile(monkeypatch, lambda: None)
    added.catch_up()
    engine.apply(truncating(rng, "b", most=0))
    agrees(engine, "v")
    (chunk,) = added.subscription.next()
    assert meanwhile.placed == 1 and chunk.problem is not None and chunk.problem.type == "delta-too-large"
    engine.close()


@pytest.mark.parametrize("leave", [False, True])
def test_more_rows_than_the_feed_keeps(engine: Instance, monkeypatch: pytest.MonkeyPatch, leave: bool) -> None:
    """Its followers are told that, unless the rows leave while the batch is prepared: then they are told of those that are left."""
    rng = random.Random(4)
    monkeypatch.setattr(differences, "most_candidates", lambda _: 3)

    def meanwhile_empty() -> None:
        if leave and not meanwhile.rounds:
            apply_unprepared(engine, truncating(rng, "a", most=0))

    meanwhile = Meanwhile(monkeypatch, meanwhile_empty)
    added = Added(engine, "v")
    added.catch_up()
    assert len(added.rows) > 3
    engine.apply(truncating(rng, "b"))
    assert meanwhile.placed == 1
    if leave:
        add_up(engine, added)
    else:
        (chunk,) = added.subscription.next()
        assert chunk.problem is not None and chunk.problem.type == "delta-too-large"


def held_reading(monkeypatch: pytest.MonkeyPatch) -> HeldCall:
    """The reading of what a truncate has changed."""
    held = HeldCall(Difference._read)
    monkeypatch.setattr(Difference, "_read", lambda one: held(one))
    return held


@pytest.mark.parametrize("name", ["absent", "gaps", "left", "union", "pairs"])
def test_what_is_written_before_its_changes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rows come and go, also by another truncate, and the versions that are to be read are kept. Followers wait."""
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    engine.put_view("v", {**VIEWS, **MORE}[name], wait=60)
    added, reading = Added(engine, "v"), held_reading(monkeypatch)
    added.catch_up()
    for names in ("b", "ab", "a"):
        engine.apply(truncating(rng, *names))
        for _ in range(3):
            engine.apply(some_changes(rng, 20))
            look(engine)
    assert reading.begun.wait(60) and len(engine.versions) > 0
    following = threading.Thread(target=added.catch_up)
    following.start()
    following.join(0.05)
    assert following.is_alive(), "the changes are told only once they are read"
    reading.go.set()
    following.join(60)
    agrees(engine, "v")
    add_up(engine, added)
    left_nothing(engine)
    engine.close()


@pytest.mark.parametrize("end", ["drop", "close"])
def test_a_view_that_ends_before_its_changes_are_read(engine: Instance, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    """What is held for that is released."""
    reading = held_reading(monkeypatch)
    engine.apply(truncating(random.Random(5), "b"))
    look(engine)
    assert reading.begun.wait(60)
    engine.drop_view("v") if end == "drop" else engine.close()
    reading.go.set()
    until(lambda: len(engine.versions) == 0)


def test_nobody_reads_what_a_full_feed_drops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its followers are told so, and the versions are released."""
    rng = random.Random(6)
    engine = filled(tmp_path, rng)
    engine.put_view("v", VIEWS["pairs"] | {"changes": {"retain_rows": 1}}, wait=60)
    added = Added(engine, "v")
    added.catch_up()
    engine.apply(truncating(rng, "b"))
    for _ in range(9):
        engine.apply(some_changes(rng, 20))
    (chunk,) = added.subscription.next()
    assert chunk.problem is not None and chunk.problem.type in ("delta-too-large", "reader-too-slow")
    left_nothing(engine)
    engine.close()


def test_changes_that_cannot_be_read(engine: Instance, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Followers are told that they are too large, and the view lives on."""

    def fail(*_: object) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(Difference, "_rows", fail)
    added = Added(engine, "v")
    added.catch_up()
    engine.apply(truncating(random.Random(7), "b"))
    (chunk,) = added.subscription.next()
    assert chunk.problem is not None and chunk.problem.type == "delta-too-large" and "could not be read" in caplog.text
    agrees(engine, "v")
    left_nothing(engine)


@pytest.mark.parametrize("name", ["absent", "left", "union"])
def test_more_rows_than_may_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Followers are told that the change is too large."""
    rng = random.Random(name)
    engine = filled(tmp_path, rng)
    engine.put_view("v", MORE[name], wait=60)
    monkeypatch.setattr(differences, "_MOST_READ", 5)
    added = Added(engine, "v")
    added.catch_up()
    engine.apply(truncating(rng, "b"))
    (chunk,) = added.subscription.next()
    assert chunk.problem is not None and chunk.problem.type == "delta-too-large"
    left_nothing(engine)
    engine.close()
