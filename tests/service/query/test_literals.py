"""Texts of windows and look-ups."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from service.query.literals import BadLiteral, convert, difference, from_text, number_from

NOON = 1_767_268_800_000_000


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00", "2026-01-01 12:00", "20260101T12"])
def test_one_moment(text: str) -> None:
    assert from_text("timestamp", text) == NOON


@pytest.mark.parametrize("text", ["2026-03-05T00:00:00 01:00", "2026-02-30T00:00:00", "9" * 30, str(NOON)])
def test_refusals_quote_what_was_sent(text: str) -> None:
    with pytest.raises(BadLiteral) as fault:
        from_text("timestamp", text)
    assert text in str(fault.value) and f"{text}Z" not in str(fault.value)


@pytest.mark.parametrize("text", ["+2000000-01-01", "-2000000-01-01", "2026-01-01" + " " * 60_000 + "x", "T11" * 20_000, "9" * 60_000])
def test_moments_that_are_none(text: str) -> None:
    """Beyond 64 bits, and texts that the patterns would read for hours."""
    with pytest.raises(BadLiteral):
        from_text("timestamp", text)


def test_a_date_beyond_the_timestamps() -> None:
    days = int(from_text("date", "+2000000-01-01"))
    with pytest.raises(BadLiteral, match="out of the range"):
        convert(days, "date", "timestamp")


@pytest.mark.parametrize(
    ("kind", "number", "micros", "says"),
    [
        ("string", "1", 0, "not string"), ("time", "0", 5, "not time"), ("int64", "0", 5, "INTERVAL"), ("float64", "0", 5, "INTERVAL"),
        ("timestamp", "0.5", 0, "whole number of microseconds"), ("date", "1.5", 0, "whole number of days"),
    ],
)  # fmt: skip
def test_constants_that_are_not_added(kind: str, number: str, micros: int, says: str) -> None:
    with pytest.raises(BadLiteral, match=says):
        difference(kind, number_from(number), micros)


@pytest.mark.parametrize("number", [None, True, [1], "x", "NaN", "inf", "1e401", "1e-401", "\u0663"])
def test_what_is_no_number(number: Any) -> None:
    with pytest.raises(BadLiteral):
        number_from(number)


def test_constants_in_the_unit_of_a_column() -> None:
    assert difference("decimal(10,2)", number_from("0.005"), 0) == Fraction(1, 2)
    assert difference("date", number_from(1), 43_200_000_000) == Fraction(3, 2)
    assert difference("timestamp", number_from(1), 43) == 44
    assert difference("int64", number_from("1e30"), 0) == 10**30
