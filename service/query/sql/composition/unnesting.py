"""Subqueries in expressions, and those in EXISTS and IN that are more than a join, as joins with stored queries.

    a.x < (SELECT avg(b.x) FROM b WHERE b.k = a.k)     LEFT JOIN (SELECT b.k AS k0, avg(b.x) AS a0 FROM b GROUP BY b.k) AS s ON s.k0 = a.k …
    a.x < (SELECT avg(b.x) FROM b)                     CROSS JOIN (SELECT avg(b.x) AS a0 FROM b) AS s …  and a.x < s.a0
    EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR …      (SELECT count(*) FROM b WHERE b.k = a.k) > 0 OR …
    a.x NOT IN (SELECT b.x FROM b)                     NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)
                                                       AND (a.x IS NOT NULL AND no b.x is null OR there is no b)
    a.x > ALL (SELECT b.x FROM b)                      NOT EXISTS (SELECT 1 FROM b WHERE NOT a.x > b.x OR one of the two is null), or else
                                                       (SELECT a.x > max(b.x) AND (count(*) = count(b.x) OR NULL) OR count(*) = 0 FROM b)
    EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS (…))
                                        EXISTS (SELECT 1 FROM (SELECT b.k AS k0 FROM b WHERE EXISTS (…)) AS s WHERE s.k0 = a.k)
    EXISTS (SELECT 1 FROM b WHERE EXISTS (… a.x …))
                                        EXISTS (SELECT 1 FROM b CROSS JOIN a AS a_2 WHERE EXISTS (… a_2.x …) AND a_2.id = a.id)

A subquery that finds no row of a key has no row in the second table: its aggregates are null, and its counts 0. All columns have an alias
(`composing`). Source: Kim, On Optimizing an SQL-like Nested Query (1982), with outer joins for what he counts wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from sqlglot import exp

from livejoin.wire.schema import RelationDefinition
from service.errors import Problem, unsupported
from service.query.assembly import unused
from service.query.latest import is_latest
from service.query.sql.columns import own_columns
from service.query.sql.composition.beneath import Storing, aggregates_in, is_apart, is_of, named, set_beneath, unused_aliases
from service.query.sql.composition.merging import add_where, columns_in, condition_of, conjuncts, first_of, parts_of, queries_of, set_apart
from service.query.sql.groups import is_grouped
from service.query.sql.names import Source, alias_of, column_of, fold, identifier, sql_of, table_of, tables_of
from service.query.sql.terms import COMPARED

Relations = Mapping[str, RelationDefinition]
_AGGREGATE = "write an aggregate, such as max(x), of all rows that its WHERE finds, or ORDER BY … LIMIT 1"
_EQUAL = "in it, only equalities with columns of the query around it"
_ONE = exp.Limit(expression=exp.Literal.number(1))
_NEVER_NULL = (*COMPARED, exp.Between, exp.Like)


def has_nested(tree: exp.Expr) -> bool:
    """Return whether some subquery of a query has to be unnested."""
    return any(map(_is_unnested, tree.find_all(exp.Query)))


def _is_unnested(node: exp.Expr) -> bool:
    if isinstance(node, exp.Select):
        return is_apart(node) or (_is_inside(node) and (is_nested(node) or _is_written_out(node)))
    return _is_scalar(node) or (isinstance(node, exp.SetOperation) and _is_inside(node))


def is_nested(query: exp.Expr) -> bool:
    """Return whether a query in EXISTS or IN is more than a join with conditions."""
    if not isinstance(query, exp.Select):
        return True
    is_outer = any(join.side or join.method for join in query.args.get("joins") or ())
    is_chosen = is_latest(query) or bool(query.args.get("group") or query.args.get("having"))
    return is_outer or is_chosen or aggregates_in(query.expressions) != [] or any(True for _ in queries_of(query))


def unnest(
    select: exp.Select, store: Storing, taken: Collection[str], source: Source, relations: Relations, derived: Collection[str]
) -> None:  # fmt: skip
    """Write joins in place of the subqueries of a SELECT that need it, in place. taken: aliases that are used elsewhere. relations: those
    that FROM may name. derived: aliases of subqueries that are yet to be placed. Notes problems `unsupported-query`."""
    names = unused_aliases(select, taken)
    _move_from_on(select, source)
    if has_queries_over_groups(select):
        set_beneath(select, store, next(names), ("order",), True)

    def queries() -> list[exp.Query]:  # one that reads what is further out is left to the query there
        own = {*map(alias_of, tables_of(select))}
        return [one for one in queries_of(select) if _read_by([one]) <= own]

    for query in queries():
        with source.noting(query):
            if _is_scalar(query) or is_nested(query.unnest()):
                keys = _bring_around(query.unnest(), select, relations, derived)
                if not _is_scalar(query):
                    query.unnest().replace(_apart(query.unnest(), store, next(names), not isinstance(query.parent, exp.Exists), keys))
    for one in [query.unnest() for query in queries() if not _is_scalar(query)]:
        with source.noting(one):
            if isinstance(one, exp.Select) and _is_written_out(one):
                _write_out(select, one, relations, lambda query: _is_some(select, query, store, names, relations, derived))
    for query in queries():
        with source.noting(query):
            if _is_scalar(query):
                _join(select, query, store, next(names))


def _read_by(queries: Iterable[exp.Expr]) -> set[str]:
    """Return the aliases that queries read, and do not have."""
    return {column.text("table") for query in queries for column, _ in columns_in(query)}


def reads_deep(select: exp.Select) -> bool:
    """Return whether an alias of FROM is read two levels deeper, or in a set operation."""
    own = {*map(alias_of, tables_of(select))}
    return any(not own.isdisjoint(_read_deep(query.unnest())) for query in queries_of(select))


def _read_deep(query: exp.Expr) -> set[str]:
    """Return the aliases around a query that are read where they cannot be: in queries in its clauses, or SELECTs of a set operation."""
    if isinstance(query, exp.Select):
        return _read_by(queries_of(query)) - {*map(alias_of, tables_of(query))}
    return _read_by(_selects_of(query))


def _selects_of(query: exp.Expr) -> list[exp.Select]:
    return [one for one in query.walk(prune=lambda one: isinstance(one, exp.Select)) if isinstance(one, exp.Select)]


def _bring_around(query: exp.Expr, around: exp.Select, relations: Relations, derived: Collection[str]) -> list[exp.Expr]:
    """Join a query with the aliases around it that are read too deep in it, in place, and compare their keys with those around it; each
    SELECT of a set operation shows them, as its last columns. Return those around it."""
    keys = list[exp.Expr]()
    for alias in sorted(_read_deep(query) & {*map(alias_of, tables_of(around))}):
        relation = next(fold(table.this) for table in tables_of(around) if alias_of(table) == alias)
        key = [] if alias in derived or any(join.side for join in around.args.get("joins") or ()) else relations[relation].key
        for one in _selects_of(query):
            if not key or (one is not query and (is_latest(one) or is_grouped(one))):
                what = f"a column of {alias} so deep in a subquery"
                raise unsupported(what, "define a view of the join of the two relations that are compared there")
            name = unused(alias, {*map(alias_of, around.find_all(exp.Table))})
            for column in [column for column, _ in columns_in(one) if column.text("table") == alias]:
                column.set("table", identifier(name))
            one.append("joins", exp.Join(this=table_of(relation, name), kind="CROSS"))
            for number, part in enumerate(key, len(keys)):
                if one is query:
                    add_where(one, exp.EQ(this=column_of(name, part), expression=column_of(alias, part)))
                else:
                    one.append("expressions", named(column_of(name, part), f"key {number}"))
        keys += [column_of(alias, part) for part in key]
    return keys


def _move_from_on(select: exp.Select, source: Source) -> None:
    """Move conditions with queries from ON to WHERE, in place."""
    joins = select.args.get("joins") or []
    for index, join in enumerate(joins):
        conditions = conjuncts(join.args.get("on"))
        moved = [one for one in conditions if one.find(exp.Query)]
        is_inner = not (join.side or join.method) and join.kind in ("", "INNER")
        if moved and (not is_inner or any(one.side in ("RIGHT", "FULL") for one in joins[index:])):
            with source.noting(moved[0]):
                raise unsupported("a subquery in this ON", "join a subquery that has it in its WHERE")
        if moved:
            left = [one for one in conditions if not any(one is other for other in moved)]
            join.set("on", exp.and_(*left, copy=False) if left else exp.Boolean(this=True))
            for one in moved:
                add_where(select, one)


def _holder(query: exp.Expr) -> exp.Expr:
    """Return the EXISTS, IN, ANY or ALL around a query."""
    found = query.parent.parent if isinstance(query.parent, exp.Subquery) else query.parent
    assert found is not None
    return found


def _place(holder: exp.Expr) -> tuple[exp.Expr, bool, bool]:
    """Return a condition with NOT and the parentheses around it, whether it is negated, and whether WHERE or ON combine it by AND alone."""
    node, is_negated = holder, False
    while isinstance(node.parent, exp.Paren | exp.Not):
        node = node.parent
        is_negated ^= isinstance(node, exp.Not)
    around = node.parent
    while isinstance(around, exp.And | exp.Paren):
        around = around.parent
    return node, is_negated, isinstance(around, exp.Where | exp.Join) and isinstance(around.parent, exp.Select)


def _values(node: exp.Expr) -> list[exp.Expr]:
    """Return the values before IN."""
    value = node.this.unnest()
    return [one.unnest() for one in (value.expressions if isinstance(value, exp.Tuple) else [value])]


def _is_written_out(query: exp.Select) -> bool:
    """Return whether a SELECT in EXISTS or IN is not one of the conditions that AND combines, compares nothing, expressions, or columns of
    one alias in it and around it, or nulls matter."""
    holder = _holder(query)
    _, is_negated, is_alone = _place(holder)
    if not isinstance(holder, exp.In):
        return not is_alone or not any(_read_by([query]))
    compared = [*_values(holder), *(one.unalias().unnest() for one in query.expressions)]
    own = {*map(alias_of, tables_of(query))}
    is_plain = all(isinstance(one, exp.Column) for one in compared) and not any(one.text("table") in own for one in _values(holder))
    return not is_alone or is_negated or not is_plain


def _write_out(select: exp.Select, query: exp.Select, relations: Relations, is_some: Callable[[exp.Select], exp.Expr]) -> None:
    """Write EXISTS or IN as an expression, or IN as EXISTS, in place. is_some: whether a query has rows."""
    holder = _holder(query)
    node, is_negated, is_alone = _place(holder)
    set_apart(query, {*map(alias_of, tables_of(query))} & {*map(alias_of, tables_of(select))}, select)
    if isinstance(holder, exp.Exists):
        holder.replace(is_some(query))
        return
    compared = holder if isinstance(holder, exp.In) else holder.parent
    assert compared is not None
    values, shown = _values(compared), [one.unalias().unnest() for one in query.expressions]
    if not isinstance(holder, exp.In):
        if not len(values) == len(shown) == 1 or type(compared) not in COMPARED or compared.expression is not holder:
            raise unsupported(sql_of(compared), f"write x > {holder.key.upper()} (SELECT y …), of one column")
        node, is_negated, is_alone = _place(compared)
        compared.replace(_compared(compared, values[0], shown[0], query, is_alone and not is_negated, select, relations))
        return
    if len(values) != len(shown):  # the reader refuses it
        return
    is_null = [value for value in values if _may_be_null(value, select, relations)]
    shows_null = [one for one in shown if _may_be_null(one, query, relations)]
    is_plain = is_alone and not is_negated
    if is_alone and all(isinstance(one, exp.Column) for one in (*values, *shown)) and (is_plain or not is_null + shows_null):
        return
    if len(values) > 1 and not is_plain and is_null + shows_null:
        raise unsupported(f"NOT IN of {len(values)} columns that may be null", "write NOT EXISTS (SELECT … WHERE …)")
    found = query.copy()
    for value, one in zip(values, shown, strict=True):
        add_where(found, exp.EQ(this=one.copy(), expression=value.copy()))
    found.set("expressions", [exp.Literal.number(1)])
    conditions = [exp.Exists(this=found)]
    if is_alone and is_negated:  # also where one of the two is null
        one = exp.Literal.number(1)
        sides = (_one(values[0], one), _one(shown[0], None), shows_null), (_one(values[0], None), _one(shown[0], one.copy()), is_null)
        for left, right, found_null in sides:
            if found_null:
                other = query.copy()
                add_where(other, exp.EQ(this=right, expression=left))
                conditions.append(exp.Exists(this=other))
        node.replace(exp.and_(*(exp.Not(this=one) for one in conditions), copy=False))
    elif is_alone:
        holder.replace(conditions[0])
    else:
        unknown = list[exp.Expr]()
        if shows_null:
            nulls = query.copy()
            add_where(nulls, exp.Is(this=shown[0].copy(), expression=exp.Null()))
            unknown.append(is_some(nulls))
        if is_null:
            unknown.append(exp.and_(exp.Is(this=values[0].copy(), expression=exp.Null()), is_some(query), copy=False))
        maybe = [exp.and_(exp.Null(), exp.Paren(this=one), copy=False) for one in unknown]
        holder.replace(exp.Paren(this=exp.or_(is_some(found), *maybe, copy=False)))


def _compared(
    node: exp.Expr, value: exp.Expr, shown: exp.Expr, query: exp.Select, is_condition: bool, select: exp.Select, relations: Relations
) -> exp.Expr:  # fmt: skip
    """Return a comparison with ALL or ANY: as EXISTS, if it is a condition of two columns; or else by aggregates, in which nothing is in
    the place of what is null, and of no rows."""
    is_all, is_equal = isinstance(node.expression, exp.All), isinstance(node, exp.EQ | exp.NEQ)
    made = query.copy()
    made.set("distinct", None)
    if is_condition and not is_equal and isinstance(value, exp.Column) and isinstance(shown, exp.Column):
        condition = type(node)(this=value.copy(), expression=shown.copy())
        nulls = [one for one, of in ((value, select), (shown, query)) if is_all and _may_be_null(one, of, relations)]
        is_null = [exp.Is(this=one.copy(), expression=exp.Null()) for one in nulls]
        add_where(made, exp.Paren(this=exp.or_(exp.Not(this=condition), *is_null, copy=False)) if is_all else condition)
        made.set("expressions", [exp.Literal.number(1)])
        return exp.Not(this=exp.Exists(this=made)) if is_all else exp.Exists(this=made)
    bounds = (exp.Min, exp.Max) if is_equal else (exp.Min,) if is_all == isinstance(node, exp.LT | exp.LTE) else (exp.Max,)
    combined, rows = exp.and_ if is_all else exp.or_, exp.Count(this=exp.Star())
    is_so = combined(*(type(node)(this=value.copy(), expression=bound(this=shown.copy())) for bound in bounds), copy=False)
    is_none = exp.EQ(this=rows, expression=exp.Literal.number(0))
    has_nulls = exp.GT(this=rows.copy(), expression=exp.Count(this=shown.copy()))
    if is_all:
        is_so = exp.or_(exp.and_(is_so, exp.or_(exp.Not(this=has_nulls), exp.Null())), is_none)
    else:
        is_so = exp.or_(exp.and_(is_so, exp.Not(this=is_none)), exp.and_(has_nulls, exp.Null()))
    made.set("expressions", [exp.Paren(this=is_so)])
    return exp.Paren(this=exp.Subquery(this=made))


def _one(value: exp.Expr, default: exp.Expr | None) -> exp.Expr:
    """Return 1 where the value is null, and the default elsewhere."""
    is_null = exp.Is(this=value.copy(), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=is_null, true=exp.Literal.number(1))], default=default)


def _is_some(
    select: exp.Select, query: exp.Select, store: Storing, names: Iterator[str], relations: Relations, derived: Collection[str]
) -> exp.Expr:  # fmt: skip
    """Return whether a query has rows, as an expression: by a count of each key, or else by the rows around it for which it has some."""
    counted, kept = query.copy(), exp.Exists(this=query.copy())
    try:
        _keys(counted, _split(counted))
    except Problem:
        around = [table for table in tables_of(select) if alias_of(table) in {one.text("table") for one, _ in columns_in(kept)}]
        key = relations[fold(around[0].this)].key if len(around) == 1 and alias_of(around[0]) not in derived else []
        if not key or any("." in one for one in key) or any(join.side for join in select.args.get("joins") or ()):
            raise
        alias, name = next(names), alias_of(around[0])
        outputs = [named(column_of(name, one), f"k{number}") for number, one in enumerate(key)]
        table = table_of(store(exp.Select(expressions=outputs, from_=exp.From(this=around[0].copy()), where=exp.Where(this=kept))), alias)
        select.append("joins", _left_join(table, alias, [column_of(name, one) for one in key]))
        return exp.Not(this=exp.Is(this=column_of(alias, "k0"), expression=exp.Null()))
    counted = query.copy()
    counted.set("expressions", [exp.Count(this=exp.Star())])
    counted.set("distinct", None)
    return exp.GT(this=exp.Subquery(this=counted), expression=exp.Literal.number(0))


def _may_be_null(value: exp.Expr, select: exp.Select, relations: Relations) -> bool:
    """Return whether an expression over the aliases of a SELECT, or of one around it, may be null in a row that meets its WHERE."""
    tables = {alias_of(table): fold(table.this) for table in tables_of(select)}
    if not isinstance(value, exp.Column) or value.text("table") not in tables or any(join.side for join in select.args.get("joins") or ()):
        return not isinstance(value, exp.Literal)
    column = next(one for one in relations[tables[value.text("table")]].columns if one.name == value.name)
    return column.nullable and not any(_is_null_excluded(value, one) for one in conjuncts(condition_of(select)))


def _is_null_excluded(value: exp.Expr, condition: exp.Expr) -> bool:
    if isinstance(condition, exp.Not):
        return isinstance(condition.this, exp.Is) and condition.this == exp.Is(this=value, expression=exp.Null())
    right = condition.args.get("expression")  # of no row, a comparison with ALL is true
    return isinstance(condition, _NEVER_NULL) and not isinstance(right, exp.All) and value in (condition.this, right)


_INSIDE = (exp.Exists, exp.In, exp.Any, exp.All)
_ELSEWHERE = (exp.From, exp.Join, exp.Tuple, *_INSIDE, exp.SetOperation, exp.Subquery, exp.CTE, exp.With)


def _is_scalar(node: exp.Expr) -> bool:
    return isinstance(node, exp.Subquery) and node.parent is not None and not isinstance(node.parent, _ELSEWHERE)


def _is_inside(node: exp.Expr) -> bool:
    return isinstance(node.parent.parent if isinstance(node.parent, exp.Subquery) else node.parent, _INSIDE)


def _split(select: exp.Select) -> list[exp.Expr]:
    """Leave the conditions on own aliases alone in WHERE; return the others. Problem `unsupported-query` if something else reads what is
    outside."""
    own, conditions = {*map(alias_of, tables_of(select))}, conjuncts(condition_of(select))
    others = [one for one in conditions if not is_of(one, own)]
    select.set("where", None)
    for one in conditions:
        if not any(one is other for other in others):
            add_where(select, one.copy())
    for node in (column for part in parts_of(select) for column in own_columns(part)):
        if node.text("table") not in own:
            raise unsupported(f"{sql_of(node)} of another query in a subquery", _EQUAL)
    return others


def _keys(select: exp.Select, others: Sequence[exp.Expr]) -> list[tuple[exp.Expr, exp.Expr]]:
    """Return pairs of an expression over own aliases, and one over those of the query around, that are equal."""
    own, pairs = {*map(alias_of, tables_of(select))}, list[tuple[exp.Expr, exp.Expr]]()
    for one in others:
        sides = [one.this, one.expression] if isinstance(one, exp.EQ) else []
        inside = [side for side in sides if (of := {column.text("table") for column in own_columns(side)}) and of <= own]
        outside = [side for side in sides if own.isdisjoint(column.text("table") for column in own_columns(side))]
        if len(inside) != 1 or len(outside) != 1:
            raise unsupported(f"{sql_of(one)} in a subquery", _EQUAL)
        pairs.append((inside[0], outside[0]))
    return pairs


def _join(select: exp.Select, query: exp.Expr, store: Storing, alias: str) -> None:
    """Write a join, and its columns in place of a subquery in an expression."""
    inner = query.unnest().copy()
    is_first = inner.args.get("order") is not None and inner.args.get("limit") == _ONE
    refused = [name for name in ("group", "having", "distinct", "limit", "qualify") if inner.args.get(name)][is_first:]
    if not isinstance(inner, exp.Select) or refused or len(inner.expressions) != 1 or is_first == bool(aggregates_in(inner.expressions)):
        raise unsupported(f"{sql_of(query)} in an expression", _AGGREGATE)
    value = inner.expressions[0].unalias().copy()
    whole = exp.Paren(this=value)
    aggregates = [value] if is_first else aggregates_in([whole])
    inner.set("expressions", [one.copy() for one in aggregates])
    own = {*map(alias_of, tables_of(inner))}
    beside = [one for one in whole.walk(prune=lambda one: any(one is other for other in aggregates)) if isinstance(one, exp.Column)]
    if not is_first and not own.isdisjoint(one.text("table") for one in beside):
        raise unsupported(f"{sql_of(query)} in an expression", _AGGREGATE)
    keys = _keys(inner, _split(inner))
    if is_first and not keys:
        raise unsupported(f"{sql_of(query)} in an expression", "compare a column with one of the query around it in its WHERE")
    outputs = [named(own, f"k{number}") for number, (own, _) in enumerate(keys)]
    inner.set("expressions", [*outputs, *(named(one, f"a{number}") for number, one in enumerate(aggregates))])
    order = inner.args.get("order")
    inner.set("order", None)
    if is_first:
        rank = exp.Window(this=exp.RowNumber(), partition_by=[own.copy() for own, _ in keys], order=order)
        inner.set("limit", None)
        inner.set("qualify", exp.Qualify(this=exp.EQ(this=rank, expression=exp.Literal.number(1))))
    elif keys:
        inner.set("group", exp.Group(expressions=[own.copy() for own, _ in keys]))
    for number, one in enumerate(aggregates):
        column: exp.Expr = column_of(alias, f"a{number}")
        if keys and isinstance(one.find(exp.AggFunc), exp.Count):
            column = exp.Coalesce(this=column, expressions=[exp.Literal.number(0)])
        one.replace(column)
    table = table_of(store(inner), alias)
    query.replace(whole)
    outside = [outer.copy() for _, outer in keys]
    select.append("joins", _left_join(table, alias, outside) if keys else exp.Join(this=table, kind="CROSS"))


def _left_join(table: exp.Table, alias: str, values: Sequence[exp.Expr]) -> exp.Join:
    """Return the join with a stored query of which k0, k1, … equal these values."""
    equal = [exp.EQ(this=column_of(alias, f"k{number}"), expression=value) for number, value in enumerate(values)]
    return exp.Join(this=table, side="LEFT", on=exp.and_(*equal, copy=False))


def _apart(query: exp.Expr, store: Storing, alias: str, is_in: bool, keys: Sequence[exp.Expr]) -> exp.Select:
    """Return a SELECT from a stored query, for EXISTS or IN. keys: as `_bring_around`."""
    if not isinstance(query, exp.Select):
        assert isinstance(query, exp.Query)
        columns = [column_of(alias, one.alias_or_name) for one in first_of(query).expressions]
        made = exp.Select(expressions=columns[: len(columns) - len(keys)], from_=exp.From(this=table_of(store(query), alias)))
        for column, key in zip(columns[len(columns) - len(keys) :], keys, strict=True):
            add_where(made, exp.EQ(this=column, expression=key))
        return made
    inner = query.copy()
    others = _split(inner)
    is_grouped = bool(aggregates_in(inner.expressions) or inner.args.get("group") or inner.args.get("having"))
    _, is_negated, is_alone = _place(_holder(query))
    value = inner.expressions[0].unalias()
    is_null = is_in and is_alone and not is_negated and isinstance(value, exp.AggFunc | exp.Filter) and not value.find(exp.Count)
    if is_grouped and not inner.args.get("group") and not is_null and (others or not is_in):
        instead = "such an aggregate returns a row even if no row matches: compare it by = or <>, write SELECT 1 to test whether one does, "
        instead += "or GROUP BY"
        raise unsupported(f"{sql_of(value)} in EXISTS or IN, without GROUP BY", instead)
    if is_latest(inner) and others:
        raise unsupported(f"{sql_of(others[0])} with DISTINCT ON, QUALIFY or LIMIT in a subquery", "define a view of the rows chosen")
    shown = [one.unalias() for one in inner.expressions] if is_in else []
    own = {*map(alias_of, tables_of(inner))}
    read = [key for key, _ in _keys(inner, others)] if is_grouped else [
        column for one in others for column in own_columns(one) if column.text("table") in own
    ]
    read = list({sql_of(one): one for one in read}.values())
    names = {sql_of(one): f"k{number}" for number, one in enumerate(read)}
    outputs = [*(named(one, f"c{number}") for number, one in enumerate(shown)), *(named(one, names[sql_of(one)]) for one in read)]
    inner.set("expressions", outputs or [named(exp.Count(this=exp.Star()) if is_grouped else exp.Literal.number(1), "c0")])
    if not is_latest(inner):
        inner.set("order", None)
    if is_grouped and read:
        group = inner.args.get("group")
        inner.set("group", exp.Group(expressions=[*(group.expressions if group else ()), *(one.copy() for one in read)]))
    made = exp.Select(
        expressions=[column_of(alias, f"c{number}") for number in range(len(shown))] or [exp.Literal.number(1)],
        from_=exp.From(this=table_of(store(inner), alias)),
    )
    for condition in others:
        changed = exp.Paren(this=condition.copy())
        for node in list(changed.walk(prune=lambda node: sql_of(node) in names)):
            if (name := names.get(sql_of(node))) is not None:
                node.replace(column_of(alias, name))
        add_where(made, changed.this)
    return made


def has_queries_over_groups(select: exp.Select) -> bool:
    """Return whether some subquery of SELECT or HAVING is evaluated for each group."""
    if not (select.args.get("group") or select.args.get("having") or aggregates_in(select.expressions)):
        return False
    clauses = (*select.expressions, *filter(None, [select.args.get("having")]))
    found = chain(*(one.walk(prune=lambda node: isinstance(node, exp.Query | exp.AggFunc | exp.Filter)) for one in clauses))
    return any(isinstance(one, exp.Query) for one in found)
