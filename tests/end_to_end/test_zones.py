"""Opening hours in local time, over HTTP and by `livejoin load`: every format, the metric, a restart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import livejoin
from service.cli import main
from tests.end_to_end import talk
from tests.server_process import ServerProcess

ZONE = "Europe/Berlin"
HOURS = {
    "columns": [
        {"name": "id", "type": "int64"},
        {"name": "opens", "type": "timestamp", "nullable": True, "zone": ZONE},
        {"name": "closes", "type": "timestamp", "nullable": True, "zone": ZONE},
    ],
    "key": ["id"],
    "intervals": {"hours": {"start": "opens", "end": "closes"}},
}
PLAIN = HOURS | {"columns": [{name: value for name, value in column.items() if name != "zone"} for column in HOURS["columns"]]}  # type: ignore[attr-defined]
ROWS = "id,opens,closes\n1,2026-02-17 09:00:00,2026-02-17 14:00:00+00\n2,2026-10-25T02:30:00,infinity\n"
KEPT = [
    {"id": 1, "opens": "2026-02-17T08:00:00Z", "closes": "2026-02-17T14:00:00Z"},
    {"id": 2, "opens": "2026-10-25T00:30:00Z", "closes": None},
]


@pytest.fixture
def client(server: ServerProcess) -> Iterator[httpx.Client]:
    client = server.client()
    talk.define(client, "hours", HOURS)
    talk.define(client, "plain", PLAIN)
    yield client
    talk.drop(client, relations=["hours", "plain"])


def kept(client: httpx.Client, relation: str) -> list[dict[str, object]]:
    answer = client.get(f"/v1/relations/{relation}/rows", headers={"Accept": talk.JSON})
    return sorted(talk.ok(answer)["rows"], key=lambda row: row["id"])


def unclear(client: httpx.Client) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("livejoin_unclear_times_total")))


def test_definitions(client: httpx.Client) -> None:
    assert talk.ok(client.get("/v1/relations/hours"))["columns"] == [{"nullable": False, **column} for column in HOURS["columns"]]  # type: ignore[dict-item]
    assert "zone" not in client.get("/v1/relations/plain").text
    talk.problem(client.put("/v1/relations/hours", json=PLAIN), 409, "definition-differs")
    bad = {"columns": [{"name": "at", "type": "timestamp", "zone": "Europe/Atlantis"}], "key": ["at"]}
    assert "no time zone 'Europe/Atlantis'" in talk.problem(client.put("/v1/relations/bad", json=bad), 422, "bad-definition")["detail"]


def test_one_rule(client: httpx.Client) -> None:
    headers = {"Content-Type": "text/csv"}
    before = unclear(client)
    talk.ok(client.post("/v1/relations/hours/changes", content=ROWS.encode(), headers=headers))
    assert kept(client, "hours") == KEPT and unclear(client) == before + 1
    answer = client.post("/v1/relations/plain/changes", content=ROWS.encode(), headers=headers)
    problem = talk.problem(answer, 422, "bad-rows")
    assert problem["error_count"] == 2 and 'without an offset: write one, or give the column a "zone"' in problem["errors"][0]["reason"]
    naive = pa.table({"id": [1], "opens": pa.array([datetime(2026, 2, 17, 9)], pa.timestamp("us"))})
    body = talk.encode_table(naive, talk.PARQUET)
    answer = client.post("/v1/relations/plain/changes", content=body, headers={"Content-Type": talk.PARQUET})
    assert "without a time zone" in talk.problem(answer, 400, "malformed-body")["detail"]
    talk.ok(client.post("/v1/relations/hours/changes", content=body, headers={"Content-Type": talk.PARQUET}))
    assert kept(client, "hours")[0] == {"id": 1, "opens": "2026-02-17T08:00:00Z", "closes": None}
    talk.ok(talk.send(client, [{"relation": "hours", "op": "upsert", "row": {"id": 3, "opens": "2026-07-01T09:00"}}]))
    assert kept(client, "hours")[2]["opens"] == "2026-07-01T07:00:00Z"


def test_load(server: ServerProcess, client: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    csv, bad = tmp_path / "hours.csv", tmp_path / "bad.csv"
    csv.write_text(ROWS)
    bad.write_text(ROWS + "3,2026-02-17 25:00:00,\n")
    url = ["--url", server.url]
    assert main(["load", "plain", str(csv), *url]) == 1
    assert "2 rows were rejected and nothing was loaded" in capsys.readouterr().err
    for relation in ("hours", "plain"):
        assert main(["load", relation, str(csv), *url, "--zone", ZONE]) == 0
        assert kept(client, relation) == KEPT
        assert "local times that do not exist or are ambiguous: 1;" in capsys.readouterr().err
    assert main(["load", "plain", str(bad), *url, "--zone", ZONE]) == 1
    assert main(["load", "plain", str(bad), *url, "--zone", "UTC", "--on-error", "skip"]) == 1
    emitted = capsys.readouterr()
    assert "plain: 2 rows loaded" in emitted.out and emitted.err.count("bad.csv  4") == 2
    assert kept(client, "plain")[0]["opens"] == "2026-02-17T09:00:00Z"
    file = tmp_path / "naive.parquet"
    file.write_bytes(talk.encode_table(pa.table({"id": [1], "at": pa.array([datetime(2026, 2, 17, 9)])}), talk.PARQUET))
    assert main(["load", "naive", str(file), "--key", "id", *url]) == 1
    assert "times without a time zone" in capsys.readouterr().err
    assert main(["load", "naive", str(file), "--key", "id", "--zone", "Nowhere", *url]) == 2
    assert main(["load", "naive", str(file), "--key", "id", "--zone", ZONE, *url]) == 0
    assert kept(client, "naive") == [{"id": 1, "at": "2026-02-17T08:00:00Z"}]
    talk.drop(client, relations=["naive"])


def test_after_a_restart(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, livejoin.connect(server.url) as connected:
        connected.relation("hours").create(**HOURS)  # type: ignore[arg-type]
    with ServerProcess(tmp_path / "data") as server, livejoin.connect(server.url) as connected:
        connected.relation("hours").create(**HOURS)  # type: ignore[arg-type]
        connected.relation("hours").upsert([{"id": 1, "opens": datetime(2026, 2, 17, 9), "closes": None}])
        assert list(connected.relation("hours").rows()) == [{"id": 1, "opens": "2026-02-17T08:00:00Z", "closes": None}]
