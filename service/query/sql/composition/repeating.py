"""EXCEPT ALL and INTERSECT ALL: the rows of the left side whose number among equal ones is above how many the right side has, or is not.

    r EXCEPT ALL s     SELECT part.x FROM (SELECT part.x, count(*) AS n FROM r AS part JOIN r AS before ON before.x = part.x AND
                       before.id <= part.id GROUP BY part.id, part.x) AS part
                       WHERE NOT EXISTS (SELECT 1 FROM (SELECT part.x, count(*) AS n FROM s AS part GROUP BY part.x) AS other
                       WHERE other.x = part.x AND other.n >= part.n)

Both sides are stored, and null equals null. A row's number is its place in the order of its key: a change renumbers those that equal it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

from sqlglot import exp

from livejoin.wire.schema import RelationDefinition
from service.query.assembly import unused
from service.query.sql.composition.merging import require_as_many, without_places
from service.query.sql.dialect import Dialect
from service.query.sql.names import column_of, sql_of, tables_of


def is_repeated(tree: exp.Expr) -> TypeGuard[exp.SetOperation]:
    """Return whether this is EXCEPT ALL or INTERSECT ALL."""
    return isinstance(tree, exp.Except | exp.Intersect) and not tree.args.get("distinct")


def repeated(tree: exp.SetOperation, left: exp.Select, right: exp.Select, rows: RelationDefinition) -> exp.Expr:
    """Return the operation over two stored queries as one, which is yet to be composed. `rows`: of the left one."""
    names, others = ([one.alias for one in side.expressions] for side in (left, right))
    require_as_many(tree, names, others)
    number, order = sql_of(exp.to_identifier(unused("n", {*names, *others}))), ""
    for part in reversed(rows.key):
        as_number = "::bigint" if rows.column(part).type == "bool" else ""
        x, y = (f"{_columns(alias, [part])[0]}{as_number}" for alias in ("before", "part"))
        order = f"{x} < {y} OR {x} = {y} AND ({order})" if order else f"{x} <= {y}"
    shown, grouped = ", ".join(_columns("part", names)), ", ".join(dict.fromkeys(_columns("part", [*rows.key, *names])))
    counted = ", ".join(_columns("part", others))
    first, second = (sql_of(tables_of(side)[0].this) for side in (left, right))
    text = (
        f"SELECT {shown} FROM (SELECT {shown}, count(*) AS {number} FROM {first} AS part JOIN {first} AS before "
        f"ON {_equal('before', names, names)} AND ({order}) GROUP BY {grouped}) AS part "
        f"WHERE {'NOT ' if isinstance(tree, exp.Except) else ''}EXISTS (SELECT 1 FROM (SELECT {counted}, count(*) AS {number} "
        f"FROM {second} AS part GROUP BY {counted}) AS other WHERE {_equal('other', others, names)} AND other.{number} >= part.{number})"
    )
    made = without_places(exp.maybe_parse(text, dialect=Dialect))
    for name in ("order", "limit", "offset"):
        made.set(name, tree.args.get(name))
    return made


def _columns(alias: str, names: Sequence[str]) -> list[str]:
    return [sql_of(column_of(alias, one)) for one in names]


def _equal(alias: str, names: Sequence[str], own: Sequence[str]) -> str:
    return " AND ".join(f"{x} IS NOT DISTINCT FROM {y}" for x, y in zip(_columns(alias, names), _columns("part", own), strict=True))
