"""The latest rows of each key of a relation, from a definition: `DISTINCT ON (r.k) … ORDER BY r.k, r.at DESC`, `QUALIFY
ROW_NUMBER() OVER (PARTITION BY r.k ORDER BY r.at DESC) <= n`; and the latest row for each row of another relation: `a ASOF [LEFT] JOIN b ON
a.k = b.k AND b.at <= a.at`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from livejoin.wire.kinds import digits_of
from service.errors import Problem, unsupported
from service.query.assembly import Draft
from service.query.conditions import ColumnRef
from service.query.model import MOST_LATEST, AsOf, Latest
from service.query.sql.conditions import Conditions
from service.query.sql.groups import is_grouped
from service.query.sql.names import Names

_ORDERED = ("int64", "float64", "timestamp", "date", "time", "bool")  # and decimals
_QUALIFY = "write QUALIFY ROW_NUMBER() OVER (PARTITION BY columns ORDER BY column DESC) <= n"
_MOST: dict[type[exp.Expr], int] = {exp.LTE: 0, exp.LT: -1, exp.EQ: 0}  # added to the number
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.EQ: exp.EQ}
_SQL = "postgres"


def is_ordered(kind: str) -> bool:
    """Return whether values of this type are ordered as numbers are."""
    return kind in _ORDERED or digits_of(kind) is not None


def is_latest(select: exp.Select) -> bool:
    """Return whether the SELECT chooses some rows of each key."""
    distinct = select.args.get("distinct")
    return bool(select.args.get("qualify")) or (distinct is not None and bool(distinct.args.get("on")))


def read_latest(select: exp.Select, names: Names) -> Latest:
    """Read DISTINCT ON or QUALIFY. Problems `unsupported-query`, `bad-query`, `unknown-column`."""
    qualify, distinct = select.args.get("qualify"), select.args.get("distinct")
    words = "QUALIFY" if qualify is not None else "DISTINCT ON"
    if qualify is not None and distinct is not None:
        raise unsupported("DISTINCT with QUALIFY", "write one of them")
    if is_grouped(select):
        raise unsupported(f"{words} with GROUP BY or aggregates", "define a view for each")
    return _of_qualify(qualify.this, names) if qualify is not None else _of_distinct(select, names)


def _of_distinct(select: exp.Select, names: Names) -> Latest:
    on = select.args["distinct"].args["on"]
    by = [_column(one, names, "DISTINCT ON") for one in (on.expressions if isinstance(on, exp.Tuple) else [on])]
    written = f"DISTINCT ON ({', '.join(map(str, by))})"
    order = select.args.get("order")
    keys = [_Key.of(one, names) for one in order.expressions] if order is not None else []
    wanted = len(dict.fromkeys(by))
    if {one.ref for one in keys[:wanted]} != set(by) or len(keys) == wanted:
        instead = f"write ORDER BY {', '.join(map(str, by))}, and the column whose first value is taken, as in at DESC"
        raise unsupported(f"{written} without an ORDER BY that begins with its columns and continues with another one", instead)
    return _ordered(names, by, keys[wanted:], 1)


def _of_qualify(node: exp.Expr, names: Names) -> Latest:
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
    by = [_column(one, names, "PARTITION BY") for one in left.args.get("partition_by") or []]
    return _ordered(names, by, [_Key.of(one, names) for one in left.args["order"].expressions], rows)


def _column(node: exp.Expr, names: Names, where: str) -> ColumnRef:
    node = node.unnest()
    if not isinstance(node, exp.Column):
        raise unsupported(f"the expression {node.sql(_SQL)} in {where}", "name columns, and store computed values in a column")
    return names.column(node)


class _Key(NamedTuple):
    """A column of ORDER BY."""

    ref: ColumnRef
    descending: bool
    nulls_first: bool
    words: str

    @staticmethod
    def of(node: exp.Expr, names: Names) -> _Key:
        ref = _column(node.this, names, "ORDER BY")
        return _Key(ref, bool(node.args.get("desc")), bool(node.args.get("nulls_first")), node.sql(_SQL))


def _ordered(names: Names, by: Sequence[ColumnRef], keys: Sequence[_Key], rows: int) -> Latest:
    """Order by the first key. The others may only repeat the order of equal rows: the greatest primary key first."""
    scope, first = names.scope, keys[0]
    if first.nulls_first and scope.describe(first.ref).nullable:
        direction = " DESC" if first.descending else ""
        raise unsupported(f"nulls first in ORDER BY {first.words}", f"{first.ref} may be null: write {first.ref}{direction} NULLS LAST")
    primary = [ref for name in scope.definition(first.ref.alias).key if (ref := ColumnRef(first.ref.alias, name)) not in (*by, first.ref)]
    ties = [one for one in keys[1:] if one.ref not in (*by, first.ref)]
    if [one.ref for one in ties] != primary[: len(ties)] or not all(one.descending for one in ties):
        instead = "one column orders the rows, and of equal ones the greatest primary key is first: "
        instead += f"leave out what follows {first.ref}" + (f", or write {', '.join(f'{ref} DESC' for ref in primary)}" if primary else "")
        raise unsupported(f"ORDER BY {', '.join(one.words for one in keys)}", instead)
    never = first.ref.column in scope.definition(first.ref.alias).key  # other columns may become nullable
    for ref in by:
        scope.require_comparable(ref, "the latest rows by")
    kind = scope.describe(first.ref).kind
    if not is_ordered(kind):
        raise unsupported(f"the latest rows by the order of {first.ref} ({kind})", "order by a number or a time that is stored in a column")
    return Latest(tuple(dict.fromkeys(by)), first.ref, first.descending, rows, first.nulls_first and not never)


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
    draft.equal += on.equal
    kind = names.scope.describe(of).kind
    if kind == "bool" or not is_ordered(kind):
        raise unsupported(f"an ASOF JOIN by {of} ({kind})", "compare numbers or times")
    draft.as_of = AsOf(of, op, point, join.side == "LEFT")


# --- restrictions


def settled(draft: Draft) -> Draft:
    """Return the draft with an ASOF LEFT JOIN made an inner one if WHERE rejects null. Problem `unsupported-query` for what cannot be
    combined with it, or with the latest rows."""
    aliases, as_of = draft.scope.aliases, draft.as_of
    parts = bool(draft.absent or draft.subqueries)
    if draft.latest is not None and (len(aliases) > 1 or parts):
        what = f"of a join of {' and '.join(aliases)}" if len(aliases) > 1 else "with EXISTS or NOT EXISTS"
        instead = "they are of one relation, whose rows are filtered by its columns: join or compare when you read the rows"
        raise unsupported(f"the latest rows of each key (DISTINCT ON, QUALIFY) {what}", instead)
    if as_of is None:
        return draft
    if parts:
        raise as_of_alone("EXISTS, NOT EXISTS or an outer join")
    if len(aliases) != 2 or draft.cross:
        raise as_of_alone("other joins")
    if draft.overlaps or draft.not_equal or draft.inequalities:
        raise as_of_alone("another comparison of the two relations")
    mine = [one for one in draft.filters if one.alias == as_of.of.alias]
    if as_of.optional and any(one.rejects_null for one in mine):
        return replace(draft, as_of=as_of._replace(optional=False))
    if as_of.optional and mine:
        instead = f"rows without {as_of.of.alias} meet it too: leave it out, or define a view for each case"
        raise unsupported(f"the condition {mine[0]} after ASOF LEFT JOIN", instead)
    return draft


def as_of_alone(what: str) -> Problem:
    instead = "it joins two relations, ON equal columns AND one comparison of a time: compare further when you read the rows"
    return unsupported(f"an ASOF JOIN with {what}", instead)
