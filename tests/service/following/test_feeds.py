"""Followers: tokens, bounds, slow readers, snapshots under way, dropped views."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.engine.queued import QueuedBatch
from service.errors import Problem
from service.following.chunks import CHUNK_ROWS, Chunk
from service.following.feeds import Feed
from service.following.subscriptions import Subscription
from service.instance import Instance
from tests.service.running import DEFINITION, PAIR, batch, keep_house, kill, look, of_ops, opened, parts, rows_of, running
from tests.waiting import HeldCall


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path)
    yield engine
    engine.close()


def feed(engine: Instance, name: str = "v") -> Feed:
    found = engine.views[name].feed
    assert found is not None
    return found


def all_of(subscription: Subscription) -> list[Chunk]:
    chunks: list[Chunk] = []
    while found := subscription.next():
        chunks += found
    return chunks


def replayed(chunks: list[Chunk], rows: set[Any], keys: Sequence[str] = ("a.id", "b.id")) -> set[Any]:
    for chunk in chunks:
        if chunk.kind == "rows":
            assert chunk.rows is not None and chunk.keys is not None
            assert chunk.keys.schema.names == [*keys]
            part = {tuple(row.values()) for row in chunk.rows.to_pylist()}
            assert part.isdisjoint(rows) if chunk.op == "insert" else part <= rows
            rows = rows | part if chunk.op == "insert" else rows - part
    return rows


def refused(engine: Instance, token: str, name: str = "v") -> str:
    with pytest.raises(Problem) as caught:
        feed(engine, name).subscribe(token)
    return caught.value.type


def test_deletes_come_before_inserts_and_a_progress_closes(engine: Instance) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 1))))
    subscription = feed(engine).subscribe()
    engine.apply(batch(("delete", "a", rows_of(0, 1)), ("upsert", "b", rows_of(1, 1))))
    chunks = all_of(subscription)
    assert [(chunk.kind, chunk.op) for chunk in chunks] == [("rows", "delete"), ("rows", "insert"), ("progress", "")]
    assert {chunk.version for chunk in chunks} == {2}
    assert replayed(chunks, {(0, 0), (1, 0), (2, 0)}) == {(1, 0), (2, 0), (1, 1), (2, 1)}


def test_what_the_view_does_not_use_is_no_change(engine: Instance) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 2))))
    subscription = feed(engine).subscribe()
    engine.apply(batch(("upsert", "a", rows_of(0, 3, tag="new"))))
    engine.apply(batch(("upsert", "b", rows_of(0, 2, length=999)), ("upsert", "a", rows_of(0, 3, start=1))))
    assert subscription.next() == []
    assert subscription.idle_progress().version == engine.published.number == 3
    engine.apply(batch(("upsert", "b", rows_of(1, 1, start=5000))))
    assert replayed(all_of(subscription), {(i, j) for i in range(3) for j in range(2)}) == {(i, 0) for i in range(3)}


def test_tokens_of_others_are_refused(engine: Instance, tmp_path: Path) -> None:
    token = feed(engine).subscribe().idle_progress().token
    assert token is not None
    engine.put_view("w", {**PAIR, "select": ["a.id as i"]}, wait=60)
    other = feed(engine, "w").subscribe().idle_progress().token
    assert other is not None
    for wrong in ("", "x", "ä", "A" * 40, token[:-2], token + "AAAA", token.swapcase(), other):
        assert refused(engine, wrong) == "bad-token", wrong
    engine.drop_view("v")
    engine.put_view("v", PAIR, wait=60)
    assert refused(engine, token) == "bad-token"
    elsewhere = running(tmp_path / "elsewhere")
    assert refused(elsewhere, token) == "bad-token"
    elsewhere.close()


def killed(engine: Instance, folder: Path) -> Instance:
    """Kill the service, and start it again."""
    kill(engine)
    return opened(folder)


@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_tokens_survive_a_restart(engine: Instance, tmp_path: Path, clean: bool) -> None:
    quiet = feed(engine).subscribe().idle_progress().token
    assert quiet is not None
    engine.put_view("w", PAIR, wait=60)
    subscription = feed(engine).subscribe()
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    for i in range(4):
        engine.apply(of_ops("a", ("upsert", i)))
    engine.apply(of_ops("a", ("delete", 2)))
    before = all_of(subscription)
    tokens = [chunk.token for chunk in before if chunk.token]
    if clean:
        engine.close()
    engine = opened(tmp_path) if clean else killed(engine, tmp_path)
    engine.apply(of_ops("a", ("upsert", 9)))
    for position, token in enumerate([quiet, *tokens]):
        after = all_of(feed(engine).subscribe(token))
        assert [chunk.version for chunk in after if chunk.kind == "progress"] == [*range(2 + position, 8)], token
        assert refused(engine, token, "w") == "bad-token"
    mine = [(c.version, c.op, c.keys, c.rows) for c in all_of(feed(engine).subscribe(quiet)) if c.kind == "rows" and c.version < 7]
    assert mine == [(c.version, c.op, c.keys, c.rows) for c in before if c.kind == "rows"]
    engine.drop_view("v")
    engine.put_view("v", PAIR, wait=60)
    engine.close()
    engine = opened(tmp_path)
    assert refused(engine, quiet) == refused(engine, tokens[-1]) == "bad-token", "it is another view by now"
    engine.close()


def test_older_changes_are_dropped_and_their_tokens_expire(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": 5, "retain_bytes": 1 << 20}})
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    subscription, slow = feed(engine).subscribe(), feed(engine).subscribe()
    tokens = []
    for i in range(12):
        engine.apply(of_ops("a", ("upsert", i)))
        tokens += [chunk.token for chunk in all_of(subscription) if chunk.token]
    assert len(tokens) == 12
    for position, token in enumerate(tokens):
        if position < 12 - 6:
            assert refused(engine, token) == "token-expired"
        else:
            assert len([c for c in all_of(feed(engine).subscribe(token)) if c.kind == "progress"]) == 11 - position
    chunks = slow.next()
    assert [(chunk.kind, chunk.problem and chunk.problem.type) for chunk in chunks] == [("error", "reader-too-slow")]
    assert slow.ended and slow.next() == []
    assert chunks[0].token is not None and refused(engine, chunks[0].token) == "token-expired"
    engine.close()


def test_the_bound_in_bytes(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": 10**6, "retain_bytes": 40_000}})
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    follower = feed(engine).subscribe()
    token = None
    for i in range(6):
        engine.apply(batch(("upsert", "a", rows_of(1000 * i, 300))))
        token = token or next(chunk.token for chunk in all_of(follower) if chunk.token)
    assert token is not None and refused(engine, token) == "token-expired"
    follower = feed(engine).subscribe()
    engine.apply(batch(("upsert", "a", rows_of(50_000, 3000))))
    assert [chunk.problem.type for chunk in follower.next() if chunk.problem] == ["delta-too-large"]
    engine.close()


def test_a_quiet_views_token_stays_good(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": 3, "retain_bytes": 1000}})
    token = feed(engine).subscribe().idle_progress().token
    for i in range(700):
        engine.apply(of_ops("a", ("upsert", i % 5)))
    subscription = feed(engine).subscribe(token)
    assert subscription.next() == []
    idle = subscription.idle_progress()
    assert idle.version == 700
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    assert [c.problem and c.problem.type for c in all_of(feed(engine).subscribe())] == []
    assert subscription.next()[0].problem is not None  # five rows, three are kept
    engine.close()


def test_a_delta_that_is_too_large_cuts_the_feed(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": 20, "retain_bytes": 1 << 20}})
    engine.apply(batch(("upsert", "b", rows_of(0, 1)), ("upsert", "a", rows_of(0, 2))))
    subscription = feed(engine).subscribe()
    token = subscription.idle_progress().token
    assert token is not None
    engine.apply(batch(("upsert", "a", rows_of(0, 30))))
    (chunk,) = subscription.next()
    assert chunk.problem is not None and chunk.problem.type == "delta-too-large"
    assert chunk.token == token or refused(engine, str(chunk.token)) == "token-expired"
    assert refused(engine, token) == "token-expired"
    again = feed(engine).subscribe(snapshot=True)
    assert replayed(all_of(again), set()) == {(i, 0) for i in range(30)}
    engine.apply(batch(("delete", "a", rows_of(3, 27))))
    assert again.next()[0].problem is not None
    engine.apply(of_ops("a", ("delete", 0)))
    engine.close()


def test_candidates_that_cancel_do_not_count(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": {"retain_rows": 20, "retain_bytes": 1 << 20}})
    engine.apply(batch(("upsert", "b", rows_of(0, 1)), ("upsert", "a", rows_of(0, 500))))
    subscription = feed(engine).subscribe()
    engine.apply(batch(("upsert", "b", rows_of(0, 1, length=900))))
    assert subscription.next() == []
    engine.close()


def test_unsettled_changes_keep_their_rows(engine: Instance) -> None:
    """Slots of deleted rows are reused as soon as nothing needs them."""
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    subscription = feed(engine).subscribe()
    rows: set[Any] = set()
    for i in range(900):
        engine.apply(of_ops("a", ("upsert", i), ("delete", i - 1)))
        if i % 300 == 250:
            rows = replayed(all_of(subscription), rows)
            assert rows == {(i, 0)}
    assert replayed(all_of(subscription), rows) == {(899, 0)}
    assert engine.relations["a"].table.rows == 1
    slots, _ = engine.relations["a"].table.scan(engine.published.number, 0, 10)
    assert slots.max() < 600


def test_a_snapshot_loses_nothing_while_the_view_changes(engine: Instance) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 400)), ("upsert", "b", rows_of(0, 100))))
    subscription = feed(engine).subscribe(snapshot=True)
    chunks = subscription.next()
    assert chunks[0].rows is not None and 0 < chunks[0].rows.num_rows <= CHUNK_ROWS
    assert subscription.idle_progress().token is None
    engine.apply(batch(("delete", "a", rows_of(0, 200)), ("upsert", "b", rows_of(100, 10))))
    engine.apply(batch(("upsert", "a", rows_of(100, 10))))
    chunks += all_of(subscription)
    versions = [chunk.version for chunk in chunks if chunk.kind == "progress"]
    assert versions == [1, 2, 3]
    assert replayed(chunks, set()) == {(i, j) for i in [*range(100, 110), *range(200, 400)] for j in range(110)}


def test_a_large_version_comes_in_pieces(engine: Instance) -> None:
    engine.apply(batch(("upsert", "a", rows_of(0, 300))))
    subscription = feed(engine).subscribe()
    engine.apply(batch(("upsert", "b", rows_of(0, 200))))
    first = subscription.next()
    assert sum(chunk.rows.num_rows for chunk in first if chunk.rows is not None) == CHUNK_ROWS
    assert subscription.idle_progress().version == 1
    chunks = first + all_of(subscription)
    assert [chunk.kind for chunk in chunks] == ["rows"] * 4 + ["progress"]
    assert len(replayed(chunks, set())) == 60_000


def test_followers_of_a_dropped_view_are_told(engine: Instance) -> None:
    old, subscription = feed(engine), feed(engine).subscribe()
    engine.drop_view("v")
    assert [chunk.problem.type for chunk in subscription.next() if chunk.problem] == ["not-found"]
    assert subscription.ended
    with pytest.raises(Problem, match="dropped"):
        old.subscribe()


def test_followers_are_woken(engine: Instance) -> None:
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    rung = threading.Event()
    number = feed(engine).add_listener(rung.set)
    subscription = feed(engine).subscribe()
    engine.apply(of_ops("a", ("upsert", 1)))
    assert rung.is_set() and [chunk.kind for chunk in subscription.next()] == ["rows", "progress"]
    feed(engine).remove_listener(number)
    rung.clear()
    engine.apply(of_ops("a", ("upsert", 2)))
    assert not rung.is_set()
    assert feed(engine).subscribers == 1
    subscription.close()
    assert feed(engine).subscribers == 0


def test_nobody_follows_a_view_without_changes(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": False})
    engine.apply(batch(("upsert", "b", rows_of(0, 1)), ("upsert", "a", rows_of(0, 2))))
    engine.apply(batch(("upsert", "a", rows_of(1, 2))))
    assert engine.views["v"].feed is None
    engine.close()


def test_a_value_that_stays_nan_is_no_change(tmp_path: Path) -> None:
    columns = [*DEFINITION.to_json()["columns"], {"name": "w", "type": "float64", "nullable": True}]
    engine = running(tmp_path, {})
    definition = parse_relation(DEFINITION.to_json() | {"columns": columns})
    engine.put_relation("c", definition)
    engine.put_view("v", {"from": {"a": "c", "b": "b"}, "join": [{"overlaps": ["a.x", "b.x"]}], "select": ["a.w as w"]}, wait=60)
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    subscription = feed(engine).subscribe()

    def put(length: int, *weights: float | None) -> list[Any]:
        rows = rows_of(0, len(weights), length=length).append_column("w", pa.array(weights, pa.float64()))
        made = batch(("upsert", "c", rows))
        made.changes[0].definition = definition
        engine.apply(made)
        return [chunk.rows.column(0).to_pylist() for chunk in all_of(subscription) if chunk.rows is not None]

    nan = float("nan")
    put(1, nan, None, 0.0)
    assert put(2, nan, None, 0.0) == []
    assert [sorted(map(repr, values)) for values in put(3, nan, nan, -0.0)] == [["0.0", "None"], ["-0.0", "nan"]]
    assert put(3, nan, nan, -0.0) == []
    engine.close()


def test_nobody_waits_while_rows_are_gathered(engine: Instance) -> None:
    """Changes come, are dropped and are asked for while those before them are being gathered."""
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    found = feed(engine)
    subscription = found.subscribe()
    held = found.gather = HeldCall(found.gather)
    engine.apply(batch(("upsert", "a", rows_of(0, 3))))
    emitted: list[Chunk] = []
    reader = threading.Thread(target=lambda: emitted.extend(all_of(subscription)))
    reader.start()
    assert held.begun.wait(60)
    first = engine.published.number
    assert found.floor() == first - 1
    for start in (3, 6, 9):
        engine.apply(batch(("upsert", "a", rows_of(start, 3))))
    assert found.quiet_until(first) == first and found.floor() == first - 1
    held.go.set()
    reader.join(60)
    assert [chunk.version for chunk in emitted if chunk.kind == "progress"] == list(range(first, first + 4))
    assert len(replayed(emitted, set())) == 12
    assert found.floor() is None


@pytest.mark.parametrize("kept", [0, 2])
def test_what_is_dropped_while_it_is_gathered_stays_dropped(engine: Instance, kept: int) -> None:
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    found = feed(engine)
    start = engine.published.number
    subscription = found.subscribe()
    for at in range(4):
        engine.apply(batch(("upsert", "a", rows_of(3 * at, 3))))
    gather = found.gather

    def meanwhile(slots: Any) -> Any:
        with found._lock:
            found._drop_up_to(start + 4 - kept)
        return gather(slots)

    found.gather = meanwhile
    chunks = subscription.next()
    assert [chunk.kind for chunk in chunks] == ["error"] and chunks[0].problem is not None and chunks[0].problem.type == "reader-too-slow"
    later = found.subscribe(found.token(start + 4 - kept))
    assert [chunk.version for chunk in all_of(later) if chunk.kind == "progress"] == list(range(start + 5 - kept, start + 5))
    assert found._rows == 3 * kept and found._pending.rows == 0


def test_the_writer_settles_some_thousand_rows_at_a_time(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.following.feeds._PENDING_ROWS", 7)
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    found = feed(engine)
    subscription = found.subscribe()
    gather, pieces = found.gather, []

    def counting(slots: Any) -> Any:
        pieces.append(len(slots[0]))
        return gather(slots)

    found.gather = counting

    def changes() -> None:
        for at in range(6):
            parts(engine).writer._commit([QueuedBatch(batch(("upsert", "a", rows_of(3 * at, 3))), lambda answer: None, 0)])
        parts(engine).writer._commit([QueuedBatch(batch(("upsert", "a", rows_of(100, 30))), lambda answer: None, 0)])
        while found.housekeep(engine.published.number, True):
            pass

    engine.at_rest(changes)
    assert pieces == [6, 6, 6, 30] and found.floor() is None
    assert len(replayed(all_of(subscription), set())) == 48


def test_a_long_version_is_settled_in_a_thread(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.following.feeds._LONG_ROWS", 10)
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    found = feed(engine)
    subscription = found.subscribe()
    held = found.gather = HeldCall(found.gather)
    engine.apply(batch(("upsert", "a", rows_of(0, 11))))
    look(engine)
    assert held.begun.wait(60) and found.floor() == engine.published.number - 1
    engine.apply(of_ops("a", ("upsert", 100)))
    look(engine)
    held.go.set()
    assert len(replayed(all_of(subscription), set())) == 12
    assert held.threads[0] == "settle" and found.floor() is None


def test_a_view_is_dropped_while_its_rows_are_gathered(engine: Instance) -> None:
    engine.apply(batch(("upsert", "b", rows_of(0, 1))))
    found = feed(engine)
    subscription = found.subscribe()
    held = found.gather = HeldCall(found.gather)
    engine.apply(batch(("upsert", "a", rows_of(0, 3))))
    emitted: list[Chunk] = []
    reader = threading.Thread(target=lambda: emitted.extend(subscription.next()))
    reader.start()
    assert held.begun.wait(60)
    engine.drop_view("v")  # does not wait
    assert not held.go.is_set()
    held.go.set()
    reader.join(60)
    assert [chunk.problem.type for chunk in emitted if chunk.problem is not None] == ["not-found"] and len(emitted) == 1


def test_what_groups_have_not_settled_keeps_no_rows_of_relations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their deltas are rows of their own, of which there are as many as are emitted: they are settled by the thousand, however old."""
    monkeypatch.setattr("service.following.feeds._PENDING_VERSIONS", 4)
    monkeypatch.setattr("service.engine.housekeeping._WORTH_RECLAIMING", 1)
    monkeypatch.setattr("service.engine.housekeeping._RATE", 1e9)
    engine = running(tmp_path, {})
    engine.put_view("v", {"sql": "SELECT s AS s, COUNT(*) AS c FROM a GROUP BY s"}, wait=60)
    found = feed(engine)
    subscription, start = found.subscribe(), engine.published.number
    for at in range(40):
        engine.apply(batch(("upsert", "a", rows_of(0, 2, start=at))))
    keep_house(engine)
    assert found.floor() == start and found.kept_rows == 79
    assert engine.relations["a"].table.retired_bytes == 0
    engine.at_rest(lambda: found.housekeep(engine.published.number, True))
    assert found.floor() is None
    assert replayed(all_of(subscription), set(), ["group.s"]) == {(39, 2)}
    engine.close()
