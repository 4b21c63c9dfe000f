"""Reads expressions into terms (`terms`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from livejoin.wire.grammar import INT64_MAX, INT64_MIN
from livejoin.wire.kinds import decimal_kind, digits_of
from service.errors import unsupported
from service.query import terms
from service.query.conditions import IntervalRef, Term
from service.query.functions.calls import SIGNATURES, called, joined
from service.query.functions.intervals import duration, intersection_end
from service.query.functions.patterns import regular
from service.query.functions.times import binned, extracted, in_zone, shown, truncated_in
from service.query.literals import NUMBER, BadLiteral, from_json, from_number, from_text
from service.query.sql.constants import CASTS, is_literal, is_nan, read_pattern, text_of
from service.query.sql.functions import INSTEAD, call_of, interval_of, is_sum
from service.query.sql.names import Names, meant, sql_of
from service.query.sql.output_names import CALLED

_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime, exp.CurrentDatetime, exp.Localtime, exp.Localtimestamp)
_CLOCK_NAMES = ("now", "clock_timestamp", "statement_timestamp", "transaction_timestamp", "timeofday")
MOST_STEPS = 200
"""The maximum for an expression: names, constants and operators."""
_ARITHMETIC: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
COMPARED: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
_LOCAL_TIMES = ("TIMESTAMP", "TIMESTAMPNTZ")
_PATH_KEY = re.compile(r'(\s*"((?:[^"\\]|\\.)*)"\s*|\s*([^\s",{}\\](?:[^",{}\\]*[^\s",{}\\])?)\s*)(?:,|$)', re.DOTALL)
_DECIMAL = re.compile(r"([0-9]*)\.?([0-9]*)")
_TYPES = "the types are bigint, smallint, double precision, decimal(p, s), timestamptz, timestamp, date, time, text, boolean, uuid"
_INSTEAD = (
    "an expression has + - * / % ^, ||, CASE, CAST, ->>, AT TIME ZONE, conditions, and the functions in docs/reference/sql.md; "
    "compute the rest when you read the rows"
)


def read_term(node: exp.Expr, names: Names) -> Term:
    """Read an expression. Problems `unsupported-query`, `unknown-column`; `bad-query` with `position`."""
    check_steps(node)
    term = _Reader(names).read(node)
    return terms.cast(term, "timestamp") if term.kind == terms.LOCAL else term


def read_alike(what: str, nodes: Sequence[exp.Expr], names: Names) -> str:
    """Return the kind that represents all of these expressions. Raises as `read_term`."""
    kind = terms.alike(what, _Reader(names)._alike(list(nodes), None))[0].kind
    return "timestamp" if kind == terms.LOCAL else kind


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
        if is_literal(node):
            return self._constant(node, wanted)
        if (instead := INSTEAD.get(node.meta.get(CALLED, ""))) is not None:
            raise unsupported(f"{node.meta[CALLED]}(…)", instead)
        rule = next((rule for types, rule in self._RULES.items() if isinstance(node, types)), None)
        if rule is not None:
            return rule(self, node, wanted)
        if (call := call_of(node)) is not None:
            return self._called(*call)
        if isinstance(node, exp.Anonymous) and (named := self._NAMED.get(node.name.lower())) is not None:
            return named(self, node)
        if is_clock(node):
            raise unsupported(sql_of(node), "a view changes only when its relations do: compare with the time when you read the rows")
        if isinstance(node, exp.Interval) or self._interval(node) is not None:
            instead = "add an INTERVAL, which is a constant, to a time, or compare a difference of two timestamps with it"
            raise unsupported(sql_of(node), instead)
        raise unsupported(f"the expression {sql_of(node)}", meant(node) or _INSTEAD)

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
        if digits is None:  # a value of JSON that is no number
            return self._text(node, text, wanted or "string")
        number = int((digits[1] + digits[2]) or "0") * (-1 if negative else 1)
        if not digits[2] and INT64_MIN <= number <= INT64_MAX and digits_of(wanted or "") is None:
            return Term("constant", "int64", (), number)
        precision = max(len(digits[1].lstrip("0")) + len(digits[2]), len(digits[2]), 1)
        if precision > terms.COMPUTED_DIGITS:
            return self._float(node, text)
        return Term("constant", decimal_kind(precision, len(digits[2])), (), number)

    def _float(self, node: exp.Expr, text: str) -> Term:
        try:
            return Term("constant", "float64", (), from_number("float64", text))
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None

    def _text(self, node: exp.Expr, text: str, kind: str) -> Term:
        if not terms.is_plain(kind):
            raise unsupported(f"a constant of type {kind} in an expression", "write CAST(… AS text)")
        if kind == "float64" and is_nan(node):
            return Term("constant", kind, (), math.nan)  # the same object always: NaN is not equal to another one
        try:
            type_ = "timestamp" if kind == terms.LOCAL else kind
            return Term("constant", kind, (), from_json(type_, node.meta["value"]) if "value" in node.meta else from_text(type_, text))
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None

    def _pair(self, node: exp.Expr) -> tuple[Term, Term]:
        """Return the sides of an operator."""
        left, right = node.this, node.args["expression"]
        if isinstance(left.unnest(), exp.Null) or self._takes_kind(left) and not self._takes_kind(right):
            second = self.read(right)
            return self._beside(left, second), second
        first = self.read(left)
        return first, self._beside(right, first)

    def _takes_kind(self, node: exp.Expr) -> bool:
        return is_literal(node.unnest()) or self._interval(node) is not None

    def _beside(self, node: exp.Expr, other: Term) -> Term:
        """Read an operand: a constant takes the kind of the other one, an interval beside a difference of timestamps is microseconds."""
        interval = self._interval(node) if self._is_elapsed(other) else None
        if interval is None:
            return self.read(node, other.kind)
        if interval[0]:
            raise unsupported(f"{sql_of(node)} beside a difference of timestamps", "a month has no fixed length: write a number of days")
        return Term("constant", "int64", (), interval[1])

    def _is_elapsed(self, term: Term) -> bool:
        return terms.is_elapsed(term) or (term.op == "column" and self._names.is_elapsed(term.value))

    def _interval(self, node: exp.Expr) -> tuple[int, int] | None:
        try:
            return interval_of(node)
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None

    def _calculated(self, node: exp.Expr, wanted: str | None) -> Term:
        op = _ARITHMETIC[type(node)]
        left, right = node.this, node.args["expression"]
        if op == "+" and self._interval(left) is not None:
            left, right = right, left
        if op in ("+", "-") and (interval := self._interval(right)) is not None:
            of = self.read(left)
            if self._is_elapsed(of):
                return terms.arithmetic(op, of, self._beside(right, of))
            return terms.moved(of, *(interval if op == "+" else (-interval[0], -interval[1])))
        first, second = self._pair(node)
        if op == "/" and first.kind == second.kind == "int64" and (is_sum(left) or is_sum(right)):
            return terms.arithmetic(op, *(terms.cast(one, decimal_kind(19, 0)) for one in (first, second)))
        return terms.arithmetic(op, first, second)

    def _called(self, name: str, nodes: list[exp.Expr]) -> Term:
        if name in ("lower", "upper") and isinstance(of := nodes[0].unnest(), exp.Anonymous) and of.name.lower() == "intersection":
            return intersection_end(self._intervals(of), self._names.scope, "start" if name == "lower" else "end")
        takes = SIGNATURES[name].takes if name in SIGNATURES else (("float64",),) * len(nodes)
        return called(name, [self._argument(one, takes[min(at, len(takes) - 1)][0]) for at, one in enumerate(nodes)])

    def _argument(self, node: exp.Expr, kind: str) -> Term:
        """Read an argument: NULL and texts take the kind that the function takes."""
        plain = node.unnest()
        return self.read(node, kind if isinstance(plain, exp.Null) or (isinstance(plain, exp.Literal) and plain.is_string) else None)

    def _intervals(self, node: exp.Expr) -> list[IntervalRef]:
        if not node.expressions:
            raise unsupported(sql_of(node), "it takes intervals, as in duration(b.stay, m.slot)")
        return [self._names.interval(one) for one in node.expressions]

    def _duration(self, node: exp.Expr) -> Term:
        return duration(self._intervals(node), self._names.scope)

    def _intersection(self, node: exp.Expr) -> Term:
        raise unsupported("intersection(…) within an expression", "select it alone, or write lower(…) or upper(…) around it")

    def _times(self, node: exp.Expr, *which: str) -> list[exp.Expr]:
        """Return the arguments of a function of PostgreSQL that takes these."""
        if len(node.expressions) != len(which):
            raise unsupported(f"{node.name.lower()} with {len(node.expressions)} arguments", f"it takes {', '.join(which)}")
        return list(node.expressions)

    def _text_constant(self, node: exp.Expr | None, what: str) -> str:
        of = node.unnest() if node is not None else None
        if not isinstance(of, exp.Literal) or not of.is_string:
            raise unsupported(sql_of(node) if node is not None else what, f"write {what} in quotes")
        return of.name

    def _part_of_date(self, node: exp.Expr) -> Term:
        field, of = self._times(node, "a part", "a time")
        return extracted(self._text_constant(field, "the part"), self._argument(of, "timestamp"), True)

    def _extract(self, node: exp.Expr, wanted: str | None) -> Term:
        return extracted(node.this.name, self._argument(node.args["expression"], "timestamp"), False)

    def _zoned(self, node: exp.Expr) -> Term:
        zone, of = self._times(node, "a zone", "a timestamp")
        return in_zone(self._argument(of, "timestamp"), self._text_constant(zone, "a time zone"))

    def _in_zone(self, node: exp.Expr, wanted: str | None) -> Term:
        return in_zone(self._argument(node.this, "timestamp"), self._text_constant(node.args["zone"], "a time zone"))

    def _binned(self, node: exp.Expr) -> Term:
        length, of, origin = self._times(node, "an interval", "a timestamp", "an origin")
        plain = length.unnest()
        text = isinstance(plain, exp.Literal) and plain.is_string
        interval = self._interval(exp.Interval(this=plain.copy()) if text else length)
        if interval is None or interval[0]:
            raise unsupported(f"date_bin with {sql_of(length)}", "write an interval of days or less, such as INTERVAL '15 minutes'")
        return binned(interval[1], self._argument(of, "timestamp"), self._argument(origin, "timestamp"))

    def _shown(self, node: exp.Expr) -> Term:
        of, form = self._times(node, "a time", "a pattern")
        return shown(self._argument(of, "timestamp"), self._text_constant(form, "the pattern"))

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
        return joined("||", parts)

    def _concatenated(self, node: exp.Expr, wanted: str | None) -> Term:
        name = "concat_ws" if isinstance(node, exp.ConcatWs) else "concat"
        return joined(name, [self._argument(one, "string") for one in node.expressions])

    def _coalesced(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.coalesced(self._alike([node.this, *node.expressions], wanted), node.key)

    def _null_if(self, node: exp.Expr, wanted: str | None) -> Term:
        return terms.null_if(*self._pair(node))

    def _alike(self, nodes: list[exp.Expr], wanted: str | None) -> list[Term]:
        """Read operands of the same kind: constants take the kind of the others; if all are constants, that of the first."""
        read = {at: self.read(one) for at, one in enumerate(nodes) if not is_literal(one.unnest())}
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
                conditions.append(self.read(one.this, "bool"))
            else:
                of = self.read(node.this)
                conditions.append(terms.compared("=", of, self.read(one.this, of.kind)))
        values = self._alike([one.args["true"] for one in cases] + ([default] if default is not None else []), wanted)
        return terms.chosen(list(zip(conditions, values, strict=False)), values[-1] if default is not None else None)

    def _truncated(self, node: exp.Expr, wanted: str | None) -> Term:
        unit, of = node.args["unit"].name.lower(), self._argument(node.this, "timestamp")
        zone = node.args.get("zone")
        return terms.truncated(unit, of) if zone is None else truncated_in(unit, of, self._text_constant(zone, "a time zone"))

    def _extracted(self, node: exp.Expr, wanted: str | None) -> Term:
        path = node.args["expression"]
        found = [part.this for part in path.expressions[1:]] if isinstance(path, exp.JSONPath) else []
        if len(found) != 1 or not isinstance(found[0], str | int):
            raise unsupported(sql_of(node), "write one key in quotes, or a number of an array, after -> and ->>")
        return terms.extracted(self.read(node.this), found, isinstance(node, exp.JSONExtractScalar))

    def _at_path(self, node: exp.Expr, wanted: str | None) -> Term:
        text = self._text_constant(node.args["expression"], "a path, such as '{rooms,0}',")
        keys = _PATH_KEY.findall(text[1:-1])
        if text[:1] + text[-1:] != "{}" or (text != "{}" and ",".join(whole for whole, *_ in keys) != text[1:-1]):
            raise unsupported(sql_of(node), "write a path as '{rooms,0,\"the name\"}'")
        path = [(re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if whole.strip()[:1] == '"' else plain,) for whole, quoted, plain in keys]
        return terms.extracted(self.read(node.this), path, isinstance(node, exp.JSONBExtractScalar))

    def _cast(self, node: exp.Expr, wanted: str | None) -> Term:
        to = node.args["to"]
        name = to.this.name if isinstance(to.this, exp.DType) else str(to)
        if name == "DECIMAL" and not to.expressions and (exact := self._exact(node.this.unnest())) is not None:
            return exact
        kind = self._decimal(to) if name == "DECIMAL" else terms.LOCAL if name in _LOCAL_TIMES else CASTS.get(name, "")
        if not kind or (to.expressions and name != "DECIMAL"):  # such as varchar(3), which truncates
            raise unsupported(f"a cast to {sql_of(to)}", _TYPES)
        of = node.this.unnest()
        if isinstance(of, exp.Null):
            return Term("constant", kind, (), None)
        if isinstance(of, exp.Literal) and of.is_string and name != "DECIMAL":
            made = self._text(of, of.name, kind)
        else:
            made = terms.cast(self.read(of), kind)
        return terms.small(made) if name == "SMALLINT" else made

    def _exact(self, of: exp.Expr) -> Term | None:
        """Return what is cast to a decimal of any number of digits; None if its type does not tell how many."""
        if isinstance(of, exp.Literal) and of.is_string and NUMBER.fullmatch(of.name.strip()):
            of = exp.Literal.number(of.name.strip())
        term = None if isinstance(of, exp.Null) else self.read(of)
        if term is None or (term.kind != "int64" and digits_of(term.kind) is None):
            return None
        return term if term.kind != "int64" else terms.cast(term, decimal_kind(19, 0))

    def _decimal(self, to: exp.Expr) -> str:
        given = [one.name if one.args.get("expression") is None else "" for one in to.expressions]  # "3_0" has one
        if not 1 <= len(given) <= 2 or not all(re.fullmatch("[0-9]{1,3}", one) for one in given):
            raise unsupported(f"a cast to {sql_of(to)}", "give the number of digits: decimal(12, 2)")
        precision, scale = int(given[0]), int(given[1]) if len(given) == 2 else 0
        if not 1 <= precision <= terms.COMPUTED_DIGITS or scale > precision:
            instead = f"a decimal has 1 to {terms.COMPUTED_DIGITS} digits, including those after the decimal point"
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
            raise unsupported(sql_of(node), "write IS NULL, IS NOT NULL, IS [NOT] TRUE, IS [NOT] FALSE")
        of, false = self.read(node.this, "bool"), Term("constant", "bool", (), False)
        known = terms.coalesced([of if value.this else terms.logical("not", of), false])
        return terms.logical("not", known) if negated else known

    def _in(self, node: exp.Expr, wanted: str | None) -> Term:
        if node.args.get("query") is not None or not node.expressions:
            raise unsupported(sql_of(node), "write IN (…) over constants and expressions")
        of = self.read(node.this)
        return terms.logical("or", *(terms.compared("=", of, self._beside(one, of)) for one in node.expressions))

    def _between(self, node: exp.Expr, wanted: str | None) -> Term:
        if node.args.get("symmetric"):
            raise unsupported("BETWEEN SYMMETRIC", "write BETWEEN with the smaller end first")
        of = self.read(node.this)
        low, high = (self._beside(node.args[end], of) for end in ("low", "high"))
        return terms.logical("and", terms.compared(">=", of, low), terms.compared("<=", of, high))

    def _like(self, node: exp.Expr, wanted: str | None) -> Term:
        like = node.this if isinstance(node, exp.Escape) else node
        if not isinstance(like, exp.Like | exp.ILike):
            raise unsupported(sql_of(node), "write one pattern in quotes after LIKE")
        self._text_constant(like.args["expression"], "one pattern after LIKE")
        term = terms.matched(like.key, self._argument(like.this, "string"), read_pattern(self._names, node))
        return terms.logical("not", term) if like.args.get("negate") else term

    def _matched(self, node: exp.Expr, wanted: str | None) -> Term:
        try:
            made = regular(self._text_constant(node.args["expression"], "one pattern after ~"), isinstance(node, exp.RegexpILike))
        except BadLiteral as error:
            raise self._names.bad(node, str(error)) from None
        return terms.matched("matches", self._argument(node.this, "string"), made)

    _NAMED: dict[str, Callable[[_Reader, exp.Expr], Term]] = {
        "date_part": _part_of_date,
        "date_bin": _binned,
        "to_char": _shown,
        "timezone": _zoned,
        "duration": _duration,
        "intersection": _intersection,
    }
    _RULES: dict[tuple[type[exp.Expr], ...], Callable[[_Reader, exp.Expr, str | None], Term]] = {
        tuple(_ARITHMETIC): _calculated,
        (exp.Neg,): _negated,
        (exp.DPipe,): _joined,
        (exp.Concat,): _concatenated,
        (exp.Coalesce, exp.Greatest, exp.Least): _coalesced,
        (exp.Nullif,): _null_if,
        (exp.Case,): _case,
        (exp.TimestampTrunc, exp.DateTrunc): _truncated,
        (exp.Extract,): _extract,
        (exp.AtTimeZone,): _in_zone,
        (exp.JSONBExtract, exp.JSONBExtractScalar): _at_path,
        (exp.JSONExtract, exp.JSONExtractScalar): _extracted,
        (exp.Cast,): _cast,
        tuple(COMPARED): _compared,
        (exp.NullSafeEQ, exp.NullSafeNEQ): _distinct,
        (exp.And, exp.Or): _connected,
        (exp.Not,): _not,
        (exp.Is,): _is,
        (exp.In,): _in,
        (exp.Between,): _between,
        (exp.Like, exp.ILike, exp.Escape): _like,
        (exp.RegexpLike, exp.RegexpILike): _matched,
    }


def is_clock(node: exp.Expr) -> bool:
    """Return whether the expression is the current time or date."""
    return isinstance(node, _CLOCKS) or (isinstance(node, exp.Anonymous) and node.name.lower() in _CLOCK_NAMES)
