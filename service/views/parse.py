"""Validate and plan a view's definition, in JSON or SQL: the entry to `definition`, `sql`, `assembly`, `planner`, `projection`."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from livejoin.wire.schema import NAME, RelationDefinition, parse_relation
from service.errors import Problem, unsupported
from service.planning.carrying import carried
from service.planning.planner import Counted, plan
from service.planning.plans.plan import Plan
from service.query.assembly import Limits, check_size
from service.query.definition import options_of, read_json
from service.query.distinct import as_exists
from service.query.form_checks import check_form
from service.query.forms import SqlView, bad
from service.query.model import Query
from service.query.set_operations import drafts_of, query_of
from service.query.sql.select import read_sql
from service.query.sql.text import check_length


class View(NamedTuple):
    """A valid definition. `definition` is as the user gave it, `stated` its meaning: two of them are the same view iff these are equal.
    `query` is what is maintained for it: the same, with the filters that follow from the others (`carrying`)."""

    name: str
    definition: dict[str, Any]
    stated: Query
    query: Query
    plan: Plan
    relations: dict[str, RelationDefinition]  # the relations it names, as they were at registration


ORDERED = "ORDER BY has no effect: a view is a set of rows; read its first ones with ?order=column desc&limit=n"
_RESERVED = ("group", "row")  # stands for an alias in the key of a change


def parse_view(
    name: str, data: Any, relations: Mapping[str, RelationDefinition], counted: Counted | None = None, kept: bool = False,
    limits: Limits | None = None,
) -> View:  # fmt: skip
    """`counted`: as in `planner.plan`; `kept`: the definition is from the data folder, so it may break rules that are newer than it.
    `limits`: for a definition from a client.

    Raises Problem: `bad-definition`, `bad-query` (with `position`), `unknown-relation`, `unknown-column`, `unsupported-query`,
    `infeasible-view` (with `theorem`).
    """
    if not NAME.fullmatch(name):
        raise bad(f"the view's name {name!r} does not match {NAME.pattern}")
    if not isinstance(data, dict):
        raise bad('a view\'s definition is an object with "sql", or with "from", "join", "where" and "select"')
    form = check_form(data)
    if limits is not None and isinstance(form, SqlView):
        check_length(form.sql, limits.sql)
    read = read_sql(form.sql, relations) if isinstance(form, SqlView) else read_json(data, relations)
    if limits is not None:
        check_size(list(drafts_of(read)), limits)
    query = query_of(read, options_of(form))
    for alias, _ in query.aliases:
        if alias in _RESERVED and not kept:
            raise unsupported(f"the alias {alias}", "this word is reserved for the keys of changes; choose another alias")
    if "groups" in form.model_fields_set and query.groups is None and not kept:
        raise bad('the option "groups" limits the groups of a view, and this view has no groups: omit it')
    named = {one: relations[one] for one in query.named}
    stated, kept_for, planned = _planned(query, relations, counted)
    if read.ordered:
        planned = replace(planned, notes=(*planned.notes, ORDERED))
    return View(name, copy.deepcopy(data), stated, kept_for, planned, named)


def _planned(query: Query, relations: Mapping[str, RelationDefinition], counted: Counted | None) -> tuple[Query, Query, Plan]:
    """`stated`, `query` and `plan` of a view: without groups if its rows are distinct by themselves and there is such a plan."""
    if (alone := as_exists(query, relations)) is not None:
        with suppress(Problem):
            kept = carried(alone)
            return alone, kept, plan(kept, relations, counted)
    kept = carried(query)
    return query, kept, plan(kept, relations, counted)


def refused_view(name: str, data: dict[str, Any], text: str, reason: str) -> View:
    """Stand-in for a kept view that is no longer accepted: it has no rows, and keeps the names that it used. `text`: the result of
    `noted`."""
    relations = noted_relations(text)
    nothing: tuple[Any, ...] = ()
    query = Query(
        nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing, nothing,
        None, "auto", "best-effort", True, named=tuple(relations),
    )  # fmt: skip
    plan = Plan("none", "nested-loop", None, "best-effort", {}, (f"the definition is refused: {reason}",), "indexed", ())
    return View(name, copy.deepcopy(data), query, query, plan, relations)


def noted(view: View) -> str:
    """A definition as it was understood, stored beside it: with its relations (`SELECT *` means their columns of that time), and
    normalised."""
    relations = {name: definition.to_json() for name, definition in sorted(view.relations.items())}
    return json.dumps({"relations": relations, "query": asdict(view.stated)}, default=str)


def noted_relations(text: str) -> dict[str, RelationDefinition]:
    """The relations in the result of `noted`."""
    return {name: parse_relation(definition) for name, definition in json.loads(text)["relations"].items()}
