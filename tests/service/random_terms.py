"""Random expressions over one row that DuckDB evaluates in the same way, with its operator for integer division, and null for a division by
zero.

Left out are expressions that are null only in livejoin (beyond int64, a text that is not a number), those for which DuckDB has another type
(the difference of two timestamps), and products of decimals that do not fit into DuckDB's narrower results.
`tests/service/query/test_terms.py` has these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

JSON = ('{"k": 1, "t": "a", "a": [1, "x", {"z": true}]}', '{"k": -2.5, "t": null, "a": []}', '{"k": {"t": "é"}}', "[]", "null", '"a"')


_FIELDS = ("year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "hour", "minute")


class Terms:
    """Expressions over columns of these aliases, as in `random_sql`."""

    def __init__(self, rng: random.Random, aliases: Sequence[str]) -> None:
        self._random, self._aliases = rng, aliases

    def term(self) -> str:
        """Of any kind."""
        kind = self._random.choice((*self._KINDS, "other"))
        return self._other() if kind == "other" else self._of(kind, self._random.choice((1, 1, 2)))

    def condition(self) -> str:
        """Of kind bool, over several columns or with a function of one."""
        a, b = self._column("kpqs"), self._column("kpqs")
        forms = (f"{a} < {b}", f"{a} IS NOT DISTINCT FROM {b}", f"{a} + {b} > 9", self._of("bool", 1), self._of("bool", 2))
        return self._random.choice(forms)

    def of_pair(self) -> str:
        """Of kind bool, of a row of an as-of join of x and y, which may lack y."""
        of_one, of_both = ("coalesce(y.k, 1) = 1", "y.m IS NULL"), ("x.t = y.t", "x.p < y.p + 9", "x.k + y.k > 2", "y.f <> x.f")
        return self._random.choice((*of_one, *of_both, "(y.t IS NULL OR x.v)", self.condition()))

    def of(self, *kinds: str) -> str:
        """Of one of these kinds, by default of any that can be compared."""
        return self._of(self._random.choice(kinds or tuple(self._KINDS)), self._random.choice((1, 1, 2)))

    def _column(self, names: str) -> str:
        return f"{self._random.choice(self._aliases)}.{self._random.choice(names)}"

    def _of(self, kind: str, depth: int) -> str:
        if depth == 0:
            return self._column(self._KINDS[kind][0])
        return self._KINDS[kind][1](self, depth - 1)

    def _chosen(self, kind: str, depth: int) -> str:
        """What there is of each kind."""
        one, other, condition = self._of(kind, depth), self._of(kind, depth), self._of("bool", depth)
        return self._random.choice(
            (
                f"coalesce({one}, {other})", f"CASE WHEN {condition} THEN {one} ELSE {other} END", f"CASE WHEN {condition} THEN {one} END",
                f"CASE {self._column('kpq')} WHEN 1 THEN {one} WHEN 2 THEN {other} END", f"nullif({one}, {other})",
                f"{self._random.choice(('greatest', 'least'))}({one}, {other})",
            )
        )  # fmt: skip

    def _int(self, depth: int) -> str:
        one, other, pick = self._of("int", depth), self._of("int", depth), self._random.choice
        return pick(
            (
                f"({one} {pick('+-*/%')} {other})", f"({one} {pick('+-*/%')} {pick(('2', '-3'))})", f"-({one})", f"coalesce({one}, 7)",
                self._chosen("int", depth), f"({self._column('d')} - {self._column('d')})", f"CAST({self._column('v')} AS bigint)",
                f"CAST(CAST({self._column('m')} AS double precision) AS bigint)", f"abs({one})", f"mod({one}, {self._column('kp')})",
                f"length({self._of('text', depth)})", f"position('{pick(('a', 'é', ''))}' IN {self._of('text', depth)})",
                f"CAST(extract({pick(_FIELDS)} FROM {self._column('w')}) AS bigint)",
                f"CAST(date_part('{pick(_FIELDS[:8])}', {self._column('d')}) AS bigint)",
            )
        )  # fmt: skip

    def _decimal(self, depth: int) -> str:
        m, n, pick = self._column("m"), self._column("n"), self._random.choice
        return pick(
            (
                f"({m} {pick('+-')} {n})", f"({n} - {n})", f"({m} * {self._column('kp')})", f"({m} + 1)", f"({self._column('kp')} * 1.5)",
                f"-{m}", f"coalesce({m}, {pick(('0', '1.5', n))})", f"CAST({self._of('int', depth)} AS decimal(14,2))",
                f"CAST({m} AS decimal(12,1))", self._chosen("decimal", 0), f"abs({m})", f"{pick(('round', 'trunc', 'floor', 'ceil'))}({m})",
                f"round({m}, {pick('01')})",
            )
        )  # fmt: skip

    def _float(self, depth: int) -> str:
        f, pick = self._of("float", depth), self._random.choice
        return pick(
            (
                f"({f} {pick('+-*')} {self._column('f')})", f"({f} * 0.5)", f"({f} - {self._column('k')})", f"-({f})", f"coalesce({f}, 0)",
                f"CAST({self._column('mnk')} AS double precision)", f"({self._column('m')} / {self._column('n')})", f"abs({f})",
                f"{pick(('floor', 'ceil', 'trunc'))}({f})", f"sqrt({self._column('pq')})",
                self._chosen("float", depth),
            )
        )  # fmt: skip

    def _text(self, depth: int) -> str:
        t, pick = self._of("text", depth), self._random.choice
        return pick(
            (
                f"lower({t})", f"upper({t})", f"({t} || '-' || {self._of('text', depth)})", f"coalesce({t}, 'none')",
                f"CAST({self._of('int', depth)} AS text)", f"CAST({self._column('dmnv')} AS text)", self._chosen("text", depth),
                f"({self._column('o')} ->> '{pick('kta')}')", f"({self._column('o')} -> 'a' ->> {pick('012')})",
                f"{pick(('trim', 'ltrim', 'rtrim', 'md5'))}({t})", f"{pick(('left', 'right'))}({t}, {pick(('0', '1', '-1'))})",
                f"substr({t}, 2)", f"substring({t} FROM 1 FOR 2)", f"replace({t}, '{pick('abé')}', '{pick(('', 'xy'))}')",
                f"split_part({t}, '{pick('z-')}', {pick('12')})", f"concat({t}, 'x', {self._column('t')})",
                f"concat_ws('-', {t}, {self._column('t')})", f"trim(BOTH 'a' FROM {t})",
            )
        )  # fmt: skip

    def _date(self, depth: int) -> str:
        d, pick = self._of("date", depth), self._random.choice
        return pick(
            (
                f"({self._column('d')} {pick('+-')} {pick(('1', '40'))})", f"coalesce({d}, DATE '2026-02-01')", self._chosen("date", depth),
                f"CAST({self._column('w')} AS date)", f"date_trunc('{pick(('day', 'week', 'month', 'quarter'))}', {self._column('d')})",
            )
        )  # fmt: skip

    def _timestamp(self, depth: int) -> str:
        w, pick = self._of("timestamp", depth), self._random.choice
        return pick(
            (
                f"({w} {pick('+-')} INTERVAL '{pick(('15 minutes', '36 hours'))}')", f"date_trunc('{pick(('hour', 'week', 'year'))}', {w})",
                f"coalesce({w}, TIMESTAMPTZ '2026-01-30 03:00:00+00')", self._chosen("timestamp", depth),
            )
        )  # fmt: skip

    def _bool(self, depth: int) -> str:
        pick = self._random.choice
        kind = pick(("int", "decimal", "float", "text", "date", "timestamp"))
        one, other, v, w = self._of(kind, depth), self._of(kind, depth), self._of("bool", depth), self._of("bool", depth)
        return pick(
            (
                f"({one} {pick(('=', '<>', '<', '<=', '>', '>='))} {other})", f"({one} IS {pick(('', 'NOT '))}NULL)",
                f"({v} {pick(('AND', 'OR'))} {w})", f"(NOT {v})", f"({v} IS {pick(('', 'NOT '))}{pick(('TRUE', 'FALSE'))})",
                f"({self._of('text', depth)} {pick(('', 'NOT '))}{pick(('LIKE', 'ILIKE'))} '{pick(('%a%', '_', 'é%', 'Z_', ''))}')",
                f"({one} IS {pick(('', 'NOT '))}DISTINCT FROM {other})",
                f"({self._of('int', depth)} {pick(('', 'NOT '))}IN (1, {pick(('2', 'NULL'))}))",
                f"({self._of('int', depth)} BETWEEN 2 AND {self._of('int', depth)})",
            )
        )  # fmt: skip

    def _other(self) -> str:
        """An expression of a type that is only passed on."""
        column = self._random.choice("uhyo")
        one, other = (f"{self._random.choice(self._aliases)}.{column}" for _ in range(2))
        if self._random.random() < 0.3:
            return f"({one} IS {self._random.choice(('', 'NOT '))}NULL)"
        return self._random.choice((f"coalesce({one}, {other})", f"CASE WHEN {self._of('bool', 1)} THEN {one} ELSE {other} END"))

    _KINDS: dict[str, tuple[str, Callable[[Terms, int], str]]] = {
        "int": ("kpqs", _int),
        "decimal": ("mn", _decimal),
        "float": ("f", _float),
        "text": ("t", _text),
        "date": ("d", _date),
        "timestamp": ("w", _timestamp),
        "bool": ("v", _bool),
    }
