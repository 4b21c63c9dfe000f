"""Rows of the benchmarks' relations and their changes: dbgen's distributions of keys, dates and flags, made small. What the queries compare
with is drawn more often than a benchmark draws it, so that few answers are empty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from livejoin.wire.schema import RelationDefinition

Row = dict[str, Any]
Key = tuple[Any, ...]
Batch = list[dict[str, Any]]

_NATIONS = (
    "ALGERIA:0 ARGENTINA:1 BRAZIL:1 CANADA:1 EGYPT:4 ETHIOPIA:0 FRANCE:3 GERMANY:3 INDIA:2 INDONESIA:2 IRAN:4 IRAQ:4 JAPAN:2 JORDAN:4 "
    "KENYA:0 MOROCCO:0 MOZAMBIQUE:0 PERU:1 CHINA:2 ROMANIA:3 SAUDI_ARABIA:4 VIETNAM:2 RUSSIA:3 UNITED_KINGDOM:3 UNITED_STATES:1"
)
NATIONS = [(name.replace("_", " "), int(region)) for name, region in (one.split(":") for one in _NATIONS.split())]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB", "AIR REG"]
COLOURS = "almond antique azure beige black blush brown burlywood chartreuse coral cornsilk cream cyan forest green honeydew ivory".split()
_WORDS = "furiously quickly final deposits requests special packages accounts pending theodolites Customer Complaints sleep the".split()


class Data(ABC):
    """Rows of relations, by key. Every change goes through `put` and `delete`, which note it for the next batch. `times`: how many batches
    as against other data."""

    times = 1

    def __init__(self, relations: dict[str, RelationDefinition], scale: float, rng: Random) -> None:
        self.relations, self.scale, self.rng = relations, scale, rng
        self.rows: dict[str, dict[Key, Row]] = {name: {} for name in relations}
        self._keys: dict[str, list[Key]] = {name: [] for name in relations}
        self._places: dict[str, dict[Key, int]] = {name: {} for name in relations}  # of keys in their lists
        self._noted: Batch = []

    @abstractmethod
    def load(self) -> None: ...

    @abstractmethod
    def kinds(self) -> Sequence[Callable[[], None]]:
        """Return what may be done to the rows: each changes few of them."""

    def usual(self) -> Sequence[Callable[[], None]]:
        """Return those of them that the benchmark itself has."""
        return self.kinds()

    def refresh(self, count: int, usual: bool = False) -> Batch:
        """Return a batch of so many changes of random kinds."""
        kinds = self.usual() if usual else self.kinds()
        for _ in range(count):
            self.rng.choice(kinds)()
        return self.noted()

    def noted(self) -> Batch:
        noted, self._noted = self._noted, []
        return noted

    def put(self, relation: str, *values: Any) -> None:
        definition = self.relations[relation]
        row = dict(zip([column.name for column in definition.columns], values, strict=True))
        key = tuple(row[column] for column in definition.key)
        if key not in self.rows[relation]:
            self._places[relation][key] = len(self._keys[relation])
            self._keys[relation].append(key)
        self.rows[relation][key] = row
        self._noted.append({"relation": relation, "op": "upsert", "row": row})

    def change(self, relation: str, row: Row, **values: Any) -> None:
        self.put(relation, *(row | values).values())

    def delete(self, relation: str, row: Row) -> None:
        key = {column: row[column] for column in self.relations[relation].key}
        del self.rows[relation][tuple(key.values())]
        keys, places = self._keys[relation], self._places[relation]
        last, place = keys.pop(), places.pop(tuple(key.values()))
        if place < len(keys):
            keys[place] = last
            places[last] = place
        self._noted.append({"relation": relation, "op": "delete", "key": key})

    def truncate(self, relation: str) -> None:
        for rows in (self.rows, self._keys, self._places):
            rows[relation].clear()
        self._noted.append({"relation": relation, "op": "truncate"})

    def some(self, relation: str) -> Row:
        return self.rows[relation][self.rng.choice(self._keys[relation])]

    def same_or_new(self, relation: str, key: int) -> int:
        """Return a key of a relation that is numbered from 1: the one that has just gone, or one that never was."""
        return key if self.rng.random() < 0.7 else max(key, *(one for (one,) in self.rows[relation])) + 1

    def scaled(self, count: int) -> int:
        return max(int(count * self.scale), 10)

    def one_of(self, values: Sequence[Any], wanted: Sequence[Any] = ()) -> Any:
        """Return a value, more often one of those that are wanted."""
        return self.rng.choice(wanted if wanted and self.rng.random() < 0.3 else values)

    def money(self, low: int, high: int) -> Decimal:
        return Decimal(self.rng.randrange(low, high)) / 100

    def text(self) -> str:
        return " ".join(self.rng.choices(_WORDS, k=6))

    def day(self, first: date, days: int) -> date:
        return first + timedelta(self.rng.randrange(days))
