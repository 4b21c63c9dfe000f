"""Naive twins of views with gaps and coverage: sorted runs, by nested loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tests.naive.cover import runs
from tests.service.grouped import one_value
from tests.service.twin import KEYS, Row, TwinView, _slot, _stay, values

Relations = dict[str, dict[tuple[Any, ...], Row]]
Ends = tuple[float, float]  # ends of a closed interval


class StretchView(TwinView):
    """For rows of `of`, the parts of their intervals that rows of `by` do not cover, or (`covered`) that they cover. `on`: a condition on a
    row and a partner, in addition to the overlap; `where`: a condition on a row. A combination is a row with such a part, a closed
    interval."""

    def __init__(
        self, of: tuple[str, str, Callable[[Row], Ends]], by: tuple[str, str, Callable[[Row], Ends]], definition: dict[str, Any],
        on: Callable[[Row, Row], bool], covered: bool = False, where: Callable[[Row], bool] = lambda row: True, half_open: bool = True,
    ) -> None:  # fmt: skip
        super().__init__([of[:2]], definition, on, self._shown, [lambda row: row["stretch"]])
        self.of, self.by, self.covered, self.where, self.half_open = of, by, covered, where, half_open

    def combinations(self, relations: Relations) -> list[tuple[Row, ...]]:
        found = []
        for row in relations[self.of[1]].values():
            if self.where(row):
                low, high = self.of[2](row)
                partners = [self.by[2](other) for other in relations[self.by[1]].values() if self.on(row, other)]
                clipped = [(max(low, left), min(high, right)) for left, right in partners]
                covered = runs([one for one in clipped if one[0] <= one[1]])
                stretches = covered if self.covered else between(covered, low, high)
                found += [({**row, "stretch": one},) for one in stretches]
        return found

    def identity(self, rows: tuple[Row, ...]) -> tuple[Any, ...]:
        return *(rows[0][column] for column in KEYS[self.of[1]]), self._ends(rows[0])[0]

    def _ends(self, row: Row) -> tuple[int | None, int | None]:
        low, high = row["stretch"]
        return None if low == -math.inf else low, None if high == math.inf else high + self.half_open

    def _shown(self, row: Row) -> Row:
        start, end = self._ends(row)
        return {"key": row[KEYS[self.of[1]][0]], "more": row["tag" if self.of[1] == "a" else "note"], "start": start, "end": end}

    def rows(self, relations: Relations) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return {self.identity(rows): values(self._shown(*rows)) for rows in self.combinations(relations)}


def between(covered: list[Ends], low: float, high: float) -> list[Ends]:
    found, at = [], low
    for left, right in covered:
        if left > at:
            found.append((at, left - 1))
        at = right + 1
    return [*found, (at, high)] if at <= high and at != math.inf else found


def equal(column: str) -> Callable[[Row, Row], bool]:
    return lambda x, y: x[column] is not None and x[column] == y[column]


def _definition(function: str, aliases: tuple[str, str], conditions: list[Any], where: list[Any], partners: list[Any]) -> dict[str, Any]:
    """For x (relation a) and y (b), or the other way round."""
    x, y = aliases
    intervals = {"x": "x.stay", "y": "y.slot", "z": "z.stay"}
    relations = {"x": "a", "y": "b", "z": "a"}
    key, more = {"a": ("id", "tag"), "b": ("site", "note")}[relations[x]]
    select = [f"{x}.{key} as key", f"{x}.{more} as more", {function: [intervals[x], intervals[y]], "as": "free"}]
    join = [{"overlaps": [intervals[x], intervals[y]]}, *conditions]
    if function == "coverage":
        return {"from": {x: relations[x], y: relations[y]}, "join": join, "where": where + partners, "select": select}
    left = [{"from": {y: relations[y]}, "join": join, "where": partners}]
    return {"from": {x: relations[x]}, "left": left, "where": where, "select": select}


def _is(column: str, value: str) -> dict[str, str]:
    return {"column": column, "op": "=", "value": value}


_A, _B = ("x", "a", _stay), ("y", "b", _slot)
_ROOM = {"equal": ["x.room", "y.room"]}
VIEWS: dict[str, TwinView] = {
    "free": StretchView(_A, _B, _definition("gaps", ("x", "y"), [_ROOM], [], []), equal("room")),
    "busy": StretchView(_A, _B, _definition("coverage", ("x", "y"), [_ROOM], [], []), equal("room"), True),
    "vacant": StretchView(
        _B, _A, _definition("gaps", ("y", "x"), [], [_is("y.note", "n")], [_is("x.tag", "u")]), lambda y, x: bool(x["tag"] == "u"),
        where=lambda y: y["note"] == "n", half_open=False,
    ),
    "used": StretchView(
        _B, _A, _definition("coverage", ("y", "x"), [], [_is("y.note", "n")], [_is("x.tag", "u")]), lambda y, x: bool(x["tag"] == "u"),
        True, where=lambda y: y["note"] == "n", half_open=False,
    ),
    "alone": StretchView(
        _A, ("z", "a", _stay),
        _definition("gaps", ("x", "z"), [{"equal": ["x.room", "z.room"]}, {"equal": ["x.floor", "z.floor"]}], [], [_is("z.tag", "v")]),
        lambda x, z: equal("room")(x, z) and equal("floor")(x, z) and z["tag"] == "v",
    ),
    "together": StretchView(
        _A, ("z", "a", _stay), _definition("coverage", ("x", "z"), [{"equal": ["x.floor", "z.floor"]}], [], [_is("z.tag", "v")]),
        lambda x, z: equal("floor")(x, z) and z["tag"] == "v", True,
    ),
}  # fmt: skip


class CoveredView(TwinView):
    """What rows of `of` cover, group by group. `group`: the columns."""

    def __init__(self, of: tuple[str, str, Callable[[Row], Ends]], group: list[str], where: str | None, half_open: bool) -> None:
        alias, relation, ends = of
        select = [{"coverage": [f"{alias}.{'stay' if relation == 'a' else 'slot'}"], "as": "busy"}]
        definition: dict[str, Any] = {"from": {alias: relation}, "select": select, "group": [f"{alias}.{one} as {one}" for one in group]}
        tag = "tag" if relation == "a" else "note"
        definition["where"] = [_is(f"{alias}.{tag}", where)] if where is not None else []
        super().__init__([], definition, lambda row: where is None or row[tag] == where, lambda row: row, [])
        self.relation, self.group, self.half_open, self.ends_of = relation, group, half_open, ends

    def rows(self, relations: Relations) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        groups: dict[tuple[Any, ...], list[Ends]] = {}
        for row in relations[self.relation].values():
            if self.on(row):
                groups.setdefault(tuple(one_value(row[one]) for one in self.group), []).append(self.ends_of(row))
        found = {}
        for key, intervals in groups.items():
            for low, high in runs(intervals):
                start, end = None if low == -math.inf else low, None if high == math.inf else high + self.half_open
                found[(*key, start)] = (*key, start, end)
        return found


BY_KEY: dict[str, TwinView] = {
    "by_room": CoveredView(_A, ["room"], None, True),
    "by_weight": CoveredView(_A, ["weight", "floor"], "u", True),
    "at_all": CoveredView(_B, [], None, False),
    "by_note": CoveredView(_B, ["note"], None, False),
}
