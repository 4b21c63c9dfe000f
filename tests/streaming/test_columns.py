"""A column that is renamed or dropped at the source, under a job and between two of its starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess
from tests.streaming.two_jobs import House, Job

ROOMS = declared("id:int64, name:string?, price:int64?")
METRIC = "livejoin_stream_gone_columns_total"


def room(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": f"Room {number}", **more}


def rooms(server: ServerProcess) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = server.client().get("/v1/relations/rooms/rows", headers={"Accept": "application/json"}).json()["rows"]
    return sorted(rows, key=lambda row: row["id"])


@pytest.fixture
def job(server: ServerProcess, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    talk.define(server.client(), "rooms", ROOMS)
    return Job(House(), "pms", server.url, tmp_path / "checkpoint", relation="rooms", strict_columns=getattr(request, "param", False))


def test_a_renamed_column_is_told_once(job: Job, server: ServerProcess, caplog: pytest.LogCaptureFixture) -> None:
    """Seen: it became null without a word."""
    said = "the records of topic t no longer have the column price, which was renamed or dropped at the source: price is null for such"
    with job.house.open():
        job.start()
        job.batch(room(1, price=10), {"id": 2, "name": None, "price": None})
        assert said not in caplog.text and job.metrics.registry.get_sample_value(METRIC, {"topic": "t"}) is None
        job.end()
        for number in (3, 4):  # the second time, nothing is new
            job.start()
            job.batch(room(number, cost=10), room(10 * number, cost=10))
            job.batch(room(100 * number, cost=10))
            assert job.runs
            job.end()
    assert caplog.text.count(said) == 1 and job.metrics.registry.get_sample_value(METRIC, {"topic": "t"}) == 1
    assert [row["price"] for row in rooms(server)] == [10] + [None] * 7


@pytest.mark.parametrize("job", [True], indirect=True)
def test_strict_columns(job: Job, server: ServerProcess, caplog: pytest.LogCaptureFixture) -> None:
    """After a start too, and until they are no longer strict."""
    with job.house.open():
        job.start()
        job.batch(room(1, price=10))
        job.batch(room(2, price=10), room(3, cost=10))
        assert not job.runs and "offset 1: price: the record lacks this column, which earlier records" in job.said[0]
        job.start()
        job.batch(room(4, cost=10))
        assert not job.runs and "offset 0: price: the record lacks this column" in job.said[1]
    assert [row["id"] for row in rooms(server)] == [1] and "such records are bad" in caplog.text
