"""The child by itself: what it refuses whatever the service lets through, and what it has given up."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from service.adhoc import frames
from service.adhoc.process import Children, Nursery

ROWS = pa.table({"id": pa.array(range(10_000), pa.int64()), "note": [f"n{number % 7}" for number in range(10_000)]})


class Talk:
    """The service's part, with one table `mine`. `opened`: the columns of each scan."""

    def __init__(self, nursery: Nursery, sql: str, memory: int = 256 << 20, seconds: float = 20.0) -> None:
        self.child = nursery.child()
        self.opened: list[list[str]] = []
        self.closed = 0
        asked = {"sql": sql, "tables": ["mine"], "memory": memory, "threads": 1, "seconds": seconds}
        frames.send(self.child.socket, frames.QUERY, json.dumps(asked).encode())
        frames.send(self.child.socket, frames.SCHEMA, memoryview(ROWS.schema.serialize()))

    def run(self) -> pa.Table | dict[str, Any]:
        """The result, or what FAILED says."""
        scans: dict[int, Iterator[pa.RecordBatch]] = {}
        schema, batches = None, []
        try:
            while True:
                kind, content = frames.receive(self.child.socket)
                if kind == frames.OPEN:
                    opened = json.loads(content)
                    self.opened.append(opened["columns"])
                    scans[opened["scan"]] = iter(ROWS.select(opened["columns"]).to_batches(1000))
                elif kind == frames.NEXT:
                    batch = next(scans[frames.NUMBER.unpack(content)[0]], None)
                    frames.send(self.child.socket, frames.ROWS, b"" if batch is None else memoryview(batch.serialize()))
                elif kind == frames.CLOSE:
                    self.closed += 1
                elif kind == frames.SCHEMA:
                    schema = pa.ipc.read_schema(pa.py_buffer(content))
                elif kind == frames.ROWS:
                    batches.append(pa.ipc.read_record_batch(pa.py_buffer(content), schema))
                elif kind == frames.END:
                    return pa.Table.from_batches(batches, schema)
                else:
                    assert kind == frames.FAILED
                    failed: dict[str, Any] = json.loads(content)
                    return failed
        finally:
            self.child.end()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def test_only_the_columns_that_the_plan_needs_are_read(nursery: Nursery) -> None:
    for sql, columns in (
        ("SELECT sum(id) AS s FROM mine", ["id"]),
        ("SELECT id FROM mine WHERE note = 'n3'", ["id", "note"]),
        ("SELECT count(*) AS n FROM (SELECT *, note || 'x' AS more FROM mine) WHERE id < 10", ["id"]),
    ):
        talk = Talk(nursery, sql)
        found = talk.run()
        assert isinstance(found, pa.Table), found
        assert talk.opened == [columns]


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT mine.id, id AS n, ID, id + 1, -id, lower(note), Upper(note)::VARCHAR, 1 FROM mine",
            "id n id_1 column column_1 lower upper column_2"),
        ("SELECT count(*), count(note), count(DISTINCT note) FILTER (WHERE id > 3), max(id), sum(id) / 2 FROM mine",
            "count count_1 count_2 max column"),
        ("SELECT CASE WHEN id > 1 THEN 1 END, CASE WHEN id > 1 THEN 1 ELSE id END, coalesce(id, 1), nullif(id, 1) FROM mine",
            "case id coalesce nullif"),
        ("SELECT row_number() OVER (ORDER BY id), trim(note), note LIKE 'n%', note IS NULL, extract(year FROM DATE '2020-01-01') FROM mine",
            "row_number btrim column column_1 date_part"),
        ("SELECT (SELECT max(id) FROM mine), (SELECT 1 AS x), EXISTS (SELECT 1), id IN (SELECT 1) FROM mine", "max x exists column"),
        ("SELECT lower(note), *, id, length(note) FROM mine", "lower id note id_1 length"),
        ("SELECT lower(mine.note), *, upper(mine.note), b.*, length(b.note) FROM mine JOIN mine b USING (id)",
            "lower id note note_1 upper id_1 note_2 length"),
        ("WITH c AS (SELECT id, note, 1 AS x FROM mine), m AS (SELECT id AS id_1, note FROM mine) SELECT c.* EXCLUDE (note), x + 1, "
            "m.* RENAME (note AS n), COLUMNS(c.* EXCLUDE (note)) + 1, 1, unnest({'a': 1, 'b': 2}), id_1 AS own, -1, * REPLACE (1 AS x) "
            "FROM c JOIN m ON id = id_1 WHERE x > 0 QUALIFY row_number() OVER (ORDER BY id) < 3 ORDER BY 1 LIMIT 2",
            "id x column id_1 n id_2 x_1 column_1 a b own column_2 id_3 note x_2 id_1_1 note_1"),
        ("WITH c AS (SELECT 1 AS x, 2 AS y) (WITH c AS (SELECT 1 AS x) SELECT *, x + 1, * FROM c) UNION ALL SELECT 1, 2, 3",
            "x column x_1"),
        ("SELECT id, *, count(*), max(note), * FROM mine GROUP BY ALL", "id id_1 note count max id_2 note_1"),
        ("SELECT COLUMNS(*) + 1, unnest({'a': id, 'b': note}), max(id) OVER () FROM mine", None),
        ("SELECT id, lower(note) FROM mine UNION ALL SELECT 1, 'x' UNION SELECT 2, 'y'", "id lower"),
        ("VALUES (1, 'a')", "col0 col1"),
        ("FROM mine", "id note"),
        ("SELECT id AS x, note AS x FROM mine", "x x_1"),
    ],
)
def test_the_names_of_columns(nursery: Nursery, sql: str, names: str | None) -> None:
    found = Talk(nursery, sql).run()
    if names is None:
        assert isinstance(found, dict)
    else:
        assert isinstance(found, pa.Table), found
        assert found.column_names == names.split()


