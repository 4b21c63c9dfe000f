"""Subqueries in expressions, and those in EXISTS and IN that are more than a join, as joins with stored queries.

    a.x < (SELECT avg(b.x) FROM b WHERE b.k = a.k)     LEFT JOIN (SELECT b.k AS k0, avg(b.x) AS a0 FROM b GROUP BY b.k) AS s ON s.k0 = a.k …
    a.x < (SELECT avg(b.x) FROM b)                     CROSS JOIN (SELECT avg(b.x) AS a0 FROM b) AS s …  and a.x < s.a0
    EXISTS (SELECT 1 FROM b WHERE b.k = a.k) OR …      (SELECT count(*) FROM b WHERE b.k = a.k) > 0 OR …
    a.x NOT IN (SELECT b.x FROM b)                     NOT EXISTS (SELECT 1 FROM b WHERE b.x = a.x)
                                                       AND (a.x IS NOT NULL AND no b.x is null OR there is no b)
    EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND EXISTS (…))
                                        EXISTS (SELECT 1 FROM (SELECT b.k AS k0 FROM b WHERE EXISTS (…)) AS s WHERE s.k0 = a.k)

A subquery that finds no row of a key has no row in the second table: its aggregates are null, and its counts 0. All columns have an alias
(`composing`). Source: Kim, On Optimizing an SQL-like Nested Query (1982), with outer joins for what he counts wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, count

from sqlglot import exp

from livejoin.wire.schema import RelationDefinition
from service.errors import Problem, unsupported
from service.query.latest import is_latest
from service.query.sql.columns import own_columns
from service.query.sql.composition.merging import add_where, columns_in, condition_of, conjuncts, first_of, parts_of, queries_of, set_apart
from service.query.sql.groups import is_grouped
from service.query.sql.names import Source, alias_of, column_of, fold, identifier, is_comma, sql_of, table_of, tables_of, tables_of_join
from service.query.sql.output_names import MERGED
from service.query.sql.ranges import OPERATORS

Relations = Mapping[str, RelationDefinition]
Storing = Callable[[exp.Query], str]
_AGGREGATE = "write an aggregate, such as max(x), of all rows that its WHERE finds, or ORDER BY … LIMIT 1"
_EQUAL = "in it, only equalities with columns of the query around it"
_ONE = exp.Limit(expression=exp.Literal.number(1))
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_NEVER_NULL = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between, exp.Like)


def has_nested(tree: exp.Expr) -> bool:
    """Return whether some subquery of a query has to be unnested."""
    return any(map(_is_unnested, tree.find_all(exp.Query)))


def _is_unnested(node: exp.Expr) -> bool:
    if isinstance(node, exp.Select):
        return _cut(node) is not None or _is_chosen_apart(node) or (_is_inside(node) and (is_nested(node) or _is_written_out(node)))
    return _is_scalar(node) or (isinstance(node, exp.SetOperation) and _is_inside(node))


def is_nested(query: exp.Expr) -> bool:
    """Return whether a query in EXISTS or IN is more than a join with conditions."""
    if not isinstance(query, exp.Select):
        return True
    is_outer = any(join.side or join.method for join in query.args.get("joins") or ())
    is_chosen = is_latest(query) or bool(query.args.get("group") or query.args.get("having"))
    return is_outer or is_chosen or _aggregates(query.expressions) != [] or any(True for _ in queries_of(query))


def _is_chosen_apart(query: exp.Expr) -> bool:
    """Return whether a SELECT chooses first rows of a join or of groups."""
    if not isinstance(query, exp.Select) or not is_latest(query):
        return False
    is_distinct = query.args.get("distinct") is not None and query.args["distinct"].args.get("on") is None
    return (is_grouped(query) or bool(query.args.get("joins"))) and not (is_distinct and query.args.get("qualify"))


def choose_apart(select: exp.Select, store: Storing, taken: Collection[str]) -> None:
    """Store the join, or the groups, of which a SELECT chooses first rows, in place."""
    if _is_chosen_apart(select):
        distinct = select.args.get("distinct")
        on = ("distinct",) if distinct is not None and distinct.args.get("on") else ()
        _set_beneath(select, store, next(_unused(select, taken)), ("order", "limit", "qualify", *on), False)


def _set_beneath(select: exp.Select, store: Storing, alias: str, kept: Collection[str], apart: bool, of_rows: bool = False) -> None:
    """Store a SELECT without the clauses `kept`, and, if `apart`, its conditions with queries, or over several aliases, in place: they are
    over stored rows. `of_rows`: those that are grouped, if so, and not the groups."""
    of_groups = is_grouped(select) and not of_rows
    clause = "having" if of_groups else "where"
    conditions = conjuncts(condition_of(select, clause))
    own, group = {*map(alias_of, tables_of(select))}, select.args.get("group")
    wide = [] if of_groups else [one for one in conditions if _is_wide(one) or not _is_of(one, own)]
    later = [one for one in conditions if apart and (one.find(exp.Query) or any(one is other for other in wide))]
    over = [*select.expressions, *later, *(select.args[name] for name in kept if select.args.get(name))]
    if select.args.get("distinct") and "distinct" not in kept:
        atoms = [one.this for one in select.expressions]
    elif of_groups:
        atoms = [*(group.expressions if group else ()), *_aggregates(over)]
    else:
        atoms = [one for part in over for one, _ in columns_in(part) if one.text("table") in own]
    nodes = {sql_of(one): one.copy() for one in atoms}
    names = {text: f"c{number}" for number, text in enumerate(nodes)}
    inner = select.copy()
    for name in (*kept, clause):
        inner.set(name, None)
    left = [one.copy() for one in conditions if not any(one is other for other in later)]
    if left:
        inner.set(clause, (exp.Having if clause == "having" else exp.Where)(this=exp.and_(*left, copy=False)))
    inner.set("expressions", [_named(nodes[text], name) for text, name in names.items()] or [_named(exp.Literal.number(1), "c0")])
    read: list[exp.Expr]
    if clause == "where":
        read = [one for part in over for one, _ in columns_in(part) if one.text("table") in own]
    else:
        def is_atom(one: exp.Expr) -> bool:
            return not isinstance(one, exp.Order | exp.Ordered) and sql_of(one) in names

        read = [one for part in over for one in part.walk(prune=lambda one: isinstance(one, exp.Query) or is_atom(one)) if is_atom(one)]
        read += [one for part in over for one, inside in columns_in(part) if inside and sql_of(one) in names]
    for node in read:
        node.replace(column_of(alias, names[sql_of(node)]))
    for name in {*select.args} - {"expressions", "kind", *kept}:
        select.set(name, None)
    select.set("from_", exp.From(this=table_of(store(inner), alias)))
    for condition in later:
        add_where(select, condition)


def join_apart(select: exp.Select, store: Storing, taken: Collection[str]) -> None:
    """Store what stands before a join that must be with one relation, and a join of which EXISTS compares several aliases, in place."""
    names = _unused(select, taken)
    while (cut := _cut(select)) is not None:
        joins, alias = select.args["joins"], next(names)
        if cut == len(joins):
            _set_beneath(select, store, alias, {*select.args} - {"expressions", "from_", "joins", "where"}, True, True)
            return
        inner = exp.Select(from_=select.args["from_"], joins=joins[:cut])
        own = {*map(alias_of, tables_of(inner))}
        select.set("joins", joins[cut:])
        read = [one for part in parts_of(select) for one, _ in columns_in(part) if one.text("table") in own]
        nodes = {sql_of(one): one.copy() for one in read}
        columns = {text: f"c{number}" for number, text in enumerate(nodes)}
        inner.set("expressions", [_named(nodes[text], name) for text, name in columns.items()] or [_named(exp.Literal.number(1), "c0")])
        for one in read:
            one.replace(column_of(alias, columns[sql_of(one)]))
        select.set("from_", exp.From(this=table_of(store(inner), alias)))


def _cut(select: exp.Select) -> int | None:
    """Return how many joins have to be stored before the others, or before WHERE."""
    joins, seen = select.args.get("joins") or [], {*map(alias_of, tables_of(select)[:1])}
    for index, join in enumerate(joins):
        earlier, before = joins[:index], joins[index - 1] if index else None
        on = join.args.get("on")
        compared = {column.text("table") for column in own_columns(on)} & seen if on is not None else set[str]()
        is_alone = join.side == "FULL" or join.method == "ASOF" or (join.side == "RIGHT" and any(one.side for one in earlier))
        is_alone &= join.method == "ASOF" or not any(map(is_comma, earlier))  # behind a comma, another join begins
        is_behind = before is not None and (before.side == "FULL" or before.method == "ASOF")
        if index and (is_alone or is_behind or (join.side == "LEFT" and len(compared) > 1)):
            return index
        seen |= {*map(alias_of, tables_of_join(join))}
    conditions = conjuncts(condition_of(select))
    exists = [one for one in conditions if isinstance(one, exp.Exists)]
    is_over_several = any(len({column.text("table") for column, _ in columns_in(one)} & seen) > 1 for one in exists)
    has_queries = any(one.find(exp.Query) for one in conditions)
    if any(map(_is_wide, conditions)) and (has_queries or any(join.side for join in joins)) and not any(join.method for join in joins):
        is_over_several = True
    return len(joins) if joins and is_over_several else None


def _is_wide(condition: exp.Expr) -> bool:
    """Return whether a condition is over several aliases, and more than a comparison of two; not one of intervals, or of merged columns."""
    sides = [condition.this, condition.expression] if isinstance(condition, _COMPARED) else [condition]
    is_of_intervals = condition.find(exp.Overlaps, exp.Anonymous, *OPERATORS) is not None
    is_merged = any(MERGED in one.meta for one in condition.find_all(exp.Coalesce))
    return not is_of_intervals and not is_merged and any(len({column.text("table") for column in own_columns(one)}) > 1 for one in sides)


def unnest(
    select: exp.Select, store: Storing, taken: Collection[str], source: Source, relations: Relations, derived: Collection[str]
) -> None:  # fmt: skip
    """Write joins in place of the subqueries of a SELECT that need it, in place. taken: aliases that are used elsewhere. relations: those
    that FROM may name. derived: aliases of subqueries that are yet to be placed. Notes problems `unsupported-query`."""
    names = _unused(select, taken)
    _move_from_on(select, source)
    if has_queries_over_groups(select):
        _set_beneath(select, store, next(names), ("order",), True)
    for query in list(queries_of(select)):
        with source.noting(query):
            if not _is_scalar(query) and is_nested(query.unnest()):
                query.unnest().replace(_apart(query.unnest(), store, next(names), isinstance(query.parent, exp.In)))
    for one in [query.unnest() for query in queries_of(select) if not _is_scalar(query)]:
        with source.noting(one):
            if isinstance(one, exp.Select) and _is_written_out(one):
                _write_out(select, one, relations, lambda query: _is_some(select, query, store, names, relations, derived))
    for query in list(queries_of(select)):
        with source.noting(query):
            if _is_scalar(query):
                _join(select, query, store, next(names))


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
    """Return the EXISTS or IN around a query."""
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


def _is_written_out(query: exp.Expr) -> bool:
    """Return whether a SELECT in EXISTS or IN is not one of the conditions that AND combines, or compares expressions, or nulls matter."""
    holder = _holder(query)
    _, is_negated, is_alone = _place(holder)
    if not isinstance(holder, exp.In):
        return not is_alone
    compared = [*_values(holder), *(one.unalias().unnest() for one in query.expressions)]
    return not is_alone or is_negated or not all(isinstance(one, exp.Column) for one in compared)


def _write_out(select: exp.Select, query: exp.Select, relations: Relations, is_some: Callable[[exp.Select], exp.Expr]) -> None:
    """Write EXISTS or IN as an expression, or IN as EXISTS, in place. is_some: whether a query has rows."""
    holder = _holder(query)
    node, is_negated, is_alone = _place(holder)
    set_apart(query, {*map(alias_of, tables_of(query))} & {*map(alias_of, tables_of(select))}, select)
    if not isinstance(holder, exp.In):
        holder.replace(is_some(query))
        return
    values, shown = _values(holder), [one.unalias().unnest() for one in query.expressions]
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
        sides = ((_one(values[0]), _one_if_null(shown[0]), shows_null), (_one_if_null(values[0]), _one(shown[0]), is_null))
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


def _one(value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[_if_null(value)], default=exp.Literal.number(1))


def _one_if_null(value: exp.Expr) -> exp.Expr:
    return exp.Case(ifs=[_if_null(value)])


def _if_null(value: exp.Expr) -> exp.If:
    return exp.If(this=exp.Is(this=value.copy(), expression=exp.Null()), true=exp.Literal.number(1))


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
        outputs = [_named(column_of(name, one), f"k{number}") for number, one in enumerate(key)]
        table = table_of(store(exp.Select(expressions=outputs, from_=exp.From(this=around[0].copy()), where=exp.Where(this=kept))), alias)
        equal = [exp.EQ(this=column_of(alias, f"k{number}"), expression=column_of(name, one)) for number, one in enumerate(key)]
        select.append("joins", exp.Join(this=table, side="LEFT", on=exp.and_(*equal, copy=False)))
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
    return isinstance(condition, _NEVER_NULL) and value in (condition.this, condition.args.get("expression"))


_ELSEWHERE = (exp.From, exp.Join, exp.Tuple, exp.In, exp.Exists, exp.SetOperation, exp.Subquery, exp.CTE, exp.With)


def _is_scalar(node: exp.Expr) -> bool:
    return isinstance(node, exp.Subquery) and node.parent is not None and not isinstance(node.parent, _ELSEWHERE)


def _is_inside(node: exp.Expr) -> bool:
    return isinstance(node.parent.parent if isinstance(node.parent, exp.Subquery) else node.parent, exp.Exists | exp.In)


def _unused(select: exp.Select, taken: Collection[str]) -> Iterator[str]:
    known = {*taken, *map(alias_of, select.find_all(exp.Table))}
    return (name for number in count(1) if (name := f"subquery_{number}") not in known)


def _aggregates(expressions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the aggregates in expressions, with their FILTER; not those of subqueries."""
    found = list[exp.Expr]()
    for expression in expressions:
        for node in expression.walk(prune=lambda one: isinstance(one, exp.Query | exp.AggFunc | exp.Filter)):
            if isinstance(node, exp.AggFunc | exp.Filter) and not isinstance(node.parent, exp.Window):
                found.append(node)
    return found


