"""Reads constants, and expressions in SELECT into terms (`terms`)."""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from livejoin.wire.grammar import INT64_MAX, INT64_MIN
from livejoin.wire.kinds import decimal_kind, digits_of
from service.query import terms
from service.query.assembly import unsupported
from service.query.conditions import Term
from service.query.filters import pattern
from service.query.literals import BadLiteral, Physical, convert, from_json, from_number, from_text, interval_from_text
from service.query.sql.names import Names, meant

CASTS = {
    **dict.fromkeys(("BIGINT", "INT"), "int64"),
    **dict.fromkeys(("DOUBLE", "FLOAT", "DECIMAL"), "float64"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPNTZ"), "timestamp"),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "NCHAR", "NVARCHAR", "BPCHAR", "NAME"), "string"),
    "DATE": "date",
    "BOOLEAN": "bool",
    "UUID": "uuid",
    "TIME": "time",
    "VARBINARY": "bytes",
}
_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime, exp.Localtime, exp.Localtimestamp)
_CLOCK_NAMES = ("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday")
MOST_STEPS = 200
"""The maximum for an expression: names, constants and operators."""
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
COMPARED: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_DECIMAL = re.compile(r"([0-9]*)\.?([0-9]*)")
_INSTEAD = (
    "an expression has + - * / %, ||, lower, upper, coalesce, CASE, CAST, date_trunc, ->> and conditions; "
    "compute the rest when you read the rows"
)


def read_term(node: exp.Expr, names: Names) -> Term:
    """Read an expression. Problems `unsupported-query`, `unknown-column`; `bad-query` with `position`."""
    check_steps(node)
    return _Reader(names).read(node)


def check_steps(node: exp.Expr) -> None:
    """Problem `unsupported-query` for an expression of more than MOST_STEPS."""
    steps = sum(1 for one in node.walk() if isinstance(one, exp.Column | exp.Literal | exp.Func | exp.Binary | exp.Unary))
    if steps > MOST_STEPS:
        raise unsupported(f"an expression of {steps} steps", f"at most {MOST_STEPS} are allowed; compute the rest when you read the rows")


