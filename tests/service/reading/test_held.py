"""Readings in parts: how long they hold their version, what they count as, and which parts there are."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from service.reading.held import HeldReading, begin_reading, find_reading
from tests.service.engine.test_engine import read_all
from tests.service.running import DEFINITION, PAIR, batch, counted, ids, in_parts, look, of_ops, rows_of, running


def filled(folder: Path, **settings: object) -> Instance:
    engine = running(folder, **settings)
    engine.apply(batch(("upsert", "a", rows_of(0, 500)), ("upsert", "b", rows_of(0, 4))))
    return engine


def reads(engine: Instance, cursor: str) -> int | str:
    """How many rows follow, or the problem."""
    try:
        reader = open_rows(engine.readers, "v", cursor=cursor)
    except Problem as problem:
        return problem.type
    found = counted(reader)
    reader.close()
    return found


def test_a_reading_holds_its_version_though_nobody_reads(tmp_path: Path) -> None:
    """Another cursor is forgotten meanwhile; a part can be read again."""
    engine = filled(tmp_path, pin_idle=20)
    now = 100.0
    engine.versions._clock = lambda: now
    engine.readers.holdings.clock = lambda: now
    held = begin_reading(engine.readers, "v", 4, 50, None, "somebody")
    page = open_rows(engine.readers, "v")
    page.read(1)
    other = page.token()
    engine.apply(batch(("delete", "a", rows_of(0, 300))))
    now = 130.0
    look(engine)
    assert reads(engine, other) == "snapshot-expired"
    for _ in range(2):
        assert [reads(engine, cursor) for cursor in held.cursors] == [500] * 4
    now = 149.0
    look(engine)
    assert engine.readers.holdings.count(HeldReading) == 1 and reads(engine, held.cursors[3]) == 500
    now = 150.0
    look(engine)
    assert engine.readers.holdings.count(HeldReading) == 0 and {reads(engine, cursor) for cursor in held.cursors} == {"snapshot-expired"}
    assert len(engine.versions) == 0
    engine.close()


def test_what_old_versions_may_take_ends_a_reading_too(tmp_path: Path) -> None:
    engine = filled(tmp_path, pin_bytes=1)
    held = begin_reading(engine.readers, "v", 4, 3600, None, "somebody")
    engine.apply(batch(("upsert", "a", rows_of(0, 500, start=3))))
    look(engine)
    assert {reads(engine, cursor) for cursor in held.cursors} == {"snapshot-expired"}
    look(engine)
    assert engine.readers.holdings.count(HeldReading) == 0
    engine.close()


def test_the_parts_are_cursors_of_the_client_that_make_room_for_none(tmp_path: Path) -> None:
    engine = filled(tmp_path, max_client_cursors=5)
    held = begin_reading(engine.readers, "v", 4, 3600, None, "somebody")
    with pytest.raises(Problem, match="too-busy"):
        begin_reading(engine.readers, "v", 4, 3600, None, "somebody")
    assert len(engine.versions) == 5, "nothing is left of what was refused"
    cursor, found = held.cursors[0], 0
    for _ in range(20):
        reader = open_rows(engine.readers, "v", cursor=cursor)
        reader.client = "somebody"
        rows = reader.read(7)
        assert rows is not None
        found += rows.num_rows  # on a busy machine fewer, as a reading has a limit of time
        cursor = reader.token()
        reader.close()
    assert [reads(engine, cursor) for cursor in (*held.cursors, cursor)] == [500, 500, 500, 500, 500 - found]
    begin_reading(engine.readers, "v", 4, 3600, None, "somebody else")
    engine.readers.holdings.release(held)
    engine.readers.holdings.release(held)
    begin_reading(engine.readers, "v", 4, 3600, None, "somebody")
    with pytest.raises(Problem, match="not-found"):
        find_reading(engine.readers, held.id)
    engine.close()


def test_a_cursor_at_the_beginning_of_a_part_does_not_replace_it(tmp_path: Path) -> None:
    """A page may end at a limit of time before its first row; the part was then forgotten with the client's cursors."""
    engine = filled(tmp_path, max_client_cursors=5)
    held = begin_reading(engine.readers, "v", 4, 3600, None, "somebody")
    reader = open_rows(engine.readers, "v", cursor=held.cursors[0])
    reader.client = "somebody"
    cursor = reader.token()
    assert cursor != held.cursors[0]
    reader.close()
    for _ in range(3):
        reader = open_rows(engine.readers, "v", cursor=cursor)
        reader.client = "somebody"
        while not reader.skip(1):  # on a busy machine there may be none yet
            pass
        cursor = reader.token()
        reader.close()
    assert [reads(engine, cursor) for cursor in held.cursors] == [500, 500, 500, 500]
    engine.readers.holdings.release(held)
    engine.close()


