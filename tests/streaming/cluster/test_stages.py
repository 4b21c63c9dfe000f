"""The stages of a join of streams, without Spark: after each epoch, the changes add up to what DuckDB finds."""

from __future__ import annotations

import gc
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import psutil
import pyarrow as pa
import pytest

from livejoin.wire.schema import parse_relation
from service.engine import headless
from streaming.cluster import cells_batch, netting, packing
from streaming.cluster.cells_batch import BadRows
from streaming.cluster.changes import Kind, _spark_hash, labels
from streaming.cluster.layout import Layout, Member
from streaming.cluster.netting import net, row_hashes
from streaming.cluster.packing import TooMuchAtOnce, as_one, gathered, one_of
from streaming.cluster.reshard import _RelationRead, _require_order
from streaming.cluster.snapshot import _rows as snapshot_rows
from streaming.cluster.snapshot import by_stage
from tests.streaming.cluster.churn import DEFINITIONS, Churn, follow
from tests.streaming.cluster.local import PARTS, Local, hash_of
from tests.streaming.cluster.test_batch import VIEWS


def relations_of(sql: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"(?:FROM|JOIN|,) ([abe])\b", sql)))


def of_view(name: str, kind: Kind, cells: int = 4, layout: str | None = None) -> tuple[Local, Churn]:
    names = relations_of(VIEWS[name])
    local = Local(VIEWS[name], {one: DEFINITIONS[one] for one in names}, dict.fromkeys(names, kind), cells, 16, layout)
    return local, Churn(7, names, kind, 12 if "clique" in name or "path" in name or "star" in name else 25)


def prove(local: Local, churn: Churn, name: str, epochs: int = 6) -> None:
    outputs = local.plan.opened().cell.schema("v0").names
    now: Counter[tuple[Any, ...]] = Counter()
    seen = 0
    for epoch in range(epochs):
        follow(now, local.step(churn.epoch(30)), outputs)
        expected = churn.expected(VIEWS[name])
        assert +now == expected, epoch
        seen += len(expected)
        if epoch % 3 == 2:
            local.replay()
    assert seen, "nothing was compared"
    assert len({label for stage, label in local.kept if stage == "cells"}) > 1, "one cell proves nothing"


@pytest.mark.parametrize("name", list(VIEWS))
def test_each_class_of_views_changes_as_duckdb_says(name: str) -> None:
    prove(*of_view(name, "ordered"), name)


@pytest.mark.parametrize("kind", ["images", "inserts"])
@pytest.mark.parametrize("name", ["keyed pair with a hot key", "self-join", "groups", "left join"])
def test_changes_without_an_order(name: str, kind: Kind) -> None:
    prove(*of_view(name, kind), name)


def in_bands(width: int, hot: str | None) -> tuple[Local, Churn, str]:
    name = "keyed pair with a hot key"
    local, _ = of_view(name, "ordered")
    aliases, _ = json.loads(local.layout)
    keys = None if hot is None else [hash_of({"room": hot}, Member(("room",)))]
    bands = ["bands", {"x": [["room"], "stay"], "y": [["room"], "slot"]}, 4, [], width, keys]
    return *of_view(name, "ordered", layout=json.dumps([aliases, [bands]])), name


@pytest.mark.parametrize(("width", "hot"), [(1, None), (3, None), (1000, None), (4, "A")])
def test_a_row_in_many_bands_is_told_once(width: int, hot: str | None) -> None:
    """Also one that changes its home while it stays in a cell, and looks as before."""
    prove(*in_bands(width, hot))


def test_without_home_tests_rows_are_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The canary of the last."""
    monkeypatch.setattr("streaming.cluster.layout.Layout.homes", lambda layout: iter(()))
    monkeypatch.setattr(cells_batch, "_parsed", cells_batch._parsed.__wrapped__)  # what it keeps of the last has them
    with pytest.raises(AssertionError):
        prove(*in_bands(1, None))


def test_home_by_the_first_start_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another canary: starts in the opposite order."""
    ends = headless.stored_endpoints
    monkeypatch.setattr(headless, "stored_endpoints", lambda *given: tuple(~one for one in ends(*given)))
    with pytest.raises(AssertionError):
        prove(*in_bands(1, None))


