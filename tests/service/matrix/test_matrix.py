"""Every algorithm, over every kind of edge, in every form of view, with nulls on every side, against brute force: as it is built, and as
each row is inserted, changed and deleted."""

from __future__ import annotations

import gc
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import RowReader, open_rows
from service.views.parse import parse_view
from tests.service.matrix.cases import Choice, anywhere, compared_parts, made, pairwise, sums_at_the_extremes
from tests.service.matrix.forms import AsOf, Covered, Distinct, Grouped, Stretched, Values
from tests.service.matrix.rows import Relation, Row, Tables
from tests.service.running import HeldWriter, check, in_parts, opened
from tests.service.twin import to_batch
from tests.service.views.test_random_sql import Added

IDS, AT_FIRST = range(5), range(3)
READ = 8  # steps from one reading of all views to the next; between two, the changes of those that report any are compared
PARTS = 5
SIZE = 60  # cases at a time, as each reserves address space
COUNT = int(os.environ.get("LIVEJOIN_MATRIX") or 10_000)
Change = tuple[str, int, Row]
Step = list[tuple[Relation, int, int]]
"""Relations, what happens to a row there, and its id."""


class Case:
    """A view, kept by each algorithm that can, and its relations as they are."""

    def __init__(self, choice: Choice, number: int) -> None:
        self.choice, self.random = choice, random.Random(f"rows of {number} {choice}")
        self.view, self.relations = made(choice, number)
        self.definitions = {one.name: one.definition for one in self.relations}
        parsed = parse_view("v", {"sql": self.view.text}, self.definitions)
        algorithms = [parsed.plan.algorithm, *(one.algorithm for one in alternatives(parsed.query, self.definitions))]
        self.views = {f"v{number}_{algorithm.replace('-', '_')}": algorithm for algorithm in algorithms}
        self.tables: Tables = {one.name: {} for one in self.relations}
        self.added = list[Added]()
        self.steps = [*self._steps(UPSERT, IDS[len(AT_FIRST) :]), *self._steps(UPSERT, IDS)]
        self.together = [*self._steps(DELETE, IDS[:2]), *self._steps(UPSERT, IDS[1:3])]
        self.last_steps = self._steps(DELETE, IDS[1:])

    def register(self, engine: Instance) -> None:
        for name, algorithm in self.views.items():
            is_followed = self.random.random() < 0.7
            definition = {"sql": self.view.text, "algorithm": algorithm} | ({} if is_followed else {"changes": False})
            assert engine.put_view(name, definition, wait=60)[1] == "created", (self.view.text, engine.views[name].problem)
            if is_followed:
                self.added.append(Added(engine, name))

    def _steps(self, op: int, ids: Sequence[int]) -> list[Step]:
        """Do this to each of these rows, once, in an order of its own, sometimes to several together."""
        some, found = [(relation, op, id_) for relation in self.relations for id_ in ids], list[Step]()
        self.random.shuffle(some)
        while some:
            size = self.random.choice((1, 1, 2, 3))
            found.append(some[:size])
            del some[:size]
        return found

    def take(self, step: Step) -> list[Change]:
        """Change the tables, and return the changes."""
        changes = list[Change]()
        for relation, op, id_ in step:
            rows = self.tables[relation.name]
            if op == DELETE:
                rows.pop(id_, None)
                changes.append((relation.name, DELETE, {"id": id_}))
                continue
            row = relation.row(self.random, id_)
            if id_ in rows and self.random.random() < 0.3:  # one column alone
                column = self.random.choice([name for name in row if name not in "idseuw"])
                row = rows[id_] | {column: row[column]}
            rows[id_] = row
            changes.append((relation.name, UPSERT, relation.stored(row)))
        return changes

    def compare(self, engine: Instance, reads: bool) -> None:
        expected = self.view.rows(self.tables)
        for one in self.added:
            one.catch_up()
            self.require(one.name, "changes", Counter(one.rows.values()), expected)
        for name in self.views:
            if reads:
                self.require(name, "rows", rows_in(engine, name), expected)
                if self.random.random() < 0.3:
                    self.require(name, "rows in parts", sum(map(values_of, in_parts(engine, name, 3)), Values()), expected)
        if reads and not isinstance(self.view, Grouped | Distinct | Stretched | Covered):
            self.compare_look_ups(engine)

    def compare_look_ups(self, engine: Instance) -> None:
        view, pick = self.view, self.random
        alias = pick.choice(view.shown)
        values = {"id": pick.choice(IDS), "k": pick.randrange(2), "g": pick.choice("pq")}
        given = {column: values[column] for column in sorted(pick.choice([{"id"}, view.equal(alias) or {"id"}]))}
        expected = view.looked_up(self.tables, alias, given)
        for name in self.views:
            found = rows_in(engine, name, point=(alias, {column: str(value) for column, value in given.items()}))
            self.require(name, f"{alias}: {given}", found, expected)
        if view.windows and not isinstance(view, AsOf):
            low = pick.randrange(9)
            high, text = low + pick.randrange(3), view.of[view.shown[0]].ends.text
            expected = view.in_window(self.tables, low, high)
            for name in self.views:
                found = rows_in(engine, name, window={"": (text(low), text(high))})
                self.require(name, f"window {low} to {high}", found, expected)

    def require(self, name: str, what: str, found: Values, expected: Values) -> None:
        if found != expected:
            rows = "\n".join(f"    {table} {row}" for table, rows in self.tables.items() for row in rows.values())
            bounds = [(one.name, one.bounds, one.nulls) for one in self.relations]
            emitted = f"{what}: {found - expected} too many, {expected - found} too few"
            raise AssertionError(f"{self.views[name]} {self.choice}\n{self.view.text}\n{bounds}\n{rows}\n{emitted}")


