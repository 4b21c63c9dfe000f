"""A null point matches nothing, unlike a null end of an interval; a duration that does not fit into 64 bits is null, and a note says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.end_to_end import talk
from tests.server_process import ServerProcess

INT: dict[str, Any] = {"type": "int64", "nullable": True}
SPANS = {"columns": [{"name": "id", "type": "int64"}, {"name": "s", **INT}, {"name": "e", **INT}], "key": ["id"],
         "intervals": {"span": {"start": "s", "end": "e", "bounds": "[]"}}}  # fmt: skip
EVENTS = {"columns": [{"name": "id", "type": "int64"}, {"name": "at", **INT}, {"name": "again", **INT}], "key": ["id"],
          "intervals": {"moment": {"at": "at"}, "later": {"start": "again", "end": "again", "bounds": "[]"}}}  # fmt: skip
ROWS = [
    *({"relation": "spans", "row": {"id": id_, "s": s, "e": e}} for id_, s, e in ((1, None, None), (2, 0, 10), (3, None, 5), (4, 6, None))),
    *({"relation": "events", "row": {"id": id_, "at": at, "again": None}} for id_, at in ((1, 5), (2, None), (3, 8), (4, None))),
]  # fmt: skip
ON = "overlaps(s.span, v.moment)"


@pytest.fixture(scope="module")
def client(shared_server: ServerProcess) -> Iterator[httpx.Client]:
    client = shared_server.client()
    for name, definition in (("spans", SPANS), ("events", EVENTS)):
        talk.define(client, name, definition)
    talk.ok(talk.send(client, [{"op": "upsert", **row} for row in ROWS]))
    yield client
    talk.drop(client, relations=["spans", "events"])


def found(client: httpx.Client, definition: dict[str, Any] | str) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Return the rows of a view as tuples, and the notes of its plan."""
    with talk.passing_view(client, definition) as made:
        return sorted((tuple(row.values()) for row in talk.rows(client, "some")), key=orjson.dumps), made["plan"]["notes"]


PAIRS = [(1, 1), (1, 3), (2, 1), (2, 3), (3, 1), (4, 3)]


def test_a_null_point_has_no_partner(client: httpx.Client) -> None:
    """With every algorithm; a null end is unbounded, and the note about comparisons with nulls does not apply to points."""
    sql = f"SELECT s.id AS s, v.id AS v FROM spans s JOIN events v ON {ON}"
    emitted = talk.ok(client.post("/v1/explain", json={"sql": sql}))
    algorithms = [plan["algorithm"] for plan in (emitted["plan"], *emitted["alternatives"])]
    assert len(algorithms) > 2
    for algorithm in algorithms:
        rows, notes = found(client, {"sql": sql, "algorithm": algorithm})
        assert rows == PAIRS and not any("null" in note for note in notes), algorithm


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT s.id AS s, v.id AS v FROM spans s JOIN events v ON s.s <= v.at AND v.at <= s.e", [(2, 1), (2, 3)]),
        (f"SELECT v.id AS v, s.id AS s FROM events v LEFT JOIN spans s ON {ON} AND s.id = 2", [(1, 2), (2, None), (3, 2), (4, None)]),
        (f"SELECT v.id AS v FROM events v WHERE NOT EXISTS (SELECT 1 FROM spans s WHERE {ON})", [(2,), (4,)]),
        (f"SELECT v.id AS v FROM events v WHERE EXISTS (SELECT 1 FROM spans s WHERE {ON})", [(1,), (3,)]),
        (f"SELECT s.id AS s, v.id AS v FROM spans s FULL JOIN events v ON {ON}", [*PAIRS, (None, 2), (None, 4)]),
        ("SELECT a.id AS a, b.id AS b FROM events a JOIN events b ON overlaps(a.moment, b.moment)", [(1, 1), (3, 3)]),
        ("SELECT a.id AS a, b.id AS b FROM events a JOIN events b ON overlaps(a.moment, b.moment) AND a.id < b.id", []),
        ("SELECT a.id AS a FROM events a JOIN spans b ON overlaps(a.later, b.span)", []),
        (f"SELECT COUNT(*) AS n FROM spans s JOIN events v ON {ON}", [(6,)]),
        (
            f"SELECT v.id AS v FROM events v SEMI JOIN spans t ON t.id = v.id WHERE NOT EXISTS (SELECT 1 FROM spans s WHERE {ON})",
            [(2,), (4,)],
        ),
        (
            f"SELECT v.id AS v, s.id AS s, t.id AS t FROM events v LEFT JOIN spans s ON {ON} LEFT JOIN spans t ON t.id = v.id",
            [(1, 1, 1), (1, 2, 1), (1, 3, 1), (2, None, 2), (3, 1, 3), (3, 2, 3), (3, 4, 3), (4, None, 4)],
        ),
    ],
)
def test_spellings_and_parts(client: httpx.Client, sql: str, rows: list[tuple[Any, ...]]) -> None:
    assert found(client, sql)[0] == sorted(rows, key=orjson.dumps)


def test_changes_and_windows(client: httpx.Client) -> None:
    """A point that becomes known is joined, one that becomes null is not joined any longer; no window contains a null point."""
    talk.view(client, "met", f"SELECT s.id AS s, v.id AS v FROM spans s JOIN events v ON {ON} WHERE s.id = 1")
    follower = talk.Follower(client, "met", ["s", "v"], snapshot=True)
    for at, met in ((7, {(1, 1), (1, 2), (1, 3)}), (None, {(1, 1), (1, 3)})):
        talk.ok(talk.send(client, [{"relation": "events", "op": "upsert", "row": {"id": 2, "at": at, "again": None}}]))
        talk.ok_poll(follower)
        assert set(follower.rows.values()) == met
    answer = client.get("/v1/views/met/rows", params={"overlaps": "-100,100"}, headers={"Accept": talk.JSON})
    assert sorted(row["v"] for row in talk.ok(answer)["rows"]) == [1, 3]
    talk.drop(client, ["met"])


def test_a_duration_beyond_64_bits_is_null(client: httpx.Client) -> None:
    low, high = -(2**63) + 1, 2**63 - 2
    wide = [{"relation": "spans", "op": "upsert", "row": {"id": id_, "s": s, "e": e}} for id_, s, e in ((10, low, high), (11, low, 0))]
    talk.ok(talk.send(client, wide))
    rows, notes = found(client, "SELECT s.id AS id, duration(s.span) AS d FROM spans s WHERE s.id IN (2, 3, 10, 11)")
    assert rows == sorted([(2, 10), (3, None), (10, None), (11, 2**63 - 1)], key=orjson.dumps)
    assert "d is null where a length does not fit into 64 bits" in notes
    rows, notes = found(client, "SELECT COUNT(*) AS n, COUNT(duration(s.span)) AS d FROM spans s WHERE s.id >= 10")
    assert rows == [(2, 1)]
    talk.ok(talk.send(client, [{"relation": "spans", "op": "delete", "key": {"id": id_}} for id_ in (10, 11)]))