def test_values_of_all_types_pass_through_the_buckets_of_keys() -> None:
    columns = [
        {"name": "k", "type": "decimal", "precision": 9, "scale": 2},
        {"name": "t", "type": "timestamp"}, {"name": "u", "type": "timestamp"},
        {"name": "f", "type": "float64"}, {"name": "d", "type": "date", "nullable": True}, {"name": "v", "type": "bool", "nullable": True},
        {"name": "y", "type": "bytes"}, {"name": "m", "type": "decimal", "precision": 18, "scale": 4, "nullable": True},
    ]  # fmt: skip
    definition = parse_relation({"columns": columns, "key": ["k"], "intervals": {"i": {"start": "t", "end": "u"}}})
    sql = "SELECT x.k AS k, x.f AS f, x.d AS d, x.v AS v, x.y AS y, x.m AS m, y.k AS l FROM w x JOIN w y ON overlaps(x.i, y.i)"
    local = Local(sql, {"w": definition}, {"w": "ordered"}, 4, 3_600_000_000)
    begin, rng, rows, now = datetime(2026, 1, 1, tzinfo=UTC), random.Random(1), dict[Decimal, dict[str, Any]](), Counter[tuple[Any, ...]]()
    for epoch in range(5):
        emitted = []
        for number in rng.sample(range(12), 6):
            key = Decimal(number) / 4
            start = begin + timedelta(minutes=rng.randrange(600))
            row = {
                "k": key, "t": start, "u": start + timedelta(hours=2), "f": rng.choice([0.0, 1.5]), "d": rng.choice([None, begin.date()]),
                "v": rng.choice([None, True]), "y": rng.randbytes(2), "m": rng.choice([None, Decimal("-1.2345")]),
            }  # fmt: skip
            rows[key] = row
            emitted.append({**row, "_seq": epoch})
        if epoch == 3:
            emitted.append({"k": rows.popitem()[0], "_op": "delete", "_seq": 9})
        follow(now, local.step({"w": emitted}), ["k", "f", "d", "v", "y", "m", "l"])
        pairs = [(x, y) for x in rows.values() for y in rows.values() if x["t"] < y["u"] and y["t"] < x["u"]]
        assert +now == Counter((*(x[name] for name in "kfdvym"), y["k"]) for x, y in pairs), epoch


def test_bad_changes_are_named() -> None:
    local, _ = of_view("pair", "ordered")
    with pytest.raises(BadRows, match=r"1 changes of a are invalid; the first, in id: missing|1 changes of a are invalid"):
        local.step({"a": [{"_op": "delete", "_seq": 1}]})
    with pytest.raises(BadRows, match="have no _seq"):
        local.step({"a": [{"id": 1, "_op": "delete"}]})
    with pytest.raises(BadRows, match="truncate"):
        local.step({"a": [{"_op": "truncate", "_seq": 1}]})
    images, _ = of_view("pair", "images")
    with pytest.raises(BadRows, match="has the _op 'updated'"):
        images.step({"a": [{"id": 1, "_op": "updated"}]})


def test_equal_rows_cancel_as_often_as_both_have_them() -> None:
    rng, kinds = random.Random(3), [pa.int64(), pa.utf8(), pa.decimal128(9, 2), pa.float64(), pa.bool_(), pa.date32(), pa.binary()]
    some = [[1, "a", Decimal("1.50"), -0.0, True, 3, b"x"], [None] * 7, [2, "b", Decimal("-2.00"), 1.5, False, None, b""]]
    schema = pa.schema([(f"x.{position}", kind) for position, kind in enumerate(kinds)])

    def drawn(number: int) -> pa.RecordBatch:
        rows = [rng.choice(some) for _ in range(number)]
        return pa.RecordBatch.from_arrays(
            [pa.array([row[position] for row in rows], kind) for position, kind in enumerate(kinds)], schema=schema
        )

    def counted(rows: pa.RecordBatch) -> Counter[str]:
        return Counter(map(str, rows.to_pylist()))

    for number in range(12):
        deleted, inserted = drawn(number), drawn(rng.randrange(8))
        left = net(deleted, inserted)
        assert counted(left[0]) == counted(deleted) - counted(inserted) and counted(left[1]) == counted(inserted) - counted(deleted)
        assert np.array_equal(row_hashes(deleted), row_hashes(deleted.slice(0, 1 << 20))) and len(set(row_hashes(deleted).tolist())) <= 3


