"""Naive twins of views of the latest rows: sorted lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.service.grouped import one_value, order
from tests.service.twin import KEYS, Row, TwinView


class LatestView(TwinView):
    """Of one relation's rows that meet `on` the first `rows` of each `by`, nulls last, of equal ones those with the greatest key."""

    def __init__(
        self, relation: str, by: list[str], column: str, descending: bool, rows: int, more: dict[str, Any] | None = None,
        on: Callable[[Row], bool] = lambda row: True,
    ) -> None:  # fmt: skip
        latest = {"by": [f"x.{name}" for name in by], "order": f"x.{column}", "descending": descending, "rows": rows}
        shown = [*KEYS[relation], "room"]
        definition = {"from": {"x": relation}, "select": [f"x.{name} as {name}" for name in shown], "latest": latest} | (more or {})
        super().__init__([("x", relation)], definition, on, lambda row: {name: row[name] for name in shown}, [])
        self._by, self._column, self._descending, self._rows, self._key = by, column, descending, rows, KEYS[relation]

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        groups = dict[tuple[Any, ...], list[Row]]()
        for (row,) in super().combinations(relations):
            groups.setdefault(tuple(one_value(row[name]) for name in self._by), []).append(row)
        found = list[tuple[Row, ...]]()
        for rows in groups.values():
            rows.sort(key=lambda row: tuple(row[name] for name in self._key), reverse=True)
            known = [row for row in rows if row[self._column] is not None]
            known.sort(key=lambda row: order(row[self._column]), reverse=self._descending)  # stable, so in reverse too
            found += [(row,) for row in [*known, *(row for row in rows if row[self._column] is None)][: self._rows]]
        return found
