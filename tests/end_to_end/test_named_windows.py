"""Windows on any declared interval of an alias, and look-ups by any column that joins it, compared with filters over the whole view."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.end_to_end.talk import JSON, define, drop, ok, problem, view
from tests.relations import declared
from tests.server_process import ServerProcess

EDGES: dict[str, Any] = declared("id:int64, x:int64, y:int64?, starts:int64, ends:int64?, seen:int64?", stay="starts ends []", at="seen")
PATH = "SELECT a.id AS a, b.id AS b FROM edges a JOIN edges b ON a.y = b.x"
TRIANGLE = "SELECT a.id AS a, b.id AS b, c.id AS c FROM edges a JOIN edges b ON a.y = b.x JOIN edges c ON b.y = c.x AND c.y = a.x"
VIEWS: dict[str, dict[str, Any]] = {
    "path": {"sql": PATH},
    "tree": {"sql": PATH, "algorithm": "join-tree"},
    "loop": {"sql": PATH, "algorithm": "nested-loop"},
    "triangle": {"sql": TRIANGLE},
    "sweep": {"sql": TRIANGLE, "algorithm": "minesweeper"},
    "overlap": {"sql": "SELECT a.id AS a, b.id AS b FROM edges a JOIN edges b ON a.x = b.x AND a.y = b.y AND overlaps(a.stay, b.stay)"},
    "left": {"sql": "SELECT a.id AS a, b.id AS b FROM edges a LEFT JOIN edges b ON a.y = b.x AND a.x = b.y"},
}
Row = dict[str, Any]


@pytest.fixture(scope="module")
def edges(server: ServerProcess) -> Iterator[dict[int, Row]]:
    seed = 11
    print(f"seed {seed}")
    rng, client, edges = random.Random(seed), server.client(), dict[int, Row]()
    define(client, "edges", EDGES)
    for name, definition in VIEWS.items():
        view(client, name, definition, 300)
    for number in [*range(70), *rng.sample(range(70), 30)]:  # some are replaced
        start = rng.randrange(30)
        edges[number] = {
            "id": number, "x": rng.randrange(6), "y": rng.choice((None, rng.randrange(6), rng.randrange(6))), "starts": start,
            "ends": rng.choice((None, start + rng.randrange(9))), "seen": rng.choice((None, rng.randrange(20))),
        }  # fmt: skip
        ok(client.post("/v1/changes", json={"changes": [{"relation": "edges", "op": "upsert", "row": edges[number]}]}))
    yield edges
    drop(client, VIEWS, ["edges"])


def _get(client: httpx.Client, name: str, **parameters: Any) -> list[tuple[Any, ...]]:
    answer = client.get(f"/v1/views/{name}/rows", params=parameters)
    assert answer.status_code == 200, answer.text
    return sorted((tuple(json.loads(line).values()) for line in answer.text.splitlines()), key=str)


def _stays(row: Row, low: int, high: int) -> bool:
    return bool(row["starts"] <= high and (row["ends"] is None or row["ends"] >= low))


@pytest.mark.parametrize("name", VIEWS)
def test_against_the_whole_view(server: ServerProcess, edges: dict[int, Row], name: str) -> None:
    rng, client = random.Random(name), server.client()
    rows, aliases = _get(client, name), "abc"
    assert len(rows) > 10
    met = 0
    for _ in range(25):
        asked: dict[str, Any] = {}
        kept = rows
        position = rng.randrange(len(rows[0])) if name != "left" else 0
        if rng.random() < 0.7:
            low = rng.randrange(35)
            high = low + rng.randrange(6)
            asked[f"overlaps.{aliases[position]}.stay"] = f"{low},{high}"
            kept = [row for row in kept if _stays(edges[row[position]], low, high)]
        if rng.random() < 0.4 or not asked:
            other = rng.randrange(len(rows[0])) if name != "left" or asked else 0
            asked[f"overlaps.{aliases[other]}.at"] = "5,"
            kept = [row for row in kept if row[other] is None or (edges[row[other]]["seen"] or -1) >= 5]
        if rng.random() < 0.5:
            column, value = rng.choice("xy"), rng.randrange(6)
            asked[f"where.{aliases[position]}.{column}"] = value
            if name in ("path", "tree", "loop"):  # there an alias is joined by one column
                column = "yx"[position]
                asked = {key: one for key, one in asked.items() if not key.startswith("where")}
                asked[f"where.{aliases[position]}.{column}"] = value
            kept = [row for row in kept if edges[row[position]][column] == value]
        assert _get(client, name, **asked) == kept, asked
        answer = client.get(f"/v1/views/{name}/count", params=asked)
        assert ok(answer)["count"] == len(kept)
        met += len(kept) > 0
        page, found = ok(client.get(f"/v1/views/{name}/rows", params={**asked, "limit": 3}, headers={"Accept": JSON})), list[Row]()
        while True:
            found += page["rows"]
            if page["next"] is None:
                break
            more = {**asked, "limit": 3, "cursor": page["next"]}
            page = ok(client.get(f"/v1/views/{name}/rows", params=more, headers={"Accept": JSON}))
        assert sorted((tuple(row.values()) for row in found), key=str) == kept
    assert met > 5


@pytest.mark.parametrize(
    ("name", "parameters", "says"),
    [
        ("path", {"overlaps.z.stay": "1,2"}, "overlaps.z.stay: the view has no alias z, only a, b"),
        ("path", {"overlaps.a.nothing": "1,2"}, "edges has no interval nothing; it declares stay, at"),
        ("path", {"overlaps": "1,2"}, "the view does not join on intervals; write overlaps.<alias>.<interval>=lo,hi"),
        ("path", {"overlaps.a.stay": "2,1"}, "the window is empty"),
        ("triangle", {"where.a.starts": "1"}, "needs all of the key (id) or columns that join it (x, y), not starts"),
        ("left", {"overlaps.b.stay": "1,2"}, "rows without b cannot be found by it; name an interval of another alias too"),
    ],
)
def test_refusals(server: ServerProcess, edges: dict[int, Row], name: str, parameters: dict[str, str], says: str) -> None:
    assert says in problem(server.client().get(f"/v1/views/{name}/rows", params=parameters), 400, "bad-parameter")["detail"]
