"""Random statements of other forms, UNION and EXCEPT, gaps and coverage, each with an equivalent for DuckDB.

For gaps and coverage, DuckDB computes the single numbers that rows cover or leave, and then their runs: an open end is beyond all numbers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

_LEAST, _MOST = -9, 99  # for unbounded intervals
_ENDS = {"i": f"coalesce({{0}}.s, {_LEAST}) AS lo, coalesce({{0}}.e, {_MOST}) AS hi", "j": "{0}.p AS lo, {0}.q AS hi"}
_EQUAL = "ktfvdwmuhy"


FilterOf = Callable[[str, Sequence[str]], str]
"""Returns a filter on an alias, often on one of these columns."""


class Form(NamedTuple):
    """The statement, and its equivalent for DuckDB."""

    text: str
    theirs: str


def set_operation(rng: random.Random, filter_of: FilterOf) -> Form:
    columns = rng.sample("ktvdwuhf", rng.choice((1, 1, 2, 3)))
    text = _select(rng, filter_of, columns, True)
    for _ in range(rng.choice((1, 1, 2))):
        word, right = rng.choice(("UNION", "EXCEPT")), _select(rng, filter_of, columns, False)
        if rng.random() < 0.2:
            right = f"({right} UNION {_select(rng, filter_of, columns, False)})"
        text = f"{text} {word} {right}"
    return Form(text, text)


def _select(rng: random.Random, filter_of: FilterOf, columns: list[str], first: bool) -> str:
    shown = ", ".join(f"x.{column} AS c{at}" for at, column in enumerate(columns))
    source, where = f"{rng.choice('lr')} x", [filter_of("x", columns) for _ in range(rng.choice((0, 0, 1)))]
    if rng.random() < 0.4:
        joined = rng.sample(columns, rng.randrange(1, len(columns) + 1))
        source += f" JOIN {rng.choice('lr')} y ON " + " AND ".join(f"x.{column} = y.{column}" for column in joined)
    if first and rng.random() < 0.3:
        column = rng.choice(columns)
        where.append(f"NOT EXISTS (SELECT 1 FROM {rng.choice('lr')} z WHERE z.{column} = x.{column})")
    return f"SELECT {shown} FROM {source}" + (" WHERE " + " AND ".join(where) if where else "")


def stretches(rng: random.Random, filter_of: FilterOf, key: str, of: str) -> Form:
    """For rows of the relation `of`, whose key is the column `key`."""
    function, mine, its, other = rng.choice(("gaps", "coverage")), rng.choice("ij"), rng.choice("ij"), rng.choice("lr")
    shown = ", ".join(f"x.{column} AS c{at}" for at, column in enumerate((key, *rng.sample("ktfd", 2))))
    columns = rng.sample(_EQUAL, rng.choice((0, 1, 1, 2)))
    on = [f"x.{column} = y.{column}" for column in columns]
    on += [filter_of("y", columns) for _ in range(rng.choice((0, 0, 1)))]
    where = [filter_of("x", columns) for _ in range(rng.choice((0, 0, 1)))]
    condition, chosen = " AND ".join([*on, f"overlaps(x.{mine}, y.{its})"]), " WHERE " + " AND ".join(where) if where else ""
    join = "LEFT JOIN" if function == "gaps" else "JOIN"
    made = f"{function}(x.{mine}, y.{its})"
    met_by, met = rng.choice((("", ""), *((word, f" {'AND' if where else 'WHERE'} {word}") for word in _CONDITIONS)))
    text = f"SELECT {shown}, {made} AS free FROM {of} x {join} {other} y ON {condition}{chosen}{met.replace('free', made)}"
    both = " AND ".join([*on, "y.lo <= x.cell", "x.cell < y.hi"])
    cells = (
        f"WITH m AS (SELECT x.*, row_number() OVER () AS number, {_ENDS[mine].format('x')} FROM {of} x{chosen}), "
        "c AS (SELECT m.*, unnest(range(lo, hi)) AS cell FROM m), "
        f"other AS (SELECT y.*, {_ENDS[its].format('y')} FROM {other} y), "
        f"k AS (SELECT number, cell FROM c x WHERE {'NOT ' if function == 'gaps' else ''}EXISTS (SELECT 1 FROM other y WHERE {both})), "
    )
    found = f"SELECT {shown}, {_SHOWN}, x.k, x.p FROM m x JOIN runs USING (number)"
    for word, end in (("duration(free)", "(free_end - free_start)"), ("lower(free)", "free_start"), ("upper(free)", "free_end")):
        met_by = met_by.replace(word, end)
    theirs = f"SELECT * EXCLUDE (k, p) FROM ({found}) x{' WHERE ' if met_by else ''}{met_by}"
    return Form(text, f"{cells}{_runs('number')} {theirs}")


def coverage(rng: random.Random, filter_of: FilterOf, of: str) -> Form:
    """For groups of one relation."""
    mine, columns = rng.choice("ij"), rng.sample(_EQUAL, rng.choice((1, 1, 2)))
    where = f" WHERE {filter_of('x', columns)}" if rng.random() < 0.4 else ""
    shown, by = ", ".join(f"x.{column} AS {column}" for column in columns), ", ".join(columns)
    text = f"SELECT {shown}, coverage(x.{mine}) AS free FROM {of} x{where} GROUP BY {', '.join(f'x.{column}' for column in columns)}"
    cells = (
        f"WITH m AS (SELECT x.*, {_ENDS[mine].format('x')} FROM {of} x{where}), "
        f"k AS (SELECT DISTINCT {by}, cell FROM (SELECT {by}, unnest(range(lo, hi)) AS cell FROM m)), "
    )
    return Form(text, f"{cells}{_runs(by)} SELECT {by}, {_SHOWN} FROM runs")


_CONDITIONS = (
    "duration(free) > 2", "NOT duration(free) <= 1", "lower(free) > x.k", "lower(free) % 2 = 1",
    "(upper(free) IS NULL OR duration(free) * 2 < x.p)",
)  # fmt: skip
_SHOWN = f"nullif(first, {_LEAST}) AS free_start, nullif(last, {_MOST}) AS free_end"


def _runs(by: str) -> str:
    """Return the runs of the numbers in k."""
    numbered = f"SELECT {by}, cell, cell - row_number() OVER (PARTITION BY {by} ORDER BY cell) AS island FROM k"
    return f"runs AS (SELECT {by}, min(cell) AS first, max(cell) + 1 AS last FROM ({numbered}) GROUP BY {by}, island)"
