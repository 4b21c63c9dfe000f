"""The names of a result's columns, by the rule of views (`service.query.sql.output_names`), from DuckDB's own tree of the query."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.query.naming import UNNAMED, told_apart

_SPELLED = {"count_star": "count", "trim": "btrim"}


def names_of(node: dict[str, Any], bound: Sequence[str]) -> list[str]:
    """Return the names of a query's columns. `node`: of the query in the tree; `bound`: DuckDB's names, which are right except for
    expressions without AS. Those between two `*` keep them too: how many columns a `*` stands for is not known there."""
    listed = _listed(node)
    stars = [at for at, one in enumerate(listed) if _is_wide(one)]
    first, last = (stars[0], len(listed) - 1 - stars[-1]) if stars else (len(listed), 0)
    if not stars and len(listed) != len(bound):
        return told_apart([(name, False) for name in bound])
    items: list[dict[str, Any] | None] = [*listed[:first], *[None] * (len(bound) - first - last), *listed[len(listed) - last :]]
    named = list[tuple[str, bool]]()
    for item, name in zip(items, bound, strict=True):
        is_given = item is not None and bool(item["alias"])
        named.append((name if item is None or is_given or item["class"] == "COLUMN_REF" else _name_of(item), is_given))
    return told_apart(named)


def _listed(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the SELECT lists, or the first one of a UNION."""
    while node["type"] == "SET_OPERATION_NODE":
        node = node.get("left") or node["children"][0]
    listed: list[dict[str, Any]] = node["select_list"]
    return listed


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
