"""The conditions on a table that hold for every row that DuckDB takes from it: those in the WHERE of the table's SELECT, if the query names
it once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from service.adhoc.statement import QueriedTable
from service.query.sql.names import fold
from service.reading.narrowing import Comparison, comparisons


def conditions(table: QueriedTable, columns: Sequence[str]) -> Iterator[Comparison]:
    """`columns`: of the table, whose names differ not in case alone."""
    if len(table.positions) != 1:
        return
    (position,) = table.positions
    select = position.parent.parent if isinstance(position.parent, exp.From | exp.Join) else None
    if not isinstance(select, exp.Select) or not select.args.get("where") or not _is_plain(position, select):
        return
    alias = position.args.get("alias")
    name, alone = fold(alias.this) if alias else fold(position.this), not select.args.get("joins")
    renamed = {one.alias.lower() for one in select.expressions if isinstance(one, exp.Alias)}
    named = {column.lower(): column for column in columns}
    for column, op, value in comparisons(select.args["where"].this):
        if column.args.get("db") or column.name.lower() not in named:
            continue
        if fold(column.args["table"]) == name if column.args.get("table") else alone and column.name.lower() not in renamed:
            yield Comparison(named[column.name.lower()], op, value)


def _is_plain(position: exp.Table, select: exp.Select) -> bool:
    """Return whether the table is joined with the others so that a row that WHERE rejects affects no other row."""
    if any(value and name not in ("this", "db", "alias") for name, value in position.args.items()):
        return False
    alias = position.args.get("alias")
    if (alias and alias.args.get("columns")) or select.args.get("laterals"):
        return False
    joins = select.args.get("joins") or []
    return all(not join.method and join.kind in ("", "INNER", "CROSS", "OUTER") for join in joins)
