"""What a batch comes to, against a naive twin: a dict that is changed change by change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from livejoin.wire.batch import DELETE, INSERT, TRUNCATE, UPSERT, Changes, RowBlock
from service.tables import resolution
from service.tables.relations import Relation
from service.tables.resolution import Resolution, last_of_each, prepare, resolve
from tests.service.definitions import relation as definition

Key = tuple[Any, ...]
Change = tuple[int, Key, int]  # op, key, what the row says besides
PHYSICAL = {pa.timestamp("us", "UTC"): pa.int64(), pa.date32(): pa.int32()}
KINDS: dict[str, tuple[str, str, list[Key]]] = {
    "number": ("note:string?, id:int64, v:int64?", "id", [(0,), (1,), (-(2**63),), (2**63 - 1,)]),
    "text": ("id:string, note:string?, v:int64?", "id", [("",), ("a",), ("ä",), ("a longer text of several words",)]),
    "two columns": (
        "nr:int64, v:int64?, site:string, note:string?", "site,nr", [("a", 1), ("a", 2), ("b", 1), ("", 1), ("1", 11), ("11", 1)]
    ),
    "three columns": (
        "at:timestamp, day:date, ok:bool, v:int64?, note:string?", "ok,day,at", [(True, 1, 1), (False, 1, 1), (True, 1, 2), (True, 2, 1)]
    ),
    "float": ("x:float64, v:int64?, note:string?", "x", [(0.0,), (-0.0,), (0.5,), (-1e300,)]),
}  # fmt: skip


@dataclass
class Twin:
    """What the changes come to, walked one by one over the keys that the table has."""

    ignored: int = 0
    bad: list[int] = field(default_factory=list)
    truncate: bool = False
    now: dict[Key, int | None] = field(default_factory=dict)  # by key the number of the change that put it; None: the table's row
    last: dict[Key, int] = field(default_factory=dict)  # the last change of each key that did something, since the last truncate

    def walk(self, known: list[Key], changes: list[Change]) -> Twin:
        self.now = dict.fromkeys(known)
        for at, (op, key, _) in enumerate(changes):
            if op == TRUNCATE:
                self.now, self.last, self.truncate = {}, {}, True
            elif op == INSERT and key in self.now:
                self.bad.append(at)
            elif op == DELETE and key not in self.now:
                self.ignored += 1
            else:
                self.last[key] = at
                if op == DELETE:
                    del self.now[key]
                else:
                    self.now[key] = at
        return self

    @property
    def inserted(self) -> list[int]:
        """The changes whose rows stay, in the batch's order."""
        return sorted(at for at in self.now.values() if at is not None)


class Case:
    """A relation of one kind with some rows in it, at version 5, after others that are gone."""

    def __init__(self, kind: str, present: list[int]) -> None:
        columns, key, self.keys = KINDS[kind]
        self.relation = Relation(1, "r", definition(columns, {}, key))
        self.known = list(dict.fromkeys(self.keys[i % len(self.keys)] for i in present))
        table = self.relation.table
        table.insert(1, self.rows([(UPSERT, key, -1) for key in self.keys if key != (-0.0,)], False))
        table.delete(2, table.scan(1, 0, 99)[0])
        table.reclaim(2, np.empty(0, np.int64))
        self.slots = {}
        for key in self.known:
            (slot,) = table.insert(5, self.rows([(UPSERT, key, 1000)], False)).tolist()
            self.slots[key] = slot

    def values(self, change: Change) -> dict[str, Any]:
        op, key, say = change
        if op == TRUNCATE:
            return {}
        row = dict(zip(self.relation.key, key, strict=True))
        return row if op == DELETE else row | {"v": say, "note": None if say % 2 else f"note {say}"}

    def rows(self, changes: list[Change], few: bool, before: int = 0) -> RowBlock:
        """In one of the two forms; Arrow's as a slice behind so many rows."""
        values = [tuple(self.values(change).get(name) for name in self.relation.schema.names) for change in changes]
        rows = RowBlock.few(values, pa.struct(self.relation.schema))
        if few:
            return rows
        return RowBlock(RowBlock.few([(None,) * len(self.relation.schema)] * before + values, rows.struct).arrow.slice(before))

    def resolve(self, changes: list[Change], few: bool, before: int = 0, prepared: bool = False) -> Resolution:
        """Number i of the changes stands at place 3 i + 7 of what was sent."""
        ops = np.array([op for op, _, _ in changes], np.uint8)
        given = Changes("r", self.relation.definition, ops, self.rows(changes, few, before), np.arange(len(changes)) * 3 + 7)
        if prepared:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(resolution, "_WORTH_PREPARING", 1)
                prepare(Relation(2, "r", self.relation.definition), given)  # it looks at no row
            assert given.prepared is not None and given.prepared.bytes >= 0
        return resolve(self.relation, given, 5)


def emitted(rows: RowBlock) -> list[tuple[Any, ...]]:
    """The physical values."""
    if rows.values is not None:
        return rows.values
    columns = [column.cast(PHYSICAL.get(column.type, column.type)).to_pylist() for column in rows.arrow.columns]
    return list(zip(*columns, strict=True))


