"""Lines of code: those with a token that is neither a comment nor part of a docstring. `python -m tests.code_lines` counts by package; the
generated half of the client is not counted."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

from tests.datasets import ROOT

PACKAGES = ("structures", "service", "streaming", "client")
_SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    documentation = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            documentation.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def counted(*packages: str) -> Counter[str]:
    """Return the lines of code of each package."""
    lines = Counter[str]()
    for package in packages:
        files: list[Path] = [path for path in (ROOT / package).rglob("*.py") if not {"_sync", "build"} & {*path.parts}]
        lines[package] = sum(code_lines(path.read_text()) for path in files)
    return lines


if __name__ == "__main__":
    for package, lines in counted(*PACKAGES, "tests").items():
        print(f"{lines:8,} {package}")
