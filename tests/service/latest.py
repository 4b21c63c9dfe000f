"""Naive twins of views of the latest rows (sorted lists) and of as-of joins (nested loops)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tests.service.grouped import one_value, order
from tests.service.twin import DEFINITIONS, KEYS, Row, TwinView


class LatestView(TwinView):
    """For each combination of `by`, the first `rows` rows of the relation that meet `on`; nulls come last, and of equal rows those with the
    greatest key come first."""

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
            found += [(row,) for row in self.sorted(rows)[: self._rows]]
        return found

    def sorted(self, rows: list[Row]) -> list[Row]:
        rows.sort(key=lambda row: tuple(row[name] for name in self._key), reverse=True)
        known = [row for row in rows if row[self._column] is not None]
        known.sort(key=lambda row: order(row[self._column]), reverse=self._descending)  # stable, also in reverse
        return [*known, *(row for row in rows if row[self._column] is None)]


class OrderedView(LatestView):
    """For each combination of `by`, the first rows in an order of several columns: name, ASC or DESC, FIRST or LAST."""

    def __init__(self, relation: str, by: list[str], keys: list[str], rows: int) -> None:
        partition = f"PARTITION BY {', '.join(by)} " if by else ""
        written = ", ".join(" NULLS ".join(one.rsplit(" ", 1)) for one in keys)
        shown = ", ".join((*KEYS[relation], "room"))
        super().__init__(relation, by, keys[0].split()[0], False, rows)
        over = f"({partition}ORDER BY {written})"
        self.definition = {"sql": f"SELECT {shown} FROM {relation} x QUALIFY ROW_NUMBER() OVER {over} <= {rows}"}
        self._order = [one.split() for one in keys]

    def sorted(self, rows: list[Row]) -> list[Row]:
        rows = sorted(rows, key=lambda row: tuple(row[name] for name in self._key), reverse=True)
        for name, way, nulls in reversed(self._order):  # stable, also in reverse
            null = [row for row in rows if row[name] is None]
            known = sorted((row for row in rows if row[name] is not None), key=lambda row: order(row[name]), reverse=way == "DESC")
            rows = null + known if nulls == "FIRST" else known + null
        return rows


class AsOfView(TwinView):
    """For each row x of one relation, the nearest row y of the other by a column, among those with equal values in other columns; of
    equally near rows, the one with the greatest key. `more` and `where`: conditions of WHERE on both."""

    def __init__(
        self, relations: tuple[str, str], equal: list[str], of: str, op: str, point: str, left: bool, more: dict[str, Any] | None = None,
        where: Callable[[Row, Row], bool] = lambda x, y: True,
    ) -> None:  # fmt: skip
        first, second = relations
        join: list[dict[str, Any]] = [*({"equal": [f"x.{name}", f"y.{name}"]} for name in equal), {"as_of": [f"y.{of}", op, f"x.{point}"]}]
        shown = [(alias, name) for alias, relation in zip("xy", relations, strict=True) for name in (*KEYS[relation], "room")]
        shown = list(dict.fromkeys([*shown, ("y", of)]))
        parts: dict[str, Any] = {"from": {"x": first, "y": second}, "join": join}
        if left:
            parts = {"from": {"x": first}, "left": [{"from": {"y": second}, "join": join}]}
        definition = parts | {"select": [f"{alias}.{name} as {alias}_{name}" for alias, name in shown]} | (more or {})
        super().__init__(
            [("x", first), ("y", second)], definition, lambda x, y: True,
            lambda x, y: {f"{alias}_{name}": (x if alias == "x" else y)[name] for alias, name in shown}, [],
        )  # fmt: skip
        self._equal, self._of, self._op, self._at, self._left, self._where = equal, of, op, point, left, where
        self._missing = dict.fromkeys(DEFINITIONS[second].arrow_schema().names)

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        (_, first), (_, second) = self.aliases
        found = list[tuple[Row, ...]]()
        for x in relations[first].values():
            partners = [y for y in relations[second].values() if self._meets(x, y)]
            if partners:
                turn = 1 if self._op in ("<", "<=") else -1
                y = max(partners, key=lambda y: (turn * y[self._of], *(y[name] for name in KEYS[second])))
                if self._where(x, y):
                    found.append((x, y))
            elif self._left and self._where(x, self._missing):
                found.append((x, self._missing))
        return found

    def _meets(self, x: Row, y: Row) -> bool:
        if any(x[name] is None or x[name] != y[name] for name in self._equal) or x[self._at] is None or y[self._of] is None:
            return False
        return bool(_COMPARED[self._op](y[self._of], x[self._at]))


_COMPARED = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
