"""The engine against its naive twin: every view at every version, with readers, followers and restarts in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, TRUNCATE, UPSERT
from service.errors import Problem
from service.following.chunks import Chunk
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import RowReader, open_relation_rows, open_rows
from service.views.parse import parse_view
from tests.service.grouped import GroupedView
from tests.service.running import PAIR, HeldWriter, batch, check, counted, in_parts, is_empty, kill, opened, parts, running
from tests.service.stretched import CoveredView
from tests.service.twin import DEFINITIONS, KEYS, MANY, VIEWS, Row, Source, Twin, TwinView, of_different_rows, plain, to_batch, values

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SEEDS = [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)]


def prepared(folder: Path, views: dict[str, TwinView]) -> Instance:
    engine = opened(folder)
    for name, definition in DEFINITIONS.items():
        assert engine.put_relation(name, definition) == "created"
    for name, view in views.items():
        assert engine.put_view(name, view.definition, wait=60)[1] == "created", engine.views[name].problem
    return engine


def read_all(reader: RowReader, chunk: int = 1000) -> Counter[tuple[Any, ...]]:
    rows: Counter[tuple[Any, ...]] = Counter()
    while (batch := reader.read(chunk)) is not None:
        assert batch.num_rows <= chunk
        rows.update(values(row) for row in plain(batch))
    return rows


class Follower:
    """Replays a feed; at each progress it must be the view."""

    def __init__(self, engine: Instance, name: str, twin: Twin, snapshot: bool) -> None:
        self.name, self.twin, self.engine = name, twin, engine
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {} if snapshot else dict(twin.history[twin.version][name])
        self.token: str | None = None
        self.version = 0
        self.before = dict(self.rows)  # at that version
        self.follow(None, snapshot)

    def go_on(self, engine: Instance, snapshot: bool) -> None:
        """After a restart: from its token, if it has one."""
        self.engine = engine
        if self.token is None:
            self.__init__(engine, self.name, self.twin, snapshot)  # type: ignore[misc]
            return
        self.rows = dict(self.before)
        self.follow(self.token, False)

    def follow(self, since: str | None, snapshot: bool) -> None:
        feed = self.engine.views[self.name].feed
        assert feed is not None
        self.subscription = feed.subscribe(since, snapshot)

    def catch_up(self) -> None:
        while chunks := self.subscription.next():
            for chunk in chunks:
                self.take(chunk)
        idle = self.subscription.idle_progress()
        assert idle.version == self.twin.version
        self.token, self.version, self.before = idle.token, idle.version, dict(self.rows)
        assert self.rows == self.twin.history[self.twin.version][self.name], self.name

    def take(self, chunk: Chunk) -> None:
        if chunk.kind == "progress":
            history = self.twin.history
            assert self.rows == history[chunk.version][self.name], (self.name, chunk.version)
            if self.token is not None:
                passed_over = [version for version in range(self.version + 1, chunk.version) if history[version][self.name] != self.before]
                assert not passed_over, (self.name, chunk.version, passed_over)
            self.before = dict(self.rows)
            self.token, self.version = chunk.token, chunk.version
            return
        assert chunk.kind == "rows", chunk
        assert chunk.keys is not None and chunk.rows is not None
        for key, row in zip(plain(chunk.keys), plain(chunk.rows), strict=True):
            identity = values(key)
            if chunk.op == "delete":
                assert self.rows.pop(identity) == values(row)
            else:
                assert identity not in self.rows
                self.rows[identity] = values(row)


class Held:
    """A reader that was opened at some version, perhaps in parts, and reads a little at a time."""

    def __init__(self, engine: Instance, name: str, twin: Twin, parts: int) -> None:
        self.name, self.twin = name, twin
        self.readers = in_parts(engine, name, parts) if parts else [open_rows(engine.readers, name)]
        self.version = twin.version
        self.rows: Counter[tuple[Any, ...]] = Counter()

    def read(self, some: int) -> bool:
        batch = self.readers[-1].read(some)
        if batch is not None:
            self.rows.update(values(row) for row in plain(batch))
            return True
        assert self.readers[-1].version == self.version
        self.readers.pop().close()
        if self.readers:
            return True
        assert self.rows == Counter(self.twin.history[self.version][self.name].values()), (self.name, self.version)
        return False

    def close(self) -> None:
        for reader in self.readers:
            reader.close()


def compare(engine: Instance, twin: Twin) -> None:
    for name in twin.views:
        expected = Counter(twin.history[twin.version][name].values())
        reader = open_rows(engine.readers, name)
        assert reader.version == twin.version
        assert is_empty(reader) == (not expected), name
        assert read_all(reader, 7 + sum(expected.values()) // 50) == expected, name  # some fifty pieces of a view that is large
        reader.close()
        reader = open_rows(engine.readers, name)
        assert counted(reader) == sum(expected.values())
        reader.close()
        assert sum((read_all(part) for part in in_parts(engine, name, 3)), Counter()) == expected, name
    for name, rows in twin.relations.items():
        reader = open_relation_rows(engine.readers, name)
        assert is_empty(reader) == (not rows)
        assert read_all(reader, 5) == Counter(values(row) for row in rows.values())
        reader.close()
        assert engine.rows_of(name) == len(rows)


def compare_lookups(engine: Instance, twin: Twin, source: Source) -> None:
    for name, view in twin.views.items():
        if isinstance(view, GroupedView):
            compare_group(engine, twin, name, source)
            continue
        if isinstance(view, CoveredView):
            compare_covered(engine, twin, name, view, source)
            continue
        if not view.aliases:  # its rows are values
            compare_row(engine, twin, name)
            continue
        rows = view.combinations(twin.relations)
        window: tuple[int, int] | None = None
        if view.ends and source.random.random() < 0.5:
            low = source.random.randrange(60)
            window = (low, low + source.random.randrange(20))
            rows = [row for row in rows if all(e(r)[0] <= window[1] and e(r)[1] >= window[0] for e, r in zip(view.ends, row, strict=True))]
        text = None if window is None else {"": tuple(f"1970-01-01T00:00:00.{end:06}Z" for end in window)}
        assert read_all(open_rows(engine.readers, name, window=text)) == Counter(values(view.select(*row)) for row in rows), (name, window)
        position = source.random.randrange(len(view.aliases))
        alias, relation = view.aliases[position]
        key = source.key(relation)
        mine = [row for row in rows if all(row[position][column] == key[column] for column in key)]
        found = read_all(open_rows(engine.readers, name, window=text, point=(alias, {column: str(value) for column, value in key.items()})))
        assert found == Counter(values(view.select(*row)) for row in mine), (name, alias, key, window)
        joined = {"clashes": ("room", "floor"), "once": ("room",), "later": ("room",), "near": ("floor",), "free": ("room",),
                  "busy": ("room",), "alone": ("room", "floor")}.get(name)  # fmt: skip
        if joined is not None:
            point = {"room": "A", "floor": "1"}
            given = {column: point[column] for column in joined}
            mine = [row for row in rows if all(str(row[position][column]) == given[column] for column in joined)]
            assert read_all(open_rows(engine.readers, name, window=text, point=(alias, given))) == Counter(
                values(view.select(*row)) for row in mine
            ), (name, alias, window)


def compare_row(engine: Instance, twin: Twin, name: str) -> None:
    """A row that is there, and one that is not."""
    rows = twin.history[twin.version][name]
    names = engine.views[name].shown.schema.names
    for row in [next((row for row in rows if None in row or "NaN" in row), None), next(iter(rows), None)]:
        for changed in () if row is None else (row, tuple(map(another, row))):
            point = "row", as_fields(engine, name, names, changed)
            assert read_all(open_rows(engine.readers, name, point=point)) == Counter([changed] if changed in rows else [])


def compare_covered(engine: Instance, twin: Twin, name: str, view: CoveredView, source: Source) -> None:
    """What a group that is there covers, and one that is not, and what meets a window."""
    found = twin.history[twin.version][name]
    low = source.random.randrange(60)
    high = low + source.random.randrange(20)
    window = {source.random.choice(("", "busy")): (f"1970-01-01T00:00:00.{low:06}Z", f"1970-01-01T00:00:00.{high:06}Z")}
    met = {key: row for key, row in found.items() if (row[-2] or 0) <= high and (row[-1] is None or row[-1] - view.half_open >= low)}
    assert read_all(open_rows(engine.readers, name, window=window)) == Counter(met.values()), (name, low, high)
    if found and view.group:
        key = source.random.choice(list(found))[:-1]
        for changed in (key, tuple(map(another, key))):
            point = "group", as_fields(engine, name, view.group, changed)
            expected = Counter(row for row in met.values() if row[:-2] == changed)
            assert read_all(open_rows(engine.readers, name, point=point, window=window)) == expected, (name, changed)


def compare_group(engine: Instance, twin: Twin, name: str, source: Source) -> None:
    """A group that is there, and one that is not."""
    found = twin.history[twin.version][name]
    groups, shown = engine.views[name].view.query.groups, engine.views[name].shown
    names = shown.schema.names if groups is None else [column.name for column in groups.columns]
    if found and names:
        key = source.random.choice(list(found))
        for changed in (key, tuple(map(another, key))):
            point = "group", as_fields(engine, name, names, changed)
            expected = Counter([found[changed]] if changed in found else [])
            assert read_all(open_rows(engine.readers, name, point=point)) == expected, (name, changed)


def another(value: Any) -> Any:
    if value is None or value == "NaN":
        return value
    return value + 10**6 if isinstance(value, int | float) else f"{value}1"


def as_fields(engine: Instance, view: str, names: Sequence[str], values: Sequence[Any]) -> dict[str, str]:
    """As a group or a row is looked up by: fields of CSV."""
    schema = engine.views[view].shown.schema
    fields = {}
    for name, value in zip(names, values, strict=True):
        if value is not None and pa.types.is_timestamp(schema.field(name).type):
            value = (EPOCH + timedelta(microseconds=value)).isoformat()
        fields[name] = as_field(value)
    return fields


def as_field(value: Any) -> str:
    return "" if value is None else str(value) if value != "" else '""'


def run(folder: Path, seed: int, batches: int, size: Callable[[Source], int], keys: int, views: dict[str, TwinView] = VIEWS) -> None:
    print("seed", seed)
    source, twin = Source(seed, keys), Twin(views)
    engine = prepared(folder, views)
    followers = [Follower(engine, name, twin, source.random.random() < 0.5) for name in views]
    held: list[Held] = []
    runs: list[int] = []
    pick = source.random
    for epoch in range(batches):
        changes = source.changes(size(source), twin.relations)
        if pick.random() < 0.4:
            changes += source.changes(5, twin.relations)
            grouped(engine, twin, of_different_rows(changes, twin.relations) if pick.random() < 0.7 else changes, runs)
            changes = []
        if not changes and "s" not in engine.sources():  # an empty batch of a new source is not recorded
            changes = source.changes(1, twin.relations)
        on_error = pick.choice(("reject", "skip"))
        before = twin.version
        expected = twin.apply(changes, on_error)
        batch = to_batch(changes, source="s", epoch=epoch, on_error=on_error)
        if expected is None:
            with pytest.raises(Problem) as caught:
                engine.apply(batch)
            assert caught.value.type == "bad-rows"
            assert engine.published.number == before
        else:
            ignored, bad = expected
            receipt = engine.apply(batch)
            assert (receipt.version, receipt.duplicate) == (before + 1, False)
            assert (receipt.applied, receipt.ignored, receipt.skipped_count) == (len(changes) - ignored - len(bad), ignored, len(bad))
            assert [error.index for error in receipt.skipped] == bad[:100]
            repeated = engine.apply(batch)
            assert repeated.duplicate and (repeated.version, repeated.applied) == (before + 1, 0)
        compare(engine, twin)
        compare_lookups(engine, twin, source)
        held = [one for one in held if one.read(pick.randrange(1, 40))]
        if len(held) < 6:
            held.append(Held(engine, pick.choice(list(views)), twin, pick.choice((0, 0, 2))))
        for follower in followers:
            if pick.random() < 0.5:
                follower.catch_up()
            elif pick.random() < 0.2 and follower.token is not None:
                follower.catch_up()
                follower.subscription.close()
                follower.follow(follower.token, False)
        if pick.random() < 0.08:
            for one in held:
                one.close()
            held = []
            if pick.random() < 0.5:
                engine.close()
            else:
                kill(engine)
            engine = opened(folder)
            compare(engine, twin)
            for follower in followers:
                follower.go_on(engine, pick.random() < 0.5)
    for follower in followers:
        follower.catch_up()
    check(engine)
    engine.close()
    assert max(runs, default=0) > 2


def grouped(engine: Instance, twin: Twin, changes: list[tuple[str, int, Row]], runs: list[int]) -> None:
    """Each a batch of its own, all of which the writer takes at once; `runs` gets the lengths of those that it applied together. Truncates
    come last: other small batches may pass them."""
    changes = sorted(changes, key=lambda change: change[1] == TRUNCATE)
    apply = parts(engine).state.apply
    held = HeldWriter(engine)
    parts(engine).state.apply = lambda validated: (runs.append(len(validated.batches)), apply(validated))[1]  # type: ignore[method-assign]
    expected = []
    for number, change in enumerate(changes):
        outcome = twin.apply([change], "reject")
        expected.append(None if outcome is None else (twin.version, 1 - outcome[0]))
        held.submit(to_batch([change], **({"source": f"of {twin.version}", "epoch": number} if number % 3 == 0 else {})))
    held.release()
    while len(held.answers) < len(changes):  # jobs may stand between the batches
        engine.at_rest(lambda: None)
    parts(engine).state.apply = apply  # type: ignore[method-assign]
    for answer, wanted in zip(held.answers, expected, strict=True):
        assert isinstance(answer, Problem) if wanted is None else (answer.version, answer.applied) == wanted, answer


@pytest.mark.parametrize("seed", SEEDS)
def test_small_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, seed, 60, lambda source: source.random.randrange(4), 12)


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_large_batches(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 100 + seed, 25, lambda source: source.random.randrange(60), 40)


@pytest.mark.parametrize("seed", SEEDS)
def test_joins_of_many(tmp_path: Path, seed: int) -> None:
    run(tmp_path, 200 + seed, 40, lambda source: source.random.randrange(8), 9, MANY)


@pytest.mark.parametrize("algorithm", ["nested-loop", "ij-heap", "join-tree"])
def test_other_algorithms(tmp_path: Path, algorithm: str) -> None:
    """The same views, kept by another algorithm that is correct for them."""
    views = {}
    for name, view in (VIEWS | MANY).items():
        found = parse_view(name, view.definition, DEFINITIONS)
        if algorithm in [one.algorithm for one in alternatives(found.query, DEFINITIONS)]:
            views[name] = TwinView(view.aliases, view.definition | {"algorithm": algorithm}, view.on, view.select, view.ends)
    assert len(views) >= (1 if algorithm == "box-tree" else 5), list(views)
    run(tmp_path, 300, 30, lambda source: source.random.randrange(8), 9, views)


def test_keys_of_the_twin() -> None:
    assert {name: tuple(definition.key) for name, definition in DEFINITIONS.items()} == KEYS


@pytest.mark.parametrize("algorithm", ["auto", "nested-loop"])
def test_rows_that_nothing_meets_hold_no_key(tmp_path: Path, algorithm: str) -> None:
    """Nothing is greater than the greatest int64: such a row has no entry, so its join key is not counted."""
    engine = prepared(tmp_path, {})
    later = {"from": {"x": "a", "y": "a"}, "join": [{"less": ["x.floor", "y.floor"]}, {"equal": ["x.room", "y.room"]}]}
    assert engine.put_view("v", later | {"algorithm": algorithm}, wait=60)[1] == "created"
    before = engine.views["v"].statistics()["bytes"]
    row = {"id": 1, "room": "A", "floor": 2**63 - 1, "starts": 5, "ends": None, "tag": "u", "weight": None}
    engine.apply(to_batch([("a", UPSERT, row)]))
    engine.apply(to_batch([("a", DELETE, {"id": 1})]))
    engine.at_rest(lambda: engine.views["v"].reclaim(engine.published.number, np.empty(0, np.int64)))
    assert engine.views["v"].statistics()["bytes"] == before
    engine.close()


@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
def test_a_delta_is_too_large_by_its_rows_not_by_what_is_looked_at(tmp_path: Path, together: bool) -> None:
    """A comparison that the structure does not know leaves a few rows of many candidates, alone and in a run."""
    join = [{"overlaps": ["a.x", "b.x"]}, {"less": ["a.tag", "b.tag"]}]
    view = {**PAIR, "join": join, "changes": {"retain_rows": 10, "retain_bytes": 1 << 20}}
    engine = running(tmp_path, view)
    count = 120_000
    rows = {"id": pa.array(range(count)), "s": pa.array([0] * count), "e": pa.array([9] * count),
            "tag": pa.array(["c"] * 5 + ["a"] * (count - 5))}  # fmt: skip
    schema = pa.schema([("id", pa.int64()), ("s", pa.int64()), ("e", pa.int64()), ("tag", pa.utf8())])
    engine.apply(batch(("upsert", "b", pa.RecordBatch.from_pydict(rows, schema))))
    feed = engine.views["v"].feed
    assert feed is not None
    subscription = feed.subscribe()
    held = HeldWriter(engine)
    for id_ in range(2 if together else 1):
        row = pa.RecordBatch.from_pylist([{"id": id_, "s": 0, "e": 9, "tag": "b"}], schema)
        held.submit(batch(("upsert", "a", row)))
    held.release()
    engine.at_rest(lambda: None)
    kinds = [chunk.kind for chunk in subscription.next()]
    assert "error" not in kinds and kinds.count("progress") == (2 if together else 1)
    engine.close()
