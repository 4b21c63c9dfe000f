"""Random SQL with UNION ALL and others, over joins and groups of `random_sql`, with constants and expressions."""

from __future__ import annotations

from tests.service.random_forms import Form
from tests.service.random_sql import Statement

_OTHERS = {
    "k": ("7", "{0}.p + 1", "CAST(NULL AS bigint)"), "t": ("'kind'", "upper({0}.t)", "'b'"), "v": ("TRUE", "{0}.p > 20"),
    "f": ("{0}.f / 2",), "d": ("DATE '2026-02-01'",),
}  # fmt: skip


class SetOperations(Statement):
    def _form(self) -> Form:
        return self._select()

    def _select(self) -> Form:
        rng, columns = self.random, self.random.sample("ktvdwuhfmy", self.random.choice((1, 2, 3)))
        word = rng.choice((" UNION ALL ", " UNION ALL ", " INTERSECT ", " UNION ", " EXCEPT "))
        selects = [self._one(columns, True, False)]
        for _ in range(rng.choice((1, 1, 2, 3))):
            selects.append(self._one(columns, False, "INTERSECT" in word and rng.random() < 0.8))
        text = word.join(selects)
        if len(selects) == 3 and rng.random() < 0.3:
            text = f"{selects[0]} UNION ALL ({selects[1]}{word}{selects[2]})"
        elif len(selects) == 3 and "ALL" in word and rng.random() < 0.3:
            text = f"{selects[0]} UNION ALL ({selects[1]} UNION ALL {selects[2]}) ORDER BY c0"
        return Form(text, text)

    def _one(self, columns: list[str], first: bool, plain: bool) -> str:
        rng = self.random
        self.kinds = {"set operation"}
        self.aliases, self.in_common, self.equated, self.merged = [], [], [], []
        source, where = self._from(), self._where()
        if plain:
            self.aliases, source = [("x", "l")], "l x" + rng.choice(("", f" JOIN r z ON x.{(column := rng.choice('kptm'))} = z.{column}"))
            where = rng.choice(("", f" WHERE {self._filter('x')}"))
        shown = list[str]()
        for at, column in enumerate(columns):
            alias = rng.choice(self.aliases)[0]
            other = rng.choice(_OTHERS.get(column, ("{0}." + column,))).format(alias)
            shown.append((f"{alias}.{column}" if rng.random() < 0.7 else other) + (f" AS c{at}" if first else ""))
        if rng.random() < 0.15:
            where += f" GROUP BY {', '.join(str(at + 1) for at in range(len(shown)))}"
        return f"SELECT {'DISTINCT ' if rng.random() < 0.1 else ''}{', '.join(shown)} FROM {source}{where}"
