"""What is asked of a view: windows by interval, rows of a row, rows of a join key; at the newest version
beside the writer, and at older ones."""

from __future__ import annotations

import datetime
import math
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import DELETE, UPSERT, Batch, Changes, RowBlock
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from service.reading.lookups import Point, Window, look_up
from service.tables.store import Table
from tests.service.definitions import relation as definition
from tests.service.running import DEFINITION, ORDER, HeldWriter, batch, ids, of_ops, opened, rows_of, running

Row = dict[str, Any]
Pair = tuple[int, int]
PLAN = definition(
    "id:int64, site:string, day:date, at:timestamp, ok:bool, n:int64, m:int64, w:float64, note:string?",
    {
        "number": {"start": "n", "end": "m", "bounds": "[]"}, "reach": {"start": "n", "end": "m", "bounds": "[]"}, "date": {"at": "day"},
        "weight": {"at": "w"}, "moment": {"at": "at"},
    },
    "site,id",
)  # fmt: skip
ORIGIN = datetime.date(2026, 1, 1)
VIEWS: dict[str, list[dict[str, Any]]] = {
    "box": [{"overlaps": ["x.number", "y.number"]}, {"overlaps": ["x.date", "y.date"]}],
    "mixed": [{"overlaps": ["x.number", "y.reach"]}],
    "keyed": [{"equal": ["x.site", "y.site"]}, {"overlaps": ["x.number", "y.number"]}],
    "ends": [{"overlaps": ["x.weight", "y.weight"]}],
    "times": [{"overlaps": ["x.moment", "y.moment"]}],
}


def rows() -> list[Row]:
    chance = random.Random(3)
    made = []
    for id_ in range(24):
        n, day = chance.randrange(20), ORIGIN + datetime.timedelta(chance.randrange(3))
        at = datetime.datetime(2026, 1, 1, chance.randrange(3), tzinfo=datetime.UTC)
        values = "ab ä"[id_ % 4], day, at, id_ % 2 == 0, n, n + chance.randrange(6), chance.choice([-1.5, -0.0, 0.0, 2.5])
        made.append({"id": id_, **dict(zip(["site", "day", "at", "ok", "n", "m", "w"], values, strict=True))})
    return made


ROWS = rows()


def plan(op: int, rows: list[Row]) -> Batch:
    arrow = pa.RecordBatch.from_pylist(rows, schema=PLAN.arrow_schema())
    return Batch([Changes("plan", PLAN, np.full(len(rows), op, np.uint8), RowBlock(arrow), np.arange(len(rows)))], len(rows), 0, [], 0)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """Only read: who changes rows puts them back."""
    engine = opened(tmp_path_factory.mktemp("look-ups") / "data")
    engine.put_relation("plan", PLAN)
    engine.apply(plan(UPSERT, ROWS))
    for name, join in VIEWS.items():
        engine.put_view(name, {"from": {"x": "plan", "y": "plan"}, "join": join, "select": ["x.id as i", "y.id as j"]}, wait=60)
    yield engine
    engine.close()


def found(
    engine: Instance, name: str, window: Window | None = None, point: Point | None = None, search: bool = False, version: int | None = None
) -> list[Pair]:
    """All rows of the look-up at a version, sorted; `search`: as if the key table could not tell."""
    view, pin = engine.view(name), engine.versions.pin(version)
    with pytest.MonkeyPatch.context() as patch:
        if search:
            patch.setattr(Table, "find_at", lambda *_: None)
        reading = look_up(view, pin.version, window, point, engine.readers.delays, search or version is not None)
    assert reading is not None
    pairs: list[Pair] = []
    while not reading.done:
        pairs += [(row["i"], row["j"]) for row in reading.rows(reading.fill(50)).to_pylist()]
    engine.versions.release(pin)
    return sorted(pairs)


def refused(engine: Instance, name: str, window: Window | None = None, point: Point | None = None) -> str:
    with pytest.raises(Problem) as caught:
        found(engine, name, window, point)
    assert caught.value.type == "bad-parameter"
    return caught.value.detail


def meet(x: Row, y: Row) -> bool:
    return x["n"] <= y["m"] and y["n"] <= x["m"]


