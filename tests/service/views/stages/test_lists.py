"""STRING_AGG and ARRAY_AGG as DuckDB computes them, under changes of all kinds; what is too long; restarts."""

from __future__ import annotations

import base64
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.engine import truncates
from service.instance import Instance
from service.query.model import MOST_LISTED
from tests.relations import declared
from tests.service import postgres
from tests.service.random_sql import DEFINITIONS, Rows, asked, in_duckdb, to_batch
from tests.service.running import HeldWriter, check, opened
from tests.service.twin import Row, values
from tests.service.views.stages.test_groups import compare_with_brute_force
from tests.service.views.test_random_sql import Added, rows_of, rows_of_parts
from tests.waiting import until

JOINS = {  # and the keys of the rows
    "l a": "a.id",
    "r a": "a.site, a.nr",
    "l a JOIN r b ON a.k = b.k": "a.id, b.site, b.nr",
    "l a JOIN r b ON overlaps(a.j, b.j)": "a.id, b.site, b.nr",
    "r a LEFT JOIN l b ON a.k = b.k": "a.site, a.nr, b.id",
    "l a FULL JOIN r b ON a.k = b.k AND overlaps(a.j, b.j)": "a.id, b.site, b.nr",
    "l a LEFT JOIN r b ON a.t = b.t JOIN l c ON a.k = c.k": "a.id, b.site, b.nr, c.id",
}
TEXTS = ("{0}.t", "upper({0}.t)", "{0}.k::text", "{0}.t || '\"'", "CASE WHEN {0}.v THEN {0}.t ELSE '' END")
VALUES = (*(f"{{0}}.{name}" for name in "ktfvdwmnuhy"), "{0}.k + 1", "{0}.m + {0}.n", "lower({0}.t)", "{0}.f * 2")
KEYS = (*(f"{{0}}.{name}" for name in "ktfvdwmnuhyp"), "{0}.m + {0}.n", "{0}.k % 2", "{0}.f / 2", "{0}.t || 'x'")
FILTERS = ("{0}.v", "{0}.k > 1", "{0}.t IS NOT NULL", "{0}.p + 1 < {0}.q")
HAVING = ("{0} IS NOT NULL", "length({0}) > 4", "COUNT(*) > 1 AND {0} <> 'a'", "{0} LIKE 'a%'")


class Lists:
    """A statement at random; `theirs`: for DuckDB."""

    def __init__(self, rng: random.Random) -> None:
        self.random, (source, self._last) = rng, rng.choice(list(JOINS.items()))
        self._aliases = [name for name in "abc" if f" {name}" in source]
        lists = [self._list() for _ in range(rng.choice((1, 1, 2)))]
        group = rng.choice(("a.k", "a.t", "a.v", "a.k % 3", "date_trunc('day', a.w)", ""))
        parts, having = [], rng.choice(HAVING)
        for at in (0, 1):
            shown = [*([f"{group} AS g"] if group else []), *(f"{one[at]} AS x{n}" for n, one in enumerate(lists)), "COUNT(*) AS n"]
            texts = [one[at] for one in lists if one[at].startswith("string_agg")]
            if texts:
                shown.append(f"upper({texts[0]}) || '!' AS more")
            parts.append(f"SELECT {', '.join(shown)} FROM {source}" + (f" GROUP BY {group}" if group else ""))
            if texts and group and len(lists) == 1:
                parts[-1] += f" HAVING {having.format(texts[0])}"
        self.text, self.theirs = parts

    def _of(self, some: Sequence[str]) -> str:
        return self.random.choice(some).format(self.random.choice(self._aliases))

    def _list(self) -> tuple[str, str]:
        rng = self.random
        is_text = rng.random() < 0.5
        value, distinct = self._of(TEXTS if is_text else VALUES), rng.random() < 0.2
        distinct = distinct and not value.endswith((".f", ".f * 2"))
        keys = [value] if distinct else [self._of(KEYS) for _ in range(rng.choice((1, 1, 2)))]
        ordered = [f"{key} {rng.choice(('ASC', 'DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}" for key in keys]
        last = [] if distinct else [f"{key} NULLS LAST" for key in self._last.split(", ")]
        between = f", '{rng.choice((', ', '', '; ', 'é'))}'" if is_text else ""
        behind = f" FILTER (WHERE {self._of(FILTERS)})" if rng.random() < 0.3 else ""
        made = []
        for order in (ordered, [*ordered, *last]):
            of = f"{'DISTINCT ' if distinct else ''}{value}{between} ORDER BY {', '.join(order)}"
            made.append(f"{'string_agg' if is_text else 'array_agg'}({of}){behind}")
        return made[0], made[1]


def plain(value: Any) -> Any:
    """A value as the service sends it, an array in JSON."""
    if isinstance(value, list):
        return [in_json(one) for one in value]
    return json.loads(value, parse_int=float) if isinstance(value, str) and value[:1] == "[" else value


