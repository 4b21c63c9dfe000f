"""A view's definition in SQL: one SELECT in PostgreSQL's dialect, with `overlaps(x, y)`, `intersection(...)`, `duration(...)`, or several
with UNION and EXCEPT. `query.definition` turns JSON into the same syntax tree.

This module reads the text, FROM and SELECT; `conditions` reads ON and WHERE. Names are checked before anything is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.schema import RelationDefinition
from service.errors import Problem, unsupported
from service.query.assembly import Draft, Options, SubqueryDraft, column_output, computed_outputs, too_many
from service.query.latest import is_latest, read_as_of, read_latest
from service.query.model import STRETCHES, Output, SubqueryKind
from service.query.scope import Scope, check_relation
from service.query.set_operations import Expression, Operation, SetOperation, drafts_of
from service.query.sql.columns import check_names, is_star, merged, read_star
from service.query.sql.complaints import Noted, is_refused
from service.query.sql.composition.catalogue import Catalogue
from service.query.sql.composition.composing import composed, is_composed
from service.query.sql.composition.constant_tables import write_constant_tables
from service.query.sql.composition.parentheses import without_parentheses
from service.query.sql.conditions import Conditions, ReadSubquery
from service.query.sql.dialect import Dialect
from service.query.sql.filters import note_within, operands
from service.query.sql.groups import is_grouped, read_groups
from service.query.sql.names import JoinedRelation, Names, Shown, Source, Sources, Text, bad_query, fold, is_comma, is_public
from service.query.sql.output_names import given_name, name_of, told_apart
from service.query.sql.terms import read_term
from service.query.sql.text import check_operators, parse, write_in
from service.query.subqueries import assemble_view

_CLAUSES = {
    "distinct": ("DISTINCT", "omit it"),
    "group": ("GROUP BY", "group the rows of the view"),
    "having": ("HAVING", "write the condition in WHERE"),
    "order": ("ORDER BY", "omit it"),
    "limit": ("LIMIT", "a view has all rows; read the first ones with ?order=column desc&limit=n"),
    "offset": ("OFFSET", "a view has all rows; use ?limit= and ?cursor= when reading them"),
    "windows": ("WINDOW", "compute it when you read the rows"),
    "laterals": ("LATERAL", "write JOIN … ON overlaps(x, y)"),
    "locks": ("FOR UPDATE", "omit it; a view does not lock rows"),
    "into": ("INTO", "omit it; the name of the view is in the URL"),
}
_GROUPED = ("distinct", "group", "having")

_INPUTS: dict[str, SubqueryKind] = {"LEFT": "optional", "RIGHT": "optional", "FULL": "full"}
_KINDS: dict[tuple[str, str], SubqueryKind] = {
    **{(side, outer): kind for side, kind in _INPUTS.items() for outer in ("", "OUTER")},
    **{(side, "SEMI"): "exists" for side in ("", "LEFT")},
    **{(side, "ANTI"): "absent" for side in ("", "LEFT")},
}
"""By a JOIN's side and kind; other joins are inner ones."""


_ONE = "a view is defined by one SELECT … FROM … WHERE …, or by CREATE [OR REPLACE] VIEW name AS and such a SELECT"


class ReadQuery(NamedTuple):
    """A draft, and the names of the relations and views that its text names."""

    draft: Expression
    relations: frozenset[str]
    views: frozenset[str]


def read_sql(text: str, known: Catalogue, most: int | None = None) -> ReadQuery:
    """Read a SELECT, or several, of at most so many conditions. Raises `bad-query` with `position` for syntax errors and ambiguous
    names."""
    try:
        return read_query(parse_select(text), Text(text), known, most)
    except RecursionError:
        raise bad_query("the query is nested too deeply", 1, 1) from None


def parse_select(text: str) -> exp.Expr:
    """Return the syntax tree of a SELECT, or of several. Raises as `read_sql`."""
    tree = parse(text, Dialect, "a view is defined by one")
    if not isinstance(tree, exp.Query):
        raise unsupported(f"{tree.key.upper()}", _ONE)
    return tree


