"""Identifiers in SQL: folded to lower case unless quoted, resolved to columns and intervals; and their positions in the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain
from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.schema import NAME, RelationDefinition
from service.errors import Problem, unsupported
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import MAX_ALIASES, STRETCHES
from service.query.scope import Scope
from service.query.sql.complaints import Complaints, Noted, is_refused
from service.query.sql.functions import NAMES

_OF_INTERVALS = ("overlaps", "intersection", "duration", *STRETCHES)
_FUNCTIONS = (*_OF_INTERVALS, "latest", "exists", "count", "sum", "avg", "min", "max", *NAMES)


def bad_query(detail: str, line: int, column: int) -> Problem:
    """Lines and columns count from 1."""
    return Problem("bad-query", f"{detail} (line {line}, column {column})", position={"line": line, "column": column})


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Return the line and column of the character at `offset` (from 0), both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def fold(identifier: exp.Expr) -> str:
    """Return an identifier's name by PostgreSQL's rules."""
    name: str = identifier.name
    return name if identifier.args.get("quoted") else name.lower()


def identifier(name: str) -> exp.Identifier:
    return exp.Identifier(this=name, quoted=not NAME.fullmatch(name))


def column_of(alias: str, name: str) -> exp.Column:
    return exp.Column(this=identifier(name), table=identifier(alias))


def table_of(name: str, alias: str) -> exp.Table:
    return exp.Table(this=identifier(name), alias=exp.TableAlias(this=identifier(alias)))


def sql_of(node: exp.Expr) -> str:
    """Return how messages write a part of a query."""
    return node.sql("postgres")


class Text(Complaints):
    """A query in SQL: a complaint has the line and the column of the first word of its node."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def bad(self, node: exp.Expr, detail: str) -> Problem:
        """Return `bad-query`, at the beginning if the parser kept no position."""
        return bad_query(detail, *self._position(node))

    def placed(self, problem: Problem, node: exp.Expr) -> Problem:
        """Return the problem with the position of its node, unless it has one already or the parser kept none."""
        if any("start" in part.meta for part in node.walk()):
            line, column = self._position(node)
            problem.extensions.setdefault("position", {"line": line, "column": column})
        return problem

    def _position(self, node: exp.Expr) -> tuple[int, int]:
        starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
        return line_and_column(self._text, min(starts, default=0))


class Fields(Complaints):
    """A definition in JSON, of whose fields the nodes were made: a complaint begins with the path of the field."""

    def bad(self, node: exp.Expr, detail: str) -> Problem:
        return self.placed(Problem("bad-definition", detail), node)

    def placed(self, problem: Problem, node: exp.Expr) -> Problem:
        """Return the problem with the path of its node, unless it begins with one already."""
        path = next((one.meta["path"] for one in _upwards(node) if "path" in one.meta), "")
        if path and not str(problem.detail).startswith(path):  # the path of an inner node begins with those of the outer ones
            problem.detail = f"{path}: {problem.detail}"
        return problem


Source = Text | Fields


def _upwards(node: exp.Expr | None) -> Iterator[exp.Expr]:
    while node is not None:
        yield node
        node = node.parent


def meant(node: exp.Expr) -> str | None:
    """Return what to write instead of an unknown function, if its name resembles a known one."""
    if not isinstance(node, exp.Anonymous):
        return None
    close = get_close_matches(node.name.lower(), _FUNCTIONS, 1)
    return f"did you mean {close[0]}(…)?" if close else None


Shown = tuple[ColumnRef, ...]
"""A column of `*`; both sides of one that FULL JOIN merges: it has the value of the one that is there."""


