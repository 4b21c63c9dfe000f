"""Texts of windows and look-ups."""

from __future__ import annotations

import pytest

from service.query.literals import BadLiteral, from_text

NOON = 1_767_268_800_000_000


@pytest.mark.parametrize("text", ["2026-01-01T12:00:00Z", "2026-01-01T13:00:00+01:00", "2026-01-01 12:00", str(NOON)])
def test_one_moment(text: str) -> None:
    assert from_text("timestamp", text) == NOON


@pytest.mark.parametrize("text", ["2026-03-05T00:00:00 01:00", "2026-02-30T00:00:00", "9" * 30])
def test_refusals_quote_what_was_sent(text: str) -> None:
    with pytest.raises(BadLiteral) as fault:
        from_text("timestamp", text)
    assert text in str(fault.value) and f"{text}Z" not in str(fault.value)
