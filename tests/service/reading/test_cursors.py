"""Readers: pages, cursors, pins that expire, windows and look-ups that are refused or go to an older version."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.schema import parse_relation
from service.engine.state import State
from service.engine.versions import Pins, Version
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import Cursor, RowReader, open_relation_rows, open_rows
from tests.service.running import DEFINITION, PAIR, Clock, HeldWriter, batch, counted, ids, is_empty, look, of_ops, opened, rows_of, running


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Instance]:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 5)), ("upsert", "b", rows_of(0, 4))))
    yield engine
    engine.close()


def refused(engine: Instance, name: str = "v", **asked: object) -> str:
    with pytest.raises(Problem) as caught:
        open_rows(engine.readers, name, **asked)  # type: ignore[arg-type]
    return caught.value.type


def test_pages_are_of_one_version_and_cursors_can_be_used_again(engine: Instance) -> None:
    expected = [(i, j) for i in range(5) for j in range(4)]
    reader = open_rows(engine.readers, "v")
    seen, tokens = [], []
    while (rows := reader.read(3)) is not None:
        seen += [tuple(row.values()) for row in rows.to_pylist()]
        tokens.append((len(seen), reader.token()))
        engine.apply(of_ops("a", ("delete", len(seen) % 5), ("upsert", 100 + len(seen))))
        reader.close()
        reader = open_rows(engine.readers, "v", cursor=tokens[-1][1])
        assert (reader.version, is_empty(reader)) == (1, False)
    assert sorted(seen) == expected
    for done, token in tokens:
        for _ in range(2):
            again = open_rows(engine.readers, "v", cursor=token, version=1)
            assert ids(again) == sorted(seen[done:])


def test_a_relations_pages(engine: Instance) -> None:
    reader = open_relation_rows(engine.readers, "a")
    first = reader.read(2)
    token = reader.token()
    engine.apply(batch(("delete", "a", rows_of(0, 5))))
    rest = ids(open_relation_rows(engine.readers, "a", cursor=token))
    assert first is not None and [row[0] for row in rest] == [2, 3, 4]
    assert first.schema.names == [column.name for column in DEFINITION.columns]
    reader = open_relation_rows(engine.readers, "a")
    assert is_empty(reader) and counted(reader) == 0 and reader.read(1) is None
    assert counted(open_relation_rows(engine.readers, "b")) == 4


def test_a_page_is_asked_for_again_whose_cursor_has_made_room(tmp_path: Path) -> None:
    engine = running(tmp_path, max_client_cursors=2)
    engine.apply(batch(("upsert", "a", rows_of(0, 5)), ("upsert", "b", rows_of(0, 4))))

    def page(cursor: str | None) -> str:
        reader = open_rows(engine.readers, "v", cursor=cursor)
        reader.read(3)
        token = reader.token()
        reader.close()
        return token

    first = cursor = page(None)
    for _ in range(4):
        cursor = page(cursor)
    assert refused(engine, cursor=first) == "snapshot-expired"
    again = page(None)
    assert counted(open_rows(engine.readers, "v", cursor=again)) == 17
    engine.close()


def test_counting_goes_on_from_a_cursor(engine: Instance) -> None:
    reader = open_rows(engine.readers, "v")
    reader.read(3)
    assert counted(open_rows(engine.readers, "v", cursor=reader.token())) == 17
    assert not is_empty(reader)


def test_cursors_of_others_are_refused(engine: Instance) -> None:
    engine.put_view("w", PAIR, wait=60)
    token = open_rows(engine.readers, "v").token()
    other = open_rows(engine.readers, "w").token()
    relation = open_relation_rows(engine.readers, "a").token()
    feed = engine.views["v"].feed
    assert feed is not None
    follower = str(feed.subscribe().idle_progress().token)
    for wrong in ("", "x", "ä", token[:-2], token.swapcase(), other, relation, follower):
        assert refused(engine, cursor=wrong) == "bad-cursor", wrong
    with pytest.raises(Problem, match="bad-cursor"):
        open_relation_rows(engine.readers, "b", cursor=relation)
    assert refused(engine, cursor=token, version=7) == "bad-parameter"
    assert refused(engine, cursor=token, window={"": ("1", "2")}) == "bad-parameter"


def test_cursors_from_before_a_restart_expire(engine: Instance, tmp_path: Path) -> None:
    token = open_rows(engine.readers, "v").token()
    engine.close()
    engine = opened(tmp_path)
    assert refused(engine, cursor=token) == "snapshot-expired"
    assert refused(engine, version=0) == "snapshot-expired"
    engine.put_view("w", PAIR, wait=60)
    assert refused(engine, "w", cursor=token) == "bad-cursor"
    engine.close()


def test_a_version_is_there_while_a_cursor_keeps_it(engine: Instance) -> None:
    reader = open_rows(engine.readers, "v")
    reader.token()
    engine.apply(batch(("delete", "a", rows_of(1, 4)), ("upsert", "b", rows_of(2, 4, start=5))))
    engine.apply(of_ops("a", ("upsert", 9)))
    assert ids(open_rows(engine.readers, "v", version=1)) == [(i, j) for i in range(5) for j in range(4)]
    assert ids(open_rows(engine.readers, "v", version=1, point=("a", {"id": "3"}))) == [(3, j) for j in range(4)]
    assert ids(open_rows(engine.readers, "v", version=1, point=("a", {"id": "9"}))) == []
    assert ids(open_rows(engine.readers, "v", version=1, point=("b", {"id": "2"}), window={"": ("2", "3")})) == [(i, 2) for i in range(5)]
    assert ids(open_rows(engine.readers, "v", point=("a", {"id": "3"}))) == []
    assert refused(engine, version=2) == "snapshot-expired"
    assert ids(open_rows(engine.readers, "v", version=3, point=("b", {"id": "5"}))) == [(0, 5)]


def test_a_held_version_has_the_views_that_were_registered_at_it(engine: Instance) -> None:
    first = open_rows(engine.readers, "v")
    first.read(1)
    engine.put_view("later", PAIR, wait=60)
    later = open_rows(engine.readers, "later")
    later.read(1)
    tokens = first.token(), later.token()
    engine.apply(batch(("upsert", "a", rows_of(900, 1))))
    assert all(tokens)
    for name in ("v", "later"):
        assert counted(open_rows(engine.readers, name, version=first.version)) == 20


def test_idle_pins_are_given_up() -> None:
    clock = Clock()
    pins = Pins(clock)
    pins.publish(Version(3, {}, {}))
    used, idle = pins.pin(), pins.pin()
    pins.publish(Version(5, {}, {}))
    assert pins.needed().views.tolist() == [3]
    clock.now += 50
    with pins.reading(used):
        clock.now += 50
        pins.expire_idle(60)
        assert not pins.is_held(idle) and pins.is_held(used)
    pins.expire_idle(60)
    assert pins.is_held(used) and pins.needed().views.tolist() == [3]
    clock.now += 61
    pins.expire_idle(60)
    assert len(pins) == 0 and pins.needed().views.tolist() == []
    with pytest.raises(Problem, match="snapshot-expired"), pins.reading(used):
        pass
    for lost in (lambda: pins.again(used), lambda: pins.pin(3)):
        with pytest.raises(Problem, match="snapshot-expired"):
            lost()
    pins.release(used)


def test_a_client_that_is_taking_a_page_keeps_its_version_and_the_next_cursor(engine: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a page that a client took a minute for ended in a cursor that was no longer good."""
    clock = Clock()
    monkeypatch.setattr(engine.versions, "_clock", clock)
    reader, other = open_rows(engine.readers, "v"), open_rows(engine.readers, "v")
    reader.read(1)
    token = reader.token()
    reader.read(1)
    unused = reader.token()
    for _ in range(3):
        clock.now += 50
        reader.touch()
        engine.readers.touch(token)
        engine.versions.expire_idle(60)
    reader.read(1)
    assert refused(engine, cursor=unused) == "snapshot-expired"
    with pytest.raises(Problem, match="snapshot-expired"):
        other.read(1)
    open_rows(engine.readers, "v", cursor=token).close()
    engine.readers.holdings.sweep()
    engine.readers.touch(unused)
    reader.close()
    reader.touch()
    assert len(engine.versions) == 1, "of the cursor"


