"""Views: registered, waited for, read as rows and as Arrow."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa
import pytest

import livejoin
from livejoin.arrow import ARROW, Decoder, stream_of
from tests.client.hotel import COLUMNS, STAY, Hotel, pairs, row
from tests.server_process import ServerProcess


def test_rows(hotel: Hotel) -> None:
    hotel.bookings.upsert([row(1), row(2, start=20, end=None), row(3, "B")])
    version = hotel.jobs.upsert([row(7, end=30), row(8, "B")]).version
    clashes = hotel.clashes
    assert pairs(clashes.rows()) == {(1, 7), (2, 7), (3, 8)} and clashes.count() == 3
    assert pairs(clashes.rows(where={"b.id": 1})) == {(1, 7)} == pairs(clashes.rows(overlaps=(None, 5), where={"b.room": "A"}))
    assert pairs(clashes.rows(overlaps=(25, None))) == {(2, 7)} and clashes.count(overlaps=(25, 26)) == 1
    with clashes.rows(limit=2) as rows:
        assert (rows.version, rows.empty) == (version, False)
        first = pairs(rows)
        assert rows.cursor is not None
    hotel.bookings.truncate()
    with clashes.rows(cursor=rows.cursor) as rest:
        assert rest.version == version and first | pairs(rest) == {(1, 7), (2, 7), (3, 8)} and rest.cursor is None
    assert clashes.count(version=version) == 3 and clashes.count() == 0
    assert list(clashes.rows()) == []
    with clashes.rows(limit=0) as none:
        assert none.empty


def test_rows_that_meet_a_condition(hotel: Hotel) -> None:
    """Of a view and of a relation, with some columns, in parts, and as they change."""
    hotel.bookings.upsert([row(1), row(2, start=20, end=None), row(3, "B")])
    hotel.jobs.upsert([row(7, end=30), row(8, "B")])
    clashes, odd = hotel.clashes, "booking % 2 = 1"
    assert pairs(clashes.rows(where=odd)) == {(1, 7), (3, 8)} and clashes.count(where=odd) == 2
    assert clashes.to_arrow(where=odd, columns=["job"]).to_pylist() == [{"job": 7}, {"job": 8}]
    assert list(hotel.bookings.rows(where="e IS NULL", columns=["s", "id"])) == [{"s": 20, "id": 2}]
    first = clashes.begin_reading(name="both", where=odd, columns=["job"])
    other = hotel.bookings.begin_reading(name="both", where="s < 5", overlaps=(0, None))
    assert first["id"] == other["id"] and other["token"] is None
    found = [clashes.to_arrow(cursor=cursor) for cursor in first["cursors"]]
    assert sorted(pa.concat_tables(found)["job"].to_pylist()) == [7, 8]
    told = [one for cursor in first["cursors"] for batch in clashes.part_as_changes(cursor) for one in batch.to_pylist()]
    assert sorted((one["b.id"], one["job"]) for one in told) == [(1, 7), (3, 8)]
    assert set(told[0]) == {"_op", "_version", "b.id", "m.id", "job"}
    assert sorted(one["id"] for cursor in other["cursors"] for one in hotel.bookings.rows(cursor=cursor)) == [1, 3]
    hotel.bookings.upsert([row(4), row(5)])
    until = clashes.changes_end(first["token"])["token"]
    between = clashes.changes_between(first["token"], until, where=odd, columns=["job"]).to_table()
    assert between.select(["b.id", "job"]).to_pylist() == [{"b.id": 5, "job": 7}]
    with clashes.changes(snapshot=True, wait=0, where=odd, columns=["job"]) as changes:
        lines = b"".join(changes.lines()).splitlines()
    assert len(lines) == 4 and b'"row":{"job":' in lines[0]
    followed = [change.key["b"]["id"] for version in clashes.follow(snapshot=True, wait=0, where=odd) for change in version.changes]
    assert sorted(followed) == [1, 3, 5]
    with pytest.raises(livejoin.Problem, match="no column room"):
        clashes.count(where="room = 'A'")


@pytest.mark.parametrize("window", ["2026-03-01", (1,), (1, 2, 3)])
def test_a_window_is_a_pair(lj: livejoin.Client, window: Any) -> None:
    with pytest.raises(TypeError, match=r"a window must be a pair \(low, high\)"):
        lj.view("clashes").rows(overlaps=window)


def test_groups_are_looked_up_by_their_values(hotel: Hotel) -> None:
    """As Python has them: nothing, the empty text, NaN."""
    columns = {"id": "int64", "note": {"type": "string", "nullable": True}, "weight": {"type": "float64", "nullable": True}}
    values = [(None, None), ("", float("nan")), ('"', float("inf")), ("a", -0.0)]
    kept = hotel.lj.relation("kept").create(columns, "id")
    kept.upsert([{"id": at, "note": note, "weight": weight} for at, (note, weight) in enumerate(values)])
    noted = hotel.lj.view("noted", "SELECT note AS note, weight AS weight, MAX(id) AS i FROM kept GROUP BY note, weight")
    for at, (note, weight) in enumerate(values):
        found = list(noted.rows(where={"group.note": note, "group.weight": weight}))
        assert [row["i"] for row in found] == [at]


def test_an_answer_is_read_once(hotel: Hotel) -> None:
    hotel.bookings.upsert([row(1)])
    hotel.jobs.upsert([row(7)])
    rows, batches = hotel.clashes.rows(), hotel.clashes.arrow()
    assert pairs(rows) == {(1, 7)} and batches.to_table().num_rows == 1
    for again in (lambda: list(rows), rows.__enter__, batches.to_table):
        with pytest.raises(ValueError, match="read only once: call the method that returned it again"):
            again()
    with hotel.clashes.rows() as rows:
        assert len(list(rows)) == 1
        with pytest.raises(ValueError, match="only once"):
            list(rows.lines())
    nowhere = hotel.lj.view("nowhere").rows()
    for _ in range(2):
        with pytest.raises(livejoin.NotFound):
            list(nowhere)


def test_changes_are_read_in_a_with(hotel: Hotel) -> None:
    changes = hotel.clashes.changes(wait=0)
    for use in (lambda: list(changes.lines()), lambda: changes.more):
        with pytest.raises(ValueError, match=r"use `with view.changes\(...\) as changes`"):
            use()
    changes.close()
    with changes:
        assert b'"progress"' in b"".join(changes.lines())


def test_registering(hotel: Hotel) -> None:
    lj, name = hotel.lj, hotel.clashes.name
    assert lj.view(name, hotel.sql).get()["state"] == "live"
    assert name in {view["name"] for view in lj.views()}
    other = lj.view(f"{name}_json", definition={"from": {"b": hotel.bookings.name}, "select": ["b.id"]}, changes=False, guarantee="strict")
    with pytest.raises(livejoin.NotFollowed):
        next(other.follow())
    assert lj.explain(hotel.sql)["plan"]["algorithm"] == "interval-tree"
    other.drop()
    with pytest.raises(livejoin.NotFound):
        other.get()
    with pytest.raises(TypeError):
        lj.view("v", "SELECT 1", definition={})


def test_a_large_view_is_waited_for(server: ServerProcess) -> None:
    """Built in more than the second after which the service answers `202`."""
    emitted: list[float] = []
    with livejoin.connect(server.url) as lj:
        hotel = Hotel(lj)
        number = pa.array(range(400_000))
        table = pa.table({"id": number, "room": pa.repeat("A", len(number)), "s": number, "e": pa.array(range(1, 400_001))})
        hotel.bookings.upsert(table)
        hotel.jobs.upsert(table)
        view = lj.view("again", hotel.sql + " WHERE b.id >= 0", wait=False)
        view.wait_until_live(emitted.append)
        assert view.count() == 400_000
        assert lj.view("more", hotel.sql + " WHERE m.id >= 0").get()["state"] == "live"


def test_arrow(hotel: Hotel) -> None:
    hotel.bookings.upsert([row(1), row(2)])
    hotel.jobs.upsert([row(7)])
    table = hotel.clashes.to_arrow()
    assert table.schema.names == ["booking", "job"] and set(table.schema.types) == {pa.int64()}
    assert pairs(table.to_pylist()) == {(1, 7), (2, 7)}
    assert pairs(hotel.clashes.to_arrow(where={"b.id": 2}).to_pylist()) == {(2, 7)}
    with hotel.clashes.arrow(limit=1) as batches:
        assert sum(batch.num_rows for batch in batches) == 1 and batches.cursor is not None
    hotel.bookings.truncate()
    empty = hotel.clashes.to_arrow()
    assert empty.num_rows == 0 and empty.schema == table.schema


def test_a_million_rows_pass_through_little_memory(server: ServerProcess) -> None:
    with livejoin.connect(server.url) as lj:
        hotel = Hotel(lj)
        hotel.bookings.upsert([row(number) for number in range(1000)])
        hotel.jobs.upsert([row(number) for number in range(1000)])
        count, largest, before = 0, 0, pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            for batch in hotel.clashes.arrow():
                count += batch.num_rows
                largest = max(largest, pa.total_allocated_bytes() - before)
            _, python = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            count += sum(1 for _ in hotel.clashes.rows(limit=100_000))
            _, python_rows = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert count == 1_100_000
    assert largest + python < 8 << 20 and python_rows < 8 << 20  # of 16 MB; a batch has 1 MB


def test_a_batch_is_handed_out_before_the_next_has_come() -> None:
    """By a server that sends the second only when the first was taken."""
    batches = [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [3]})]
    whole = stream_of(batches)
    cut = len(stream_of(batches[:1])) - 8  # its end of stream
    taken = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", ARROW)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole[:cut])
            assert taken.wait(30)
            self.wfile.write(whole[cut:])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        with livejoin.connect(f"http://127.0.0.1:{server.server_port}") as lj:
            numbers = []
            for batch in lj.view("v").arrow():
                numbers += batch["a"].to_pylist()
                taken.set()
        server.shutdown()
    assert numbers == [1, 2, 3]


@pytest.mark.parametrize("size", [1, 7, 64, 10**6])
def test_arrow_streams_are_cut_anywhere(size: int) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.utf8()), ("c", pa.timestamp("us", "UTC")), ("d", pa.bool_())])
    batches = [
        pa.record_batch([list(range(n)), [f"text {i}" if i % 3 else None for i in range(n)], list(range(n)), [None] * n], schema)
        for n in (5, 0, 1000)
    ]
    data = stream_of(batches)
    decoder = Decoder()
    found = [batch for start in range(0, len(data), size) for batch in decoder.add(data[start : start + size])]
    decoder.end()
    assert decoder.schema == schema and found == batches
    short = Decoder()
    list(short.add(data[:-9]))
    with pytest.raises(livejoin.LivejoinError, match="middle"):
        short.end()
    with pytest.raises(livejoin.LivejoinError, match="not an Arrow stream"):
        list(Decoder().add(b"<html>not arrow"))


def test_the_same_with_asyncio(shared_server: ServerProcess) -> None:
    async def run() -> None:
        async with livejoin.connect_async(shared_server.url) as lj:
            bookings = await lj.relation("async_b").create(COLUMNS, "id", STAY)
            jobs = await lj.relation("async_m").create(COLUMNS, "id", STAY)
            sql = "SELECT b.id AS booking, m.id AS job FROM async_b b JOIN async_m m ON b.room = m.room AND overlaps(b.stay, m.stay)"
            clashes = await lj.view("async_clashes", sql)
            await asyncio.gather(bookings.upsert([row(1), row(2)]), jobs.insert([row(7)]))
            assert pairs([one async for one in clashes.rows()]) == {(1, 7), (2, 7)}
            async with clashes.rows(limit=1) as rows:
                assert not rows.empty and len([one async for one in rows]) == 1
            assert (await clashes.to_arrow()).num_rows == await clashes.count() == 2
            assert sum([batch.num_rows async for batch in clashes.arrow(where={"b.id": 2})]) == 1
            async with clashes.follow() as versions:
                async with lj.batch("async", 1) as batch:
                    batch.delete("async_b", [{"id": 1}])
                    batch.upsert("async_b", [row(3)])
                version = await anext(versions)
            assert [(change.op, change.row["booking"]) for change in version.changes] == [("delete", 1), ("insert", 3)]
            assert batch.receipt is not None and batch.receipt.version == version.version
            found = [version.size async for version in clashes.follow(snapshot=True, wait=0)]
            assert found == [2]
            with pytest.raises(livejoin.NotFound):
                await (await lj.view("nowhere")).get()

    asyncio.run(run())


def test_parts_of_a_version_and_the_changes_after_it(hotel: Hotel) -> None:
    hotel.bookings.upsert([row(1), row(2)])
    hotel.jobs.upsert([row(7)])
    clashes = hotel.clashes
    reading = clashes.begin_reading(2)
    hotel.bookings.delete([{"id": 1}])
    tables = [clashes.to_arrow(cursor=cursor) for cursor in reading["cursors"]]
    assert pairs(line for table in tables for line in table.to_pylist()) == {(1, 7), (2, 7)}
    keys = [line["b.id"] for cursor in reading["cursors"] for line in clashes.part_as_changes(cursor).to_table().to_pylist()]
    assert sorted(keys) == [1, 2]
    clashes.end_reading(reading["id"])
    with pytest.raises(livejoin.SnapshotExpired):
        clashes.to_arrow(cursor=reading["cursors"][0])
    end = clashes.changes_end(reading["token"], rows=10)
    assert end["rows"] == 1
    (change,) = clashes.changes_between(reading["token"], end["token"]).to_table().to_pylist()
    assert change == {"_op": "delete", "_version": end["version"], "b.id": 1, "m.id": 7, "booking": 1, "job": 7}
