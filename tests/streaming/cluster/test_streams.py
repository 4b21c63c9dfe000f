"""Joins of streams in a Spark with two threads, against DuckDB: over restarts and failures, each epoch's changes are told once."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import livejoin
from service.views.parse import parse_view
from streaming.cluster.candidates import NotDistributable
from streaming.cluster.changes import Kind, _spark_hash
from streaming.cluster.frames import Table
from streaming.cluster.layout import CoordinateValues, Layout
from streaming.cluster.reshard import reshard
from streaming.cluster.snapshot import snapshot, status
from streaming.cluster.stream_layout import even_layout, stream_layout
from streaming.cluster.streams import live_join
from tests.docs.pages import Reader
from tests.server_process import ROOT, ServerProcess
from tests.streaming.cluster.churn import DEFINITIONS, Churn, follow
from tests.streaming.cluster.stream_query import PROVIDER, ROCKSDB, changes_of, session, write
from tests.streaming.cluster.test_batch import VIEWS


@pytest.fixture(scope="module")
def spark(quick_java: None) -> Iterator[SparkSession]:
    own = session()
    yield own
    own.stop()


class Query:
    """A view over streams of files, each of which is an epoch of a relation, and a sink that keeps what an epoch told last."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, kind: Kind, seed: int, width: int = 16) -> None:
        self.spark, self.folder, self.kind, self.sql, self.width = spark, folder, kind, VIEWS[name], width
        self.layout: str | None = None
        self.mode = "append"
        self.checkpoint = str(folder / "checkpoint")
        self.names = list(dict.fromkeys(re.findall(r"(?:FROM|JOIN|,) ([abe])\b", self.sql)))
        self.churn = Churn(seed, self.names, kind, 15)
        self.emitted: dict[int, list[dict[str, Any]]] = {}
        self.fails = 0  # so many epochs, after their changes were read
        self.again = 0  # epochs that were told twice, alike
        self.epochs = 0
        for one in self.names:
            (folder / one).mkdir(parents=True)

    def changes(self) -> DataFrame:
        return changes_of(self.spark, self.folder, self.sql, self.names, self.kind, self.width, self.layout)

    def start(self) -> StreamingQuery:
        stream = self.changes().writeStream.outputMode(self.mode).option("checkpointLocation", self.checkpoint).foreachBatch(self._sink)
        return stream.start()

    def _sink(self, frame: DataFrame, epoch: int) -> None:
        rows = frame.toArrow().to_pylist()
        assert all(row["_epoch"] == epoch for row in rows)
        if epoch in self.emitted:
            assert sorted(map(str, rows)) == sorted(map(str, self.emitted[epoch])), "an epoch that is run again tells something else"
            self.again += 1
        self.emitted[epoch] = rows
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the sink is to fail")

    def write(self, most: int = 20) -> None:
        """An epoch's files."""
        for one, rows in self.churn.epoch(most).items():
            write(self.folder, one, self.kind, self.epochs, rows)
        self.epochs += 1

    def now(self) -> Counter[tuple[Any, ...]]:
        outputs = [name for name in self.changes().columns[2:] if name in self.outputs]
        now: Counter[tuple[Any, ...]] = Counter()
        for epoch in sorted(self.emitted):
            follow(now, self.emitted[epoch], outputs)
        return +now

    @property
    def outputs(self) -> Sequence[str]:
        return snapshot(self.spark, self.checkpoint).columns

    def layout_now(self, partitions: int = 2) -> str:
        """Of a query that begins with so many."""
        definitions = {name: DEFINITIONS[name] for name in self.names}
        return even_layout(parse_view("v", {"sql": self.sql}, definitions).query, 4 * partitions, None, 8.0)

    def compare(self) -> None:
        expected = self.churn.expected(self.sql)
        assert self.now() == expected
        assert Counter(tuple(row.values()) for row in snapshot(self.spark, self.checkpoint).toArrow().to_pylist()) == expected


