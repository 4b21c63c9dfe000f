"""Reads the JSON form of a view's definition (`forms.py`) into a draft, with names resolved and values typed, and the options of both
forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Literal, TypeVar

from livejoin.wire.schema import RelationDefinition
from service.query.assembly import Draft, Inequality, Options, PartDraft, check_output_name, column_output, computed_outputs
from service.query.filters import OPPOSITE, pattern
from service.query.forms import (
    And,
    AtMost,
    Computed,
    Condition,
    Coverage,
    Cross,
    Duration,
    Entry,
    Equal,
    Except,
    Gaps,
    Intersection,
    IsAsOf,
    JsonForm,
    JsonView,
    LatestRows,
    Less,
    Not,
    NotEqual,
    OfDuration,
    Or,
    Overlaps,
    Part,
    Select,
    Selected,
    SqlView,
    Union,
    UnionView,
    Where,
    Within,
    as_json,
    bad,
)
from service.query.groups import GroupsDraft, distinct_of, refuse_term
from service.query.latest import as_of_alone, as_of_of, latest_of
from service.query.literals import BadLiteral, Physical, distance_from_json, from_json
from service.query.model import AGGREGATE, GROUP, ColumnRef, Filter, IntervalRef, Output, PartKind
from service.query.model import Condition as Restriction
from service.query.model import Within as Distance
from service.query.scope import Scope
from service.query.set_operations import Expression, SetOperation
from service.query.sql import read_expression

_AS = re.compile(r"\s(?:as)\s+(?=\S)", re.IGNORECASE)
_Into = TypeVar("_Into", Draft, GroupsDraft)


def options_of(form: SqlView | JsonForm) -> Options:
    retain = (form.changes.retain_rows, form.changes.retain_bytes) if form.changes else None
    return Options(form.algorithm, form.guarantee, retain, form.groups)


def read_json(form: JsonForm | Select | Union | Except, relations: Mapping[str, RelationDefinition]) -> Expression:
    """Return the draft of a SELECT, or of several. Checks names first, then unsupported parts."""
    if isinstance(form, Select):
        return _read_select(form, relations)
    sides = [read_json(side, relations) for side in (form.union if isinstance(form, UnionView | Union) else form.both)]
    operation: Literal["UNION", "EXCEPT"] = "UNION" if isinstance(form, UnionView | Union) else "EXCEPT"
    return reduce(lambda left, right: SetOperation(left, operation, right), sides)


def _read_select(form: Select, relations: Mapping[str, RelationDefinition]) -> Draft:
    aliases = dict(form.aliases)
    for part in (*form.left, *([form.full] if form.full is not None else [])):
        for alias, relation in part.aliases.items():
            if alias in aliases:
                raise bad(f"the alias {alias} is used twice: rename one of them")
            aliases[alias] = relation
    scope = Scope(aliases, relations)
    draft = _read_part(form, scope)
    draft.absent = [_read_part(part, Scope(part.aliases, relations, scope)) for part in form.not_exists]
    forms: list[tuple[PartKind, Part]] = [*(("exists", part) for part in form.exists), *(("optional", part) for part in form.left)]
    forms += [("full", form.full)] if form.full is not None else []
    draft.parts = [PartDraft(kind, _read_part(part, Scope(part.aliases, relations, scope))) for kind, part in forms]
    if any(one.as_of is not None for one in (*draft.absent, *(part.draft for part in draft.parts))):
        if draft.absent or len(draft.parts) != 1 or draft.parts[0].kind != "optional":
            raise as_of_alone("EXISTS, NOT EXISTS or an outer join")
        _take_in_as_of(draft)
    covered = [one for one in form.select if isinstance(one, Coverage) and len(one.coverage) == 1]
    for selected in form.select if not covered else ():
        draft.outputs += _read_output(draft.scope, selected)
    if isinstance(form, JsonView):
        _read_groups(form, draft)
    if covered:
        _read_covered(form, covered, draft)
    if isinstance(form, JsonView) and form.latest is not None:
        _read_latest(form.latest, draft)
    return draft


def _read_groups(form: JsonView, draft: Draft) -> None:
    """Read `group`, `aggregate`, `having`, `distinct`."""
    if form.distinct:
        if form.group or form.aggregate or form.having:
            raise bad('"distinct" can only be used with "select": each group is one row')
        for output in draft.outputs:
            refuse_term(output)
        scope = draft.scope
        every = [column_output(ColumnRef(a, c.name)) for a in scope.aliases for c in scope.definition(a).columns]
        draft.groups = distinct_of(scope, draft.outputs or every)
        return
    if not (form.group or form.aggregate or form.having):
        return
    if draft.outputs:
        raise bad('"select" cannot be used with groups: their rows are the columns of "group", then those of "aggregate"')
    groups = draft.groups = GroupsDraft(draft.scope)
    for entry in form.group:
        if isinstance(entry, str):
            output, trunc = _read_column_output(draft.scope, entry), None
        else:
            column = draft.scope.column(*_split(entry.of, "column"))
            output, trunc = column_output(column, check_output_name(entry.name)), entry.trunc
        groups.show(output.name, GROUP, groups.group(output.name, output, trunc))
    for one in form.aggregate:
        function, of = one.function
        groups.show(check_output_name(one.name), AGGREGATE, groups.aggregate(function, _operand(draft.scope, function, of)))
    for condition in form.having:
        _read_having(draft, groups, condition)


def _read_covered(form: Select, covered: list[Coverage], draft: Draft) -> None:
    """Read `select` with `{"coverage": [interval]}`, next to "group"."""
    if isinstance(form, JsonView) and form.distinct:
        raise bad('"distinct" cannot be used with "coverage" of one interval: leave it out, each stretch is one row')
    if len(form.select) > 1:
        raise bad('"select" with "coverage" of one interval must have only this entry: the columns of "group" precede it')
    groups = draft.groups = draft.groups or GroupsDraft(draft.scope)
    (one,) = covered
    groups.cover(check_output_name(one.name), _interval(draft.scope, one.coverage[0]))


def _read_latest(form: LatestRows, draft: Draft) -> None:
    if draft.groups is not None:
        raise bad('"latest" cannot be used with groups or "distinct": define a view for each')
    by = [draft.scope.column(*_split(text, "column")) for text in form.by]
    draft.latest = latest_of(draft.scope, by, draft.scope.column(*_split(form.order, "column")), form.descending, form.rows)


def _operand(scope: Scope, function: str, of: str | OfDuration) -> Output | None:
    """Return the argument of an aggregate; None: the rows."""
    if isinstance(of, OfDuration):
        return computed_outputs("duration", tuple(_interval(scope, text) for text in of.duration), None)[0]
    if function == "count" and of == "*":
        return None
    return column_output(scope.column(*_split(of, "column")))


def _read_having(draft: Draft, groups: GroupsDraft, entry: Entry) -> None:
    """Like `_read_filter`, for `having`."""

    def compare(into: GroupsDraft, where: Where, negated: bool) -> None:
        one = into.named(where.column)
        if one is None:
            there = ", ".join(output.name for output in into.outputs) or "none: name them in group and aggregate"
            raise bad(f"having: the groups have no column {as_json(where.column)}; they have {there}")
        values = _values(where, into.result_type(one), f"having, {where.column}")
        for op, some in _comparisons(where, values, negated):
            draft.having(into, one, op, some)

    _read_entry(groups, entry, False, compare, groups.case, GroupsDraft.choose)


def _values(entry: Where, type_: str, what: str) -> list[Physical]:
    """Return the constants of a filter that are not null."""
    op, value = entry.op, entry.value
    if op in ("is_null", "not_null"):
        if value is not None:
            raise bad(f"{op} takes no value")
        return []
    if "value" not in entry.model_fields_set:
        raise bad(f'the operator {op} needs a "value"')
    if op == "in" and not isinstance(value, list):
        raise bad("the operator in takes a list of values")
    if op == "like" and type_ != "string":
        raise bad(f"{what}: the operator like takes a string, not {type_}")
    try:
        if op == "like":
            return [pattern(str(from_json(type_, value)))] if value is not None else []
        return [from_json(type_, one) for one in (value if op == "in" else [value]) if one is not None]
    except BadLiteral as error:
        raise bad(f"{what}: {error}") from None


def _read_part(form: Select | Part, scope: Scope) -> Draft:
    """Read the conditions of `{"from", "join", "where"}`."""
    draft = Draft(scope)
    for condition in form.join:
        _read_condition(draft, condition)
    for entry in form.where:
        _read_filter(draft, entry)
    return draft


def _split(text: str, what: str) -> tuple[str, str]:
    """Split `alias.name` at the first dot; a column name contains no dot."""
    if "." not in text:
        raise bad(f'{as_json(text)} has no alias: write "alias.{what}"')
    alias, name = text.split(".", 1)
    return alias, name


def _columns(scope: Scope, pair: list[str]) -> tuple[ColumnRef, ColumnRef]:
    left, right = (scope.column(*_split(text, "column")) for text in pair)
    return left, right


def _interval(scope: Scope, text: str) -> IntervalRef:
    return scope.interval(*_split(text, "interval"))


def _read_condition(draft: Draft, entry: Condition) -> None:
    """Read one entry of `join` into the draft."""
    scope = draft.scope
    match entry:
        case Equal(equal=pair):
            draft.equal.append(_columns(scope, pair))
        case Overlaps(overlaps=[x, y]):
            draft.overlaps.append((_interval(scope, x), _interval(scope, y)))
        case AtMost(at_most=pair):
            draft.inequalities.append(Inequality(*_columns(scope, pair), False))
        case Less(less=pair):
            draft.inequalities.append(Inequality(*_columns(scope, pair), True))
        case NotEqual(not_equal=pair):
            draft.not_equal.append(_columns(scope, pair))
        case Within(within=pair):
            _read_within(draft, *_columns(scope, pair), entry.distance)
        case Cross(cross=[x, y]):
            _read_cross(draft, x, y)
        case IsAsOf(as_of=[of, op, point]):
            _read_as_of(draft, of, op, point)


def _read_within(draft: Draft, left: ColumnRef, right: ColumnRef, distance: Any) -> None:
    try:
        read = distance_from_json(draft.scope.describe(left).kind, distance)
    except BadLiteral as error:
        raise bad(f"the distance of {left} and {right}: {error}") from None
    draft.within.append(Distance(left, right, read))


def _read_as_of(draft: Draft, of: str, op: str, point: str) -> None:
    if op not in ("<", "<=", ">", ">="):
        raise bad(f'as_of: {as_json(op)} is not a comparison: use one of "<", "<=", ">", ">="')
    if draft.as_of is not None:
        raise bad('"as_of" can be used only once in join')
    left, right = _columns(draft.scope, [of, point])
    draft.as_of = as_of_of(draft.scope, left, op, right, False)


def _take_in_as_of(draft: Draft) -> None:
    """Move an entry of `left` with `as_of` to the view itself, as an optional one."""
    (part,) = draft.parts
    of, own = part.draft.as_of, part.draft.scope.aliases
    assert of is not None
    if draft.as_of is not None or of.of.alias not in own or part.draft.filters or part.draft.never:
        what = "a filter in it" if part.draft.filters else "another one, or by another relation"
        raise bad(f'left: an entry with "as_of" cannot have {what}; write filters in "where" of the view')
    others = part.draft.overlaps or part.draft.within or part.draft.not_equal or part.draft.inequalities or part.draft.cross
    if others or len(own) != 1:
        raise as_of_alone("another comparison of the two relations" if others else "other joins")
    draft.parts, draft.as_of = [], of._replace(optional=True)
    draft.equal += part.draft.equal


def _read_cross(draft: Draft, x: str, y: str) -> None:
    for alias in (x, y):
        draft.scope.definition(alias)
    if x == y:
        raise bad(f'"cross" of {x} with itself: give the relation a second alias')
    draft.cross.append((x, y))


def read_where(relation: str, definition: RelationDefinition, entries: Sequence[Entry]) -> list[Restriction]:
    """Read conditions on the rows of one relation, with columns written without an alias. Problems `bad-definition`, `unknown-column`."""
    draft = Draft(Scope({relation: relation}, {relation: definition}))
    for entry in entries:
        _read_filter(draft, entry, relation)
    if draft.never:
        return [Filter(ColumnRef(relation, definition.key[0]), "in", ())]
    return draft.filters


def _read_filter(draft: Draft, entry: Entry, alias: str | None = None) -> None:
    """Read one entry of `where`. `alias`: of columns written without one."""
    scope = draft.scope

    def compare(into: Draft, where: Where, negated: bool) -> None:
        ref = scope.column(*(_split(where.column, "column") if alias is None else (alias, where.column)))
        if where.op not in ("is_null", "not_null"):
            scope.require_comparable(ref)
        for op, some in _comparisons(where, _values(where, scope.describe(ref).kind, f"where, {ref}"), negated):
            into.restrict(ref, op, some)

    _read_entry(draft, entry, False, compare, lambda: Draft(scope), lambda into, cases: into.choose(cases, '"or" in where'))


def _read_entry(
    into: _Into, entry: Entry, negated: bool, compare: Callable[[_Into, Where, bool], None], case: Callable[[], _Into],
    choose: Callable[[_Into, Sequence[_Into]], None],
) -> None:  # fmt: skip
    """Read a condition that must hold, or (`negated`) must be false; a comparison with null is neither, as in SQL. `compare(into, one,
    negated)` adds a comparison; `choose(into, cases)` adds the condition that one of the cases holds; `case()` creates one."""
    match entry:
        case Not(entry=inner):
            _read_entry(into, inner, not negated, compare, case, choose)
        case Or(cases=entries) | And(cases=entries):
            joined = [into if isinstance(entry, And) != negated else case() for _ in entries]
            for one, inner in zip(joined, entries, strict=True):
                _read_entry(one, inner, negated, compare, case, choose)
            if isinstance(entry, And) == negated:
                choose(into, joined)
        case Where():
            compare(into, entry, negated)


def _comparisons(where: Where, values: list[Physical], negated: bool) -> list[tuple[str, list[Physical]]]:
    """Return the operators, each with its values without nulls, that all hold if this comparison does, or (`negated`) is false."""
    if not negated:
        return [(where.op, values)]
    if where.op != "in":
        return [(OPPOSITE[where.op], values)]
    if len(values) < len(where.value):  # if one is null, no value is known not to be among them
        return [("!=", [])]
    return [("!=", [value]) for value in values]


def _read_output(scope: Scope, entry: Selected) -> list[Output]:
    match entry:
        case Intersection(intersection=texts):
            function = "intersection"
        case Duration(duration=texts):
            function = "duration"
        case Gaps(gaps=texts):
            function = "gaps"
        case Coverage(coverage=texts):
            function = "coverage"
        case Computed():
            return [read_expression(entry.expression, check_output_name(entry.name), scope)]
        case str():
            return [_read_column_output(scope, entry)]
    return computed_outputs(function, tuple(_interval(scope, text) for text in texts), check_output_name(entry.name))


def _read_column_output(scope: Scope, text: str) -> Output:
    """Read `alias.column`, or `alias.column as name`; a column whose own name contains an "as" is found first."""
    alias, name = _split(text, "column")
    columns = {column.name for column in scope.definition(alias).columns} if alias in scope.aliases else set()
    if name in columns:
        return column_output(scope.column(alias, name))
    for match in reversed(list(_AS.finditer(name))):
        before, given = name[: match.start()], name[match.end() :].strip()
        for column in (before, before.rstrip()):  # a column's name may end with a blank
            if column in columns:
                return column_output(scope.column(alias, column), check_output_name(given))
    return column_output(scope.column(alias, _AS.split(name)[0].rstrip()))