MEETS = {
    "box": lambda x, y: meet(x, y) and x["day"] == y["day"], "mixed": meet, "keyed": lambda x, y: x["site"] == y["site"] and meet(x, y),
    "ends": lambda x, y: x["w"] == y["w"], "times": lambda x, y: x["at"] == y["at"],
}  # fmt: skip


def wanted(name: str, may: Any = lambda x: True, rows: list[Row] = ROWS) -> list[Pair]:
    """Pairs both of whose rows `may` be there."""
    return sorted((x["id"], y["id"]) for x in rows for y in rows if may(x) and may(y) and MEETS[name](x, y))


def within(low: int | None, high: int | None) -> Any:
    return lambda x: (low is None or x["m"] >= low) and (high is None or x["n"] <= high)


def test_everything(engine: Instance) -> None:
    for name in VIEWS:
        for window in (None, {}, {"": (None, None)}):
            assert found(engine, name, window) == wanted(name) != []


@pytest.mark.parametrize(("low", "high"), [(5, 9), (None, 4), (17, None), (8, 8), (-(2**63), 3), (12, 2**63 - 1), (90, 99)])
@pytest.mark.parametrize(("view", "names"), [("box", ["number"]), ("mixed", ["", "number", "reach"]), ("keyed", ["", "number"])])
def test_windows_of_numbers(engine: Instance, view: str, names: list[str], low: int | None, high: int | None) -> None:
    ends = tuple(None if end is None else f" {end} " for end in (low, high))
    for name in names:
        assert found(engine, view, {name: ends}) == wanted(view, within(low, high))  # type: ignore[dict-item]


def test_windows_of_several_intervals(engine: Instance) -> None:
    second = (ORIGIN + datetime.timedelta(1)).isoformat()
    on_second = lambda x: x["day"].isoformat() == second  # noqa: E731
    assert found(engine, "box", {"date": (second, second)}) == wanted("box", on_second) != []
    assert found(engine, "box", {"date": ("-5877641-06-23", "+5881580-07-11")}) == wanted("box")
    both: Window = {"number": ("4", "9"), "date": (second, None)}
    assert found(engine, "box", both) == wanted("box", lambda x: within(4, 9)(x) and x["day"] > ORIGIN) != []
    assert found(engine, "box", {"date": (None, None), "number": ("4", "9")}) == wanted("box", within(4, 9))


def test_windows_of_floats_and_times(engine: Instance) -> None:
    assert found(engine, "ends", {"": ("0", "1e300")}) == wanted("ends", lambda x: x["w"] >= 0)
    assert found(engine, "ends", {"weight": ("-0.0", "0.0")}) == wanted("ends", lambda x: x["w"] == 0) != []
    assert found(engine, "ends", {"": ("-inf", "-1")}) == wanted("ends", lambda x: x["w"] < -1) != []
    one = datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.UTC)
    for text in ("2026-01-01T01:00:00Z", "2026-01-01 02:00:00+01", "20260101T010000Z", "2026-01-01 01:00"):
        assert found(engine, "times", {"": (text, None)}) == wanted("times", lambda x: x["at"] >= one) != []


def test_wrong_windows_say_which(engine: Instance) -> None:
    assert refused(engine, "box", {"size": ("1", "2")}) == "overlaps.size: the view does not join on an interval size, only on date, number"
    assert refused(engine, "keyed", {"reach": ("1", "2")}) == "overlaps.reach: the view does not join on an interval reach, only on number"
    twice = "overlaps: one window is allowed for number and reach, but two are given"
    assert refused(engine, "mixed", {"number": ("1", "2"), "reach": ("1", "2")}) == twice
    assert refused(engine, "keyed", {"": ("1", "2"), "number": (None, None)}).endswith("two are given")
    assert "two are given" in refused(engine, "box", {"date": ("2026-01-01", None), "": (None, None)})
    for low, high in (("9", "3"), ("1.5", None), (None, "x"), ("", None), ("9" * 30, None), ("1e3", None), ("NaN", None)):
        said = refused(engine, "keyed", {"": (low, high)})
        assert said.startswith("overlaps: ") and (low or high or "") in said
    assert refused(engine, "keyed", {"": ("9", "3")}) == "overlaps: the window is empty: 9 is after 3"
    for text in ("nan", "1e999", "one"):
        assert refused(engine, "ends", {"": (text, None)}).startswith("overlaps: ")
    for text in ("1", "2026-02-30", "99999-01-01", "+5881580-07-12", "infinity", "2026-01-01T00:00:00Z"):
        assert refused(engine, "box", {"date": (text, None)}).startswith("overlaps")
    assert refused(engine, "box", {"": ("1", None)}).endswith("give a window for each: overlaps.date=lo,hi, overlaps.number=lo,hi")