class Names:
    """Resolves names within one SELECT. `shown`: the columns of `*`."""

    def __init__(self, scope: Scope, source: Source, shown: Sequence[Shown] = ()) -> None:
        self.scope, self.shown = scope, shown
        self.bad, self.placed, self.complaints = source.bad, source.placed, source

    def check(self, column: exp.Column) -> None:
        """Check that a column or an interval of that name exists, or the alias of `x.*`. Problem `unknown-column`, with its position."""
        alias, name = self._parts(column)
        try:
            self._check(alias, name, column.parent)
        except Problem as problem:
            raise self._unknown(problem, column, alias) from None

    def _unknown(self, problem: Problem, column: exp.Column, alias: str | None) -> Problem:
        if alias is None and column.this.args.get("quoted"):
            problem.detail += " (a string is written in single quotes)"
        return self.placed(problem, column.this if alias in self.scope.aliases else column)

    def _check(self, alias: str | None, name: str, within: exp.Expr | None) -> None:
        try:
            if alias is None:
                if not any(name in self.scope.definition(a).intervals for a in self.scope.aliases):
                    self.scope.find_column(name)
            elif name not in self.scope.definition(alias, name).intervals and name != "*":
                self.scope.column(alias, name)
        except Problem:
            if isinstance(within, exp.Overlaps) or (isinstance(within, exp.Anonymous) and within.name.lower() in _OF_INTERVALS):
                if alias is None:
                    self.scope.find_interval(name)
                else:
                    self.scope.interval(alias, name)
            raise

    def column(self, node: exp.Column) -> ColumnRef:
        alias, name = self._parts(node)
        try:
            found = [self.scope.column(alias, name)] if alias is not None else self.scope.find_column(name)
        except Problem as problem:
            raise self._unknown(problem, node, alias) from None
        if len(found) > 1:
            raise self.bad(node, f"the column {name} is ambiguous: write {' or '.join(map(str, found))}")
        return found[0]

    def is_column(self, node: exp.Column) -> bool:
        """Return whether a name is that of one column."""
        try:
            self.column(node)
        except Problem:
            return False
        return True

    def is_elapsed(self, ref: ColumnRef) -> bool:
        """Return whether the column stands for an aggregate of differences of timestamps."""
        return False

    def interval(self, node: exp.Expr) -> IntervalRef:
        """Resolve `b.stay`, `stay` if only one relation has it, or `(b.checkin, b.checkout)` over a declared interval."""
        node = node.unnest()
        if isinstance(node, exp.Tuple):
            return self._over_columns(node)
        if not isinstance(node, exp.Column):
            raise unsupported(f"{sql_of(node)} as an interval", "write alias.interval with an interval that the relation declares")
        alias, name = self._parts(node)
        if alias is not None:
            return self.scope.interval(alias, name)
        found = self.scope.find_interval(name)
        if len(found) > 1:
            raise self.bad(node, f"the interval {name} is ambiguous: write {' or '.join(map(str, found))}")
        return found[0]

    def _over_columns(self, node: exp.Tuple) -> IntervalRef:
        ends = [end.unnest() for end in node.expressions]
        if len(ends) != 2 or not all(isinstance(end, exp.Column) for end in ends):
            raise unsupported(f"{sql_of(node)} as an interval", "write (start, end), two columns of one relation")
        start, end = (self.column(end) for end in ends)
        found = list(self.scope.intervals_over(start, end))
        if len(found) > 1:  # OVERLAPS in SQL is for half-open periods
            found = [ref for ref in found if self.scope.declared(ref).bounds == "[)"] or found
        if not found:
            raise unsupported(
                f"({start}, {end})", f"declare an interval over ({start.column}, {end.column}) in {self.scope.aliases[start.alias]}"
            )
        if len(found) > 1:
            raise unsupported(f"({start}, {end})", f"several intervals have these ends: write {' or '.join(map(str, found))}")
        return found[0]

    def _parts(self, node: exp.Column) -> tuple[str | None, str]:
        if is_refused(node):
            raise Noted
        if node.args.get("db") and not is_public(node):
            raise unsupported(f"the schema in {sql_of(node)}", "write alias.column")
        table = node.args.get("table")
        return (fold(table) if table else None), fold(node.this)


class JoinedRelation(NamedTuple):
    """A relation of FROM behind the first one, or several, which JSON may join at once: the names in ON, and the pairs of columns of
    USING."""

    join: exp.Join
    aliases: list[str]
    names: Names
    using: list[tuple[ColumnRef, ColumnRef]]

    @property
    def before(self) -> list[str]:
        """The visible aliases to its left."""
        return [alias for alias in self.names.scope.aliases if alias not in self.aliases]

    @property
    def may_be_product(self) -> bool:
        """Whether a product is asked for if nothing compares its columns with others: by CROSS JOIN, NATURAL JOIN, or ON. (Conditions in
        JSON ask for none: there it is an entry of its own.)"""
        join, table = self.join, self.join.find(exp.Table)
        is_written = bool(join.args.get("on")) and table is not None and "path" not in table.meta
        return join.kind == "CROSS" or join.method == "NATURAL" or is_written


class Sources(NamedTuple):
    """FROM: its relations, and the joins of all but the first one; all aliases, and the names in rows: not those of the right sides of
    SEMI and ANTI JOIN."""

    tables: list[exp.Expr]
    joined: list[JoinedRelation]
    whole: Scope
    names: Names


