"""The table of questions in docs/reference/sql.md is what the service accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.service.questions.reading import FILES, complaint, read

PAGE = Path("docs/reference/sql.md")
_ROW = re.compile(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
"""A domain; how many of its questions were accepted as written at first, how many are now, once they are rewritten, and not at all."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_as_the_page_says(file: Path) -> None:
    relations, questions = read(file)
    refused = {question: said for question in questions if (said := complaint(question.sql, relations)) is not None}
    rewritten = [question for question in refused if question.instead is not None]
    print("\n".join(f"{question.words} {said}" for question, said in refused.items()))
    assert not [one.words for one in questions if one.instead is not None and one not in refused], "accepted as written by now"
    for question in rewritten:
        assert question.instead is not None and complaint(question.instead, relations) is None, question.words
    counts = {name: tuple(map(int, numbers)) for name, _, *numbers in _ROW.findall(PAGE.read_text())}
    assert counts[file.stem] == (len(questions) - len(refused), len(rewritten), len(refused) - len(rewritten))