def test_the_oldest_pin_goes_when_memory_is_short_but_not_under_a_reading() -> None:
    pins = Pins()
    held = []
    for number in (1, 2, 3):
        pins.publish(Version(number, {}, {}))
        held.append(pins.pin())
    with pins.reading(held[0]):
        assert pins.expire_oldest()
        assert pins.needed().views.tolist() == [1, 2, 3]
    assert pins.needed().views.tolist() == [2, 3]
    assert pins.expire_oldest() and not pins.expire_oldest()
    assert pins.is_held(held[2])


def test_who_reads_only_rows_holds_no_structures_of_views() -> None:
    """As snapshots and builds do. Nor can a view be read at a version that only they hold."""
    pins = Pins()

    def needed() -> list[list[int]]:
        _, rows, views = pins.needed()
        return [rows.tolist(), views.tolist()]

    pins.publish(Version(1, {"v": "root"}, {1: 7}))
    reader, snapshot = pins.pin(), pins.pin(rows_only=True)
    pins.publish(Version(2, {}, {}))
    with pins.holding() as version:
        pins.publish(Version(3, {}, {}))
        assert needed() == [[1, 2], [1]]
        with pytest.raises(Problem, match="snapshot-expired"):
            pins.pin(version)
        with pins.holding(rows_only=False):
            pins.publish(Version(4, {}, {}))
            assert needed() == [[1, 2, 3], [1, 3]]
        assert needed() == [[1, 2], [1]]
    late = pins.pin(1)
    assert (late.version.roots, late.version.counts) == ({"v": "root"}, {1: 7})
    pins.release(reader)
    assert needed() == [[1], [1]]
    pins.release(late)
    assert needed() == [[1], []]
    again = pins.again(snapshot)
    pins.release(snapshot)
    assert needed() == [[1], []] and len(pins) == 1
    assert pins.expire_oldest() and not pins.is_held(again)
    assert needed() == [[], []]