def in_json(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return str(value) if isinstance(value, Decimal) else value


def counted(rows: Iterable[Row]) -> Counter[str]:
    return Counter(repr([plain(value) for value in row.values()]) for row in rows)


def change(engine: Instance, rows: Rows, together: bool) -> None:
    """A batch, or single changes that the writer takes together."""
    if together and rows.random.random() < 0.4:
        held = HeldWriter(engine)
        count = rows.random.choice((3, 12))
        for _ in range(count):
            held.submit(to_batch(rows.changes(1)))
        held.release()
        until(lambda: len(held.answers) == count)
    else:
        engine.apply(to_batch(rows.changes(rows.random.choice((1, 3, 20)))))


@pytest.mark.parametrize(("seed", "count"), [(0, 8), (1, 8), *(pytest.param(seed, 30, marks=pytest.mark.soak) for seed in range(2, 40))])
def test_duckdb_lists_the_same(tmp_path: Path, seed: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print("seed", seed)
    if seed % 2:
        monkeypatch.setattr(truncates, "_WORTH", 1)  # then a truncate is prepared beside the writer, and other batches pass it
    rng = random.Random(seed)
    engine, rows = opened(tmp_path), Rows(rng, 20)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    engine.apply(to_batch(rows.changes(30)))
    views = {f"v{index}": Lists(rng) for index in range(count)}
    for name, one in views.items():
        engine.put_view(name, {"sql": one.text}, wait=60)
    added = [Added(engine, name) for name in views]
    for step in range(6):
        if step == 3:
            engine.close()
            engine = opened(tmp_path)
            added = [Added(engine, name) for name in views]
        for _ in range(rng.choice((1, 4))):
            change(engine, rows, seed % 2 == 0)
        other = in_duckdb(rows.relations)
        for one in added:
            ours, theirs = rows_of(engine, one.name), asked(other, views[one.name].theirs)
            mine, its = counted(ours), counted(theirs)
            assert mine == its, (views[one.name].text, mine - its, its - mine)
            assert Counter(map(values, rows_of_parts(engine, one.name))) == Counter(map(values, ours))
            one.catch_up()
            assert Counter(one.rows.values()) == Counter(map(values, ours)), views[one.name].text
        other.close()
        compare_with_brute_force(engine)
        check(engine)
    engine.close()


NOTES = parse_relation(declared("id:int64, room:int64, note:string?, at:float64?, doc:json?"))


def noted(*rows: tuple[int, int, str | None, float | None, str | None] | int) -> Batch:
    """Upserts of rows, and deletes of ids."""
    names = NOTES.arrow_schema().names
    given = [{"id": row} if isinstance(row, int) else dict(zip(names, row, strict=True)) for row in rows]
    ops = np.array([DELETE if isinstance(row, int) else UPSERT for row in rows], np.uint8)
    block = RowBlock(pa.RecordBatch.from_pylist(given, schema=NOTES.arrow_schema()))
    return Batch([Changes("notes", NOTES, ops, block, np.arange(len(rows)))], len(rows), 0, [], 0)


def with_notes(folder: Path, sql: str) -> Instance:
    engine = opened(folder)
    engine.put_relation("notes", NOTES)
    engine.put_view("v", {"sql": sql}, wait=60)
    return engine


def found(engine: Instance) -> list[list[Any]]:
    compare_with_brute_force(engine)
    check(engine)
    return sorted([list(row.values()) for row in rows_of(engine, "v")], key=repr)


@pytest.mark.parametrize(("function", "around"), [("string_agg(note, ',' ORDER BY at)", 0), ("array_agg(note ORDER BY at)", 2 + 2 * 64)])
def test_more_than_64_kib_are_null_and_counted(tmp_path: Path, function: str, around: int) -> None:
    engine = with_notes(tmp_path, f"SELECT room, {function} AS t FROM notes GROUP BY room")
    texts = ["x" * ((MOST_LISTED - around - 63) // 64)] * 64
    texts[-1] += "y" * (MOST_LISTED - around - 63 - len("".join(texts)))
    engine.apply(noted(*((n, 1, text, -float(n), None) for n, text in enumerate(texts)), (100, 2, "other", None, None)))

    def lengths() -> list[int | None]:
        return [None if text is None else len(text) for _, text in found(engine)]

    other = 5 if around == 0 else 9
    assert lengths() == [MOST_LISTED, other] and engine.views["v"].statistics()["texts_too_long"] == 0
    engine.apply(noted((0, 1, f"{texts[0]}!", 0.0, None)))
    assert lengths() == [None, other] and engine.views["v"].statistics()["texts_too_long"] == 1
    engine.apply(noted((0, 1, "é" * 40_000, 0.0, None), (100, 2, "z" * 70_000, None, None)))
    assert lengths() == [None, None] and engine.views["v"].statistics()["texts_too_long"] == 2
    engine.apply(noted((0, 1, "a", 0.0, None), 100))
    assert lengths() == [MOST_LISTED - len(texts[0]) + 1]
    assert engine.views["v"].statistics()["texts_too_long"] == 0
    engine.close()


def test_more_than_65536_values_are_null(tmp_path: Path) -> None:
    engine = with_notes(tmp_path, "SELECT string_agg(note, '' ORDER BY id) AS t FROM notes")
    engine.apply(noted(*((n, 1, "", None, None) for n in range(MOST_LISTED))))
    assert found(engine) == [[""]]
    engine.apply(noted((MOST_LISTED, 1, "", None, None)))
    assert found(engine) == [[None]]
    engine.close()


def test_documents_nulls_and_numbers_that_json_lacks(tmp_path: Path) -> None:
    sql = "SELECT room, array_agg(doc ORDER BY at DESC NULLS LAST) AS d, array_agg(at ORDER BY at, id) AS f, "
    sql += "array_agg(DISTINCT at ORDER BY at) AS u, string_agg(note, '; ' ORDER BY note, id) AS t FROM notes GROUP BY room"
    engine = with_notes(tmp_path, sql)
    engine.apply(
        noted(
            (1, 1, 'a"b', 1.5, '{"k": [1, null]}'), (2, 1, None, math.nan, None), (3, 1, "\u0000", -math.inf, '"x"'),
            (4, 2, None, None, None), (5, 3, "", -0.0, "1e400"), (6, 3, "", 0.0, "true"),
        )
    )  # fmt: skip
    assert found(engine) == [
        [1, '[null,{"k": [1, null]},"x"]', '["-Infinity",1.5,"NaN"]', '["-Infinity",1.5,"NaN"]', '\u0000; a"b'],
        [2, "[null]", "[null]", "[null]", None],
        [3, "[1e400,true]", "[-0.0,0]", "[0]", "; "],
    ]
    engine.apply(noted(1, 3, 4, (6, 3, "n", -5.0, None)))
    assert found(engine) == [[1, "[null]", '["NaN"]', '["NaN"]', None], [3, "[1e400,null]", "[-5,-0.0]", "[-5,0]", "; n"]]
    engine.close()


@pytest.mark.skipif(postgres.PROGRAMS is None, reason="PostgreSQL is not installed")
def test_postgresql_lists_the_same(tmp_path: Path) -> None:
    """Where nulls come without NULLS FIRST and NULLS LAST, too."""
    rng = random.Random(7)
    engine = opened(tmp_path)
    engine.put_relation("notes", NOTES)
    rows = [
        (n, rng.randrange(6), rng.choice((None, "", "a", "B", "b,c", "é")), rng.choice((None, 0.0, 1.5, -2.25, 1e300, math.nan)), None)
        for n in range(60)
    ]
    engine.apply(noted(*rows))
    statements = list[str]()
    for index in range(40):
        value = rng.choice(("note", "upper(note)", "id::text", "note || id::text"))
        distinct = rng.random() < 0.3
        order = value if distinct else f"{rng.choice(('note', 'at', 'at * -1', 'id % 7', 'length(note)'))}{rng.choice(('', ' DESC'))}, id"
        order += rng.choice(("", " DESC"))
        separator = rng.choice(("', '", "''", "NULL"))
        behind = rng.choice(("", "", " FILTER (WHERE at > 1)", " FILTER (WHERE note IS NOT NULL)"))
        of = f"{'DISTINCT ' * distinct}{value}"
        made = f"string_agg({of}, {separator} ORDER BY {order})" if index % 2 else f"array_agg({of} ORDER BY {order})"
        statements.append(f"SELECT room, {made}{behind} AS x FROM notes GROUP BY room HAVING count(*) > 1")
    texts = ", ".join("(" + ", ".join(map(_in_sql, row[:4])) + ")" for row in rows)
    script = ["CREATE TEMP TABLE notes (id bigint, room bigint, note text, at double precision);", f"INSERT INTO notes VALUES {texts};"]
    for index, text in enumerate(statements):
        engine.put_view(f"v{index}", {"sql": text}, wait=60)
    script.append(" UNION ALL ".join(f"SELECT {index}, to_json(s)::text FROM ({text}) s" for index, text in enumerate(statements)) + ";")
    theirs: dict[int, list[Any]] = {index: [] for index in range(len(statements))}
    for index, row in postgres.answers(script):
        assert index is not None and row is not None
        theirs[int(index)].append(json.loads(row))
    for index, text in enumerate(statements):
        ours = [{"room": row["room"], "x": plain(row["x"])} for row in rows_of(engine, f"v{index}")]
        assert sorted(ours, key=repr) == sorted(theirs[index], key=repr), text
    engine.close()


def _in_sql(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str | float) else str(value)
