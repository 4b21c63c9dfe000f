"""What the engine does where there is no room: in an array, in memory, in the address space, on the disk at the end."""

from __future__ import annotations

import errno
import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

from service.durability.folder import FolderLock
from service.engine.versions import Version
from service.errors import Problem
from service.following.chunks import Chunk
from service.following.subscriptions import Subscription
from service.instance import Instance
from service.reading.cursors import open_relation_rows, open_rows
from service.views.live_view import LiveView
from structures.interval.tree import IntervalTree
from structures.rows.rows import RowStore
from tests.service.running import DEFINITION, PAIR, HeldWriter, batch, check, ids, look, of_ops, opened, parts, rows_of, running


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
        patch.setattr("service.engine.snapshotting.write_snapshot", fail)
        engine.close()
    assert engine.state == "closed" and [chunk.kind for chunk in follower.next()] == ["error"]
    FolderLock(tmp_path).release()
    engine = opened(tmp_path)
    assert engine.published.number == 1 and len(ids(open_rows(engine.readers, "v"))) == 9
    engine.close()


# address space


def test_a_relation_that_finds_no_address_space_is_refused(engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.tables.relations.Table", no_address_space)
        with pytest.raises(Problem) as caught:
            engine.put_relation("c", DEFINITION)
    assert caught.value.type == "no-room" and "c" not in engine.relations
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 1
    engine.close()
    engine = opened(tmp_path)
    assert set(engine.relations) == {"a", "b"}
    engine.close()


def test_a_view_that_finds_no_address_space_is_refused(engine: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("service.views.joins.overlap_join.IntervalTree", no_address_space)
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
        patch.setattr(LiveView, "make_room", lambda view, **how: no_address_space() if view.name == "v" else make_room(view, **how))
        engine = opened(tmp_path)
    assert (engine.views["v"].state, engine.views["w"].state) == ("failed", "live")
    with pytest.raises(Problem) as caught:
        open_rows(engine.readers, "v")
    assert caught.value.type == "view-failed"
    assert engine.apply(batch(("upsert", "a", rows_of(3, 1)))).version == 2 and len(ids(open_rows(engine.readers, "w"))) == 4
    engine.metrics()
    assert engine.views["v"].statistics()["intervals"] == 0
    engine.drop_view("v")
    assert engine.put_view("v", PAIR, wait=60)[1] == "created" and len(ids(open_rows(engine.readers, "v"))) == 12
    engine.close()


# more text than one array takes (2 GiB, here 1 MiB)


TEXTS: dict[str, Any] = {**PAIR, "select": ["a.id as i", "b.id as j", "a.tag as t"]}
LIMIT = 1 << 20


@pytest.fixture
def small_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    gather = RowStore.gather_text

    def gather_text(self: RowStore, column: int, slots: Any, lengths: Any) -> Any:
        if lengths.sum() >= LIMIT:
            raise OverflowError("more text than one array takes")
        return gather(self, column, slots, lengths)

    monkeypatch.setattr(RowStore, "gather_text", gather_text)
    monkeypatch.setattr("service.tables.store.PIECE_BYTES", LIMIT >> 2)
    monkeypatch.setattr("service.following.feeds._LARGEST_TEXT", LIMIT >> 1)


def followed(engine: Instance) -> Subscription:
    feed = engine.views["v"].feed
    assert feed is not None
    return feed.subscribe()


@pytest.mark.usefixtures("small_texts")
def test_a_long_text_with_many_partners(tmp_path: Path) -> None:
    engine = running(tmp_path, TEXTS)
    engine.apply(batch(("upsert", "b", rows_of(0, 300))))
    follower = followed(engine)
    engine.apply(batch(("upsert", "a", rows_of(1, 1, tag="x" * 10_000))))
    problem = follower.next()[-1].problem
    assert problem is not None and problem.type == "delta-too-large"
    follower = followed(engine)
    for step in range(2, 7):  # each fits, not all at once
        engine.apply(batch(("upsert", "a", rows_of(step, 1, tag="x" * 1000))))
    assert sum(chunk.rows.num_rows for _ in range(6) for chunk in follower.next() if chunk.rows is not None) == 1500
    engine.at_rest(lambda: None)
    assert engine.state == "ready" and len(ids(open_rows(engine.readers, "v"))) == 6 * 300
    engine.close()
    engine = opened(tmp_path)
    assert len(ids(open_rows(engine.readers, "v"))) == 6 * 300
    engine.close()


@pytest.mark.usefixtures("small_texts")
@pytest.mark.parametrize("op", ["truncate", "delete", "upsert"])
def test_a_batch_on_rows_with_much_text(tmp_path: Path, op: str) -> None:
    view = {"sql": "SELECT a.id AS i, b.id AS j, a.tag AS t FROM a, b WHERE a.x OVERLAPS b.x AND a.tag = b.tag AND a.tag <> 'nothing'"}
    engine = running(tmp_path, view)
    for first in range(0, 1000, 100):
        engine.apply(batch(("upsert", "a", rows_of(first, 100, tag="x" * 3000))))
    engine.apply(batch(("upsert", "b", rows_of(0, 1, tag="x" * 3000))))
    follower = followed(engine)
    engine.apply(batch((op, "a", rows_of(0, 1 if op == "truncate" else 1000, tag="y" if op == "upsert" else None))))
    problem = follower.next()[-1].problem
    assert problem is not None and problem.type == "delta-too-large"
    assert engine.state == "ready" and ids(open_rows(engine.readers, "v")) == []
    assert engine.put_view("w", view, wait=60)[0].state == "live"
    engine.close()


@pytest.mark.usefixtures("small_texts")
@pytest.mark.parametrize("op", ["<", "<>"])
def test_building_reading_and_saving_much_text(tmp_path: Path, op: str) -> None:
    engine = running(tmp_path, {})
    for first in range(0, 400, 10):
        engine.apply(batch(("upsert", "a", rows_of(first, 10, start=first // 20 * 2000, tag=f"{first % 20}" + "x" * 3000))))
    where = f"p.x OVERLAPS q.x AND p.tag {op} q.tag"
    view = {"sql": f"SELECT p.id AS i, q.id AS j, p.tag AS t FROM a AS p, a AS q WHERE {where}"}
    assert engine.put_view("v", view, wait=60)[0].state == "live"
    expected = 20 * 10 * 10 * (1 if op == "<" else 2)
    assert len(ids(open_rows(engine.readers, "v"))) == expected and len(ids(open_relation_rows(engine.readers, "a"))) == 400
    feed = engine.views["v"].feed
    assert feed is not None
    follower, rows = feed.subscribe(snapshot=True), 0
    while chunks := follower.next():
        rows += sum(chunk.rows.num_rows for chunk in chunks if chunk.rows is not None)
        assert all(chunk.problem is None for chunk in chunks)
    assert rows == expected
    engine.close()
    engine = opened(tmp_path)
    assert engine.snapshots.log_bytes == 0 and len(ids(open_rows(engine.readers, "v"))) == expected
    engine.close()


# a full array


def small_tree(*_: object) -> IntervalTree:
    return IntervalTree("pair", 60_000)


@pytest.mark.parametrize("full", ["tree", "slots", "texts", "codes"])
def test_a_full_array_refuses_the_batch_before_it_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str) -> None:
    if full == "tree":
        monkeypatch.setattr("service.views.joins.overlap_join._structure", small_tree)
    if full == "texts":
        monkeypatch.setattr("structures.rows.rows.HEAP_BYTES", 1 << 16)
    engine = running(tmp_path, {"sql": "SELECT a.id AS i, b.id AS j FROM a, b WHERE a.x OVERLAPS b.x AND a.tag = b.tag"})
    engine.apply(batch(("upsert", "a", rows_of(0, 50, tag="t")), ("upsert", "b", rows_of(0, 3, tag="t"))))
    before = ids(open_rows(engine.readers, "v"))
    rows = rows_of(0, 3000, start=7, tag="long" * 10)
    with monkeypatch.context() as patch:
        if full == "slots":
            patch.setattr(engine.relation("a").table._rows, "most", 1000)
        if full == "codes":
            domain = engine.views["v"].join.domain  # type: ignore[attr-defined]
            assert domain is not None
            patch.setattr(domain._rows, "used", (1 << 30) - 10)
        for _ in range(2):
            with pytest.raises(Problem) as caught:
                engine.apply(batch(("upsert", "a", rows)))
            assert caught.value.type == "no-room" and "nothing" in caught.value.detail
    assert engine.state == "ready" and ids(open_rows(engine.readers, "v")) == before
    assert engine.apply(batch(("upsert", "a", rows_of(0, 1, tag="t")))).version == 2
    assert ids(open_rows(engine.readers, "v")) == before
    check(engine)
    engine.close()


# what pins hold


def test_rows_that_pins_hold_count_and_are_given_up(tmp_path: Path) -> None:
    engine = running(tmp_path, pin_bytes=10 << 20, pin_idle=3600)
    readers = []
    for step in range(40):
        engine.apply(batch(("upsert", "a", rows_of(1, 1, tag=str(step) * 500_000))))
        readers.append(open_relation_rows(engine.readers, "a"))
        parts(engine).housekeeping._looked = float("inf")
    assert 39 * 500_000 <= engine.metrics()["retired_bytes"] <= 39 * 2 * 500_000 + (1 << 20)
    look(engine)
    assert engine.metrics()["retired_bytes"] <= 10 << 20
    with pytest.raises(Problem) as caught:
        readers[0].read(1)
    assert caught.value.type == "snapshot-expired" and len(ids(readers[-1])) == 1
    for reader in readers:
        reader.close()
    look(engine)
    assert engine.metrics()["retired_bytes"] == 0
    check(engine)
    engine.close()


def test_changes_that_nobody_reads_do_not_hold_rows(tmp_path: Path) -> None:
    engine = running(tmp_path, TEXTS)
    engine.apply(batch(("upsert", "a", rows_of(0, 50, tag="long" * 1000)), ("upsert", "b", rows_of(0, 1))))
    engine.apply(batch(("truncate", "a", rows_of(0, 1))))
    look(engine)
    assert engine.metrics()["retired_bytes"] == 0
    engine.close()


def test_a_dropped_view_gives_its_memory_back_at_once(tmp_path: Path) -> None:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 1))))
    ids(open_rows(engine.readers, "v"))
    tree = weakref.ref(engine.views["v"].join)
    gc.disable()
    try:
        engine.drop_view("v")
        engine.at_rest(lambda: None)
        assert tree() is None
    finally:
        gc.enable()
    engine.close()


# what waits


def test_batches_that_wait_are_bounded_by_their_bytes(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.engine.writer._WAITING_BYTES", 10_000)
    held, answers = HeldWriter(engine), []
    engine.submit(batch(("upsert", "a", rows_of(0, 1, tag="x" * 20_000))), answers.append)
    with pytest.raises(Problem) as caught:
        engine.submit(of_ops("a", ("upsert", 1)), answers.append)
    assert caught.value.type == "too-busy"
    held.release()
    engine.at_rest(lambda: None)
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 2 and len(answers) == 1


# snapshots that fail


def test_a_snapshot_that_failed_is_not_tried_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def fail(_: Path, version: int, *__: object) -> None:
        tried.append(version)
        raise OSError(errno.ENOSPC, "full")

    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 1000))))
    with monkeypatch.context() as patch:
        patch.setattr("service.engine.snapshotting.write_snapshot", fail)
        patch.setattr("service.engine.snapshotting._LOG_WORTH", 1)
        for _ in range(3):
            engine.at_rest(engine.snapshots.consider)
            engine.snapshots.wait()
        assert tried == [1]
        engine.snapshots._not_before = 0.0
        engine.at_rest(engine.snapshots.consider)
        engine.snapshots.wait()
        assert tried == [1, 1]
    engine.close()
    assert (tmp_path / "snapshots" / "1").is_dir()


