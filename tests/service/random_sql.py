"""Random SQL statements, with the same text for livejoin and for DuckDB, over relations with nulls, NaN, decimals and equal values.

DuckDB gets substitutes for what it lacks: an interval is a column with both ends, null where an outer join has no row; `duration` is a
macro, and so is `overlaps`, under another name because it is a keyword there. `random_forms.py` has the statements that DuckDB needs in
another form.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from livejoin.wire.batch import DELETE, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.kinds import SENT_TYPES
from livejoin.wire.schema import parse_relation
from tests.service.random_forms import Form, coverage, set_operation, stretches
from tests.service.random_group_terms import GroupTerms
from tests.service.random_terms import JSON, Terms
from tests.service.twin import Row

_COLUMNS = [
    {"name": "k", "type": "int64", "nullable": True},
    {"name": "t", "type": "string", "nullable": True},
    {"name": "f", "type": "float64", "nullable": True},
    {"name": "v", "type": "bool", "nullable": True},
    {"name": "d", "type": "date", "nullable": True},
    {"name": "w", "type": "timestamp", "nullable": True},
    {"name": "m", "type": "decimal", "precision": 10, "scale": 2, "nullable": True},
    {"name": "n", "type": "decimal", "precision": 18, "scale": 2},
    {"name": "g", "type": "int64", "nullable": True},  # their sums exceed int64
    {"name": "u", "type": "uuid", "nullable": True},
    {"name": "h", "type": "time", "nullable": True},
    {"name": "y", "type": "bytes", "nullable": True},
    {"name": "o", "type": "json", "nullable": True},
    {"name": "s", "type": "int64", "nullable": True},
    {"name": "e", "type": "int64", "nullable": True},
    {"name": "p", "type": "int64"},
    {"name": "q", "type": "int64"},
]
_INTERVALS = {"i": {"start": "s", "end": "e"}, "j": {"start": "p", "end": "q"}}
KEYS = {"l": ["id"], "r": ["site", "nr"]}
DEFINITIONS = {
    "l": parse_relation({"columns": [{"name": "id", "type": "int64"}, *_COLUMNS], "key": ["id"], "intervals": _INTERVALS}),
    "r": parse_relation(
        {
            "columns": [{"name": "nr", "type": "int64"}, {"name": "site", "type": "string"}, *_COLUMNS],
            "key": ["site", "nr"], "intervals": _INTERVALS,
        }
    ),
}  # fmt: skip
_GROUPED = "ktfvdwmnuhy"  # all except json
_U = [f"00000000-0000-4000-8000-00000000000{digit}" for digit in "0af"]
_BASE = datetime(2026, 1, 27, tzinfo=UTC)
_MACROS = """
SET TimeZone = 'UTC';
SET integer_division = true;
SET error_on_division_by_zero = false;
SET nested_loop_join_threshold = 1000000; -- its join by sorting (IEJoin) gives values that no row has
CREATE MACRO meet(x, y) AS
    x IS NOT NULL AND y IS NOT NULL AND (x.s IS NULL OR y.e IS NULL OR x.s < y.e) AND (y.s IS NULL OR x.e IS NULL OR y.s < x.e);
CREATE MACRO duration(x) AS x.e - x.s, (x, y) AS
    CASE WHEN x IS NOT NULL AND y IS NOT NULL THEN least(x.e, y.e) - greatest(x.s, y.s) END;
