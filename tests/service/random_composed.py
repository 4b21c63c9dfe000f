"""Random SQL with subqueries in FROM, WITH, and views: statements of `random_sql`, whose relations are read through such."""

from __future__ import annotations

import random
import re

from tests.service.random_forms import Form
from tests.service.random_sql import DEFINITIONS, KEYS, Statement

_READ = re.compile(r"\b([lr]) ([xyzu])\b(?!\.)")
_COLUMNS = (
    "*", "*", "* EXCLUDE (t), lower(t) AS t", "* EXCLUDE (k), q AS k", "* EXCLUDE (v), k > 1 AS v", "* EXCLUDE (m), nullif(m, 0) AS m",
    "* EXCLUDE (k), coalesce(k, 0) AS k", "* EXCLUDE (g), CASE WHEN v THEN 1 END AS g", "* EXCLUDE (h, f), p * 0.5 AS f, h",
)  # fmt: skip


class Composed(Statement):
    """A statement whose relations are read through subqueries, most of them, or through `views`, which have to be registered before it."""

    def __init__(self, rng: random.Random) -> None:
        self._named: list[str] = []
        self.views: dict[str, str] = {}
        super().__init__(rng)

    def _form(self) -> Form:
        return self._select()

    def _select(self) -> Form:
        forms, rng, around = super()._select(), self.random, list[tuple[str, str]]()
        if rng.random() < 0.3:
            around.append(("SELECT * FROM (", ") o"))
        if rng.random() < 0.2:
            around.append((f"SELECT {rng.choice(('count(*) AS n', '*'))} FROM (", f") {rng.choice('ox')}"))
        for before, behind in around:
            forms = Form(*(f"{before}{text}{behind}" for text in forms))
        views = [f"{name} AS ({text})" for name, text in self.views.items()]
        named = [f"WITH {', '.join(some)} " if some else "" for some in (self._named, [*views, *self._named])]
        return Form(*(f"{before}{text}" for before, text in zip(named, forms, strict=True)))

    def _from(self) -> str:
        return _READ.sub(self._wrapped, super()._from())

    def _wrapped(self, found: re.Match[str]) -> str:
        rng, (of, alias) = self.random, found.groups()
        if rng.random() < 0.2:
            return found[0]
        self.kinds.add("subquery")
        inner = rng.choice(("", f" {rng.choice('xyz')}"))
        query = self._query(of, inner)
        if rng.random() < 0.2:
            query = f"SELECT * FROM ({query}) AS {rng.choice('xyzw')}"
        if rng.random() < 0.3:
            name = f"w{rng.getrandbits(40)}"
            self.views[name] = query
            if rng.random() < 0.5:  # a view of a view
                self.views[f"{name}_"] = f"SELECT * FROM {name} o{self._condition('o')}"
                name += "_"
            return f"{name} {alias}"
        if rng.random() < 0.3:
            self._named.append(f"c{len(self._named)} AS ({query})")
            return f"c{len(self._named) - 1} {alias}"
        return f"({query}) {alias}"

    def _query(self, of: str, inner: str) -> str:
        if self.random.random() < 0.35:
            return self._stored(of)
        return f"SELECT {self.random.choice(_COLUMNS)} FROM {of}{inner}{self._condition(inner.strip() or of)}"

    def _stored(self, of: str) -> str:
        """A query with the columns of the relation that cannot be written out beside others."""
        self.kinds.add("stored")
        other, key, rng = "r" if of == "l" else "l", KEYS[of], self.random
        columns = ", ".join(name for name in DEFINITIONS[of].arrow_schema().names if name != "o")
        condition, order = self._condition("x"), ", ".join(f"x.{name} DESC" for name in key)
        return rng.choice(
            (
                f"SELECT x.* FROM {of} x JOIN {other} y ON x.k = y.g{condition}",
                f"SELECT x.* FROM {of} x LEFT JOIN {other} y ON x.p = y.q{condition}",
                f"SELECT * FROM {of} x{condition} QUALIFY row_number() OVER (PARTITION BY x.v ORDER BY {order}) <= 3",
                f"SELECT {columns}, count(*) AS c FROM {of} x{condition} GROUP BY {columns}",
                f"SELECT DISTINCT {columns} FROM {of} x{condition}",
                f"SELECT {columns} FROM {of} x{condition} UNION SELECT {columns} FROM {of} z WHERE z.k > 1",
            )
        )

    def _condition(self, alias: str) -> str:
        return f" WHERE {self._filter(alias)}" if self.random.random() < 0.5 else ""
