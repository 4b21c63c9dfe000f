"""Relations of the matrix: which columns may be null, the bounds of their intervals, the type of their ends; and rows of them.

A row has whole numbers in place of the ends (`Row`), in whatever unit the type has: what is compared does not depend on it, except that a
float has values between two numbers.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from livejoin.wire.schema import RelationDefinition, parse_relation

Row = dict[str, Any]
Tables = dict[str, dict[int, Row]]
"""By relation and id."""


class Ends(NamedTuple):
    """A type of the ends: as it is declared; what a number of the rows is as a value of it; how a distance of so many numbers is written;
    whether it is stored as such, or as the number; the numbers of rows, and of sums."""

    declared: dict[str, Any]
    value: Callable[[int], Any]
    distance: Callable[[int], str]
    is_dense: bool = False
    numbers: Sequence[int] = range(8)
    lengths: Sequence[int] = range(-4, 5)

    def text(self, number: int) -> str:
        found = self.value(number)
        return found.isoformat() if isinstance(found, date) else str(found)


_LEAST, _MOST = -(2**63), 2**63 - 1
_ENDS = (_LEAST, _LEAST, _LEAST + 1, _LEAST + 2, -1, 0, 1, _MOST - 8, _MOST - 2, _MOST - 1, _MOST, _MOST)
_LENGTHS = [sign * n for n in (0, 1, 2, 2**62, _MOST, 2**63, 2**64 - 4, 2**64, 10**30) for sign in (1, -1)]
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)
TYPES = {
    "int64": Ends({"type": "int64"}, int, str),
    "extremes": Ends({"type": "int64"}, int, str, False, _ENDS, _LENGTHS),
    "float64": Ends({"type": "float64"}, lambda n: n / 2, lambda n: str(n / 2), True),
    "timestamp": Ends({"type": "timestamp"}, lambda n: _FIRST + timedelta(microseconds=n), lambda n: f"INTERVAL '{n} microseconds'"),
    "date": Ends({"type": "date"}, lambda n: _FIRST.date() + timedelta(n), lambda n: f"INTERVAL '{n} days'"),
    "decimal": Ends({"type": "decimal", "precision": 10, "scale": 2}, lambda n: Decimal(n) / 100, lambda n: str(Decimal(n) / 100)),
}
NULLS = {
    "none": "", "start": "su", "end": "ew", "both": "suew", "key": "kg", "point": "t", "all": "suewkgtvn",
}  # fmt: skip
BOUNDS = ("[]", "[)", "(]", "()")
_COLUMNS = {"k": "int64", "g": "string", "s": "", "e": "", "t": "", "n": "", "u": "int64", "w": "int64", "v": "int64"}


class Relation:
    """A relation with the interval `i` (s to e), the point `p` (t), and the interval `j` (u to w, `[)`); n, of the same type as t, is in no
    interval."""

    def __init__(self, name: str, nulls: str, bounds: str, ends: str) -> None:
        self.name, self.nulls, self.bounds, self.ends = name, NULLS[nulls], bounds, TYPES[ends]
        columns = [
            {"name": column, **({"type": type_} if type_ else self.ends.declared), "nullable": column in self.nulls}
            for column, type_ in _COLUMNS.items()
        ]
        intervals = {"i": {"start": "s", "end": "e", "bounds": bounds}, "p": {"at": "t"}, "j": {"start": "u", "end": "w"}}
        self.definition: RelationDefinition = parse_relation(
            {"columns": [{"name": "id", "type": "int64"}, *columns], "key": ["id"], "intervals": intervals}
        )

    def opens(self, interval: str) -> tuple[bool, bool]:
        """Return whether its start and its end are open."""
        bounds = {"i": self.bounds, "p": "[]", "j": "[)"}[interval]
        return bounds[0] == "(", bounds[1] == ")"

    def closed(self, row: Row, interval: str) -> tuple[float, float] | None:
        """Return what a row's interval contains, as a closed one; a null end is unbounded. None: the point is null."""
        start, end = {"i": ("s", "e"), "p": ("t", "t"), "j": ("u", "w")}[interval]
        if interval == "p" and row["t"] is None:
            return None
        step = 0.001 if self.ends.is_dense and interval != "j" else 1
        opens = self.opens(interval)
        low = -math.inf if row[start] is None else row[start] + step * opens[0]
        high = math.inf if row[end] is None else row[end] - step * opens[1]
        return low, high

    def row(self, rng: random.Random, id_: int) -> Row:
        numbers, other = self.ends.numbers, rng.randrange(8)
        start = rng.choice([n for n in numbers if _LEAST < n < _MOST - 6])  # the extremes are no ends
        least = sum(self.opens("i")) if not self.ends.is_dense else int(any(self.opens("i")))
        row = {
            "k": rng.randrange(2), "g": rng.choice("pq"), "s": start, "e": start + least + rng.choice((0, 0, 1, 2, 4)),
            "t": rng.choice([n for n in numbers if _LEAST < n < _MOST]), "n": rng.choice(numbers), "u": other,
            "w": other + rng.choice((1, 2, 5)), "v": rng.randrange(4),
        }  # fmt: skip
        return {"id": id_} | {name: None if name in self.nulls and rng.random() < 0.4 else value for name, value in row.items()}

    def stored(self, row: Row) -> Row:
        """Return the row as a relation has it."""
        value = self.ends.value if self.ends.is_dense else int
        return row | {name: value(row[name]) for name in "setn" if row[name] is not None}

    def shown(self, interval: str, ends: tuple[float, float]) -> tuple[Any, Any]:
        """Return the ends of a part of one of its intervals, given as a closed one, as a row of a view has them."""
        opens = self.opens(interval)
        low, high = ends[0] - opens[0], ends[1] + opens[1]
        return tuple(None if math.isinf(end) else self.ends.value(int(end)) for end in (low, high))  # type: ignore[return-value]
