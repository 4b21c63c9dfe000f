"""Filters carried over equalities: they change no row, and a view needs the same memory as if they were written out."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import parse_relation
from service.checking.comparison import agrees
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from service.views import parse
from tests.service.running import check, opened
from tests.service.twin import values

WHOLE = {"type": "int64", "nullable": True}
DEFINITION = parse_relation(
    {
        "columns": [
            {"name": "id", "type": "int64"}, {"name": "k"} | WHOLE, {"name": "m"} | WHOLE,
            {"name": "f", "type": "float64", "nullable": True}, {"name": "s", "type": "int64"}, {"name": "e", "type": "int64"},
        ],
        "key": ["id"],
        "intervals": {"i": {"start": "s", "end": "e"}},
    }
)  # fmt: skip
RELATIONS = ("a", "b", "c")


def running(folder: Path) -> Instance:
    engine = opened(folder)
    for name in RELATIONS:
        engine.put_relation(name, DEFINITION)
    return engine


def put(engine: Instance, rows: Sequence[dict[str, Any]], op: int = UPSERT) -> None:
    batch = pa.RecordBatch.from_pylist([dict.fromkeys(DEFINITION.arrow_schema().names) | row for row in rows], DEFINITION.arrow_schema())
    index = np.arange(len(rows))
    changes = [Changes(name, DEFINITION, np.full(len(rows), op, np.uint8), RowBlock(batch), index) for name in RELATIONS]
    engine.apply(Batch(changes, len(rows), 0, [], 0))


def rows_of(engine: Instance, name: str) -> Counter[Any]:
    reader = open_rows(engine.readers, name)
    return Counter(values(row) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist())


# With `{}` in place of a condition on x; the places where it is written out for other aliases.
FORMS = (
    "SELECT x.id AS i, y.id AS j FROM a x JOIN b y ON x.k = y.k WHERE {}[y]",
    "SELECT x.id AS i, y.id AS j FROM a x JOIN b y ON x.k = y.k AND overlaps(x.i, y.i) WHERE {}[y]",
    "SELECT x.id AS i, y.id AS j FROM a x JOIN a y ON x.k = y.k AND overlaps(x.i, y.i) AND x.id < y.id WHERE {}[y]",
    "SELECT x.id AS i, z.id AS j FROM a x JOIN b y ON x.k = y.k JOIN c z ON y.k = z.k WHERE {}[y][z]",
    "SELECT x.id AS i, y.id AS j FROM a x LEFT JOIN b y ON x.k = y.k[y] WHERE {}",
    "SELECT x.id AS i, z.id AS j FROM a x LEFT JOIN b y ON x.k = y.k[y] LEFT JOIN c z ON y.k = z.k[z] WHERE {}",
    "SELECT x.id AS i FROM a x WHERE EXISTS (SELECT 1 FROM b y WHERE x.k = y.k[y]) AND {}",
    "SELECT y.id AS i FROM b y WHERE EXISTS (SELECT 1 FROM a x WHERE x.k = y.k AND {})[y]",
    "SELECT DISTINCT x.id AS i FROM a x JOIN b y ON x.k = y.k WHERE {}[y]",
    "SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE x.k = y.k AND y.m = 1[y]) AND {}",
    "SELECT x.id AS i FROM a x WHERE NOT EXISTS (SELECT 1 FROM b y WHERE x.k = y.k AND overlaps(x.i, y.i)[y]) AND {}",
    "SELECT x.id AS i, y.id AS j FROM a x ASOF JOIN b y ON x.k = y.k AND y.s <= x.s WHERE {}[y]",
    "SELECT x.k AS k, COUNT(*) AS n FROM a x JOIN b y ON x.k = y.k WHERE {}[y] GROUP BY x.k",
    "SELECT x.id AS i, gaps(x.i, y.i) AS g FROM a x LEFT JOIN b y ON x.k = y.k[y] AND overlaps(x.i, y.i) WHERE {}",
    "SELECT x.id AS i, coverage(x.i, y.i) AS g FROM a x JOIN b y ON x.k = y.k[y] AND overlaps(x.i, y.i) WHERE {}",
    "SELECT x.k AS k FROM a x JOIN b y ON x.k = y.k WHERE {}[y] EXCEPT SELECT z.k FROM c z",
)
CONDITIONS = ("{0}.k = 5", "{0}.k IN (5, 6)", "{0}.k BETWEEN 5 AND 6", "{0}.k IS NULL", "({0}.k = 5 OR {0}.k > 998)")


def test_memory_is_that_of_conditions_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path)
    put(engine, [{"id": i, "k": i % 500, "m": i % 3, "s": i, "e": i + 9} for i in range(2500)])

    def bytes_of(sql: str) -> int:
        engine.put_view("v", {"sql": sql}, wait=60)
        assert agrees(engine, "v", {}, print)
        found = engine.views["v"].statistics()["bytes"]
        engine.drop_view("v")
        return int(found)

    for form, condition in zip(FORMS, cycle(CONDITIONS), strict=False):
        plain, spelled = form, form
        for alias in "yz":
            plain = plain.replace(f"[{alias}]", "")
            spelled = spelled.replace(f"[{alias}]", f" AND {condition.format(alias)}")
        found = bytes_of(plain.format(condition.format("x")))
        with monkeypatch.context() as patched:
            patched.setattr(parse, "carried", lambda query: query)
            assert found == bytes_of(spelled.format(condition.format("x"))), (form, condition)
            assert found < 0.85 * bytes_of(plain.format(condition.format("x"))), (form, condition)
    engine.close()


def test_a_definition_is_what_was_written(tmp_path: Path) -> None:
    engine = running(tmp_path)
    join = "SELECT x.id AS i, y.id AS j FROM a x JOIN b y ON x.k = y.k WHERE x.k = 5"
    assert engine.put_view("v", {"sql": join}, wait=60)[1] == "created"
    assert engine.put_view("v", {"sql": join}, wait=60)[1] == "same"
    with pytest.raises(Problem) as caught:
        engine.put_view("v", {"sql": f"{join} AND y.k = 5"}, wait=60)
    assert caught.value.type == "definition-differs"
    assert engine.views["v"].view.definition == {"sql": join}
    engine.close()


def test_changes_of_other_rows_do_not_concern_a_view(tmp_path: Path) -> None:
    engine = running(tmp_path)
    joins = ("JOIN b y ON x.k = y.k", "ASOF JOIN b y ON x.k = y.k AND y.s <= x.s", "LEFT JOIN b y ON x.k = y.k")
    for number, join in enumerate(joins):
        engine.put_view(f"v{number}", {"sql": f"SELECT x.id AS i, y.id AS j FROM a x {join} WHERE x.k = 5"}, wait=60)
    for k, concerned in ((4, 0), (5, 2)):
        before = {name: view.changed_rows for name, view in engine.views.items()}
        put(engine, [{"id": k, "k": k, "s": 0, "e": 1}])
        assert {view.changed_rows - before[name] for name, view in engine.views.items()} == {concerned}
    engine.close()


class Drawn:
    """A random definition over equalities between any of the columns k and m, with conditions on them."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        others = {alias: self._on(alias, "x") for alias in "yz"}
        form = rng.choice((0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7))
        self.sql = f"SELECT x.id AS i{self._from(form, others)}"

    def _on(self, alias: str, near: str) -> str:
        rng = self.random
        pairs = [(column, rng.choice("km")) for column in rng.sample("km", rng.choice((1, 1, 2)))]
        pairs += [("f", "f")] * rng.choice((0, 0, 1))
        return " AND ".join(f"{near}.{one} = {alias}.{other}" for one, other in pairs)

    def _filter(self, alias: str) -> str:
        rng, column = self.random, self.random.choice("kkmmf")
        return f"{alias}.{column} " + rng.choice(("= 0", "= 1", "IN (0, 2)", "< 2", ">= 1", "<> 1", "IS NULL", "IS NOT NULL"))

    def _filters(self, *aliases: str) -> str:
        rng, found = self.random, []
        for alias in rng.choices(aliases, k=rng.choice((0, 1, 1, 1, 2))):
            found.append(rng.choice((self._filter(alias), f"({self._filter(alias)} OR {self._filter(alias)} AND {self._filter(alias)})")))
        return "".join(f" AND {one}" for one in found)

    def _from(self, form: int, on: dict[str, str]) -> str:
        rng = self.random
        meet = rng.choice(("", " AND overlaps(x.i, y.i)", " AND overlaps(x.i, y.i)"))
        where = f" WHERE x.id >= 0{self._filters('x')}"
        own = self._filters("y")
        part = f"EXISTS (SELECT 1 FROM b y WHERE {on['y']}{meet}{own})"
        if form == 0:
            return f", y.id AS j, z.id AS h FROM a x JOIN b y ON {on['y']}{meet} JOIN c z ON {on['z']}{where}{self._filters('y', 'z')}"
        if form == 1:
            return f", y.id AS j FROM a x {rng.choice(('LEFT', 'FULL'))} JOIN b y ON {on['y']}{meet}{own}{rng.choice(('', where))}"
        if form == 2:
            near = rng.choice("xy")
            hung = f"LEFT JOIN c z ON {self._on('z', near)}{self._filters('z')}"
            return f", y.id AS j, z.id AS h FROM a x LEFT JOIN b y ON {on['y']}{meet}{own} {hung}{where}"
        if form == 3:
            return f" FROM a x{where} AND {rng.choice(('', 'NOT '))}{part} AND {rng.choice(('', 'NOT '))}{part.replace('b y', 'c y')}"
        if form == 4:
            return f", y.id AS j FROM a x ASOF {rng.choice(('', 'LEFT '))}JOIN b y ON {on['y']} AND y.s <= x.s{where}{own}"
        if form == 5:
            function = rng.choice(("gaps", "coverage"))
            join = "LEFT JOIN" if function == "gaps" else "JOIN"
            return f", {function}(x.i, y.i) AS g FROM a x {join} b y ON {on['y']}{own} AND overlaps(x.i, y.i){where}"
        if form == 6:
            word, right = rng.choice(("UNION", "EXCEPT")), f"SELECT z.id AS i FROM c z WHERE z.id >= 0{self._filters('z')}"
            return f" FROM a x JOIN b y ON {on['y']} AND x.id = y.id{where}{own} {word} {right}"
        return f", COUNT(*) AS n FROM a x JOIN b y ON {on['y']}{meet}{where}{own} GROUP BY x.id"


