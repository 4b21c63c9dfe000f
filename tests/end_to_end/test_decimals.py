"""Price lists over HTTP: decimals as values, keys, join keys and endpoints; in filters, windows, look-ups, changes; after a restart."""

from __future__ import annotations

import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest

import livejoin
from service.cli import main
from tests.end_to_end import talk
from tests.server_process import ServerProcess

MONEY = {"type": "decimal", "precision": 12, "scale": 2}
BANDS = {
    "columns": [{"name": "rate", **MONEY}, {"name": "low", **MONEY, "nullable": True}, {"name": "high", **MONEY, "nullable": True}],
    "key": ["rate"],
    "intervals": {"band": {"start": "low", "end": "high"}},
}
OFFERS = {
    "columns": [{"name": "id", "type": "int64"}, {"name": "price", **MONEY}, {"name": "rate", **MONEY, "precision": 9}],
    "key": ["id"],
    "intervals": {"price_at": {"at": "price"}},
}
IN_BAND = """SELECT o.id AS offer, o.price AS price, b.rate AS rate, intersection(b.band, o.price_at) AS common, duration(b.band) AS width
             FROM offers o JOIN bands b ON overlaps(b.band, o.price_at)"""


def offer(id_: int, price: Any, rate: Any = "0.10") -> dict[str, Any]:
    return {"relation": "offers", "op": "upsert", "row": {"id": id_, "price": price, "rate": rate}}


def band(rate: Any, low: Any, high: Any) -> dict[str, Any]:
    return {"relation": "bands", "op": "upsert", "row": {"rate": rate, "low": low, "high": high}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("decimals") / "data") as server:
        client = server.client()
        talk.define(client, "offers", OFFERS)
        talk.define(client, "bands", BANDS)
        some = [offer(1, "9.99"), offer(2, 10, 0.2), offer(3, "19.99", "0.20"), offer(4, "20.00", "0.30")]
        talk.ok(talk.send(client, [*some, band("0.10", None, "10.00"), band("0.20", "10.00", "20.00"), band(0.3, "20", None)]))
        talk.view(client, "in_band", IN_BAND)
        yield server


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> httpx.Client:
    return server.client()


def changes(client: httpx.Client, **parameters: Any) -> list[dict[str, Any]]:
    answer = client.get("/v1/views/in_band/changes", params=parameters)
    return [orjson.loads(line) for line in answer.content.splitlines()]


def found(client: httpx.Client, sql: str) -> list[int]:
    """The ids of the offers that a view selects."""
    with talk.passing_view(client, sql):
        return sorted(row["id"] for row in talk.rows(client, "some"))


def test_bands(client: httpx.Client) -> None:
    got = {row["offer"]: row for row in talk.rows(client, "in_band")}
    assert {offer: row["rate"] for offer, row in got.items()} == {1: "0.10", 2: "0.20", 3: "0.20", 4: "0.30"}
    assert got[3] == {
        "offer": 3, "price": "19.99", "rate": "0.20", "common_start": "19.99", "common_end": "20.00", "width": "10.00",
    }  # fmt: skip
    assert got[1]["width"] is None and got[4]["common_end"] == "20.01"


def test_arrow_has_decimals(client: httpx.Client) -> None:
    answer = client.get("/v1/views/in_band/rows", headers={"Accept": talk.ARROW})
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert table.schema.field("price").type == pa.decimal128(12, 2) and table.schema.field("width").type == pa.decimal128(19, 2)
    assert sorted(table["price"].to_pylist()) == [Decimal("9.99"), Decimal("10.00"), Decimal("19.99"), Decimal("20.00")]
    answer = client.get("/v1/relations/bands/rows", headers={"Accept": talk.ARROW})
    table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
    assert set(table["rate"].to_pylist()) == {Decimal("0.10"), Decimal("0.20"), Decimal("0.30")}


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("o.price >= 10", [2, 3, 4]), ("o.price > 10.00", [3, 4]), ("o.price = '19.99'", [3]), ("o.price IN (9.99, 20)", [1, 4]),
        ("o.price < 19.99::numeric(10, 2)", [1, 2]), ("o.price <> CAST('10' AS decimal)", [1, 3, 4]), ("o.price = -9.99", []),
        ("o.price BETWEEN 9.99 AND 1e1", [1, 2]),
    ],
)  # fmt: skip
def test_filters(client: httpx.Client, condition: str, ids: list[int]) -> None:
    assert found(client, f"SELECT o.id AS id FROM offers o WHERE {condition}") == ids


@pytest.mark.parametrize(
    ("join", "ids"),
    [
        ("o.rate = b.rate", [1, 2, 3, 4]), ("o.price < b.low", [1, 1, 2, 3]), ("abs(o.price - b.low) <= 0.01", [1, 2, 3, 4]),
    ],
)  # fmt: skip
def test_joins(client: httpx.Client, join: str, ids: list[int]) -> None:
    """Columns of two precisions with the same scale."""
    assert found(client, f"SELECT o.id AS id FROM offers o JOIN bands b ON {join}") == ids


def test_what_cannot_be_compared_is_refused(client: httpx.Client) -> None:
    talk.define(client, "thirds", {"columns": [{"name": "rate", "type": "decimal", "precision": 9, "scale": 3}], "key": ["rate"]})
    for sql, words in (
        ("SELECT o.id FROM offers o JOIN thirds t ON o.id = o.id AND o.rate <> t.rate", "cast one side"),
        ("SELECT o.id FROM offers o WHERE o.price = 'cheap'", "expected a decimal"),
    ):
        answer = client.put("/v1/views/refused", json={"sql": sql})
        assert answer.status_code == 422 and words in answer.json()["detail"], answer.text
    talk.drop(client, relations=["thirds"])


