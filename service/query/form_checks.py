"""What the forms of JSON have in common: objects with declared fields, choices among them, and errors in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, ValidationError, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from livejoin.wire.errors import cut
from livejoin.wire.wording import wording
from service.errors import MOST_COMPLAINTS, Problem

T = TypeVar("T", bound=BaseModel)

KINDS = ("equal", "overlaps", "at_most", "less", "not_equal", "within", "cross", "as_of")
COMPARISON = ""  # a tag that is not part of the path in an error

_HINTS = {
    "from": 'an object of aliases and relations, as {"b": "bookings"}',
    "select": "leave it out for all columns",
    **{kind: f'"{kind}" is a list of two, as {{"{kind}": [x, y]}}' for kind in KINDS if kind != "as_of"},
    "as_of": '"as_of" is a list of three, as {"as_of": ["b.at", "<=", "a.at"]}',
    **{kind: f'a list of intervals, as {{"{kind}": ["b.stay", "m.slot"], "as": "clash"}}' for kind in ("intersection", "duration")},
    **{kind: f'a list of two intervals, as {{"{kind}": ["s.hours", "b.stay"], "as": "free"}}' for kind in ("gaps", "coverage")},
    **dict.fromkeys(("retain_rows", "retain_bytes"), 'to keep nothing write "changes": false'),
}


def bad(detail: str) -> Problem:
    return Problem("bad-definition", detail)


def as_json(value: Any) -> str:
    """Return a part of a definition as its author wrote it, shortened."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # too deeply nested
        return "…"
    return text if len(text) <= 200 else text[:200] + "…"


class Form(BaseModel):
    """An object with the declared fields and no others. `what` is its name in error messages."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)
    what: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, data: Any) -> Any:
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [field for field in data if field not in known] if isinstance(data, dict) else []
        if unknown:
            text = f"{cls.what} has no field {cut(', '.join(unknown))}; its fields are {', '.join(known)}"
            raise PydanticCustomError("fields", "{text}", {"text": text})
        return data


def one_of(choose: Callable[[Any], str | None], expected: str) -> Discriminator:
    """Return the discriminator that determines the form of an object by `choose`; None: no form, and the error says what was expected."""
    return Discriminator(choose, custom_error_type="form", custom_error_message="{expected}", custom_error_context={"expected": expected})


def by_field(*names: str) -> Callable[[Any], str | None]:
    """Return a function that chooses by the only one of these fields that an object has."""

    def choose(data: Any) -> str | None:
        found = [name for name in names if name in data] if isinstance(data, dict) else []
        return found[0] if len(found) == 1 else None

    return choose


def checked(form: type[T], data: Any) -> T:
    """Return the data, validated against `form`. Problem `bad-definition`: where the first error is, what is wrong, and the value there;
    all of them in `complaints`, if there are several."""
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
    where = ".".join(part for part in path if part != "[key]")
    if kind == "recursion_depth_exceeded":
        return f"{'.'.join(path[:3])}: nested too deeply"
    if kind in ("fields", "value_error"):
        return f"{where}: {wording(fault)}" if where else wording(fault)
    if kind == "form":
        return f"{where}: {fault['msg']}; this one is {given}"
    says_all = kind == "missing" or fault["input"] in ([], {})
    words = wording(fault) if says_all else f"{wording(fault)}, not {given}"
    hint = _HINTS.get(path[-1]) if path else None
    return f"{where}: {words}; {hint}" if hint else f"{where}: {words}"