def where(row: Row) -> dict[str, str]:
    return {"id": str(row["id"]), "site": row["site"]}


@pytest.mark.parametrize("search", [True, False])
def test_rows_of_a_row(engine: Instance, search: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the row is looked for in pieces."""
    monkeypatch.setattr("service.tables.store.PIECE_ROWS", 5)
    for name in VIEWS:
        every = wanted(name)
        for row in ROWS[::5]:
            for position, alias in enumerate("xy"):
                assert found(engine, name, None, (alias, where(row)), search) == [
                    pair for pair in every if pair[position] == row["id"]
                ] != []
    for strange in ({"id": "99", "site": "a"}, {"id": "0", "site": "b"}, {"id": "0", "site": " a"}, {"id": "0", "site": "A"}):
        for name in VIEWS:
            assert found(engine, name, None, ("x", strange), search) == [], name
    point = ("y", {"site": ROWS[6]["site"], "id": " +6 "})
    window: Window = {"number": ("8", "12")}
    assert found(engine, "keyed", window, point, search) == [pair for pair in wanted("keyed", within(8, 12)) if pair[1] == 6]


@pytest.mark.parametrize("search", [True, False])
def test_rows_of_a_join_key(engine: Instance, search: bool) -> None:
    for site in "ab ä":
        for alias in "xy":
            of_site = lambda x: x["site"] == site  # noqa: B023, E731
            assert found(engine, "keyed", None, (alias, {"site": site}), search) == wanted("keyed", of_site) != []
            among = wanted("keyed", lambda x: x["site"] == site and within(5, 9)(x))  # noqa: B023
            assert found(engine, "keyed", {"": ("5", "9")}, (alias, {"site": site}), search) == among
    for site in ("", "c", "a ", "A"):
        assert found(engine, "keyed", None, ("x", {"site": site}), search) == []


def test_wrong_look_ups_say_what_they_take(engine: Instance) -> None:
    assert refused(engine, "keyed", None, ("z", {"id": "1"})) == "where: the view has no alias z, only x, y"
    takes = "where: a look-up by x needs all of the key (site, id) or columns that join it (site), not "
    for given, named in (({"n": "1"}, "n"), ({"id": "1"}, "id"), ({"site": "a", "n": "1", "id": "1"}, "id, n, site"), ({}, "")):
        assert refused(engine, "keyed", None, ("x", given)) == takes + named
    assert refused(engine, "box", None, ("y", {"site": "a"})) == "where: a look-up by y needs all of the key (site, id), not site"
    for text in ("one", "1.5", "", "9" * 30, str(2**63), "0x1"):
        assert refused(engine, "keyed", None, ("x", {"site": "a", "id": text})).startswith("where.x.id: ")
    assert refused(engine, "box", {"number": ("2", "1")}, ("x", where(ROWS[0]))).startswith("overlaps.number: "), "both are looked at"


@pytest.mark.parametrize("algorithm", ["auto", "nested-loop", "minesweeper"])
def test_nan_is_looked_up(tmp_path: Path, algorithm: str) -> None:
    """Where it equals NaN: as a join column, and as a value of a row that is its own identity."""
    engine = opened(tmp_path)
    declared = definition("id:int64, w:float64", {}, "id")
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "w": [float("nan"), 0.5]}, schema=declared.arrow_schema())
    changes = []
    for name in "rs":
        engine.put_relation(name, declared)
        changes.append(Changes(name, declared, np.full(2, ORDER["upsert"], np.uint8), RowBlock(rows), np.arange(2)))
    engine.apply(Batch(changes, 4, 0, [], 0))
    join = {"from": {"x": "r", "y": "s"}, "join": [{"equal": ["x.w", "y.w"]}], "select": ["x.id as id"], "algorithm": algorithm}
    engine.put_view("j", join, wait=60)
    engine.put_view("u", {"sql": "SELECT x.w AS w FROM r x EXCEPT SELECT y.w AS w FROM s y WHERE y.id = 2"}, wait=60)
    for view, alias in (("j", "x"), ("j", "y"), ("u", "row")):
        with closing(open_rows(engine.readers, view, point=(alias, {"w": "NaN"}))) as reader:
            (row,) = reader.read(9).to_pylist()
        assert row == {"id": 1} or math.isnan(row["w"])
    engine.close()


TYPES: dict[str, tuple[str, list[tuple[str, Any]], list[str]]] = {
    "date": ("date", [("2026-01-02", datetime.date(2026, 1, 2)), ("0001-01-01", datetime.date.min), ("9999-12-31", datetime.date.max)],
             ["2", "2026-1-2", "2026-02-30", "99999-01-01", "+5881580-07-12", "-5877641-06-22", "+9999999-01-01", "today"]),
    "timestamp": ("timestamp",
                  [("1970-01-01T00:00:00.000001Z", 1), ("1969-12-31T23:59:59.999999Z", -1), ("20260101", 1_767_225_600_000_000)],
                  ["now", "1", "-1", str(1_767_225_600_000_000), "2026-13-01T00:00:00Z", "999999-01-01T00:00:00Z"]),
    "bool": ("bool", [("true", True), ("0", False), (" NO ", False)], ["maybe", "2", ""]),
    "float64": ("float64", [("1.5", 1.5), ("0", -0.0), ("-0.0", 0.0), ("-1e3", -1000.0)], ["NaN", "1e999", "x"]),
    "string": ("string", [("", ""), (" ä ", " ä "), ("1", "1")], []),
    "int64": ("int64", [(str(-(2**63)), -(2**63)), ("+7", 7)], ["7.0", str(-(2**63) - 1)]),
}  # fmt: skip


@pytest.mark.parametrize("type_", TYPES)
def test_keys_of_every_type(tmp_path: Path, type_: str) -> None:
    """By the key table and by looking through the rows, of a key that is the join key too."""
    declared, known, wrong = TYPES[type_]
    engine = opened(tmp_path)
    one = definition(f"k:{declared}, id:int64, s:int64, e:int64", {"span": {"start": "s", "end": "e"}}, "k")
    engine.put_relation("r", one)
    join = [{"equal": ["x.k", "y.k"]}, {"overlaps": ["x.span", "y.span"]}]
    engine.put_view("v", {"from": {"x": "r", "y": "r"}, "join": join, "select": ["x.id as i", "y.id as j"]}, wait=60)
    for number, (text, value) in enumerate(known):
        rows = pa.RecordBatch.from_pylist([{"k": value, "id": number, "s": 0, "e": 9}], schema=one.arrow_schema())
        engine.apply(Batch([Changes("r", one, np.array([UPSERT], np.uint8), RowBlock(rows), np.arange(1))], 1, 0, [], 0))
        for search in (True, False):
            assert found(engine, "v", None, ("x", {"k": text}), search) == [(number, number)], (text, search)
    for text in ["+5881580-07-11", "-5877641-06-23"] * (type_ == "date"):
        assert found(engine, "v", None, ("x", {"k": text}), True) == found(engine, "v", None, ("x", {"k": text})) == [], "the last days"
    for text in wrong:
        assert refused(engine, "v", None, ("y", {"k": text})).startswith("where.y.k: ")
    assert refused(engine, "v", None, ("y", {"id": "1"})) == "where: a look-up by y needs all of the key (k), not id"
    engine.close()


def test_at_an_older_version(engine: Instance) -> None:
    """Rows that moved, came and went since."""
    held = engine.versions.pin()
    before = held.version.number
    moved = {**ROWS[4], "n": 0, "m": 99}
    engine.apply(plan(UPSERT, [moved, {**ROWS[5], "id": 77, "site": "a"}]))
    engine.apply(plan(DELETE, [{"site": ROWS[8]["site"], "id": 8}]))
    now = [moved if row["id"] == 4 else row for row in ROWS if row["id"] != 8] + [{**ROWS[5], "id": 77, "site": "a"}]
    for name in ("keyed", "box"):
        for row in (ROWS[4], ROWS[8], ROWS[0], {"id": 77, "site": "a"}):
            old = [pair for pair in wanted(name) if pair[0] == row["id"]]
            new = [pair for pair in wanted(name, rows=now) if pair[0] == row["id"]]
            point = ("x", where(row))
            assert found(engine, name, None, point, version=before) == old
            assert found(engine, name, None, point) == found(engine, name, None, point, search=True) == new
    assert found(engine, "keyed", {"": ("5", "9")}, ("y", {"site": "a"}), version=before) == wanted(
        "keyed", lambda x: x["site"] == "a" and within(5, 9)(x)
    )
    engine.apply(plan(UPSERT, [ROWS[4], ROWS[8]]))
    engine.apply(plan(DELETE, [{"site": "a", "id": 77}]))
    engine.versions.release(held)
    assert found(engine, "keyed") == wanted("keyed")


def test_rows_that_a_filter_drops_and_views_without_intervals(tmp_path: Path) -> None:
    engine = opened(tmp_path)
    for name in ("a", "b"):
        engine.put_relation(name, DEFINITION)
    select, filtered = ["a.id as i", "b.id as j"], [{"column": "a.id", "op": "<", "value": 3}]
    pair = {"from": {"a": "a", "b": "b"}, "select": select}
    engine.put_view("some", {**pair, "join": [{"overlaps": ["a.x", "b.x"]}], "where": filtered}, wait=60)
    engine.put_view("equal", {**pair, "join": [{"equal": ["a.id", "b.id"]}], "algorithm": "nested-loop"}, wait=60)
    engine.apply(batch(("upsert", "a", rows_of(0, 5)), ("upsert", "b", rows_of(2, 2))))
    for search in (True, False):
        assert found(engine, "some", None, ("a", {"id": "2"}), search) == [(2, 2), (2, 3)]
        assert found(engine, "some", None, ("a", {"id": "4"}), search) == [], "the row is there, the view has it not"
        assert found(engine, "some", None, ("b", {"id": "3"}), search) == [(0, 3), (1, 3), (2, 3)]
        assert found(engine, "equal", None, ("b", {"id": "3"}), search) == [(3, 3)]
    for window in ({"": ("1", "2")}, {"x": (None, None)}, {"": (None, None)}):
        assert refused(engine, "equal", window) == "overlaps: the view does not join on intervals; write overlaps.<alias>.<interval>=lo,hi"
    engine.close()


def test_a_look_up_does_not_wait_for_the_writer(tmp_path: Path) -> None:
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3)), ("upsert", "b", rows_of(0, 2))))
    held = HeldWriter(engine)
    assert ids(open_rows(engine.readers, "v", point=("a", {"id": "1"}))) == [(1, 0), (1, 1)]
    assert ids(open_rows(engine.readers, "v", point=("a", {"id": "9"}))) == []
    held.release()
    engine.close()


def test_what_the_key_table_cannot_tell(tmp_path: Path) -> None:
    """A row that is no more, or another one, and a key that came since: of these it knows the newest only."""
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "a", rows_of(0, 3))))
    table, pin = engine.relation("a").table, engine.versions.pin()

    def find(id_: int, version: int) -> list[int] | None:
        slots = table.find_at(version, pa.RecordBatch.from_pydict({"id": [id_]}))
        return None if slots is None else slots.tolist()

    assert [find(id_, 1) for id_ in (0, 2, 9)] == [[0], [2], []]
    engine.apply(batch(("upsert", "a", rows_of(1, 1, start=5))))
    engine.apply(of_ops("a", ("delete", 2), ("upsert", 9)))
    assert [find(id_, 1) for id_ in (0, 1, 2, 9)] == [[0], None, None, None], "the version is older"
    newest = [find(id_, 3) for id_ in (0, 1, 2, 9)]
    assert newest[0] == [0] and newest[2] == [] and None not in newest and newest[1] and newest[3]
    engine.versions.release(pin)
    engine.close()


def test_look_ups_beside_the_writer(tmp_path: Path) -> None:
    """Each sees the rows of its version, while keys come, go and move."""
    engine = running(tmp_path)
    engine.apply(batch(("upsert", "b", rows_of(0, 2))))
    chance, history, done = random.Random(4), {engine.published.number: frozenset[int]()}, threading.Event()

    def look() -> int:
        looks, own = 0, random.Random(threading.get_ident())
        while not done.is_set():
            id_ = own.randrange(8)
            reader = open_rows(engine.readers, "v", point=("a", {"id": str(id_)}))
            version, rows = reader.version, ids(reader)
            while version not in history:
                time.sleep(0)
            assert rows == [(id_, 0), (id_, 1)] * (id_ in history[version]), (version, id_)
            looks += 1
        return looks

    with ThreadPoolExecutor(3) as pool:
        looking = [pool.submit(look) for _ in range(3)]
        here: set[int] = set()
        for _ in range(400):
            id_ = chance.randrange(8)
            deleted = id_ in here and chance.random() < 0.6
            here ^= {id_} if deleted or id_ not in here else set()
            change = of_ops("a", ("delete", id_)) if deleted else of_ops("a", ("upsert", id_))
            history[engine.apply(change).version] = frozenset(here)
        done.set()
        assert min(one.result() for one in looking) > 10
    engine.close()


NOTED = "SELECT x.note AS note, x.w AS w, COUNT(*) AS n FROM plan x GROUP BY 1, 2"
EITHER = "SELECT x.note AS note, x.w AS w FROM plan x UNION SELECT y.note, y.w FROM plan y"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("", "2.5"), [(None, 2.5)]), (('""', "2.5"), [("", 2.5)]), (('"""quoted"""', "NaN"), [('"quoted"', math.nan)]),
        (('"plain"', "-0"), [("plain", 0.0)]), (("plain", "0"), [("plain", 0.0)]), (("", "0"), []), (("NaN", "2.5"), []),
    ],
)  # fmt: skip
def test_groups_and_rows_are_looked_up_as_fields_of_csv(noted: Instance, given: tuple[str, str], found: list[tuple[Any, ...]]) -> None:
    for view, alias in (("noted", "group"), ("either", "row")):
        part = open_rows(noted.readers, view, point=(alias, dict(zip(("note", "w"), given, strict=True)))).read(10)
        rows = [] if part is None else [tuple(row.values())[:2] for row in part.to_pylist()]
        assert repr(rows) == repr(found), view


@pytest.mark.parametrize("text", ['"', '"a', '"a"b"', '"a"b'])
def test_a_field_whose_quotes_are_wrong(noted: Instance, text: str) -> None:
    for view, alias in (("noted", "group"), ("either", "row")):
        with pytest.raises(Problem) as caught:
            open_rows(noted.readers, view, point=(alias, {"note": text, "w": "0"}))
        assert caught.value.type == "bad-parameter" and f"where.{alias}.note: {text!r} is not quoted as in CSV" in str(caught.value.detail)


def test_only_what_may_be_null_is_looked_up_as_null(noted: Instance) -> None:
    with pytest.raises(Problem) as caught:
        open_rows(noted.readers, "noted", point=("group", {"note": "", "w": ""}))
    assert caught.value.type == "bad-parameter" and "where.group.w" in str(caught.value.detail)


@pytest.fixture(scope="module")
def noted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    engine = opened(tmp_path_factory.mktemp("noted") / "data")
    engine.put_relation("plan", definition("id:int64, note:string?, w:float64", {}))
    schema = engine.relations["plan"].definition.arrow_schema()
    values = [(None, 2.5), ("", 2.5), ('"quoted"', math.nan), ("plain", -0.0)]
    rows = pa.RecordBatch.from_pylist([{"id": at, "note": note, "w": w} for at, (note, w) in enumerate(values)], schema)
    change = Changes("plan", engine.relations["plan"].definition, np.full(4, UPSERT, np.uint8), RowBlock(rows), np.arange(4))
    engine.apply(Batch([change], 4, 0, [], 0))
    engine.put_view("noted", {"sql": NOTED}, wait=60)
    engine.put_view("either", {"sql": EITHER}, wait=60)
    yield engine
    engine.close()