def test_changes_are_told_once_over_restarts_and_failures(spark: SparkSession, tmp_path: Path) -> None:
    one = Query(spark, tmp_path, "keyed pair with a hot key", "ordered", 3)
    query = one.start()
    for _ in range(2):
        one.write()
        query.processAllAvailable()
    query.stop()
    before = one.churn.expected(one.sql)
    epoch = max(one.emitted)
    one.fails = 1
    one.write()
    query = one.start()
    with pytest.raises(StreamingQueryException, match="the sink is to fail"):  # the states of the epoch are written, and thrown away
        query.processAllAvailable()
    query = one.start()
    for _ in range(5):  # enough for compaction
        one.write(40)
        query.processAllAvailable()
    query.stop()
    one.compare()
    assert one.again >= 1
    at = Counter(tuple(row.values()) for row in snapshot(spark, one.checkpoint, epoch).toArrow().to_pylist())
    assert at == before, "an earlier epoch"
    for deleted in (-1, 99):
        with pytest.raises(ValueError, match=rf"epoch {deleted} is not kept: .*checkpoint has 0 to {max(one.emitted)} \("):
            snapshot(spark, one.checkpoint, deleted)
    emitted = [row.asDict() for row in status(one.checkpoint).collect()]
    rows = sum(map(len, one.churn.rows.values()))
    assert sum(row["rows"] for row in emitted if row["stage"] == "keys") == rows
    assert sum(row["rows"] for row in emitted if row["stage"] == "cells") >= rows
    assert all(row["logged"] <= 3 * row["rows"] + 80 for row in emitted) and sum(row["rebuilds"] for row in emitted) > 0
    assert sum(row["ignored"] for row in emitted) > 0, "deletes of keys that were not there"
    spark._streamingCheckpointManager.repartition(one.checkpoint, 4)
    query = one.start()
    one.write()
    query.processAllAvailable()
    query.stop()
    one.compare()
    assert {row["partition"] for row in status(one.checkpoint).collect()} == set(range(4)), "cells are spread evenly"
    one.width += 1
    one.write()
    with pytest.raises(StreamingQueryException, match="the checkpoint belongs to a different view or layout"):
        one.start().processAllAvailable()


def in_bands(width: int, size: int) -> str:
    members = {"x": [["room"], "stay"], "y": [["room"], "slot"]}
    return json.dumps([[["x", "a"], ["y", "b"]], [["bands", members, size, [], width, None]]])


@pytest.mark.parametrize("back", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_another_layout_goes_on_with_the_next_epoch(spark: SparkSession, tmp_path: Path, back: bool) -> None:
    """`back`: and then another one with that after an earlier epoch."""
    one = Query(spark, tmp_path, "keyed pair with a hot key", "ordered", 3)
    one.layout = in_bands(8, 4)
    query = one.start()
    for _ in range(2):
        one.write()
        query.processAllAvailable()
    old, target, layout = one.checkpoint, str(tmp_path / "resharded"), in_bands(3, 8)
    with pytest.raises(ValueError, match="is running: stop it"):
        reshard(spark, old, target, layout)
    query.stop()
    own = query.id
    before, epoch = one.churn.expected(one.sql), max(one.emitted)
    one.fails = 1
    one.write()
    with pytest.raises(StreamingQueryException, match="the sink is to fail"):  # the next epoch is planned and told, but not done
        one.start().processAllAvailable()
    one.checkpoint, one.layout = target, layout
    spark.conf.set("spark.sql.shuffle.partitions", 4)
    try:
        assert reshard(spark, old, target, layout) == epoch
        assert Counter(tuple(row.values()) for row in snapshot(spark, target, epoch).toArrow().to_pylist()) == before
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)  # the states have what they began with
    query = one.start()
    query.processAllAvailable()
    one.write()
    query.processAllAvailable()
    query.stop()
    one.compare()
    assert one.again == 1 and sorted(one.emitted) == list(range(max(one.emitted) + 1)), "epochs go on"
    assert {row["partition"] for row in status(target).collect()} == set(range(4)) and query.id == own, "the query is the same"
    if back:
        one.checkpoint, one.layout = str(tmp_path / "earlier"), None
        assert reshard(spark, target, one.checkpoint, width=one.width, epoch=epoch) == epoch
        one.emitted = {number: rows for number, rows in one.emitted.items() if number <= epoch}  # a new sink, with what it had then
        query = one.start()
        query.processAllAvailable()
        query.stop()
        one.compare()
        assert max(one.emitted) > epoch and query.id != own, "later epochs are told again, by another query"
    with pytest.raises(ValueError, match="resharded exists already"):
        reshard(spark, old, target, layout)
    with pytest.raises(ValueError, match="epoch 99 is not kept: .* has [0-9]+ to [0-9]+"):
        reshard(spark, old, str(tmp_path / "more"), layout, epoch=99)
    with pytest.raises(ValueError, match="nothing is not a checkpoint"):
        reshard(spark, str(tmp_path / "nothing"), str(tmp_path / "more"), layout)
    with pytest.raises(ValueError, match="the layout belongs to a different view"):
        reshard(spark, old, str(tmp_path / "more"), in_bands(8, 4).replace('"stay"', '"levels"'))


