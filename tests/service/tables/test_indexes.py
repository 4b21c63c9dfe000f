"""Shared indexes against sorted lists: which rows an index has, at the newest version and at pinned ones, and who has an index together."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from service.engine.state import State
from service.engine.versions import VersionsInUse
from service.errors import Problem
from service.tables import indexes as tables_indexes
from service.tables.changes import SIGNS
from service.tables.indexes import SharedIndexes
from service.tables.inputs import Input
from service.tables.interest import TouchedRows
from service.tables.relations import Relation
from service.tables.shared_index import Order, SharedIndex
from structures.core.encoding import decode_floats
from structures.index.indexes import IndexCursor, OrderedIndexes
from tests.service.definitions import relation as definition
from tests.service.definitions import sql

Row = dict[str, Any]
COLUMNS = "id:int64, n:int64?, m:int64?, t:string?, u:string?, x:float64?, y:float64?, ok:bool?, day:date?"
DEFINITION = definition(COLUMNS, {})
RELATIONS = {"r": DEFINITION, "s": DEFINITION}
EVERY = " AND ".join(f"a.{name} = b.{name}" for name in ("n", "m", "t", "u", "x", "y", "ok", "day"))
NO_PINS = np.empty(0, np.int64)


def input(state: State, where: str = "", position: int = 0, relations: str = "r a JOIN s b") -> Input:
    """Of a view that compares every column."""
    query = sql(f"SELECT a.id AS i, b.id AS j FROM {relations} ON {EVERY}{where and ' WHERE ' + where}", RELATIONS).query
    return Input(query, position, state.relations[query.aliases[position][1]])


def order(*columns: str, same: tuple[tuple[int, str], ...] = ()) -> Order:
    return Order(columns, same)


def comparable(value: Any) -> Any:
    """NaN is like NaN, and greater than all else."""
    if isinstance(value, float):
        return math.isnan(value), 0.0 if math.isnan(value) else value
    return value


class Case:
    """A state without views, and the rows of its relations in dicts."""

    def __init__(self) -> None:
        self.state = State()
        self.rows: dict[str, dict[int, Row]] = {}
        for id_, name in enumerate(RELATIONS):
            self.state.relations[name], self.rows[name] = Relation(id_, name, DEFINITION), {}
        self.indexes.make_room()

    @property
    def indexes(self) -> SharedIndexes:
        return self.state.indexes

    def take(self, owner: object, input: Input, order: Order) -> SharedIndex:
        key = self.indexes.key(0, input, order)
        made = self.indexes.loading(key, input, order)
        if made is not None:
            made.load(self.state.newest, lambda part: None)
        one = self.indexes.take(owner, self.state.newest, key, input, made)
        assert one is not None
        return one

    def batch(self, *changes: tuple[str, int, int, Row]) -> Batch:
        """`changes` as (relation, op, id, other values)."""
        parts = []
        for name in dict.fromkeys(name for name, _, _, _ in changes):
            mine = [(at, op, {"id": id_, **row}) for at, (relation, op, id_, row) in enumerate(changes) if relation == name]
            values = [tuple(row.get(column) for column in DEFINITION.arrow_schema().names) for _, _, row in mine]
            ops, index = np.array([op for _, op, _ in mine], np.uint8), np.array([at for at, _, _ in mine])
            parts.append(Changes(name, DEFINITION, ops, RowBlock.few(values, pa.struct(DEFINITION.arrow_schema())), index))
        return Batch(parts, len(changes), 0, [], 0)

    def note(self, changes: tuple[tuple[str, int, int, Row], ...]) -> None:
        for name, op, id_, row in changes:
            if op == DELETE:
                self.rows[name].pop(id_, None)
            else:
                self.rows[name][id_] = {"id": id_, **row}

    def apply(self, *changes: tuple[str, int, int, Row]) -> int:
        """All in one batch."""
        batch = self.batch(*changes)
        validated = self.state.validate([batch])
        assert validated is not None
        self.state.apply(validated)
        self.note(changes)
        assert self.indexes.applied is None or len(self.indexes.applied.ticks), "nothing has gone wrong"
        return self.state.newest

    def run(self, *changes: tuple[str, int, int, Row]) -> int:
        """Each a version of its own, together if they can be."""
        run = self.state.validate([self.batch(one) for one in changes]) if len(changes) > 1 else None
        if run is None:
            for one in changes:
                self.apply(one)
            return self.state.newest
        self.state.apply(run)
        self.note(changes)
        self.in_order(changes)
        return self.state.newest

    def in_order(self, changes: tuple[tuple[str, int, int, Row], ...]) -> None:
        """What a run did is told change by change, of each first what goes, with the entry of its own row."""
        if self.indexes.applied is None:
            return
        run = self.indexes.applied
        assert (run.ticks[1:] >= run.ticks[:-1]).all() and (SIGNS[run.ticks % len(SIGNS)] == run.signs).all()
        offsets = run.ticks // len(SIGNS)
        relations = {one.number: one.relation for one in self.indexes._kept.values()}
        for offset, number, slot in zip(offsets.tolist(), run.indexes.tolist(), run.entries.slot, strict=True):
            name, _, id_, _ = changes[offset]
            relation = relations[number]
            assert relation.name == name and relation.table.take(["id"], np.array([slot])).column(0).to_pylist() == [id_]

    def put(self, *rows: Row, relation: str = "r") -> int:
        return self.apply(*((relation, UPSERT, row["id"], row) for row in rows))

    def reclaim(self, *pins: int) -> None:
        pinned = np.array(sorted(set(pins)), np.int64)
        for task in self.state.to_reclaim():
            while task(VersionsInUse(self.state.newest, pinned, pinned)):
                pass

    def cursor(self, one: SharedIndex) -> IndexCursor:
        """At the newest version."""
        return self.indexes.structure.entries(one.number, self.indexes.structure.root(one.number))

    def found(self, one: SharedIndex, cursor: IndexCursor | None = None) -> list[tuple[Any, ...]]:
        """The columns' values and the id of each entry, in the index's order."""
        cursor = self.cursor(one) if cursor is None else cursor.clone()
        lines, slots = [], []
        while not cursor.done:
            part = cursor.fill(7)
            lines += part.coordinates.tolist()
            slots += part.slot.tolist()
        assert sorted(zip(lines, slots, strict=True)) == list(zip(lines, slots, strict=True)), "not in order"
        table = one.relation.table
        columns = table.take([*one.order.columns, "id"], np.array(slots, np.int32))
        days = [column.cast(pa.int32()) if column.type == pa.date32() else column for column in columns.columns]
        rows = pa.RecordBatch.from_arrays(days, columns.schema.names).to_pylist()
        for row, line in zip(rows, lines, strict=True):
            for name, coordinate in zip(one.order.columns, line, strict=True):
                self.agree(name, row[name], coordinate)
        return [tuple(comparable(value) for value in row.values()) for row in rows]

    def agree(self, name: str, value: Any, coordinate: int) -> None:
        if isinstance(value, float):
            (back,) = decode_floats(np.array([coordinate]), 0).tolist()
            assert back == value or (math.isnan(back) and math.isnan(value))
        elif isinstance(value, str):
            assert self.indexes._texts.look_up(pa.record_batch({"text": [value]})).tolist() == [coordinate]
        elif isinstance(value, int):
            assert coordinate == int(value)

    def wanted(self, one: SharedIndex, meets: Any = None) -> list[tuple[Any, ...]]:
        """The same of the rows, looked at one by one."""
        lines = []
        for row in self.rows[one.relation.name].values():
            values = [row.get(name) for name in one.order.columns]
            others = [(values[j], row.get(name)) for j, name in one.order.same]
            if None in values or any(comparable(x) != comparable(y) for x, y in others) or (meets and not meets(row)):
                continue
            lines.append((*values, row["id"]))
        return [tuple(map(comparable, line)) for line in lines]

    def compare(self, one: SharedIndex, meets: Any = None) -> list[tuple[Any, ...]]:
        """The index is the sorted list; by a text it goes in the order of codes."""
        found, wanted = self.found(one), self.wanted(one, meets)
        assert sorted(found) == sorted(wanted) and self.indexes.count(one) == len(wanted)
        if not one.text_columns:
            assert [line[:-1] for line in found] == sorted(line[:-1] for line in wanted)
        return found


@pytest.fixture
def case() -> Case:
    return Case()


def test_views_that_want_the_same_share_one(case: Case) -> None:
    case.put({"id": 1, "n": 5, "t": "a"}, {"id": 2, "n": 3})
    case.put({"id": 1, "n": 7}, relation="s")
    first = case.take("v", input(case.state), order("n"))
    assert case.compare(first) == [(3, 2), (5, 1)], "what is there already is loaded"
    same = [
        case.take("w", input(case.state), order("n")),
        case.take("v", input(case.state, position=1, relations="s a JOIN r b"), order("n")),
    ]
    assert all(one is first for one in same) and [owner for owner, _ in first.users] == ["v", "w", "v"]
    others = [
        case.take("v", input(case.state), order("n", "m")), case.take("v", input(case.state), order("m")),
        case.take("v", input(case.state), order("n", same=((0, "m"),))), case.take("v", input(case.state, position=1), order("n")),
        case.take("v", input(case.state, "a.n > 3"), order("n")), case.take("v", input(case.state, "a.n > 4"), order("n")),
        case.take("v", input(case.state, "a.n >= 3"), order("n")), case.take("v", input(case.state, "a.m > 3"), order("n")),
    ]  # fmt: skip
    assert len({id(one) for one in [first, *others]}) == 9 and len({one.number for one in [first, *others]}) == 9
    both = case.take("v", input(case.state, "a.n > 3 AND a.ok = true"), order("n"))
    assert case.take("w", input(case.state, "a.ok = true AND a.n > 3 AND b.ok = true"), order("n")) is both, "whatever their order"
    assert {name for _, input in first.users for name in input.varying} == {"n", "m", "t", "u", "x", "y", "ok", "day"}
    assert case.indexes.bytes_of(first) * 3 <= case.indexes.structure.bytes(first.number) < case.indexes.bytes_of(first) * 3 + 3


def test_nulls_and_filters_keep_rows_out(case: Case) -> None:
    two = case.take("v", input(case.state), order("n", "t"))
    equal = case.take("v", input(case.state), order("n", same=((0, "m"),)))
    texts = case.take("v", input(case.state), order("t", same=((0, "u"),)))
    floats = case.take("v", input(case.state), order("x", same=((0, "y"),)))
    few = case.take("v", input(case.state, "a.n > 1 AND a.t <> 'b'"), order("n"))
    case.put(*({"id": i, "n": [None, 1, 2][i % 3], "t": [None, "a", "b"][i // 3 % 3], "m": [None, 2][i % 2]} for i in range(18)))
    pairs = [(math.nan, math.nan), (math.nan, 1.0), (0.0, -0.0), (None, None), (1.5, 1.5), (math.inf, math.inf), (1.0, None)]
    case.put(*({"id": 20 + i, "x": x, "y": y, "t": "ab"[i % 2], "u": [None, "a", "b"][i % 3]} for i, (x, y) in enumerate(pairs)))
    assert [line[:2] for line in case.compare(two)] == [(1, "a")] * 2 + [(1, "b")] * 2 + [(2, "a")] * 2 + [(2, "b")] * 2
    assert {line[0] for line in case.compare(equal)} == {2} and case.compare(texts)
    assert [line[1] for line in case.compare(floats)] == [22, 24, 25, 20]
    case.compare(few, lambda row: (row.get("n") or 0) > 1 and row.get("t") not in (None, "b"))
    case.put({"id": 2, "n": None, "t": "a"}, {"id": 5, "n": 1, "t": "a", "m": 1}, {"id": 20, "x": math.nan, "y": None})
    for one in (two, equal, texts, floats):
        case.compare(one)
    case.compare(few, lambda row: (row.get("n") or 0) > 1 and row.get("t") not in (None, "b"))
    case.indexes.check()


def test_floats_in_order(case: Case) -> None:
    other_nan = float(np.array([-1], np.int64).view(np.float64)[0])
    values = [math.nan, -0.0, 1.5, -math.inf, 5e-324, 0.0, math.inf, -1.5, other_nan, -5e-324]
    one = case.take("v", input(case.state), order("x"))
    case.put(*({"id": i, "x": x} for i, x in enumerate(values)))
    found = case.found(one)
    assert [line[1] for line in found] == [3, 7, 9, 1, 5, 4, 2, 6, 0, 8]

    def key(value: float) -> list[int] | None:
        return one.key(pa.record_batch({"x": pa.array([value], pa.float64())}))

    assert key(0.0) == key(-0.0) != key(5e-324) and key(math.nan) == key(other_nan) != key(math.inf)
    structure = case.indexes.structure
    for value, count in ((0.0, 2), (math.nan, 2), (1.5, 1), (2.5, 0)):
        assert structure.count(one.number, structure.root(one.number), key(value) or []) == count
    case.apply(("r", DELETE, 1, {}), ("r", UPSERT, 0, {"x": -0.0}))
    after = [line[1] for line in case.compare(one)]
    assert (after[:3], {*after[3:5]}, after[5:]) == ([3, 7, 9], {0, 5}, [4, 2, 6, 8])


def test_texts_are_coded_once_for_all(case: Case) -> None:
    by_t, by_u = case.take("v", input(case.state), order("t")), case.take("w", input(case.state, position=1), order("u", "t"))
    texts = case.indexes._texts
    case.put({"id": 1, "t": "a"}, {"id": 2, "t": "ä"}, {"id": 3, "t": ""})
    case.put({"id": 1, "u": "a", "t": "a"}, {"id": 2, "u": "", "t": "a"}, relation="s")
    assert texts.keys == 3
    case.compare(by_t)
    case.compare(by_u)

    def key(one: SharedIndex, **values: str | None) -> list[int] | None:
        return one.key(pa.record_batch({name: pa.array([value], pa.utf8()) for name, value in values.items()}))

    (code,) = key(by_t, t="a") or []
    assert key(by_u, t="a", u="a") == [code, code] and key(by_u, t="a", u="x") is key(by_t, t=None) is key(by_t, t="b") is None
    deleted = case.apply(("r", DELETE, 1, {}), ("s", DELETE, 1, {}))
    case.reclaim()
    assert key(by_t, t="a") == [code], "one index has it still"
    case.apply(("s", DELETE, 2, {}), ("r", DELETE, 3, {}))
    case.reclaim(deleted)
    assert texts.keys == 3 and key(by_t, t="a") == [code], "a reader may look for it"
    case.reclaim()
    assert texts.keys == 1 and key(by_t, t="a") is None and key(by_t, t="ä") is not None
    case.indexes.check()


def test_what_nobody_has_goes_once_no_reader_can_know_it(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts go in pieces."""
    monkeypatch.setattr(tables_indexes, "_FEW", 30)
    case.put(*({"id": i, "n": i % 7, "t": f"t{i % 5}"} for i in range(100)))
    one, kept = case.take("v", input(case.state), order("t", "n")), case.take("w", input(case.state), order("n"))
    assert case.take("w", input(case.state), order("t", "n")) is one
    texts, structure = case.indexes._texts, case.indexes.structure
    case.indexes.forget("v")
    case.reclaim()
    assert [owner for owner, _ in one.users] == ["w"] and len(case.compare(one)) == 100
    version, held, seen = case.state.newest, case.cursor(one), case.found(one)
    case.indexes.forget("w")
    case.reclaim(version)
    assert case.found(one, held) == seen and texts.keys == 5, "it belongs to a version that is read"
    case.put({"id": 1, "n": 9, "t": "new"})
    case.reclaim(version)
    assert case.found(one, held) == seen and structure.root(kept.number) == 0 and texts.keys == 5
    before = case.indexes.retired_bytes
    assert before > 0
    case.reclaim()
    assert case.indexes.retired_bytes == 0 and texts.keys == 0 and structure.live_bytes == 0
    again = case.take("x", input(case.state), order("t", "n"))
    assert again is not one and again.number in (one.number, kept.number) and len(case.compare(again)) == 100
    case.indexes.check()