def test_a_table_is_read_as_often_as_it_is_needed(nursery: Nursery) -> None:
    talk = Talk(nursery, "SELECT count(*) AS n, (SELECT max(id) FROM mine) AS m FROM mine a JOIN mine b ON a.id = b.id + 1")
    found = talk.run()
    assert isinstance(found, pa.Table) and found.to_pylist() == [{"n": 9999, "m": 9999}]
    assert len(talk.opened) == 3


def test_what_is_not_read_to_its_end_is_closed(nursery: Nursery) -> None:
    talk = Talk(nursery, "SELECT id FROM mine LIMIT 3")
    found = talk.run()
    assert isinstance(found, pa.Table) and found.num_rows == 3 and talk.closed == 1


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM read_text('/etc/passwd')", frames.SOURCE),
        ("SELECT * FROM range(3)", frames.SOURCE),
        ("SELECT * FROM arrow_scan(1, 2, 3)", frames.SOURCE),
        ("SELECT * FROM '/etc/passwd'", frames.SOURCE),
        ("SELECT * FROM duckdb_tables", frames.SOURCE),
        ("SELECT * FROM information_schema.tables", frames.SOURCE),
        ("SELECT * FROM system.main.duckdb_tables", frames.SOURCE),
        ('SELECT * FROM "relation mine"', frames.SOURCE),
        ("SELECT * FROM (DESCRIBE mine)", frames.SOURCE),
        ("DESCRIBE mine", frames.SOURCE),
        ("SELECT (SELECT 1 FROM read_text('x')) FROM mine", frames.SOURCE),
        ("SET threads = 4", frames.NOT_A_SELECT),
        ("COPY mine TO '/tmp/x'", frames.NOT_A_SELECT),
        ("ATTACH '/tmp/x'", frames.NOT_A_SELECT),
        ("PRAGMA version", frames.NOT_A_SELECT),
        ("EXPLAIN SELECT 1", frames.NOT_A_SELECT),
        ("SELECT 1; SELECT 2", frames.NOT_A_SELECT),
        ("PIVOT mine ON note USING sum(id)", frames.NOT_A_SELECT),
        ("SELECT repeat('x', 70000000) AS a", frames.TOO_LARGE),
        ("SELECT length(repeat('x', 2000000000)) AS a", "OutOfMemoryException"),
    ],
)
def test_what_the_child_itself_refuses(nursery: Nursery, sql: str, reason: str) -> None:
    found = Talk(nursery, sql).run()
    assert isinstance(found, dict) and found["error"] == reason, found


@pytest.mark.parametrize(
    ("value", "reason", "words"),
    [
        ("error('it is ' || id)", "InvalidInputException", "it is 9000"),
        ("CAST('n' || id AS INT)", "ConversionException", "Could not convert string 'n9000' to INT32"),
    ],
)
def test_what_goes_wrong_while_rows_are_told(nursery: Nursery, value: str, reason: str, words: str) -> None:
    """Arrow says it then, in place of DuckDB."""
    found = Talk(nursery, f"SELECT CASE WHEN id < 9000 THEN id ELSE {value} END AS a FROM mine").run()
    assert isinstance(found, dict) and found["error"] == reason and words in found["message"], found


def test_tables_of_constants(nursery: Nursery) -> None:
    words = "SELECT g.n, t.a, m.note FROM generate_series(1, 5, 2) AS g(n) LEFT JOIN (VALUES (1, 'x'), (5, 'y')) AS t(n, a) USING (n)"
    found = Talk(nursery, f"{words} JOIN mine m ON m.id = g.n ORDER BY 1").run()
    assert isinstance(found, pa.Table), found
    assert [tuple(row.values()) for row in found.to_pylist()] == [(1, "x", "n1"), (3, None, "n3"), (5, "y", "n5")]
    refused = Talk(nursery, "SELECT * FROM generate_series(1, (SELECT count(*) FROM read_text('x')))").run()
    assert isinstance(refused, dict) and refused["error"] == frames.SOURCE