def test_parts_that_were_read_to_their_ends_make_room(tmp_path: Path) -> None:
    """Spark tells nobody when it is done with what it reads: 125 loads within ten minutes took all cursors of a client."""
    engine = filled(tmp_path, max_client_cursors=8)
    first = begin_reading(engine.readers, "v", 8, 3600, None, "somebody")
    for _ in range(3):
        assert sum(map(reads, [engine] * 8, first.cursors)) == 2000, "as long as nobody needs the room"  # type: ignore[arg-type]
    for _ in range(3):
        held = begin_reading(engine.readers, "v", 8, 3600, None, "somebody")
        assert sum(map(reads, [engine] * 8, held.cursors)) == 2000  # type: ignore[arg-type]
    assert {reads(engine, cursor) for cursor in first.cursors} == {"snapshot-expired"}
    open_rows(engine.readers, "v", cursor=held.cursors[7]).close()
    with pytest.raises(Problem, match="nor read a part to its end"):
        begin_reading(engine.readers, "v", 8, 3600, None, "somebody")
    assert 0 < int(reads(engine, held.cursors[7])) < 2000, "one that is read again stays until it is read"
    assert begin_reading(engine.readers, "v", 1, 3600, first.version, "somebody").version == first.version, (
        "the version is held all the same"
    )
    engine.close()


def test_an_earlier_version_is_read_if_somebody_holds_it(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    first = begin_reading(engine.readers, "v", 1, 3600, None, "somebody")
    engine.apply(of_ops("b", ("delete", 0)))
    second = begin_reading(engine.readers, "v", 3, 3600, first.version, "somebody")
    assert second.version == first.version and sum(reads(engine, cursor) for cursor in second.cursors) == 2000  # type: ignore[misc]
    engine.put_view("later", PAIR, wait=60)
    with pytest.raises(Problem, match="older than the view"):
        begin_reading(engine.readers, "later", 3, 3600, first.version, "somebody")
    engine.readers.holdings.release(first)
    engine.readers.holdings.release(second)
    with pytest.raises(Problem, match="snapshot-expired"):
        begin_reading(engine.readers, "v", 3, 3600, first.version, "somebody")
    engine.close()


def test_many_rows_of_an_alias_in_a_part(tmp_path: Path) -> None:
    """More than are looked up at once: pairs and groups of one relation, whose rows stand on both sides, come once."""
    engine = running(tmp_path, {})
    engine.apply(batch(("upsert", "a", rows_of(0, 700, length=1)), ("upsert", "b", rows_of(0, 300, length=1, tag="x"))))
    engine.apply(batch(("upsert", "a", rows_of(700, 700, start=5, length=1))))
    select = "SELECT x.id AS i, y.id AS j FROM a x, a y WHERE x.x OVERLAPS y.x AND x.s > 2"
    views = {
        "less": f"{select} AND x.id < y.id",
        "other": f"{select} AND x.id <> y.id",
        "both": "SELECT x.id AS i, y.id AS j FROM b x, b y WHERE x.x OVERLAPS y.x",
        "full": "SELECT x.id AS i, y.id AS j FROM a x FULL JOIN b y ON x.id = y.id",
        "groups": "SELECT x.id AS i, COUNT(*) AS n FROM a x, b y WHERE x.x OVERLAPS y.x GROUP BY x.id",
        "union": "SELECT id FROM a UNION SELECT id FROM b",
    }
    for name, sql in views.items():
        engine.put_view(name, {"sql": sql}, wait=60)
        whole = read_all(open_rows(engine.readers, name))
        parts = [read_all(part) for part in in_parts(engine, name, 3)]
        assert sum(parts, Counter()) == whole and set(whole.values()) == {1}, name
        assert len(parts) == (1 if name == "union" else 3), name
    engine.close()


def test_a_view_without_rows_and_one_of_few(tmp_path: Path) -> None:
    engine = running(tmp_path, {"from": {"a": "a"}})
    assert [ids(part) for part in in_parts(engine, "v", 8)] == [[]]
    engine.apply(of_ops("a", ("upsert", 1), ("upsert", 2)))
    assert sorted(row[0] for part in in_parts(engine, "v", 8) for row in ids(part)) == [1, 2]
    assert engine.relations["a"].definition == DEFINITION
    engine.close()
