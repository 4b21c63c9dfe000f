"""A reproducible, generated history of two tables as a Debezium connector sends it, together with the expected final state."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

Row = dict[str, Any]
Pair = tuple[int, int, int, int | None]  # a row of a view, in the order of COLUMNS


class Record(NamedTuple):
    """A record for the relation's topic in Kafka."""

    relation: str
    partition: int
    key: bytes | None
    value: bytes | None


class Table(NamedTuple):
    """The columns of a table besides `id` and `room`; `end` is null for an open interval."""

    start: str
    end: str
    interval: str

    @property
    def definition(self) -> dict[str, Any]:
        """The relation, for `PUT /v1/relations/{name}`."""
        types = {"id": "int64", "room": "string", self.start: "int64", self.end: "int64"}
        return {
            "columns": [{"name": name, "type": kind, "nullable": name == self.end} for name, kind in types.items()],
            "key": ["id"],
            "intervals": {self.interval: {"start": self.start, "end": self.end}},
        }


TABLES = {"bookings": Table("starts", "ends", "stay"), "maintenance": Table("begins", "finishes", "slot")}
COLUMNS = ["booking", "job", "clash_start", "clash_end"]
_SELECT = "SELECT b.id AS booking, m.id AS job, intersection(b.stay, m.slot) AS clash FROM bookings b JOIN maintenance m"
VIEWS = {
    "clashes": f"{_SELECT} ON b.room = m.room AND overlaps(b.stay, m.slot)",
    "meetings": f"{_SELECT} ON overlaps(b.stay, m.slot)",
}
_LIVE = 150  # the number of rows varies around this
_DAYS, _LONGEST = 1000, 30


class History:
    """Creates, updates and deletes at random, told with full or default replica identity, partly told again, with bad records in between.

    rows: the truth so far, by relation and id; bad: the values of the records that are no change; bad_told: how many there were.
    A key lives in one partition, so its records keep their order.
    """

    def __init__(self, dice: random.Random, partitions: int) -> None:
        self.rows: dict[str, dict[int, Row]] = {relation: {} for relation in TABLES}
        self.bad: set[bytes] = set()
        self.bad_emitted = 0
        self._dice = dice
        self._partitions = partitions
        self._next = 1
        self._last: deque[Record] = deque(maxlen=60)

    def emit(self, count: int) -> list[Record]:
        """The next records: `count`, or a few more."""
        emitted: list[Record] = []
        while len(emitted) < count:
            for record in list(self._step()):
                emitted.append(record)
                self._last.append(record)
                self.bad_emitted += record.value in self.bad
        return emitted

    def _step(self) -> Iterator[Record]:
        dice = self._dice
        relation = dice.choice(list(TABLES))
        rows = self.rows[relation]
        chance = dice.random()
        if chance < 0.01:  # the connector was restarted: it repeats the last records
            yield from list(self._last)[-dice.randint(1, 60) :]
        elif chance < 0.02:
            yield self._bad(relation)
        elif not rows or chance < 0.02 + 0.5 * _LIVE / (len(rows) + _LIVE):
            self._next += 1
            yield self._put(relation, self._row(relation, self._next), None)
        elif chance < 0.65:
            old = dice.choice(list(rows.values()))
            yield self._put(relation, self._row(relation, old["id"], old), old)
        else:
            old = dice.choice(list(rows.values()))
            yield from self._delete(relation, old)
            if dice.random() < 0.1:  # a changed key is sent as a delete and a create
                self._next += 1
                yield self._put(relation, {**old, "id": self._next}, None)

    def _row(self, relation: str, number: int, old: Row | None = None) -> Row:
        """A new row, or `old` with its room, its interval or nothing changed."""
        dice, table = self._dice, TABLES[relation]
        start = dice.randrange(_DAYS)
        end = None if dice.random() < 0.02 else start + dice.randint(1, _LONGEST)
        row = {"id": number, "room": dice.choice("ABCDEFGH"), table.start: start, table.end: end}
        if old is None:
            return row
        same = dice.choice([[], ["room"], [table.start, table.end], list(row)])
        return {**row, **{column: old[column] for column in same}}

    def _put(self, relation: str, row: Row, old: Row | None) -> Record:
        self.rows[relation][row["id"]] = row
        op = "u" if old else self._dice.choice("ccr")
        return self._record(relation, row["id"], {"before": self._dice.choice([old, None]), "after": row, "op": op, "source": {}})

    def _delete(self, relation: str, old: Row) -> Iterator[Record]:
        del self.rows[relation][old["id"]]
        table = TABLES[relation]
        made_up = {"id": old["id"], "room": "", table.start: 0, table.end: 0}  # under REPLICA IDENTITY DEFAULT
        yield self._record(relation, old["id"], {"before": self._dice.choice([old, made_up]), "after": None, "op": "d", "source": {}})
        yield self._record(relation, old["id"], None)

    def _bad(self, relation: str) -> Record:
        self._next += 1
        number, table = self._next, TABLES[relation]
        row = {"id": number, "room": "A", table.start: 9, table.end: 2}
        value = self._dice.choice([
            f"not JSON {number}".encode(),
            _bytes({"before": None, "after": row, "op": "c"}),  # an empty interval
            _bytes({"before": None, "after": {**row, table.start: "soon"}, "op": "c"}),
            _bytes({"before": None, "after": row, "op": "?"}),
        ])  # fmt: skip
        self.bad.add(value)
        return Record(relation, number % self._partitions, _bytes({"id": number}), value)

    def _record(self, relation: str, number: int, value: Any) -> Record:
        return Record(relation, number % self._partitions, _bytes({"id": number}), None if value is None else _bytes(value))

    def pairs(self, view: str) -> set[Pair]:
        """Return the rows of a view, by nested loops."""
        stay, slot = TABLES["bookings"], TABLES["maintenance"]
        found: set[Pair] = set()
        for b, m in product(self.rows["bookings"].values(), self.rows["maintenance"].values()):
            start = max(b[stay.start], m[slot.start])
            ends = [end for end in (b[stay.end], m[slot.end]) if end is not None]
            end = min(ends, default=None)
            if (end is None or start < end) and (view == "meetings" or b["room"] == m["room"]):
                found.add((b["id"], m["id"], start, end))
        return found


def _bytes(data: Any) -> bytes:
    return json.dumps(data).encode()
