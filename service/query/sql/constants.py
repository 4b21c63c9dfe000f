"""Constants in SQL: which nodes are constants, their texts, and their values as those of a column."""

from __future__ import annotations

from sqlglot import exp

from livejoin.wire.kinds import digits_of
from service.query import terms
from service.query.filters import pattern
from service.query.literals import BadLiteral, Physical, convert, from_json, from_number, from_text
from service.query.sql.names import Names, sql_of

CASTS = {
    **dict.fromkeys(("BIGINT", "INT", "SMALLINT"), "int64"),
    **dict.fromkeys(("DOUBLE", "DECIMAL"), "float64"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ"), "timestamp"),
    **dict.fromkeys(("TEXT", "VARCHAR"), "string"),
    "DATE": "date",
    "BOOLEAN": "bool",
    "UUID": "uuid",
    "TIME": "time",
    "VARBINARY": "bytes",
}


def is_constant(node: exp.Expr) -> bool:
    """Return whether it is a literal, perhaps cast or negated."""
    if isinstance(node, exp.Cast | exp.Neg | exp.Paren):
        return is_constant(node.this)
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)


def is_nan(node: exp.Expr) -> bool:
    """Return whether the text of a constant is NaN."""
    return text_of(node).strip().lower() == "nan"


def is_null(node: exp.Expr) -> bool:
    """Return whether a constant is NULL, perhaps cast."""
    return isinstance(node, exp.Null) or (isinstance(node, exp.Cast | exp.Paren) and is_null(node.this))


def read_value(node: exp.Expr, type_: str) -> Physical | None:
    """Return a constant in the physical form of a type; None for NULL. `BadLiteral`."""
    if "value" in node.meta:
        return from_json(type_, node.meta["value"])
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Paren):
        return read_value(node.this, type_)
    if isinstance(node, exp.Cast):
        name = node.to.this.name if isinstance(node.to.this, exp.DType) else str(node.to)
        if name not in CASTS or (node.to.expressions and name != "DECIMAL"):
            raise BadLiteral(f"a constant of type {node.to.sql('postgres')}; write one of {', '.join(dict.fromkeys(CASTS.values()))}")
        if name == "DECIMAL" and digits_of(type_):
            return read_value(node.this, type_)
        value = read_value(node.this, CASTS[name])
        if name == "SMALLINT" and isinstance(value, int) and not terms.LEAST_SMALL <= value <= terms.MOST_SMALL:
            raise BadLiteral(f"{value} is outside the range of smallint")
        return None if value is None else convert(value, CASTS[name], type_)
    if isinstance(node, exp.Boolean):
        if type_ != "bool":
            raise BadLiteral(f"{node.sql()} is not of type {type_}")
        return bool(node.this)
    text = text_of(node)
    return from_text(type_, text) if isinstance(node, exp.Literal) and node.is_string else from_number(type_, text)


def text_of(node: exp.Expr) -> str:
    """Return the text of a constant, without casts."""
    node = node.unnest()
    if isinstance(node, exp.Cast):
        return text_of(node.this)
    if isinstance(node, exp.Neg):
        return "-" + text_of(node.this)
    return node.name if isinstance(node, exp.Literal) else ""


def is_literal(node: exp.Expr) -> bool:
    """Return whether it is a constant without a cast, which takes the type of what is beside it."""
    if isinstance(node, exp.Neg | exp.Paren):
        return isinstance(node.this.unnest(), exp.Literal) and not node.this.unnest().is_string
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)


def read_pattern(names: Names, node: exp.Expr) -> str:
    """Return the pattern in quotes of LIKE or ILIKE, perhaps with ESCAPE. Problem `bad-query`."""
    like = node.this if isinstance(node, exp.Escape) else node
    try:
        return pattern(like.expression.unnest().name, text_of(node.expression) if isinstance(node, exp.Escape) else "\\")
    except BadLiteral as error:
        raise names.bad(node, f"{sql_of(like.this)}: {error}") from None


def read_like(names: Names, node: exp.Expr, negated: bool) -> tuple[exp.Expr, str, list[Physical]] | None:
    """Return what LIKE compares with one pattern, the operator, and the pattern, [] for NULL; None for anything else. Problem
    `bad-query`."""
    like = node.this if isinstance(node, exp.Escape) else node
    text = like.expression.unnest() if isinstance(like, exp.Like) else None
    if not isinstance(text, exp.Literal | exp.Null) or text.args.get("is_string") is False:
        return None
    values: list[Physical] = [] if isinstance(text, exp.Null) else [read_pattern(names, node)]
    return like.this.unnest(), "like" if bool(like.args.get("negate")) == negated else "not_like", values


def require_text(names: Names, node: exp.Expr, type_: str) -> None:
    if type_ != "string":
        raise names.bad(node, f"LIKE takes a string, but {sql_of((node.this if isinstance(node, exp.Escape) else node).this)} is {type_}")
