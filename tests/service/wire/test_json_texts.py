"""JSON as text: what is valid, and its parts as they are written, against Python's own reader of JSON, with numbers kept as texts."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from livejoin.wire.values.json_texts import fault_of_json, part_of_json

NUMBERS = (
    "18446744073709551616", "-18446744073709551617", "1.10", "1E2", "1e400", "-1e-400", "-0", "-0.0", "0", "7", "1e+07", "0.1e-7",
    "9" * 400, "3.14159265358979323846264338327950288",
)  # fmt: skip
STRINGS = ('""', '"a"', '"1.10"', '" \\t 1.0 "', '",:]}[{"', '"\\"\\\\"', '"\\u00e9\\n"', '"\\ud83d\\ude00"', '"é"', '"\\ud800"')
KEYS = ('"a"', '"b"', '"\\u0061"', '"a b"', '"1"')
PATHS: tuple[str | int, ...] = ("a", "b", "a b", "1", 0, 1, -1)


class Number(str):
    """A number as it is written."""


def read(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=refuse)


def document(rng: random.Random, depth: int) -> str:
    kind = rng.choice(("number", "string", "word", "array", "object", "object") if depth else ("number", "string", "word"))
    if kind in ("number", "string", "word"):
        return rng.choice({"number": NUMBERS, "string": STRINGS, "word": ("true", "false", "null")}[kind])
    blank = rng.choice(("", " ", "\n\t\r "))
    parts = [document(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == "array":
        return f"[{blank}{f'{blank},'.join(parts)}{blank}]"
    return f"{{{blank}{f',{blank}'.join(f'{rng.choice(KEYS)}{blank}:{blank}{part}' for part in parts)}}}"


def written(value: Any, as_text: bool) -> Any:
    """The value of a text of JSON; of a part of it, numbers as they are written."""
    if value is None:
        return None
    if as_text and isinstance(value, str) and not isinstance(value, Number):
        return None if any("\ud800" <= one <= "\udfff" for one in value) else value
    return value


@pytest.mark.parametrize("seed", range(80))
def test_parts_are_as_they_are_written(seed: int) -> None:
    rng = random.Random(seed)
    text = rng.choice(("", " ", "\n")) + document(rng, 3) + rng.choice(("", " \t"))
    assert fault_of_json(text) is None
    whole = read(text)
    for path in ([], *([one] for one in PATHS), *([one, other] for one in PATHS for other in PATHS)):
        expected = whole
        for key in path:
            if isinstance(key, str):
                expected = expected.get(key) if isinstance(expected, dict) else None
            else:
                expected = expected[key] if isinstance(expected, list) and -len(expected) <= key < len(expected) else None
        for as_text in (False, True):
            found, wanted = part_of_json(text, path, as_text), written(expected, as_text)
            if wanted is None or (as_text and isinstance(wanted, str)):
                assert found == wanted, (text, path)
            else:
                assert found is not None and read(found) == wanted, (text, path)
                assert not re.search(r"\s", re.sub(r'"(\\.|[^"\\])*"', "", found)), found


@pytest.mark.parametrize("seed", range(80))
def test_what_is_refused(seed: int) -> None:
    """A document with a character more, less or changed is valid exactly if Python says so, which takes all numbers, too."""
    rng = random.Random(seed)
    text = document(rng, 2)
    for _ in range(20):
        at = rng.randrange(len(text) + 1)
        changed = text[:at] + rng.choice(("", *'0.-+eE",:[]{}\\ux\t\x01Nn')) + text[at + rng.randrange(2) :]
        try:
            read(changed)
        except ValueError:
            assert fault_of_json(changed) is not None, changed
            assert part_of_json(changed, [], True) is None
        else:
            assert fault_of_json(changed) is None, changed


def test_faults_have_their_place() -> None:
    assert fault_of_json('{"a": 1e400, "b": 01}') == "not JSON: number with leading zero is not allowed, at character 18"
    assert fault_of_json("[" * 1024 + "]" * 1024) is None
    assert "depth" in str(fault_of_json("[" * 1025 + "]" * 1025))


def test_deep_parts_are_parts() -> None:
    """Writing them anew would end at another depth than reading."""
    deep = "[" * 900 + "1.10" + "]" * 900
    assert part_of_json(f'{{"a": {deep}, "b": 1}}', ["a"], True) == deep
