"""Subqueries of FROM, written out: what they select takes the place of their columns, and their conditions join those around them.

    FROM (SELECT t.id, t.a + 1 AS c FROM r AS t WHERE p(t)) AS x     becomes     FROM r AS x … WHERE p(x), with x.a + 1 in place of x.c
    SELECT u FROM (SELECT … FROM … JOIN … GROUP BY …) AS x WHERE q   becomes     SELECT u FROM … JOIN … GROUP BY … HAVING q

The first form may stand beside other relations. Where an outer join may leave x out, its condition goes to the ON of that join, and its
expressions are null without x. The second is a SELECT from nothing else. All columns have an alias, all outputs a name (`composing`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sqlglot import exp

from livejoin.wire.schema import Interval, RelationDefinition
from service.errors import unsupported
from service.query.assembly import unused
from service.query.latest import is_latest
from service.query.model import STRETCHES
from service.query.sql.columns import clauses_of
from service.query.sql.groups import is_grouped
from service.query.sql.names import alias_of, column_of, fold, identifier, is_comma, sql_of, tables_of, tables_of_join

_PLAIN = ("expressions", "from_", "joins", "where", "order")
_RANKED = "write SELECT columns FROM (SELECT …, ROW_NUMBER() OVER (…) AS n FROM r) AS t WHERE n <= 3, and other conditions in the subquery"
_GROUPED = ("aggregates", "GROUP BY", "HAVING", "DISTINCT")
_CHOSEN = (*_GROUPED, "QUALIFY", "LIMIT")
_COMPARED = (exp.LTE, exp.LT, exp.EQ, exp.GTE, exp.GT)
_WRAPPED = (exp.Binary, exp.Unary, exp.Between, exp.In)
_PLACES = ("start", "end", "line", "col", "path")
"""What a node has in its metadata about its place in a definition."""

Values = Mapping[str, exp.Expr]
"""What the columns of a subquery stand for, by their names."""


@dataclass(frozen=True)
class DerivedTable:
    """A query in FROM. values: of its columns and of `intervals`, those of which it shows both ends; {}: it can only be stored. columns:
    their names. shown: the intervals of its columns, if it is stored. `count` is called with each tree before it is copied."""

    query: exp.Query
    values: Values
    intervals: Mapping[str, Interval]
    columns: Sequence[str]
    shown: Mapping[str, Interval]
    count: Callable[[exp.Expr], None]

    @property
    def select(self) -> exp.Select:
        assert isinstance(self.query, exp.Select)
        return self.query

    def copy(self) -> DerivedTable:
        self.count(self.query)
        values = {name: value.copy() for name, value in self.values.items()}
        return replace(self, query=self.query.copy(), values=values)


class NotWritten(Exception):
    """A subquery cannot be written out."""


def absorb(select: exp.Select, alias: str, inner: DerivedTable) -> None:
    """Write out the subquery that is all of FROM. Raises NotWritten."""
    own = inner.select
    is_chosen = is_latest(own)
    is_plain = not (is_grouped(own) or is_chosen)
    allowed = () if is_plain else _CHOSEN if is_chosen else _GROUPED
    if not {*_words(own)}.issubset(allowed) or (not is_plain and _words(select)):
        raise NotWritten
    if len(tables_of(own)) == 1:
        _rename(inner, alias)
    own_aliases = {*map(alias_of, tables_of(own))} - {alias}
    for clause in parts_of(select):
        for column, _ in columns_in(clause):
            _require_free(column.text("table"), own_aliases)
    _replace(select, {alias: inner}, {})
    for name in ("from_", "joins"):
        select.set(name, own.args.get(name))
    if is_plain:
        add_where(select, condition_of(own))
        return
    where = condition_of(select)
    for name in ("group", "having", "distinct", "qualify", "where", "order", "limit"):
        select.set(name, own.args.get(name) or (select.args.get("order") if name == "order" else None))
    if where is not None and (is_chosen or where.find(exp.Query) is not None):
        raise NotWritten
    if not is_chosen and own.args.get("distinct") is not None:
        if {*map(sql_of, (one.this for one in select.expressions))} != {*map(sql_of, (one.this for one in own.expressions))}:
            raise NotWritten
    if where is not None:
        if own.args.get("group") or own.args.get("having") or any(one.find(exp.AggFunc) for one in own.expressions):
            having = select.args.get("having")
            select.set("having", exp.Having(this=_both(None if having is None else having.this, where)))
        else:
            add_where(select, where)
    if not (is_latest(select) or is_grouped(select)):
        raise NotWritten


def choosing(select: exp.Select, alias: str, inner: DerivedTable) -> DerivedTable:
    """Return a subquery that shows ROW_NUMBER as one that chooses by it, in QUALIFY, as WHERE of the query around it asks, which no longer
    does; conditions on the keys alone choose among these first. Problem `unsupported-query`."""
    (ranked, *others), where = [name for name, value in inner.values.items() if isinstance(value, exp.Window)], condition_of(select)
    conditions = conjuncts(where)
    columns = [one for part in parts_of(select) for one, _ in columns_in(part) if (one.text("table"), one.name) == (alias, ranked)]
    asked = [one for one in conditions if any(column in [one.this, one.args.get("expression")] for column in columns)]
    if others or len(columns) != 1 or len(asked) != 1 or not isinstance(asked[0], _COMPARED):
        raise unsupported("a subquery with ROW_NUMBER in any other form", _RANKED)
    query, window = inner.select.copy(), inner.values[ranked].copy()
    keys = {*map(sql_of, window.args.get("partition_by") or ())}
    columns[0].replace(window)
    query.set("qualify", exp.Qualify(this=asked[0].copy()))
    query.set("expressions", [one for one in query.expressions if fold(one.args["alias"]) != ranked])
    select.set("where", None)
    values = {name: value.copy() for name, value in inner.values.items() if name != ranked}
    for one in conditions:
        read = list(one.find_all(exp.Column))
        if one is not asked[0] and all(ref.text("table") == alias and sql_of(values[ref.name]) in keys for ref in read):
            for ref in read:
                ref.replace(values[ref.name].copy())
            add_where(query, one)
        elif one is not asked[0]:
            add_where(select, one.copy())
    return replace(inner, query=query, values=values, columns=[name for name in inner.columns if name != ranked])


def merge(select: exp.Select, found: Mapping[str, DerivedTable], relations: Mapping[str, RelationDefinition]) -> None:
    """Write out the subqueries that FROM joins, all of them projections. Raises NotWritten."""
    keys = dict[str, exp.Column]()
    for table in tables_of(select):
        if (inner := found.get(alias := alias_of(table))) is not None:
            relation = tables_of(inner.select)[0].this
            own, others = {*map(alias_of, tables_of(inner.select))}, {*map(alias_of, tables_of(select))}
            for column, _ in _columns_of(inner):
                if column.text("table") not in own:  # it is of a query around this one
                    _require_free(column.text("table"), others)
            keys[alias] = column_of(alias, relations[fold(relation)].key[0])
            _rename(inner, alias)
    _replace(select, found, keys)
    for table in tables_of(select):
        if (inner := found.get(alias := alias_of(table))) is not None:
            if (where := condition_of(inner.select)) is not None:
                _put(select, table, where)
            table.set("this", tables_of(inner.select)[0].this)


def is_projection(inner: DerivedTable) -> bool:
    """Return whether a subquery shows columns and expressions of the rows of one relation."""
    return bool(inner.values) and not _words(inner.select) and len(tables_of(inner.select)) == 1


def _words(select: exp.Select) -> list[str]:
    """What a SELECT has besides columns, joins and conditions."""
    words = [name.strip("_").upper() for name, value in select.args.items() if value and name not in (*_PLAIN, "kind")]
    words = [{"GROUP": "GROUP BY"}.get(word, word) for word in words]
    if not words and is_grouped(select):
        words.append("aggregates")
    return words


def _put(select: exp.Select, table: exp.Expr, where: exp.Expr) -> None:
    """Add the condition of a subquery where it holds of the rows that it is joined with: to ON of its own join, if it is an inner one, or
    may leave the subquery out; otherwise to WHERE. Raises NotWritten if a later join may leave out what is before it."""
    joins = select.args.get("joins") or []
    join = table.find_ancestor(exp.Join)
    join = join if join in joins else None
    if join is not None and (join.method == "ASOF" or join.side == "FULL"):  # the one chooses among the rows that remain
        raise NotWritten
    if join is not None and join.side != "RIGHT" and not is_comma(join):
        add_condition(join, where)
    elif any(one.side in ("RIGHT", "FULL") for one in (joins[joins.index(join) + 1 :] if join is not None else joins)):
        raise NotWritten
    else:
        add_where(select, where)


def intersection(tree: exp.Intersect) -> exp.Select:
    """Return an INTERSECT, of which both sides are composed, as a SELECT DISTINCT: what one alias shows must exist on the other side, or
    else the sides are joined. Problem `unsupported-query`."""
    left, right = (side.unnest() for side in (tree.left, tree.right))
    assert isinstance(left, exp.Select) and isinstance(right, exp.Select)
    shown = [[output.this for output in one.expressions] for one in (left, right)]
    require_as_many(tree, *shown)
    set_apart(right, _aliases(right) & _aliases(left), tree)
    equal = [exp.NullSafeEQ(this=_wrapped(x.copy()), expression=_wrapped(y)) for x, y in zip(*shown, strict=True)]
    if len({column.text("table") for output in shown[0] for column in output.find_all(exp.Column)}) == 1:
        for condition in equal:
            add_where(right, condition)
        where = right.args["where"]
        exists = exp.Select(expressions=[exp.Literal.number(1)], from_=right.args["from_"], joins=right.args.get("joins"), where=where)
        add_where(left, exp.Exists(this=exists))
    else:
        left.set("joins", [*(left.args.get("joins") or ()), exp.Join(this=right.args["from_"].this), *(right.args.get("joins") or ())])
        add_where(left, condition_of(right))
        for condition in equal:
            add_where(left, condition)
    left.set("distinct", exp.Distinct())
    for name in ("order", "limit", "offset"):
        left.set(name, tree.args.get(name))
    return left


def require_as_many(tree: exp.SetOperation, left: Collection[object], right: Collection[object]) -> None:
    """Problem `unsupported-query` if the sides do not show as many columns."""
    if len(left) != len(right):
        what = f"{tree.key.upper()} of SELECTs with different numbers of columns, {len(left)} and {len(right)},"
        raise unsupported(what, "select the same number of columns")


def is_stored_side(side: exp.Expr, tree: exp.SetOperation) -> bool:
    """Return whether the rows of a side of a set operation have to be stored for it. Removes DISTINCT where it has no effect."""
    side, is_all = side.unnest(), not tree.args.get("distinct")
    if isinstance(side, exp.SetOperation):
        is_right = side is tree.right.unnest() and isinstance(tree, exp.Except)
        return isinstance(tree, exp.Intersect) or is_all == bool(side.args.get("distinct")) or (is_right and isinstance(side, exp.Except))
    if not isinstance(side, exp.Select) or side.args.get("limit") and not side.args.get("order"):
        return False
    if not is_all and (distinct := side.args.get("distinct")) is not None and not distinct.args.get("on"):
        side.set("distinct", None)
    is_right, joins = side is tree.right.unnest(), side.args.get("joins") or ()
    functions = {one.unalias().name.lower() for one in side.expressions if isinstance(one.unalias(), exp.Anonymous)}
    if is_grouped(side) or is_latest(side) or any(one.method == "ASOF" for one in joins) or functions & {*STRETCHES}:
        return True
    if is_all or isinstance(tree, exp.Intersect):
        return not is_all and is_right and not _is_inner(side)
    return not _is_natural(side) or (is_right and isinstance(tree, exp.Except) and any(queries_of(side)))


def _is_natural(select: exp.Select) -> bool:
    """Return whether a SELECT shows columns, among them one of each equality that joins relations, and has no other joins, but for NOT
    EXISTS."""
    shown = [one.unalias() for one in select.expressions]
    joins = select.args.get("joins") or ()
    if not all(isinstance(one, exp.Column | exp.Star) for one in shown) or any(one.side or one.kind not in ("", "INNER") for one in joins):
        return False
    if not all(isinstance(one.find_ancestor(exp.Not, exp.Select), exp.Not) for one in queries_of(select)):
        return False
    for one in chain(*map(conjuncts, (condition_of(select), *(join.args.get("on") for join in joins)))):
        if not isinstance(one, exp.Not) and len({column.text("table") for column in one.find_all(exp.Column)}) > 1:
            if not isinstance(one, exp.EQ) or not any(side in shown for side in (one.left, one.right)):
                return False
    return True


def _is_inner(select: exp.Select) -> bool:
    """Return whether there are only inner joins, and no queries in conditions."""
    joins = select.args.get("joins") or ()
    return not any(one.side or one.method or one.kind not in ("", "INNER", "CROSS") for one in joins) and not any(queries_of(select))


def set_apart(query: exp.Query, aliases: set[str], around: exp.Expr) -> None:
    """Give these aliases of a query other names, which the query around it does not use."""
    used = {alias_of(table) for table in around.find_all(exp.Table)}
    names = {alias: unused(alias, used) for alias in aliases}
    for table in query.find_all(exp.Table):
        if (alias := names.get(alias_of(table))) is not None:
            table.set("alias", exp.TableAlias(this=identifier(alias)))
    for column in query.find_all(exp.Column):
        if (alias := names.get(column.text("table"))) is not None:
            column.set("table", identifier(alias))


# --- trees


def queries_of(select: exp.Select) -> Iterator[exp.Query]:
    """Yield the queries in the clauses of a SELECT, but for FROM: not those within these."""
    for clause in parts_of(select):
        for node in list(clause.walk(prune=lambda one: isinstance(one, exp.Query))):
            if isinstance(node, exp.Query):
                yield node


def without_places(tree: exp.Expr) -> exp.Expr:
    """Return the tree without the places of its nodes, in place: a complaint is about the place where it is used."""
    for node in tree.walk():
        for name in _PLACES:
            node.meta.pop(name, None)
    return tree


def add_condition(join: exp.Join, condition: exp.Expr) -> None:
    """Add a condition to ON."""
    join.set("on", _both(join.args.get("on"), condition))
    if join.kind == "CROSS":
        join.set("kind", None)


def first_of(query: exp.Expr) -> exp.Select:
    """Return the first SELECT of a query, which names its columns."""
    return query if isinstance(query, exp.Select) else first_of(query.this)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that AND combines."""
    if condition is None:
        return []
    node = condition.unnest()
    return [part for one in node.flatten() for part in conjuncts(one)] if isinstance(node, exp.And) else [node]


