"""Rows as tables of text."""

from __future__ import annotations

import subprocess
import sys

from livejoin.terminal import Columns, cell
from tests.datasets import ROOT


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


def test_nobody_looks_for_cycles_in_what_is_imported() -> None:
    code = """if True:
        import gc
        from livejoin.terminal import imported
        found = []
        gc.callbacks.append(lambda phase, told: found.append(told["generation"]))
        module, before = imported("livejoin.commands.rows"), gc.get_freeze_count()
        print(module.__name__, len(found), before > 10_000, gc.isenabled(), imported("livejoin.commands.rows") is module)
    """
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["livejoin.commands.rows", "0", "True", "True", "True"], done.stderr
