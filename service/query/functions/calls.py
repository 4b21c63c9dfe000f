"""The functions that are called by name with arguments of fixed types; those of numbers, of which PostgreSQL has one for each type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from livejoin.wire.kinds import decimal_kind, digits_of
from service.errors import unsupported
from service.query import terms
from service.query.conditions import Term
from service.query.terms import is_number, named


class Signature(NamedTuple):
    """`takes`: the kinds of each argument that are accepted; of those that may be left out, only the last ones. `missing`: the constants
    that stand for them."""

    op: str
    takes: tuple[tuple[str, ...], ...]
    result: str
    missing: tuple[str, ...] = ()
    least: int | None = None


_TEXT, _INT = ("string",), ("int64",)
_BLANK = (" ",)
SIGNATURES: dict[str, Signature] = {
    "length": Signature("length", (("string", "bytes"),), "int64"),
    "octet_length": Signature("octet_length", (("string", "bytes"),), "int64"),
    "lower": Signature("lower", (_TEXT,), "string"),
    "upper": Signature("upper", (_TEXT,), "string"),
    "md5": Signature("md5", (("string", "bytes"),), "string"),
    "btrim": Signature("btrim", (_TEXT, _TEXT), "string", _BLANK),
    "ltrim": Signature("ltrim", (_TEXT, _TEXT), "string", _BLANK),
    "rtrim": Signature("rtrim", (_TEXT, _TEXT), "string", _BLANK),
    "left": Signature("left", (_TEXT, _INT), "string"),
    "right": Signature("right", (_TEXT, _INT), "string"),
    "substring": Signature("substr", (_TEXT, _INT, _INT), "string", least=2),
    "strpos": Signature("strpos", (_TEXT, _TEXT), "int64"),
    "replace": Signature("replace", (_TEXT, _TEXT, _TEXT), "string"),
    "split_part": Signature("split_part", (_TEXT, _TEXT, _INT), "string"),
    "make_date": Signature("make_date", (_INT, _INT, _INT), "date"),
    "json_array_length": Signature("json_array_length", (("string", "json"),), "int64"),
}
"""By PostgreSQL's name."""
NUMERIC = {"abs": 1, "sign": 1, "round": 2, "trunc": 2, "floor": 1, "ceil": 1, "sqrt": 1, "power": 2, "mod": 2}
"""Functions of numbers, with the most arguments that each takes."""
_CALLED = {"string": "a text", "int64": "an int64", "bytes": "bytes", "json": "JSON"}
_JOINED = ("string", "int64", "date", "bool")


def called(name: str, args: Sequence[Term]) -> Term:
    """Return a call of one of `SIGNATURES`, or of `NUMERIC`."""
    if name in NUMERIC:
        return _of_numbers(name, args)
    op, takes, result, missing, least = SIGNATURES[name]
    args = [*args, *(Term("constant", "string", (), one) for one in missing[len(args) - len(takes) :] if len(args) < len(takes))]
    if not (least or len(takes)) <= len(args) <= len(takes):
        raise unsupported(f"{name} with {len(args)} arguments", f"it takes {len(takes)}")
    for position, (arg, kinds) in enumerate(zip(args, takes, strict=False), 1):
        if arg.kind not in kinds:
            wanted = " or ".join(_CALLED[kind] for kind in kinds)
            raise unsupported(f"{name} with {named(arg.kind)} as argument {position}", f"it takes {wanted}: write CAST(…)")
    return Term(op, result, tuple(args))


def _of_numbers(name: str, args: Sequence[Term]) -> Term:
    for arg in args:
        if not is_number(arg.kind):
            raise unsupported(f"{name} of {named(arg.kind)}", "it takes numbers")
    if name in ("round", "trunc") and len(args) == 2:
        return _to_digits(name, *args)
    if len(args) != (2 if name in ("power", "mod") else 1):
        raise unsupported(f"{name} with {len(args)} arguments", f"it takes {2 if name in ('power', 'mod') else 1}")
    of = args[0]
    if name == "mod":
        return terms.arithmetic("%", *args)
    if name in ("sqrt", "power"):
        return Term(name, "float64", tuple(terms.cast(arg, "float64") for arg in args))
    digits = digits_of(of.kind)
    if name == "abs":
        return Term("abs", of.kind, (of,))
    if digits is None:  # as in PostgreSQL, which has no such function of integers
        return Term(name, "float64", (terms.cast(of, "float64"),))
    if name == "sign":
        return Term("sign", decimal_kind(1, 0), (of,))
    return rounded(name, of, 0)


def _to_digits(name: str, of: Term, digits: Term) -> Term:
    if of.kind == "float64":
        raise unsupported(f"{name} of float64 to a number of digits", f"PostgreSQL has it of decimals: write {name}(x::decimal(18, 4), 2)")
    if digits.op != "constant" or digits.kind != "int64" or digits.value is None:
        raise unsupported(f"{name} to a varying number of digits", f"write a constant: {name}(x, 2)")
    return rounded(name, of if digits_of(of.kind) else terms.cast(of, decimal_kind(19, 0)), digits.value)


def rounded(name: str, of: Term, places: int) -> Term:
    """Return the decimal with so many digits after the point; rounding up may take one more digit before it."""
    precision, scale = digits_of(of.kind) or (0, 0)
    kept = max(places, 0)
    digits = precision - scale + kept + (name != "trunc" and places < scale)
    if digits > terms.COMPUTED_DIGITS:
        said = f"it would need {digits} digits, and a decimal has at most {terms.COMPUTED_DIGITS}"
        raise unsupported(f"{name} of {of.kind} to {places} digits", f"{said}: cast it to fewer digits")
    return Term(name, decimal_kind(max(digits, 1), kept), (of,), places)


def joined(op: str, parts: Sequence[Term]) -> Term:
    """Return `||`, `concat` or `concat_ws`, whose first part is the separator: of texts, and of values that have one form as text."""
    if op == "concat_ws" and len(parts) < 2:
        raise unsupported("concat_ws with 1 argument", "it takes a separator and the values to join: concat_ws(', ', a, b)")
    if op == "concat_ws" and parts[0].kind != "string":
        raise unsupported(f"concat_ws with {named(parts[0].kind)} as separator", "it takes a text: write concat_ws(', ', a, b)")
    made = list[Term]()
    for part in parts:
        takes = _JOINED if op == "||" else _JOINED[:3]  # concat writes a bool as t or f
        if part.kind not in takes and digits_of(part.kind) is None:
            raise unsupported(f"{op} of {named(part.kind)}", "it takes texts: write CAST(… AS text)")
        made.append(terms.cast(part, "string"))
    if op == "||" and all(part.kind != "string" for part in parts):
        raise unsupported(f"|| of {' and '.join(part.kind for part in parts)}", "one side has to be a text: write CAST(… AS text)")
    return Term(op, "string", tuple(made))