@pytest.fixture(autouse=True)
def address_space() -> Iterator[None]:
    """Each of the many views reserves some, which an engine that is part of a cycle gives back late."""
    yield
    gc.collect()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 40))])
def test_rows_are_those_without_carrying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    engine, views, carried = running(tmp_path), dict[str, str](), 0
    while len(views) < 80:
        name, sql = f"v{len(views)}", Drawn(rng).sql
        try:
            view = engine.put_view(name, {"sql": sql}, wait=60)[0]
        except Problem as problem:
            assert problem.type == "unsupported-query", (problem, sql)
            continue
        carried += view.view.query != view.view.stated
        with monkeypatch.context() as patched:
            patched.setattr(parse, "carried", lambda query: query)
            engine.put_view(f"{name}_plain", {"sql": sql}, wait=60)
        views[name] = sql
    assert carried > 20
    for _ in range(5):
        rows = [
            {
                "id": i, "k": rng.choice((None, 0, 1, 2)), "m": rng.choice((None, 0, 1, 2)),
                "f": rng.choice((None, 0.0, -0.0, 1.0, np.nan)), "s": rng.randrange(9), "e": rng.randrange(9, 15),
            }
            for i in rng.sample(range(14), 8)
        ]  # fmt: skip
        put(engine, rows)
        put(engine, [{"id": i} for i in rng.sample(range(14), 3)], DELETE)
        for name, sql in views.items():
            assert rows_of(engine, name) == rows_of(engine, f"{name}_plain"), sql
    check(engine)
    engine.close()