class _Reader:
    def __init__(self, names: Names) -> None:
        self._names = names

    def read(self, node: exp.Expr, wanted: str | None = None) -> Term:
        """Read an expression. `wanted`: the kind of a constant without one of its own."""
        node = node.unnest()
        if isinstance(node, exp.Column):
            ref = self._names.column(node)
            return Term("column", self._names.scope.describe(ref).kind, (), ref)
        if _is_constant(node):
            return self._constant(node, wanted)
        rule = next((rule for types, rule in self._RULES.items() if isinstance(node, types)), None)
        if rule is not None:
            return rule(self, node, wanted)
        if is_clock(node):
            raise unsupported(_sql(node), "a view changes only when its relations do: compare with the time when you read the rows")
        if isinstance(node, exp.Anonymous) and node.name.lower() in ("duration", "intersection"):
            raise unsupported(f"{node.name.lower()}(…) within an expression", "select it alone, or compute with the columns of its ends")
        raise unsupported(f"the expression {_sql(node)}", meant(node) or _INSTEAD)

    def _constant(self, node: exp.Expr, wanted: str | None) -> Term:
        if isinstance(node, exp.Null):
            if wanted is None:
                raise self._names.bad(node, "NULL has no type here: write CAST(NULL AS bigint)")
            return Term("constant", wanted, (), None)
        if isinstance(node, exp.Boolean):
            return Term("constant", "bool", (), bool(node.this))
        text = text_of(node)
        if isinstance(node, exp.Literal) and node.is_string:
            return self._text(node, text, wanted or "string")
        if wanted == "float64" or "e" in text.lower():
            return self._float(node, text)
        negative, digits = text.startswith("-"), _DECIMAL.fullmatch(text.lstrip("+-"))
        assert digits is not None, text
        number = int((digits[1] + digits[2]) or "0") * (-1 if negative else 1)
        if not digits[2] and INT64_MIN <= number <= INT64_MAX and digits_of(wanted or "") is None:
            return Term("constant", "int64", (), number)
        precision = max(len(digits[1].lstrip("0")) + len(digits[2]), len(digits[2]), 1)
        if precision > terms.MOST_DIGITS:
            return self._float(node, text)
        return Term("constant", decimal_kind(precision, len(digits[2])), (), number)

    def _float(self, node: exp.Expr, text: str) -> Term:
        try:
            return Term("constant", "float64", (), from_number("float64", text))
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None

    def _text(self, node: exp.Expr, text: str, kind: str) -> Term:
        if not terms.is_plain(kind):
            raise unsupported(f"a constant of type {kind} in an expression", "compare such columns in WHERE")
        try:
            return Term("constant", kind, (), from_text(kind, text))
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None

    def _pair(self, node: exp.Expr) -> tuple[Term, Term]:
        """Return the sides of an operator; a constant takes the kind of the other side."""
        left, right = node.this, node.args["expression"]
        if _is_constant(left.unnest()) and not _is_constant(right.unnest()):
            second = self.read(right)
            return self.read(left, second.kind), second
        first = self.read(left)
        return first, self.read(right, first.kind)

    def _calculated(self, node: exp.Expr, wanted: str | None) -> Term:
        op = _ARITHMETIC[type(node)]
        left, right = node.this.unnest(), node.args["expression"].unnest()
        if isinstance(left, exp.Interval) and op == "+":
            left, right = right, left
        if isinstance(right, exp.Interval) and op in ("+", "-"):
            text = text_of(right.this).strip()
            sign = -1 if text.startswith("-") else 1
            try:
                micros = interval_from_text("timestamp", text[1:] if text[:1] in ("+", "-") else text, right.text("unit"))
            except BadLiteral as error:
                raise self._names.bad(right, str(error)) from None
            return terms.moved(self.read(left), int(micros) * (sign if op == "+" else -sign))
        first, second = self._pair(node)
        return terms.arithmetic(op, first, second)

    def _negated(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.negative(self.read(node.this, wanted))

    def _joined(self, node: exp.Expr, wanted: str | None) -> Term:
        parts, pending = list[Term](), [node]
        while pending:
            one = pending.pop().unnest()
            if isinstance(one, exp.DPipe):
                pending += [one.args["expression"], one.this]
            else:
                parts.append(self.read(one, "string"))
        return terms.texts("||", *parts)

    def _changed(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.texts(node.key, self.read(node.this))

    def _coalesced(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.coalesced(self._alike([node.this, *node.expressions], wanted))

    def _alike(self, nodes: list[exp.Expr], wanted: str | None) -> list[Term]:
        """Read operands of the same kind: constants take the kind of the others; if all are constants, that of the first."""
        read = {at: self.read(one) for at, one in enumerate(nodes) if not _is_constant(one.unnest())}
        kind = next(iter(read.values())).kind if read else wanted
        if kind is None:
            known = [one for one in nodes if not isinstance(one.unnest(), exp.Null)]
            kind = self.read(known[0]).kind if known else None
        return [read[at] if at in read else self.read(one, kind) for at, one in enumerate(nodes)]

    def _case(self, node: exp.Expr, wanted: str | None) -> Term:
        cases, default = node.args["ifs"], node.args.get("default")
        conditions = list[Term]()
        for one in cases:
            if node.this is None:
                conditions.append(self.read(one.this))
            else:
                of = self.read(node.this)
                conditions.append(terms.compared("=", of, self.read(one.this, of.kind)))
        values = self._alike([one.args["true"] for one in cases] + ([default] if default is not None else []), wanted)
        return terms.chosen(list(zip(conditions, values, strict=False)), values[-1] if default is not None else None)

    def _truncated(self, node: exp.Expr, wanted: str | None) -> Term:
        if node.args.get("zone"):
            raise unsupported("date_trunc with a time zone", "units are truncated in UTC")
        return terms.truncated(node.args["unit"].name.lower(), self.read(node.this))

    def _extracted(self, node: exp.Expr, wanted: str | None) -> Term:
        path = node.args["expression"]
        found = [part.this for part in path.expressions[1:]] if isinstance(path, exp.JSONPath) else []
        if len(found) != 1 or not isinstance(found[0], str | int):
            raise unsupported(_sql(node), "write one key in quotes, or a number of an array, after -> and ->>")
        return terms.extracted(self.read(node.this), found[0], isinstance(node, exp.JSONExtractScalar))

    def _cast(self, node: exp.Expr, wanted: str | None) -> Term:
        to = node.args["to"]
        name = to.this.name if isinstance(to.this, exp.DType) else str(to)
        kind = self._decimal(to) if name == "DECIMAL" else CASTS.get(name, "")
        if not terms.is_plain(kind) or (to.expressions and name != "DECIMAL"):  # such as varchar(3), which truncates
            instead = "the types are bigint, double precision, decimal(p, s), timestamp, date, text and boolean"
            raise unsupported(f"a cast to {_sql(to)}", instead)
        of = node.this.unnest()
        if isinstance(of, exp.Null):
            return Term("constant", kind, (), None)
        if isinstance(of, exp.Literal) and of.is_string and name != "DECIMAL":
            return self._text(of, of.name, kind)
        return terms.cast(self.read(of), kind)

    def _decimal(self, to: exp.Expr) -> str:
        given = [one.name if one.args.get("expression") is None else "" for one in to.expressions]  # "3_0" has one
        if not 1 <= len(given) <= 2 or not all(re.fullmatch("[0-9]{1,3}", one) for one in given):
            raise unsupported(f"a cast to {_sql(to)}", "give the number of digits: decimal(12, 2)")
        precision, scale = int(given[0]), int(given[1]) if len(given) == 2 else 0
        if not 1 <= precision <= terms.MOST_DIGITS or scale > precision:
            instead = f"a decimal has 1 to {terms.MOST_DIGITS} digits, including those after the decimal point"
            raise unsupported(f"decimal({precision}, {scale})", instead)
        return decimal_kind(precision, scale)

    # conditions

    def _compared(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.compared(COMPARED[type(node)], *self._pair(node))

    def _distinct(self, node: exp.Expr, wanted: str | None) -> Term:
        """Return `IS [NOT] DISTINCT FROM`: equality in which null equals null."""
        left, right = self._pair(node)
        nulls = terms.logical("and", terms.tested("is_null", left), terms.tested("is_null", right))
        same = terms.coalesced([terms.compared("=", left, right), nulls])
        return terms.logical("not", same) if isinstance(node, exp.NullSafeNEQ) else same

    def _connected(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.logical(node.key, self.read(node.this, "bool"), self.read(node.args["expression"], "bool"))

    def _not(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.logical("not", self.read(node.this, "bool"))

    def _is(self, node: exp.Expr, wanted: str | None) -> Term:
        value, negated = node.args["expression"], bool(node.args.get("negate"))
        if isinstance(value, exp.Null):
            return terms.tested("not_null" if negated else "is_null", self.read(node.this))
        if not isinstance(value, exp.Boolean):
            raise unsupported(_sql(node), "write IS NULL, IS NOT NULL, IS [NOT] TRUE, IS [NOT] FALSE")
        of, false = self.read(node.this, "bool"), Term("constant", "bool", (), False)
        known = terms.coalesced([of if value.this else terms.logical("not", of), false])
        return terms.logical("not", known) if negated else known

    def _in(self, node: exp.Expr, wanted: str | None) -> Term:
        if node.args.get("query") is not None or not node.expressions:
            raise unsupported(_sql(node), "write IN (…) over constants and expressions")
        of = self.read(node.this)
        return terms.logical("or", *(terms.compared("=", of, self.read(one, of.kind)) for one in node.expressions))

    def _between(self, node: exp.Expr, wanted: str | None) -> Term:
        if node.args.get("symmetric"):
            raise unsupported("BETWEEN SYMMETRIC", "write BETWEEN with the smaller end first")
        of = self.read(node.this)
        low, high = (self.read(node.args[end], of.kind) for end in ("low", "high"))
        return terms.logical("and", terms.compared(">=", of, low), terms.compared("<=", of, high))

    def _like(self, node: exp.Expr, wanted: str | None) -> Term:
        like = node.this if isinstance(node, exp.Escape) else node
        text = like.args["expression"].unnest() if isinstance(like, exp.Like) else None
        if not isinstance(text, exp.Literal) or not text.is_string:
            raise unsupported(_sql(node), "write one pattern in quotes after LIKE")
        try:
            made = pattern(text.name, text_of(node.args["expression"]) if isinstance(node, exp.Escape) else "\\")
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None
        term = terms.like(self.read(like.this), made)
        return terms.logical("not", term) if like.args.get("negate") else term

    _RULES: dict[tuple[type[exp.Expr], ...], Callable[[_Reader, exp.Expr, str | None], Term]] = {
        tuple(_ARITHMETIC): _calculated,
        (exp.Neg,): _negated,
        (exp.DPipe,): _joined,
        (exp.Lower, exp.Upper): _changed,
        (exp.Coalesce,): _coalesced,
        (exp.Case,): _case,
        (exp.TimestampTrunc, exp.DateTrunc): _truncated,
        (exp.JSONExtract, exp.JSONExtractScalar): _extracted,
        (exp.Cast,): _cast,
        tuple(COMPARED): _compared,
        (exp.NullSafeEQ, exp.NullSafeNEQ): _distinct,
        (exp.And, exp.Or): _connected,
        (exp.Not,): _not,
        (exp.Is,): _is,
        (exp.In,): _in,
        (exp.Between,): _between,
        (exp.Like, exp.Escape): _like,
    }


def read_constant(names: Names, node: exp.Expr, type_: str, where: str) -> Physical | None:
    """Return a constant in the physical form of a type; None for NULL. Problems `unsupported-query`, `bad-query`."""
    if not is_constant(node.unnest()):
        raise unsupported(f"{_sql(node)} in {where}", "compare with constants")
    try:
        return read_value(node.unnest(), type_)
    except BadLiteral as error:
        raise names.bad(node, f"{where}: {error}") from None


def read_like(names: Names, node: exp.Expr, negated: bool) -> tuple[exp.Expr, str, list[Physical]]:
    """Return what LIKE compares, the operator, and the pattern; [] for NULL. Problems `unsupported-query`, `bad-query`."""
    like = node.this if isinstance(node, exp.Escape) else node
    text = like.expression.unnest() if isinstance(like, exp.Like) else None
    if not isinstance(text, exp.Literal | exp.Null) or text.args.get("is_string") is False:
        raise unsupported(_sql(node), "write a column before LIKE, and one pattern in quotes after it")
    try:
        escape = text_of(node.expression) if isinstance(node, exp.Escape) else "\\"
        values: list[Physical] = [] if isinstance(text, exp.Null) else [pattern(text.name, escape)]
    except BadLiteral as error:
        raise names.bad(node, f"{_sql(like.this)}: {error}") from None
    return like.this.unnest(), "like" if bool(like.args.get("negate")) == negated else "not_like", values


def require_text(names: Names, node: exp.Expr, type_: str) -> None:
    if type_ != "string":
        raise names.bad(node, f"LIKE takes a string, but {_sql((node.this if isinstance(node, exp.Escape) else node).this)} is {type_}")


def is_clock(node: exp.Expr) -> bool:
    """Return whether the expression is the current time or date."""
    return isinstance(node, _CLOCKS) or (isinstance(node, exp.Anonymous) and node.name.lower() in _CLOCK_NAMES)


def is_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Cast | exp.Neg | exp.Paren):
        return is_constant(node.this)
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)


def read_value(node: exp.Expr, type_: str) -> Physical | None:
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


def _is_constant(node: exp.Expr) -> bool:
    if isinstance(node, exp.Neg | exp.Paren):
        return isinstance(node.this.unnest(), exp.Literal) and not node.this.unnest().is_string
    return isinstance(node, exp.Literal | exp.Boolean | exp.Null)


def _sql(node: exp.Expr) -> str:
    return node.sql("postgres")
