"""The JSON form of a view's definition, and the options of both forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from service.errors import Problem
from service.query.assembly import MAX_ALIASES, Draft, Inequality, Options, check_output_name, column_output, computed_outputs, unsupported
from service.query.literals import BadLiteral, distance_from_json, from_json
from service.query.model import ALGORITHMS, GUARANTEES, RETAIN, ColumnRef, Filter, IntervalRef, Output, Within
from service.query.scope import Scope
from service.wire.schema import NAME, RelationDefinition

OPTIONS = ("algorithm", "guarantee", "changes")
_FIELDS = ("from", "join", "where", "select", *OPTIONS)
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "is_null", "not_null")
_AS = re.compile(r"\s(?:as)\s+(?=\S)", re.IGNORECASE)


def bad(detail: str) -> Problem:
    return Problem("bad-definition", detail)


def as_json(value: Any) -> str:
    """A part of a definition as its author wrote it, shortened."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # nested too deeply to be written
        return "…"
    return text if len(text) <= 200 else text[:200] + "…"


def check_fields(data: Mapping[str, Any], known: tuple[str, ...], where: str) -> None:
    unknown = [str(field) for field in data if field not in known]
    if unknown:
        raise bad(f"{where} has no field {', '.join(unknown)}; its fields are {', '.join(known)}")


def read_options(data: Mapping[str, Any]) -> Options:
    """`algorithm`, `guarantee` and `changes`, or their defaults."""
    algorithm, guarantee = data.get("algorithm", "auto"), data.get("guarantee", "best-effort")
    if algorithm != "auto" and (not isinstance(algorithm, str) or algorithm not in ALGORITHMS):
        raise bad(f'unknown algorithm {as_json(algorithm)}: use "auto" or one of {", ".join(ALGORITHMS)}')
    if guarantee not in GUARANTEES:
        raise bad(f"unknown guarantee {as_json(guarantee)}: use one of {', '.join(GUARANTEES)}")
    return Options(algorithm, guarantee, _read_retain(data.get("changes", {})))


def _read_retain(changes: Any) -> tuple[int, int] | None:
    if changes is False:
        return None
    if not isinstance(changes, dict):
        raise bad('changes must be false or an object with "retain_rows" and "retain_bytes"')
    check_fields(changes, ("retain_rows", "retain_bytes"), "changes")
    bounds = changes.get("retain_rows", RETAIN[0]), changes.get("retain_bytes", RETAIN[1])
    if not all(type(bound) is int and 0 < bound < 2**63 for bound in bounds):
        raise bad('retain_rows and retain_bytes must be positive integers; to keep no changes, write "changes": false')
    return bounds


def read_json(data: Mapping[str, Any], relations: Mapping[str, RelationDefinition]) -> Draft:
    """The draft of `{"from", "join", "where", "select"}`. Checks the form first, then names, then unsupported parts."""
    for later in ("union", "except"):
        if later in data:
            raise unsupported(f'"{later}"', "it is not implemented yet; register a view for each part")
    check_fields(data, _FIELDS, "a view's definition")
    draft = Draft(Scope(_read_from(data.get("from")), relations))
    for entry in _list(data, "join"):
        _read_condition(draft, entry)
    for entry in _list(data, "where"):
        _read_filter(draft, entry)
    if "select" in data:
        for entry in _list(data, "select"):
            draft.outputs += _read_output(draft.scope, entry)
        if not draft.outputs:
            raise bad("select is empty; omit it to select all columns")
    return draft


def _read_from(aliases: Any) -> dict[str, str]:
    if not isinstance(aliases, dict) or not aliases:
        raise bad('"from" must be an object that maps aliases to relations, such as {"b": "bookings"}')
    if len(aliases) > MAX_ALIASES:
        raise bad(f"a view joins at most {MAX_ALIASES} relations")
    for alias, relation in aliases.items():
        if not NAME.fullmatch(alias):
            raise bad(f"the alias {as_json(alias)} does not match {NAME.pattern}")
        if not isinstance(relation, str):
            raise bad(f"from.{alias} is not the name of a relation")
    return aliases


def _list(data: Mapping[str, Any], field: str) -> list[Any]:
    entries = data.get(field, [])
    if not isinstance(entries, list):
        raise bad(f'"{field}" is a list')
    return entries


def _split(text: Any, what: str) -> tuple[str, str]:
    """Splits `alias.name` at the first dot; a column name has no dot."""
    if not isinstance(text, str) or "." not in text:
        raise bad(f'{as_json(text)} has no alias: write "alias.{what}"')
    alias, name = text.split(".", 1)
    return alias, name


def _column(scope: Scope, text: Any) -> ColumnRef:
    return scope.column(*_split(text, "column"))


def _interval(scope: Scope, text: Any) -> IntervalRef:
    return scope.interval(*_split(text, "interval"))