def rows_in(engine: Instance, name: str, **restricted: Any) -> Values:
    return values_of(open_rows(engine.readers, name, **restricted))


def values_of(reader: RowReader) -> Values:
    return Counter(tuple(row.values()) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist())


def run(folder: Path, choices: Sequence[Choice], first: int) -> None:
    cases = [Case(choice, number) for number, choice in enumerate(choices, first)]
    definitions = {name: one for case in cases for name, one in case.definitions.items()}
    engine = opened(folder)
    for name, one in definitions.items():
        engine.put_relation(name, one)

    wrong, epochs = list[tuple[Case, Exception]](), count()

    def compare(reads: bool) -> None:
        for case in [case for case in cases if all(case is not one for one, _ in wrong)]:
            try:
                case.compare(engine, reads)
            except Exception as error:
                wrong.append((case, error))

    def batches(steps: Sequence[Sequence[Step]]) -> Iterator[Any]:
        """Each with a step of each case."""
        for number in range(max(map(len, steps))):
            some = zip(cases, steps, strict=True)
            changes = [change for case, its in some if number < len(its) for change in case.take(its[number])]
            yield to_batch(changes, definitions, source="matrix", epoch=next(epochs))  # of one source: none overtakes another

    def follow(steps: Sequence[Sequence[Step]]) -> None:
        for number, batch in enumerate(batches(steps)):
            engine.apply(batch)
            compare(number % READ == 0)

    engine.apply(next(batches([[[(one, UPSERT, id_) for one in case.relations for id_ in AT_FIRST]] for case in cases])))
    for case in cases:
        case.register(engine)
    compare(True)
    follow([case.steps for case in cases])
    check(engine)
    held, wanted = HeldWriter(engine), list(batches([case.together for case in cases]))
    for batch in wanted:
        held.submit(batch)
    held.release()
    while len(held.answers) < len(wanted):  # jobs may stand between the batches
        engine.at_rest(lambda: None)
    follow([case.last_steps for case in cases])
    compare(True)
    check(engine)
    engine.close()
    assert not wrong, f"{len(wrong)} cases of {len(cases)}\n" + "\n\n".join(str(error) for _, error in wrong[:3])


def free() -> None:
    """Give back the address space that views reserve: their engine is in cycles, and permanent if kernels were loaded meanwhile."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def address_space() -> Iterator[None]:
    free()
    yield
    free()


@pytest.mark.parametrize("part", range(PARTS))
def test_some_of_all_pairs(tmp_path: Path, part: int) -> None:
    choices = chain(compared_parts(), sums_at_the_extremes(), pairwise(0, forms_by_edges=False))
    run(tmp_path, list(islice(choices, part, None, PARTS)), part * 1000)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_all_pairs(tmp_path: Path) -> None:
    run_all(tmp_path, list(pairwise(1)))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_product(tmp_path: Path) -> None:
    """LIVEJOIN_MATRIX cases (10,000) that have never been tried."""
    seed = int.from_bytes(os.urandom(4))
    print("seed", seed)
    run_all(tmp_path, list(islice(anywhere(seed), COUNT)))


def run_all(folder: Path, choices: Sequence[Choice]) -> None:
    for first in range(0, len(choices), SIZE):
        run(folder / str(first), choices[first : first + SIZE], first)
        free()
