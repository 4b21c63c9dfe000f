"""Conditions and ranges of a request, as RFC 9110 has them."""

from __future__ import annotations

import pytest

from service.api.files.conditions import Range, conditions_of


@pytest.mark.parametrize(
    ("text", "size", "part"),
    [
        (b"bytes=0-9", 100, (0, 10)),
        (b"bytes=90-", 100, (90, 100)),
        (b"bytes=90-1000", 100, (90, 100)),
        (b"bytes=-8", 100, (92, 100)),
        (b"bytes=-1000", 100, (0, 100)),
        (b"Bytes=99-99", 100, (99, 100)),
        (b"bytes=100-", 100, None),
        (b"bytes=-0", 100, None),
        (b"bytes=0-", 0, None),
        (b"bytes=-5", 0, None),
    ],
)
def test_ranges(text: bytes, size: int, part: tuple[int, int] | None) -> None:
    asked = conditions_of({b"range": text}).range
    assert asked is not None and asked.within(size) == part


@pytest.mark.parametrize(
    "text", [b"bytes=-", b"bytes=5-3", b"bytes=0-1,3-4", b"lines=1-2", b"bytes=a-b", b"bytes=" + b"9" * 40 + b"-", b""]
)
def test_what_is_no_single_range_does_not_count(text: bytes) -> None:
    assert conditions_of({b"range": text}).range is None


def test_tags() -> None:
    found = conditions_of({b"if-match": b'"a", W/"b" ,"c"', b"if-none-match": b'W/"a","b"', b"range": b"bytes=1-", b"if-range": b'"x"'})
    assert found.if_match == ('"a"', '"c"'), "a weak tag matches nothing here"
    assert found.are_met_by('"c"') and not found.are_met_by('"b"')
    assert found.know('"a"') and found.know('"b"') and not found.know('"c"')
    assert found.range == Range(1, None) and found.range_counts('"x"') and not found.range_counts('"y"')


def test_any_tag() -> None:
    found = conditions_of({b"if-match": b"*", b"if-none-match": b"*"})
    assert found.are_met_by('"a"') and found.know('"a"')


def test_no_condition() -> None:
    found = conditions_of({})
    assert found.are_met_by('"a"') and not found.know('"a"') and not found.range_counts('"a"')


def test_a_condition_that_cannot_be_read_is_met_by_nothing() -> None:
    found = conditions_of({b"if-match": b"a b", b"range": b"bytes=1-", b"if-range": b"Tue, 24 Nov 2026 11:00:00 GMT"})
    assert not found.are_met_by('"a"') and not found.range_counts('"a"')
