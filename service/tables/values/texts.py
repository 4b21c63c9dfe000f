"""Functions of texts and of JSON; null where PostgreSQL raises an error, and for a text that is too long.

Costs: 10 to 50 ns a row where the arguments besides the text are constants and Arrow has the function, else about 1 µs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.values.json_texts import length_of_json, part_of_json
from service.query.conditions import Term
from service.query.terms import LONGEST_TEXT
from service.tables.values.columns import by_row, by_value, constant, type_of

_TRIMS: dict[str, tuple[Callable[..., pa.Array], Callable[[str, str], str]]] = {
    "btrim": (pc.utf8_trim, str.strip),
    "ltrim": (pc.utf8_ltrim, str.lstrip),
    "rtrim": (pc.utf8_rtrim, str.rstrip),
}


def _joined(term: Term, *parts: pa.Array) -> pa.Array:
    size = np.sum([np.asarray(pc.binary_length(part).fill_null(0), np.int64) for part in parts], axis=0)
    if (long := size > LONGEST_TEXT).any():
        parts = (pc.if_else(pa.array(long), pa.scalar(None, pa.utf8()), parts[0]), *parts[1:])
    return pc.binary_join_element_wise(*parts, "")


def _concatenated(term: Term, *parts: pa.Array) -> pa.Array:
    return _joined(term, *(part.fill_null("") for part in parts))


def _separated(term: Term, separator: pa.Array, *parts: pa.Array) -> pa.Array:
    """Nulls are left out, with their separators; a null separator gives null."""
    lengths = [np.asarray(pc.binary_length(part).fill_null(0), np.int64) for part in (separator, *parts)]
    there = np.sum([np.asarray(part.is_valid()) for part in parts], axis=0)
    between = np.maximum(there - 1, 0)
    if (long := lengths[0] * between + np.sum(lengths[1:], axis=0) > LONGEST_TEXT).any():
        separator = pc.if_else(pa.array(long), pa.scalar(None, pa.utf8()), separator)
    first = pc.if_else(pa.array(there == 0), "", parts[0])  # Arrow leaves out rows in which all parts are null
    return pc.binary_join_element_wise(first, *parts[1:], separator, null_handling="skip")


def _extracted(term: Term, docs: pa.Array) -> pa.Array:
    path, as_text = term.value, term.op == "->>"
    return by_value(lambda doc: part_of_json(doc, path, as_text), docs, pa.utf8())


def _length(term: Term, of: pa.Array) -> pa.Array:
    return (pc.utf8_length if pa.types.is_string(of.type) else pc.binary_length)(of).cast(pa.int64())


def _upper(term: Term, of: pa.Array) -> pa.Array:
    """As in PostgreSQL, ß is no small letter of one other letter, and remains."""
    if not pc.any(pc.match_substring(of, "ß")).as_py():
        return pc.utf8_upper(of)
    parts = pc.split_pattern(of, "ß")
    mask = parts.is_null() if parts.null_count else None
    return pc.binary_join(pa.ListArray.from_arrays(parts.offsets, pc.utf8_upper(parts.values), mask=mask), "ß")


def _md5(term: Term, of: pa.Array) -> pa.Array:
    def digest(value: str | bytes) -> str:
        return hashlib.md5(value.encode() if isinstance(value, str) else value, usedforsecurity=False).hexdigest()

    return by_value(digest, of, pa.utf8())


def _trimmed(term: Term, of: pa.Array, characters: pa.Array) -> pa.Array:
    vectorized, plain = _TRIMS[term.op]
    given = constant(term.args[1])
    return by_row(plain, pa.utf8(), of, characters) if given is None else vectorized(of, given)


def _sliced(term: Term, of: pa.Array, start: pa.Array, count: pa.Array | None = None) -> pa.Array:
    """`substr`: characters are counted from 1, and there may be some before the first."""
    numbers = [constant(one) for one in term.args[1:]]
    if None not in numbers:
        first, end = numbers[0] - 1, sum(numbers) - 1 if count is not None else None
        if count is not None and numbers[1] < 0:
            return pa.nulls(len(of), pa.utf8())
        if end is None or end > 0:
            return pc.utf8_slice_codeunits(of, min(max(first, 0), LONGEST_TEXT), None if end is None else min(end, LONGEST_TEXT))
    return by_row(_part_of, pa.utf8(), of, start, *(() if count is None else (count,)))


def _part_of(text: str, start: int, count: int | None = None) -> str | None:
    if count is None:
        return text[max(start - 1, 0) :]
    return text[max(start - 1, 0) : max(start + count - 1, 0)] if count >= 0 else None


def _left(text: str, count: int) -> str:
    return text[:count]


def _right(text: str, count: int) -> str:
    return text[max(len(text) - count, 0) :] if count > 0 else text[-count:] if count else ""


def _replaced(term: Term, of: pa.Array, old: pa.Array, new: pa.Array) -> pa.Array:
    pattern, replacement = (constant(one) for one in term.args[1:])
    if pattern and replacement is not None and len(replacement.encode()) <= len(pattern.encode()):
        return pc.replace_substring(of, pattern, replacement)
    return _each(_replaced_in)(term, of, old, new)


def _replaced_in(text: str, old: str, new: str) -> str | None:
    if not old:
        return text
    size = len(text.encode()) + text.count(old) * (len(new.encode()) - len(old.encode()))
    return text.replace(old, new) if size <= LONGEST_TEXT else None


def _field(text: str, delimiter: str, number: int) -> str | None:
    """`split_part`; from the end if the number is negative."""
    if not number:
        return None
    parts = text.split(delimiter) if delimiter else [text]
    return parts[number - (number > 0)] if -len(parts) <= number <= len(parts) else ""


def _cut(term: Term, of: pa.Array, count: pa.Array) -> pa.Array:
    """`left` and `right`; without that many characters at the other end if the number is negative."""
    number = constant(term.args[1])
    if number is None:
        return by_row(_left if term.op == "left" else _right, pa.utf8(), of, count)
    number = max(min(number, LONGEST_TEXT), -LONGEST_TEXT)
    if term.op == "left" or number == 0:
        return pc.utf8_slice_codeunits(of, 0, number)
    return pc.utf8_slice_codeunits(of, -number)


def like_mask(column: pa.Array, pattern: str) -> pa.Array:
    """`column LIKE pattern`, null for null. Arrow's own function takes escapes literally in a pattern that begins or ends in `%` and has no
    other wildcard."""
    if "\\" not in pattern:
        return pc.match_like(column, pattern)
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    words = [{"%": ".*", "_": "."}.get(one, re.escape(one[-1])) for one in pieces]
    return pc.match_substring_regex(column, f"^(?s:{''.join(words)})$")


def _each(convert: Callable[..., Any]) -> Callable[..., pa.Array]:
    """Apply a function to the values of each row; once to equal ones if only one argument varies."""

    def apply(term: Term, *args: pa.Array) -> pa.Array:
        varying = [at for at, one in enumerate(term.args) if one.op != "constant"]
        values = [constant(one) for one in term.args]
        if len(varying) != 1 or values.count(None) > 1:
            return by_row(convert, type_of(term.kind), *args)
        (at,) = varying
        return by_value(lambda value: convert(*values[:at], value, *values[at + 1 :]), args[at], type_of(term.kind))

    return apply


RULES: dict[str, Callable[..., pa.Array]] = {
    **dict.fromkeys(("->", "->>"), _extracted),
    **dict.fromkeys(_TRIMS, _trimmed),
    "||": _joined,
    "concat": _concatenated,
    "concat_ws": _separated,
    "lower": lambda term, of: pc.utf8_lower(of),
    "upper": _upper,
    "length": _length,
    "octet_length": lambda term, of: pc.binary_length(of).cast(pa.int64()),
    "md5": _md5,
    "substr": _sliced,
    **dict.fromkeys(("left", "right"), _cut),
    "strpos": _each(lambda text, part: text.find(part) + 1),
    "replace": _replaced,
    "split_part": _each(_field),
    "json_array_length": lambda term, of: by_value(length_of_json, of, pa.int64()),
    "like": lambda term, of: like_mask(of, term.value),
    "ilike": lambda term, of: like_mask(pc.utf8_lower(of), pc.utf8_lower(pa.scalar(term.value)).as_py()),
    "matches": lambda term, of: pc.match_substring_regex(of, term.value),
}
