"""Error messages of pydantic, in terms of the data."""

from __future__ import annotations

from pydantic_core import ErrorDetails

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


def wording(fault: ErrorDetails) -> str:
    """`must be …`, `is missing`; for our own checks, their message."""
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
