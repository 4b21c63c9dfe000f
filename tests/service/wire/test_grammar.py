from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from livejoin.wire.grammar import (
    DATE_MAX,
    DATE_MIN,
    INT64_MAX,
    INT64_MIN,
    date_texts,
    parse_date,
    parse_timestamp,
    timestamp_text,
    timestamp_texts,
)

STAMP = pa.timestamp("us", "UTC")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
INT64 = st.integers(INT64_MIN, INT64_MAX)
USUAL = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)


@given(st.lists(INT64 | USUAL | st.integers(-(10**10), 10**10).map(lambda s: s * 1_000_000) | st.none(), max_size=20))
def test_timestamps_go_out_and_come_back(micros: list[int | None]) -> None:
    texts = timestamp_texts(pa.array(micros, STAMP)).to_pylist()
    assert [None if text is None else parse_timestamp(text) for text in texts] == micros
    assert [None if m is None else timestamp_text(m) for m in micros] == texts


@given(st.lists(st.integers(DATE_MIN, DATE_MAX) | st.integers(-719_528, 2_932_896) | st.none(), max_size=20))
def test_dates_go_out_and_come_back(days: list[int | None]) -> None:
    texts = date_texts(pa.array(days, pa.date32())).to_pylist()
    assert [None if text is None else parse_date(text) for text in texts] == days


@given(st.lists(USUAL | st.none(), max_size=20), st.integers(0, 5))
def test_a_slice_is_written_as_its_rows(micros: list[int | None], start: int) -> None:
    array = pa.array(micros, STAMP)
    assert timestamp_texts(array[start:]).to_pylist() == timestamp_texts(array).to_pylist()[start:]


@given(st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30), timezones=st.timezones()), st.sampled_from("T "))
def test_timestamps_as_python_and_arrow_read_them(moment: dt.datetime, between: str) -> None:
    text = moment.isoformat(between)
    if moment.utcoffset() is not None and moment.utcoffset().total_seconds() % 60:  # type: ignore[union-attr]
        return  # before standard time there were offsets with seconds: ISO 8601 has none
    assert parse_timestamp(text) == (moment - EPOCH) // dt.timedelta(microseconds=1)
    try:
        by_arrow = pa.array([text]).cast(STAMP).cast(pa.int64())[0].as_py()
    except pa.ArrowInvalid:
        return
    assert parse_timestamp(text) == by_arrow


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("2026-01-01T12:00Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12Z", "2026-01-01T12:00:00Z"),
        ("2026-01-01t12:00:00z", "2026-01-01T12:00:00Z"),
        ("2026-01-01T12:00:00+0230", "2026-01-01T09:30:00Z"),
        ("2026-01-01T12:00:00-02", "2026-01-01T14:00:00Z"),
        ("2026-01-01T12:00:00.5Z", "2026-01-01T12:00:00.500000Z"),
        ("2026-01-01T12:00:00.123456000Z", "2026-01-01T12:00:00.123456Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("+012026-01-01T00:00:00Z", "+012026-01-01T00:00:00Z"),
        ("20260101T120000Z", "2026-01-01T12:00:00Z"),
        ("20260101T1200+0230", "2026-01-01T09:30:00Z"),
        (" 20260101 12:00Z\t", "2026-01-01T12:00:00Z"),
        ("-0044-03-15T00:00:00Z", "-000044-03-15T00:00:00Z"),
    ],
)
def test_spellings(text: str, plain: str) -> None:
    assert timestamp_texts(pa.array([parse_timestamp(text)], STAMP))[0].as_py() == plain


def test_a_date_without_hyphens() -> None:
    assert parse_date("20260101") == parse_date("2026-01-01")


@pytest.mark.parametrize(
    "text",
    [
        "2026-1-1", "2026011", "2026-0101", "+20260101", "٢٠٢٦٠١٠١", "20260229", "2026-02-29", "2026-01-01Z", "", "2026-01-01T00:00:00Z",
        "+9999999-01-01",
    ],
)  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(ValueError, match="expected a date such as"):
        parse_date(text)
