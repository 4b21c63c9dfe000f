"""Converts whole columns of received values (Python objects from JSON, texts from CSV) to canonical Arrow columns.

A column is converted in one step if all its values are of the expected kind; only other columns are processed value by value with the
readers of `grammar`, which also report errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from livejoin.wire.grammar import JSON_READERS, TEXT_READERS, Reader, ZonedReader, read_day_number, read_decimal
from livejoin.wire.kinds import KEPT_TYPES, SENT_TYPES, ByKind, digits_of, kept
from livejoin.wire.schema import RowRules
from livejoin.wire.validate import Findings, Mask
from livejoin.wire.values.open_ends import refusal_of_word, without_words
from livejoin.wire.values.texts import are_canonical

_NONE = type(None)
# The Python types that pa.array converts as intended. It would also accept 1.0 as an int64: hence the check of the types.
_PLAIN: dict[str, set[type]] = {"int64": {int}, "float64": {float, int}, "timestamp": {int}, "string": {str}, "bool": {bool}}
_DATED = ("timestamp", "date")
# Up to this many rows, a Python loop finishes before Arrow and NumPy have started.
FEW = 8
_SOME = 65_536

# Texts for Arrow's own parser: it also accepts hexadecimal and "nan(…)", which are not valid here, and rejects a plus sign.
_TEXT_FORMS = {
    "int64": r"^-?[0-9]{1,18}$",
    "float64": r"^-?([0-9]{1,99}\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,2})?$",
}

_TIME_FORM = r"^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?$"
_DECIMAL_FORM = r"^-?[0-9]{1,18}(\.[0-9]{1,18})?$"


def _read_flag(value: Any) -> Any:
    """Read a truth value as MySQL has it too: 0 or 1."""
    return value == 1 if type(value) is int and value in (0, 1) else JSON_READERS["bool"](value)


DEBEZIUM_READERS: ByKind[Reader] = ByKind(
    {**JSON_READERS, "date": read_day_number, "bool": _read_flag},
    read_decimal,
    lambda zone: ZonedReader(zone, JSON_READERS["timestamp"], numbers=True),
)


def from_values(
    rules: RowRules, ordinal: int, values: Sequence[Any], findings: Findings, readers: ByKind[Reader] = JSON_READERS
) -> pa.Array:
    """Convert a column of JSON values. Bad ones become null, and a finding with the column's rank."""
    kind = rules.columns[ordinal].kind
    kinds = set(map(type, values))
    kinds.discard(_NONE)
    try:
        read = readers[rules.columns[ordinal].read_as]
        if isinstance(read, ZonedReader) and read.numbers and kinds == {int}:
            return _localized(pa.array(values, pa.timestamp("us")), read, findings)
        if kinds <= _PLAIN.get(kind, set()):
            return pa.array(values, KEPT_TYPES[kind])
        if kind in _DATED and kinds == {str}:
            return _dated(rules, ordinal, pa.array(values, pa.utf8()), read, findings)
        if kinds == {str} and (known := _in_usual_form(pa.array(values, pa.utf8()), kind)) is not None:
            return known
    except (pa.ArrowInvalid, OverflowError):
        pass  # some value is out of range or not a date: find out which
    return pa.array(one_by_one(rules, ordinal, values, findings, readers), KEPT_TYPES[kind])


def from_texts(rules: RowRules, ordinal: int, texts: pa.Array, findings: Findings) -> pa.Array:
    """Convert a column of CSV fields. An empty text is null, except in string columns."""
    kind = rules.columns[ordinal].kind
    if kind == "string":
        return texts
    if kind == "bytes":
        return checked(rules, ordinal, texts, findings)
    texts = pc.if_else(pc.equal(texts, ""), None, texts)
    if kind in _DATED or (kind in _TEXT_FORMS and pc.all(pc.match_substring_regex(texts, _TEXT_FORMS[kind]), min_count=0).as_py()):
        try:
            if kind not in _DATED:
                return texts.cast(KEPT_TYPES[kind])
            return _dated(rules, ordinal, texts, TEXT_READERS[rules.columns[ordinal].read_as], findings)
        except pa.ArrowInvalid:
            pass  # a form that Arrow does not read, or a bad value
    return checked(rules, ordinal, texts, findings)


