"""Questions of real data, beside DuckDB's answers, while rows go: vacant offices, exons without a probe, outages an hour and a day."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from livejoin.wire.batch import DELETE, UPSERT
from livejoin.wire.schema import parse_relation
from service.reading.cursors import open_rows
from tests import datasets
from tests.service.running import check, ids, opened
from tests.service.views.stages.test_gaps_data import GAPS, ISLANDS, of_rows

Given = tuple[dict[str, Any], pa.Table]  # a definition, and its rows


class Question(NamedTuple):
    """`tables`: of each relation; `sql` as DuckDB is asked, if it knows other words."""

    tables: Callable[[], dict[str, Given]]
    view: str
    algorithm: str
    sql: str


def _of(about: str, *names: str) -> Callable[[], dict[str, Given]]:
    return lambda: {name: (datasets.definition(about, name), datasets.table(about, name)) for name in names}


def _outages() -> dict[str, Given]:
    """At stations, as times; and the days of their year."""
    rows = datasets.table("outages", "at_station")
    first, last = (datetime.fromtimestamp(one(rows["start_s"]).as_py(), UTC) for one in (pc.min, pc.max))
    starts, ends = (pc.multiply(rows[name], 1_000_000).cast(pa.timestamp("us", "UTC")) for name in ("start_s", "end_s"))
    outages = pa.table({"outage": rows["outage"], "station": rows["station"], "starts": starts, "ends": ends})
    begin = first.replace(hour=0, minute=0, second=0)
    days = [begin + timedelta(days=day) for day in range((last - begin).days + 1)]
    ends_of_days = [day + timedelta(days=1) for day in days]
    calendar = pa.table({"day": pa.array(days, starts.type), "over": pa.array(ends_of_days, starts.type)})
    columns = {"outage": "int64", "station": "string", "starts": "timestamp", "ends": "timestamp"}
    return {
        "outages": (_definition(columns, ["outage", "station"], "span", "starts", "ends", "[]"), outages),
        "days": (_definition({"day": "timestamp", "over": "timestamp"}, ["day"], "whole", "day", "over", "[)"), calendar),
    }


def _definition(columns: dict[str, str], key: list[str], interval: str, start: str, end: str, bounds: str) -> dict[str, Any]:
    named = [{"name": name, "type": kind} for name, kind in columns.items()]
    return {"columns": named, "key": key, "intervals": {interval: {"start": start, "end": end, "bounds": bounds}}}


_TERMS = (
    "(SELECT x.id AS k, greatest(x.start_day, y.start_day) AS s, least(x.end_day, y.end_day) AS e FROM president_terms x "
    "JOIN vice_president_terms y ON x.start_day < y.end_day AND y.start_day < x.end_day)"
)
_VACANT = GAPS.format(islands=ISLANDS.format(clipped=_TERMS))
for _theirs, _ours in (("exons", "president_terms"), ("start_pos", "start_day"), ("end_pos", "end_day")):
    _VACANT = _VACANT.replace(_theirs, _ours)
_BY_DAY = "COUNT(*) AS outages, SUM({}) AS lasted FROM days d JOIN outages o ON {} GROUP BY d.day"
QUESTIONS = {
    "vacant offices": Question(
        _of("congress", "president_terms", "vice_president_terms"),
        "SELECT p.id, gaps(p.span, v.span) AS vacant FROM president_terms p LEFT JOIN vice_president_terms v ON overlaps(p.span, v.span)",
        "event-tree", _VACANT,
    ),
    "senators without a president of their party": Question(
        _of("congress", "senator_terms", "president_terms"),
        "SELECT s.id FROM senator_terms s WHERE NOT EXISTS "
        "(SELECT 1 FROM president_terms p WHERE p.party = s.party AND overlaps(p.span, s.span))",
        "match-tree",
        "SELECT s.id FROM senator_terms s WHERE NOT EXISTS (SELECT 1 FROM president_terms p WHERE p.party = s.party AND "
        "p.start_day < s.end_day AND s.start_day < p.end_day)",
    ),
    "exons without a probe": Question(
        _of("genome_chr1", "exons", "conserved"),
        "SELECT x.id FROM exons x WHERE NOT EXISTS (SELECT 1 FROM conserved y WHERE overlaps(x.span, y.span))", "match-tree",
        "SELECT x.id FROM exons x ANTI JOIN (SELECT DISTINCT x.id FROM exons x JOIN conserved y ON x.start_pos < y.end_pos AND "
        "y.start_pos < x.end_pos) m ON m.id = x.id",
    ),
    "outages an hour": Question(
        _outages,
        "SELECT date_trunc('hour', o.starts) AS hour, COUNT(*) AS n, COUNT(DISTINCT o.station) AS stations FROM outages o GROUP BY hour",
        "interval-tree", "SELECT date_trunc('hour', starts) AS hour, COUNT(*), COUNT(DISTINCT station) FROM outages GROUP BY hour",
    ),
    "occupancy a day": Question(
        _outages, "SELECT d.day AS day, " + _BY_DAY.format("duration(d.whole, o.span)", "overlaps(d.whole, o.span)"), "event-tree",
        "SELECT d.day, " + _BY_DAY.format(
            "least(epoch_us(d.over), epoch_us(o.ends) + 1) - greatest(epoch_us(d.day), epoch_us(o.starts))",
            "d.day <= o.ends AND o.starts < d.over"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUESTIONS)
def test_duckdb_answers_the_same(tmp_path: Path, name: str) -> None:
    question, rng, engine = QUESTIONS[name], random.Random(name), opened(tmp_path)
    given = question.tables()
    tables = {table: rows.combine_chunks() for table, (_, rows) in given.items()}
    definitions = {table: parse_relation(definition) for table, (definition, _) in given.items()}
    for table, definition in definitions.items():
        engine.put_relation(table, definition)
        engine.apply(of_rows(table, definition, tables[table], UPSERT))
    assert engine.put_view("v", {"sql": question.view}, wait=120)[1] == "created", engine.views["v"].problem
    assert engine.views["v"].view.plan.algorithm == question.algorithm
    before: Counter[Any] | None = None
    for _ in range(3):
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            for table, rows in tables.items():
                db.register(table, rows)
            wanted = Counter(tuple(row.values()) for row in db.sql(question.sql).to_arrow_table().to_pylist())
        assert Counter(ids(open_rows(engine.readers, "v"))) == wanted and wanted != before and len(wanted) > 10
        before = wanted
        for table, rows in tables.items():
            deleted = set(rng.sample(range(len(rows)), len(rows) // 10))
            engine.apply(of_rows(table, definitions[table], rows.take(sorted(deleted)), DELETE))
            tables[table] = rows.take([at for at in range(len(rows)) if at not in deleted])
    check(engine)
    engine.close()
