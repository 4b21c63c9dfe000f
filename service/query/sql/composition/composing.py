"""WITH and subqueries in FROM: names are resolved, and then `merging` writes the subqueries out.

A subquery shows only the columns that it selects, so each SELECT is read with a definition that stands for each of its subqueries. Every
column then gets its alias, and *, USING, and what stands for an output are written out: what is merged afterwards means the same anywhere.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sqlglot import exp

from livejoin.wire.schema import NAME, Bounds, Column, Interval, RelationDefinition
from service.errors import Problem, unsupported
from service.query.conditions import ColumnRef
from service.query.latest import WINDOWED, is_latest, join_firsts, join_neighbours, windows_of
from service.query.model import STRETCHES
from service.query.sql.columns import check_names, clauses_of, is_star, merged, own_columns, read_star
from service.query.sql.composition.beneath import choose_apart, join_apart
from service.query.sql.composition.catalogue import Catalogue
from service.query.sql.composition.constant_tables import write_constant_tables
from service.query.sql.composition.merging import (
    DerivedTable,
    NotWritten,
    Values,
    absorb,
    add_condition,
    choosing,
    columns_in,
    first_of,
    intersection,
    is_projection,
    is_stored_side,
    merge,
    queries_of,
    without_places,
)
from service.query.sql.composition.parentheses import without_parentheses
from service.query.sql.composition.repeating import is_repeated, repeated
from service.query.sql.composition.unnesting import has_nested, has_queries_over_groups, reads_deep, unnest
from service.query.sql.groups import is_grouped
from service.query.sql.names import Names, Source, Sources, alias_of, column_of, fold, identifier, is_public, sql_of, table_of, tables_of
from service.query.sql.output_names import name_of, told_apart
from service.query.sql.text import write_in

_MOST_NODES = 50_000  # that may be copied
_MOST_SUBQUERIES = 64
_OF_OUTPUTS = ("group", "order", "distinct")  # clauses that may name an output, or its position
_Node = TypeVar("_Node", bound=exp.Expr)
Check = Callable[[exp.Select], object]


def composed(tree: exp.Expr, source: Source, known: Catalogue, check: Check) -> exp.Expr:
    """Return a query of which `is_composed` is true without WITH, and without subqueries and views in FROM. `check` reads a SELECT that has
    none, to find what is wrong in it: the query around it may leave it out. Notes problems `unsupported-query`, `bad-query`,
    `unknown-column`."""
    return _Composition(source, known, check).query(tree, {}, [])


def is_composed(tree: exp.Expr, known: Catalogue) -> bool:
    """Return whether there is WITH, INTERSECT, EXCEPT ALL, LAG or the like, or a subquery or a view in FROM, or a side of a set operation
    to be stored, or a subquery in an expression."""
    sides = [(side, one) for one in tree.find_all(exp.SetOperation) for side in (one.left, one.right)]
    is_set = any(side.args.get("joins") or is_repeated(one) or is_stored_side(side, one) for side, one in sides)
    is_view = any(isinstance(one.this, exp.Identifier) and fold(one.this) in known.views for one in tree.find_all(exp.Table))
    kinds = (exp.With, exp.Intersect, *WINDOWED)
    return is_view or is_set or has_nested(tree) or any(isinstance(node, kinds) or is_subquery(node) for node in tree.walk())


def view_tree(tree: exp.Expr, source: Source, known: Catalogue) -> exp.Expr:
    """Return the query of a view, with what * and names mean in it, for queries that read the view. Raises as `composed`."""
    write_in(tree)
    write_constant_tables(tree, source, known.store.add)
    without_parentheses(tree, source)
    source.finish()
    with source.noting():
        tree = _Composition(source, known, lambda select: None).query(tree, {}, [])
    source.finish()
    return without_places(tree)


def is_subquery(node: exp.Expr) -> bool:
    """Return whether this is a SELECT in FROM."""
    return isinstance(node, exp.Subquery) and isinstance(node.this, exp.Query) and isinstance(node.parent, exp.From | exp.Join | exp.Tuple)


class _Composition:
    def __init__(self, source: Source, known: Catalogue, check: Check) -> None:
        self._source, self._relations, self._views, self._check = source, known.relations, known.views, check
        self._store = known.store
        self._left, self._subqueries = _MOST_NODES, 0

    def query(self, tree: exp.Expr, known: Mapping[str, exp.Subquery], outer: Sequence[Names]) -> exp.Expr:
        """Compose a query in place; return it. known: what WITH names; outer: the names of the SELECTs around it."""
        count, with_ = self._source.count, tree.args.get("with_")
        if with_ is not None:
            tree.set("with_", None)
            known = {**known, **self._with(with_, known, outer)}
            self._source.require_no_more(count)
        if isinstance(tree, exp.Select):
            self._select(tree, known, outer)
        elif isinstance(tree, exp.SetOperation | exp.Subquery):
            for part in (tree.this, tree.args.get("expression")):
                if part is not None:
                    with self._source.noting():
                        made = self.query(part, known, outer)
                        of = tree if isinstance(tree, exp.SetOperation) and not outer and not is_repeated(tree) else None
                        part.replace(self._stored_side(made) if of is not None and is_stored_side(made, of) else made)
        if isinstance(tree, exp.Intersect | exp.Except):
            self._source.require_no_more(count)
        if is_repeated(tree):
            if any(True for side in (tree.left, tree.right) for _ in columns_in(side)):  # they are of the query around it, which stores it
                return tree
            left, right = (self._stored_side(side) for side in (tree.left, tree.right))
            return self.query(repeated(tree, left, right, self._relations[fold(tables_of(left)[0].this)]), {}, [])
        if isinstance(tree, exp.Intersect):
            return intersection(tree)
        return tree

    def _stored_side(self, side: exp.Expr) -> exp.Select:
        """Return a SELECT of the rows of a side of a set operation, which are stored."""
        first, whole = first_of(side), side.unnest()
        assert isinstance(whole, exp.Query)
        name = self._stored(whole)
        columns = [column for output in first.expressions for column, _ in self._shown(output, first)]
        table = table_of(name, "part")
        shown = [exp.Alias(this=column_of("part", column), alias=identifier(column)) for column in columns]
        return exp.Select(expressions=[placed(one, side) for one in shown], from_=exp.From(this=placed(table, side)))

    def _stored(self, query: exp.Query) -> str:
        tables = {alias_of(table): self._relations.get(fold(table.this)) for table in query.find_all(exp.Table)}
        for column in query.find_all(exp.Column):
            if column.text("table") not in {"", *tables}:
                what = f"{sql_of(column)} in a subquery that has to be stored"
                raise unsupported(what, "define a view of its rows without this condition")
            definition = tables.get(column.text("table"))
            if definition is not None and column.name in definition.intervals and isinstance(column.parent, exp.Alias):
                problem = unsupported(f"the interval {sql_of(column)} of a join that has to be stored", "compare its ends")
                raise self._source.placed(problem, column)
        return self._store(query, {}, self._source)

    def _with(self, with_: exp.With, known: Mapping[str, exp.Subquery], outer: Sequence[Names]) -> dict[str, exp.Subquery]:
        named, count = dict[str, exp.Subquery](), self._source.count
        if with_.args.get("recursive"):
            with self._source.noting(with_):
                raise unsupported("WITH RECURSIVE", "a view joins a fixed number of relations: write a join for each step")
        for one in with_.expressions:
            self._source.require_no_more(count)  # a query that is refused has no name
            alias = one.args["alias"]
            with self._source.noting(one):
                if not isinstance(one.this, exp.Query):
                    raise unsupported(f"{one.this.key.upper()} in WITH", "a view is defined by SELECT alone")
                if fold(alias.this) in named:
                    raise self._source.bad(alias, f"WITH names {fold(alias.this)} twice: rename one of them")
                query = self._checked(self.query(one.this, {**known, **named}, outer), outer)
                named[fold(alias.this)] = exp.Subquery(this=query, alias=alias)
        return named

    def _checked(self, query: exp.Expr, outer: Sequence[Names]) -> exp.Expr:
        if isinstance(query, exp.Select) and not outer and not any(isinstance(one.unalias(), exp.Window) for one in query.expressions):
            self._check(query.copy())
        return query

    def _select(self, select: exp.Select, known: Mapping[str, exp.Subquery], outer: Sequence[Names]) -> None:
        count, found, relations = self._source.count, dict[str, DerivedTable](), dict(self._relations)
        for table in tables_of(select):
            with self._source.noting(table):
                if (subquery := self._subquery(table, known, outer)) is None:
                    continue
                alias = alias_of(table)
                if alias in found:
                    raise self._source.bad(table, f"the alias {alias} is used twice: rename one of them")
                found[alias] = subquery
                name = alias if alias not in relations else f"the subquery {alias}"
                relations[name] = _definition_of(subquery)
                table.replace(_table(name, alias, table))
        self._source.require_no_more(count)
        sources = check_names(select, self._source, relations, outer[-1].scope if outer else None)
        self._source.require_no_more(count)
        if sources is None:  # there is no FROM: the reader refuses it
            return
        for query in queries_of(select):
            with self._source.noting():
                query.replace(self.query(query, known, [*outer, sources.names]))
        self._resolve(select, sources, outer)
        self._source.require_no_more(count)
        with self._source.noting(select):
            within = (table for one in found.values() for table in one.query.find_all(exp.Table))
            taken = {*(alias for names in outer for alias in names.scope.aliases), *map(alias_of, within)}
            if found and (has_queries_over_groups(select) or reads_deep(select)):
                self._place(select, found, is_inside=bool(outer))
                found = {}
            unnest(select, self._stored, taken, self._source, ChainMap(relations, self._relations), found)  # type: ignore[arg-type]
        self._source.require_no_more(count)
        with self._source.noting(select):
            if found:
                self._place(select, found, is_inside=bool(outer))
        with self._source.noting(select):
            join_apart(select, self._stored, taken)
            choose_apart(select, self._stored, taken)
            for join in (join_firsts, join_neighbours):
                join(select, self._relations, lambda rows: self._store(rows, {}, self._source))
        self._source.require_no_more(count)

    def _place(self, select: exp.Select, found: Mapping[str, DerivedTable], is_inside: bool) -> None:
        """Write the subqueries of FROM out where that is possible, and have the others stored. `is_inside`: the SELECT is in EXISTS or IN,
        where groups of rows are stored."""
        found = {
            alias: choosing(select, alias, one) if any(isinstance(value, exp.Window) for value in one.values.values()) else one
            for alias, one in found.items()
        }
        written = {alias: one for alias, one in found.items() if is_projection(one)}
        if len(tables_of(select)) == 1:
            ((alias, subquery),) = found.items()
            is_stored = not subquery.values or (is_inside and (is_latest(subquery.select) or is_grouped(subquery.select)))
            is_stored |= bool(windows_of(select)) and not written
            if not is_stored and self._write_out(select, lambda trial: absorb(trial, alias, subquery.copy())):
                return
            written = {}
        elif written:
            copies = {alias: subquery.copy() for alias, subquery in written.items()}
            if not self._write_out(select, lambda trial: merge(trial, copies, self._relations)):
                written = {}
        for table in tables_of(select):
            alias = alias_of(table)
            if alias in found and alias not in written:
                with self._source.noting(table):
                    table.set("this", identifier(self._store(found[alias].query, found[alias].shown, self._source)))

    def _write_out(self, select: exp.Select, work: Callable[[exp.Select], None]) -> bool:
        """Do the work on a SELECT, and return whether it was possible."""
        self.count(select)
        trial = select.copy()
        try:
            work(trial)
        except (NotWritten, Problem):  # it would be too large
            return False
        for name in {*select.args, *trial.args}:
            select.set(name, trial.args.get(name))
        return True

    def _subquery(self, table: exp.Expr, known: Mapping[str, exp.Subquery], outer: Sequence[Names]) -> DerivedTable | None:
        """Return what a table of FROM is, if it is a subquery or named in WITH."""
        count = self._source.count
        if is_subquery(table):
            columns, query = _columns_of(table), self._checked(self.query(table.this, known, outer), outer)
            self._source.require_no_more(count)
        elif isinstance(table, exp.Table):
            if (named := None if table.args.get("db") else known.get(fold(table.this))) is not None:
                self.count(named)
                columns, query = _columns_of(table) or _columns_of(named), named.this.copy()
            elif (tree := self._views.get(fold(table.this))) is not None and (not table.args.get("db") or is_public(table)):
                columns, query = _columns_of(table), tree()
                self.count(query)
            else:
                return None
        else:
            return None
        query = query.unnest() if isinstance(query, exp.Subquery) else query
        first, whole = query, query
        while not isinstance(first, exp.Select):
            if not isinstance(first, exp.SetOperation | exp.Subquery):
                raise unsupported(f"{query.key.upper()} in FROM", "define a view for each part of it")
            first = first.this
        if not first.args.get("from_"):
            raise unsupported("a subquery that reads no relation", "write FROM in it, or its values where they are used")
        self._subqueries += 1
        if self._subqueries > _MOST_SUBQUERIES:
            raise unsupported(f"a query with more than {_MOST_SUBQUERIES} subqueries", "define a view for each part of it")
        shown = [pair for one in first.expressions for pair in self._shown(one, first)]
        names = [name for name, _ in shown]
        if len(columns) > len(names):
            raise self._source.bad(table, f"{len(columns)} names for {len(names)} columns")
        names[: len(columns)] = columns
        if repeated := [name for position, name in enumerate(names) if name in names[:position]]:
            raise self._source.bad(table, f"the subquery has two columns named {repeated[0]}: rename one of them with AS")
        values = {name: value for name, (_, value) in zip(names, shown, strict=True) if value is not None}
        if columns and len(values) < len(names):
            raise unsupported("other names for the ends of a stretch", "leave them out: the columns have names already")
        if columns:
            first.set("expressions", [exp.Alias(this=value, alias=identifier(name)) for name, value in values.items()])
        intervals = self._intervals(first, values)
        if len(values) < len(names) or first is not query:
            assert isinstance(whole, exp.Query)
            return DerivedTable(whole, {}, {}, names, self._shown_intervals(first, names, intervals), self.count)
        of_intervals = {name: column_of(alias, name) for name, (alias, _) in intervals.items()}
        declared = {name: one for name, (_, one) in intervals.items()}
        return DerivedTable(first, values | of_intervals, declared, names, self._shown_intervals(first, names, intervals), self.count)

    def _intervals(self, select: exp.Select, values: Values) -> dict[str, tuple[str, Interval]]:
        """Return the intervals of which a SELECT shows both ends, and their aliases; none whose name means several things."""
        shown = {(column.text("table"), column.name) for column in values.values() if isinstance(column, exp.Column)}
        found = list[tuple[str, tuple[str, Interval]]]()
        for table in tables_of(select):
            alias, intervals = alias_of(table), self._relations[fold(table.this)].intervals
            for name, one in intervals.items():
                if name not in values and {(alias, one.start_column), (alias, one.end_column)} <= shown:
                    found.append((name, (alias, one)))
        names = [name for name, _ in found]
        return {name: one for name, one in found if names.count(name) == 1}

    def _shown_intervals(
        self, select: exp.Select, names: Sequence[str], intervals: Mapping[str, tuple[str, Interval]]
    ) -> dict[str, Interval]:
        """Return the intervals of what a SELECT shows: with these names of columns; those of its relations, and what it computes."""
        relations = {alias_of(table): self._relations[fold(table.this)] for table in tables_of(select)}
        columns = {(one.this.text("table"), one.this.name): fold(one.args["alias"]) for one in select.expressions}
        found = {
            name: _interval(columns[alias, one.start_column], columns[alias, one.end_column], one.bounds)
            for name, (alias, one) in intervals.items()
        }
        for output in select.expressions:
            name, node = fold(output.args["alias"]), output.this
            if _function_of(node) in ("intersection", *STRETCHES) and name not in names and NAME.fullmatch(name):
                first = node.expressions[0]
                of = relations[first.text("table")].intervals[first.name]
                found[name] = _interval(f"{name}_start", f"{name}_end", of.bounds)
        return found

    def _shown(self, output: exp.Expr, select: exp.Select) -> list[tuple[str, exp.Expr | None]]:
        """Return the columns of an output, with their names: the ends of an intersection, or of a stretch, are two. None: it has no value
        that could be written out."""
        name, value = fold(output.args["alias"]), output.this
        function = _function_of(value)
        if function not in ("intersection", *STRETCHES):
            return [(name, value)]
        relations = {alias_of(table): fold(table.this) for table in tables_of(select)}
        named = [one for one in value.expressions if isinstance(one, exp.Column) and one.text("table") in relations]
        found = [self._relations[relations[one.text("table")]].intervals.get(one.name) for one in named]
        intervals = [one for one in found if one is not None]
        is_inner = not any(join.side or join.method for join in select.args.get("joins") or ())
        if len(intervals) < len(value.expressions):
            raise unsupported(f"{sql_of(value)} in a view or a subquery that is read", "name intervals of its relations")
        if function != "intersection" or not is_inner or len({one.bounds for one in intervals}) > 1:
            return [(f"{name}_start", None), (f"{name}_end", None)]
        pairs = list(zip(named, intervals, strict=True))
        starts = [column_of(one.text("table"), interval.start_column) for one, interval in pairs]
        ends = [column_of(one.text("table"), interval.end_column) for one, interval in pairs]
        first = exp.Greatest(this=starts[0], expressions=starts[1:], ignore_nulls=True)
        last = exp.Least(this=ends[0], expressions=ends[1:], ignore_nulls=True)
        return [(f"{name}_start", first), (f"{name}_end", last)]

    def count(self, node: exp.Expr) -> None:
        """Count what is about to be copied. Problem `unsupported-query`."""
        self._left -= sum(1 for _ in node.walk())
        if self._left < 0:
            raise unsupported("a query that is so large when its subqueries are written out", "define a view for each part of it")

    # --- names

    def _resolve(self, select: exp.Select, sources: Sources, outer: Sequence[Names]) -> None:
        for one in sources.joined:
            _write_using(one.join, one.using)
            self._qualify(one.join.args.get("on"), [*outer, one.names])
        levels = [*outer, sources.names]
        self._write_outputs(select, sources.names)
        for output in select.expressions:
            self._qualify(output, levels)
        outputs = {fold(output.args["alias"]): output.this for output in select.expressions}
        for name, part in clauses_of(select):
            if name in _OF_OUTPUTS:
                _write_references(part, outputs, sources.names, name != "group")
            if name != "expressions":
                self._qualify(part, levels)

    def _qualify(self, part: exp.Expr | None, levels: Sequence[Names]) -> None:
        """Write the alias of each column of a clause."""
        for column in list(own_columns(part)) if part is not None else ():
            with self._source.noting(column):
                if isinstance(column.this, exp.Star):
                    raise unsupported(sql_of(column.parent or column), "name a column, or write count(*)")
                ref = next((ref for names in reversed(levels) if (ref := _found(column, names)) is not None), None)
                if ref is None:
                    levels[-1].check(column)
                else:
                    column.replace(placed(column_of(*ref), column))

    def _write_outputs(self, select: exp.Select, names: Names) -> None:
        """Write * out, and give each output its name."""
        named = list[tuple[str, exp.Expr]]()
        values = list[exp.Expr]()
        for one in select.expressions:
            if is_star(one):
                with self._source.noting(one):
                    for refs in read_star(one, names):
                        named.append((refs[0].column, one))
                        values.append(placed(column_of(*refs[0]) if len(refs) == 1 else merged(refs), one))
            else:
                named.append((fold(one.args["alias"]) if isinstance(one, exp.Alias) else name_of(one), one))
                values.append(one.unalias())
        written = zip(told_apart(names, named), values, named, strict=True)
        select.set("expressions", [placed(exp.Alias(this=value, alias=identifier(name)), one) for name, value, (_, one) in written])


def placed(node: _Node, at: exp.Expr) -> _Node:
    """Return the node with the position of another one, which stood in its place."""
    starts = [part.meta["start"] for part in at.walk() if "start" in part.meta]
    if starts:
        node.meta["start"] = min(starts)
    if "path" in at.meta:
        node.meta["path"] = at.meta["path"]
    return node


def _found(column: exp.Column, names: Names) -> ColumnRef | None:
    """Return the column or the interval of a SELECT's own aliases that a name means; None: it has none. Problem `bad-query`."""
    table, name = column.args.get("table"), fold(column.this)
    if table is not None:
        alias = fold(table)
        if alias not in names.scope.aliases:
            return None
        names.check(column)
        return ColumnRef(alias, name)
    for alias in names.scope.aliases:
        definition = names.scope.definition(alias)
        if name in definition.intervals:
            return ColumnRef(*names.interval(column))
        if any(one.name == name for one in definition.columns):
            return names.column(column)
    return None


