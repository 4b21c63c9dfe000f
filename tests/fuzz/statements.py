"""Statements and definitions drawn from the whole grammar, valid and invalid, over the relations of `tests/service/random_sql.py`.

A name is usually one that is in scope, sometimes any other: of another part, of the other relation, an interval for a column, a relation
for an alias, unqualified, misspelt. Clauses are combined freely. `Statement` of `random_sql` has the valid ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

from service.query.model import ALGORITHMS
from tests.service.random_sql import KEYS, Statement

_NAMES = "kkttffvdwmnguhyosepq"
_DEEPEST = 5
_HOLE = re.compile(r"<([a-z]+)>")
_SQL: dict[str, Sequence[str]] = {  # beyond the greatest depth, the first alternative
    "word": ("JOIN", "JOIN", "INNER JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "SEMI JOIN",
        "ANTI JOIN", "ASOF JOIN", "ASOF LEFT JOIN", "LEFT SEMI JOIN", "RIGHT ANTI JOIN", "CROSS JOIN", "NATURAL JOIN", ",",
        "LEFT JOIN LATERAL"),
    "on": ("ON <join>", "ON <join> AND <join>", "ON <join> AND <join>", "ON <join> AND <filter>", "ON <join> AND <join> AND <join>",
        "USING (<name>)", "USING (<name>, <name>)", "ON <condition>", "ON TRUE", ""),
    "join": ("<column> = <column>", "<same>", "<same>", "<same>", "overlaps(<interval>, <interval>)", "overlaps(<interval>, <interval>)",
        "<interval> OVERLAPS <interval>", "<column> <op> <column>", "<alias>.s < <alias>.e AND <alias>.s < <alias>.e",
        "<alias>.p <= <alias>.q AND <alias>.p <= <alias>.q", "abs(<column> - <column>) <= <number>",
        "<column> BETWEEN <column> AND <column>", "<same> AND <same>",
        "<column> BETWEEN <column> - <number> AND <column> + <number>",
        "<column> - <column> < <number>", "<column> <= <column> + <value>",
        "(<alias>.e IS NULL OR <alias>.s < <alias>.e) AND <alias>.s < <alias>.e"),
    "filter": ("<compared>", "<compared>", "<compared>", "<compared>", "<column> <op> <value>", "<column> IS NULL",
        "<column> IS NOT NULL", "<column> IN (<value>, <value>)", "NOT <column> = <value>", "<column> NOT IN (<value>, NULL)",
        "<column> BETWEEN <value> AND <value>", "<column> LIKE '<pattern>'", "<column> IS NOT TRUE",
        "<column> NOT LIKE '<pattern>' ESCAPE '!'", "<column> IS DISTINCT FROM <value>", "<value> <op> <column>", "<interval> IS NULL",
        "overlaps(<interval>, <value>, <value>)", "<column>", "<column> <op> ALL (<sub>)", "<term> <op> <value>"),
    "condition": ("<filter>", "<filter>", "<join>", "(<condition> OR <condition>)", "(<filter> OR <filter>)", "NOT (<condition>)",
        "<part>", "<condition> AND <condition>", "<column> IN (<sub>)", "<column> NOT IN (<sub>)", "<term> <op> <term>",
        "<term> IS NULL", "int8range(<column>, <term>) && int8range(<column>, <column>)", "<term> <@ tstzrange(<column>, NULL, '[]')"),
    "part": ("EXISTS (<sub>)", "NOT EXISTS (<sub>)", "NOT EXISTS (<sub>)", "<part> AND <part>", "NOT (<part>)", "(<part> OR <part>)"),
    "op": ("=", "<", "<=", ">", ">=", "<>", "!=", "=", "IS NOT DISTINCT FROM"),
    "value": ("1", "2", "0", "-3", "1.5", "'a'", "'2'", "TRUE", "NULL", "DATE '2026-02-01'", "TIMESTAMP '2026-01-30 03:00:00'",
        "'20240101'", "'2026-01-30T00:00:00Z'", "INTERVAL '2 hours'", "INTERVAL '1 month'", "'06:00'", "'\\x61'", "9223372036854775808",
        "1e400", "'NaN'", "CAST('1' AS bigint)", "'00000000-0000-4000-8000-00000000000a'", "1 + 1", "now()", "?", "$1", "(1, 2)",
        "ARRAY[1]", "'infinity'"),
    "number": ("2", "0", "1.5", "-1", "INTERVAL '15 minutes'", "'1 day 04:30'", "2 * INTERVAL '1' HOUR", "'x'", "1e10",
        "9223372036854775807"),
    "pattern": ("a%", "%", "_", "", "%\\", "é_", "!%"),
    "term": ("<column>", "<value>", "(<term> <arith> <term>)", "(<column> <arith> <column>)", "(<column> <arith> <value>)", "-<column>",
        "abs(<term>)", "coalesce(<term>, <term>)", "CASE WHEN <condition> THEN <term> ELSE <term> END",
        "CASE <term> WHEN <value> THEN <term> END", "CAST(<term> AS <type>)", "<column>::<type>", "lower(<term>)", "upper(<column>)",
        "<term> || <term>", "<column> ->> 'k'", "<column> -> 'a' ->> 1", "date_trunc('<unit>', <term>)", "duration(<interval>)",
        "left(<term>, <value>)", "replace(<term>, <value>, <value>)", "split_part(<column>, <value>, <value>)", "round(<term>, <value>)",
        "<term> ^ <term>", "extract(<unit> FROM <term>)", "<column> AT TIME ZONE <value>", "date_bin(<value>, <column>, <term>)",
        "to_char(<column>, <value>)", "make_date(<term>, <term>, <value>)", "<column> #>> <value>", "nullif(<term>, <value>)",
        "greatest(<term>, <term>, <value>)", "concat(<term>, <value>)", "upper(intersection(<interval>))", "<column> + INTERVAL <value>",
        "duration(<interval>, <interval>)", "(<filter>)", "<aggregate>", "extract(year FROM <column>)", "(SELECT 1)", "<term> IS NULL",
        "greatest(<term>, <term>)", "nullif(<term>, <value>)"),
    "arith": ("+", "-", "*", "/", "%", "||"),
    "type": ("bigint", "int", "double precision", "text", "date", "timestamp", "boolean", "decimal(10,2)", "decimal(18,18)", "uuid",
        "time", "json", "bytea", "decimal", "varchar(3)", "timestamptz", "real", "int[]"),
    "unit": ("day", "hour", "week", "month", "quarter", "year", "day", "month", "minute", "x"),
    "aggregate": ("COUNT(*)", "COUNT(<column>)", "COUNT(DISTINCT <column>)", "SUM(<column>)", "AVG(<column>)", "MIN(<column>)",
        "MAX(<column>)", "SUM(duration(<interval>))", "SUM(duration(<interval>, <interval>))", "MIN(<term>)", "SUM(DISTINCT <column>)",
        "COUNT()", "COUNT(*) FILTER (WHERE <filter>)", "SUM(<term>) FILTER (WHERE <filter>)",
        "MAX(<term>)", "stddev(<term>)", "var_pop(<column>)", "bool_or(<term>)", "every(<filter>)", "(SUM(<column>) / COUNT(*))",
        "MAX(<interval>)", "STRING_AGG(<column>, ',')", "COUNT(<column>, <column>)"),
    "shown": ("<column> AS <fresh>", "<column>", "<alias>.<name> AS <fresh>", "<term> AS <fresh>", "<term>", "<alias>.*",
        "<aggregate> AS <fresh>", "intersection(<interval>, <interval>) AS <fresh>", "intersection(<interval>) AS <fresh>",
        "duration(<interval>) AS <fresh>", "gaps(<interval>, <interval>) AS <fresh>", "coverage(<interval>, <interval>) AS <fresh>",
        "coverage(<interval>) AS <fresh>", "<alias>.* EXCLUDE (<name>, <name>)", "<interval> AS <fresh>",
        "date_trunc('<unit>', <column>) AS <fresh>"),
    "what": ("<shown>", "*", "<shown>, <shown>", "<shown>, <shown>, <shown>", "* EXCLUDE (<name>)", "*, <term> AS <fresh>",
        "DISTINCT <shown>", "DISTINCT <column> AS <fresh>, <column> AS <fresh>", "DISTINCT ON (<column>) <shown>",
        "DISTINCT ON (<column>, <column>) <shown>", "<column> AS <fresh>, <aggregate> AS <fresh>", "<aggregate> AS <fresh>",
        "<aggregate> AS <fresh>, <aggregate> AS <fresh>"),
    "rest": ("", "", "", "", "", "", "", "", "", "", "", "", "GROUP BY <column>", "GROUP BY <column>, <column>",
        "GROUP BY <column> HAVING <aggregate> <op> <value>",
        "GROUP BY <term>, <column> HAVING <aggregate> <op> <aggregate>", "GROUP BY ALL", "GROUP BY <term>", "GROUP BY 1",
        "HAVING COUNT(*) > 1",
        "GROUP BY <column> HAVING <condition>", "ORDER BY <column>", "ORDER BY <column>, <column> DESC NULLS LAST", "LIMIT 3",
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY <column> ORDER BY <column>) <= 2",
        "QUALIFY ROW_NUMBER() OVER (ORDER BY <column> DESC NULLS LAST) = 1", "QUALIFY RANK() OVER (ORDER BY <column>) = 1",
        "WINDOW w AS (ORDER BY <column>)", "OFFSET 1", "FOR UPDATE"),
    "set": ("UNION", "UNION", "EXCEPT", "UNION ALL", "INTERSECT", "EXCEPT ALL"),
}  # fmt: skip
_PLAIN: dict[str, Sequence[str]] = {  # of short statements: most faults need no more than one unusual part
    "on": ("ON <equal>", "ON <equal>", "ON <equal> AND <equal>", "ON <equal> AND <same>", "ON overlaps(<interval>, <interval>)",
        "USING (k)"),
    "what": ("*", "<column> AS <fresh>", "<column> AS <fresh>, <column> AS <fresh>", "<alias>.*", "<aggregate> AS <fresh>", "<shown>"),
    "aggregate": ("COUNT(*)", "COUNT(<column>)", "MAX(<column>)", "COUNT(DISTINCT <column>)"),
    "filter": ("<compared>",),
    "condition": ("<compared>", "<equal>", "<same>"),
    "rest": ("", "", "", "", "GROUP BY <column>"),
}  # fmt: skip
_JOINS = (*["equal"] * 5, *["overlaps"] * 4, *("at_most", "less", "not_equal", "within") * 2, "cross", "as_of")
_OPS = ("=", "!=", "<", "<=", ">", ">=", "in", "like", "is_null", "not_null", "x")
_JSON: Sequence[Any] = (1, "a", True, None, 1.5, "2026-02-01", "06:00", [1, None], ["a", "b"], "a%", 2**63, "20240101", {}, [], "PT15M")
_VALUES = {  # of each column's type
    "k": ("0", "2"), "t": ("'b'", "''", "'é'"), "f": ("0.0", "2", "-1"), "v": ("TRUE", "FALSE"), "d": ("DATE '2026-02-01'", "'2026-01-30'"),
    "w": ("TIMESTAMPTZ '2026-01-30 03:00:00+00'",), "m": ("19.99", "-1.25"), "n": ("1.5",), "p": ("20",), "s": ("10",), "e": ("12",),
    "u": ("'00000000-0000-4000-8000-00000000000a'",), "h": ("'06:00'", "TIME '12:00:00.5'"), "y": ("'\\x61'",),
}  # fmt: skip


class Drawn:
    """One statement, or definition in JSON: `text`, or `json`."""

    def __init__(self, rng: Random) -> None:
        self.random = rng
        self._scopes: list[list[tuple[str, str]]] = [[]]
        self._rules = _SQL | _PLAIN if rng.random() < 0.5 else _SQL
        self._fresh = 0

    # in SQL

    def text(self) -> str:
        rng = self.random
        text = self._select()
        if rng.random() < 0.12:
            text = f"{text} {rng.choice(_SQL['set'])} {rng.choice(('{}', '({})')).format(self._select())}"
        return f"WITH c AS ({text}) SELECT * FROM c" if rng.random() < 0.01 else text

    def _select(self) -> str:
        rng = self.random
        self._scopes.append([])
        source = self._from()
        where = " WHERE " + self._fill(rng.choice(("<filter>", "<part>", "<condition>"))) if rng.random() < 0.4 else ""
        text = f"SELECT {self._fill('<what>')} FROM {source}{where} {self._fill('<rest>')}".rstrip()
        self._scopes.pop()
        return text

    def _from(self) -> str:
        rng = self.random
        text = self._relation()
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2) if self._rules is not _SQL else (0, 0, 1, 1, 1, 1, 2, 2, 3))):
            word, relation = self._fill("<word>"), self._relation()
            on = "" if word in (",", "CROSS JOIN", "NATURAL JOIN") and rng.random() < 0.9 else self._fill("<on>")
            text += f" {word} {relation} {on}"
        return text

    def _relation(self) -> str:
        rng = self.random
        if len(self._scopes) < 4 and rng.random() < 0.02:
            return f"({self._select()}) {rng.choice('xyz')}"
        of = rng.choice("lr") if rng.random() < 0.99 else rng.choice(("c", "nothing", '"l"', "public.l", "L"))
        alias = f"{'xyz'[len(self._scopes[-1]) % 3]}{'' if len(self._scopes) < 3 else len(self._scopes)}"
        if rng.random() < 0.01:
            alias = rng.choice(("x", "y", "row", "X"))
        if rng.random() < 0.05:
            alias, shown = of, of
        else:
            shown = f"{of} {rng.choice(('', 'AS '))}{alias}"
        self._scopes[-1].append((alias, of))
        return shown

    def _fill(self, text: str, depth: int = 0) -> str:
        return _HOLE.sub(lambda hole: self._part(hole[1], depth + 1), text)

    def _part(self, kind: str, depth: int) -> str:
        rng = self.random
        match kind:
            case "column":
                return self.column()
            case "alias":
                return self._alias()[0]
            case "interval":
                return f"{self._alias()[0]}.{rng.choice('iiijjk')}" if rng.random() < 0.95 else rng.choice(("i", "x.nothing", "j"))
            case "name":
                return rng.choice((*_NAMES, "id", "nr", "site", "i", "nothing"))
            case "equal" | "same":
                name = rng.choice(_NAMES)
                return f"{self._alias()[0]}.{name} {'=' if kind == 'equal' else rng.choice('= < <= <>'.split())} {self._alias()[0]}.{name}"
            case "compared":
                name = rng.choice([*_VALUES])
                return f"{self._alias()[0]}.{name} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {rng.choice(_VALUES[name])}"
            case "fresh":
                self._fresh += 1
                return f"c{self._fresh}" if rng.random() < 0.97 else rng.choice(("c1", "k", "x", '"Some col"', "select", "group"))
            case "sub":
                return self._select() if len(self._scopes) < 4 else "SELECT 1"
        return self._fill(self._rules[kind][0] if depth > _DEEPEST else rng.choice(self._rules[kind]), depth)

    def _alias(self) -> tuple[str, str]:
        rng = self.random
        scope = self._scopes[-1] if rng.random() < 0.85 else rng.choice(self._scopes)
        return rng.choice(scope) if scope and rng.random() < 0.98 else (rng.choice("xyzuvwlr"), "l")

    def column(self) -> str:
        rng = self.random
        alias, of = self._alias()
        name = rng.choice((*_NAMES, *KEYS.get(of, ())) if rng.random() < 0.97 else ("id", "nr", "site", "i", "nothing", "*", "K"))
        form = rng.random()
        return f"{alias}.{name}" if form < 0.9 else name if form < 0.98 else f'"{alias}"."{name}"'

    # in JSON

    def json(self) -> Any:
        rng = self.random
        if rng.random() < 0.1:
            found: Any = {rng.choice(("union", "union_all", "intersect", "except")): [self._branch() for _ in range(rng.choice((2, 2, 3)))]}
        else:
            found = self._branch()
            if rng.random() < 0.3:
                found["group"] = [self._named(), {"trunc": self._fill("<unit>"), "of": self.column(), "as": "t"}][: rng.choice((1, 1, 2))]
                found["aggregate"] = [self._aggregated() for _ in range(rng.choice((0, 1, 2)))]
                found.pop("select", None)
                if rng.random() < 0.3:
                    found["having"] = [self._entry(rng.choice(("n", self.column())))]
            elif rng.random() < 0.1:
                latest = {"by": [self.column()], "order": self.column(), "descending": rng.random() < 0.5, "rows": rng.choice((1, 3))}
                found["latest"] = latest
            elif rng.random() < 0.1:
                found["distinct"] = True
        if rng.random() < 0.1:
            found = {"with": {"w": self._branch()}, "from": {"x": found, "y": rng.choice("wlr")}, "join": [{"equal": ["x.k", "y.k"]}]}
        return found

    def _branch(self) -> dict[str, Any]:
        rng = self.random
        self._scopes.append([])
        found = self._part_json(rng.choice((1, 1, 2, 2, 3)))
        for kind in ("exists", "not_exists", "left", "full"):
            if rng.random() < 0.12:
                self._scopes.append([])
                part = self._part_json(rng.choice((1, 1, 2)))
                found[kind] = part if kind == "full" else [part]
                self._scopes.pop()
        if rng.random() < 0.8:
            found["select"] = [self._selected() for _ in range(rng.choice((1, 2, 3)))]
        return found

    def _part_json(self, count: int) -> dict[str, Any]:
        rng = self.random
        outer = len(self._scopes) > 2
        for alias in rng.sample("uvw" if outer else "xyz", count):
            self._scopes[-1].append((alias, rng.choice("lr")))
        found: dict[str, Any] = {"from": dict(self._scopes[-1])}
        if count > 1 or outer or rng.random() < 0.1:
            found["join"] = [self._joined() for _ in range(rng.choice((count - 1 + outer, count)) or 1)]
        if rng.random() < 0.4:
            found["where"] = [self._entry(self.column())]
        return found

    def _joined(self) -> dict[str, Any]:
        rng, kind = self.random, self.random.choice(_JOINS)
        inputs = [rng.choice(self._scopes[-1])[0], rng.choice(self._scopes[rng.choice((-1, -2))] or self._scopes[-1])[0]]
        if inputs[0] == inputs[1] and rng.random() < 0.8:
            inputs = [alias for alias, _ in rng.sample(self._scopes[-1], 2)] if len(self._scopes[-1]) > 1 else inputs
        if kind == "cross":
            return {kind: inputs}
        name = rng.choice("ij" if kind == "overlaps" else _NAMES)
        pair = [f"{input}.{name if rng.random() < 0.8 else rng.choice(_NAMES)}" for input in inputs]
        if kind == "as_of":
            return {kind: [pair[0], rng.choice(_OPS[2:6] * 3 + _OPS), pair[1]]}
        number = rng.choice((2, 2, 2, 0.5, "PT15M", "P1D", -1))
        if kind in ("less", "at_most") and rng.random() < 0.3:
            return {kind: [{"column": pair[0], "plus": number}, pair[1]]}
        return {kind: pair, "distance": number} if kind == "within" else {kind: pair}

    def _entry(self, column: str, depth: int = 0) -> dict[str, Any]:
        rng = self.random
        if depth < 3 and (form := rng.random()) < 0.25:
            entries = [self._entry(column if rng.random() < 0.7 else self.column(), depth + 1) for _ in range(2)]
            return {"not": entries[0]} if form < 0.08 else {rng.choice(("or", "and")): entries}
        if rng.random() < 0.1:
            return {"expression": self._fill("<condition>")}
        found = {"column": column, "op": rng.choice(_OPS), "value": rng.choice(_JSON)}
        if rng.random() < 0.5:
            found |= {"column": f"{self._alias()[0]}.k", "value": 2, "op": rng.choice(_OPS[:6])}
        if found["op"] in ("is_null", "not_null"):
            del found["value"]
        return found

    def _named(self) -> str:
        self._fresh += 1
        return f"{self.column()} as c{self._fresh}"

    def _selected(self) -> Any:
        rng = self.random
        if rng.random() < 0.6:
            return self._named()
        kind = rng.choice(("expression", "expression", "intersection", "duration", "gaps", "coverage"))
        intervals = [self._fill("<interval>") for _ in range(rng.choice((1, 2, 2)))]
        self._fresh += 1
        return {kind: self._fill("<term>") if kind == "expression" else intervals, "as": f"c{self._fresh}"}

    def _aggregated(self) -> dict[str, Any]:
        rng = self.random
        function = rng.choice(("count", "count_distinct", "sum", "avg", "min", "max", "var_samp", "stddev_pop", "expression"))
        self._fresh += 1
        computed = {"duration": [self._fill("<interval>")]}, {"expression": self._fill("<term>")}
        of: Any = rng.choice((self.column(), self.column(), "*", *computed))
        of = self._fill("<aggregate> + <aggregate>") if function == "expression" else of
        filter = {"filter": [self._entry(self.column())]} if rng.random() < 0.1 else {}
        return {function: of, "as": rng.choice(("n", f"c{self._fresh}"))} | filter


_WORD = re.compile(r"\s+|'[^']*'|\w+|<>|[<>]=|.", re.DOTALL)
_ALIKE: Sequence[Sequence[str]] = (
    ("x", "y", "z", "u"),
    (*_NAMES, "i", "j", "id", "nr", "site"),
    ("l", "r"),
    ("=", "<>", "<", "<=", ">", ">="),
    ("+", "-", "*", "/", "||"),
    ("LEFT", "RIGHT", "FULL", "SEMI", "ANTI", "ASOF"),
    ("JOIN", "LEFT JOIN", "SEMI JOIN", "ANTI JOIN", "CROSS JOIN"),
    ("AND", "OR", "AND NOT"),
    ("SUM", "AVG", "MIN", "MAX", "COUNT", "bool_and", "stddev", "var_samp"),
    ("gaps", "coverage", "intersection", "duration", "overlaps", "abs", "coalesce"),
    ("UNION", "EXCEPT", "INTERSECT"),
    ("EXISTS", "NOT EXISTS"),
    ("DISTINCT", ""),
    ("TRUE", "NULL", "0", "2", "1.5", "'b'", "'2026-02-01'", "'\\x61'"),
    ("bigint", "text", "date", "timestamp", "boolean", "uuid", "json", "bytea", "time"),
    ("day", "hour", "month", "year"),
    ("DESC", "ASC"),
)  # fmt: skip


def exchanged(text: str, rng: Random) -> str:
    """Return a statement with some words exchanged for others of their kind: its syntax is still valid."""
    words = _WORD.findall(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        kind = rng.choice([kind for kind in _ALIKE if not set(kind).isdisjoint(words)])  # first: a statement has few words of most kinds
        words[rng.choice([at for at, word in enumerate(words) if word in kind])] = rng.choice(kind)
    return "".join(words)


def spoilt(text: str, other: str, rng: Random) -> str:
    """Return a statement with some of its words left out, repeated, exchanged, or taken from another one."""
    words, others = _WORD.findall(text), _WORD.findall(other)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, end = sorted(rng.randrange(len(words) + 1) for _ in range(2))
        end = min(end, at + rng.choice((1, 1, 2, 8)))
        from_other = rng.randrange(len(others))
        form = rng.randrange(4)
        taken = (words[at:end] * 2, [], others[from_other : from_other + end - at], words[at:end][::-1])[form]
        words[at:end] = taken
    return "".join(words)


def definition(rng: Random) -> dict[str, Any]:
    """Return what a client might send to define a view."""
    form = rng.random()
    if form < 0.12:
        data: Any = {"sql": Statement(rng).text}
    elif form < 0.37:
        data = {"sql": exchanged(Statement(rng).text, rng)}
    elif form < 0.45:
        data = {"sql": spoilt(Statement(rng).text, Drawn(rng).text() if rng.random() < 0.5 else Statement(rng).text, rng)}
    elif form < 0.8:
        data = {"sql": Drawn(rng).text()}
    else:
        data = Drawn(rng).json()
    if rng.random() < 0.15:
        data["algorithm"] = rng.choice(("auto", *ALGORITHMS))
    if rng.random() < 0.1:
        data["guarantee"] = rng.choice(("strict", "delay", "best-effort"))
    if rng.random() < 0.1:
        data["changes"] = rng.choice((False, {"retain_rows": 1}, {"retain_bytes": 1}))
    if rng.random() < 0.05:
        data["groups"] = rng.choice((1, 3, 1000))
    return dict(data)