# followers and readers


def test_a_follower_that_cannot_be_woken_is_passed_over(tmp_path: Path) -> None:
    engine = running(tmp_path)
    feed = engine.views["v"].feed
    assert feed is not None
    woken: list[int] = []
    feed.add_listener(lambda: 1 // 0 and None)
    feed.add_listener(lambda: woken.append(1))
    engine.apply(batch(("upsert", "a", rows_of(0, 1)), ("upsert", "b", rows_of(0, 1))))
    assert engine.apply(of_ops("a", ("upsert", 1))).version == 2 and woken
    engine.close()


def test_a_live_view_can_be_read(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, states = engine.versions.publish, []

    def slow(version: Version) -> None:
        states.append([view.state for view in engine.views.values() if view.id not in version.roots])
        publish(version)

    monkeypatch.setattr(engine.versions, "publish", slow)
    engine.put_view("v", PAIR, wait=60)
    assert states and all("live" not in unread for unread in states) and engine.views["v"].state == "live"
    assert engine.views["v"].id in engine.published.roots


def test_a_follower_at_the_head_makes_no_segment_a_version(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": 500}}, synchronous="normal")
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    feed = engine.views["v"].feed
    assert feed is not None
    early, head, tokens = feed.subscribe(), feed.subscribe(), []
    for step in range(300):
        op = "delete" if step % 3 == 2 else "upsert"
        engine.apply(batch((op, "a", rows_of(step - (step % 3 == 2), 1))))
        tokens.append(head.next()[-1].token)
    assert [segment.level for segment in feed.segments] == [0, 2, 1, 1, *[0] * 11] and feed._rows == 300, "the oldest is merged with none"

    def emitted(subscription: Subscription) -> list[tuple[int, str, Any]]:
        chunks: list[Chunk] = []
        while found := subscription.next():
            chunks += found
        return [(chunk.version, chunk.op, chunk.rows.column(0).to_pylist()) for chunk in chunks if chunk.rows is not None]

    wanted = [(step + 2, "delete" if step % 3 == 2 else "insert", [step - (step % 3 == 2)]) for step in range(300)]
    assert emitted(early) == wanted
    for step in (0, 62, 63, 64, 150, 298):
        assert emitted(feed.subscribe(tokens[step])) == wanted[step + 1 :]
    for step in range(300, 700):
        engine.apply(batch(("upsert", "a", rows_of(step, 1))))
        head.next()
    oldest = feed.segments[0]
    kept = sum(segment.bytes for segment in feed.segments) - oldest.starts[feed._first] * oldest.row_bytes
    assert feed._rows == 500 and feed._bytes == pytest.approx(kept) and max(segment.level for segment in feed.segments) == 2
    with pytest.raises(Problem):
        feed.subscribe(tokens[150])
    assert [version for version, _, _ in emitted(feed.subscribe(tokens[250]))] == list(range(253, 702))
    engine.close()


def test_what_a_follower_gets_at_once_is_bounded_in_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.following.chunks.CHUNK_BYTES", 100_000)
    monkeypatch.setattr("service.following.subscriptions.CHUNK_BYTES", 100_000)
    engine = running(tmp_path, TEXTS)
    follower = followed(engine)
    engine.apply(batch(("upsert", "a", rows_of(0, 400, tag="x" * 1000)), ("upsert", "b", rows_of(0, 1))))
    looks = []
    while chunks := follower.next():
        looks.append(sum(chunk.rows.num_rows for chunk in chunks if chunk.rows is not None))
    assert sum(looks) == 400 and max(looks) <= 200
    engine.close()