def read_query(tree: exp.Expr, source: Source, known: Catalogue, most: int | None = None) -> ReadQuery:
    """Read a parsed SELECT, or several. `source`: what it was parsed from. Names are checked before anything else."""
    clauses = [one.args.get("on") if isinstance(one, exp.Join) else one.this for one in tree.find_all(exp.Where, exp.Having, exp.Join)]
    found = sum(len(operands(one, False, exp.And)) for one in clauses if one is not None)
    if most is not None and found > most:  # before anything that takes time for each
        raise too_many(found, "conditions", most)
    check_operators(tree, source)
    write_in(tree)
    source.finish()
    named, relations, count = frozenset(_named(tree, source, known)), known.relations, source.count
    write_constant_tables(tree, source, known.store.add)
    without_parentheses(tree, source)
    if source.count > count or is_composed(tree, known):
        source.finish()
        with source.noting():
            tree = composed(tree, source, known, partial(_read_select, reading=_Reading(source, relations, [])))
        source.finish()
    for branch in _branches(tree):
        with source.noting():
            check_names(branch, source, relations)
    made, reading = list[Expression](), _Reading(source, relations, [])
    with source.noting():
        made.append(_read_query(tree, reading))
    for draft in reading.joined if source.count else ():
        with source.noting():
            assemble_view(draft, Options("auto", "best-effort", None))
    source.finish()
    return ReadQuery(made[0], named - known.views.keys(), named & known.views.keys())


class _Reading(NamedTuple):
    """What is read of a definition: its text, the relations, and the SELECTs of which FROM and WHERE are understood."""

    source: Source
    relations: Mapping[str, RelationDefinition]
    joined: list[Draft]


def _named(tree: exp.Expr, source: Source, known: Catalogue) -> Iterator[str]:
    """Yield the names of relations and views in a query; note those that do not exist."""
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and not isinstance(table.parent, exp.Into) and not _is_of_with(table):
            with source.noting(table):
                if fold(table.this) not in known.views:
                    check_relation(fold(table.this), known.nameable, known.views)
                yield fold(table.this)


def _is_of_with(table: exp.Table) -> bool:
    """Whether WITH gives a table its meaning, that of a query around it."""
    name, node = fold(table.this), table.parent
    before: exp.Expr = table
    while node is not None and not table.args.get("db"):
        with_ = node if isinstance(node, exp.With) else node.args.get("with_")
        for one in with_.expressions if with_ is not None and with_ is not before else ():
            if one is before:
                break  # it sees those before it
            if fold(one.args["alias"].this) == name:
                return True
        before = node
        node = node.parent
    return False


