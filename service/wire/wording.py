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
    "path_type": "must be a path",
    "literal_error": "must be {expected}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
}


def wording(fault: ErrorDetails) -> str:
    """`must be …`, `is missing`; for our own checks, their message."""
    words = _WORDS.get(fault["type"])
    if words is None:
        return fault["msg"].removeprefix("Value error, ")
    return words.format_map(fault.get("ctx", {})).replace("'", '"')