def _is_of(condition: exp.Expr, own: Collection[str]) -> bool:
    return all(column.text("table") in own for column in own_columns(condition))


def _split(select: exp.Select) -> list[exp.Expr]:
    """Leave the conditions on own aliases alone in WHERE; return the others. Problem `unsupported-query` if something else reads what is
    outside."""
    own, conditions = {*map(alias_of, tables_of(select))}, conjuncts(condition_of(select))
    others = [one for one in conditions if not _is_of(one, own)]
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


def _named(value: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=value.copy(), alias=identifier(name))


def _join(select: exp.Select, query: exp.Expr, store: Storing, alias: str) -> None:
    """Write a join, and its columns in place of a subquery in an expression."""
    inner = query.unnest().copy()
    is_first = inner.args.get("order") is not None and inner.args.get("limit") == _ONE
    refused = [name for name in ("group", "having", "distinct", "limit", "qualify") if inner.args.get(name)][is_first:]
    if not isinstance(inner, exp.Select) or refused or len(inner.expressions) != 1 or is_first == bool(_aggregates(inner.expressions)):
        raise unsupported(f"{sql_of(query)} in an expression", _AGGREGATE)
    value = inner.expressions[0].unalias().copy()
    keys = _keys(inner, _split(inner))
    whole = exp.Paren(this=value)
    aggregates = [value] if is_first else _aggregates([whole])
    if is_first and not keys:
        raise unsupported(f"{sql_of(query)} in an expression", "compare a column with one of the query around it in its WHERE")
    outputs = [_named(own, f"k{number}") for number, (own, _) in enumerate(keys)]
    inner.set("expressions", [*outputs, *(_named(one, f"a{number}") for number, one in enumerate(aggregates))])
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
    join = exp.Join(this=table, kind="CROSS")
    if keys:
        equal = [exp.EQ(this=column_of(alias, f"k{number}"), expression=outer.copy()) for number, (_, outer) in enumerate(keys)]
        join = exp.Join(this=table, side="LEFT", on=exp.and_(*equal, copy=False))
    query.replace(whole)
    select.append("joins", join)


