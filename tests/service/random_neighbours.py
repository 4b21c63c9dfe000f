"""Random SQL with LAG and LEAD over the relations of `random_sql`."""

from __future__ import annotations

from tests.service.random_forms import Form
from tests.service.random_sql import Statement
from tests.service.random_terms import Terms


class Neighbours(Statement):
    def _form(self) -> Form:
        return self._select()

    def _select(self) -> Form:
        rng, of = self.random, self.random.choice("lr")
        self.aliases = [("x", of)]
        by = rng.sample("ktvdwfm", rng.choice((0, 1, 1, 2))) + (["site"] if of == "r" else [])
        rng.shuffle(by)
        is_before = rng.random() < 0.5  # which neighbour it is
        partition = f"PARTITION BY {', '.join(f'x.{column}' for column in by)} " if by else ""
        order = f"x.{'id' if of == 'l' else 'nr'}"

        def window(value: str) -> str:
            name = rng.choice(("LAG", "LEAD"))
            return f"{name}({value}) OVER ({partition}ORDER BY {order}{'' if (name == 'LAG') == is_before else ' DESC'})"

        shown = [window("x.p"), f"x.p - {window('x.p, 1, x.q')}", window("x.m"), window(Terms(rng, ["x"]).term())]
        shown.append(f"x.{rng.choice('ktfm')}")
        shown = [f"{one} AS c{at}" for at, one in enumerate(rng.sample(shown, rng.choice((1, 2, 3))))]
        columns = [one for one in by if one in "ktvdwfm"]
        where = f" WHERE x.{rng.choice(columns)} IS NOT NULL" if columns and rng.random() < 0.3 else self._where()
        text = f"SELECT {', '.join(shown)}, {window('x.t, 1')} AS t FROM {of} x{where}"
        if rng.random() < 0.3:
            condition = rng.choice(("o.t IS NULL", "o.t > 'a'", "o.t IS NOT NULL"))
            text = f"SELECT o.*, o.t || '!' AS u FROM ({text}) o WHERE {condition}"
        elif rng.random() < 0.2:
            text = text.replace(f" FROM {of} x{where}", f" FROM (SELECT * EXCLUDE (p), p + 1 AS p FROM {of} x{where}) x")
        return Form(text, text)
