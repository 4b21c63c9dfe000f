"""Turns the JSON form of a view's definition (`forms.py`) into the syntax tree of the same query in SQL, which `sql.select` reads.

`path` in the metadata of a node is the field that it was made of; a complaint about the node begins with it. Constants keep their value
(`value`), as JSON and SQL write some types differently. JSON has more than SQL's syntax in three places, which the readers know: a product
of any two aliases (`product`), an ASOF JOIN whose rows are chosen from either relation (`of`), and outer joins of several relations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, TypeVar

from sqlglot import exp

from livejoin.wire.schema import RelationDefinition
from service.errors import Problem, bad_parameter, unsupported
from service.query.assembly import Draft, Options
from service.query.conditions import ColumnRef, Condition, Filter
from service.query.form_checks import as_json, bad
from service.query.forms import JsonForm, LatestRows, OfExpression, SqlView
from service.query.latest import as_of_alone
from service.query.naming import told_apart
from service.query.scope import Scope
from service.query.sql.composition.catalogue import Catalogue
from service.query.sql.composition.composing import view_tree
from service.query.sql.conditions import Conditions
from service.query.sql.dialect import Dialect
from service.query.sql.names import Fields, Names, Text, column_of, identifier
from service.query.sql.output_names import CALLED, name_of
from service.query.sql.select import ReadQuery, parse_select, read_query
from service.query.sql.terms import COMPARED
from service.query.sql.text import check_length, check_operators, parse

_WHERE = "SELECT 1 WHERE"
_AS = re.compile(r"\s(?:as)\s+(?=\S)", re.IGNORECASE)
_COMPARED = {op: kind for kind, op in COMPARED.items()}
_JOINED = {"equal": exp.EQ, "at_most": exp.LTE, "less": exp.LT, "not_equal": exp.NEQ}
_CONNECTED: dict[str, type[exp.Connector]] = {"and": exp.And, "or": exp.Or}
_FUNCTIONS: dict[str, type[exp.AggFunc]] = {
    "count": exp.Count, "sum": exp.Sum, "avg": exp.Avg, "min": exp.Min, "max": exp.Max, "var_samp": exp.Variance,
    "var_pop": exp.VariancePop, "stddev_samp": exp.StddevSamp, "stddev_pop": exp.StddevPop,
}  # fmt: skip
_OPERATIONS: dict[str, type[exp.SetOperation]] = {
    "union": exp.Union, "union_all": exp.Union, "intersect": exp.Intersect, "except": exp.Except,
}  # fmt: skip
_Node = TypeVar("_Node", bound=exp.Expr)
_Columns = Mapping[str, Sequence[str]]
"""The names of columns by alias."""


def options_of(form: SqlView | JsonForm) -> Options:
    retain = (form.changes.retain_rows, form.changes.retain_bytes) if form.changes else None
    return Options(form.algorithm, form.guarantee, retain, form.groups)


def read_json(data: Any, known: Catalogue, most: int | None = None) -> ReadQuery:
    """Read a SELECT, or several, of at most so many conditions. `data`: a valid `JsonForm`. Raises as `read_sql`, but `bad-definition` in
    place of `bad-query`."""
    with _refusing_depth():
        return read_query(_query(data, "", known), Fields(), known, most)


def tree_of(form: SqlView | JsonForm, data: Any, known: Catalogue) -> exp.Expr:
    """Return the tree of a valid definition, for queries that read its view. Raises as `read_sql` and `read_json`."""
    if isinstance(form, SqlView):
        return view_tree(parse_select(form.sql), Text(form.sql), known)
    with _refusing_depth():
        return view_tree(_query(data, "", known), Fields(), known)


def read_where(relation: str, definition: RelationDefinition, where: Sequence[Any], most: int) -> list[Condition]:
    """Read valid entries of `where` about the rows of one relation, at most so many comparisons, with columns written without an alias.
    Problems `bad-definition`, `unknown-column`, `unsupported-query`."""
    draft = Draft(Scope({relation: relation}, {relation: definition}))
    conditions = Conditions(draft, Names(draft.scope, Fields()), None, "a delete")
    with _refusing_depth():
        for index, entry in enumerate(where):
            conditions.add(_entry(entry, f"where.{index}", lambda name, path: _located(column_of(relation, name), path)))
    if (found := sum(one.size for one in draft.filters)) > most:
        raise bad(f"where: {most} conditions are allowed (--max-conditions), not {found}")
    if draft.never:
        return [Filter(ColumnRef(relation, definition.key[0]), "in", ())]
    return draft.filters


def read_condition_on(
    relation: str, definition: RelationDefinition, text: str, most: int, longest: int
) -> tuple[list[Condition], exp.Expr]:  # fmt: skip
    """Read a condition in SQL on the rows of one relation: at most so many comparisons, in at most so many bytes. Return it also as the
    tree. Problem `bad-parameter`, with the position."""
    source, draft = Text(f"{_WHERE}\n{text}"), Draft(Scope({relation: relation}, {relation: definition}))
    try:
        check_length(text, longest)
        with _refusing_depth():
            tree = _alone(text, _WHERE, "where")
            check_operators(tree, source)
            condition: exp.Expr = tree.args["where"].this
            for column in condition.find_all(exp.Column):
                if not column.args.get("table"):
                    column.set("table", identifier(relation))
            Conditions(draft, Names(draft.scope, source), None, "a condition on rows").add(condition)
        source.finish()
        if (found := sum(one.size for one in draft.filters)) > most:
            raise bad(f"{most} conditions are allowed (--max-conditions), not {found}")
    except Problem as problem:
        at = problem.extensions.get("position", {"line": 2, "column": 1})
        at = {"line": at["line"] - 1, "column": at["column"]} if at["line"] > 1 else {"line": 1, "column": 1}
        raised = bad_parameter("where", f"{_said(problem)} (line {at['line']}, column {at['column']})")
        raised.extensions["position"] = at
        raise raised from None
    return [Filter(ColumnRef(relation, definition.columns[0].name), "in", ())] if draft.never else draft.filters, condition


@contextmanager
def _refusing_depth() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise bad("the conditions are nested too deeply") from None


def _query(form: Any, at: str, known: Catalogue) -> exp.Expr:
    """`form`: an object with "from" or with one of `_OPERATIONS`; `at`: its path with a dot behind, "" for the definition itself."""
    made = next((_combined(form, field, at, known) for field in _OPERATIONS if field in form), None) or _select(form, at, known)
    named = [
        exp.CTE(this=_query(query, f"{at}with.{name}.", known), alias=exp.TableAlias(this=_located(identifier(name), f"{at}with.{name}")))
        for name, query in form.get("with", {}).items()
    ]
    made.set("with_", exp.With(expressions=named) if named else None)
    return made


def _combined(form: Any, field: str, at: str, known: Catalogue) -> exp.Expr:
    inputs = [_query(side, f"{at}{field}.{index}.", known) for index, side in enumerate(form[field])]
    return reduce(lambda left, right: _OPERATIONS[field](this=left, expression=right, distinct=field != "union_all"), inputs)


def _select(form: Any, at: str, known: Catalogue) -> exp.Select:
    where, outer = list[exp.Expr](), [("LEFT", f"{at}left.{index}.", part) for index, part in enumerate(form.get("left", ()))]
    outer += [("FULL", f"{at}full.", form["full"])] if form.get("full") else []
    for index, part in enumerate(form.get("exists", ())):
        where.append(exp.Exists(this=_joined(part, f"{at}exists.{index}.", known)))
    for index, part in enumerate(form.get("not_exists", ())):
        where.append(exp.Not(this=exp.Exists(this=_joined(part, f"{at}not_exists.{index}.", known))))
    select = _joined(form, at, known, where)
    for side, path, part in outer:
        select.append("joins", _outer_join(part, side, path, known))
    named = [named for one in (form, *(part for _, _, part in outer)) for named in one["from"].items() if isinstance(named[1], str)]
    there = {alias: known.nameable[name] for alias, name in named if name not in known.views and name in known.nameable}
    columns = {alias: [column.name for column in definition.columns] for alias, definition in there.items()}
    outputs = [_output(one, f"{at}select.{index}", columns) for index, one in enumerate(form.get("select", ()))]
    select.set("expressions", _grouped(form, at, select, outputs, columns) or [exp.Star()])
    if form.get("distinct"):
        select.set("distinct", exp.Distinct())
    if form.get("latest"):
        select.set("qualify", _latest(LatestRows.model_validate(form["latest"]), f"{at}latest"))
    return select


# --- FROM and WHERE


def _joined(form: Any, at: str, known: Catalogue, more: Sequence[exp.Expr] = ()) -> exp.Select:
    """Return `SELECT 1 FROM … WHERE …` with the relations and the conditions of the form, and more conditions."""
    first, *others = _tables(form, at, known)
    joins = [exp.Join(this=table) for table in others]
    conditions = [*_conditions(form, at, joins[-1] if joins else None), *more]
    if joins and joins[-1].method:
        keys = sum("as_of" not in entry for entry in form["join"])
        joins[-1].set("on", _all(exp.And, [*conditions[:keys], joins[-1].args["on"]]))
        conditions = conditions[keys:]
    where = exp.Where(this=_all(exp.And, conditions)) if conditions else None
    return exp.Select(expressions=[exp.Literal.number(1)], from_=exp.From(this=first), joins=joins, where=where)


def _outer_join(part: Any, side: str, at: str, known: Catalogue) -> exp.Join:
    tables = _tables(part, at, known)
    join = exp.Join(this=tables[0] if len(tables) == 1 else exp.Tuple(expressions=tables), side=side)
    conditions = _conditions(part, at, join)
    if join.method and len(tables) > 1:
        raise as_of_alone("other joins")
    if join.method and join.meta["of"] not in part["from"]:
        raise bad(f'{at}join: the first column of "as_of" must be of the relation in "from", whose rows are chosen')
    conditions += [join.args["on"]] if join.method else []
    join.set("on", _all(exp.And, conditions) if conditions else None)
    return join


def _tables(form: Any, at: str, known: Catalogue) -> list[exp.Table | exp.Subquery]:
    tables = list[exp.Table | exp.Subquery]()
    for alias, of in form["from"].items():
        path = f"{at}from.{alias}"
        table = exp.Table(this=identifier(of)) if isinstance(of, str) else exp.Subquery(this=_query(of, f"{path}.", known))
        if of != alias:  # as in SQL, where it is left out then
            table.set("alias", exp.TableAlias(this=identifier(alias)))
        tables.append(_located(table, path))
    return tables


def _conditions(form: Any, at: str, join: exp.Join | None) -> list[exp.Expr]:
    """Return the conditions of `join` and `where`, except `as_of`, which becomes the ON of `join`."""
    made = list[exp.Expr]()
    for index, entry in enumerate(form.get("join", ())):
        path = f"{at}join.{index}"
        if "as_of" in entry:
            _choose(entry["as_of"], f"{path}.as_of", join)
        else:
            made.append(_located(_condition(entry, path), path))
    return made + [_entry(entry, f"{at}where.{index}", _column) for index, entry in enumerate(form.get("where", ()))]


def _choose(as_of: Sequence[str], path: str, join: exp.Join | None) -> None:
    of, op, point = as_of
    if op not in ("<", "<=", ">", ">="):
        raise bad(f'{path}: {as_json(op)} is not a comparison: use one of "<", "<=", ">", ">="')
    if join is None or join.side == "FULL":
        raise as_of_alone("EXISTS, NOT EXISTS or an outer join")
    if join.method:
        raise bad(f'{path}: "as_of" can be used only once in join')
    left, right = _column(of, f"{path}.0"), _column(point, f"{path}.2")
    join.set("method", "ASOF")
    join.set("on", _located(_COMPARED[op](this=left, expression=right), path))
    join.meta["of"] = left.table


def _condition(entry: Any, path: str) -> exp.Expr:
    (kind,) = entry.keys() - {"distance"}
    pair, path = entry[kind], f"{path}.{kind}"
    if kind == "cross":
        product = exp.Anonymous(this=kind, expressions=[identifier(alias) for alias in pair])
        product.meta["product"] = True
        return product
    if kind == "overlaps":
        return exp.Anonymous(this=kind, expressions=_intervals(pair, path))
    left, right = (_summed(one, f"{path}.{index}") for index, one in enumerate(pair))
    if kind == "within":
        return exp.LTE(this=exp.Abs(this=exp.Sub(this=left, expression=right)), expression=_constant(entry["distance"], path))
    return _JOINED[kind](this=left, expression=right)


def _summed(one: Any, path: str) -> exp.Expr:
    if isinstance(one, str):
        return _column(one, path)
    return exp.Add(this=_column(one["column"], f"{path}.column"), expression=_constant(one["plus"], f"{path}.plus"))


def _entry(entry: Any, path: str, column: Callable[[str, str], exp.Expr], over_groups: bool = False) -> exp.Expr:
    """Return an entry of `where` or `having`. `column`: from the name of a column and its path."""
    if "not" in entry:
        return _located(exp.Not(this=_entry(entry["not"], f"{path}.not", column, over_groups)), path)
    for field, kind in _CONNECTED.items():
        if field in entry:
            cases = [_entry(one, f"{path}.{field}.{index}", column, over_groups) for index, one in enumerate(entry[field])]
            return _located(exp.Paren(this=_all(kind, cases)), path)
    if "expression" in entry:
        return _expression(entry["expression"], f"{path}.expression", over_groups)
    return _located(_comparison(entry, path, column(entry["column"], f"{path}.column")), path)


def _comparison(entry: Any, path: str, left: exp.Expr) -> exp.Expr:
    op, value = entry["op"], entry.get("value")
    if op in ("is_null", "not_null"):
        if value is not None:
            raise bad(f"{path}.value: {op} takes no value")
        test = exp.Is(this=left, expression=exp.Null())
        return test if op == "is_null" else exp.Not(this=test)
    if "value" not in entry:
        raise bad(f'{path}: the operator {op} needs a "value"')
    if op == "in":
        if not isinstance(value, list):
            raise bad(f"{path}.value: the operator in takes a list of values")
        return exp.In(this=left, expressions=[_constant(one, f"{path}.value.{index}") for index, one in enumerate(value)])
    if op == "like" and not isinstance(value, str | None):
        raise bad(f"{path}.value: the operator like takes a string")
    return (exp.Like if op == "like" else _COMPARED[op])(this=left, expression=_constant(value, f"{path}.value"))


# --- SELECT and what follows it


def _output(entry: Any, path: str, columns: _Columns) -> exp.Expr:
    if isinstance(entry, str):
        return _column_as(entry, path, columns)
    (function,) = entry.keys() - {"as"}
    if function == "expression":
        made = _expression(entry[function], f"{path}.{function}")
    else:
        made = _called(exp.Anonymous(this=function, expressions=_intervals(entry[function], f"{path}.{function}")), function)
    return _named(made, entry.get("as"), path)


def _parsed(text: str, path: str, words: str, clause: str) -> exp.Select:
    """Return a SELECT that has nothing but this clause, of which the text is what stands behind these words."""
    try:
        return _alone(text, words, clause)
    except RecursionError:
        raise bad(f"{path}: nested too deeply") from None
    except Problem as problem:  # its position is in another text
        raise bad(f"{path}: {_said(problem)}") from None


def _alone(text: str, words: str, clause: str) -> exp.Select:
    tree = parse(f"{words}\n{text}", Dialect, "an expression is one")
    others = [part for part, value in tree.args.items() if value and part not in ("expressions", clause)]
    if not isinstance(tree, exp.Select) or others or len(tree.expressions) != 1 or isinstance(tree.expressions[0], exp.Alias):
        raise bad(f"{text[:200]!r} is not one expression")
    return tree


def _said(problem: Problem) -> str:
    """Return what a problem says, without the position."""
    said, _, whole = str(problem.detail).rpartition(" (line ")
    return said or whole


def _expression(text: str, path: str, over_groups: bool = False) -> exp.Expr:
    return _checked(_parsed(text, path, "SELECT", "expressions").expressions[0], path, over_groups)


def _checked(made: exp.Expr, path: str, over_groups: bool = False) -> exp.Expr:
    _located(made, path)
    if not over_groups and any(not isinstance(node.parent, exp.Window) for node in made.find_all(exp.AggFunc)):
        raise Fields().placed(unsupported(f"{made.sql(Dialect)} in an expression", 'write aggregates in "aggregate"'), made)
    return made


def _grouped(form: Any, at: str, select: exp.Select, outputs: list[exp.Expr], columns: _Columns) -> list[exp.Expr]:
    """Return the SELECT list of a view that may have groups, after adding GROUP BY and HAVING to `select`."""
    covered = any(len(one.get("coverage", ())) == 1 for one in form.get("select", ()) if isinstance(one, dict))
    if covered and len(outputs) > 1:
        raise bad(f'{at}select: "coverage" of one interval must be the only entry: the columns of "group" precede it')
    group, aggregate, having = (form.get(field) or [] for field in ("group", "aggregate", "having"))
    if outputs and not covered and (group or aggregate or having):
        raise bad(f'{at}select cannot be used with groups: their rows are the columns of "group", then those of "aggregate"')
    keys = [_key(one, f"{at}group.{index}", columns) for index, one in enumerate(group)]
    aggregates = [
        _named(_aggregate(one, f"{at}aggregate.{index}"), one.get("as"), f"{at}aggregate.{index}") for index, one in enumerate(aggregate)
    ]
    if keys:
        select.set("group", exp.Group(expressions=[one.unalias().copy() for one in keys]))
    if having:
        own = [*keys, *aggregates]
        names = told_apart([(one.alias or name_of(one), isinstance(one, exp.Alias)) for one in own])
        shown = {name: one.unalias() for name, one in zip(names, own, strict=True)}
        conditions = [_entry(one, f"{at}having.{index}", partial(_shown, shown), True) for index, one in enumerate(having)]
        select.set("having", exp.Having(this=_all(exp.And, conditions)))
    return [*keys, *outputs, *aggregates]


def _shown(shown: dict[str, exp.Expr], name: str, path: str) -> exp.Expr:
    """Return what a column of the groups is, by its name."""
    if name not in shown:
        there = ", ".join(shown) or "none: name them in group and aggregate"
        raise bad(f"{path}: the groups have no column {as_json(name)}; they have {there}")
    return _located(shown[name].copy(), path)


def _key(entry: Any, path: str, columns: _Columns) -> exp.Expr:
    if isinstance(entry, str):
        return _column_as(entry, path, columns)
    if "expression" in entry:
        return _named(_expression(entry["expression"], f"{path}.expression"), entry.get("as"), path)
    trunc = exp.TimestampTrunc(this=_column(entry["of"], f"{path}.of"), unit=exp.var(entry["trunc"]))
    return _named(_called(trunc, "date_trunc"), entry.get("as"), path)


def _aggregate(entry: Any, path: str) -> exp.Expr:
    (function,) = entry.keys() - {"as", "filter"}
    of, inner = entry[function], f"{path}.{function}"
    if function == "expression":
        return _expression(of, inner, over_groups=True)
    if isinstance(of, str):
        value: exp.Expr = exp.Star() if (function, of) == ("count", "*") else _column(of, inner)
    elif "duration" in of:
        value = exp.Anonymous(this="duration", expressions=_intervals(of["duration"], f"{inner}.duration"))
    else:
        value = _expression(of["expression"], f"{inner}.expression")
    name = function.removesuffix("_distinct")
    made = _called(_FUNCTIONS[name](this=value if name == function else exp.Distinct(expressions=[value])), name)
    if not entry.get("filter"):
        return made
    conditions = [_entry(one, f"{path}.filter.{index}", _column) for index, one in enumerate(entry["filter"])]
    return exp.Filter(this=made, expression=exp.Where(this=_all(exp.And, conditions)))


def _latest(form: LatestRows, path: str) -> exp.Qualify:
    if isinstance(form.order, str):
        order = [exp.Ordered(this=_column(form.order, f"{path}.order"), nulls_first=False)]
    else:
        at = f"{path}.order.expression"
        order = _parsed(form.order.expression, at, "SELECT 1 ORDER BY", "order").args["order"].expressions
        for one in order:
            _checked(one.this, at)
    for one in order:
        if one.args.get("desc") is None:
            one.set("desc", form.descending)
    by = [_value(one, f"{path}.by.{index}") for index, one in enumerate(form.by)]
    numbered = exp.Window(this=exp.RowNumber(), partition_by=by, order=exp.Order(expressions=order), over="OVER")
    return exp.Qualify(this=_located(exp.LTE(this=numbered, expression=exp.Literal.number(form.rows)), path))


def _value(of: str | OfExpression, path: str) -> exp.Expr:
    return _column(of, path) if isinstance(of, str) else _expression(of.expression, f"{path}.expression")


# --- names and constants


def _located(node: _Node, path: str) -> _Node:
    node.meta["path"] = path
    return node


def _all(kind: type[exp.Connector], conditions: Sequence[exp.Expr]) -> exp.Expr:
    return reduce(lambda left, right: kind(this=left, expression=right), conditions)


def _split(text: str, what: str, path: str) -> tuple[str, str]:
    """Split `alias.name` at the first dot; a column name contains no dot."""
    alias, dot, name = text.partition(".")
    if not dot:
        raise bad(f'{path}: {as_json(text)} has no alias: write "alias.{what}"')
    return alias, name


def _column(text: str, path: str, what: str = "column") -> exp.Column:
    return _located(column_of(*_split(text, what, path)), path)


def _intervals(texts: Sequence[str], path: str) -> list[exp.Column]:
    return [_column(text, f"{path}.{index}", "interval") for index, text in enumerate(texts)]


def _called(node: _Node, name: str) -> _Node:
    node.meta[CALLED] = name
    return node


def _named(node: exp.Expr, name: str | None, path: str) -> exp.Expr:
    if name is None:
        return node if "path" in node.meta else _located(node, path)
    return _located(exp.Alias(this=node, alias=exp.Identifier(this=name, quoted=True)), path)


def _column_as(text: str, path: str, columns: _Columns) -> exp.Expr:
    """Read `alias.column`, or `alias.column as name`; a column whose own name contains an "as" is found first."""
    alias, name = _split(text, "column", path)
    known = columns.get(alias, ())
    for match in reversed(list(_AS.finditer(name))) if name not in known else ():
        before, given = name[: match.start()], name[match.end() :].strip()
        for column in (before, before.rstrip()):  # a column's name may end with a blank
            if column in known:
                return _named(column_of(alias, column), given, path)
    return _located(column_of(alias, name if name in known else _AS.split(name)[0].rstrip()), path)


def _constant(value: Any, path: str) -> exp.Expr:
    if value is None:
        return exp.Null()
    literal = exp.Literal(this=value if isinstance(value, str) else as_json(value), is_string=isinstance(value, str))
    literal.meta["value"] = value
    return _located(literal, path)