"""


class Rows:
    """Random changes, and the relations as they are after them."""

    def __init__(self, rng: random.Random, keys: int) -> None:
        self.random, self.keys = rng, keys
        self.relations: dict[str, dict[tuple[Any, ...], Row]] = {"l": {}, "r": {}}

    def key(self, name: str) -> Row:
        pick = self.random.randrange
        return {"id": pick(self.keys)} if name == "l" else {"nr": pick(1 + self.keys // 2), "site": self.random.choice("NS")}

    def row(self, name: str) -> Row:
        rng = self.random
        s, p = rng.randrange(40), rng.randrange(40)
        row = {
            "k": rng.randrange(4), "t": rng.choice(["", "a", "b", "é", "zz"]), "v": rng.random() < 0.5,
            "f": rng.choice([-1.5, -0.0, 0.0, 0.25, 2.0, 1e6, np.nan, np.inf]),
            "d": date(2026, 1, 28) + timedelta(days=rng.randrange(9)),
            "w": _BASE + timedelta(hours=rng.randrange(200), microseconds=rng.choice([0, 0, 1])),
            "m": rng.choice([-125, 0, 5, 1999, 99_999_999_99]), "g": rng.choice([1, -3, 2**62, -(2**62)]),
            "u": rng.choice(_U), "h": rng.choice([time(0), time(6), time(23, 59, 59, 999_999)]), "y": rng.choice([b"", b"a", b"\0\xff"]),
            "o": rng.choice(JSON), "s": s, "e": s + 1 + rng.randrange(4),
        }  # fmt: skip
        row = {name: None if rng.random() < 0.2 else value for name, value in row.items()}
        return self.key(name) | row | {"n": rng.choice([1, 150, 10**18 - 1]), "p": p, "q": p + 1 + rng.randrange(4)}

    def changes(self, count: int) -> list[tuple[str, int, Row]]:
        """Return changes, which are applied to the relations, too."""
        found: list[tuple[str, int, Row]] = []
        for _ in range(count):
            name, draw = self.random.choice("lr"), self.random.random()
            known = self.relations[name]
            if draw < 0.005:
                found.append((name, TRUNCATE, {}))
                known.clear()
            elif draw < 0.3:
                row = self.random.choice(list(known.values())) if known and self.random.random() < 0.7 else self.key(name)
                found.append((name, DELETE, {column: row[column] for column in KEYS[name]}))
                known.pop(tuple(row[column] for column in KEYS[name]), None)
            else:
                row = self.row(name)
                if known and draw < 0.5:  # one column of an existing row
                    old = self.random.choice(list(known.values()))
                    column = self.random.choice(f"{_GROUPED}go")
                    row = old | {column: row[column]}
                found.append((name, UPSERT, row))
                known[tuple(row[column] for column in KEYS[name])] = row
        return found


def to_batch(changes: Sequence[tuple[str, int, Row]]) -> Batch:
    """Return what a decoder would return."""
    parts = []
    for name in dict.fromkeys(name for name, _, _ in changes):
        index = [at for at, (relation, _, _) in enumerate(changes) if relation == name]
        schema = DEFINITIONS[name].arrow_schema()
        rows = pa.RecordBatch.from_pylist([{column: changes[at][2].get(column) for column in schema.names} for at in index], schema=schema)
        ops = np.array([changes[at][1] for at in index], np.uint8)
        parts.append(Changes(name, DEFINITIONS[name], ops, RowBlock(rows), np.array(index, np.int64)))
    return Batch(parts, len(changes), 0, [], 0)


def in_duckdb(relations: dict[str, dict[tuple[Any, ...], Row]]) -> duckdb.DuckDBPyConnection:
    """Return a connection with these rows."""
    other = duckdb.connect()
    other.execute("SET threads = 1")
    other.execute(_MACROS)
    for name, rows in relations.items():
        definition = DEFINITIONS[name]
        fields = [pa.field(column.name, SENT_TYPES[column.kind]) for column in definition.columns]
        columns = [
            pa.array([_sent(row[column.name], column.scale if column.type == "decimal" else None) for row in rows.values()], field.type)
            for column, field in zip(definition.columns, fields, strict=True)
        ]
        other.register("given", pa.Table.from_arrays(columns, schema=pa.schema(fields)))
        made = ", ".join(f"struct_pack(s := {start}, e := {end}) AS {own}" for own, start, end in (("i", "s", "e"), ("j", "p", "q")))
        other.execute(f"CREATE TABLE {name} AS SELECT * REPLACE (u::UUID AS u, o::JSON AS o), {made} FROM given")
        other.unregister("given")
    return other


def asked(other: duckdb.DuckDBPyConnection, text: str) -> list[Row]:
    """Return the rows of a statement."""
    table = other.sql(text.replace("overlaps(", "meet(")).to_arrow_table()
    return [dict(enumerate(row)) for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]  # names may be repeated


def _sent(value: Any, scale: int | None) -> Any:
    return value if scale is None or value is None else Decimal(value).scaleb(-scale)


class Statement:
    """`text`, and its form for DuckDB, `theirs`; `kinds`: the kinds of clauses that it has; `views`: those that it reads."""

    views: Mapping[str, str] = {}

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.aliases: list[tuple[str, str]] = []
        self.kinds: set[str] = set()
        self.in_common: list[str] = []  # intervals of x and y that overlap
        self.equated: list[str] = []  # columns of both sides that some condition equates
        self.merged: list[str] = []  # columns of USING
        self.text, self.theirs = self._form() if rng.random() < 0.2 else self._select()

    def _form(self) -> Form:
        rng, of = self.random, self.random.choice("lr")
        kind = rng.choice(("set operation", "stretches", "coverage"))
        self.kinds.add(kind)
        if kind == "set operation":
            return set_operation(rng, self._filter)
        return stretches(rng, self._filter, KEYS[of][0], of) if kind == "stretches" else coverage(rng, self._filter, of)

    def _select(self) -> Form:
        rng = self.random
        source, where = self._from(), self._where()
        shape = rng.choice(("rows", "rows", "distinct", "groups", "groups", "groups", "one"))
        if self.kinds == {"alone"} and rng.random() < 0.4:
            shape = "latest"
            select, rest = self._latest()
        elif shape == "rows":
            select, rest = self._shown(), ""
        elif shape == "distinct":
            columns = self._columns(rng.randrange(1, 4), json=False) if rng.random() < 0.5 else self._with_keys()
            columns = [self._terms.of() if rng.random() < 0.2 else one for one in columns]
            select, rest = f"DISTINCT {self._perhaps_named(columns)}", ""
        else:
            select, rest = self._groups(shape)
        self.kinds.add(shape)
        if shape == "rows" and rng.random() < 0.2:
            return self._excluding(f"{source}{where}")
        text = f"SELECT {select} FROM {source}{where}{rest}"
        return Form(text, text)

    def _from(self) -> str:
        rng = self.random
        kinds = ["alone", "alone", "alone", "join", "join", "self", "left", "left", "right", "full", "semi", "anti", "three", "as of"]
        kind = rng.choice(kinds)
        self.kinds.add(kind)
        first = rng.choice("lr")
        self.aliases = [("x", first)]
        if kind == "alone":
            return f"{first} x"
        if kind == "as of":
            return self._as_of(first)
        second = first if kind == "self" else rng.choice("lr")
        word = {"left": "LEFT ", "right": "RIGHT ", "full": "FULL ", "semi": "SEMI ", "anti": "ANTI "}.get(kind, "")
        if rng.random() < 0.15:
            self.merged = rng.sample("ktvphu", rng.choice((1, 1, 2)))
            self.kinds.add("using")
            self.equated += self.merged
            text = f"{first} x {word}JOIN {second} y USING ({', '.join(self.merged)})"
        else:
            text = f"{first} x {word}JOIN {second} y ON {self._on('x', 'y', first if first == second else None)}"
        if kind in ("semi", "anti"):
            self.in_common = []
        else:
            self.aliases.append(("y", second))
        if kind == "three":
            third, word = rng.choice("lr"), rng.choice(("", "LEFT "))
            near = rng.choice("xy")
            text += f" {word}JOIN {third} z ON {self._on(near, 'z', None)}"
            self.aliases.append(("z", third))
        return text

    def _as_of(self, first: str) -> str:
        """By the time of rows with distinct times: if several rows have the same time, DuckDB does not define which one is joined."""
        rng = self.random
        self.aliases.append(("y", "l"))
        self.equated += (columns := rng.sample("ktvf", rng.choice((0, 1, 1, 2))))
        equal = [f"x.{c} = y.{c} AND " for c in columns]
        condition = f"y.id {rng.choice(('<', '<=', '>', '>='))} x.{rng.choice(('p', 'q', 's', 'k'))}"
        return f"{first} x ASOF {rng.choice(('', 'LEFT '))}JOIN l y ON {''.join(equal)}{condition}"

    def _on(self, x: str, y: str, of_one: str | None) -> str:
        rng = self.random
        if rng.random() < 0.1:
            self.kinds.add("product")
            return rng.choice(("TRUE", self._filter(y), f"{self._filter(y)} AND {self._filter(x)}"))
        chosen = rng.sample(
            [
                *(f"{x}.{c} = {y}.{c}" for c in f"k{_GROUPED}"), f"overlaps({x}.i, {y}.i)",
                f"overlaps({x}.j, {y}.j)", f"{x}.p < {y}.q AND {y}.p < {x}.q", f"{x}.p <= {y}.p", f"{x}.m < {y}.m", f"{x}.f <= {y}.f",
                f"{x}.h < {y}.h",
                f"abs({x}.p - {y}.p) <= 2", f"{x}.s BETWEEN {y}.p AND {y}.q", f"{x}.p + 3 < {y}.q",
                f"{x}.s - 2 < {y}.e AND {y}.s < {x}.e + 3", f"{x}.s + 2 < {y}.e AND {y}.s + 1 < {x}.e", f"{y}.p - {x}.s BETWEEN -1 AND 2",
            ],
            rng.choice((1, 2, 2, 3)),
        )  # fmt: skip
        self.equated += [one[-1] for one in chosen if " = " in one]
        names = next((chosen[at][9:-1] for at, one in enumerate(chosen) if one.startswith("overlaps(")), "")
        self.in_common = names.split(", ") if names and (x, y) == ("x", "y") else self.in_common
        if of_one is not None:
            key = KEYS[of_one][0]
            chosen += rng.choice(([], [f"{x}.{key} <> {y}.{key}"], [f"{x}.{key} < {y}.{key}"]))
        if rng.random() < 0.15:
            chosen.append(rng.choice((f"{x}.t <> {y}.t", f"{x}.f < {y}.f", f"{x}.v <> {y}.v")))
        if rng.random() < 0.15:
            chosen.append(self._filter(y))
        text = " AND ".join(chosen)
        return f"({text} AND {self._filter(y)} OR {text} AND {self._filter(x)})" if rng.random() < 0.1 else text

    def _where(self) -> str:
        rng = self.random
        found = [self._filter(rng.choice(self.aliases)[0]) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        if "as of" in self.kinds and rng.random() < 0.5:
            self.kinds.add("condition on both")
            found.append(Terms(rng, ["x", "y"]).of_pair())
        for _ in range(rng.choice((0, 0, 0, 0, 1))):
            alias, other = rng.choice(self.aliases)[0], rng.choice("lr")
            self.kinds.add("part")
            found.append(
                rng.choice(
                    (
                        f"EXISTS (SELECT 1 FROM {other} u WHERE {self._on(alias, 'u', None)})",
                        f"NOT EXISTS (SELECT 1 FROM {other} u WHERE {self._on(alias, 'u', None)})",
                        f"{alias}.k IN (SELECT u.k FROM {other} u WHERE {self._filter('u')})",
                        f"{alias}.p NOT IN (SELECT u.q FROM {other} u WHERE {self._filter('u')})",
                    )
                )
            )
        if len(self.aliases) > 1 and rng.random() < 0.3:
            found.append(self._across(*rng.sample([alias for alias, _ in self.aliases], 2)))
        return " WHERE " + self._together(found) if found else ""

    def _across(self, x: str, y: str) -> str:
        """Return an expression over two aliases."""
        self.kinds.add("across")
        mine, its = self._filter(x), self._filter(y)
        return self.random.choice(
            (
                f"({mine} OR {its})", f"NOT ({mine} AND {its})", f"{x}.p + {y}.q > 40", f"{x}.t || {y}.t LIKE '%a%'",
                f"CASE WHEN {x}.v THEN {y}.v ELSE {x}.p < {y}.p END", f"coalesce({x}.k, {y}.k) = 1", f"({x}.k = {y}.k OR {x}.t = {y}.t)",
            )
        )  # fmt: skip

    def _together(self, conditions: Sequence[str]) -> str:
        """Return the conditions joined by AND, some of them within NOT (… OR …)."""
        rng = self.random
        found = [rng.choice((f"NOT (NOT ({one}))", one, one, one)) for one in conditions]
        if len(found) == 2 and "EXISTS" not in "".join(found) and "SELECT" not in "".join(found):
            form = rng.choice(("{} AND {}", "{} AND {}", "({} OR {})", "NOT ({} OR {})", "NOT ({} AND NOT {})"))
            return form.format(*found)
        return " AND ".join(found)

    def _filter(self, alias: str, columns: Sequence[str] = ()) -> str:
        """`columns`: more that are equated."""
        rng = self.random
        if rng.random() < 0.25:
            self.kinds.add("condition by expression")
            return Terms(rng, [alias]).condition()
        constants = {
            "k": rng.choice(("0", "2")), "t": rng.choice(("'b'", "''", "'é'")), "f": rng.choice(("0.0", "2", "-1")), "v": "TRUE",
            "d": "DATE '2026-02-01'", "w": "TIMESTAMPTZ '2026-01-30 03:00:00+00'", "n": "1.5",
            "m": rng.choice(("19.99", "0", "-1.25", "19.985")), "p": rng.choice(("20", "20.5", "1e30")), "u": f"'{_U[1]}'",
            "h": rng.choice(("'06:00'", "TIME '12:00:00.5'")), "y": rng.choice(("'\\x61'", "'\\x00'")),
        }  # fmt: skip
        equated = [one for one in (*self.equated, *columns) if one in constants]
        column = rng.choice(equated if equated and rng.random() < 0.5 else list(constants))
        value = constants[column]
        form = rng.randrange(14)
        if form >= 12:
            like = f"{alias}.t {rng.choice(('', 'NOT '))}LIKE '{rng.choice(('a%', '%', '_', '', '%z', 'b'))}'"
            return rng.choice((like, f"NOT {like}"))
        if form >= 10:
            return f"({self._filter(alias)} OR {self._filter(alias)})"
        if form < 6:
            return f"{alias}.{column} {('=', '<>', '<', '<=', '>', '>=')[form]} {value}"
        if form == 6:
            return f"{alias}.{rng.choice((column, 'o'))} IS {rng.choice(('', 'NOT '))}NULL"
        if form == 7:
            return f"{alias}.k {rng.choice(('', 'NOT '))}IN (0, {rng.choice(('1', 'NULL', '3'))})"
        return f"{alias}.p BETWEEN 5 AND {rng.choice((15, 30))}" if form == 8 else f"NOT {alias}.{column} < {value}"

    @property
    def _terms(self) -> Terms:
        return Terms(self.random, [alias for alias, _ in self.aliases])

    @property
    def _over(self) -> GroupTerms:
        return GroupTerms(self.random, [alias for alias, _ in self.aliases])

    def _shown(self) -> str:
        """Return columns and expressions."""
        rng, terms = self.random, self._terms
        found = [terms.term() if rng.random() < 0.5 else column for column in self._columns(rng.randrange(1, 5))]
        found += [name for name in self.merged if rng.random() < 0.7]
        return self._perhaps_named(found)

    def _perhaps_named(self, columns: Sequence[str]) -> str:
        """Return the columns, some of them without AS."""
        return ", ".join(f"{one} AS c{at}" if self.random.random() < 0.6 else one for at, one in enumerate(columns))

    def _excluding(self, source: str) -> Form:
        """Select all columns of an alias except some, and an expression. DuckDB includes the intervals."""
        rng, (alias, of) = self.random, self.random.choice(self.aliases)
        left_out = rng.sample([column["name"] for column in _COLUMNS] + KEYS[of], rng.choice((1, 1, 3)))
        self.kinds.add("exclude")
        shown = self._terms.term()
        ours, theirs = (", ".join(names) for names in (left_out, [*left_out, "i", "j"]))
        return Form(*(f"SELECT {alias}.* EXCLUDE ({names}), {shown} AS shown FROM {source}" for names in (ours, theirs)))

    def _columns(self, count: int, json: bool = True) -> list[str]:
        names = [one["name"] for one in _COLUMNS if json or one["type"] != "json"]
        shown = [f"{alias}.{column}" for alias, of in self.aliases for column in (*KEYS[of], *names)]
        return self.random.sample(shown, count)

    def _with_keys(self) -> list[str]:
        """Select the complete keys of some aliases, and other columns of these."""
        rng = self.random
        chosen = rng.sample(self.aliases, rng.randrange(1, len(self.aliases) + 1))
        found = [f"{alias}.{column}" for alias, of in chosen for column in (*KEYS[of], *rng.sample(_GROUPED, 2))]
        rng.shuffle(found)
        return found

    def _latest(self) -> tuple[str, str]:
        """Return SELECT, and ORDER BY or QUALIFY. Among equal rows, the one with the greatest primary key is first, as always in
        livejoin."""
        rng, ((alias, of),) = self.random, self.aliases
        by = [f"{alias}.{column}" for column in rng.sample((*_GROUPED, *KEYS[of]), rng.choice((0, 1, 1, 2)))]
        by += [self._terms.of()] if rng.random() < 0.3 else []
        kinds = ("f", "w", "d", "m", "n", "p", "k", "v", "h", "k % 3", "f / 2", "w + INTERVAL '1 day'", "m + 1", "d - 1", "g")
        texts = (f"{alias}.t", f"{alias}.u", f"{alias}.y", f"lower({alias}.t)", f"repeat({alias}.t, 11)", f"{alias}.t || '{'x' * 60}'")
        all_ = (*(f"{alias}.{one}" for one in kinds), *texts, *(f"{alias}.{name}" for name in KEYS[of]))
        chosen = rng.sample(all_, rng.choice((1, 1, 2, 3)))
        order = ", ".join(f"{one} {rng.choice(('ASC', 'DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}" for one in chosen)
        order += "".join(f", {alias}.{name} DESC" for name in KEYS[of] if f"{alias}.{name}" not in by)
        self.kinds |= {"several orders"} if len(chosen) > 1 else set()
        columns = self._shown()
        if by and rng.random() < 0.5:
            self.kinds.add("distinct on")
            return f"DISTINCT ON ({', '.join(by)}) {columns}", f" ORDER BY {', '.join(by)}, {order}"
        if not by and rng.random() < 0.5:
            self.kinds.add("limit")
            return columns, f" ORDER BY {order} LIMIT {rng.choice((1, 2, 5))}"
        self.kinds.add("qualify")
        partition = f"PARTITION BY {', '.join(by)} " if by else ""
        return columns, f" QUALIFY ROW_NUMBER() OVER ({partition}ORDER BY {order}) <= {rng.choice((1, 1, 2, 5))}"

    def _groups(self, shape: str) -> tuple[str, str]:
        """Return SELECT and GROUP BY … HAVING."""
        rng = self.random
        columns = []
        for _ in range(0 if shape == "one" else rng.choice((1, 1, 2, 3))):
            alias = rng.choice(self.aliases)[0]
            columns.append(
                self._terms.of()
                if rng.random() < 0.2
                else rng.choice(
                    (
                        *(f"{alias}.{c}" for c in f"ktf{_GROUPED}"),
                        f"date_trunc('{rng.choice(('hour', 'day', 'week', 'month', 'quarter', 'year'))}', {alias}.w)",
                        f"date_trunc('{rng.choice(('day', 'week', 'month', 'year'))}', {alias}.d)",
                    )
                )
            )
        columns = list(dict.fromkeys(columns))
        aggregates = [self._aggregate() for _ in range(rng.randrange(0 if columns else 1, 5))]
        if rng.random() < 0.4:
            self.kinds.add("computed")
            aggregates.append((self._over.computed(columns), ""))
        shown = [at for at in range(len(columns)) if rng.random() < 0.8]
        if not shown and not aggregates:
            shown = [0]
        named = [at for at in shown if rng.random() < 0.6]
        names = [f"{columns[at]} AS c{at}" if at in named else columns[at] for at in shown]
        names += [text if rng.random() < 0.3 else f"{text} AS a{at}" for at, (text, _) in enumerate(aggregates)]
        by = [f"c{at}" if at in named and rng.random() < 0.3 else columns[at] for at in range(len(columns))]
        rest = f" GROUP BY {', '.join(by)}" if by else ""
        having = [self._having(columns) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
        if having:
            self.kinds.add("having")
            rest += " HAVING " + self._together(having)
        return ", ".join(names), rest

    def _aggregate(self) -> tuple[str, str]:
        """Return an aggregate, and a constant to compare it with that is not near any sum of floats."""
        rng = self.random
        if rng.random() < 0.3:
            text, constant = self._over.of_term()
            self.kinds |= {"of term", "filter"} if "FILTER" in text else {"of term"}
            return text, constant
        alias = rng.choice(self.aliases)[0]
        column, constant = rng.choice((("k", "3"), ("f", "1.37"), ("m", "20.04"), ("n", "3.02"), ("p", "60"), ("q", "22")))
        whole = rng.choice(
            (
                ("COUNT(*)", "2"), (f"COUNT({alias}.{rng.choice(f'{_GROUPED}o')})", "2"),
                (f"COUNT(DISTINCT {alias}.{rng.choice(_GROUPED)})", "2"),
                (f"SUM({alias}.{column})", constant), (f"SUM({alias}.{column})", constant), (f"SUM({alias}.g)", ""),
                (f"AVG({alias}.{column})", {"k": "1.3", "p": "13.3", "q": "20.2", "m": "10.3", "n": "1.2"}.get(column, constant)),
                (f"MIN({alias}.{column})", constant), (f"MAX({alias}.{column})", constant), (f"MIN({alias}.w)", "'2026-01-30 03:00:00+00'"),
                (f"MAX({alias}.d)", "'2026-02-01'"), (f"MIN({alias}.v)", "TRUE"),
                (f"{rng.choice(('MIN', 'MAX'))}({alias}.h)", "'06:00'"), (f"SUM(duration({alias}.j))", "7"),
                *([(f"SUM(duration({', '.join(rng.sample(self.in_common, 2))}))", "5")] * 2 if self.in_common else []),
                (f"MAX(duration({alias}.i))", "2"), (f"AVG(duration({alias}.i))", "2.2"),
            )
        )  # fmt: skip
        self.kinds.add(whole[0].partition("(")[0].lower() + (" distinct" if "DISTINCT" in whole[0] else ""))
        return whole

    def _having(self, columns: Sequence[str]) -> str:
        rng = self.random
        if columns and rng.random() < 0.2:
            return f"{rng.choice(columns)} IS {rng.choice(('', 'NOT '))}NULL"
        if rng.random() < 0.3:
            return self._over.condition()
        text, constant = self._aggregate()
        form = rng.randrange(8)
        if not constant:  # a sum that DuckDB has a type for
            return "COUNT(*) > 0"
        if form == 7:
            return f"{text} IS {rng.choice(('', 'NOT '))}NULL"
        if form == 6:
            return f"NOT {text} < {constant}"
        return f"{text} {('=', '<>', '<', '<=', '>', '>=')[form]} {constant}"
