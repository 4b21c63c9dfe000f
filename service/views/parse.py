"""Validate and plan a view's definition, in JSON or SQL: the entry to `definition`, `sql`, `assembly` and `planner`."""

from __future__ import annotations

import copy
import json
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache, partial
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlglot import exp

from livejoin.wire.schema import NAME, Interval, RelationDefinition, parse_relation
from service.errors import Problem, unsupported
from service.planning.carrying import carried
from service.planning.layers import layered
from service.planning.planner import Counted, plan
from service.planning.plans.plan import Plan
from service.query.assembly import Limits, Options, check_size
from service.query.definition import options_of, read_json, tree_of
from service.query.distinct import as_exists
from service.query.form_checks import bad
from service.query.forms import SqlView, check_form
from service.query.model import Query
from service.query.set_operations import drafts_of, query_of
from service.query.sql.composition.catalogue import Catalogue
from service.query.sql.composition.constant_tables import ConstantTable
from service.query.sql.dialect import Dialect
from service.query.sql.names import Source
from service.query.sql.select import read_query, read_sql
from service.query.sql.text import check_length
from service.views.deltas import UNBOUNDED
from service.views.stored_definition import stored_definition


class ViewSource(NamedTuple):
    """A view that another one names: its definition, as its user gave it, what its names mean, and the views that it names itself."""

    definition: dict[str, Any]
    relations: dict[str, RelationDefinition]
    reads: dict[str, ViewSource]

    def tree(self, storing: _Storing) -> exp.Expr:
        """Return its syntax tree. Problem `unsupported-query` if it is no longer accepted."""
        try:
            return tree_of(check_form(self.definition), self.definition, _catalogue(self.relations, self.reads, None, storing))
        except Problem as problem:
            raise unsupported(f"a view whose own definition is refused ({problem.detail})", "drop it first") from None

    @property
    def level(self) -> int:
        return 1 + max((one.level for one in self.reads.values()), default=0)

    def to_json(self) -> dict[str, Any]:
        relations = {name: definition.to_json() for name, definition in sorted(self.relations.items())}
        return {"definition": self.definition, "relations": relations, "views": _to_json(self.reads)}

    @staticmethod
    def of_json(noted: dict[str, Any]) -> ViewSource:
        return ViewSource(noted["definition"], _relations_of(noted), _views_of(noted))


class View(NamedTuple):
    """A valid definition. `definition` is as the user gave it, `stated` its meaning: two of them are the same view iff these are equal.
    `query` is what is maintained for it: the same, with the filters that follow from the others (`carrying`)."""

    name: str
    definition: dict[str, Any]
    stated: Query
    query: Query
    plan: Plan
    relations: dict[str, RelationDefinition]  # the relations it reads, as they were at registration
    reads: dict[str, ViewSource]  # the views it names
    stored: dict[str, StoredQuery]  # the queries in FROM, its own and those of views, that are stored; each after those that it reads
    constants: Mapping[str, ConstantTable] = MappingProxyType({})  # the tables of constants in FROM, likewise

    @property
    def source(self) -> ViewSource:
        return ViewSource(self.definition, self.relations, self.reads)

    @property
    def definitions(self) -> dict[str, RelationDefinition]:
        """Of all relations of the query, stored queries and tables of constants included."""
        constants = {name: one.definition for name, one in self.constants.items()}
        return self.relations | {name: one.shown for name, one in self.stored.items()} | constants


class StoredQuery(NamedTuple):
    """A query whose rows views read as a relation (`stored.py`), which `shown` describes."""

    view: View
    shown: RelationDefinition


ORDERED = "ORDER BY has no effect: a view is a set of rows; read its first ones with ?order=column desc&limit=n"
NO_VIEWS: Mapping[str, ViewSource] = {}
_MOST_LEVELS = 8  # of views that name views, the topmost included
_RESERVED = ("group", "row")  # stands for an alias in the key of a change


