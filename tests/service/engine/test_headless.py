"""Cells without a service: steps against naive twins, and a replay of their effects against the steps."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.engine.headless import Cell, Rows, over
from service.errors import Problem
from service.query.conditions import ColumnRef, Filter
from service.views.parse import View, parse_view
from tests.service.random_views import NATURAL, by_all_algorithms
from tests.service.stretched import VIEWS as STRETCHED
from tests.service.twin import DEFINITIONS, MANY, VIEWS, Source, Twin, TwinView, plain, to_batch, values
from tests.service.views.joins.test_as_of_join import INNER, LEFT
from tests.service.views.joins.test_random_views import drawn
from tests.service.views.stages.test_groups import JOINS, SINGLE
from tests.service.views.stages.test_latest import LATEST


def parsed(views: dict[str, TwinView]) -> list[View]:
    return [parse_view(name, view.definition, DEFINITIONS) for name, view in views.items()]


def all_of(cell: Cell, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(values(row) for part in cell.rows(name) for row in plain(part))


def emitted(parts: Iterable[Rows]) -> Counter[tuple[Any, ...]]:
    return Counter(values(row) for keys, rows in parts for row in plain(rows) if len(keys) == len(rows))


def random_views(seed: int) -> dict[str, TwinView]:
    rng, found = random.Random(seed), dict[str, TwinView]()
    for number, style in enumerate(("heap", "boxes", "mixed", "clique", "product", *NATURAL)):
        found |= by_all_algorithms(drawn(rng, style, 4, 10), f"v{number}")
    return found


SETS = {"joins": VIEWS | MANY, "groups": SINGLE | JOINS, "stretches": STRETCHED, "latest": LATEST, "as of": INNER | LEFT}


@pytest.mark.parametrize("named", [*SETS, "random"])
def test_a_replay_of_the_effects_gives_what_the_steps_gave(named: str) -> None:
    views = SETS[named] if named in SETS else random_views(5)
    source, twin = Source(11, 10), Twin(views)
    cell, effects = Cell(DEFINITIONS, parsed(views)), list[bytes]()
    before = {name: Counter[tuple[Any, ...]]() for name in views} | {name: all_of(cell, name) for name in views}
    for number in range(24):
        changes = source.changes(source.random.randrange(12), twin.relations)
        if twin.apply(changes, "reject") is None:
            with pytest.raises(Problem, match="bad"):
                cell.step(to_batch(changes).changes)
            continue
        stepped = cell.step(to_batch(changes).changes)
        effects.append(stepped.effects)
        for name in views:
            expected = Counter(twin.history[twin.version][name].values())
            assert all_of(cell, name) == expected, (name, number)
            if name in stepped.deltas:
                deltas = stepped.deltas[name]
                before[name].subtract(emitted(deltas.deletes))
                before[name].update(emitted(deltas.inserts))
            assert +before[name] == expected, (name, number)
        if number % 8 == 7:
            cell.check()
            cell = Cell(DEFINITIONS, parsed(views))
            for one in effects:
                cell.replay(one)
            assert {name: all_of(cell, name) for name in views} == {
                name: Counter(twin.history[twin.version][name].values()) for name in views
            }
            cell.check()


def test_rows_that_are_loaded_are_those_of_steps() -> None:
    source, twin = Source(3, 40), Twin(VIEWS)
    cell = Cell(DEFINITIONS, parsed(VIEWS))
    twin.apply(source.changes(300, twin.relations), "skip")
    for name, rows in twin.relations.items():
        whole = pa.RecordBatch.from_pylist(list(rows.values()), schema=DEFINITIONS[name].arrow_schema())
        for first in range(0, len(whole), 17):
            cell.load(name, whole.slice(first, 17))
    for name in VIEWS:
        assert all_of(cell, name) == Counter(twin.history[twin.version][name].values())
    cell.check()


@pytest.mark.parametrize("ids", [[[1, 2, 1]], [[1, 2], [3, 1]]], ids=["at once", "later"])
def test_a_key_that_is_loaded_twice_is_refused(ids: list[list[int]]) -> None:
    definition = parse_relation({"columns": [{"name": "id", "type": "int64"}], "key": ["id"]})
    cell = Cell({"r": definition}, [])
    with pytest.raises(Problem, match=r"two rows of r have the same key \(id\)"):
        for part in ids:
            cell.load("r", pa.RecordBatch.from_arrays([pa.array(part)], schema=definition.arrow_schema()))


def test_a_view_over_other_relations_has_only_the_rows_that_meet_its_filters() -> None:
    source, twin = Source(5, 30), Twin({name: VIEWS[name] for name in ("once", "clashes")})
    twin.apply(source.changes(200, twin.relations), "skip")
    relations = {name: DEFINITIONS["b" if name == "q" else "a"] for name in ("p", "q", "r")}
    once, clashes = parsed({name: VIEWS[name] for name in ("once", "clashes")})
    some = over(once, relations, {"x": "p", "y": "r"}, [Filter(ColumnRef("x", "tag"), "=", "u")])
    others = over(clashes, relations, {"x": "p", "y": "q"}, [Filter(ColumnRef("y", "note"), "is_null", None)])
    cell = Cell(relations, [some, others])
    for name, of in (("p", "a"), ("q", "b"), ("r", "a")):
        cell.load(name, pa.RecordBatch.from_pylist(list(twin.relations[of].values()), schema=DEFINITIONS[of].arrow_schema()))
    kept = Counter(values(VIEWS["once"].select(x, y)) for x, y in VIEWS["once"].combinations(twin.relations) if x["tag"] == "u")
    assert kept and all_of(cell, "once") == kept
    kept = Counter(values(VIEWS["clashes"].select(x, y)) for x, y in VIEWS["clashes"].combinations(twin.relations) if y["note"] is None)
    assert kept and all_of(cell, "clashes") == kept