def read_on(reader: RowReader) -> str:
    with pytest.raises(Problem) as caught:
        reader.read(1)
    return caught.value.type


def test_readers_and_cursors_are_told_when_their_pin_is_gone(tmp_path: Path) -> None:
    engine = running(tmp_path, pin_bytes=1, pin_idle=3600)
    engine.apply(batch(("upsert", "a", rows_of(0, 500)), ("upsert", "b", rows_of(0, 4))))
    reader = open_rows(engine.readers, "v")
    reader.read(1)
    token = reader.token()
    relation = open_relation_rows(engine.readers, "a")
    engine.apply(batch(("upsert", "a", rows_of(0, 500, start=3))))
    young = open_rows(engine.readers, "v")
    look(engine)
    assert read_on(reader) == read_on(relation) == refused(engine, cursor=token) == "snapshot-expired"
    with pytest.raises(Problem, match="snapshot-expired"):
        reader.token()
    assert len(ids(young)) == 2000
    look(engine)
    assert engine.readers.holdings.count(Cursor) == 0 and len(engine.versions) == 0
    engine.close()


def test_a_pin_is_not_to_blame_while_deltas_wait_to_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path, pin_bytes=1, pin_idle=3600)
    engine.apply(batch(("upsert", "a", rows_of(0, 500)), ("upsert", "b", rows_of(0, 4))))
    reader = open_rows(engine.readers, "v")
    with monkeypatch.context() as behind:
        behind.setattr(State, "is_behind", True)
        engine.apply(batch(("upsert", "a", rows_of(0, 500, start=3))))
        look(engine)
        assert reader.read(1) is not None
    look(engine)
    assert read_on(reader) == "snapshot-expired"
    engine.close()


def test_an_old_pin_holds_its_own_version_only(tmp_path: Path) -> None:
    engine = running(tmp_path, {**PAIR, "changes": False})
    engine.apply(batch(("upsert", "a", rows_of(0, 2000)), ("upsert", "b", rows_of(0, 1))))
    reader = open_rows(engine.readers, "v")
    sizes = []
    for i in range(60):
        engine.apply(batch(("upsert", "a", rows_of(0, 2000, start=i))))
        sizes.append(engine.at_rest(lambda: engine.views["v"].retired_bytes))
    assert max(sizes[30:]) <= 2 * max(sizes[:30])  # what the last version has replaced may still wait for its turn
    assert len(ids(reader)) == 2000
    engine.close()


def test_wrong_windows_and_look_ups(engine: Instance) -> None:
    assert refused(engine, "nothing") == "not-found"
    for window in (("x", None), ("3", "2"), (None, "1.5"), ("9" * 30, None)):
        assert refused(engine, window={"": window}) == "bad-parameter", window
    assert refused(engine, window={"": ("1", "2"), "x": ("1", "9")}) == "bad-parameter", "one of them would be forgotten"
    for point in (("z", {"id": "1"}), ("a", {"s": "1"}), ("a", {}), ("a", {"id": "one"}), ("a", {"id": "1", "s": "1"})):
        assert refused(engine, point=point) == "bad-parameter", point
    engine.put_view("list", {"from": {"a": "a"}}, wait=60)
    assert refused(engine, "list", window={"": ("1", "2")}) == "bad-parameter"
    assert len(ids(open_rows(engine.readers, "v", window={"": (None, None)}))) == 20
    with pytest.raises(Problem, match="not-found"):
        open_relation_rows(engine.readers, "nothing")


def test_a_window_that_fits_one_kind_of_intervals_names_them_all(engine: Instance) -> None:
    columns = [{"name": "id", "type": "int64"}, {"name": "n", "type": "int64"}, {"name": "d", "type": "date"}]
    definition = {"columns": columns, "key": ["id"], "intervals": {"number": {"at": "n"}, "day": {"at": "d"}}}
    engine.put_relation("plan", parse_relation(definition))
    overlaps = [{"overlaps": [f"x.{interval}", f"y.{interval}"]} for interval in ("number", "day")]
    engine.put_view("box", {"from": {"x": "plan", "y": "plan"}, "join": overlaps}, wait=60)
    for window in ("1", "2026-01-01"):
        with pytest.raises(Problem, match=r"kinds of intervals; give a window for each: overlaps\.day=lo,hi, overlaps\.number=lo,hi"):
            open_rows(engine.readers, "box", window={"": (window, None)})
    with pytest.raises(Problem, match="expected a date such as 2026-01-01$"):
        open_rows(engine.readers, "box", window={"day": ("1", None)})


