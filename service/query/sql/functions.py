"""How SQL spells functions: the name that PostgreSQL has for a node of sqlglot's, and its arguments in PostgreSQL's order."""

from __future__ import annotations

from sqlglot import exp

from service.errors import unsupported
from service.query.functions.calls import NUMERIC, SIGNATURES
from service.query.literals import BadLiteral, read_interval

_CALLS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Length: ("length", ("this",)),
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.MD5: ("md5", ("this",)),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.StrPosition: ("strpos", ("this", "substr")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
    exp.Abs: ("abs", ("this",)),
    exp.Sign: ("sign", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Trunc: ("trunc", ("this", "decimals")),
    exp.Floor: ("floor", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
    exp.Sqrt: ("sqrt", ("this",)),
    exp.Pow: ("power", ("this", "expression")),
}
_TRIMS = {"BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}
_SYNONYMS = {"jsonb_array_length": "json_array_length"}
NAMES = (
    *SIGNATURES, *NUMERIC, "coalesce", "nullif", "greatest", "least", "concat", "concat_ws", "trim", "position", "substr", "extract",
    "date_part", "date_trunc", "date_bin", "to_char",
)  # fmt: skip

INSTEAD = {
    **{part: f"write extract({part} FROM …)" for part in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")},
    **dict.fromkeys(("if", "iif"), "write CASE WHEN … THEN … ELSE … END"),
    **dict.fromkeys(("datediff", "date_diff"), "subtract the times: a - b"),
    "age": "subtract two times: a - b; compute an age at the present when you read the rows",
    "date": "write x::date",
    "div": "write a / b, which is whole for whole numbers, or trunc(a / b)",
    "isnull": "write coalesce(a, b)",
}
"""What to write for functions that PostgreSQL or others have. sqlglot rewrites most of them."""


def call_of(node: exp.Expr) -> tuple[str, list[exp.Expr]] | None:
    """Return the name and the arguments of a call of `functions.calls`; None for anything else."""
    if isinstance(node, exp.Trim):
        args = [one for one in (node.this, node.args.get("expression")) if one is not None]
        return _TRIMS[(node.args.get("position") or "BOTH").upper()], args
    if isinstance(node, exp.Anonymous):
        name = _SYNONYMS.get(node.name.lower(), node.name.lower())
        return (name, node.expressions) if name in SIGNATURES else None
    found = _CALLS.get(type(node))
    if found is None or any(isinstance(one, exp.Expr) for key, one in node.args.items() if key not in found[1]):
        return None
    if isinstance(node, exp.Substring) and isinstance(start := node.args["start"].unnest(), exp.Literal) and start.is_string:
        raise unsupported("substring by a pattern", "it takes positions: substring(x FROM 2 FOR 3); ~ tests a pattern")
    return found[0], [node.args[key] for key in found[1] if node.args.get(key) is not None]


def interval_of(node: exp.Expr) -> tuple[int, int] | None:
    """Return the months and microseconds of an interval; None for anything else. `BadLiteral` for one that is wrong."""
    node = node.unnest()
    if isinstance(node, exp.Interval) and isinstance(node.this, exp.Literal):
        return read_interval(node.this.name, node.text("unit"))
    if isinstance(node, exp.Cast) and node.to.this == exp.DType.INTERVAL:
        of = node.this.unnest()
        return read_interval(of.name) if isinstance(of, exp.Literal) and of.is_string else interval_of(of)
    if isinstance(node, exp.Neg):
        return _times(interval_of(node.this), -1)
    if isinstance(node, exp.Mul):
        for of, by in ((node.this, node.expression), (node.expression, node.this)):
            by = by.unnest()
            number = by.this.unnest() if isinstance(by, exp.Neg) else by
            if isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal() and len(number.name) < 10:
                found = _times(interval_of(of), -int(number.name) if number is not by else int(number.name))
                if found is not None:
                    return found
    return None


def _times(interval: tuple[int, int] | None, by: int) -> tuple[int, int] | None:
    if interval is None:
        return None
    months, micros = interval[0] * by, interval[1] * by
    if abs(months) > 10**6 or abs(micros) >= 2**63:
        raise BadLiteral("an interval is out of range")
    return months, micros


def is_sum(node: exp.Expr) -> bool:
    """Return whether PostgreSQL has a numeric here, as it has for a sum: then a quotient has a fraction. `read_over` marks the sums."""
    node = node.unnest()
    parts = node.iter_expressions() if isinstance(node, exp.Binary | exp.Neg | exp.Coalesce) else ()
    return bool(node.meta.get("is_sum")) or any(map(is_sum, parts))
