"""Query parameters, validated strictly: an unknown one is refused by name, never ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from service.errors import Problem

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
TEXT_LIMIT = 200
_SECONDS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Parameter(NamedTuple):
    """One query parameter: how its text is parsed, and its part of the OpenAPI document."""

    name: str  # with a trailing ".*": every name that begins so
    read: Callable[[str], Any]  # raises ValueError with what it must be
    schema: Mapping[str, Any]
    description: str
    example: Any = None


def bad(name: str, reason: str) -> Problem:
    return Problem("bad-parameter", f"{name}: {reason}", parameter=name)


def pairs_of(query: bytes) -> list[tuple[str, str]]:
    """The decoded pairs of a query string, in order. Problem `bad-parameter` if it is not UTF-8."""
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise Problem("bad-parameter", "the query string is not percent-encoded UTF-8") from None


def read(query: bytes, known: Sequence[Parameter]) -> dict[str, Any]:
    """The values of a query string by name; absent parameters are not in it.

    Problem `bad-parameter`, naming the first parameter that is unknown, given twice, or out of its range.
    """
    values: dict[str, Any] = {}
    if not query:
        return values
    for name, text in pairs_of(query):
        parameter = _find(name, known)
        if parameter is None:
            names = ", ".join(p.name for p in known) or "none"
            raise bad(name, f"unknown parameter (known: {names})")
        if name in values:
            raise bad(name, "is given twice")
        try:
            values[name] = parameter.read(text)
        except ValueError as error:
            raise bad(name, f"{error}, not {text[:TEXT_LIMIT]!r}") from None
    return values


def _find(name: str, known: Sequence[Parameter]) -> Parameter | None:
    for parameter in known:
        if parameter.name == name or (parameter.name.endswith(".*") and name.startswith(parameter.name[:-1])):
            return parameter
    return None


def _integer(text: str) -> int:
    """In plain decimal digits; one of many digits is beyond 64 bits."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("must be an integer")
    return int(text) if len(digits) < 30 else INT64_MIN - 1 if text[0] == "-" else INT64_MAX + 1


def integer(low: int, high: int = INT64_MAX) -> Callable[[str], int]:
    """An integer in plain decimal digits, between low and high."""

    def read_integer(text: str) -> int:
        value = _integer(text)
        if not low <= value <= high:
            raise ValueError(f"must be at least {low}" if value < low else f"must be at most {high}")
        return value

    return read_integer


def most(low: int) -> Callable[[str], int]:
    """How many there are to be at most, `low` or more. There is no upper bound: what is beyond 64 bits is as good as all."""

    def read_most(text: str) -> int:
        value = _integer(text)
        if value < low:
            raise ValueError(f"must be at least {low}")
        return min(value, INT64_MAX)

    return read_most


def seconds(text: str) -> float:
    """A finite, non-negative number of seconds."""
    if not _SECONDS.fullmatch(text):
        raise ValueError("must be a number of seconds")
    value = float(text)
    if value < 0 or math.isinf(value):
        raise ValueError("must be a non-negative number of seconds")
    return value


def boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("must be true or false")
    return text == "true"


def short_text(text: str) -> str:
    if len(text) > TEXT_LIMIT:
        raise ValueError(f"must be at most {TEXT_LIMIT} characters")
    return text


def one_of(*choices: str) -> Callable[[str], str]:
    def read_choice(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return text

    return read_choice


def plain(text: str) -> str:
    """Text that is validated elsewhere."""
    return text
