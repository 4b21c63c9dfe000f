"""Rows as tables of text."""

from __future__ import annotations

from service.terminal import Columns, cell


def test_names_of_columns_are_one_line() -> None:
    """A query may name them as it likes."""
    columns = Columns(["a\nb\x1b[2J", "x" * 100])
    assert columns.head() == ["a b [2J  " + "x" * 47 + "…", "─" * 7 + "  " + "─" * 48]


def test_columns_grow_and_long_text_is_cut() -> None:
    columns = Columns(["a", "b"])
    assert columns.head() == ["a  b", "─  ─"]
    assert columns.line({"a": 1, "b": True}) == "1  true"
    assert columns.line({"a": 1000, "b": None}) == "1000  ·"
    assert columns.line({"a": 1, "b": "x" * 100}) == f"1     {'x' * 47}…"
    assert cell("a\tb\x1b[31m") == "a b [31m"