def _apart(query: exp.Expr, store: Storing, alias: str, is_in: bool) -> exp.Select:
    """Return a SELECT from a stored query, for EXISTS or IN."""
    if not isinstance(query, exp.Select):
        for one in query.find_all(exp.Select):
            if _split(one.copy()):
                raise unsupported("a UNION or EXCEPT that reads columns of the query around it", "write EXISTS, once for each part")
        outputs = [one.alias_or_name for one in first_of(query).expressions]
        assert isinstance(query, exp.Query)
        return exp.Select(expressions=[column_of(alias, name) for name in outputs], from_=exp.From(this=table_of(store(query), alias)))
    inner = query.copy()
    others = _split(inner)
    is_grouped = bool(_aggregates(inner.expressions) or inner.args.get("group") or inner.args.get("having"))
    _, is_negated, is_alone = _place(_holder(query))
    value = inner.expressions[0].unalias()
    is_null = is_in and is_alone and not is_negated and isinstance(value, exp.AggFunc | exp.Filter) and not value.find(exp.Count)
    if is_grouped and not inner.args.get("group") and not is_null and (others or not is_in):
        instead = "such an aggregate returns a row even if no row matches: compare it by = or <>, write SELECT 1 to test whether one does, "
        instead += "or GROUP BY"
        raise unsupported(f"{sql_of(value)} in EXISTS or IN, without GROUP BY", instead)
    if is_latest(inner) and others:
        raise unsupported(f"{sql_of(others[0])} beside DISTINCT ON, QUALIFY or LIMIT in a subquery", "define a view of the rows chosen")
    shown = [one.unalias() for one in inner.expressions] if is_in else []
    own = {*map(alias_of, tables_of(inner))}
    read = [key for key, _ in _keys(inner, others)] if is_grouped else [
        column for one in others for column in own_columns(one) if column.text("table") in own
    ]
    read = list({sql_of(one): one for one in read}.values())
    names = {sql_of(one): f"k{number}" for number, one in enumerate(read)}
    outputs = [*(_named(one, f"c{number}") for number, one in enumerate(shown)), *(_named(one, names[sql_of(one)]) for one in read)]
    inner.set("expressions", outputs or [_named(exp.Count(this=exp.Star()) if is_grouped else exp.Literal.number(1), "c0")])
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
    if not (select.args.get("group") or select.args.get("having") or _aggregates(select.expressions)):
        return False
    clauses = (*select.expressions, *filter(None, [select.args.get("having")]))
    found = chain(*(one.walk(prune=lambda node: isinstance(node, exp.Query | exp.AggFunc | exp.Filter)) for one in clauses))
    return any(isinstance(one, exp.Query) for one in found)