def add_where(select: exp.Select, condition: exp.Expr | None) -> None:
    """Add a condition to WHERE."""
    if condition is not None:
        select.set("where", exp.Where(this=_both(condition_of(select), condition)))


def condition_of(select: exp.Select, clause: str = "where") -> exp.Expr | None:
    """Return the condition of WHERE, or of HAVING."""
    found = select.args.get(clause)
    return None if found is None else found.this


def _both(left: exp.Expr | None, right: exp.Expr) -> exp.Expr:
    return right if left is None else exp.And(this=_wrapped(left), expression=_wrapped(right))


def _wrapped(node: exp.Expr) -> exp.Expr:
    return exp.Paren(this=node) if isinstance(node, _WRAPPED) else node


def parts_of(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the clauses, and ON of each join."""
    yield from (join.args["on"] for join in select.args.get("joins") or () if join.args.get("on") is not None)
    yield from (part for _, part in clauses_of(select))


def _aliases(query: exp.Query) -> set[str]:
    """The aliases that a query in a clause has of its own, of all its SELECTs."""
    return {alias_of(table) for select in query.find_all(exp.Select) for table in tables_of(select)}


def columns_in(part: exp.Expr, inside: Collection[str] = frozenset()) -> Iterator[tuple[exp.Column, Collection[str]]]:
    """Yield the columns of a clause with the aliases of the queries in it that they are in; those mean other rows there."""
    for node in list(part.walk(prune=lambda one: isinstance(one, exp.Query))):
        if isinstance(node, exp.Query):
            own = map(alias_of, tables_of(node)) if isinstance(node, exp.Select) else ()
            around = {*inside, *own}
            for child in list(node.iter_expressions()):
                yield from columns_in(child, around)
        elif isinstance(node, exp.Column) and node.text("table") not in inside:
            yield node, inside


def _columns_of(inner: DerivedTable) -> Iterator[tuple[exp.Column, Collection[str]]]:
    """Yield the columns that a derived table reads, as `_columns` does."""
    for part in chain(inner.values.values(), parts_of(inner.select)):
        yield from columns_in(part)


def _rename(inner: DerivedTable, alias: str) -> None:
    """Give the only relation of a subquery this alias."""
    (table,) = tables_of(inner.select)
    was = alias_of(table)
    if was != alias:
        columns = list(_columns_of(inner))
        for column, inside in columns:
            _require_free(column.text("table"), (alias,))  # it would be of a query around this one
            if column.text("table") == was:
                _require_free(alias, inside)
        for column, _ in columns:
            if column.text("table") == was:
                column.set("table", identifier(alias))
        table.set("alias", exp.TableAlias(this=identifier(alias)))


def _require_free(alias: str, inside: Collection[str]) -> None:
    if alias in inside:
        raise NotWritten


def _replace(select: exp.Select, found: Mapping[str, DerivedTable], keys: Mapping[str, exp.Column]) -> None:
    """Replace the columns of subqueries by their values. keys: for each subquery that is joined, a column that is never null."""
    optional = set[str]()  # aliases that an outer join may leave out
    seen = [alias_of(one) for one in tables_of(select)[:1]]
    for join in select.args.get("joins") or ():
        if join.side in ("RIGHT", "FULL"):
            optional.update(seen)
        if (on := join.args.get("on")) is not None:
            _replace_in(on, found, keys, optional)
        own = [*map(alias_of, tables_of_join(join))]
        seen += own
        if join.side in ("LEFT", "FULL"):
            optional.update(own)
    for _, clause in clauses_of(select):
        _replace_in(clause, found, keys, optional)


def _replace_in(clause: exp.Expr, found: Mapping[str, DerivedTable], keys: Mapping[str, exp.Column], optional: Collection[str]) -> None:
    for column, inside in columns_in(clause):
        alias = column.text("table")
        if alias not in found:
            continue
        if (value := found[alias].values.get(column.name)) is None:  # an interval of what it shows
            raise NotWritten
        if isinstance(value, exp.Literal) and isinstance(clause, exp.Group | exp.Order | exp.Distinct):
            raise NotWritten
        found[alias].count(value)
        for own in {one.text("table") for one in value.find_all(exp.Column)}:
            _require_free(own, inside)
        made = without_places(value.copy())
        if alias in optional and not isinstance(made, exp.Column):
            there = exp.Is(this=keys[alias].copy(), expression=exp.Null(), negate=True)
            made = exp.Case(ifs=[exp.If(this=there, true=made)])
        made = _wrapped(made)
        made.meta.update({name: value for name, value in column.meta.items() if name in _PLACES})
        column.replace(made)