def test_with_goes_before_the_tables(nursery: Nursery) -> None:
    found = Talk(nursery, "WITH mine AS (SELECT count(*) AS n FROM mine) SELECT n FROM mine").run()
    assert isinstance(found, pa.Table) and found.to_pylist() == [{"n": 10_000}]


def test_positions_count_characters_behind_comments(nursery: Nursery) -> None:
    found = Talk(nursery, "-- é\nSELECT 'é', nope FROM mine").run()
    assert isinstance(found, dict) and found["error"] == "COLUMN_NOT_FOUND" and found["position"] == 17


def test_a_child_that_cannot_be_watched_is_ended() -> None:
    """The nursery may have as many files as it has and the two sockets that come with a question: there is no pidfd."""
    nursery = Nursery()
    nursery.child().end()
    pid = nursery.process.pid
    files = Path(f"/proc/{pid}/fd")
    while any("pidfd" in link for link in _links(files)):  # it closes the first child's last of all
        pass
    there = {int(path.name) for path in files.iterdir()}
    free = [number for number in range(len(there) + 3) if number not in there]
    limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (free[2], limits[1]))
    with pytest.raises(ChildProcessError):
        nursery.child()
    assert psutil.Process(pid).children() == [], "nor is one left that has ended"
    resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    nursery.child().end()
    nursery.close()


def _links(files: Path) -> Iterator[str]:
    """Of a process that may close some meanwhile."""
    for path in files.iterdir():
        with suppress(FileNotFoundError):
            yield os.readlink(path)


def test_the_last_line(nursery: Nursery) -> None:
    """Before it looks at a query the child can open nothing and write nothing, in a folder that is not there; the environment is bare."""
    child = nursery.child()
    process = Path(f"/proc/{child.pid}")
    try:
        limits = _wait_for_limits(process)
        assert limits["Max open files"] == limits["Max file size"] == limits["Max core file size"] == ("0", "0")
        assert "NoNewPrivs:\t1" in (process / "status").read_text()
        assert os.readlink(process / "cwd").endswith(" (deleted)")
        names = {line.partition(b"=")[0] for line in (process / "environ").read_bytes().split(b"\0") if line}
        assert names == {b"ARROW_DEFAULT_MEMORY_POOL", b"MALLOC_ARENA_MAX", b"LC_ALL", b"OPENBLAS_NUM_THREADS"}
        assert (process / "oom_score_adj").read_text().strip() == "1000"
        opened = {os.readlink(path) for path in (process / "fd").iterdir()}
        assert {name for name in opened if not name.startswith("socket:")} <= {"/dev/null"} and len(opened) == 2, opened
    finally:
        child.stop()
        child.end()


def _wait_for_limits(process: Path) -> dict[str, tuple[str, str]]:
    while True:
        lines = (process / "limits").read_text().splitlines()[1:]
        found = {line[:26].strip(): (line[26:47].strip(), line[47:68].strip()) for line in lines}
        if found["Max open files"][0] == "0":
            return found


def test_memory_is_limited_by_the_system_too(nursery: Nursery) -> None:
    """Of what DuckDB does not count."""
    found = Talk(nursery, "SELECT list(repeat(note, 100000)) AS a FROM mine", memory=128 << 20).run()
    assert isinstance(found, dict) and found["error"] in ("OutOfMemoryException", frames.TOO_LARGE), found


def test_the_nursery_is_kept_for_a_while() -> None:
    children = Children()
    try:
        child = children.take()
        child.stop()
        child.end()
        children.tidy()
        assert children.nursery is not None  # there was a query just now
    finally:
        children.close()
    assert children.nursery is None


def test_a_nursery_that_has_died_is_replaced() -> None:
    """Its children end with their queries; what their end was is not known."""
    children = Children()
    try:
        orphan = children.take()
        nursery = children.nursery
        assert nursery is not None
        nursery.process.kill()
        nursery.process.wait()
        assert orphan.end() is orphan.end() is None
        taken = children.take()
        assert children.nursery is not nursery
        taken.stop()
        assert taken.end() == -signal.SIGKILL
        taken.stop()  # of one that has ended, as a query may be broken off at any moment
    finally:
        children.close()


def test_a_nursery_whose_end_cannot_be_seen_yet_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen on a busy machine: the system had closed its socket, and the next query was answered with an internal error."""
    children = Children()
    try:
        children.take().end()
        nursery = children.nursery
        assert nursery is not None
        nursery.process.kill()
        nursery.process.wait()
        monkeypatch.setattr(nursery.process, "poll", lambda: None)
        taken = children.take()
        assert children.nursery is not nursery
        taken.end()
    finally:
        children.close()


def test_the_status_outlives_the_nursery_s_door() -> None:
    """A query may run while the processes for others are let go."""
    nursery = Nursery()
    child = nursery.child()
    nursery.close()
    assert not frames.is_readable(child._pidfd)
    child.socket.close()
    assert frames.is_readable(child._pidfd, 60.0)
    assert child.end() == 0
    nursery.process.wait()