def _read_condition(draft: Draft, entry: Any) -> None:
    """One entry of `join` into the draft."""
    if not isinstance(entry, dict) or len(kinds := [kind for kind in entry if kind in _CONDITIONS]) != 1:
        raise bad(f"an entry of join must have one of {', '.join(_CONDITIONS)}; this one is {as_json(entry)}")
    kind = kinds[0]
    check_fields(entry, (kind, "distance") if kind == "within" else (kind,), f'the entry "{kind}" of join')
    sides = entry[kind]
    if not isinstance(sides, list) or len(sides) != 2:
        raise bad(f'"{kind}" must be a list of two, such as {{"{kind}": [x, y]}}')
    _CONDITIONS[kind](draft, entry, *sides)


def _equal(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    draft.equal.append((_column(draft.scope, x), _column(draft.scope, y)))


def _overlaps(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    draft.overlaps.append((_interval(draft.scope, x), _interval(draft.scope, y)))


def _at_most(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    draft.inequalities.append(Inequality(_column(draft.scope, x), _column(draft.scope, y), False))


def _less(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    draft.inequalities.append(Inequality(_column(draft.scope, x), _column(draft.scope, y), True))


def _not_equal(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    draft.not_equal.append((_column(draft.scope, x), _column(draft.scope, y)))


def _within(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    if "distance" not in entry:
        raise bad('"within" requires a "distance"')
    left, right = _column(draft.scope, x), _column(draft.scope, y)
    try:
        distance = distance_from_json(draft.scope.describe(left).type, entry["distance"])
    except BadLiteral as error:
        raise bad(f"the distance of {left} and {right}: {error}") from None
    draft.within.append(Within(left, right, distance))


def _cross(draft: Draft, entry: Any, x: Any, y: Any) -> None:
    for alias in (x, y):
        if not isinstance(alias, str):
            raise bad('"cross" must be a list of two aliases')
        draft.scope.definition(alias)
    if x == y:
        raise bad(f'"cross" of {x} with itself: give the relation a second alias')
    draft.cross.append((x, y))


_CONDITIONS: dict[str, Callable[[Draft, Any, Any, Any], None]] = {
    "equal": _equal,
    "overlaps": _overlaps,
    "at_most": _at_most,
    "less": _less,
    "not_equal": _not_equal,
    "within": _within,
    "cross": _cross,
}


def _read_filter(draft: Draft, entry: Any) -> None:
    """One entry of `where`. A comparison with null never matches, as in SQL."""
    if not isinstance(entry, dict):
        raise bad('an entry of where must be an object with "column", "op" and "value"')
    check_fields(entry, ("column", "op", "value"), "an entry of where")
    op = entry.get("op")
    if not isinstance(op, str) or op not in _OPERATORS:
        raise bad(f"unknown operator {as_json(op)} in where: use one of {' '.join(_OPERATORS)}")
    ref = _column(draft.scope, entry.get("column"))
    if op in ("is_null", "not_null"):
        if entry.get("value") is not None:
            raise bad(f"{op} takes no value")
        draft.filters.append(Filter(ref, op, None))
        return
    if "value" not in entry:
        raise bad(f'the operator {op} needs a "value"')
    value = entry["value"]
    if op == "in" and not isinstance(value, list):
        raise bad("the operator in takes a list of values")
    type_ = draft.scope.describe(ref).type
    try:
        values = [from_json(type_, one) for one in (value if op == "in" else [value]) if one is not None]
    except BadLiteral as error:
        raise bad(f"where, {ref}: {error}") from None
    draft.restrict(ref, op, values)


def _read_output(scope: Scope, entry: Any) -> list[Output]:
    if isinstance(entry, str):
        return [_read_column_output(scope, entry)]
    functions = [f for f in ("intersection", "duration") if isinstance(entry, dict) and f in entry]
    if len(functions) != 1:
        forms = '"alias.column", "alias.column as name", or has "intersection" or "duration"'
        raise bad(f"an entry of select must be {forms}; this one is {as_json(entry)}")
    function = functions[0]
    check_fields(entry, (function, "as"), f'the entry "{function}" of select')
    if not isinstance(entry[function], list) or not entry[function]:
        raise bad(f'"{function}" must be a list of intervals, such as {{"{function}": ["b.stay", "m.slot"], "as": "clash"}}')
    intervals = tuple(_interval(scope, text) for text in entry[function])
    name = entry.get("as", function)
    return computed_outputs(function, intervals, check_output_name(name))


def _read_column_output(scope: Scope, text: str) -> Output:
    """`alias.column`, or `alias.column as name`; a column whose own name has an "as" in it is found first."""
    alias, name = _split(text, "column")
    columns = {column.name for column in scope.definition(alias).columns} if alias in scope.aliases else set()
    if name in columns:
        return column_output(scope.column(alias, name))
    for match in reversed(list(_AS.finditer(name))):
        before, given = name[: match.start()], name[match.end() :].strip()
        for column in (before, before.rstrip()):  # a column's name may end in a blank
            if column in columns:
                return column_output(scope.column(alias, column), check_output_name(given))
    return column_output(scope.column(alias, _AS.split(name)[0].rstrip()))
