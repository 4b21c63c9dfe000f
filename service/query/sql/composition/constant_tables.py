"""VALUES and generate_series in FROM: tables of constants, which are read like relations whose rows never change.

Their rows are part of the definition, and of nothing else: they are in neither the log nor snapshots, and are there again at each start.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any, NamedTuple

from sqlglot import exp

from livejoin.wire.grammar import DAY
from livejoin.wire.kinds import MOST_DIGITS, decimal_kind, digits_of
from livejoin.wire.schema import Column, RelationDefinition
from service.errors import unsupported
from service.query.literals import BadLiteral
from service.query.scope import Scope
from service.query.sql.constants import is_constant, read_value
from service.query.sql.functions import interval_of
from service.query.sql.names import Names, Source, column_of, fold, identifier, sql_of
from service.query.sql.terms import read_alike

_MOST = 10_000  # rows
_ROW = "row.number"  # the key of VALUES without a column of different values: no column of a relation has a dot in its name
_SERIES = "generate_series"
_OF_TABLE = ("this", "alias", "expressions", "joins")
_EPOCH = date(1970, 1, 1).toordinal()


class ConstantTable(NamedTuple):
    """rows: of physical values, in the order of the columns. All relations of the table have them in the same slots."""

    definition: RelationDefinition
    rows: list[tuple[Any, ...]]


class _Values(NamedTuple):
    """The values of a column."""

    kind: str
    physical: list[Any]


def write_constant_tables(tree: exp.Expr, source: Source, add: Callable[[ConstantTable], str]) -> None:
    """Put the names that `add` gives to tables of constants in their places. Problems `unsupported-query`, `bad-query`."""
    names, count = Names(Scope({}, {}), source), source.count
    for select in tree.find_all(exp.Select):
        series = [one for output in select.expressions for one in output.find_all(exp.ExplodingGenerateSeries)]
        if len(series) == 1 and not select.args.get("from_"):  # SELECT generate_series(…) AS n
            series[0].replace(column_of(_SERIES, _SERIES))
            select.set("from_", exp.From(this=exp.Table(this=series[0])))
    for node in list(tree.find_all(exp.Values, exp.Table)):
        is_values, is_series = isinstance(node, exp.Values), isinstance(node.this, exp.ExplodingGenerateSeries)
        is_operand = not isinstance(node.parent, exp.From | exp.Join | exp.Subquery) or isinstance(node.parent.parent, exp.Any)
        if is_values and is_operand:
            with source.noting(node):
                raise unsupported("VALUES after IN, EXISTS, ANY or ALL", "list the constants, or SELECT from (VALUES …) AS t(a)")
        elif is_values or (is_series and not is_operand):
            with source.noting(node):
                outer = node.parent if isinstance(node.parent, exp.Subquery) else node  # of VALUES in two pairs of parentheses
                alias = outer.args.get("alias") or exp.TableAlias(this=identifier("values" if is_values else _SERIES))
                columns = _values(node, names) if is_values else {fold(alias.this): _series(node.this, names)}
                if more := [name for name, value in node.args.items() if value and name not in _OF_TABLE]:
                    raise unsupported(f"{more[0].upper()} after {'VALUES' if is_values else _SERIES}", "omit it")
                name = add(_table(columns, alias, source))
                alias.set("columns", None)
                outer.replace(exp.Table(this=identifier(name), alias=alias, joins=outer.args.get("joins")))
    if source.count > count:
        source.finish()


def _table(columns: dict[str, _Values], alias: exp.Expr, source: Source) -> ConstantTable:
    """Return a table with the names that its alias gives to its columns."""
    given, values = [*map(fold, alias.args.get("columns") or ())], [*columns.values()]
    named, rows = [*given, *[*columns][len(given) :]], [*range(len(values[0].physical))]
    if len(rows) > _MOST:
        raise unsupported(f"a table of more than {_MOST:,} constant rows", "load them into a relation, and join that")
    if len(given) > len(values):
        raise source.bad(alias, f"{len(given)} names for {len(values)} columns")
    if wrong := [name for position, name in enumerate(named) if name in named[:position] or "." in name]:
        raise source.bad(alias, f"two columns are named {wrong[0]}, or it has a dot: choose another name")
    unique = (name for name, one in zip(named, values, strict=True) if None not in one.physical and len({*one.physical}) == len(rows))
    if (key := next(unique, _ROW)) == _ROW:
        named, values = [*named, _ROW], [*values, _Values("int64", rows)]
    definitions = [Column.of_kind(name, one.kind, None in one.physical) for name, one in zip(named, values, strict=True)]
    definition = RelationDefinition.model_construct(columns=definitions, key=[key], intervals={}, retain=None)
    return ConstantTable(definition, list(zip(*(one.physical for one in values), strict=True)))


def _values(node: exp.Expr, names: Names) -> dict[str, _Values]:
    rows = [one.expressions if isinstance(one, exp.Tuple) else [one] for one in node.expressions]
    if len({*map(len, rows)}) > 1 or not rows[0]:
        raise names.bad(node, "each row of VALUES has at least one value, and as many as the others")
    columns = enumerate(zip(*rows, strict=True), 1)
    return {f"column{number}": _read(f"column {number} of VALUES", column, names) for number, column in columns}


def _read(what: str, nodes: Sequence[exp.Expr], names: Names) -> _Values:
    """Read constants as values of the one type that represents all of them."""
    for node in nodes:
        if not is_constant(node):
            raise names.placed(unsupported(f"{sql_of(node)} in a table of constants", "write constants, perhaps with casts"), node)
    if all(isinstance(node, exp.Null) for node in nodes):
        raise names.bad(nodes[0].parent or nodes[0], f"{what} is NULL in all rows: give it a type, as in CAST(NULL AS bigint)")
    kind = read_alike(what, nodes, names)
    if digits := digits_of(kind):
        kind = decimal_kind(*(min(one, MOST_DIGITS) for one in digits))
    physical = list[Any]()
    for node in nodes:
        try:
            physical.append(read_value(node, kind))
        except BadLiteral as error:
            raise names.bad(node, str(error)) from None
    return _Values(kind, physical)


def _series(node: exp.Expr, names: Names) -> _Values:
    """Return the values of generate_series. Of dates that are whole days or months apart, these are dates."""
    ends, step = [node.args["start"], node.args["end"]], node.args.get("step")
    said = "no step" if step is None else f"the step {sql_of(step)}"
    if node.args.get("is_end_exclusive"):
        raise unsupported(f"{_SERIES} with 4 arguments", "it takes a start, an end, and perhaps a step")
    kind, (first, last) = _read(_SERIES, ends, names)
    if kind not in ("int64", "date", "timestamp") or None in (first, last):
        raise unsupported(f"{_SERIES} of {kind}", "its ends are integers, dates or timestamps: date '2026-01-01'")
    if kind == "int64":
        of, (*_, by) = _Values(kind, [1]) if step is None else _read(_SERIES, [*ends, step], names)
        if of != kind or not by:
            raise unsupported(f"{_SERIES} with {said}", "write an integer other than 0")
        return _Values(kind, _within(first, last, by, lambda at: at + by))
    try:
        is_text = isinstance(step, exp.Literal) and step.is_string
        months, micros = (step and interval_of(exp.Interval(this=step.copy()) if is_text else step)) or (0, 0)
    except BadLiteral as error:
        raise names.bad(node, str(error)) from None
    if not (by := 30 * DAY * months + micros):
        raise unsupported(f"{_SERIES} of {kind} with {said}", "write interval '1 day'")
    unit = DAY if kind == "date" else 1
    found = _within(first * unit, last * unit, by, lambda at: _later(at, months) + micros)
    return _Values("timestamp", found) if micros % unit else _Values(kind, [at // unit for at in found])


def _within(first: int, last: int, step: int, following: Callable[[int], int]) -> list[int]:
    """Return the values up to the last one, but only one more than a table may have."""
    found = list[int]()
    while (first <= last if step > 0 else first >= last) and len(found) <= _MOST:
        found.append(first)
        try:
            first = following(first)
        except ValueError:  # no date is that late, or early
            break
    return found


def _later(micros: int, months: int) -> int:
    """Return the time that many months later, on the last day of a month without its day."""
    if not months:
        return micros
    days, time = divmod(micros, DAY)
    there = date.fromordinal(_EPOCH + days)
    year, month = divmod(there.year * 12 + there.month - 1 + months, 12)
    day = min(there.day, monthrange(year, month + 1)[1])
    return (date(year, month + 1, day).toordinal() - _EPOCH) * DAY + time
