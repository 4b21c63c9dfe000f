"""What is stored beneath a SELECT: the join or the groups of which it chooses first rows, what stands before a join that must be with one
relation, and a join of which EXISTS, or a condition beside an outer join, compares several aliases.

    a LEFT JOIN b ON p WHERE a.x > 1 OR b.y > 2     (SELECT a.x AS c0, b.y AS c1, … FROM a LEFT JOIN b ON p) AS s WHERE s.c0 > 1 OR s.c1 > 2

All columns have an alias (`composing`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import count

from sqlglot import exp

from service.errors import unsupported
from service.query.latest import is_latest, require_continued
from service.query.sql.columns import own_columns
from service.query.sql.composition.merging import add_where, columns_in, condition_of, conjuncts, parts_of
from service.query.sql.groups import is_grouped
from service.query.sql.names import alias_of, column_of, identifier, is_comma, sql_of, table_of, tables_of, tables_of_join
from service.query.sql.output_names import MERGED
from service.query.sql.ranges import OPERATORS
from service.query.sql.terms import COMPARED

Storing = Callable[[exp.Query], str]
_ORDERED = (exp.LT, exp.LTE, exp.GT, exp.GTE)
_COMPARED = (*COMPARED, exp.NullSafeEQ, exp.NullSafeNEQ)
_DISTANCE = (exp.Column, exp.Identifier, exp.Literal, exp.Interval, exp.Var, exp.Add, exp.Sub, exp.Abs, exp.Neg, exp.Paren)


def is_apart(select: exp.Select) -> bool:
    """Return whether something is stored beneath a SELECT."""
    return _cut(select) is not None or _is_chosen_apart(select)


def _is_chosen_apart(query: exp.Expr) -> bool:
    """Return whether a SELECT chooses first rows of a join, of groups, or of rows for which there are others."""
    if not isinstance(query, exp.Select) or not is_latest(query):
        return False
    is_distinct = query.args.get("distinct") is not None and query.args["distinct"].args.get("on") is None
    where = condition_of(query)
    is_apart = is_grouped(query) or bool(query.args.get("joins")) or (where is not None and where.find(exp.Query) is not None)
    return is_apart and not (is_distinct and query.args.get("qualify"))


def choose_apart(select: exp.Select, store: Storing, taken: Collection[str]) -> None:
    """Store the join, or the groups, of which a SELECT chooses first rows, in place."""
    if _is_chosen_apart(select):
        distinct, order = select.args.get("distinct"), select.args.get("order")
        on = distinct.args.get("on") if distinct is not None else None
        if on is not None and order is not None:
            require_continued([*map(sql_of, on.expressions)], [sql_of(one.this) for one in order.expressions])
        kept = ("order", "limit", "qualify", *(["distinct"] if on is not None else []))
        set_beneath(select, store, next(unused_aliases(select, taken)), kept, False)


def set_beneath(select: exp.Select, store: Storing, alias: str, kept: Collection[str], apart: bool, of_rows: bool = False) -> None:
    """Store a SELECT without the clauses `kept`, and, if `apart`, its conditions with queries, or over several aliases, in place: they are
    over stored rows. of_rows: those that are grouped, if so, and not the groups."""
    of_groups = is_grouped(select) and not of_rows
    clause = "having" if of_groups else "where"
    conditions = conjuncts(condition_of(select, clause))
    own, group = {*map(alias_of, tables_of(select))}, select.args.get("group")
    wide = [] if of_groups else [one for one in conditions if _is_wide(one) or not is_of(one, own)]
    later = [one for one in conditions if apart and (one.find(exp.Query) or any(one is other for other in wide))]
    over = [*select.expressions, *later, *(select.args[name] for name in kept if select.args.get(name))]
    is_distinct = bool(select.args.get("distinct")) and "distinct" not in kept
    atoms = [one.this for one in select.expressions] if is_distinct else [*(group.expressions if group else ()), *aggregates_in(over)]
    texts = {*map(sql_of, atoms)}

    def is_atom(one: exp.Expr) -> bool:
        return not isinstance(one, exp.Order | exp.Ordered) and sql_of(one) in texts

    if is_distinct or of_groups:
        read = [one for part in over for one in part.walk(prune=lambda one: isinstance(one, exp.Query) or is_atom(one)) if is_atom(one)]
        read += [one for part in over for one, inside in columns_in(part) if inside and is_atom(one)]
        for one in (one for part in over for one in part.walk(prune=lambda one: isinstance(one, exp.Query) or is_atom(one))):
            if isinstance(one, exp.Column) and not is_atom(one):
                raise unsupported(f"{sql_of(one)} beside groups", "write it in GROUP BY or an aggregate: a group may have several values")
    else:
        atoms = read = [one for part in over for one, _ in columns_in(part) if one.text("table") in own]
    inner = select.copy()
    for name in (*kept, clause):
        inner.set(name, None)
    left = [one.copy() for one in conditions if not any(one is other for other in later)]
    if left:
        inner.set(clause, (exp.Having if clause == "having" else exp.Where)(this=exp.and_(*left, copy=False)))
    table = _stored(inner, atoms, read, store, alias)
    for name in {*select.args} - {"expressions", "kind", *kept}:
        select.set(name, None)
    select.set("from_", exp.From(this=table))
    for condition in later:
        add_where(select, condition)


def _stored(inner: exp.Select, atoms: Sequence[exp.Expr], read: Sequence[exp.Expr], store: Storing, alias: str) -> exp.Table:
    """Store a SELECT of `atoms`, write its columns where they are read, and return it as a table."""
    nodes = {sql_of(one): one.copy() for one in atoms}
    names = {text: f"c{number}" for number, text in enumerate(nodes)}
    inner.set("expressions", [named(nodes[text], name) for text, name in names.items()] or [named(exp.Literal.number(1), "c0")])
    for node in read:
        node.replace(column_of(alias, names[sql_of(node)]))
    return table_of(store(inner), alias)


def join_apart(select: exp.Select, store: Storing, taken: Collection[str]) -> None:
    """Store what stands before a join that must be with one relation, and a join of which EXISTS compares several aliases, in place."""
    names = unused_aliases(select, taken)
    while (cut := _cut(select)) is not None:
        joins, alias = select.args["joins"], next(names)
        if cut == len(joins):
            set_beneath(select, store, alias, {*select.args} - {"expressions", "from_", "joins", "where"}, True, True)
            return
        inner = exp.Select(from_=select.args["from_"], joins=joins[:cut])
        own = {*map(alias_of, tables_of(inner))}
        select.set("joins", joins[cut:])
        read = [one for part in parts_of(select) for one, _ in columns_in(part) if one.text("table") in own]
        select.set("from_", exp.From(this=_stored(inner, read, read, store, alias)))


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
    absent = [one for one in conditions if isinstance(one, exp.Not) and isinstance(one.this, exp.Exists | exp.In)]
    exists = [one for one in conditions if isinstance(one, exp.Exists | exp.In) or (one in absent and not _is_natural(select, absent))]
    is_over_several = any(len({column.text("table") for column, _ in columns_in(one)} & seen) > 1 for one in exists)
    has_queries = any(one.find(exp.Query) for one in conditions)
    if any(map(_is_wide, conditions)) and (has_queries or any(join.side for join in joins)) and not any(join.method for join in joins):
        is_over_several = True
    return len(joins) if joins and is_over_several else None


def _is_natural(select: exp.Select, absent: Sequence[exp.Not]) -> bool:
    """Return whether aliases are compared by equality only, in a SELECT and in these NOT EXISTS of it."""
    parts = [condition_of(select), *(join.args.get("on") for join in select.args.get("joins") or ())]
    parts += [condition_of(query) for one in absent for query in one.find_all(exp.Select)]
    compared = [one for part in parts for one in conjuncts(part) if len({column.text("table") for column, _ in columns_in(one)}) > 1]
    return all(isinstance(one, exp.EQ | exp.NullSafeEQ | exp.Exists | exp.In) or one in absent for one in compared)


def _is_wide(condition: exp.Expr) -> bool:
    """Return whether a condition is over several aliases, and more than a comparison of two; not one of intervals, distances, or merged
    columns."""
    if isinstance(condition, _ORDERED) and all(isinstance(one, _DISTANCE) for side in condition.iter_expressions() for one in side.walk()):
        return False
    if condition.find(exp.Overlaps, exp.Anonymous, *OPERATORS) or any(MERGED in one.meta for one in condition.find_all(exp.Coalesce)):
        return False
    sides = [condition.this, condition.expression] if isinstance(condition, _COMPARED) else [condition]
    return any(len({column.text("table") for column in own_columns(one)}) > 1 for one in sides)


def unused_aliases(select: exp.Select, taken: Collection[str]) -> Iterator[str]:
    known = {*taken, *map(alias_of, select.find_all(exp.Table))}
    return (name for number in count(1) if (name := f"subquery_{number}") not in known)


def aggregates_in(expressions: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the aggregates in expressions, with their FILTER; not those of subqueries."""
    found = list[exp.Expr]()
    for expression in expressions:
        for node in expression.walk(prune=lambda one: isinstance(one, exp.Query | exp.AggFunc | exp.Filter)):
            if isinstance(node, exp.AggFunc | exp.Filter) and not isinstance(node.parent, exp.Window):
                found.append(node)
    return found


def named(value: exp.Expr, name: str) -> exp.Alias:
    return exp.Alias(this=value.copy(), alias=identifier(name))


def is_of(condition: exp.Expr, own: Collection[str]) -> bool:
    """Return whether a condition is over these aliases alone."""
    return all(column.text("table") in own for column in own_columns(condition))
