"""JSON as text (RFC 8259): whether it is valid, and the text of its parts. No number is converted, and the depth is limited by `orjson`
alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import orjson

_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_SCALAR = re.compile(rf"{_STRING}|(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_TOKEN = re.compile(rf"{_STRING}|[][{{}},:]|[^][{{}},:\s\"]++")
_INDEX = re.compile("-?[0-9]{1,9}")
_BLANKS = re.compile(rf"({_STRING})|[ \t\n\r]++")


def fault_of_json(text: str) -> str | None:
    """Return why a text is not JSON, or nested in more than 1,024 levels; None if it is good."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        # It also refuses numbers beyond float64, and halves of surrogate pairs: try again without numbers and texts, in the same places.
        try:
            orjson.loads(_SCALAR.sub(lambda one: ("0" if one[0][0] != '"' else '""').ljust(len(one[0])), text))
        except orjson.JSONDecodeError as error:
            return f"not JSON: {error.msg}, at character {error.pos}"
    return None


Key = str | int | tuple[str]
"""Of an object, of an array, or, in a tuple, of whichever it is."""


def part_of_json(text: str, path: Sequence[Key], as_text: bool) -> str | None:
    """Return a part of JSON as it is written, without blanks; a string, if `as_text`, as the text that it means. None: the text is not
    JSON, or there is no such part, or it is null, or a string that is not Unicode. Costs: 1 µs for a string, null or an integer, otherwise
    as much for each key and value."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        if fault_of_json(text) is not None:
            return None
    else:
        for either in path:
            key = _key(either, isinstance(value, dict))
            if isinstance(key, str):
                value = value.get(key) if isinstance(value, dict) else None
            else:
                value = value[key] if isinstance(value, list) and -len(value) <= key < len(value) else None
        if value is None or (as_text and isinstance(value, str)):
            return value
        if type(value) is int and value:  # -0 is another text
            return str(value)
    part = text.strip(" \t\n\r")
    for either in path:
        key = _key(either, part[0] == "{")
        found = _members(part).get(key) if isinstance(key, str) else _elements(part, key)
        if found is None:
            return None
        part = found
    if part == "null":
        return None
    return _meaning(part) if as_text and part[0] == '"' else _BLANKS.sub(r"\1", part)


def length_of_json(text: str) -> int | None:
    """Return the number of elements of an array; None if the text is no array."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        part = text.strip(" \t\n\r")
        return None if fault_of_json(text) is not None or part[0] != "[" else len(_parts(part))
    return len(value) if isinstance(value, list) else None


def _key(key: Key, in_object: bool) -> str | int:
    if not isinstance(key, tuple):
        return key
    return int(key[0]) if not in_object and _INDEX.fullmatch(key[0]) else key[0]


def _members(part: str) -> dict[str | None, str]:
    """Return the values of an object; of those with one key, the last."""
    parts = _parts(part) if part[0] == "{" else []
    return dict(zip(map(_meaning, parts[::2]), parts[1::2], strict=True))


def _elements(part: str, index: int) -> str | None:
    parts = _parts(part) if part[0] == "[" else []
    return parts[index] if -len(parts) <= index < len(parts) else None


def _parts(part: str) -> list[str]:
    """Return the elements of an array, or keys and values of an object, as they are written."""
    depth, begin, end, parts = 0, -1, 0, list[str]()
    for token in _TOKEN.finditer(part):
        sign = token[0]
        if depth == 1 and sign in ",:]}":
            if begin >= 0:
                parts.append(part[begin:end])
            begin = -1
        elif depth == 1 and begin < 0:
            begin = token.start()
        depth += (sign in "[{") - (sign in "]}")
        end = token.end()
    return parts


def _meaning(string: str) -> str | None:
    """Return the text that a JSON string means; None if that has half of a surrogate pair."""
    if "\\" not in string:
        return string[1:-1]
    text = str(json.loads(string))
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text
