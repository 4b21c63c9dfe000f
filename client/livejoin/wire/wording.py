"""Error messages: those of pydantic in terms of the data, and suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from livejoin.wire.errors import cut

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_COMPARED = 200  # names, each of which takes up to 0.1 ms
_LISTED = 20

_WORDS = {
    "missing": "is missing",
    "extra_forbidden": "is unknown",
    "string_type": "must be a string",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "path_type": "must be a path",
    "literal_error": "must be {expected}",
    "less_than": "must be less than {lt}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
}
_LENGTHS = {"too_short": "entries", "too_long": "entries", "string_too_short": "characters", "string_too_long": "characters"}


def instead(name: str, names: Iterable[str], others: Iterable[str] = ()) -> str:
    """Return what to write instead of an unknown name: a similar one, otherwise the existing ones; to be appended to the message. `others`
    may be suggested too, but are not listed."""
    known = list(dict.fromkeys(names))
    close = get_close_matches(cut(name), [*known, *others][:_COMPARED], 1)
    if close:
        return f"; did you mean {close[0]}?"
    if not known:
        return ""
    listed = ", ".join(known[:_LISTED]) + (" …" if len(known) > _LISTED else "")
    return f"; there {'is' if len(known) == 1 else 'are'} {listed}"


def wording(fault: ErrorDetails) -> str:
    """Return `must be …` or `is missing`; for our own checks, their message."""
    if fault["type"] in _LENGTHS:
        return _length(fault)
    words = _WORDS.get(fault["type"])
    if words is None:
        return fault["msg"].removeprefix("Value error, ")
    return words.format_map(fault.get("ctx", {})).replace("'", '"')


def _length(fault: ErrorDetails) -> str:
    unit, bounds = _LENGTHS[fault["type"]], fault["ctx"]
    if bounds.get("min_length") == 1:
        return "must not be empty"
    least, most = bounds.get("min_length"), bounds.get("max_length")
    return f"must have at least {least} {unit}" if least is not None else f"must have at most {most} {unit}"