def compare(case: Case, changes: list[Change], found: Resolution) -> None:
    table = case.relation.table
    twin = Twin().walk(case.known, changes)
    inserted = twin.inserted
    assert (found.relation, found.truncate, found.ignored) == (case.relation, twin.truncate, twin.ignored)
    assert found.bad.tolist() == [3 * at + 7 for at in twin.bad]
    assert emitted(found.inserts) == emitted(case.rows([changes[at] for at in inserted], True))
    replaced = [changes[at][1] for at in inserted]
    assert found.previous.tolist() == [case.slots.get(key, -1) for key in replaced]
    first = [case.slots[key] for key in replaced if key in case.slots]
    deleted = [changes[at][1] for at in sorted(twin.last.values()) if changes[at][0] == DELETE]
    deleted = [key for key in deleted if key in case.slots]
    rest = sorted(case.slots[key] for key in case.known if key not in replaced) if twin.truncate else [case.slots[key] for key in deleted]
    assert found.deletes.tolist() == first + rest
    assert emitted(found.delete_keys) == ([] if twin.truncate else deleted)
    assert found.deletes.dtype == found.previous.dtype == np.int32
    assert found.delete_keys.values is not None or found.delete_keys.arrow.schema == case.relation.no_keys.arrow.schema
    if found.given is not None:
        assert table.find_given(found.given).tolist() == found.previous.tolist()
    assert table.rows == len(case.known) and table.scan(5, 0, 99)[0].tolist() == sorted(case.slots.values()), "nothing was changed"


def put(case: Case, changes: list[Change], found: Resolution) -> None:
    """The table afterwards has just the rows that the twin has."""
    table = case.relation.table
    table.delete(6, found.deletes)
    if found.given is not None:
        table.enter(6, found.given)
    else:
        table.insert(6, found.inserts)
    table.check()
    rows = emitted(RowBlock(table.take(case.relation.schema.names, table.scan(6, 0, 99)[0])))
    now = Twin().walk(case.known, changes).now
    wanted = [(UPSERT, key, 1000) if at is None else changes[at] for key, at in now.items()]
    assert sorted(map(repr, rows)) == sorted(map(repr, emitted(case.rows(wanted, True))))