def read_sources(select: exp.Select, source: Source, relations: Mapping[str, RelationDefinition], outer: Scope | None) -> Sources | None:
    """Return FROM; None if it reads from anything but relations. Problems `bad-query`, `unknown-column`."""
    joins, tables = select.args.get("joins") or [], tables_of(select)
    if not tables or not all(is_relation(table) and fold(table.this) in relations for table in tables):
        return None
    if len(tables) > MAX_ALIASES:  # before anything that takes time for each pair
        raise unsupported(f"a join of {len(tables)} relations", f"a view joins at most {MAX_ALIASES}")
    aliases: dict[str, str] = {}
    for table in tables:
        alias = alias_of(table)
        if not NAME.fullmatch(alias):
            raise source.bad(table, f"the alias {alias!r} does not match {NAME.pattern}")
        if alias in aliases:
            raise source.bad(table, f"the alias {alias} is used twice: rename one of them")
        aliases[alias] = fold(table.this)
    whole, joined = Scope(aliases, relations, outer), list[JoinedRelation]()
    deleted, later = dict[str, str](), {} if isinstance(source, Fields) else dict.fromkeys(list(aliases)[1:], _LATER)
    apart, shown = list[Shown](), _columns(whole, list(aliases)[:1])  # of `*`: behind a comma another join begins
    for join in joins:
        own = [*map(alias_of, tables_of_join(join))]
        for alias in own:
            later.pop(alias, None)
        if is_comma(join):
            apart, shown = [*apart, *shown], []
        names = Names(whole.without({**deleted, **later}), source)
        others = {ref.alias: _COMMA for one in apart for ref in one}
        left = Names(whole.without({**deleted, **others, own[0]: "no relation before it has a column of this name", **later}), source)
        using = list(_using(join, own[0], names, left, shown))
        joined.append(JoinedRelation(join, own, names, using))
        if join.kind in ("SEMI", "ANTI") and join.method != "ASOF":
            deleted[own[0]] = _DELETED
        else:
            shown = _joined(shown, _columns(whole, own), using, join.side)
    return Sources(tables, joined, whole, Names(whole.without(deleted), source, [*apart, *shown]))


def _columns(scope: Scope, aliases: Sequence[str]) -> list[Shown]:
    return [(ref,) for alias in aliases for ref in scope.columns(alias)]


def _joined(left: list[Shown], right: list[Shown], using: Sequence[tuple[ColumnRef, ColumnRef]], side: str) -> list[Shown]:
    """Return the columns of a join: those of USING come first, each once."""
    merged = [{"RIGHT": (y,), "FULL": (x, y)}.get(side, (x,)) for x, y in using]
    known = {ref for pair in using for ref in pair}
    return [*merged, *(one for one in (*left, *right) if known.isdisjoint(one))]


_COMMA = "JOIN binds more tightly than the comma, so this relation is not part of it"
_LATER = "ON can refer only to relations joined before it; move the condition to the ON of the later join, or to WHERE"
_DELETED = "the right side of SEMI JOIN and ANTI JOIN is visible in its ON alone"


def tables_of(select: exp.Select) -> list[exp.Expr]:
    """Return what FROM joins, in order."""
    start = select.args.get("from_")
    return [start.this, *chain(*map(tables_of_join, select.args.get("joins") or ()))] if start else []


def tables_of_join(join: exp.Join) -> list[exp.Expr]:
    """Return what a join adds: several relations only in JSON, or from parentheses."""
    return list(join.this.expressions) if isinstance(join.this, exp.Tuple) else [join.this]


def alias_of(table: exp.Expr) -> str:
    given = table.args.get("alias")
    return fold(given.this if given and given.this else table.this)


def is_comma(join: exp.Join) -> bool:
    """Return whether the relation follows a comma, which binds less than JOIN."""
    return not (join.method or join.side or join.kind or join.args.get("on") or join.args.get("using"))


def is_public(node: exp.Expr) -> bool:
    """Return whether the schema of a table or a column is that in which all relations are, as in PostgreSQL."""
    return not node.args.get("catalog") and fold(node.args["db"]) == "public"


def is_relation(table: exp.Expr) -> bool:
    """Return whether this is the name of a relation or view, not a function."""
    return isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier)


def _using(
    join: exp.Join, alias: str, names: Names, left: Names, shown: Sequence[Shown]
) -> Iterator[tuple[ColumnRef, ColumnRef]]:  # fmt: skip
    """Yield the pairs of columns of USING, or of NATURAL JOIN. `left`: the names to the left of the join; `shown`: its columns."""
    using = join.args.get("using") or []
    if join.method == "NATURAL":
        own = {column.name for column in names.scope.definition(alias).columns}
        common = dict.fromkeys(refs[0].column for refs in shown if refs[0].column in own)
        using = [_at(join.this, exp.to_identifier(name, quoted=True)) for name in common]
    for node in using:
        identifier = node.this if isinstance(node, exp.Column) else node
        try:
            right = names.scope.column(alias, fold(identifier))
            found = [ref for ref in left.scope.find_column(right.column) if ref.alias in left.scope.aliases]
            if not found:
                left.scope.column(*right)
        except Problem as problem:
            raise names.placed(problem, identifier) from None
        if len(found) > 1:
            instead = f"write ON {right} = {found[0]}, or use another alias"
            raise names.bad(identifier, f"USING ({right.column}) is ambiguous: {instead}")
        names.scope.merge(found[0], right, join.side == "RIGHT")
        yield found[0], right


def _at(place: exp.Expr, node: exp.Identifier) -> exp.Identifier:
    """Return the node with the position of another one."""
    node.meta.update(next((one.meta for one in place.walk() if "start" in one.meta), {}))
    return node
