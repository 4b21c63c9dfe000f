"""Random aggregates of expressions, and expressions over aggregates and the columns of groups, which DuckDB evaluates in the same way."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.service.random_terms import Terms


class GroupTerms:
    """Over columns of these aliases, as in `random_sql`."""

    def __init__(self, rng: random.Random, aliases: Sequence[str]) -> None:
        self._random, self._aliases, self._terms = rng, aliases, Terms(rng, aliases)

    def _count(self) -> str:
        """Return an aggregate that is a small whole number."""
        x, y = (self._random.choice(self._aliases) for _ in range(2))
        return self._random.choice(
            ("COUNT(*)", f"COUNT({x}.t)", f"SUM({x}.k)", f"SUM({x}.p)", f"MAX({x}.q)", f"SUM({x}.p - {y}.k)", f"COUNT(DISTINCT {x}.p % 3)",
             f"COUNT(*) FILTER (WHERE {self._terms.of('bool')})")
        )  # fmt: skip

    def computed(self, columns: Sequence[str]) -> str:
        """Return an expression over aggregates and the columns of groups."""
        x, one, other = self._random.choice(self._aliases), self._count(), self._count()
        texts = [f"(coalesce({column}, 'none') || '!')" for column in columns if column.endswith(".t")]
        return self._random.choice(
            (
                f"({one} + {other})", f"({one} - 2 * {other})", f"({one} % {other})", f"coalesce({one}, 0)",
                f"(CAST({one} AS bigint) / CAST({other} AS bigint))",
                f"CASE WHEN {one} > {other} THEN {one} ELSE {other} END", f"(100.0 * {one} / {other})", f"(SUM({x}.m) / {one})",
                f"(CAST({one} AS text) || '!')", f"({one} > {other})", f"(MAX({x}.w) + INTERVAL '1 hour')", f"-{one}",
                *(f"({column} IS NULL)" for column in columns), *texts, *(f"coalesce({column}, {column})" for column in columns),
            )
        )  # fmt: skip

    def of_term(self) -> tuple[str, str]:
        """Return an aggregate of an expression, or with FILTER, and a constant to compare it with."""
        rng, terms, x = self._random, self._terms, self._random.choice(self._aliases)
        text = terms.of("text")
        whole, number = rng.choice(
            (
                (f"SUM({terms.of('int')})", "3"), (f"SUM({terms.of('decimal')})", "3.02"), (f"SUM(({x}.f + {x}.k))", "1.37"),
                (f"AVG({terms.of('int', 'decimal')})", "1.37"), (f"COUNT({terms.term()})", "2"), (f"COUNT(DISTINCT {terms.of()})", "2"),
                (f"{rng.choice(('MIN', 'MAX'))}({terms.of('text')})", "'b'"), (f"{rng.choice(('MIN', 'MAX'))}({x}.t)", "'a'"),
                (f"MIN({x}.u)", "'00000000-0000-4000-8000-00000000000a'"), (f"MAX({x}.y)", "'\\x61'"),
                (f"{rng.choice(('MIN', 'MAX'))}({terms.of('decimal')})", "3.02"), (f"bool_and({terms.of('bool')})", "TRUE"),
                (f"bool_or({terms.of('bool')})", "TRUE"), (f"stddev_samp({terms.of('int')})", "3.37"), (f"stddev_pop({x}.m)", "1.37"),
                (f"var_samp({x}.p)", "33.37"), (f"variance({x}.k)", "1.37"), (f"var_pop({x}.k + {x}.p)", "33.37"),
                (f"MIN({terms.of('int', 'float')})", "3"), (f"MAX({terms.of('int', 'float')})", "3"), (f"MAX({terms.of('bool')})", "TRUE"),
                (f"MIN({terms.of('date')})", "'2026-02-01'"), (f"MAX({terms.of('timestamp')})", "'2026-01-30 03:00:00+00'"),
                (f"string_agg({x}.t, ',' ORDER BY {x}.t DESC)", "'b,a'"), (f"string_agg({text}, '; ' ORDER BY {text})", "'b'"),
                (f"SUM({x}.p)", "60"), (f"SUM({x}.m)", "20.04"), ("COUNT(*)", "2"), (f"MIN({x}.w)", "'2026-01-30 03:00:00+00'"),
            )
        )  # fmt: skip
        filtered = rng.random() < 0.4 or "(*)" in whole
        return (f"{whole} FILTER (WHERE {terms.of('bool')})" if filtered else whole), number

    def condition(self) -> str:
        """Return a condition of HAVING over several aggregates."""
        one, other = self._count(), self._count()
        return self._random.choice(
            (f"{one} > 2 * {other}", f"{one} + {other} > 9", f"({one} = {other} OR {one} IS NULL)", f"NOT {one} < {other}")
        )
