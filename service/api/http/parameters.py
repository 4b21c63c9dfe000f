"""Query parameters, validated strictly: an unknown one is rejected by name, never ignored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from service.errors import bad_parameter

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
TEXT_LIMIT = 200
_SECONDS = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class Parameter(NamedTuple):
    """One query parameter: how to parse its text, and its part of the OpenAPI document."""

    name: str  # a trailing ".*" stands for every longer name with this prefix
    read: Callable[[str], Any]  # raises ValueError with what the value must be
    schema: Mapping[str, Any]
    description: str
    example: Any = None


def pairs_of(query: bytes) -> list[tuple[str, str]]:
    """Return the decoded pairs of a query string, in order. Problem `bad-parameter` if it is not UTF-8."""
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError):
        raise bad_parameter(_unreadable(query), "the query string is not percent-encoded UTF-8") from None


def _unreadable(query: bytes) -> str:
    """Return the name, as it was sent, of the first parameter that is not percent-encoded UTF-8."""
    for pair in query.split(b"&"):
        try:
            parse_qsl(pair.decode("ascii"), keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError):
            break
    return pair.partition(b"=")[0][:TEXT_LIMIT].decode("latin-1")


def read(query: bytes, known: Sequence[Parameter]) -> dict[str, Any]:
    """Return the values of a query string by name, without the absent parameters.

    Problem `bad-parameter`, naming the first parameter that is unknown, duplicate, or out of range.
    """
    values: dict[str, Any] = {}
    if not query:
        return values
    for name, text in pairs_of(query):
        parameter = _find(name, known)
        if parameter is None:
            names = ", ".join(p.name for p in known) or "none"
            raise bad_parameter(name, f"unknown parameter (known: {names})")
        if name in values:
            raise bad_parameter(name, "is given twice")
        try:
            values[name] = parameter.read(text)
        except ValueError as error:
            raise bad_parameter(name, f"{error}, not {text[:TEXT_LIMIT]!r}") from None
    return values


def _find(name: str, known: Sequence[Parameter]) -> Parameter | None:
    for parameter in known:
        if parameter.name == name or (parameter.name.endswith(".*") and name.startswith(prefix := parameter.name[:-1]) and name != prefix):
            return parameter
    return None


def _integer(text: str) -> int:
    """Parse plain decimal digits; a number of very many digits becomes one beyond 64 bits."""
    digits = text[1:] if text[:1] == "-" else text
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError("must be an integer")
    return int(text) if len(digits) < 30 else INT64_MIN - 1 if text[0] == "-" else INT64_MAX + 1


def integer(low: int, high: int = INT64_MAX) -> Callable[[str], int]:
    """Return the parser of an integer in plain decimal digits, between low and high."""

    def read_integer(text: str) -> int:
        value = _integer(text)
        if not low <= value <= high:
            raise ValueError(f"must be at least {low}" if value < low else f"must be at most {high}")
        return value

    return read_integer


def most(low: int) -> Callable[[str], int]:
    """Return the parser of a maximum, `low` or more. It has no upper bound: a value beyond 64 bits means all."""

    def read_most(text: str) -> int:
        value = _integer(text)
        if value < low:
            raise ValueError(f"must be at least {low}")
        return min(value, INT64_MAX)

    return read_most


def seconds(text: str) -> float:
    """Parse a finite, non-negative number of seconds."""
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
    """Return the text as it is; it is validated elsewhere."""
    return text