def checked(rules: RowRules, ordinal: int, texts: pa.Array, findings: Findings) -> pa.Array:
    """Convert a column of texts, which are not empty except for those of bytes."""
    kind = rules.columns[ordinal].kind
    if (known := _in_usual_form(texts, kind)) is not None:
        return known
    return pa.array(one_by_one(rules, ordinal, _Texts(texts), findings, TEXT_READERS), KEPT_TYPES[kind])


def _in_usual_form(texts: pa.Array, kind: str) -> pa.Array | None:
    """Convert a column of UUIDs, times or decimals in the form that Arrow reads; None if some are not in that form."""
    if kind == "uuid":
        return texts if are_canonical(texts) else None
    if kind == "time" and pc.all(pc.match_substring_regex(texts, _TIME_FORM), min_count=0).as_py():
        return pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp("us")).view(pa.int64()).view(KEPT_TYPES[kind])
    return _digits(texts, kind) if digits_of(kind) else None


def _dated(rules: RowRules, ordinal: int, texts: pa.Array, read: Reader, findings: Findings) -> pa.Array:
    """Convert a column of dates or timestamps in one of the usual forms. Raises ArrowInvalid if some are not."""
    wanted, words = KEPT_TYPES[rules.columns[ordinal].kind], rules.open_words[ordinal]
    for given in (texts, without_words(texts, words)) if words else (texts,):
        try:
            return given.cast(wanted)
        except pa.ArrowInvalid:
            texts = given
    if not isinstance(read, ZonedReader):
        raise pa.ArrowInvalid("not all are in a usual form")
    return _localized(texts.cast(pa.timestamp("us")), read, findings)


def _localized(local: pa.Array, read: ZonedReader, findings: Findings) -> pa.Array:
    """Convert a column of local times to UTC. Raises ArrowInvalid if one is out of range."""
    localized = read.local.column(local)
    if localized.bad:
        raise pa.ArrowInvalid("out of range for a local time")
    findings.unclear += localized.unclear
    return localized.micros


def _digits(texts: pa.Array, kind: str) -> pa.Array | None:
    """Convert a column of plain decimals; None if some are not."""
    if not pc.all(pc.match_substring_regex(texts, _DECIMAL_FORM), min_count=0).as_py():
        return None
    try:
        return kept(texts.cast(SENT_TYPES[kind]))
    except pa.ArrowInvalid:  # too many digits
        return None


class _Texts(Sequence[Any]):
    """A column of texts that converts only a few at a time to Python objects."""

    def __init__(self, texts: pa.Array) -> None:
        self._texts = texts

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, row: Any) -> Any:
        return self._texts[row].as_py()

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self), _SOME):
            yield from self._texts[start : start + _SOME].to_pylist()


def one_by_one(rules: RowRules, ordinal: int, values: Sequence[Any], findings: Findings, readers: ByKind[Reader]) -> list[Any]:
    """Return a column's physical values. Bad ones become None, and a finding with the column's rank."""
    read, words = readers[rules.columns[ordinal].read_as], rules.open_words[ordinal]
    good: list[Any] = []
    bad: list[int] = []
    for row, value in enumerate(values):
        try:
            good.append(None if value is None else read(value))
        except ValueError:
            good.append(None)
            if type(value) is not str or value not in words:
                bad.append(row)
    if isinstance(read, ZonedReader):
        findings.unclear += sum(map(read.is_unclear, values))
    if bad:

        def reason(row: int) -> str:
            try:
                read(values[row])
            except ValueError as error:
                word = refusal_of_word(values[row], rules.columns[ordinal].nullable) if rules.columns[ordinal].type in _DATED else None
                return word or str(error)
            raise AssertionError("a reader has changed its mind")

        findings.add(ordinal, mask_of(bad, len(values)), rules.names[ordinal], reason)
    return good


def mask_of(rows: Sequence[int], length: int) -> Mask:
    """Return a mask that is true at `rows`."""
    mask = np.zeros(length, np.bool_)
    mask[list(rows)] = True
    return mask