def test_nothing_without_room_and_without_views() -> None:
    indexes = SharedIndexes()
    indexes.apply(1, {}, TouchedRows([]))
    indexes.reclaim(1, NO_PINS)
    indexes.forget("v")
    indexes.check()
    assert indexes.retired_bytes == 0 and indexes.applied is None
    with pytest.raises(AssertionError, match="no room yet"):
        _ = indexes.structure
    indexes.make_room()
    structure = indexes.structure
    indexes.make_room()
    assert indexes.structure is structure


def test_no_room_is_told_before_anything_is_touched(case: Case) -> None:
    case.indexes._structure = OrderedIndexes(1 << 16)
    one = case.take("v", input(case.state), order("n"))
    case.put({"id": 0, "n": 1})
    with pytest.raises(Problem, match="no-room"):
        for start in range(1, 50_000, 20):
            case.put(*({"id": id_, "n": id_ % 3} for id_ in range(start, start + 20)))
    assert 1 < len(case.compare(one)) == case.state.relations["r"].table.rows < 50_000
    case.indexes.check()


@pytest.mark.parametrize("together", [False, True])
def test_what_goes_wrong_is_told_to_those_who_follow(case: Case, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case.take("v", input(case.state), order("n"))

    def broken(*_: Any) -> None:
        raise KeyError("broken")

    monkeypatch.setattr(case.indexes.structure, "apply", broken)
    with pytest.raises(KeyError, match="broken"):
        (case.run if together else case.apply)(("r", UPSERT, 1, {"n": 1}), ("r", UPSERT, 2, {"n": 1}))
    with pytest.raises(KeyError, match="broken"):
        case.indexes.applied  # noqa: B018
    case.put({"id": 1}, relation="s")
    assert case.indexes.applied is None, "what it does not touch is done"


VALUES: dict[str, list[Any]] = {
    "n": [None, -(2**63), 0, 1, 2**63 - 1], "m": [None, 0, 1], "t": [None, "", "a", "ä", "ab", "b"], "u": [None, "a", "b"],
    "x": [None, math.nan, -0.0, 0.0, 1.5, -math.inf], "y": [None, math.nan, 0.0, 1.5], "ok": [None, True, False], "day": [None, 0, -5],
}  # fmt: skip
FILTERS = {"": None, "a.n >= 0": lambda row: row["n"] is not None and row["n"] >= 0, "a.u = 'a'": lambda row: row["u"] == "a"}
ORDERS = [
    order("n"), order("t"), order("u", "t"), order("x", "ok", "day"), order("n", same=((0, "m"),)),
    order("x", "t", same=((0, "y"), (1, "u"))), order("day", "n", "m", "t", "u", "x", "y", "ok"),
]  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_at_pinned_versions(case: Case, seed: int) -> None:
    chance = random.Random(seed)
    taken: dict[tuple[str, Order, str], SharedIndex] = {}
    pinned: list[tuple[int, SharedIndex, IndexCursor, list[tuple[Any, ...]]]] = []
    for _ in range(25):
        if chance.random() < 0.5 and len(taken) < 5:
            key = chance.choice("rs"), chance.choice(ORDERS), chance.choice(list(FILTERS))
            if key not in taken:
                taken[key] = case.take(key, input(case.state, key[2], relations=f"{key[0]} a JOIN s b"), key[1])
        changes = []
        for _ in range(chance.randint(1, 12)):
            row = {name: chance.choice(values) for name, values in VALUES.items()}
            known = case.rows["r"].get(id_ := chance.randrange(12))
            if known and chance.random() < 0.3:  # one column of a row that is there
                name = chance.choice(list(row))
                row = {**known, name: row[name]}
            changes.append((chance.choice("rrs"), DELETE if chance.random() < 0.3 else UPSERT, id_, row))
        if chance.random() < 0.4:  # and some are put again as they are
            changes += [("r", UPSERT, id_, row) for id_, row in case.rows["r"].items() if chance.random() < 0.5]
        if chance.random() < 0.5:
            changes = list({(name, id_): (name, op, id_, row) for name, op, id_, row in changes}.values())
            case.run(*[one for one in changes if one[1] == UPSERT or one[2] in case.rows[one[0]]] or changes)
        else:
            case.apply(*changes)
        for (_, _, where), one in taken.items():
            case.compare(one, FILTERS[where])
            if chance.random() < 0.3:
                pinned.append((case.state.newest, one, case.cursor(one), case.found(one)))
        if taken and chance.random() < 0.15:
            key = chance.choice(list(taken))
            del taken[key]
            case.indexes.forget(key)
        pinned = [pin for pin in pinned if chance.random() < 0.8]
        case.reclaim(*(version for version, _, _, _ in pinned))
        for _, one, held, seen in pinned:
            assert case.found(one, held) == seen
        case.indexes.check()
    for key in taken:
        case.indexes.forget(key)
    case.apply(("r", UPSERT, 1, {}))
    case.reclaim()
    assert case.indexes.structure.live_bytes == case.indexes.retired_bytes == case.indexes._texts.keys == 0


def test_a_run_and_a_batch_come_to_the_same() -> None:
    """The same changes in both ways, over rows that are there, change, or go."""
    cases = Case(), Case()
    chance, indexes = random.Random(7), []
    rows = [{"id": i, **{name: chance.choice(values) for name, values in VALUES.items()}} for i in range(60)]
    for case in cases:
        indexes.append([case.take("v", input(case.state), one) for one in ORDERS])
        case.put(*rows[:30])
    changes = [("r", DELETE, i, {}) for i in range(10)]
    changes += [("r", UPSERT, i, {**rows[(i + 13) % 60], "id": i}) for i in range(15, 45)]
    chance.shuffle(changes)
    assert cases[0].apply(*changes) == 2 and cases[1].run(*changes) == 1 + len(changes)
    for one, other in zip(*indexes, strict=True):
        assert sorted(cases[0].compare(one)) == sorted(cases[1].compare(other))
    for case in cases:
        case.indexes.check()
