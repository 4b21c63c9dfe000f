"""Batches that truncate relations, and what happens while they are prepared."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import Batch, Changes, RowBlock
from service.engine.build import Build
from service.engine.builds import Builds
from service.engine.outcomes import Receipt
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import RowReader, open_relation_rows, open_rows
from tests.service.engine.test_builds import BOXES, agrees, ended, filled, rows_like, some_changes
from tests.service.running import ORDER, check, look, parts
from tests.service.twin import values
from tests.service.views.test_random_sql import Added
from tests.waiting import until


def truncating(rng: random.Random, *names: str, most: int = 12) -> Batch:
    """Truncates of these relations, and up to so many rows behind each."""
    parts, sent = [], 0
    for name in names:
        given = [rng.randrange(80) for _ in range(rng.randrange(most + 1))]
        ops = np.array([ORDER["truncate"]] + [ORDER["upsert"]] * len(given), np.uint8)
        rows = RowBlock(pa.concat_batches([rows_like(rng, [0]), rows_like(rng, given)]))
        parts.append(Changes(name, BOXES, ops, rows, np.arange(sent, sent + len(ops))))
        sent += len(ops)
    return Batch(parts, sent, 0, [], 0)


def also_changing(engine: Instance, rng: random.Random, given: Batch) -> Batch:
    """The batch, with new values of some columns, or the same ones, in rows of the relations that it does not truncate."""
    for name in {"a", "b"} - {changes.relation for changes in given.changes}:
        with closing(open_relation_rows(engine.readers, name)) as reader:
            rows = reader.read(1000)
        some = rng.sample(rows.to_pylist(), min(rng.randrange(9), rows.num_rows)) if rows is not None else []
        for row in some:
            if rng.random() < 0.6:
                row["u"] = row["t"] + 1 + rng.randrange(6)
            if rng.random() < 0.3:
                row["tag"] = rng.choice(["p", "q", None])
        if some:
            ops, at = np.full(len(some), ORDER["upsert"], np.uint8), np.arange(given.sent, given.sent + len(some))
            block = RowBlock(pa.RecordBatch.from_pylist(some, schema=BOXES.arrow_schema()))
            given.changes = [*given.changes, Changes(name, BOXES, ops, block, at)]
            given.sent += len(some)
    return given


class Meanwhile:
    """What happens while a batch is prepared: `then` after each view was loaded, and after the first rounds, and what the steps were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None], most: int = 2) -> None:
        """`most`: rounds of a build after which `then` is called: large batches may wait for later ones."""
        self.built, self.rounds, self.placed = 0, 0, 0
        followed = Counter[Build]()
        load, go_on, position = Build.load, Builds.go_on, Build.put_in_place

        def loaded(build: Build, version: int, progress: Callable[[float], None]) -> None:
            load(build, version, progress)
            if build.without:
                self.built += 1
                then()

        def gone_on(builds: Builds, build: Build) -> None:
            go_on(builds, build)
            if build.without:
                self.rounds += 1
                followed[build] += 1
                if followed[build] <= most:
                    then()

        def placed(build: Build) -> None:
            position(build)
            self.placed += 1

        monkeypatch.setattr(Build, "load", loaded)
        monkeypatch.setattr(Builds, "go_on", gone_on)
        monkeypatch.setattr(Build, "put_in_place", placed)


def truncate_meanwhile(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    definition: dict[str, Any],
    seed: int,
    truncated: Sequence[str],
) -> Meanwhile:
    """Truncate these relations, one letter each, of the view, while batches of all kinds, truncates too, come between the steps.
    Each version is right, its changes add up, and a reader of an older one is not disturbed."""
    rng = random.Random(f"{name} {seed}")
    engine = filled(folder, rng)
    engine.put_view("v", definition, wait=60)
    added = None if name.startswith("unfollowed") else Added(engine, "v")
    twin = random.Random(seed)

    def write() -> None:
        for _ in range(twin.randrange(meanwhile.rounds == 0, 3)):
            apply_unprepared(engine, some_changes(twin, 9))

    meanwhile = Meanwhile(monkeypatch, write)
    for names in truncated:
        engine.apply(some_changes(rng, 40))
        before, known = open_rows(engine.readers, "v"), rows_left(open_rows(engine.readers, "v"))
        relations, placed = engine.views["v"].relations, meanwhile.placed
        rows = sum(relations[one].table.rows for one in names if one in relations)
        engine.apply(also_changing(engine, rng, truncating(rng, *names)))
        assert meanwhile.placed == placed + (rows > 0)
        agrees(engine, "v")
        check(engine)
        assert rows_left(before) == known
        look(engine)
        if added is not None:
            add_up(engine, added)
    left_nothing(engine)
    engine.close()
    return meanwhile


def rows_left(reader: RowReader) -> list[str]:
    with closing(reader):
        return sorted(str(row) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist())


def add_up(engine: Instance, added: Added) -> None:
    """The changes of the view come to its rows."""
    added.catch_up()
    with closing(open_rows(engine.readers, "v")) as reader:
        rows = [values(row) for part in iter(partial(reader.read, 1000), None) for row in part.to_pylist()]
    assert Counter(added.rows.values()) == Counter(rows)


def apply_unprepared(engine: Instance, given: Batch) -> int:
    """Its version. It does not wait for one that is being prepared."""
    answer: Future[Receipt | Problem] = Future()
    parts(engine).writer.submit(given, answer.set_result)
    receipt = answer.result(60)
    assert isinstance(receipt, Receipt), receipt
    return receipt.version


def left_nothing(engine: Instance) -> None:
    parts(engine).truncates._thread.submit(lambda: None).result()  # behind what it does after the answer
    ended(engine)  # what shares nothing with others is rebuilt
    look(engine)  # feeds are settled
    until(lambda: len(engine.versions) == 0)
    assert len(parts(engine).state.recorder) == 0
