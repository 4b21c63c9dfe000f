"""One relation, filtered: a tree of one set."""

from __future__ import annotations

from service.planning.meets import Relations
from service.planning.plans.plan import Plan, first_notes, names
from service.query.model import Query


def make(query: Query, relations: Relations) -> Plan | None:
    if len(query.aliases) != 1:
        return None
    bounds = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    return Plan(
        "selection, 1 relation", "interval-tree", None, "strict", bounds, first_notes(query, relations), "list", names(query),
        keys=((),), spans=(None,),
    )  # fmt: skip
