"""Validate a definition in JSON against its form: its errors in words."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from livejoin.wire.errors import cut
from livejoin.wire.wording import wording
from service.errors import MOST_COMPLAINTS
from service.query.forms import COMPARISON, KINDS, ExceptView, JsonForm, JsonView, SqlView, UnionView, as_json, bad

T = TypeVar("T", bound=BaseModel)

_HINTS = {
    "from": 'an object of aliases and relations, as {"b": "bookings"}',
    "select": "leave it out for all columns",
    **{kind: f'"{kind}" is a list of two, as {{"{kind}": [x, y]}}' for kind in KINDS if kind != "as_of"},
    "as_of": '"as_of" is a list of three, as {"as_of": ["b.at", "<=", "a.at"]}',
    **{kind: f'a list of intervals, as {{"{kind}": ["b.stay", "m.slot"], "as": "clash"}}' for kind in ("intersection", "duration")},
    **{kind: f'a list of two intervals, as {{"{kind}": ["s.hours", "b.stay"], "as": "free"}}' for kind in ("gaps", "coverage")},
    **dict.fromkeys(("retain_rows", "retain_bytes"), 'to keep nothing write "changes": false'),
}


def check_form(data: dict[str, Any]) -> SqlView | JsonForm:
    """Return the definition, validated. Problem `bad-definition`: where the first error is, what is wrong, and the value there; all of
    them in `complaints`, if there are several."""
    forms: dict[str, type[SqlView | JsonForm]] = {"sql": SqlView, "union": UnionView, "except": ExceptView}
    form = next((form for field, form in forms.items() if field in data), JsonView)
    if form is JsonView and "from" not in data:
        has = f"this one has {cut(', '.join(data))}" if data else "this one is empty"
        raise bad(f'a view\'s definition has sql, a SELECT, or from, an object of aliases and relations, as {{"b": "bookings"}}; {has}')
    return checked(form, data)


def checked(form: type[T], data: Any) -> T:
    """Return the data, validated against `form`. Problem `bad-definition`, as in `check_form`."""
    try:
        return form.model_validate(data)
    except ValidationError as error:
        sentences = list(dict.fromkeys(map(_sentence, error.errors(include_url=False)[:MOST_COMPLAINTS])))
        problem = bad(sentences[0])
        if len(sentences) > 1:
            problem.extensions["complaints"] = [{"detail": sentence} for sentence in sentences]
        raise problem from None


def _sentence(fault: ErrorDetails) -> str:
    kind, given = fault["type"], as_json(fault["input"])
    path = [str(part) for part in fault["loc"]]
    # a tag repeats the field that it is taken from, or adds nothing
    path = [part for part, before in zip(path, ["", *path], strict=False) if part not in (COMPARISON, before)]
    where = ".".join(path)
    if kind == "recursion_depth_exceeded":
        return f"{'.'.join(path[:3])}: nested too deeply"
    if kind in ("fields", "value_error"):
        return wording(fault)
    if kind == "form":
        return f"{where}: {fault['msg']}; this one is {given}"
    says_all = kind == "missing" or fault["input"] in ([], {})
    words = wording(fault) if says_all else f"{wording(fault)}, not {given}"
    hint = _HINTS.get(path[-1]) if path else None
    return f"{where}: {words}; {hint}" if hint else f"{where}: {words}"