@pytest.mark.parametrize("resharded", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_a_service_has_the_rows_that_its_changes_add_up_to(
    resharded: bool, spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    """`format("livejoin")` behind a join, over an epoch that is run again, and over another layout. Bad rows would be refused, such as the
    insert of a row that is there."""
    one = Query(spark, tmp_path, "keyed pair with a hot key", "ordered", 3)
    one.layout = in_bands(8, 4)
    with livejoin.connect(server.url) as lj:
        pairs = lj.relation("pairs").create({"id": "int64", "nr": "int64"}, ["id", "nr"])

        def run(epochs: int) -> int:
            """The last epoch of which the service knows then."""
            writer = one.changes().selectExpr("_op", "`x.id` AS id", "`y.nr` AS nr").writeStream.format("livejoin")
            query = writer.options(url=server.url, relation="pairs", source="join").option("checkpointLocation", one.checkpoint).start()
            query.processAllAvailable()
            for _ in range(epochs):
                one.write(30)
                query.processAllAvailable()
            query.stop()
            assert Counter((row["id"], row["nr"]) for row in pairs.rows()) == one.churn.expected(one.sql)
            (source,) = lj.sources()
            return int(source["epoch"])

        last, done = run(2), tmp_path / "checkpoint" / "commits"
        for path in done.glob(f"*{last}*"):
            path.unlink()
        assert run(0 if resharded else 1) >= last and (done / str(last)).exists() and one.churn.expected(one.sql)
        if resharded:
            one.checkpoint, one.layout = str(tmp_path / "resharded"), in_bands(3, 8)
            assert reshard(spark, str(tmp_path / "checkpoint"), one.checkpoint, one.layout) == last
            assert run(1) > last


@pytest.mark.parametrize("kind", ["images", pytest.param("ordered", marks=pytest.mark.soak)])
def test_other_cells_are_refused_in_the_first_micro_batch(kind: Kind, spark: SparkSession, tmp_path: Path) -> None:
    """Also if its changes are of cells that have no state: a checkpoint that was begun with two partitions took those of four, and missed
    rows from then on."""
    one = Query(spark, tmp_path, "keyed pair with a hot key", kind, 3)

    def run(number: int, room: str) -> None:
        row = {"id": number, "room": room, "starts": 1, "ends": 2, "_op": "insert", "_seq": 1}
        write(tmp_path, "a", kind, number, [row])
        query = one.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    old = one.layout = one.layout_now()
    run(0, "A")
    one.layout = one.layout_now(4)
    with pytest.raises(StreamingQueryException, match="(?s)a different view or layout.*the checkpoint's plan.*the query's plan") as refused:
        run(1, "B")
    said = str(refused.value)
    assert all(json.dumps(json.loads(layout)) in said for layout in (old, one.layout)), "both layouts are named"
    one.layout = old
    run(2, "B")
    target = str(tmp_path / "resharded")
    reshard(spark, one.checkpoint, target, one.layout_now(4))
    one.checkpoint = target
    with pytest.raises(StreamingQueryException, match="belongs to a different view or layout"):
        run(3, "C")


FEW: Mapping[str, Kind] = {"groups": "images", "left join": "inserts"}
MORE: Mapping[str, Kind] = {**FEW, "triangle": "ordered"}
STRETCHES: Mapping[str, Kind] = {"gaps": "ordered", "coverage of groups": "images"}


@pytest.mark.parametrize(
    ("kinds", "epochs"),
    [(FEW, 2), pytest.param(MORE, 3, marks=pytest.mark.soak), pytest.param(STRETCHES, 3, marks=pytest.mark.soak)],
    ids=["few", "more", "stretches"],
)
def test_classes_of_views_beside_one_another(spark: SparkSession, tmp_path: Path, kinds: Mapping[str, Kind], epochs: int) -> None:
    """Append and Update modes are alike."""
    views = [Query(spark, tmp_path / name.replace(" ", "_"), name, kind, 5) for name, kind in kinds.items()]
    for one in views[::2]:
        one.mode = "update"
    queries = [one.start() for one in views]
    for _ in range(epochs):
        for one in views:
            one.write(30)
        for query in queries:
            query.processAllAvailable()
    for one, query in zip(views, queries, strict=True):
        query.stop()
        one.compare()


def test_streams_that_cannot_be_joined_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    stream = spark.readStream.schema("id long, s long, e long, _op string, _seq long").parquet(str(tmp_path / "a"))
    sql = "SELECT p.id AS i, q.id AS j FROM p JOIN q ON overlaps(p.t, q.t)"

    def tables(frame: DataFrame, key: Sequence[str] = ("id",)) -> dict[str, Table]:
        return dict.fromkeys("pq", Table(frame, key, {"t": ("s", "e")}))

    with pytest.raises(ValueError, match="_op without _seq: a micro-batch has no order"):
        live_join(sql, tables(stream.drop("_seq")), width=5)
    with pytest.raises(ValueError, match="joined in bands of time: give a width"):
        live_join(sql, tables(stream))
    with pytest.raises(ValueError, match="the stream p has no key"):
        live_join(sql, tables(stream, ()), width=5)
    with pytest.raises(ValueError, match="p is not a stream"):
        live_join(sql, tables(stream) | {"p": Table(spark.range(3).selectExpr("id", "id AS s", "id AS e"), ["id"])}, width=5)
    with pytest.raises(NotDistributable, match="no column of its key"):
        live_join("SELECT count(*) AS n FROM p", {"p": tables(stream)["p"]})
    with pytest.raises(ValueError, match="the view has a column _epoch"):
        live_join("SELECT p.id AS _epoch FROM p", {"p": tables(stream)["p"]})
    spark.conf.set(PROVIDER, "another")
    try:
        with pytest.raises(ValueError, match="joins of streams need RocksDB"):
            live_join(sql, tables(stream), width=5)
    finally:
        spark.conf.set(PROVIDER, ROCKSDB)


def test_a_layout_by_samples_divides_hot_keys_alone(spark: SparkSession) -> None:
    """And cells are about equally full, though every fifth row has an open end."""
    ends = "if(id % 25 < 5, NULL, id * 10 + 25) AS e"
    frame = spark.range(4000).selectExpr("id", "if(id % 5 < 3, 'hot', string(id)) AS room", "id * 10 AS s", ends)
    tables = {name: Table(frame, ["id"], {"t": ("s", "e")}) for name in "pq"}
    sql = "SELECT p.id AS i, q.id AS j FROM p JOIN q ON p.room = q.room AND overlaps(p.t, q.t)"
    layout = stream_layout(sql, tables, 16)
    hot = spark.sql("SELECT xxhash64('hot')").first()
    assert hot is not None and '"bands"' in layout and f"[{hot[0]}]" in layout
    rows, found = frame.selectExpr("xxhash64(room)", "s", f"coalesce(e - 1, {2**62})").toArrow(), Layout.of_json(layout)
    routed = found.route(found.roles[0], np.arange(len(rows)), [CoordinateValues(*(one.to_numpy() for one in rows.columns))])
    sizes = np.bincount(routed.cells, minlength=16)
    assert len(sizes) == 16 and sizes.max() <= 1.5 * sizes.mean(), sizes


def test_labels_are_hashed_as_spark_does(spark: SparkSession) -> None:
    values = [0, 1, 2, 42, 99999, 2**31 - 1]
    found = spark.createDataFrame([(one,) for one in values], "v int").selectExpr("hash(v)").collect()
    assert [row[0] for row in found] == [_spark_hash(one) for one in values]


def test_the_tutorial(spark: SparkSession, server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorials/flights-spark.md is true, in this Spark."""
    monkeypatch.chdir(tmp_path)
    assert Reader(server, tmp_path).read(ROOT / "docs" / "tutorials" / "flights-spark.md") == 7
