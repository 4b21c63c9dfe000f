"""Readings in parts: how long they hold their version, what they count as, and which parts there are."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from service.errors import Problem
from service.instance import Instance
from service.reading import names
from service.reading.cursors import HeldReading, live_view, open_rows, owner_of
from service.reading.held import begin_reading, find_reading
from tests.service.engine.test_engine import read_all
from tests.service.running import DEFINITION, PAIR, batch, counted, ids, in_parts, look, of_ops, rows_of, running


class Begun(NamedTuple):
    reading: HeldReading
    cursors: list[str]


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


def begun(engine: Instance, most: int, **more: Any) -> Begun:
    """A reading of the view v by somebody, and the cursors of its parts."""
    given = {"seconds": 3600, "version": None, "client": "somebody"} | more
    return Begun(*begin_reading(engine.readers, live_view(engine.readers, given.pop("view", "v")), most, **given))


def read_whole(engine: Instance, begun: Begun) -> int:
    return sum(reads(engine, cursor) for cursor in begun.cursors)  # type: ignore[misc]


def test_a_reading_ends_some_time_after_its_last_request(tmp_path: Path) -> None:
    """A cursor is forgotten meanwhile; a part can be read again."""
    engine = filled(tmp_path, pin_idle=20)
    now = 100.0
    engine.versions._clock = lambda: now
    engine.readers.holdings.clock = lambda: now
    held = begun(engine, 4, seconds=50)
    page = open_rows(engine.readers, "v")
    page.read(1)
    other = page.token()
    engine.apply(batch(("delete", "a", rows_of(0, 300))))
    now = 130.0
    look(engine)
    assert reads(engine, other) == "snapshot-expired"
    for _ in range(2):
        assert [reads(engine, cursor) for cursor in held.cursors] == [500] * 4
    now = 179.0
    look(engine)
    reader = open_rows(engine.readers, "v", cursor=held.cursors[3])
    now = 220.0
    reader.touch()  # as one that is slow does
    reader.close()
    now = 269.0
    look(engine)
    assert reads(engine, held.cursors[3]) == 500
    now = 320.0
    look(engine)
    assert engine.readers.count() == 0 and {reads(engine, cursor) for cursor in held.cursors} == {"snapshot-expired"}
    assert len(engine.versions) == 0
    engine.close()


def test_what_old_versions_may_take_ends_a_reading_too(tmp_path: Path) -> None:
    engine = filled(tmp_path, pin_bytes=1)
    held = begun(engine, 4)
    engine.apply(batch(("upsert", "a", rows_of(0, 500, start=3))))
    look(engine)
    assert {reads(engine, cursor) for cursor in held.cursors} == {"snapshot-expired"}
    look(engine)
    assert engine.readers.count() == 0
    engine.close()


def test_a_reading_is_one_cursor_of_the_client_that_makes_room_for_none_before_it_is_finished(tmp_path: Path) -> None:
    """Seen: 1,000 parts took all cursors of a client, and the next reading waited a minute without saying why."""
    engine = filled(tmp_path, max_client_cursors=2)
    first, second = begun(engine, 1000), begun(engine, 4)
    assert len(first.cursors) == 500 and read_whole(engine, first) == 2000
    open_rows(engine.readers, "v", cursor=first.cursors[7]).close()  # it is read once more
    for part in second.cursors[:3]:
        reads(engine, part)
    with pytest.raises(Problem, match=r"this client has 2 cursors and readings \(--max-client-cursors\)") as problem:
        begun(engine, 4)
    assert problem.value.type == "too-busy" and "Retry-After" not in problem.value.headers
    assert len(engine.versions) == 2, "nothing is left of what was refused"
    begun(engine, 4, client="somebody else")
    assert reads(engine, first.cursors[7]) == 4
    for part in (second.cursors[3], second.cursors[3]):
        reads(engine, part)
    third = begun(engine, 4)
    assert {reads(engine, cursor) for cursor in first.cursors} == {"snapshot-expired"}, "the oldest that is finished makes room"
    assert read_whole(engine, second) == 2000
    fourth = begun(engine, 1, version=third.reading.version)
    assert {reads(engine, cursor) for cursor in second.cursors} == {"snapshot-expired"}
    engine.readers.holdings.release(third.reading)
    engine.readers.holdings.release(third.reading)
    assert read_whole(engine, fourth) == 2000
    with pytest.raises(Problem, match="not-found"):
        find_reading(engine.readers, third.reading.id)
    engine.close()


def test_pages_of_a_part_leave_it_as_it_is(tmp_path: Path) -> None:
    """A page may end at a limit of time before its first row; the part was then forgotten with the client's cursors."""
    engine = filled(tmp_path, max_client_cursors=2)
    held = begun(engine, 4)
    cursor, found = held.cursors[0], 0
    for _ in range(20):
        reader = open_rows(engine.readers, "v", cursor=cursor)
        reader.client = "somebody"
        if cursor != held.cursors[0]:
            rows = reader.read(7)
            assert rows is not None
            found += rows.num_rows  # on a busy machine fewer, as a reading has a limit of time
        cursor = reader.token()
        assert cursor not in held.cursors
        reader.close()
    assert [reads(engine, cursor) for cursor in (*held.cursors, cursor)] == [500, 500, 500, 500, 500 - found]
    engine.close()