def test_windows_and_look_ups(client: httpx.Client) -> None:
    assert [row["offer"] for row in talk.rows(client, "in_band", overlaps="15,19.99")] == [3]
    assert [row["offer"] for row in talk.rows(client, "in_band", **{"where.b.rate": "0.3"})] == [4]
    assert talk.rows(client, "in_band", **{"where.b.rate": "0.30", "overlaps": ",19.99"}) == []
    answer = client.get("/v1/views/in_band/rows", params={"where.b.rate": "0.301"})
    assert "finer than its scale" in talk.problem(answer, 400, "bad-parameter")["detail"]


def test_changes(client: httpx.Client) -> None:
    token = changes(client, limit=1, wait=0)[-1]["token"]
    talk.ok(talk.send(client, [offer(1, "12.00"), offer(4, "20.0")]))
    records = changes(client, since=token, limit=1, wait=5)
    keys = [(record["op"], record["key"]) for record in records[:-1]]
    before, after = ({"o": {"id": 1}, "b": {"rate": rate}} for rate in ("0.10", "0.20"))
    assert keys == [("delete", before), ("insert", after)]
    assert records[1]["row"]["price"] == "12.00"
    talk.ok(talk.send(client, [offer(1, "9.99")]))


def test_union(client: httpx.Client) -> None:
    sql = "SELECT o.rate AS rate FROM offers o UNION SELECT b.rate AS rate FROM bands b"
    answer = client.put("/v1/views/rates", json={"sql": sql})
    assert "decimal(9,2) and decimal(12,2)" in talk.problem(answer, 422, "unsupported-query")["detail"]
    talk.view(client, "rates", "SELECT a.rate AS rate FROM bands a EXCEPT SELECT b.rate AS rate FROM bands b WHERE b.rate = 0.1")
    assert sorted(row["rate"] for row in talk.rows(client, "rates")) == ["0.20", "0.30"]
    assert talk.rows(client, "rates", **{"where.row.rate": "0.2"}) == [{"rate": "0.20"}]
    talk.drop(client, ["rates"])


def test_the_client_and_the_commands(server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with livejoin.connect(server.url) as connected:
        connected.relation("offers").upsert([{"id": 9, "price": Decimal("123.45"), "rate": Decimal("0.10")}])
        assert connected.relation("offers").delete([{"id": 9}])
    file = tmp_path / "prices.parquet"
    table = pa.table({"id": [1, 2], "price": pa.array([Decimal("0.07"), Decimal("1.10")], pa.decimal128(30, 2))})
    file.write_bytes(talk.encode_table(table, talk.PARQUET))
    assert main(["load", "prices", str(file), "--key", "id", "--url", server.url]) == 0
    client = server.client()
    column = talk.ok(client.get("/v1/relations/prices"))["columns"][1]
    assert column == {"name": "price", "type": "decimal", "nullable": True, "precision": 18, "scale": 2}
    kept = talk.ok(client.get("/v1/relations/prices/rows", headers={"Accept": talk.JSON}))["rows"]
    assert kept == [{"id": 1, "price": "0.07"}, {"id": 2, "price": "1.10"}]
    talk.drop(client, relations=["prices"])


def test_debezium(client: httpx.Client) -> None:
    """A Decimal of Kafka Connect consists of the bytes of its unscaled value."""
    payload = {"op": "c", "before": None, "after": {"id": 7, "price": "MDg=", "rate": "0.10"}}  # 12344
    for scale, status in (("3", 422), ("2", 200)):
        field = {"field": "price", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": scale}}
        schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": [field]}]}
        body = orjson.dumps({"schema": schema, "payload": payload})
        answer = client.post("/v1/relations/offers/changes", content=body, headers={"Content-Type": talk.DEBEZIUM})
        assert answer.status_code == status, answer.text
    kept = talk.ok(client.get("/v1/relations/offers/rows", headers={"Accept": talk.JSON}))["rows"]
    assert next(row for row in kept if row["id"] == 7)["price"] == "123.44"
    talk.ok(talk.send(client, [{"relation": "offers", "op": "delete", "key": {"id": 7}}]))


def test_after_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "bands", BANDS)
        pairs = "SELECT a.rate AS a, b.rate AS b FROM bands a JOIN bands b ON overlaps(a.band, b.band) AND a.rate < b.rate"
        talk.view(client, "wide", pairs)
        talk.view(client, "other", "SELECT a.rate AS rate FROM bands a EXCEPT SELECT b.rate AS rate FROM bands b WHERE b.low > 0")
        talk.ok(talk.send(client, [band("0.10", "-5", "99.99"), band("0.20", None, None)]))
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.ok(talk.send(client, [band("0.1", "-5.01", "99.99")]))
        kept = talk.ok(client.get("/v1/relations/bands/rows", headers={"Accept": talk.JSON}))["rows"]
        assert sorted(kept, key=lambda row: row["rate"]) == [
            {"rate": "0.10", "low": "-5.01", "high": "99.99"}, {"rate": "0.20", "low": None, "high": None},
        ]  # fmt: skip
        assert talk.ok(client.put("/v1/relations/bands", json=BANDS))
        assert talk.rows(client, "wide") == [{"a": "0.10", "b": "0.20"}]
    assert main(["check", str(tmp_path / "data")]) == 0
    emitted = capsys.readouterr().out
    assert all(f"view {name}" in " ".join(emitted.split()) for name in ("wide", "other"))