def _branches(tree: exp.Expr) -> Iterator[exp.Select]:
    """Yield the SELECTs of a UNION, EXCEPT or INTERSECT."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.SetOperation):
            pending += [node.right, node.left]
        elif isinstance(node, exp.Subquery):
            pending.append(node.this)
        elif isinstance(node, exp.Select):
            yield node


def _read_query(tree: exp.Expr, reading: _Reading) -> Expression:
    source = reading.source
    if isinstance(tree, exp.Select):
        return _read_select(tree, reading)
    if not isinstance(tree, exp.Subquery | exp.SetOperation):
        raise unsupported(f"{tree.key.upper()}", _ONE)
    for name, value in tree.args.items():
        if value and name not in ("this", "expression", "distinct", "order"):
            part, instead = _CLAUSES.get(name, (name.strip("_").upper(), "a view is SELECT … UNION SELECT …"))
            with source.noting(value if isinstance(value, exp.Expr) else None):
                raise unsupported(f"{part} with UNION or EXCEPT", instead)
    if isinstance(tree, exp.Subquery):
        within = _read_query(tree.this, reading)
        within.ordered = within.ordered or bool(tree.args.get("order"))
        _check_order(tree, within, source)
        return within
    known, sides = source.count, list[Expression]()
    for side in (tree.left, tree.right):
        with source.noting():
            sides.append(_read_query(side, reading))
    source.require_no_more(known)
    left, right = sides
    ordered = bool(tree.args.get("order")) or left.ordered or right.ordered
    operation: Operation = "EXCEPT" if isinstance(tree, exp.Except) else "UNION" if tree.args.get("distinct") else "UNION ALL"
    made = SetOperation(left, operation, right, ordered)
    _check_order(tree, made, source)
    return made


def _check_order(tree: exp.Expr, made: Expression, source: Source) -> None:
    """Check what ORDER BY names, though it has no effect: after UNION and EXCEPT, and after parentheses, columns of the result."""
    first = next(drafts_of(made))
    names = [output.name for output in (first.groups.outputs if first.groups is not None else first.outputs)]
    for key in tree.args["order"].expressions if tree.args.get("order") else ():
        with source.noting(key):
            node = key.this.unnest()
            if isinstance(node, exp.Literal) and not node.is_string:
                if not node.name.isdecimal() or not 1 <= int(node.name) <= len(names):
                    raise source.bad(node, f"ORDER BY {node.name}: SELECT has {len(names)} columns")
            elif not isinstance(tree, exp.Select):
                is_name = isinstance(node, exp.Column) and not node.args.get("table")
                if not is_name or fold(node.this) not in names:
                    there = f"after UNION and EXCEPT, name a column of the result ({', '.join(names)}) or its number"
                    raise source.bad(node, f"ORDER BY {node.sql(Dialect)}: {there}")


def _read_subquery(query: exp.Expr, words: str, outer: Scope, reading: _Reading) -> Draft:
    """Read the SELECT in EXISTS (…), NOT EXISTS (…) or IN (…); for IN, including what it selects."""
    if not isinstance(query, exp.Select):
        raise unsupported(f"{query.key.upper()} in {words}", f"write {words} (SELECT … FROM … WHERE …), once for each part")
    return _read_select(query, reading, outer, words)


def _read_select(select: exp.Select, reading: _Reading, outer: Scope | None = None, words: str = "") -> Draft:
    """Read a SELECT. `outer`: for a part, the enclosing scope; what a part selects does not matter, except in IN. `words`: what part it
    is."""
    source, sources = reading.source, list[Sources | None]()
    with source.noting():
        sources.append(check_names(select, source, reading.relations, outer))
    _refuse_clauses(select, source, words)
    for part in select.expressions:
        with source.noting(part):
            for node in part.find_all(exp.Window):
                instead = "one change can change the values of many rows: compute it when you read them; for the first rows of each key, "
                instead += "write QUALIFY ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) <= n"
                raise source.placed(unsupported(f"{node.this.sql(Dialect)} OVER (…)", instead), node)
    if not select.args.get("from_"):
        raise unsupported("a SELECT without FROM", "a view reads relations, write FROM …")
    if not sources or sources[0] is None or is_refused(select.args["from_"]) or any(map(is_refused, _tables(select))):
        raise Noted
    draft = _read_rows(select, sources[0], reading, outer, words)
    names = sources[0].names
    if outer is None and is_latest(select):
        with source.noting():
            draft.latest = read_latest(select, names)
        draft.outputs = _read_outputs(select, names, draft)
    elif outer is None and is_grouped(select):
        draft.groups = read_groups(select, names, draft, _read_output, partial(_read_outputs, draft=draft))
    elif outer is None or words == "IN":
        draft.outputs = _read_outputs(select, names, draft)
    elif any(not is_refused(part) and part.find(exp.Func) for part in select.expressions):  # it may return no row, or several
        raise unsupported(f"a function in the SELECT list of {words}", "write SELECT 1")
    if outer is None and draft.ordered:
        _check_order(select, draft, source)
    return draft


def _tables(select: exp.Select) -> Iterator[exp.Table]:
    """Yield the tables of FROM, and of its subqueries."""
    for part in (select.args["from_"], *(select.args.get("joins") or ())):
        yield from part.find_all(exp.Table)


def _read_rows(select: exp.Select, sources: Sources, reading: _Reading, outer: Scope | None, words: str) -> Draft:
    """Read FROM and WHERE."""
    source, known = reading.source, reading.source.count
    for table in sources.tables:
        with source.noting(table):
            _refuse_table(table)
    read_subquery = partial(_read_subquery, reading=reading) if outer is None else None
    draft = _read_joins(sources, read_subquery, words)
    draft.places[""] = select
    draft.ordered = bool(select.args.get("order")) and (not is_latest(select) or bool(select.args.get("qualify")))
    if "where" in select.args and select.args["where"]:
        Conditions(draft, sources.names, read_subquery, words, True).add(select.args["where"].this)
    if outer is None and source.count == known and all(map(_is_accepted, select.args.get("joins") or ())):
        reading.joined.append(draft)
    return draft


def _read_joins(sources: Sources, read_subquery: ReadSubquery | None, words: str) -> Draft:
    """Read FROM and its joins; the scope of the draft has the aliases that rows have."""
    whole, complaints = sources.whole, sources.names.complaints
    draft = Draft(whole, complaints=complaints, places=dict(zip(whole.aliases, sources.tables, strict=True)))
    for one in sources.joined:
        with one.names.complaints.noting(one.join):
            draft = _read_join(one, draft, sources, read_subquery, words)
    draft.scope = whole.of(list(sources.names.scope.aliases))
    return draft


def _read_join(one: JoinedRelation, draft: Draft, sources: Sources, read_subquery: ReadSubquery | None, words: str) -> Draft:
    """Read one more join into the draft of those before it; return the draft of all."""
    join, own, names, kind = one.join, one.aliases, one.names, _KINDS.get((one.join.side, one.join.kind))
    on, whole = join.args.get("on"), sources.whole
    using = [whole.equated(*pair) for pair in one.using]
    if words and (join.method == "ASOF" or kind is not None):
        what = "ASOF JOIN" if join.method == "ASOF" else _join_words(join)
        raise unsupported(f"{what} in {words}", f"write {words} (SELECT … FROM … WHERE …), joined by JOIN")
    if join.method == "ASOF":
        read_as_of(join, one.before, join.meta.get("of", own[0]), draft, names)
        return draft
    if kind is None:
        mine = replace(draft.beside(draft.scope), equal=list(using))
        draft.equal += using
        if on is not None:
            Conditions(mine, names, read_subquery, words, True).add(on)
            Conditions(draft, names, read_subquery, words, True).add(on)
        if one.may_be_product and mine.has_filters_only:
            draft.cross.append((one.before[-1], own[0]))
        return draft
    if join.side == "RIGHT":  # the mirror of LEFT JOIN: everything before it is the part
        if draft.subqueries or draft.absent:
            raise unsupported("RIGHT JOIN after another outer join", f"begin with {own[0]}: write FROM {own[0]} LEFT JOIN …")
        if any(is_comma(earlier.join) for earlier in sources.joined[: sources.joined.index(one)]):
            raise unsupported("RIGHT JOIN after a comma", f"begin with {own[0]}: write FROM {own[0]} LEFT JOIN …")
        draft.scope = whole.of(one.before)
        part, draft = draft, draft.beside(whole)
    else:
        part = draft.beside(whole.of(own))
    part.equal += using
    if on is not None:
        Conditions(part, names, None, _join_words(join), True).add(on)
    if one.may_be_product and part.has_filters_only:
        part.cross.append((one.before[-1], own[0]))
    if kind == "absent":
        draft.absent.append(part)
    else:
        draft.subqueries.append(SubqueryDraft(kind, part))
    return draft


def _read_outputs(select: exp.Select, names: Names, draft: Draft) -> list[Output]:
    if not select.expressions:
        raise bad_query("SELECT has no columns", 1, 1)
    outputs, origins = list[Output](), list[exp.Expr]()
    known = names.complaints.count
    for expression in select.expressions:
        with names.complaints.noting(expression):
            made = _read_output(expression, names)
            outputs += made
            origins += [expression] * len(made)
    names.complaints.require_no_more(known)
    found = told_apart(names, [(output.name, origin) for output, origin in zip(outputs, origins, strict=True)])
    outputs = [output._replace(name=name) for output, name in zip(outputs, found, strict=True)]
    draft.places.update(zip(outputs, origins, strict=True))
    return outputs


def _refuse_clauses(select: exp.Select, source: Source, words: str) -> None:
    more = () if words else ("order", "qualify", "limit") if is_latest(select) else ("order",)
    for name, value in select.args.items():
        if words and name == "distinct" and value and not value.args.get("on"):
            continue  # whether there is a row, or a value, does not depend on it
        if value and name not in ("expressions", "from_", "joins", "where", *(() if words else _GROUPED), *more):
            part, instead = _CLAUSES.get(name, (name.strip("_").upper(), "a view is SELECT … FROM … JOIN … ON … WHERE …"))
            if name == "limit" and not words:
                part, instead = "LIMIT without ORDER BY", "write ORDER BY before it, or read some rows of the whole view with ?limit=n"
            if words:
                part, instead = f"{part} in {words}", f"write {words} (SELECT … FROM … WHERE …)"
            with source.noting(value[0] if isinstance(value, list) else value if isinstance(value, exp.Expr) else None):
                raise unsupported(part, instead)
    for join in select.args.get("joins") or []:
        with source.noting(join):
            _refuse_join(join)


def _is_accepted(join: exp.Join) -> bool:
    try:
        _refuse_join(join)
    except Problem:
        return False
    return True


def _refuse_join(join: exp.Join) -> None:
    if join.method == "ASOF":
        return
    if join.method not in ("", "NATURAL"):
        raise unsupported(f"{join.method} JOIN", "write JOIN … ON a.k = b.k AND overlaps(a.x, b.y)")
    table, on, using = join.find(exp.Table), join.args.get("on"), join.args.get("using")
    if join.kind == "CROSS" or join.method == "NATURAL":
        if on is not None or using:
            words = "CROSS" if join.kind == "CROSS" else "NATURAL"
            raise Problem("bad-query", f"{words} JOIN takes no {'USING' if using else 'ON'}: write JOIN alone before it")
    elif (join.side, join.kind) in _KINDS and on is None and not using and table is not None and "path" not in table.meta:
        words = f"{_join_words(join)} {table.name}"
        raise Problem("bad-query", f"ON is missing after {words}: its condition stands there, not in WHERE")
    if (join.side or join.kind not in ("", "INNER", "CROSS")) and (join.side, join.kind) not in _KINDS:
        raise unsupported(_join_words(join), "write JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, SEMI JOIN or ANTI JOIN with ON …")
    for name, value in join.args.items():
        if value and name not in ("this", "on", "using", "kind", "side", "method"):
            raise unsupported(f"{name.strip('_').upper()} of a JOIN", "write JOIN … ON …")


def _join_words(join: exp.Join) -> str:
    return " ".join(word for word in (join.side, join.kind if join.kind != "OUTER" else "") if word) + " JOIN"


def _refuse_table(table: exp.Expr) -> None:
    for name, value in table.args.items():
        if value and name in ("db", "catalog") and not is_public(table):
            raise unsupported(f"the schema of {table.sql(Dialect)}", f"all relations are in the schema public: write {table.name}")
        if value and (name not in ("this", "alias", "db") or (name == "alias" and value.args.get("columns"))):
            raise unsupported(f"{table.sql(Dialect)} in FROM", f"write {table.name} alone, or with an alias")


def _read_output(expression: exp.Expr, names: Names) -> list[Output]:
    try:
        return _outputs_of(expression, names)
    except Problem as problem:
        if note_within(expression, names, problem):
            raise Noted from None
        raise names.placed(problem, expression) from None


def _outputs_of(expression: exp.Expr, names: Names) -> list[Output]:
    if is_star(expression):
        return [_shown_output(refs, names) for refs in read_star(expression, names)]
    name, expression = given_name(expression, names), expression.unalias().unnest()
    if isinstance(expression, exp.Column):
        return [column_output(names.column(expression), name)]
    function = expression.name.lower() if isinstance(expression, exp.Anonymous) else ""
    if function in ("intersection", "duration", *STRETCHES):
        if not expression.expressions:
            raise unsupported(expression.sql(Dialect), f"{function} takes intervals, as in {function}(b.stay, m.slot)")
        return computed_outputs(function, tuple(names.interval(argument) for argument in expression.expressions), name)
    return [Output(name or name_of(expression), "term", None, (), read_term(expression, names))]


def _shown_output(refs: Shown, names: Names) -> Output:
    if len(refs) == 1:
        return column_output(refs[0])
    return Output(refs[0].column, "term", None, (), read_term(merged(refs), names))