def test_readers_of_what_is_dropped_read_on(engine: Instance) -> None:
    reader, relation = open_rows(engine.readers, "v"), open_relation_rows(engine.readers, "a")
    token = reader.token()
    engine.drop_view("v")
    engine.drop_relation("a")
    engine.put_relation("a", DEFINITION)
    engine.put_view("v", PAIR, wait=60)
    assert len(ids(reader)) == 20 and len(ids(relation)) == 5
    assert refused(engine, cursor=token) == "bad-cursor"
    (cursor,) = engine.readers.holdings.of(Cursor)
    assert cursor.state is None and engine.versions.is_held(cursor.pin), "its version is kept, not the memory of the view"
    assert ids(open_rows(engine.readers, "v")) == []


def test_readers_beside_the_writer_see_whole_versions(tmp_path: Path) -> None:
    """Every version replaces every row: a torn reading would mix tags."""
    engine = running(tmp_path, {**PAIR, "select": ["a.tag as t", "b.id as j"]})
    engine.apply(batch(("upsert", "a", rows_of(0, 300, tag="1")), ("upsert", "b", rows_of(0, 4))))
    over, wrong, seen = threading.Event(), [], set()

    def read(size: int) -> None:
        while not over.is_set():
            reader = open_rows(engine.readers, "v")
            rows = ids(reader) if size == 0 else [(row["t"],) for row in chunks_of(reader, size)]
            seen.add(reader.version)
            if len(rows) != 1200 or {row[0] for row in rows} != {str(reader.version)}:
                wrong.append((reader.version, len(rows), {row[0] for row in rows}))

    threads = [threading.Thread(target=read, args=(size,)) for size in (0, 50, 7)]
    for thread in threads:
        thread.start()
    for version in range(2, 150):
        engine.apply(batch(("upsert", "a", rows_of(0, 300, tag=str(version)))))
    over.set()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(seen) > 1
    engine.close()


def chunks_of(reader: RowReader, size: int) -> Iterator[dict[str, object]]:
    while (rows := reader.read(size)) is not None:
        yield from rows.to_pylist()
    reader.close()


def test_figures_that_are_asked_for_while_a_run_is_applied_leave_the_root_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any thread asks for them, even while a kernel runs: the root that it found then was once published as the new version's."""
    engine = running(tmp_path)
    view = engine.view("v")
    tree = view.join.tree  # type: ignore[attr-defined]
    change = tree.apply

    def asked(*given: Any) -> Any:
        view.statistics()
        return change(*given)

    monkeypatch.setattr(tree, "apply", asked)
    engine.apply(of_ops("a", ("upsert", 1), ("upsert", 2)))
    held = HeldWriter(engine)
    for number in (3, 4):
        held.submit(of_ops("b", ("upsert", number)))
    held.release()
    engine.at_rest(lambda: None)
    assert engine.published.roots[view.id].root == tree.root
    assert ids(open_rows(engine.readers, "v")) == [(1, 3), (1, 4), (2, 3), (2, 4)]
    engine.close()


@pytest.mark.parametrize(
    "less",
    [
        [["x.tag", "y.tag"], ["y.tag", "z.tag"]],  # by intervals in one set, in order of a column that is not the key
        [["x.tag", "y.tag"], ["x.tag", "z.tag"]],
    ],
)
def test_a_live_structure_of_no_rows(tmp_path: Path, less: list[list[str]]) -> None:
    """Combinations that a comparison drops are no rows, though the structure has them."""
    overlaps = [{"overlaps": [f"{one}.x", f"{other}.x"]} for one, other in ("xy", "yz", "xz")]
    join = [*overlaps, *({"less": pair} for pair in less)]
    engine = running(tmp_path, {"from": dict.fromkeys("xyz", "a"), "join": join, "select": ["x.id as i", "y.id as j", "z.id as k"]})
    engine.apply(batch(("upsert", "a", rows_of(0, 3, tag="t"))))
    assert is_empty(open_rows(engine.readers, "v"))
    engine.apply(batch(("upsert", "a", rows_of(3, 1, tag="u"))))
    engine.apply(batch(("upsert", "a", rows_of(4, 1, tag="v"))))
    assert not is_empty(open_rows(engine.readers, "v"))
    engine.close()