def _write_using(join: exp.Join, using: Sequence[tuple[ColumnRef, ColumnRef]]) -> None:
    """Write ON in place of USING and NATURAL."""
    if join.method != "NATURAL" and not join.args.get("using"):
        return
    join.set("using", None)
    join.set("method", None)
    for left, right in using:
        add_condition(join, placed(exp.EQ(this=column_of(*left), expression=column_of(*right)), join.this))
    if not using and join.side:
        join.set("on", exp.Boolean(this=True))
    elif not using:
        join.set("kind", "CROSS")


def _write_references(clause: exp.Expr, outputs: Mapping[str, exp.Expr], names: Names, outputs_first: bool) -> None:
    """Write the outputs of SELECT that a clause names, by position or by name. `outputs_first`: a name means an output before a column."""
    listed = list(outputs.values())
    if clause.args.get("all"):
        clause.set("all", None)
        clause.set("expressions", [value.copy() for value in listed if value.find(exp.AggFunc) is None])
    on = clause.args.get("on") if isinstance(clause, exp.Distinct) else clause
    for one in on.expressions if on is not None else ():
        node = one.this if isinstance(one, exp.Ordered) else one
        value = None
        if isinstance(node, exp.Literal) and node.name.isdigit() and 1 <= int(node.name) <= len(listed):
            value = listed[int(node.name) - 1]
        elif isinstance(node, exp.Column) and not node.args.get("table") and (outputs_first or _found(node, names) is None):
            value = outputs.get(fold(node.this))
        if value is not None:
            node.replace(placed(value.copy(), node))


def _table(name: str, alias: str, at: exp.Expr) -> exp.Table:
    made = table_of(name, alias)
    return placed(made, at.args.get("alias") or at)


def _columns_of(table: exp.Expr) -> list[str]:
    """The names of `AS x (a, b)`."""
    alias = table.args.get("alias")
    return [fold(one) for one in alias.args.get("columns") or ()] if alias is not None else []


def _definition_of(table: DerivedTable) -> RelationDefinition:
    """Return what stands for a derived table while names are resolved: types do not matter."""
    columns = [Column.model_construct(name=name, type="int64", nullable=True) for name in table.columns]
    return RelationDefinition.model_construct(columns=columns, key=[], intervals={**table.shown, **table.intervals}, retain=None)


def _interval(start: str, end: str, bounds: Bounds) -> Interval:
    if start == end:
        return Interval(at=start, start=None, end=None, bounds=bounds)
    return Interval(start=start, end=end, bounds=bounds, at=None)


def _function_of(node: exp.Expr) -> str:
    return node.name.lower() if isinstance(node, exp.Anonymous) else ""
