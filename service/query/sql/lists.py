"""STRING_AGG and ARRAY_AGG in SQL: what is listed, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlglot import exp

from service.errors import unsupported
from service.query.sql.output_names import CALLED
from service.query.terms import is_plain

_SQL = "postgres"
_FUNCTIONS: dict[type[exp.Expr], str] = {exp.GroupConcat: "string_agg", exp.ArrayAgg: "array_agg"}
_FORMS = {"string_agg": "string_agg(x, ', ' ORDER BY y)", "array_agg": "array_agg(x ORDER BY y)"}


class ListCall(NamedTuple):
    """A call of such a function; `order`: the keys as ORDER BY has them."""

    function: str
    of: exp.Expr
    order: Sequence[exp.Expr]
    separator: str
    distinct: bool


def is_list(node: exp.Expr) -> bool:
    """Return whether the node, which has no FILTER, is one of these functions."""
    return type(node) in _FUNCTIONS and node.meta.get(CALLED) == _FUNCTIONS[type(node)]


def read_list(node: exp.Expr, said: str) -> ListCall:
    """Read a call. `said`: as it is written. Problem `unsupported-query`."""
    function, of, order = _FUNCTIONS[type(node)], node.this, list[exp.Expr]()
    if isinstance(of, exp.Order):
        of, order = of.this, of.expressions
    distinct = isinstance(of, exp.Distinct)
    values = of.expressions if distinct else [of]
    if len(values) != 1 or isinstance(values[0].unnest(), exp.Tuple | exp.Star):
        raise unsupported(said, f"it lists one value: {_FORMS[function]}")
    if not order:
        last = ", and of equal ones by the primary keys" if not distinct else ""
        raise unsupported(f"{said} without ORDER BY", f"write how its values are ordered{last}: {_FORMS[function]}")
    return ListCall(function, values[0].unnest(), order, "," if function == "array_agg" else _separator(node, said), distinct)


def _separator(node: exp.Expr, said: str) -> str:
    separator = node.args.get("separator")
    constant = separator.unnest() if separator is not None else None
    if isinstance(constant, exp.Null):
        return ""
    if not isinstance(constant, exp.Literal) or not constant.is_string:
        raise unsupported(said, f"its second argument is a text in quotes, which separates the values: {_FORMS['string_agg']}")
    name: str = constant.name
    return name


def require_ordered(node: exp.Expr, kind: str) -> None:
    """Problem `unsupported-query` for values that have no order."""
    if not is_plain(kind):
        raise unsupported(f"ORDER BY {node.sql(_SQL)} ({kind})", "order by texts, numbers or times, such as doc ->> 'key'")
