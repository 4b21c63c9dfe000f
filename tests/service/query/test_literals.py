"""Texts of windows and look-ups."""

from __future__ import annotations

import pytest

from service.query.literals import BadLiteral, convert, distance_from_json, distance_from_text, from_text

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
    ("type_", "number", "unit"),
    [
        ("timestamp", "inf", "days"), ("timestamp", "1e308", "weeks"), ("date", "Infinity", "day"), ("timestamp", f"P{'9' * 400}D", ""),
        ("timestamp", "1_0", "minutes"), ("timestamp", "٣", "minutes"), ("timestamp", "P٣D", ""), ("timestamp", "NaN", "days"),
        ("timestamp", "900000000", ""),
    ],
)  # fmt: skip
def test_what_is_no_distance(type_: str, number: str, unit: str) -> None:
    with pytest.raises(BadLiteral):
        if unit:
            distance_from_text(type_, number, unit)
        else:
            distance_from_json(type_, number)