NUMBERS = st.integers(0, 5)
ONE = st.tuples(st.sampled_from([INSERT, UPSERT, DELETE, INSERT, UPSERT, DELETE, TRUNCATE]), NUMBERS, st.integers(0, 9))
EVERY = [(op, number, number) for op in (INSERT, UPSERT, DELETE) for number in range(4)]
ALL = (TRUNCATE, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
@given(
    present=st.lists(NUMBERS, max_size=4), some=st.lists(ONE, min_size=1, max_size=14), few=st.booleans(), before=st.integers(0, 9),
    prepared=st.booleans(),
)  # fmt: skip
@example(present=[0, 1], some=EVERY, few=False, before=0, prepared=False)
@example(present=[0, 1, 2, 3], some=[*EVERY, ALL, *EVERY, ALL, (UPSERT, 2, 1), (UPSERT, 0, 1)], few=False, before=3, prepared=False)
@example(present=[0, 1, 2, 3], some=[*EVERY, ALL, *EVERY, ALL, (UPSERT, 2, 1), (UPSERT, 0, 1)], few=False, before=3, prepared=True)
@example(present=[0], some=[(UPSERT, 2, 1), ALL], few=False, before=0, prepared=True)
@example(present=[3, 2, 1], some=[ALL], few=True, before=0, prepared=True)
@example(present=[0], some=[(DELETE, 0, 0), (INSERT, 0, 1), (INSERT, 0, 2), *2 * [(DELETE, 0, 0)]], few=True, before=0, prepared=False)
def test_batches(kind: str, present: list[int], some: list[tuple[int, int, int]], few: bool, before: int, prepared: bool) -> None:
    case = Case(kind, present)
    changes = [(op, case.keys[number % len(case.keys)], say) for op, number, say in some]
    found = case.resolve(changes, few, before, prepared)
    compare(case, changes, found)
    put(case, changes, found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("few", [True, False])
def test_one_change_alone(kind: str, few: bool) -> None:
    """Few rows stay what they are, and are looked at once."""
    for present in ([], [0], [1, 0]):
        for op in (INSERT, UPSERT, DELETE, TRUNCATE):
            case = Case(kind, present)
            changes = [(op, case.keys[0], 3)]
            found = case.resolve(changes, few, 5)
            compare(case, changes, found)
            if few and op in (INSERT, UPSERT) and found.inserts.num_rows:
                assert found.inserts.values is not None and found.given is not None
            put(case, changes, found)


def net(present: list[int], *changes: tuple[int, int, int]) -> tuple[Resolution, dict[str, Any]]:
    """With numbers of keys in place of slots, and of the inserts what they say."""
    case = Case("number", present)
    found = case.resolve([(op, case.keys[number], say) for op, number, say in changes], False)
    numbers = {slot: case.keys.index(key) for key, slot in case.slots.items()} | {-1: None}
    return found, {
        "says": [row[2] for row in emitted(found.inserts)],
        "previous": [numbers[slot] for slot in found.previous.tolist()],
        "deletes": [numbers[slot] for slot in found.deletes.tolist()],
        "keys": [case.keys.index(key) for key in emitted(found.delete_keys)],
    }


def test_what_is_replaced_comes_before_what_is_deleted() -> None:
    changes = [(DELETE, 0, 0), (UPSERT, 3, 1), (UPSERT, 2, 2), (UPSERT, 1, 3), (DELETE, 3, 0), (DELETE, 3, 0), (UPSERT, 2, 5)]
    found, emitted_ = net([0, 1, 2], *changes)
    assert emitted_ == {"says": [3, 5], "previous": [1, 2], "deletes": [1, 2, 0], "keys": [0]}
    assert found.ignored == 1 and not found.truncate and len(found.bad) == 0


def test_after_a_truncate_nothing_is_there() -> None:
    changes = [(INSERT, 3, 1), ALL, (INSERT, 3, 2), (INSERT, 1, 3), (INSERT, 1, 4), (DELETE, 3, 0), (DELETE, 0, 0), (DELETE, 3, 0)]
    found, emitted_ = net([1, 0], *changes)
    assert emitted_ == {"says": [3], "previous": [1], "deletes": [1, 0], "keys": []}
    assert found.ignored == 2 and found.truncate and found.bad.tolist() == [7 + 3 * 4]
    found, emitted_ = net([0], (INSERT, 0, 1), (DELETE, 1, 0), ALL, (INSERT, 0, 2), ALL)
    assert emitted_ == {"says": [], "previous": [], "deletes": [0], "keys": []}
    assert found.ignored == 1 and found.truncate and found.bad.tolist() == [7], "what stands before it is judged"


def test_bad_inserts_are_told_at_their_place() -> None:
    found, emitted_ = net([0], (INSERT, 0, 1), (DELETE, 0, 0), (INSERT, 0, 2), (INSERT, 0, 3), (UPSERT, 0, 4), (INSERT, 0, 5))
    assert found.bad.tolist() == [7, 16, 22] and emitted_ == {"says": [4], "previous": [0], "deletes": [0], "keys": []}
    found, emitted_ = net([0], (INSERT, 0, 1), (INSERT, 0, 2))
    assert found.bad.tolist() == [7, 10] and emitted_ == {"says": [], "previous": [], "deletes": [], "keys": []}, "the row stays"


def test_many_rows() -> None:
    """More keys than a column has values: two columns are told apart together."""
    columns, key, _ = KINDS["two columns"]
    relation = Relation(1, "r", definition(columns, {}, key))
    n = 3000
    numbers = np.arange(n)
    sites, nrs = [f"s{i % 50}" for i in numbers], numbers // 50
    rows = pa.RecordBatch.from_arrays([pa.array(nrs), pa.array(numbers), pa.array(sites), pa.nulls(n, pa.utf8())], schema=relation.schema)
    slots = relation.table.insert(1, RowBlock(rows.slice(0, 1000)))

    def validated(rows: pa.RecordBatch, op: int) -> Resolution:
        n = rows.num_rows
        return resolve(relation, Changes("r", relation.definition, np.full(n, op, np.uint8), RowBlock(rows), np.arange(n)), 1)

    found = validated(rows, INSERT)
    assert found.bad.tolist() == list(range(1000)) and found.inserts.arrow.column(1).to_pylist() == list(range(1000, n))
    twice = pa.concat_batches([rows, rows.slice(500, 1000)])
    found = validated(twice, UPSERT)
    left = [*range(500), *range(1500, n), *range(500, 1500)]
    assert found.inserts.arrow.column(1).to_pylist() == left and found.previous.tolist() == [slots[i] if i < 1000 else -1 for i in left]
    assert found.deletes.tolist() == [slots[i] for i in left if i < 1000]
    found = validated(twice, DELETE)
    assert found.ignored == 2000 + 1000 and found.delete_keys.num_rows == 1000 and sorted(found.deletes.tolist()) == sorted(slots.tolist())


@given(st.sampled_from([*KINDS]), st.lists(st.tuples(st.lists(st.integers(0, 5), max_size=5), st.integers(0, 2)), max_size=4))
@example("text", [([0, 2, 3], 1), ([3, 2, 1], 0)])
@example("two columns", [([0, 1], 0), ([], 0), ([4, 5, 0], 2)])
@example("float", [([0], 0), ([1], 0)])
def test_the_last_rows_of_each_key_of_several_batches(kind: str, batches: list[tuple[list[int], int]]) -> None:
    case = Case(kind, [])
    keys = [[case.keys[i % len(case.keys)] for i in some] for some, _ in batches]
    rows = [case.rows([(UPSERT, key, 0) for key in some], False, before).arrow for some, (_, before) in zip(keys, batches, strict=True)]
    last = last_of_each(case.relation, rows)
    every = [key for some in keys for key in some]
    expected = [key not in every[at + 1 :] for at, key in enumerate(every)]
    assert (last is None) == all(expected)
    assert last is None or last.tolist() == expected
