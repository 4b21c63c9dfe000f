"""The relations of a kept folder: every type of column, with nulls and in keys, every form of interval; and rows for them."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]

START = datetime(2026, 1, 1, tzinfo=UTC)
ROOMS = ("A1", "A2", "B1", "Žižkov", "日本", 'quo"te', "with, comma", "")
NAMES = ("Ada", "Grace", "Edsger", "Søren", "", "line\nbreak", "tab\there", "🚲", None)


def _column(text: str) -> dict[str, Any]:
    """`name:type`, with a `?` behind for one that may be null."""
    name, kind = text.split(":")
    return {"name": name, "type": kind.rstrip("?"), "nullable": kind.endswith("?")}


def relation(columns: str, key: str, **intervals: tuple[str, ...]) -> dict[str, Any]:
    """Intervals as (start, end, bounds), or (column,) for a point."""
    made = {
        name: {"at": parts[0]} if len(parts) == 1 else {"start": parts[0], "end": parts[1], "bounds": parts[2]}
        for name, parts in intervals.items()
    }
    return {"columns": [_column(text.strip()) for text in columns.split(",")], "key": key.split(","), "intervals": made}


RELATIONS: dict[str, dict[str, Any]] = {
    "bookings": relation(
        "id:int64, room:string, guest:string?, floor:int64, vip:bool?, price:float64?, checkin:timestamp, checkout:timestamp?,"
        "startDate:date",
        "id", stay=("checkin", "checkout", "[)"), moment=("checkin",),
    ),
    "jobs": relation(
        "room:string, nr:int64, work:string?, begins:timestamp, finishes:timestamp?, since:timestamp?, cost:float64, level:int64?",
        "room,nr", slot=("begins", "finishes", "[)"), shut=("since", "finishes", "[]"), moment=("begins",),
    ),
    "rooms": relation("room:string, wing:string, Ceiling height:float64?, seats:int64, open:bool", "room"),
    "cleanings": relation("id:int64, room:string, from:timestamp, to:timestamp, cost:float64", "id", span=("from", "to", "[]")),
    "shifts": relation("room:string, nr:int64, s:int64, e:int64?, tag:int64?", "room,nr", span=("s", "e", "[)")),
    "marks": relation(
        "id:int64, a:int64, b:int64, x:float64, y:float64, p:date, q:date?, t:timestamp, u:timestamp", "id",
        int_half=("a", "b", "[)"), int_closed=("a", "b", "[]"), int_left=("a", "b", "(]"), int_open=("a", "b", "()"), int_point=("a",),
        float_half=("x", "y", "[)"), float_closed=("x", "y", "[]"), float_left=("x", "y", "(]"), float_open=("x", "y", "()"),
        date_half=("p", "q", "[)"), date_closed=("p", "q", "[]"), date_left=("p", "q", "(]"), date_open=("p", "q", "()"), date_point=("p",),
        time_half=("t", "u", "[)"), time_closed=("t", "u", "[]"), time_left=("t", "u", "(]"), time_open=("t", "u", "()"),
    ),
    "everything": relation(
        "flag:bool, day:date, at:timestamp, x:float64, text:string, n:int64,"
        "flag2:bool?, day2:date?, at2:timestamp?, x2:float64?, text2:string?, n2:int64?",
        "flag,day,at,x,text,n", moment=("at2",), days=("day", "day2", "[]"),
    ),
    "links": relation("src:int64, dst:int64, weight:float64?", "src,dst"),
    "ticks": relation("id:int64, s:int64, e:int64, tag:string?", "id", span=("s", "e", "[]")),
    "never_filled": relation("id:int64, day:date", "id", day_point=("day",)),
    "emptied": relation("name:string, value:float64?", "name"),
    "dropped": relation("id:int64, text:string", "id"),
    "again": relation("id:int64, value:float64?", "id"),
}  # fmt: skip

LATER: dict[str, dict[str, Any]] = {
    "late": relation("id:int64, room:string, s:int64, e:int64", "id", span=("s", "e", "()")),
    "again": relation("id:int64, value:int64?", "id"),
}
"""Registered when there is a snapshot already; `again` had another definition before."""


def timestamp(hours: float, micros: int = 0) -> str:
    """As the service writes it."""
    at = START + timedelta(hours=hours, microseconds=micros)
    return at.strftime("%Y-%m-%dT%H:%M:%S" + (".%fZ" if at.microsecond else "Z"))


def date(days: int) -> str:
    return (START + timedelta(days=days)).strftime("%Y-%m-%d")


class Rows:
    """Rows by relation and number, drawn at random: `Rows(seed).make("bookings", 7)`. The number decides the key, the rest may differ."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._makers: dict[str, Callable[[int], Row]] = {
            "bookings": self._booking, "jobs": self._job, "rooms": self._room, "cleanings": self._cleaning, "shifts": self._shift,
            "marks": self._mark, "everything": self._everything, "links": self._link, "ticks": self._tick, "late": self._late,
            "emptied": lambda i: {"name": f"name {i}", "value": self._maybe(i / 4)},
            "dropped": lambda i: {"id": i, "text": f"text {i} of a relation that is dropped"},
            "again": lambda i: {"id": i, "value": self._maybe(i * i)},
        }  # fmt: skip

    def make(self, relation: str, number: int) -> Row:
        return self._makers[relation](number)

    def _maybe(self, value: Any, nulls: float = 0.15) -> Any:
        return None if self.chance.random() < nulls else value

    def _booking(self, i: int) -> Row:
        chance = self.chance
        begin = chance.randrange(400)
        price = chance.choice((-0.0, 1e300, 5e-324, *(chance.randrange(400) / 8 for _ in range(5))))
        return {
            "id": i, "room": chance.choice(ROOMS), "guest": chance.choice(NAMES), "floor": chance.randrange(-2, 9),
            "vip": chance.choice((True, False, None)), "price": self._maybe(price),
            "checkin": timestamp(begin, chance.choice((0, 0, 1, 999_999))),
            "checkout": self._maybe(timestamp(begin + chance.randrange(1, 30)), 0.03), "startDate": date(chance.randrange(-30, 30)),
        }  # fmt: skip

    def _job(self, i: int) -> Row:
        chance = self.chance
        begin = chance.randrange(400)
        return {
            "room": ROOMS[i % len(ROOMS)], "nr": i - 10, "work": self._maybe(chance.choice(("boiler", "painting", "doors"))),
            "begins": timestamp(begin), "finishes": self._maybe(timestamp(begin + chance.randrange(1, 40)), 0.03),
            "since": self._maybe(timestamp(begin - chance.randrange(5)), 0.1), "cost": chance.randrange(4000) / 16,
            "level": self._maybe(chance.randrange(9)),
        }  # fmt: skip

    def _room(self, i: int) -> Row:
        height = self.chance.choice((2.5, 3.0, "NaN", "Infinity", "-Infinity", None))
        room = ROOMS[i] if i < len(ROOMS) else f"room {i}"
        seats = self.chance.randrange(6)
        return {"room": room, "wing": self.chance.choice("NESW"), "Ceiling height": height, "seats": seats, "open": seats % 2 == 0}

    def _cleaning(self, i: int) -> Row:
        begin = self.chance.randrange(400)
        end = begin + self.chance.randrange(20)
        cost = self.chance.randrange(99) / 2
        return {"id": i, "room": self.chance.choice(ROOMS), "from": timestamp(begin), "to": timestamp(end), "cost": cost}

    def _shift(self, i: int) -> Row:
        begin = self.chance.randrange(60)
        end = self._maybe(begin + self.chance.randrange(1, 12), 0.05)
        return {"room": ROOMS[i % 5], "nr": i, "s": begin, "e": end, "tag": self._maybe(self.chance.randrange(6))}

    def _mark(self, i: int) -> Row:
        chance = self.chance
        a, x, p, t = chance.randrange(-60, 60), chance.randrange(-200, 200) / 8, chance.randrange(-90, 90), chance.randrange(200)
        return {
            "id": i, "a": a, "b": a + chance.randrange(2, 25), "x": x, "y": x + chance.randrange(1, 60) / 8, "p": date(p),
            "q": self._maybe(date(p + chance.randrange(2, 12)), 0.03), "t": timestamp(t), "u": timestamp(t, chance.randrange(2, 10**10)),
        }  # fmt: skip

    def _everything(self, i: int) -> Row:
        chance = self.chance
        x2 = chance.choice((0.1, -1.5, "NaN", "Infinity", "-Infinity"))
        return {
            "flag": i % 2 == 0, "day": date(i % 3), "at": timestamp(i % 4, i), "x": i / 10, "text": f"t{i % 5} ü", "n": i - 2**62,
            "flag2": self._maybe(chance.random() < 0.5), "day2": self._maybe(date(3 + chance.randrange(40))),
            "at2": self._maybe(timestamp(chance.randrange(99))), "x2": self._maybe(x2), "text2": chance.choice(NAMES),
            "n2": self._maybe(chance.choice((-(2**63), 2**63 - 1, 0, 7))),
        }  # fmt: skip

    def _link(self, i: int) -> Row:
        return {"src": i // 9, "dst": i % 9, "weight": self._maybe(self.chance.randrange(9) / 3)}

    def _tick(self, i: int) -> Row:
        begin = self.chance.randrange(300)
        return {"id": i, "s": begin, "e": begin + self.chance.randrange(6), "tag": self._maybe(f"tick {i}")}

    def _late(self, i: int) -> Row:
        begin = self.chance.randrange(60)
        return {"id": i, "room": self.chance.choice(ROOMS), "s": begin, "e": begin + self.chance.randrange(2, 9)}
