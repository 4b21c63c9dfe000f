"""A view's definition, in JSON or SQL, judged and planned: the door to `definition`, `sql`, `assembly`, `planner`, `projection`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from service.planning.planner import Counted, plan
from service.planning.plans.plan import Plan
from service.query.assembly import assemble, check_size
from service.query.definition import options_of, read_form, read_json
from service.query.forms import SqlView, bad
from service.query.model import Limits, Query
from service.query.sql import check_length, read_sql
from service.wire.schema import NAME, RelationDefinition


class View(NamedTuple):
    """A definition that can be kept. `definition` is as the user gave it; two of them are the same view iff their queries are equal."""

    name: str
    definition: dict[str, Any]
    query: Query
    plan: Plan


def parse_view(
    name: str, data: Any, relations: Mapping[str, RelationDefinition], counted: Counted | None = None, limits: Limits | None = None
) -> View:
    """`counted`: as of `planner.plan`. `limits`: of a definition that comes from outside.

    Raises Problem: `bad-definition`, `bad-query` (with `position`), `unknown-relation`, `unknown-column`, `unsupported-query`,
    `infeasible-view` (with `theorem`).
    """
    if not NAME.fullmatch(name):
        raise bad(f"the view's name {name!r} does not match {NAME.pattern}")
    if not isinstance(data, dict):
        raise bad('a view\'s definition is an object with "sql", or with "from", "join", "where" and "select"')
    form = read_form(data)
    if limits is not None and isinstance(form, SqlView):
        check_length(form.sql, limits.sql)
    draft = read_sql(form.sql, relations) if isinstance(form, SqlView) else read_json(form, relations)
    if limits is not None:
        check_size(draft, limits)
    query = assemble(draft, options_of(form))
    return View(name, copy.deepcopy(data), query, plan(query, relations, counted))
