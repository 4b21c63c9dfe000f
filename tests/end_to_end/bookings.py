"""The relations and the view of the examples in docs/reference/rest.md, new for each test."""
from __future__ import annotations

from typing import Any

import httpx

from tests.end_to_end import talk
from tests.relations import bookings, declared

BOOKINGS = bookings("status:string?")
MAINTENANCE = declared("id:int64, room:string, begins:timestamp, finishes:timestamp", slot="begins finishes")
EVERYTHING = declared("k:int64, i:int64?, x:float64?, at:timestamp?, day:date?, text:string?, yes:bool?", "k")


class Case:
    """Names for one test: relations `<prefix>_b`, `<prefix>_m`, view `<prefix>_v`."""

    def __init__(self, client: httpx.Client, number: int) -> None:
        self.client = client
        self.b, self.m, self.v = f"b{number}", f"m{number}", f"v{number}"

    def define(self) -> Case:
        talk.define(self.client, self.b, BOOKINGS)
        talk.define(self.client, self.m, MAINTENANCE)
        return self

    @property
    def sql(self) -> str:
        return (
            f"SELECT b.id AS booking, m.id AS job, intersection(b.stay, m.slot) AS clash FROM {self.b} b JOIN {self.m} m"
            " ON b.room = m.room AND overlaps(b.stay, m.slot) WHERE b.status = 'confirmed'"
        )

    @property
    def json(self) -> dict[str, Any]:
        return {
            "from": {"b": self.b, "m": self.m},
            "join": [{"equal": ["b.room", "m.room"]}, {"overlaps": ["b.stay", "m.slot"]}],
            "where": [{"column": "b.status", "op": "=", "value": "confirmed"}],
            "select": ["b.id as booking", "m.id as job", {"intersection": ["b.stay", "m.slot"], "as": "clash"}],
        }

    def live(self) -> Case:
        """Create the relations, the view, three bookings of room A and one of B, and two jobs: three clashes."""
        self.define()
        talk.view(self.client, self.v, self.sql)
        talk.ok(talk.send(self.client, [
            self.booking(1, "A", 1, 5), self.booking(2, "A", 4, 9), self.booking(3, "A", 20, None), self.booking(4, "B", 1, 30),
            self.job(7, "A", 4, 6), self.job(8, "A", 25, 26),
        ]))
        return self

    def booking(self, number: int, room: str, start: int, end: int | None, status: str = "confirmed", op: str = "upsert") -> dict[str, Any]:
        """A booking from one day of January to another."""
        row = {"id": number, "room": room, "starts": day(start), "ends": None if end is None else day(end), "status": status}
        return {"relation": self.b, "op": op, "row": row}

    def job(self, number: int, room: str, start: int, end: int) -> dict[str, Any]:
        return {"relation": self.m, "op": "upsert", "row": {"id": number, "room": room, "begins": day(start), "finishes": day(end)}}

    def delete(self, number: int) -> dict[str, Any]:
        return {"relation": self.b, "op": "delete", "key": {"id": number}}

    def rows(self, **parameters: Any) -> list[tuple[Any, ...]]:
        return sorted(talk.read(self.client, self.v, talk.JSONL, ["booking", "job"], **parameters))

    def version(self) -> int:
        return int(talk.ok(self.client.get("/v1/status"))["version"])


CLASHES = [(1, 7), (2, 7), (3, 8)]  # of `Case.live`


def day(number: int) -> str:
    return f"2026-01-{number:02d}T00:00:00Z"
