"""Conditions and columns that readers ask for: against DuckDB over the whole rows, in pages and in parts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.errors import Problem
from service.instance import Instance
from service.reading.choosing import Asked
from service.reading.cursors import RowReader, live_view, open_relation_rows, open_rows
from service.reading.held import begin_reading
from tests.relations import declared
from tests.service.duck import connected
from tests.service.running import opened

SEED = 20261201
START = datetime(2026, 1, 1, tzinfo=UTC)
RELATION = parse_relation(
    declared(
        "id:int64, room:string?, s:timestamp, e:timestamp?, price:decimal(12,2)?, x:float64?, ok:bool?, on_day:date?", stay="s e"
    )
)
VIEWS = {
    "pairs": "SELECT a.id AS i, b.id AS j, a.room AS room, a.price AS price, a.x AS x, b.ok AS ok, b.on_day AS d, a.room || '-' AS t, "
    "intersection(a.stay, b.stay) AS m FROM a JOIN b ON a.room = b.room AND overlaps(a.stay, b.stay)",
    "lefts": "SELECT a.id AS i, b.id AS j, a.room AS room, b.price AS price, b.x AS x, b.ok AS ok, b.on_day AS d, "
    "coalesce(b.room, '?') AS t FROM a LEFT JOIN b ON a.room = b.room AND overlaps(a.stay, b.stay)",
    "groups": "SELECT a.room AS room, count(*) AS i, count(b.x) AS j, sum(a.price) AS price, avg(a.x) AS x, bool_or(b.ok) AS ok, "
    "max(b.on_day) AS e, a.on_day AS d, max(b.room) AS t FROM a JOIN b ON overlaps(a.stay, b.stay) GROUP BY a.room, a.on_day",
    "united": "SELECT id AS i, id AS j, room, price, x, ok, on_day AS d, room AS t FROM a UNION "
    "SELECT id, id, room, price, x, ok, on_day, room FROM b",
    "all_of": "SELECT id AS i, id AS j, room, price, x, ok, on_day AS d, room AS t FROM a UNION ALL "
    "SELECT b.id, c.id, b.room, b.price, c.x, c.ok, c.on_day, c.room FROM b LEFT JOIN a c ON c.room = b.room AND overlaps(c.stay, b.stay)",
    "free": "SELECT a.id AS i, a.id AS j, a.room AS room, a.price AS price, a.x AS x, a.ok AS ok, a.on_day AS d, a.room AS t, "
    "gaps(a.stay, b.stay) AS m FROM a LEFT JOIN b ON a.room = b.room AND overlaps(a.stay, b.stay)",
    "busy": "SELECT room AS room, coverage(stay) AS m FROM a GROUP BY room",
    "singles": "SELECT DISTINCT a.id AS i, a.id AS j, a.room AS room, a.price AS price, a.x AS x, a.ok AS ok, a.on_day AS d, a.room AS t "
    "FROM a JOIN b ON overlaps(a.stay, b.stay)",
}
COLUMNS = {"i": "i", "j": "i", "room": "t", "t": "t", "price": "n", "x": "f", "ok": "b", "d": "d", "m_start": "m", "m_end": "m"}


def rows(chance: random.Random, count: int) -> pa.RecordBatch:
    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.85 else None

    made = []
    for number in range(count):
        start = START + timedelta(hours=chance.randrange(200))
        made.append(
            {
                "id": number, "room": maybe(chance.choice(["A", "B", "", "o'clock"])), "s": start,
                "e": maybe(start + timedelta(hours=chance.randrange(1, 30))), "price": maybe(chance.randrange(-500, 5000)),
                "x": maybe(chance.choice([0.5, -1.0, float("nan"), 7.25])), "ok": maybe(chance.random() < 0.5),
                "on_day": maybe(START.date() + timedelta(days=chance.randrange(5))),
            }
        )  # fmt: skip
    return pa.RecordBatch.from_pylist(made, RELATION.arrow_schema())


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    print("seed", SEED)
    chance = random.Random(SEED)
    engine = opened(tmp_path_factory.mktemp("chosen"))
    for name in "ab":
        engine.put_relation(name, RELATION)
        changes = Changes(name, RELATION, np.full(60, UPSERT, np.uint8), RowBlock(rows(chance, 60)), np.arange(60))
        engine.apply(Batch([changes], 60, 0, [], 0))
    for name, sql in VIEWS.items():
        assert engine.put_view(name, {"sql": sql}, wait=60)[1] == "created"
    yield engine
    engine.close()


def condition(chance: random.Random, columns: list[str], depth: int = 0) -> str:
    """A condition that DuckDB reads as the service does."""
    if depth < 2 and chance.random() < 0.45:
        one, other = condition(chance, columns, depth + 1), condition(chance, columns, depth + 1)
        return chance.choice([f"({one} AND {other})", f"({one} OR {other})", f"NOT ({one})", f"{one} AND {other}"])
    column = chance.choice(columns)
    kind, op = COLUMNS[column], chance.choice(["=", "=", "<", "<=", ">", ">=", "<>"])
    value = {
        "i": str(chance.randrange(60)),
        "t": chance.choice(["'A'", "'B'", "''", "'o''clock'"]),
        "n": chance.choice(["12.5", "-1", "20.25", "3"]),
        "f": chance.choice(["0.5", "-1.0", "7.25"]),
        "b": chance.choice(["TRUE", "FALSE"]),
        "d": f"DATE '2026-01-0{chance.randrange(1, 6)}'",
        "m": f"TIMESTAMPTZ '2026-01-0{chance.randrange(1, 9)} {chance.randrange(10, 24)}:00:00+00'",
    }[kind]
    if chance.random() < 0.2:
        return f"{column} IS {chance.choice(['', 'NOT '])}NULL"
    if kind == "b":
        return chance.choice([column, f"{column} = {value}", f"{column} IS NOT {value}"])
    if kind == "i" and chance.random() < 0.4:
        return chance.choice([f"{column} IN (1, 5, {value})", f"{column} % 3 = 1", f"{column} + {value} < 70", f"i < j + {value}"])
    if kind == "t" and chance.random() < 0.3:
        return chance.choice([f"{column} LIKE 'o%'", f"length({column}) > 0", f"{column} || 'x' = 'Ax'"])
    if kind == "n" and chance.random() < 0.3:
        return f"{column} * 2 > {value}"
    return chance.choice([f"{column} {op} {value}", f"{value} {op} {column}"])


def read_all(reader: RowReader) -> pa.Table:
    with closing(reader):
        parts = []
        while (found := reader.read(7)) is not None:
            parts.append(found)
        return pa.Table.from_batches(parts, reader.schema)


def in_pages(engine: Instance, name: str, opened_by: Any, **asked: Any) -> pa.Table:
    """Read in pages of 5, each from the cursor of the one before."""
    parts, cursor, schema = [], None, None
    while cursor is not None or schema is None:
        with closing(opened_by(engine.readers, name, **({} if cursor else asked), cursor=cursor)) as reader:
            schema, left = reader.schema, 5
            while left and (found := reader.read(left)) is not None:
                parts.append(found)
                left -= found.num_rows
            while (ended := reader.ended()) is None:
                pass
            cursor = None if ended else reader.token()
    return pa.Table.from_batches(parts, schema)


def of_parts(engine: Instance, name: str, most: int, **asked: Any) -> pa.Table:
    is_view = name in VIEWS
    of = live_view(engine.readers, name) if is_view else engine.relations[name]
    held, cursors = begin_reading(engine.readers, of, most, 600, None, "somebody", None, Asked(**asked))
    try:
        opened_by = open_rows if is_view else open_relation_rows
        return pa.concat_tables([read_all(opened_by(engine.readers, name, cursor=one)) for one in cursors])
    finally:
        engine.readers.holdings.release(held)


def counted(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def found(sql: str, whole: pa.Table) -> Counter[str]:
    with connected() as con:
        con.register("whole", whole)
        made = con.sql(sql).to_arrow_table()
        return counted(made.cast(whole.select(made.column_names).schema))


@pytest.mark.parametrize("name", [*VIEWS, "a"])
def test_random_conditions(engine: Instance, name: str) -> None:
    """The rows are those for which DuckDB finds the condition true, read whole, in pages and in parts, with some of the columns."""
    opened_by = open_rows if name in VIEWS else open_relation_rows
    whole = read_all(opened_by(engine.readers, name))
    columns = [column for column in COLUMNS if column in whole.column_names and whole.schema.field(column).type != pa.null()]
    COLUMNS.update({"id": "i", "s": "m", "e": "m", "on_day": "d"})
    columns += [column for column in ("id", "s", "e", "on_day") if column in whole.column_names]
    chance, some = random.Random(f"{SEED} {name}"), 0
    for _ in range(40):
        where = condition(chance, columns)
        if "i < j" in where and "j" not in columns:
            continue
        shown = chance.sample(whole.column_names, chance.randrange(1, len(whole.column_names) + 1))
        wanted = found(f"SELECT {', '.join(shown)} FROM whole WHERE {where}", whole)
        some += 0 < wanted.total() < whole.num_rows
        asked: dict[str, Any] = {"where": where, "columns": shown}
        for made in (
            read_all(opened_by(engine.readers, name, **asked)),
            in_pages(engine, name, opened_by, **asked),
            of_parts(engine, name, chance.randrange(1, 9), **asked),
        ):
            assert made.column_names == shown
            assert counted(made) == wanted, where
    assert some > 10


def test_a_condition_on_a_key_reads_as_little_as_a_look_up(tmp_path: Path) -> None:
    """Of a join, also by its join key, of groups, of a relation, and in a reading; a window alike. Other conditions read everything."""
    engine = opened(tmp_path)
    n = 20_000
    made = parse_relation(declared("id:int64, room:string, lo:int64, hi:int64", span="lo hi"))
    numbers = np.arange(n)
    for name in "ab":
        engine.put_relation(name, made)
        arrays = [pa.array(numbers), pa.array([f"room {i // 2}" for i in range(n)]), pa.array(numbers * 3), pa.array(numbers * 3 + 2)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=made.arrow_schema())
        engine.apply(Batch([Changes(name, made, np.full(n, UPSERT, np.uint8), RowBlock(rows), numbers)], n, 0, [], 0))
    join = "FROM a JOIN b ON a.room = b.room AND overlaps(a.span, b.span)"
    engine.put_view("v", {"sql": f"SELECT a.id AS i, b.id AS \"J, j\", a.room AS room, intersection(a.span, b.span) AS m {join}"}, wait=60)
    engine.put_view("g", {"sql": f"SELECT a.room AS room, count(*) AS n {join} GROUP BY a.room"}, wait=60)

    def steps(name: str, **asked: Any) -> int:
        before = engine.views[name].read_counts._sum.steps
        assert read_all(open_rows(engine.readers, name, **asked)).num_rows
        return int(engine.views[name].read_counts._sum.steps - before)

    by_key = steps("v", point=("a", {"id": "777"}))
    for where in (
        'i = 777',
        '777 = "J, j" AND room <> \'x\'',
        'room = \'room 388\' AND (i = 777 OR i < 3)',
    ):
        assert steps("v", where=where, columns=["J, j"]) <= by_key + 50, where
    assert steps("v", where="m_start < 20 AND m_end > 10 AND i >= 0") <= steps("v", window={"": ("10", "20")})
    assert steps("g", where="room = 'room 388' AND n > 0") <= steps("g", point=("group", {"room": "room 388"}))
    assert steps("v", where='i + 0 = 777') > n
    held, cursors = begin_reading(engine.readers, live_view(engine.readers, "v"), 8, 60, None, "", None, Asked(where='i = 777'))
    before = engine.views["v"].read_counts._sum.steps
    assert len(cursors) == 1 and read_all(open_rows(engine.readers, "v", cursor=cursors[0])).num_rows == 1
    assert engine.views["v"].read_counts._sum.steps - before <= by_key
    seen = list[int]()
    scan = engine.relations["a"].table.scan
    engine.relations["a"].table.scan = lambda *given: seen.append(1) or scan(*given)  # type: ignore[method-assign, func-returns-value]
    assert read_all(open_relation_rows(engine.readers, "a", where="id = 777 AND hi > 0")).num_rows == 1 and not seen
    assert read_all(open_relation_rows(engine.readers, "a", where="hi = 2333")).num_rows == 1 and seen
    engine.close()


def test_names_that_differ_in_case_alone(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    made = parse_relation(declared("id:int64, other:int64"))
    engine.put_relation("r", made)
    rows = pa.RecordBatch.from_pylist([{"id": 1, "other": 2}, {"id": 2, "other": 1}], made.arrow_schema())
    engine.apply(Batch([Changes("r", made, np.full(2, UPSERT, np.uint8), RowBlock(rows), np.arange(2))], 2, 0, [], 0))
    engine.put_view("v", {"sql": 'SELECT id AS "I", other AS i FROM r'}, wait=60)
    assert read_all(open_rows(engine.readers, "v", where="i = 1")).to_pylist() == [{"I": 2, "i": 1}]
    assert read_all(open_rows(engine.readers, "v", where='"I" = 1')).to_pylist() == [{"I": 1, "i": 2}]
    engine.close()


def test_few_rows_of_many_do_not_hold_a_thread(engine: Instance) -> None:
    """A call returns after some rows, whether or not it has found one."""
    with closing(open_rows(engine.readers, "pairs", where="i = j AND i < 0")) as reader:
        calls = 0
        while (found := reader.read(1)) is not None:
            assert not found.num_rows
            calls += 1
    assert calls > 3


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_what_is_looked_up_is_what_the_condition_says(tmp_path: Path, zone: str | None) -> None:
    """However a constant is written: the same rows as where nothing is looked up."""
    engine = opened(tmp_path)
    definition = declared("at:timestamp, d:date, t:string, n:int64, to:timestamp?", key="at, d, t, n", stay="at to")
    definition["columns"][0] |= {} if zone is None else {"zone": zone}
    made = parse_relation(definition)
    engine.put_relation("r", made)
    times = [START + timedelta(hours=hours) for hours in (-1, 0, 1, 12, 24)]
    every = [(at, t, n) for at in times for t in ("", "a\\b", "É") for n in (-1, 7)]
    rows = [{"at": at, "d": at.date(), "t": t, "n": n, "to": at + timedelta(hours=2)} for at, t, n in every]
    batch = pa.RecordBatch.from_pylist(rows, made.arrow_schema())
    engine.apply(Batch([Changes("r", made, np.full(30, UPSERT, np.uint8), RowBlock(batch), np.arange(30))], 30, 0, [], 0))
    sql = (
        "SELECT x.at AS at, x.d AS d, x.t AS t, x.n AS n, intersection(x.stay, y.stay) AS m "
        "FROM r x JOIN r y ON overlaps(x.stay, y.stay) AND x.n = y.n"
    )
    engine.put_view("v", {"sql": sql}, wait=60)
    found = 0
    for at in (
        "'2026-01-01'", "timestamptz '2026-01-01'", "'2026-01-01 00:00'", "'2026-01-01T00:00:00Z'", "timestamptz '2026-01-01 01:00+01'",
        "timestamp '2026-01-01'", "date '2026-01-01'", "'2025-12-31 23:00'",
    ):  # fmt: skip
        for rest in ("t = E'a\\\\b' AND n = 7", "t = 'a\\b' AND n = '7'", "t = '' AND n = -1", "t = 'É' AND n = 7.0"):
            for where in (
                f"at = {at} AND d = '2026-01-01' AND {rest}",
                f"at = {at} AND d = date '2025-12-31' AND {rest}",
                f"m_start <= {at} AND m_end > {at} AND n = 7",
            ):
                results = []
                for asked in (where, f"({where}) OR n = 99"):
                    if "m_start" not in where:
                        results.append(attempt(lambda asked=asked: read_all(open_relation_rows(engine.readers, "r", where=asked))))
                    results.append(attempt(lambda asked=asked: read_all(open_rows(engine.readers, "v", where=asked))))
                half = len(results) // 2
                assert results[:half] == results[half:], where
                found += sum(isinstance(one, Counter) and bool(one) for one in results)
    assert found > 20
    engine.close()


def attempt(work: Any) -> Counter[str] | str:
    """The rows, or the kind of the refusal."""
    try:
        return counted(work())
    except Problem as problem:
        return problem.type


@pytest.mark.parametrize(
    ("where", "all_of_them"),
    [
        ("m_start < 'infinity'", None), ("m_end < 'infinity'", None), ("m_end > '-infinity' AND m_start > '-infinity'", None),
        ("i = 99999999999999999999", False), ("i = -1", False), ("m_end > timestamptz '2026-03-01' AND m_start < date '2026-01-01'", False),
        ("i = 3 AND i = 4", False), ("i = NULL", False), ("room = 'A' OR room <> 'A' OR room IS NULL", True),
    ],
)  # fmt: skip
def test_constants_that_no_index_takes(engine: Instance, where: str, all_of_them: bool | None) -> None:
    """The same, or the same refusal, as where nothing is looked up."""
    both = where, f"({where}) OR i = -7"
    found, other = (attempt(lambda one=one: read_all(open_rows(engine.readers, "pairs", where=one))) for one in both)
    assert found == other, where
    if all_of_them is not None and not isinstance(found, str):
        assert found.total() == (read_all(open_rows(engine.readers, "pairs")).num_rows if all_of_them else 0)
