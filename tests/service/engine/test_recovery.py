"""Recovery of relations: a real log and real snapshots give back the rows, the version and the sources, whatever lies where."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, INSERT, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition
from service.durability.database import LogRow
from service.durability.effects import Effect, encode_effects
from service.durability.folder import DamagedFolder
from service.durability.log import Log
from service.durability.snapshots import write_snapshot
from service.engine.recovery import recover_relations
from service.engine.state import State
from service.instance import Instance
from service.settings import Settings
from service.tables.relations import Relation
from tests.service.definitions import relation as definition

Row = tuple[Any, ...]
NUMBERED = definition("id:int64, v:int64?, note:string?", {})
KEYED = definition("nr:int64, v:int64?, site:string", {}, "site,nr")
TRUNCATED = True


def few(definition: RelationDefinition, rows: list[Row]) -> RowBlock:
    return RowBlock.few(rows, pa.struct(definition.arrow_schema()))


def keys(definition: RelationDefinition, values: list[Row]) -> RowBlock:
    schema = definition.arrow_schema()
    return RowBlock.few(values, pa.struct([schema.field(name) for name in definition.key]))


class Folder:
    """A data folder that is written as the service does it, and recovered from as often as wanted."""

    def __init__(self, path: Path, **relations: RelationDefinition) -> None:
        self.path, self.log = path, Log(path, "normal")
        self.ids: dict[str, int] = {}
        self.definitions: dict[int, RelationDefinition] = {}
        for name, one in relations.items():
            self.add(name, one)

    def add(self, name: str, one: RelationDefinition) -> int:
        id_ = self.ids[name] = self.log.next_relation_id
        self.definitions[id_] = one
        self.log.put_relation(id_, name, one.to_json())
        return id_

    def effect(self, name: str, rows: list[Row] = [], deleted: list[Row] = [], all_: bool = False, arrow: bool = False) -> Effect:  # noqa: B006
        id_ = self.ids[name]
        one = self.definitions[id_]
        deletes, inserts = keys(one, deleted), few(one, rows)
        if arrow:
            return Effect(id_, all_, RowBlock(deletes.arrow), RowBlock(inserts.arrow))
        return Effect(id_, all_, deletes, inserts)

    def write(self, *effects: Effect, source: str | None = None, run: str | None = None, epoch: int | None = None) -> int:
        version = self.log.last_version + 1
        self.log.append([LogRow(version, source, run, epoch, encode_effects(effects))])
        self.log.commit()
        return version

    def snapshot(self, version: int, **rows: list[list[Row]]) -> None:
        """Of each relation some pieces."""
        ids = [self.ids[name] for name in rows]
        schemas = [self.definitions[id_].arrow_schema() for id_ in ids]
        pieces = [[few(self.definitions[id_], some).arrow for some in parts] for id_, parts in zip(ids, rows.values(), strict=True)]
        write_snapshot(self.path, version, zip(ids, schemas, pieces, strict=True))

    def recovered(self) -> tuple[State, int, list[tuple[str, float]]]:
        """Of a log that is opened again: the state, the snapshot's version, what was told."""
        self.log.close()
        self.log = Log(self.path, "normal")
        state, emitted = State(), list[tuple[str, float]]()
        snapshot = recover_relations(state, self.log, self.path, lambda stage, part: emitted.append((stage, part)), keep_history=False)
        start = snapshot.version if snapshot is not None else 0
        assert state.newest == max(start, self.log.last_version) and state.views == {}
        for relation in state.relations.values():
            relation.table.check()
            assert relation.table.retired_bytes == 0, "nobody reads older versions yet"
        return state, start, emitted

    def rows(self) -> dict[str, list[Row]]:
        state, _, _ = self.recovered()
        return {name: rows_of(relation, state.newest) for name, relation in state.relations.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    folder = Folder(tmp_path, a=NUMBERED, b=KEYED)
    yield folder
    folder.log.close()


def rows_of(relation: Relation, version: int) -> list[Row]:
    table = relation.table
    slots, more = table.scan(version, 0, 10_000)
    assert more < 0 and table.rows == len(slots)
    return sorted(tuple(row.values()) for row in table.take(table.schema.names, slots).to_pylist())


def test_nothing_yet(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    state, start, emitted = folder.recovered()
    assert (state.relations, state.sources, state.newest, start, emitted) == ({}, {}, 0, 0, [])
    folder.add("a", NUMBERED)
    folder.add("b", KEYED)
    state, start, emitted = folder.recovered()
    assert [(name, one.id, one.definition) for name, one in state.relations.items()] == [("a", 0, NUMBERED), ("b", 1, KEYED)]
    assert folder.rows() == {"a": [], "b": []} and (start, emitted) == (0, [])
    folder.log.close()


@pytest.mark.parametrize("arrow", [False, True])
def test_log_alone(folder: Folder, arrow: bool) -> None:
    def effect(*given: Any, **more: Any) -> Effect:
        return folder.effect(*given, arrow=arrow, **more)

    folder.write(effect("a", [(1, 10, "one"), (2, None, None), (3, 30, "")]), effect("b", [(1, 5, "x"), (1, 6, "y"), (2, 7, "x")]))
    assert folder.rows() == {"a": [(1, 10, "one"), (2, None, None), (3, 30, "")], "b": [(1, 5, "x"), (1, 6, "y"), (2, 7, "x")]}
    folder.write(effect("a", [(2, 20, "two"), (4, 40, None)], [(1,)]), source="pms", run="r1", epoch=7)
    assert folder.rows()["a"] == [(2, 20, "two"), (3, 30, ""), (4, 40, None)], "an insert replaces the row of its key"
    folder.write(effect("b", [], [("x", 1), ("y", 1)]), source="crm", epoch=-3)
    assert folder.rows()["b"] == [(2, 7, "x")]
    folder.write(effect("a", [(9, 90, None)], all_=TRUNCATED), source="pms", run="r1", epoch=8)
    assert folder.rows() == {"a": [(9, 90, None)], "b": [(2, 7, "x")]}
    folder.write(effect("b", all_=TRUNCATED), effect("a", [(9, 91, None)], [(9,)]), source="pms", run="r2", epoch=1)
    assert folder.rows() == {"a": [(9, 91, None)], "b": []}, "what goes goes first"
    state, start, _ = folder.recovered()
    assert (start, state.newest) == (0, 5) and state.sources == {"pms": ("r2", 1), "crm": (None, -3)}


def test_deletes_of_what_is_not_there(folder: Folder) -> None:
    folder.write(folder.effect("a", [], [(1,)]), folder.effect("b", all_=TRUNCATED))
    folder.write(folder.effect("a", [(1, 1, None)], [(2,), (1,)], all_=TRUNCATED))
    folder.write(folder.effect("a", [(3, 3, None)], [(2,), (1,)]))
    assert folder.rows() == {"a": [(3, 3, None)], "b": []}


def test_versions_without_rows(folder: Folder) -> None:
    """Of a run the last row has all; the others are empty, and versions all the same."""
    rows = [LogRow(1, "pms", "r", 1, b""), LogRow(2, "crm", "r", 1, b""), LogRow(3, "pms", "r", 2, b"")]
    rows[-1] = rows[-1]._replace(payload=encode_effects([folder.effect("a", [(1, 1, None), (2, 2, None)])]))
    folder.log.append([*rows, LogRow(4, None, None, None, b"")])
    folder.log.commit()
    state, _, _ = folder.recovered()
    assert state.newest == 4 and state.sources == {"pms": ("r", 2), "crm": ("r", 1)} and state.relations["a"].table.rows == 2


def test_snapshot_alone(folder: Folder) -> None:
    for epoch in range(5):
        folder.write(folder.effect("a", [(epoch, 0, "log")]), source="pms", epoch=epoch)
    folder.snapshot(5, a=[[(1, 1, "s"), (2, None, None)], [], [(7, 7, "")]], b=[[(1, 1, "x")]])
    folder.log.forget(5)
    state, start, emitted = folder.recovered()
    assert (start, state.newest) == (5, 5) and state.sources == {"pms": (None, 4)}
    assert folder.rows() == {"a": [(1, 1, "s"), (2, None, None), (7, 7, "")], "b": [(1, 1, "x")]}
    assert emitted == [("loading the snapshot", part) for part in (2 / 4, 2 / 4, 3 / 4, 4 / 4)]
    folder.add("later", NUMBERED)
    assert folder.rows()["later"] == []


@pytest.mark.parametrize("forgotten", [0, 2, 3])
def test_snapshot_and_log(folder: Folder, forgotten: int) -> None:
    """What the log still has from before the snapshot is not done again."""
    folder.write(folder.effect("a", [(1, 1, None), (2, 2, None)]), source="pms", epoch=1)
    folder.write(folder.effect("a", [], [(1,)]))
    folder.write(folder.effect("b", [(1, 1, "x")]))
    folder.write(folder.effect("a", [(1, 4, None)]), source="pms", epoch=2)
    folder.write(folder.effect("a", [(3, 5, None)], [(2,)]), folder.effect("b", [(1, 5, "x"), (2, 5, "x")]))
    folder.snapshot(3, a=[[(2, 2, "the snapshot's")]], b=[[(1, 1, "x")]])
    assert folder.rows()["a"] == [(1, 4, None), (3, 5, None)]
    folder.log.forget(forgotten)
    state, start, _ = folder.recovered()
    assert (start, state.newest, state.sources) == (3, 5, {"pms": (None, 2)})
    assert folder.rows() == {"a": [(1, 4, None), (3, 5, None)], "b": [(1, 5, "x"), (2, 5, "x")]}


def test_a_relation_that_was_dropped_or_made_again(folder: Folder) -> None:
    folder.write(folder.effect("a", [(1, 1, "old")]), folder.effect("b", [(1, 1, "old")]))
    folder.snapshot(1, a=[[(1, 1, "old")]], b=[[(1, 1, "old")]])
    folder.write(folder.effect("a", [(2, 2, "old")]), folder.effect("b", [(2, 2, "old")]))
    old = folder.effect("a", [(3, 3, "old")], [(1,)], all_=TRUNCATED)
    folder.log.drop_relation("a")
    assert folder.rows() == {"b": [(1, 1, "old"), (2, 2, "old")]}
    folder.add("a", KEYED)
    folder.write(folder.effect("a", [(1, 1, "new")]))
    folder.write(folder.effect("a", [(2, 2, "new")]), old, folder.effect("b", [(3, 3, "new")]))
    assert folder.rows() == {"b": [(1, 1, "old"), (2, 2, "old"), (3, 3, "new")], "a": [(1, 1, "new"), (2, 2, "new")]}
    state, start, emitted = folder.recovered()
    assert {name: relation.id for name, relation in state.relations.items()} == {"b": 1, "a": 2} and (start, state.newest) == (1, 4)
    assert emitted and max(part for _, part in emitted) <= 1, "of the rows that the snapshot has"


def test_progress(folder: Folder) -> None:
    folder.log.append([LogRow(version, "pms", None, version, b"") for version in range(1, 101)])
    folder.log.commit()
    folder.snapshot(100, a=[[(n, n, None) for n in range(start, start + 10)] for start in range(0, 100, 10)])
    _, _, emitted = folder.recovered()
    assert emitted == [("loading the snapshot", part / 10) for part in range(1, 11)]
    folder.log.append([LogRow(version, "pms", None, version, b"") for version in range(101, 1101)])
    folder.log.commit()
    _, _, emitted = folder.recovered()
    assert emitted[10:] == [("replaying the log", (version - 100) / 1000) for version in range(101, 1101)]
    folder.log.close()
    instance, heard = Instance(folder.path, Settings.model_validate({"data": folder.path})), list[tuple[str, float]]()
    instance.recover(lambda stage, part: heard.append((stage, part)))
    instance.close()
    folder.log = Log(folder.path, "normal")
    assert heard == [*emitted, ("ready", 1.0)] and instance.progress == 1.0


def test_slots_are_used_again_while_the_log_is_replayed(folder: Folder) -> None:
    for version in range(1, 1001):
        folder.log.append([LogRow(version, None, None, None, encode_effects([folder.effect("a", [(version % 2, version, "x" * 100)])]))])
    folder.log.commit()
    state, _, _ = folder.recovered()
    assert [row[:2] for row in rows_of(state.relations["a"], 1000)] == [(0, 1000), (1, 999)]
    assert state.relations["a"].table._rows.used < 600, "the log is longer than the table"


def test_what_does_not_fit_together(folder: Folder) -> None:
    for _ in range(5):
        folder.write(folder.effect("a", [(1, 1, None)]))
    folder.snapshot(3, a=[[(1, 1, None)]])
    folder.log.forget(4)
    with pytest.raises(DamagedFolder, match="versions 4 to 4 are neither in the log nor in a snapshot"):
        folder.recovered()
    folder.snapshot(6, a=[[(1, 1, None)]])
    with pytest.raises(DamagedFolder, match="ends at version 5, before the snapshot's version 6"):
        folder.recovered()
    (file,) = (folder.path / "snapshots").glob("6/0.arrow")
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(DamagedFolder, match="wrong checksum"):
        folder.recovered()


class Written:
    """A state that applies random batches and logs them as the writer does."""

    def __init__(self, folder: Folder, seed: int) -> None:
        self.folder, self.chance, self.state, self.runs = folder, random.Random(seed), State(), 0
        for name, id_ in folder.ids.items():
            self.state.relations[name] = Relation(id_, name, folder.definitions[id_])

    def row(self, name: str, op: int) -> Row:
        if op == TRUNCATE:
            return (None,) * 3
        number, v = self.chance.randrange(6), None if op == DELETE else self.chance.randrange(100)
        last = self.chance.choice("xy") if name == "b" else None if op == DELETE or v % 3 == 0 else f"note {v}"
        return number, v, last

    def batch(self, single: bool) -> Batch:
        parts, sent = [], 0
        for name in [self.chance.choice("ab")] if single else self.chance.sample(["a", "b"], self.chance.randint(1, 2)):
            count = 1 if single else self.chance.randint(1, 5)
            may = [INSERT, UPSERT, DELETE] if single else [INSERT, UPSERT, UPSERT, DELETE, TRUNCATE]
            ops = [self.chance.choice(may) for _ in range(count)]
            one = self.state.relations[name].definition
            rows = few(one, [self.row(name, op) for op in ops])
            index = np.arange(sent, sent + count)
            parts.append(Changes(name, one, np.array(ops, np.uint8), rows if self.chance.random() < 0.5 else RowBlock(rows.arrow), index))
            sent += count
        return Batch(parts, sent, 0, [], 0, "pms", self.state.newest, "r", on_error="skip")

    def step(self) -> None:
        """One batch, or a run of single changes if they go together."""
        batches = [self.batch(True) for _ in range(self.chance.randint(1, 4))] if self.chance.random() < 0.5 else [self.batch(False)]
        run = self.state.validate(batches) if len(batches) > 1 else None
        if run is not None:
            self.runs += 1
            applied = [self.state.apply(run)]
        else:
            applied = [self.state.apply(validated) for batch in batches if (validated := self.state.validate([batch])) is not None]
        logged = [(one.version, b"" if one is not made.receipts[-1] else made.payload) for made in applied for one in made.receipts]
        for batch, (version, payload) in zip(batches, logged, strict=True):
            self.folder.log.append([LogRow(version, batch.source, batch.run, batch.epoch, payload)])
        self.folder.log.commit()

    def rows(self) -> dict[str, list[Row]]:
        return {name: rows_of(relation, self.state.newest) for name, relation in self.state.relations.items()}


@pytest.mark.parametrize("seed", range(4))
def test_what_was_applied_is_recovered(folder: Folder, seed: int) -> None:
    written = Written(folder, seed)
    for step in range(60):
        written.step()
        if step % 20 == 13:
            folder.snapshot(written.state.newest, **{name: [rows] for name, rows in written.rows().items()})
            folder.log.forget(written.state.newest - step % 3)
        if step % 6 == 0:
            assert folder.rows() == written.rows(), f"after step {step}"
    state, start, _ = folder.recovered()
    assert written.runs and start > 0 and (state.newest, state.sources) == (written.state.newest, written.state.sources)