def parse_view(
    name: str, data: Any, relations: Mapping[str, RelationDefinition], counted: Counted | None = None, kept: bool = False,
    limits: Limits | None = None, views: Mapping[str, ViewSource] = NO_VIEWS,
    nameable: Mapping[str, RelationDefinition] | None = None,
) -> View:  # fmt: skip
    """`counted`: as in `planner.plan`; `kept`: the definition is from the data folder, so it may break rules that are newer than it.
    `limits`: for a definition from a client. `views`: what it may name besides relations; `nameable`: the
    relations that it may name, unless these are all; the views may read others.

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
    storing = _Storing(relations)
    known = _catalogue(relations, views, nameable, storing)
    most = None if limits is None else limits.conditions
    read = read_sql(form.sql, known, most) if isinstance(form, SqlView) else read_json(data, known, most)
    if limits is not None:
        check_size(list(drafts_of(read.draft)), limits)
    query = query_of(read.draft, options_of(form))
    reads = {other: views[other] for other in sorted(read.views)}
    if any(one.level >= _MOST_LEVELS for one in reads.values()) and not kept:
        raise unsupported(f"a view over more than {_MOST_LEVELS - 1} levels of views", "read the relations themselves")
    beneath = {relation for one in reads.values() for relation in one.relations}
    beneath |= {relation for one in storing.queries.values() for relation in one.view.relations}
    query = replace(query, named=tuple(sorted({*query.named, *read.relations, *beneath} - storing.shown.keys())))
    if not query.named:
        raise unsupported("a view of constants alone", "join them with a relation")
    for alias, _ in query.aliases:
        if alias in _RESERVED and not kept:
            raise unsupported(f"the alias {alias}", "this word is reserved for the keys of changes; choose another alias")
    if "groups" in form.model_fields_set and query.groups is None and not kept:
        raise bad('the option "groups" limits the groups of a view, and this view has no groups: omit it')
    named = {one: relations[one] for one in query.named}
    stated, kept_for, planned = _planned(query, storing.relations, counted)
    planned = layered(query, planned, {one: stored.view.plan for one, stored in storing.queries.items()})
    notes = [] if storing.queries else [f"{other} is a view: its definition is written out" for other in reads]
    notes += [ORDERED] if read.draft.ordered else []
    constants = sum(len(one.rows) for one in storing.constants.values())
    notes += [f"VALUES and generate_series: {constants:,} rows, which are part of the definition"] if storing.constants else []
    planned = replace(planned, notes=(*planned.notes, *notes))
    return View(name, copy.deepcopy(data), stated, kept_for, planned, named, reads, storing.queries, storing.constants)


class _Storing:
    """The queries of one definition that are stored. relations: these, and those of the service."""

    def __init__(self, relations: Mapping[str, RelationDefinition]) -> None:
        self.queries, self.shown = dict[str, StoredQuery](), dict[str, RelationDefinition]()
        self.constants = dict[str, ConstantTable]()
        self.relations = self.beside(relations)

    def beside(self, relations: Mapping[str, RelationDefinition]) -> Mapping[str, RelationDefinition]:
        """Return other relations together with what is stored by now, and later."""
        return ChainMap(self.shown, relations)  # type: ignore[arg-type]

    def __call__(self, query: exp.Query, intervals: Mapping[str, Interval], source: Source) -> str:
        """As `Store`."""
        name = f"~{sha256(query.sql(Dialect, comments=False, identify=True).encode()).hexdigest()[:16]}"
        if name in self.queries:
            return name
        read = read_query(query.copy(), source, Catalogue(self.relations, {}, self.relations, self))
        made = query_of(read.draft, Options("auto", "best-effort", (UNBOUNDED, UNBOUNDED)))
        beneath = {relation for one in self.queries if one in read.relations for relation in self.queries[one].view.relations}
        made = replace(made, named=tuple(sorted({*made.named, *read.relations, *beneath} - self.shown.keys())))
        stated, kept, planned = _planned(made, self.relations, None)
        planned = layered(made, planned, {one: stored.view.plan for one, stored in self.queries.items()})
        named = {one: self.relations[one] for one in made.named}
        view = View(name, {"sql": query.sql(Dialect)}, stated, kept, planned, named, {}, dict(self.queries), self.constants)
        self.shown[name] = stored_definition(kept, self.relations, intervals)
        self.queries[name] = StoredQuery(view, self.shown[name])
        return name

    def add(self, table: ConstantTable) -> str:
        """As `Store.add`."""
        name = f"~{sha256(repr((table.definition.to_json(), table.rows)).encode()).hexdigest()[:16]}"
        self.shown[name], self.constants[name] = table.definition, table
        return name


def _catalogue(
    relations: Mapping[str, RelationDefinition], views: Mapping[str, ViewSource], nameable: Mapping[str, RelationDefinition] | None,
    storing: _Storing,
) -> Catalogue:  # fmt: skip
    trees = {name: _copies_of(partial(one.tree, storing)) for name, one in views.items()}
    return Catalogue(storing.beside(relations), trees, relations if nameable is None else nameable, storing)


def _copies_of(tree: Callable[[], exp.Expr]) -> Callable[[], exp.Expr]:
    """Return what gives copies of this tree, which is read once: a definition may name a view several times, at each level."""
    once = cache(tree)
    return lambda: once().copy()


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
    return View(name, copy.deepcopy(data), query, query, plan, relations, noted_views(text), {})


def noted(view: View, since: int = 0) -> str:
    """A definition as it was understood, stored beside it: with its relations (`SELECT *` means their columns of that time), the views that
    it reads, the version that has replaced the one before it, and normalised."""
    relations = {name: definition.to_json() for name, definition in sorted(view.relations.items())}
    noted = {"relations": relations, "views": _to_json(view.reads), "since": since, "query": asdict(view.stated)}
    return json.dumps(noted, default=str)


def noted_relations(text: str) -> dict[str, RelationDefinition]:
    """The relations in the result of `noted`."""
    return _relations_of(json.loads(text))


def noted_views(text: str) -> dict[str, ViewSource]:
    """The views in the result of `noted`."""
    return _views_of(json.loads(text))


def noted_since(text: str) -> int:
    """The version in the result of `noted`."""
    return int(json.loads(text).get("since", 0))


def _to_json(views: Mapping[str, ViewSource]) -> dict[str, Any]:
    return {name: one.to_json() for name, one in views.items()}


def _relations_of(noted: dict[str, Any]) -> dict[str, RelationDefinition]:
    return {name: parse_relation(definition) for name, definition in noted["relations"].items()}


def _views_of(noted: dict[str, Any]) -> dict[str, ViewSource]:
    return {name: ViewSource.of_json(one) for name, one in noted.get("views", {}).items()}
