"""What the pages are shown with: views of every kind of picture, made of rows that anybody can follow."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import httpx

from service.demo.history import RELATIONS, VIEWS, history
from tests.end_to_end import talk
from tests.relations import declared

PRESIDENTS, DELEGATION = "presidents_with_vices", "delegation"
LAND = {
    "columns": [{"name": name, "type": "float64"} for name in ("x1", "x2", "y1", "y2")],
    "key": ["id"],
    "intervals": {"across": {"start": "x1", "end": "x2"}, "up": {"start": "y1", "end": "y2"}},
}
LAND["columns"].insert(0, {"name": "id", "type": "int64"})
EDGES = {"columns": [{"name": "id", "type": "int64"}, {"name": "a", "type": "int64"}, {"name": "b", "type": "int64"}], "key": ["id"]}
STAYS = declared("id:int64, room:string, guest:string, starts:timestamp, ends:timestamp?", stay="starts ends")
TRIANGLES = "SELECT r.id AS r, s.id AS s, t.id AS t FROM edges r JOIN edges s ON r.b = s.a JOIN edges t ON s.b = t.a AND t.b = r.a"
CLASHES = (
    "SELECT a.room AS room, a.guest AS guest, b.guest AS other, a.id AS a_id, b.id AS b_id FROM stays a JOIN stays b "
    "ON a.room = b.room AND a.id < b.id AND overlaps(a.stay, b.stay)"
)


def fill(client: httpx.Client) -> None:
    """The history of the demo, boxes, a graph, and stays in rooms with a view of those that clash."""
    for name, definition in RELATIONS.items():
        talk.define(client, name, definition)
    for name in (PRESIDENTS, DELEGATION):
        talk.view(client, name, {"sql": VIEWS[name]["sql"]})
    changes = [change.to_rest() for change in history()]
    talk.ok(client.post("/v1/changes", json={"changes": changes, "source": "history", "epoch": 1}))
    talk.define(client, "fields", LAND)
    talk.define(client, "floods", LAND)
    meet = [{"overlaps": ["f.across", "w.across"]}, {"overlaps": ["f.up", "w.up"]}]
    talk.view(client, "flooded", {"from": {"f": "fields", "w": "floods"}, "join": meet})
    talk.ok(talk.send(client, [upsert("fields", box(n, 7 * (n % 6), 6 * (n // 6), 6, 5)) for n in range(36)]))
    talk.ok(talk.send(client, [upsert("floods", box(n, 9 * n, 6.5 * n, 11, 8)) for n in range(4)]))
    talk.define(client, "edges", EDGES)
    talk.view(client, "triangles", {"sql": TRIANGLES})
    talk.ok(talk.send(client, [upsert("edges", {"id": 10 * a + b, "a": a, "b": b}) for a in range(5) for b in range(5) if a != b]))
    talk.define(client, "stays", STAYS)
    talk.view(client, "clashes", {"sql": CLASHES})
    talk.ok(talk.send(client, [upsert("stays", stay(n)) for n in range(60)]))


def upsert(relation: str, row: dict[str, Any]) -> dict[str, Any]:
    return {"relation": relation, "op": "upsert", "row": row}


def box(id_: int, x: float, y: float, wide: float, high: float) -> dict[str, Any]:
    return {"id": id_, "x1": x, "x2": x + wide, "y1": y, "y2": y + high}


def stay(id_: int, days: int = 3) -> dict[str, Any]:
    """Guest after guest in six rooms, each a day too long."""
    arrival = date(2026, 3, 1) + timedelta(days=2 * (id_ // 6))
    return {
        "id": id_,
        "room": f"room {id_ % 6 + 1}",
        "guest": f"guest {id_}",
        "starts": f"{arrival}T14:00:00Z",
        "ends": f"{arrival + timedelta(days=days)}T10:00:00Z",
    }
