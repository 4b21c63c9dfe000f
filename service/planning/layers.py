"""The guarantee of a view that reads stored views: a changed row of a relation may change several of their rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from service.planning.plans.plan import Plan, no_such_promise, promises
from service.query.model import GUARANTEES, Query

_FEW_ROWS = ("groups", "counted", "products", "latest", "list")
"""Shapes of which a changed row changes O(1) rows, if their guarantee is strict."""


def layered(query: Query, own: Plan, stored: Mapping[str, Plan]) -> Plan:
    """Return the plan of a query over stored views, by name: its guarantee is at most what they leave. Raises `infeasible-view` if this is
    not what the query asks for."""
    plans = [stored[name] for name in dict.fromkeys(name for _, name in query.whole.aliases) if name in stored]
    if not plans:
        return own
    weakest = min([own.guarantee, *map(_above, plans)], key=GUARANTEES.index)
    made = replace(own, guarantee=weakest, notes=(*own.notes, *(f"{one.cls} is stored: a table has its rows" for one in plans)))
    if not promises(made, query.guarantee):
        raise no_such_promise(query, "a view over stored rows", made, "one changed row may change several of those")
    return made


def _above(one: Plan) -> str:
    """Return the best guarantee of a view that reads the rows of a stored view."""
    return one.guarantee if one.guarantee != "strict" or one.shape in _FEW_ROWS else "delay"
