"""The latest rows of each key of a relation, from a definition: `DISTINCT ON (r.k) … ORDER BY r.k, r.at DESC`, `QUALIFY
ROW_NUMBER() OVER (PARTITION BY r.k ORDER BY r.at DESC) <= n`; of the whole relation: `ORDER BY r.at DESC LIMIT n`; and the latest row for
each row of another relation: `a ASOF [LEFT] JOIN b ON a.k = b.k AND b.at <= a.at`, which LAG and LEAD also become. FIRST_VALUE is a value
of the first row of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.kinds import MOST_DIGITS, digits_of
from livejoin.wire.schema import RelationDefinition
from service.errors import Problem, unsupported
from service.query.assembly import Draft, unused
from service.query.conditions import ColumnRef, RowValue, refs_of
from service.query.filters import ordered
from service.query.model import MOST_LATEST, AsOf, Latest, Ordering
from service.query.scope import Scope
from service.query.sql.conditions import Conditions
from service.query.sql.groups import is_grouped
from service.query.sql.names import Names, alias_of, column_of, fold, identifier, sql_of, table_of, tables_of
from service.query.sql.terms import read_term
from service.query.terms import is_plain

_ORDERED = ("int64", "float64", "timestamp", "date", "time", "bool")  # and decimals
_TEXTS = ("string", "uuid", "bytes")
_QUALIFY = "write QUALIFY ROW_NUMBER() OVER (PARTITION BY columns ORDER BY column DESC) <= n"
_MOST: dict[type[exp.Expr], int] = {exp.LTE: 0, exp.LT: -1, exp.EQ: 0}  # added to the number
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}
_SQL = "postgres"
WINDOWED = (exp.Lag, exp.Lead, exp.FirstValue, exp.LastValue)


def is_ordered(kind: str) -> bool:
    """Return whether values of this type are ordered as numbers are."""
    return kind in _ORDERED or digits_of(kind) is not None


def is_latest(select: exp.Select) -> bool:
    """Return whether the SELECT chooses some rows of each key."""
    distinct = select.args.get("distinct")
    is_limited = bool(select.args.get("limit")) and bool(select.args.get("order"))
    return is_limited or bool(select.args.get("qualify")) or (distinct is not None and bool(distinct.args.get("on")))


def read_latest(select: exp.Select, names: Names) -> Latest:
    """Read DISTINCT ON, QUALIFY or LIMIT. Problems `unsupported-query`, `bad-query`, `unknown-column`."""
    given = {words: part for words in ("DISTINCT", "QUALIFY", "LIMIT") if (part := select.args.get(words.lower())) is not None}
    if (distinct := given.get("DISTINCT")) is not None and distinct.args.get("on"):
        given = {"DISTINCT ON": given.pop("DISTINCT"), **given}
    if len(given) > 1:
        raise unsupported(" with ".join(given), "write one of them")
    ((words, part),) = given.items()
    values = _Values(select, names)
    if words == "QUALIFY":
        return _of_qualify(part.this, values)
    return _of_limit(part, select.args["order"], values) if words == "LIMIT" else _of_distinct(select, values)


class _Values:
    """Reads the values by which rows are chosen: of a row of the relation, or, by names that AS gives, of the output."""

    def __init__(self, select: exp.Select, names: Names) -> None:
        self.names, self._select = names, select
        self._named = {fold(one.args["alias"]): one.this for one in select.expressions if isinstance(one, exp.Alias)}

    def value(self, node: exp.Expr) -> RowValue:
        """Return a value of QUALIFY, where columns come before names of the output."""
        return self._read(node.unnest(), is_output_first=False)

    def output_value(self, node: exp.Expr) -> RowValue:
        """Return a value of DISTINCT ON or its ORDER BY, where a name of the output comes first, and a number is a position in it."""
        node = node.unnest()
        if isinstance(node, exp.Literal) and not node.is_string:
            position = int(node.name) if node.name.isdigit() else 0
            if not 1 <= position <= len(self._select.expressions):
                raise self.names.bad(node, f"there is no column {node.name}: SELECT has {len(self._select.expressions)}")
            node = self._select.expressions[position - 1].unalias().unnest()
        return self._read(node, is_output_first=True)

    def keys(self, order: exp.Order, read: Callable[[exp.Expr], RowValue]) -> list[Ordering]:
        return [Ordering(read(one.this), bool(one.args.get("desc")), bool(one.args.get("nulls_first"))) for one in order.expressions]

    def _read(self, node: exp.Expr, is_output_first: bool) -> RowValue:
        if isinstance(node, exp.Column) and not node.args.get("table") and (named := self._named.get(fold(node.this))) is not None:
            if is_output_first or not self.names.is_column(node):
                node = named.unnest()
        if isinstance(node, exp.Column):
            return self.names.column(node)
        term = read_term(node, self.names)
        return term.value if term.op == "column" else term


def _of_distinct(select: exp.Select, values: _Values) -> Latest:
    on = select.args["distinct"].args["on"]
    by = [values.output_value(one) for one in (on.expressions if isinstance(on, exp.Tuple) else [on])]
    order = select.args.get("order")
    keys = values.keys(order, values.output_value) if order is not None else []
    return _ordered(values.names, by, keys[require_continued(by, [one.value for one in keys]) :], 1)


def require_continued(by: Sequence[object], order: Sequence[object]) -> int:
    """Return how many values of ORDER BY are those of DISTINCT ON. Problem `unsupported-query` unless it continues with another one."""
    wanted, written = len(dict.fromkeys(by)), ", ".join(map(str, by))
    if {*order[:wanted]} != {*by} or len(order) == wanted:
        instead = f"write ORDER BY {written}, and the column whose first value is taken, as in at DESC"
        what = f"DISTINCT ON ({written}) without an ORDER BY that begins with its columns and continues with another one"
        raise unsupported(what, instead)
    return wanted


def _of_limit(node: exp.Expr, order: exp.Order, values: _Values) -> Latest:
    number = node.args.get("count") if isinstance(node, exp.Fetch) else node.args.get("expression")
    options = node.args.get("limit_options")
    is_other = options is not None and (options.args.get("with_ties") or options.args.get("percent"))
    if is_other or not isinstance(number, exp.Literal) or not number.name.isdigit() or not 1 <= int(number.name) <= MOST_LATEST:
        raise unsupported(node.sql(_SQL).strip(), f"write LIMIT n, for 1 to {MOST_LATEST} rows")
    return _ordered(values.names, (), values.keys(order, values.output_value), int(number.name))


def _of_qualify(node: exp.Expr, values: _Values) -> Latest:
    node = node.unnest()
    left, right, kind = node.this, node.args.get("expression"), type(node)
    if isinstance(right, exp.Window) and kind in _MIRRORED:
        left, right, kind = right, left, _MIRRORED[kind]
    if kind not in _MOST or not isinstance(left, exp.Window):
        raise unsupported(f"{node.sql(_SQL)} in QUALIFY", f"{_QUALIFY} alone")
    if not isinstance(left.this, exp.RowNumber):
        raise unsupported(f"{left.sql(_SQL)}", f"of window functions there is ROW_NUMBER: {_QUALIFY}")
    other = next((name for name, value in left.args.items() if value and name not in ("this", "partition_by", "order", "over")), None)
    if other is not None:
        raise unsupported(f"a named window or a frame ({left.sql(_SQL)})", _QUALIFY)
    if not isinstance(right, exp.Literal) or not right.name.isdigit():
        raise unsupported(f"{node.sql(_SQL)} in QUALIFY", f"{_QUALIFY}, a whole number")
    rows = int(right.name) + _MOST[kind]
    if not 1 <= rows <= MOST_LATEST or (kind is exp.EQ and rows != 1):
        raise unsupported(f"{node.sql(_SQL)} in QUALIFY", f"the first 1 to {MOST_LATEST} rows of each key can be chosen: {_QUALIFY}")
    if left.args.get("order") is None:
        raise unsupported(f"{left.sql(_SQL)} without ORDER BY", _QUALIFY)
    by = [values.value(one) for one in left.args.get("partition_by") or []]
    return _ordered(values.names, by, values.keys(left.args["order"], values.value), rows)


def _ordered(names: Names, by: Sequence[RowValue], keys: Sequence[Ordering], rows: int) -> Latest:
    """Leave out what does not change the order: equal rows are in that of the primary key, the greatest first."""
    scope = names.scope
    alias = next(iter(scope.aliases))  # a join is refused later
    primary = [ColumnRef(alias, name) for name in scope.definition(alias).key]
    order = dict[RowValue, Ordering]()
    for one in keys:
        if refs_of(one.value) and one.value not in (*by, *order):
            never = one.value in primary  # other columns may become nullable
            order[one.value] = one._replace(nulls_first=one.nulls_first and not never)
    if not order:
        order[primary[0]] = Ordering(primary[0], descending=True)
    while len(order) > 1 and order[last := [*order][-1]].descending:
        if last != next((ref for ref in primary if ref not in (*by, *[*order][:-1])), None):
            break
        del order[last]
    for value in by:
        if not is_plain(_kind(scope, value)):
            raise unsupported(f"the latest rows by {value}, which is json,", "use a column of another type, or a text of it: doc ->> 'key'")
    for value in order:
        kind = _kind(scope, value)
        if not (is_ordered(kind) or kind in _TEXTS):
            raise unsupported(f"the latest rows by the order of {value} ({kind})", "order by a number, a time or a text")
        if (digits_of(kind) or (0, 0))[0] > MOST_DIGITS:
            raise unsupported(f"the latest rows by the order of {value} ({kind})", f"cast it to a decimal of up to {MOST_DIGITS} digits")
    return Latest(tuple(dict.fromkeys(by)), tuple(order.values()), rows)


def _kind(scope: Scope, value: RowValue) -> str:
    return scope.describe(value).kind if isinstance(value, ColumnRef) else value.kind


# --- as of


def read_as_of(join: exp.Join, before: Sequence[str], alias: str, draft: Draft, names: Names) -> None:
    """Read an ASOF JOIN. `before`: the aliases to its left; `alias`: the one whose rows are chosen. Problems `unsupported-query`,
    `bad-query`, `unknown-column`."""
    words, instead = f"ASOF {join.side} JOIN".replace("  ", " "), "write a ASOF [LEFT] JOIN b ON a.k = b.k AND b.at <= a.at"
    if join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "OUTER"):
        raise unsupported(f"{words.replace(' JOIN', '')} {join.kind} JOIN".replace("  ", " "), instead)
    if len(before) != 1 or draft.as_of is not None:
        raise as_of_alone("other joins")
    if join.args.get("using") or not join.args.get("on"):
        raise unsupported(f"{words} without ON", instead)
    on = Draft(names.scope)
    Conditions(on, names, None, words).add(join.args["on"])
    if on.filters or on.never:
        raise unsupported(f"a filter in the ON of {words}", "write it in WHERE, where it applies to the rows that are found")
    others = on.overlaps or on.not_equal or on.cross
    if others or len(on.inequalities) != 1 or on.inequalities[0].low_unbounded or on.inequalities[0].high_unbounded:
        raise unsupported(f"the ON of this {words}", f"it has equalities, and one comparison of a time: {instead}")
    (one,) = on.inequalities
    if one.plus is not None:
        raise unsupported(f"{one} as the comparison of an ASOF JOIN", "compare two columns: store the sum in a column of its own")
    low_is_own = one.low.alias == alias
    of, point = (one.low, one.high) if low_is_own else (one.high, one.low)
    op = ("<" if low_is_own else ">") + ("" if one.strict else "=")
    if of.is_computed or point.is_computed:
        raise unsupported(f"{one} as the comparison of an ASOF JOIN", "compare two columns of one type: store what is computed in one")
    draft.equal += on.equal
    kind = names.scope.describe(of).kind
    if kind == "bool" or not is_ordered(kind):
        raise unsupported(f"an ASOF JOIN by {of} ({kind})", "compare numbers or times")
    draft.as_of = AsOf(of, op, point, join.side == "LEFT")


# --- LAG and LEAD, FIRST_VALUE and LAST_VALUE


def windows_of(select: exp.Select, *functions: type[exp.Expr]) -> list[exp.Window]:
    """Return the calls of these functions, by default of all that can be joined."""
    found = [one for output in select.expressions for one in output.find_all(exp.Window)]
    return [one for one in found if one.this.find(*(functions or WINDOWED))]


def join_firsts(select: exp.Select, relations: Mapping[str, RelationDefinition], store: Callable[[exp.Select], str]) -> None:
    """Write FIRST_VALUE of a SELECT from one relation as a join with the first row of each key, which is stored, and LAST_VALUE of all rows
    as one with the first in the opposite order. As `join_neighbours`."""
    for number, window in enumerate(windows_of(select, exp.FirstValue, exp.LastValue)):
        function, by, order = window.this, window.args.get("partition_by") or [], window.args.get("order")
        frame = (window.args.get("spec") or exp.WindowSpec(start="UNBOUNDED")).args
        ends = [frame.get("start")] if isinstance(function, exp.FirstValue) else [frame.get("start"), frame.get("end")]
        is_plain = isinstance(function, exp.FirstValue | exp.LastValue) and {*ends} == {"UNBOUNDED"} and not frame.get("exclude")
        if not is_plain or order is None:
            instead = "write FIRST_VALUE(value) OVER (PARTITION BY columns ORDER BY columns); behind LAST_VALUE's ORDER BY, "
            raise unsupported(sql_of(window), f"{instead}ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING")
        order = order.copy()
        table = _only_table(select, function, [*by, *(one.this for one in order.expressions)], relations, number)
        for one in order.expressions if isinstance(function, exp.LastValue) else ():
            one.set("desc", not one.args.get("desc"))
            one.set("nulls_first", not one.args.get("nulls_first"))
        rank = exp.Window(this=exp.RowNumber(), partition_by=[one.copy() for one in by], order=order)
        values = {"value": function.this, **{f"k{position}": one for position, one in enumerate(by)}}
        first = exp.Select(
            expressions=[exp.Alias(this=one.copy(), alias=identifier(name)) for name, one in values.items()],
            from_=exp.From(this=table.copy()), where=select.args.get("where"),
            qualify=exp.Qualify(this=exp.EQ(this=rank, expression=exp.Literal.number(1))),
        )  # fmt: skip
        alias = unused("first", {*map(alias_of, select.find_all(exp.Table))})
        equal = [exp.NullSafeEQ(this=one.copy(), expression=column_of(alias, f"k{position}")) for position, one in enumerate(by)]
        on = {"on": exp.and_(*equal, copy=False)} if equal else {"kind": "CROSS"}
        select.append("joins", exp.Join(this=table_of(store(first.copy()), alias), **on))
        window.replace(column_of(alias, "value"))


def _only_table(
    select: exp.Select, function: exp.Func, columns: Sequence[exp.Expr], relations: Mapping[str, RelationDefinition], joined: int = 0
) -> exp.Expr:  # fmt: skip
    """Return the table of a SELECT that divides and orders its rows by these columns, so that each has its place. joined: how many tables
    stand behind it by now. Problem `unsupported-query`."""
    words, (table, *others) = function.sql_name(), tables_of(select)
    if len(others) > joined or is_grouped(select) or is_latest(select):
        raise unsupported(f"{words} over a join, groups, DISTINCT or first rows", "write the rest in a subquery of FROM, or around it")
    key = relations[fold(table.this)].key
    if not all(isinstance(one, exp.Column) for one in columns) or not {one.name for one in columns}.issuperset(key):
        shown = ", ".join(one.removeprefix("group.") for one in key if not one.endswith(".null"))
        instead = f"PARTITION BY columns and ORDER BY a column, never null, that together contain the key of {alias_of(table)}, {shown}"
        raise unsupported(f"{words} in an order that is not unique", instead)
    return table


def join_neighbours(select: exp.Select, relations: Mapping[str, RelationDefinition], store: Callable[[exp.Select], str]) -> None:
    """Write LAG and LEAD of a SELECT from one relation as an ASOF LEFT JOIN with itself. All columns have their alias. store: gives the
    name of a relation with the rows of a query. Problem `unsupported-query`."""
    windows = windows_of(select, exp.Lag, exp.Lead)
    if not windows:
        return
    if len({_neighbour(one) for one in windows}) > 1:
        raise unsupported("LAG and LEAD of different rows in one SELECT", "define a view for each")
    by, (order,) = windows[0].args.get("partition_by") or [], windows[0].args["order"].expressions
    table = _only_table(select, windows[0].this, [*by, order.this], relations)
    words, relation = windows[0].this.sql_name(), relations[fold(table.this)]
    where = select.args.get("where")
    if where is not None and (where.find(exp.Query) or not {one.name for one in where.find_all(exp.Column)} <= {one.name for one in by}):
        select.set("where", None)
        names = {*relation.key, *(one.name for one in select.find_all(exp.Column))}
        alias = alias_of(table)
        shown = [exp.Alias(this=column_of(alias, one), alias=identifier(one)) for one in sorted(names)]
        rows = exp.Select(expressions=shown, from_=exp.From(this=table.copy()), where=where)
        table.set("this", identifier(store(rows)))
        table.set("alias", exp.TableAlias(this=identifier(alias)))
    name = unused(words.lower(), {alias_of(one) for one in select.find_all(exp.Table)})
    compared = exp.GT if _neighbour(windows[0]).is_later else exp.LT
    on: exp.Expr = compared(this=_of(name, order.this), expression=order.this.copy())
    for column in by:
        on = exp.And(this=exp.NullSafeEQ(this=column.copy(), expression=_of(name, column)), expression=on)
    neighbour = exp.Table(this=table.this.copy(), alias=exp.TableAlias(this=identifier(name)))
    select.set("joins", [exp.Join(this=neighbour, side="LEFT", method="ASOF", on=on)])
    is_missing = exp.Is(this=column_of(name, relation.key[0]), expression=exp.Null())
    for window in windows:
        value, default = _of(name, window.this.this), window.this.args.get("default")
        if default is not None or not isinstance(value, exp.Column):
            case = exp.If(this=is_missing.copy(), true=exp.Null() if default is None else default.copy())
            value = exp.Case(ifs=[case], default=value)
        window.replace(exp.Paren(this=value))


class _Neighbour(NamedTuple):
    """By which columns a window is divided and ordered, and whether its function takes the row after the current one in that order."""

    by: tuple[str, ...]
    order: str
    is_later: bool


def _neighbour(window: exp.Window) -> _Neighbour:
    function, order = window.this, window.args.get("order")
    is_plain = isinstance(function, exp.Lag | exp.Lead) and not window.args.get("spec") and not window.args.get("alias")
    if not is_plain or order is None or len(order.expressions) != 1:
        raise unsupported("this form of LAG or LEAD", "write LAG(value) OVER (PARTITION BY columns ORDER BY column)")
    offset = function.args.get("offset")
    if offset is not None and offset.name != "1":
        raise unsupported(f"{function.key.upper()} of a row that is not the next one", "leave the offset out")
    (key,) = order.expressions
    by = (one.sql(_SQL) for one in window.args.get("partition_by") or ())
    return _Neighbour(tuple(by), key.this.sql(_SQL), isinstance(function, exp.Lead) != bool(key.args.get("desc")))


def _of(alias: str, part: exp.Expr) -> exp.Expr:
    """Return an expression over the same columns of another alias."""
    made = part.copy()
    for column in made.find_all(exp.Column):
        column.set("table", identifier(alias))
    return made


# --- restrictions


def settled(draft: Draft) -> Draft:
    """Return the draft with an ASOF LEFT JOIN made an inner one if WHERE rejects null. Problem `unsupported-query` for what cannot be
    combined with it."""
    aliases, as_of = draft.scope.aliases, draft.as_of
    if as_of is None:
        return draft
    if draft.absent or draft.subqueries:
        raise as_of_alone("EXISTS, NOT EXISTS or an outer join")
    if len(aliases) != 2 or draft.cross:
        raise as_of_alone("other joins")
    if draft.overlaps or draft.not_equal or draft.inequalities:
        raise as_of_alone("another comparison of the two relations")
    mine = [one for one in draft.filters if one.alias == as_of.of.alias]
    optional = as_of.optional and not any(one.rejects_null for one in mine)
    of_rows = [*draft.of_pairs, *(mine if optional else [])]
    filters = [one for one in draft.filters if one not in of_rows]
    return replace(draft, filters=filters, as_of=as_of._replace(optional=optional, conditions=ordered(of_rows)))


def as_of_alone(what: str) -> Problem:
    instead = "it joins two relations, ON equal columns AND one comparison of a time: compare further when you read the rows"
    return unsupported(f"an ASOF JOIN with {what}", instead)
