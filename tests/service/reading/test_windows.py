"""Windows that cannot be parsed: the problem says what to write."""

from __future__ import annotations

import pytest

from service.errors import Problem
from service.reading.windows import window_of


@pytest.mark.parametrize(
    ("end", "advice"),
    [
        ("2026-01-05T00:00:00 01:00", "in an address, write %2B for +"),
        ("2026-01-05T00:00:00.25 0100", "in an address, write %2B for +"),
        ("infinity", "leave this end empty"),
        ("-Infinity", "leave this end empty"),
    ],
)
def test_advice(end: str, advice: str) -> None:
    for window in ((end, None), (None, end)):
        with pytest.raises(Problem, match="expected a timestamp|got") as problem:
            window_of(window, "timestamp", "overlaps")
        assert advice in problem.value.detail and "COALESCE" not in problem.value.detail


def test_no_advice_where_it_is_of_no_use() -> None:
    for end in ("2026-01-05T00:00:00 x", "soon"):
        with pytest.raises(Problem) as problem:
            window_of((end, None), "timestamp", "overlaps")
        assert "%2B" not in problem.value.detail
    assert window_of(("-inf", "inf"), "float64", "overlaps")