def test_whoever_has_the_name_gets_the_same_reading(tmp_path: Path) -> None:
    """Of any client, of several views, with any number of parts; never at another version, also after a restart."""
    engine = filled(tmp_path)
    engine.put_view("w", PAIR, wait=60)
    first = begun(engine, 4, name="app-1")
    engine.apply(of_ops("b", ("delete", 0)))
    again, other = begun(engine, 7, name="app-1", client="somebody else"), begun(engine, 3, name="app-1", view="w")
    assert again == first and other.reading is first.reading and len(other.cursors) == 3
    assert first.reading.read == {("view", "v"), ("view", "w")}
    assert read_whole(engine, first) == 2000 and sum(counted(open_rows(engine.readers, "w", cursor=one)) for one in other.cursors) == 2000
    assert read_whole(engine, begun(engine, 1, name="app-2")) == 1500
    with pytest.raises(Problem, match="bad-parameter: version: the reading app-1 is of version"):
        begun(engine, 4, name="app-1", version=0)
    engine.put_view("later", PAIR, wait=60)
    with pytest.raises(Problem, match="older than the view"):
        begun(engine, 1, name="app-1", view="later")
    owner = owner_of(engine.view("v"))
    engine.drop_view("v")
    with pytest.raises(Problem, match="not-found"):
        begun(engine, 1, name="app-1")
    with pytest.raises(Problem, match="snapshot-expired"):
        engine.readers.find(owner, first.cursors[0])
    engine.readers.holdings.release(first.reading)
    with pytest.raises(Problem, match="snapshot-expired: the reading app-1 has ended"):
        begun(engine, 4, name="app-1", view="w")
    assert engine.readers.count() == 1
    engine.close()
    engine = running(tmp_path)
    for name in ("app-1", "app-2"):
        with pytest.raises(Problem, match=f"the reading {name} has ended"):
            begun(engine, 4, name=name, view="w")
    assert sum(counted(open_rows(engine.readers, "w", cursor=one)) for one in begun(engine, 4, name="app-3", view="w").cursors) == 1500
    engine.close()


def test_many_clients_that_begin_a_reading_at_once(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        for name in ("app-1", "app-2", "app-3"):
            found = list(pool.map(lambda _, name=name: begun(engine, 4, name=name), range(16)))
            assert all(one == found[0] for one in found)
    assert engine.readers.count() == len(engine.versions) == 3
    engine.close()


def test_the_file_of_names_is_kept_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "_MOST", 10)
    made = names.ReadingNames(tmp_path)
    for number in range(50):
        made.use(f"app-{number}")
        with pytest.raises(Problem, match="has ended"):
            names.ReadingNames(tmp_path).use(f"app-{number}")
    (path,) = tmp_path.iterdir()
    kept = path.read_text().split()
    assert 10 <= len(kept) <= 20 and kept[-1] == "app-49" and path.stat().st_mode & 0o777 == 0o600
    with open(path, "a") as file:
        file.write("\napp-5")  # the rest is cut off
    names.ReadingNames(tmp_path).use("app-50")
    names.ReadingNames(tmp_path).use("app-51")


def test_an_earlier_version_is_read_if_somebody_holds_it(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    first = begun(engine, 1)
    version = first.reading.version
    engine.apply(of_ops("b", ("delete", 0)))
    second = begun(engine, 3, version=version)
    assert second.reading.version == version and read_whole(engine, second) == 2000
    engine.put_view("later", PAIR, wait=60)
    with pytest.raises(Problem, match="older than the view"):
        begun(engine, 3, version=version, view="later")
    engine.readers.holdings.release(first.reading)
    engine.readers.holdings.release(second.reading)
    with pytest.raises(Problem, match="snapshot-expired"):
        begun(engine, 3, version=version)
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
