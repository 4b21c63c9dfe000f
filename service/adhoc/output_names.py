"""The names of a result's columns, by the rule of views (`service.query.sql.output_names`), from DuckDB's own tree of the query."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from service.query.naming import UNNAMED, told_apart

_SPELLED = {"count_star": "count", "trim": "btrim"}


def names_of(node: dict[str, Any], bound: Sequence[str], width: Callable[[dict[str, Any]], int]) -> list[str]:
    """Return the names of a query's columns. `node`: of the query in the tree; `bound`: DuckDB's names, which are right except for
    expressions without AS; `width`: returns the number of columns of a query in the tree."""
    listed = _listed(node)
    stars = [at for at, one in enumerate(listed) if _is_wide(one)]
    widths = [1] * len(listed)
    for at in stars[:-1]:
        widths[at] = width(_alone(node, at))
    if stars:
        widths[stars[-1]] = 0
        widths[stars[-1]] = len(bound) - sum(widths)
    elif len(listed) != len(bound):
        return told_apart([(name, False) for name in bound])
    items = [None if at in stars else item for at, item in enumerate(listed) for _ in range(widths[at])]
    named = list[tuple[str, bool]]()
    for item, name in zip(items, bound, strict=True):
        is_given = item is not None and bool(item["alias"])
        named.append((name if item is None or is_given or item["class"] == "COLUMN_REF" else _name_of(item), is_given))
    return told_apart(named)


def _listed(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the SELECT lists, or the first one of a UNION."""
    listed: list[dict[str, Any]] = _selects(node)[-1]["select_list"]
    return listed


def _selects(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a query, and if it is a UNION its first part, and so on down to a SELECT."""
    found = [node]
    while found[-1]["type"] == "SET_OPERATION_NODE":
        found.append(found[-1].get("left") or found[-1]["children"][0])
    return found


def _alone(node: dict[str, Any], at: int) -> dict[str, Any]:
    """Return a query that selects one item only, from the same tables."""
    selects = _selects(node)
    named = {one["key"]: one for select in selects for one in select["cte_map"]["map"]}
    return {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": list(named.values())}, "select_list": [_listed(node)[at]],
        "from_table": selects[-1]["from_table"], "where_clause": None, "group_expressions": [], "group_sets": [],
        "aggregate_handling": "STANDARD_HANDLING", "having": None, "sample": None, "qualify": None,
    }  # fmt: skip


def _is_wide(item: dict[str, Any]) -> bool:
    """Return whether an item of SELECT may be several columns: one with `*` or COLUMNS(…), or unnest of a struct."""
    pending: list[Any] = [item]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            if one.get("class") == "STAR" or (one is item and one.get("function_name") == "unnest"):
                return True
            pending += [] if one.get("class") == "SUBQUERY" else one.values()
        elif isinstance(one, list):
            pending += one
    return False


def _name_of(item: dict[str, Any]) -> str:
    while item["class"] == "CAST":
        item = item["child"]
    return _strong(item) or ("case" if item["class"] == "CASE" else UNNAMED)


def _strong(item: dict[str, Any]) -> str | None:
    while item["class"] == "CAST":
        item = item["child"]
    name: str | None = None
    if item["class"] == "COLUMN_REF":
        name = item["column_names"][-1]
    elif item["class"] == "CASE":
        name = _strong(item["else_expr"])
    elif item["class"] in ("FUNCTION", "WINDOW") and not item.get("is_operator"):
        name = _SPELLED.get(item["function_name"], item["function_name"])
    elif item["type"] == "OPERATOR_COALESCE":
        name = "coalesce"
    elif item["type"] == "SUBQUERY" and item["subquery_type"] == "EXISTS":
        name = "exists"
    elif item["type"] == "SUBQUERY" and item["subquery_type"] == "SCALAR":
        only = _listed(item["subquery"]["node"])[0]
        name = only["alias"] or _strong(only)
    return name
