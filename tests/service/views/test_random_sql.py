"""SQL at random: what livejoin accepts DuckDB confirms, and the changes of a view add up to its rows, through upserts, deletes, truncates
and restarts."""

from __future__ import annotations

import base64
import gc
import math
import random
from collections import Counter
from collections.abc import Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from service.errors import Problem
from service.following.chunks import Chunk
from service.instance import Instance
from service.reading.cursors import open_rows
from service.reading.lookups import Point
from tests.service.alike import alike
from tests.service.engine.test_engine import as_field
from tests.service.random_composed import Composed
from tests.service.random_neighbours import Neighbours
from tests.service.random_set_operations import SetOperations
from tests.service.random_sql import DEFINITIONS, Rows, Statement, asked, in_duckdb, to_batch
from tests.service.running import check, in_parts, opened
from tests.service.twin import Row, values

REFUSED = ("unsupported-query", "bad-query")


class Added:
    """The changes of a view, added up."""

    def __init__(self, engine: Instance, name: str) -> None:
        self.name = name
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.keys: dict[tuple[Any, ...], Row] = {}
        self.subscribe(engine, None)

    def subscribe(self, engine: Instance, token: str | None) -> None:
        feed = engine.views[self.name].feed
        assert feed is not None
        self.subscription = feed.subscribe(token, token is None)

    def catch_up(self) -> int:
        """Return how many rows are deleted and inserted."""
        emitted = 0
        while chunks := self.subscription.next():
            emitted += self.take(chunks)
        return emitted

    def take(self, chunks: list[Chunk]) -> int:
        """Take whole versions."""
        emitted, gone = 0, dict[tuple[Any, ...], tuple[Any, ...]]()
        for chunk in chunks:
            if chunk.kind == "progress":
                gone.clear()
                continue
            assert chunk.kind == "rows" and chunk.keys is not None and chunk.rows is not None, chunk
            emitted += chunk.rows.num_rows
            for key, row in zip(chunk.keys.to_pylist(), chunk.rows.to_pylist(), strict=True):
                if chunk.op == "delete":
                    assert self.rows.pop(values(key)) == values(row)
                    gone[values(key)] = values(row)
                else:
                    assert gone.get(values(key)) != values(row), "it is deleted and inserted again"
                    assert values(key) not in self.rows
                    self.rows[values(key)], self.keys[values(key)] = values(row), key
        return emitted


def accepted(
    engine: Instance, rng: random.Random, count: int, drawn: type[Statement] = Statement
) -> tuple[dict[str, Statement], Counter[str]]:
    """Register so many statements; and what was said of the others."""
    views, said = dict[str, Statement](), Counter[str]()
    while len(views) < count:
        statement = drawn(rng)
        try:
            for name, text in statement.views.items():
                engine.put_view(name, {"sql": text, "changes": False}, wait=60)
            engine.put_view(f"v{len(views)}", {"sql": statement.text}, wait=60)
        except Problem as problem:
            assert problem.type in REFUSED or "has no column o" in str(problem.detail), (problem, statement.text)
            said[str(problem.detail)] += 1
            continue
        views[f"v{len(views)}"] = statement
    return views, said


def is_too_wide(engine: Instance, name: str) -> bool:
    """Whether a view has failed because a number that it stores has too many digits."""
    problem = engine.views[name].problem
    return problem is not None and "has more than 18 digits" in str(problem.detail)


def rows_of(engine: Instance, name: str, point: Point | None = None) -> list[Row]:
    reader = open_rows(engine.readers, name, point=point)
    return [row for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist()]


def rows_of_parts(engine: Instance, name: str) -> list[Row]:
    return [row for reader in in_parts(engine, name, 3) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist()]


def look_up(engine: Instance, one: Added, rng: random.Random) -> None:
    """A group that is there, by its columns, or a row of UNION or EXCEPT, or the rows of a row of an alias."""
    if one.rows:
        key = one.keys[rng.choice(list(one.rows))]
        parts = sorted({name.partition(".")[0] for name in key if key[name] is not None or name.startswith(("group.", "row."))})
        of = rng.choice(parts) if parts else ""
        names = [name for name in key if name.startswith(f"{of}.") and not name.endswith(".start")]
        if names and all(name.count(".") == 1 for name in names):  # not of stored rows
            given = {name.partition(".")[2]: as_text(key[name]) for name in names}
            same = values({name: key[name] for name in names})
            wanted = [row for at, row in one.rows.items() if values({name: one.keys[at][name] for name in names}) == same]
            found = rows_of(engine, one.name, (names[0].partition(".")[0], given))
            assert Counter(map(values, found)) == Counter(wanted), given


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, bytes):
        value = base64.b64encode(value).decode()
    return as_field(value.isoformat() if isinstance(value, date) else value)


def compare(engine: Instance, rows: Rows, views: dict[str, Statement], added: list[Added]) -> None:
    other = in_duckdb(rows.relations)
    for one in (one for one in added if not is_too_wide(engine, one.name)):
        text, ours = views[one.name].text, rows_of(engine, one.name)
        assert alike(ours, asked(other, views[one.name].theirs)), text
        assert Counter(map(values, rows_of_parts(engine, one.name))) == Counter(map(values, ours)), text
        one.catch_up()
        assert Counter(one.rows.values()) == Counter(map(values, ours)), text
        look_up(engine, one, rows.random)
    other.close()


CASES = [(0, 14), *(pytest.param(seed, 70, marks=pytest.mark.soak) for seed in range(60))]  # seeds, and how many views of each


@pytest.fixture(autouse=True)
def address_space() -> Iterator[None]:
    """Each of the many views reserves some, which an engine that is part of a cycle gives back late."""
    gc.collect()
    yield
    gc.collect()


@pytest.mark.parametrize("drawn", [Statement, Composed, SetOperations, Neighbours])
@pytest.mark.parametrize(("seed", "count"), CASES)
def test_duckdb_confirms(tmp_path: Path, seed: int, count: int, drawn: type[Statement]) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    engine, rows = opened(tmp_path), Rows(rng, 24)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    engine.apply(to_batch(rows.changes(30)))
    views, said = accepted(engine, rng, count, drawn)
    print(said)
    added = [Added(engine, name) for name in views if not is_too_wide(engine, name)]
    for step in range(5):
        compare(engine, rows, views, added)
        for _ in range(rng.randrange(1, 4)):
            engine.apply(to_batch(rows.changes(rng.choice((1, 1, 3, 12)))))
        if step == 2:
            for one in added:
                one.catch_up()
            tokens = [one.subscription.idle_progress().token for one in added]
            engine.close()
            engine = opened(tmp_path)
            for one, token in zip(added, tokens, strict=True):
                one.subscribe(engine, token)
    compare(engine, rows, views, added)
    check(engine)
    engine.close()