def test_netted_columns_may_have_any_names() -> None:
    """An alias and a key such as livejoin.sign were taken for the column that counts."""
    schema = pa.schema([("livejoin.sign", pa.int64()), ("livejoin.sign_sum", pa.int64()), ("0", pa.int64())])
    both, old, new = ({"livejoin.sign": 1, "livejoin.sign_sum": 2, "0": value} for value in (3, 4, 5))
    deleted, inserted = (pa.RecordBatch.from_pylist(rows, schema) for rows in ([both, old, both], [both, new]))
    left = net(deleted, inserted)
    assert [sorted(row["0"] for row in rows.to_pylist()) for rows in left] == [[3, 4], [5]]
    assert [rows.schema for rows in left] == [schema, schema]


@pytest.mark.parametrize("name", ["keyed pair with a hot key", "left join"])
def test_what_is_too_much_for_one_batch_is_netted_in_slices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And deletes still come first."""
    sliced, net_ = list[int](), netting.net

    def counted(deleted: pa.RecordBatch, inserted: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        sliced.append(len(deleted) + len(inserted))
        return net_(deleted, inserted)

    monkeypatch.setattr(netting, "net", counted)
    monkeypatch.setattr(netting, "_MOST_BYTES", 256)
    prove(*of_view(name, "ordered"), name)
    assert len([one for one in sliced if one]) > 6 * (PARTS + 4), "more than one of each part and bucket in an epoch"


def test_of_several_chunks_none_is_left_out() -> None:
    """As `combine_chunks` leaves them where a column is too long."""
    long = pa.concat_tables([pa.table({"a": ["x"]}), pa.table({"a": ["y"]})])
    with pytest.raises(TooMuchAtOnce, match="limit how much the sources read at once"):
        one_of(cast(pa.Table, SimpleNamespace(combine_chunks=lambda: long)))
    assert one_of(long).num_rows == 2 and one_of(long.slice(0, 0)).num_rows == 0


@pytest.mark.soak
def test_columns_that_a_batch_cannot_have_are_refused() -> None:
    """2 GiB are written. The text of the batches is the same memory."""
    text = pa.array(["x" * (1 << 28)])
    batches = [pa.RecordBatch.from_arrays([text], ["a"]) for _ in range(8)]
    with pytest.raises(TooMuchAtOnce, match="limit how much the sources read at once"):
        as_one(batches, batches[0].schema)


@pytest.mark.parametrize("most", [1 << 26, 4000])
def test_rows_are_gathered_up_to_a_number_and_up_to_bytes(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows with much text were more than a batch can have before they were many."""
    monkeypatch.setattr(packing, "MOST_ROWS", 100)
    monkeypatch.setattr(packing, "MOST_BYTES", most)
    texts = [["a" * number] * times for number, times in ((10, 30), (0, 0), (10, 80), (100, 20), (3000, 1), (9000, 2), (1, 1))]
    batches = [pa.RecordBatch.from_pydict({"t": pa.array(some, pa.utf8())}) for some in texts]
    found = list(gathered(batches))
    assert [row for one in found for row in one.to_pydict()["t"]] == [row for some in texts for row in some]
    sizes = [one.num_rows for one in found]
    assert sizes == ([110, 24] if most > 4000 else [110, 20, 1, 2, 1])


def test_a_layout_that_reads_the_sources_in_another_order_is_refused() -> None:
    """Where the key of x tells the cell, x needs no resolver, and is read first. Its offsets would be taken for those of y."""
    sql = "SELECT x.id, y.nr FROM b y JOIN a x ON x.id = y.least AND overlaps(x.stay, y.slot)"
    aliases, found = [["y", "b"], ["x", "a"]], []
    for kind, spans, width in (("hash", (None, None), 0), ("bands", ("slot", "stay"), 3)):
        layout = json.dumps([aliases, [[kind, {"y": [["least"], spans[0]], "x": [["id"], spans[1]]}, 4, [], width, None]]])
        found.append(Local(sql, DEFINITIONS, {"a": "ordered", "b": "ordered"}, 4, layout=layout).sources)
    _require_order(found[0], found[0])
    with pytest.raises(ValueError, match="would be read in the order b, a, but the checkpoint has a, b"):
        _require_order(found[0], found[1])


def test_rows_of_another_layout_have_the_columns_of_their_relation() -> None:
    """Of the columns `a` and `a as c0`, the second was read twice."""
    columns = [{"name": name, "type": "int64"} for name in ("a", "a as c0", "k", "s", "e")]
    definition = parse_relation({"columns": columns, "key": ["k"], "intervals": {"i": {"start": "s", "end": "e"}}})
    local = Local("SELECT x.k, y.k AS l FROM w x JOIN w y ON overlaps(x.i, y.i)", {"w": definition}, {"w": "inserts"}, 4, 10)
    rows = [{"a": 10 + k, "a as c0": 20 + k, "k": k, "s": 7 * k, "e": 7 * k + 30} for k in range(5)]
    local.step({"w": rows})
    cells = {label: blobs for (stage, label), (_, _, blobs) in local.kept.items() if stage == "cells"}
    form = pa.schema([("cell", pa.int32()), ("number", pa.int64()), ("blob", pa.binary())])
    kept = [{"cell": label, "number": number, "blob": blob} for label, own in cells.items() for number, blob in own.items()]
    layout = Layout.of_json(local.layout)
    read = _RelationRead(json.dumps(local.plan.to_json()), 0, frozenset(labels(layout.cells)[layout.firsts(layout.roles[0])].tolist()))
    found = [row for batch in read.run([pa.RecordBatch.from_pylist(kept, form)]) for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: row["k"]) == rows
    gc.unfreeze()


def test_a_query_of_several_joins_is_refused() -> None:
    """The states of the one that came last were read as those of all."""

    def of(*names: str) -> str:
        return json.dumps({"stateVariables": [{"stateName": name} for name in names]})

    cells, keys = of("cells_log", "cells_mark", "cells_plan"), of("keys_log", "keys_mark", "keys_plan")
    assert by_stage("c", [(0, cells), (1, keys), (2, None), (3, of("another"))]) == {"cells": 0, "keys": 1}
    for operators in ([(0, cells), (1, keys), (2, cells)], [(0, keys), (1, cells), (2, keys)]):
        with pytest.raises(ValueError, match="c belongs to a query with several live_joins, .*: give each its own query"):
            by_stage("c", operators)
    with pytest.raises(ValueError, match="c is not a checkpoint of live_join"):
        by_stage("c", [(0, keys)])


def test_a_task_that_reads_cells_has_one_at_a_time() -> None:
    """Those of a star have cycles: without a collection their memory, and the address space that they reserve, was added up."""
    local, churn = of_view("star", "ordered", 8)
    for _ in range(2):
        local.step(churn.epoch(60))
    cells = {label: blobs for (stage, label), (_, _, blobs) in local.kept.items() if stage == "cells"}
    kept = [(label, number, blob) for label, blobs in cells.items() for number, blob in blobs.items()]
    form = pa.schema([("cell", pa.int32()), ("number", pa.int64()), ("blob", pa.binary())])
    plan, process, reserved = json.dumps(local.plan.to_json()), psutil.Process(), list[int]()
    local.kept.clear()
    gc.collect()
    before = process.memory_info().vms

    def logs() -> Iterator[pa.RecordBatch]:
        for row in kept:
            reserved.append(process.memory_info().vms - before)
            yield pa.RecordBatch.from_pylist([dict(zip(form.names, row, strict=True))], form)
        reserved.append(process.memory_info().vms - before)

    gc.disable()
    try:
        assert list(snapshot_rows(plan, logs()))
    finally:
        gc.enable()
        gc.unfreeze()
    assert len(reserved) > 4 and 1 << 35 < max(reserved) < 1.9 * reserved[1], reserved


def test_labels_are_spread_evenly_over_each_divisor() -> None:
    for cells in (1, 8, 12):
        found = [_spark_hash(int(label)) for label in labels(cells)]
        assert [one % cells for one in found] == list(range(cells))
