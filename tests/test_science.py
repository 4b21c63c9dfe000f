"""The coverage page (`docs/science/coverage.md`): each numbered statement of the papers has a row, and what a row names exists."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.datasets import ROOT

SCIENCE = ROOT / "docs" / "science"
PAPERS = Path(os.environ.get("LIVEJOIN_PAPERS", "/nonexistent"))  # a folder of their texts, which are not part of the project
BEGINNINGS = {
    "instance-optimal": "Towards Instance Optimal Join Algorithms",
    "tree-tracker": "TreeTracker Join",
    "qdag": "Optimal Joins using Compact Data Structures",
    "minesweeper": "Beyond Worst-case Analysis for Joins with Minesweeper",
    "tao-yi": "Intersection Joins under Updates",
}
STATES = ("works", "proof only", "not", "not yet")
ALGORITHMS_AS_FIGURES = {("tao-yi", "figure", "4"), ("tao-yi", "figure", "5")}
_HEAD = re.compile(
    r"^[\W\d]*(Theorem|Lemma|Proposition|Corollary|Definition|Observation|Conjecture|Example|Table)\W{0,4}\s?([A-E]?\.?\d+(?:\.\d+)?)"
    r"(?!\d|,? in \[)",
    re.MULTILINE | re.IGNORECASE,
)
_ALGORITHM = re.compile(r"\b(Algorithm)\s(\d+(?:\.\d+)?)|\b(EXAMPLE) (D\.\d)")


class Row(NamedTuple):
    what: str
    title: str
    state: str
    text: str


@cache
def sections() -> list[tuple[str, list[Row], list[Row]]]:
    """Of each paper its title, the rows with a number, and those without."""
    found = []
    for part in (SCIENCE / "coverage.md").read_text().split("\n## ")[1:]:
        numbered, without = (
            [Row(*re.split(r" \| ", line.strip("| "), maxsplit=3)) for line in table.splitlines() if re.match(r"\| [A-Z]", line)]
            for table in part.split("\nWithout a number:\n")
        )
        found.append((part.partition("\n")[0], numbered, without))
    return found


@cache
def numbers() -> dict[str, list[tuple[str, str, str]]]:
    """Of each paper the kinds, numbers and titles, in the order of the text."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    with (SCIENCE / "numbers.tsv").open() as file:
        for line in csv.DictReader(file, delimiter="\t"):
            found.setdefault(line["paper"], []).append((line["kind"], line["number"], line["title"]))
    return found


def test_each_number_has_a_row_and_no_row_is_left_over() -> None:
    assert list(numbers()) == list(BEGINNINGS)
    for (paper, wanted), (title, rows, _) in zip(numbers().items(), sections(), strict=True):
        assert title.startswith(BEGINNINGS[paper])
        assert [(row.what, row.title) for row in rows] == [(f"{kind.capitalize()} {number}", said) for kind, number, said in wanted]
        assert len({row.what for row in rows}) == len(rows)


@pytest.mark.parametrize("paper", BEGINNINGS)
def test_the_numbers_are_those_of_the_text(paper: str) -> None:
    texts = [path.read_text() for path in PAPERS.glob("*.txt")]
    text = next((one for one in texts if BEGINNINGS[paper] in one[:2000]), None)
    if text is None:
        pytest.skip("the texts of the papers are not here")
    found = {(match[1].lower(), match[2]) for match in _HEAD.finditer(text) if match[1][0].isupper()}
    found |= {((match[1] or match[3]).lower(), match[2] or match[4]) for match in _ALGORITHM.finditer(text)}
    assert found == {(kind, number) for kind, number, _ in numbers()[paper] if (paper, kind, number) not in ALGORITHMS_AS_FIGURES}
    for _, kind, number in (one for one in ALGORITHMS_AS_FIGURES if one[0] == paper):
        assert f"{kind.capitalize()} {number}" in text


def test_each_state_says_what_it_has_to() -> None:
    """Works: the code and a test. Proof only: what rests on it. Not: a theorem, an error or a measurement. Not yet: what is missing."""
    for title, numbered, without in sections():
        for row in (*numbered, *without):
            where = f"{title}, {row.what}"
            assert row.state in STATES and row.text.endswith("."), where
            named = re.findall(r"`([\w/.]+\.\w+)(?:::(\w+))?`", row.text)
            for path, test in named:
                assert (ROOT / path).is_file(), f"{where}: {path}"
                assert not test or f"\ndef {test}(" in (ROOT / path).read_text(), f"{where}: {path}::{test}"
            for path, name in re.findall(r"`([\w/.]+\.py)` \(`(\w+)[`(]", row.text):
                assert re.search(rf"\b(def|class) {name}\b", (ROOT / path).read_text()), f"{where}: {name} in {path}"
            if row.state == "works":
                assert any(not test and not path.startswith("tests/") for path, test in named), f"{where}: which code?"
                assert any(test for _, test in named), f"{where}: which test?"
            elif row.state == "not":
                assert re.search(r"[Mm]easured|Theorem|Lemma|Proposition|[Ff]alse|no bound", row.text), f"{where}: why not?"
            elif row.state == "not yet":
                assert re.search(r"[Mm]issing: |As Algorithm", row.text), f"{where}: what is missing?"


def test_the_counts_at_the_top() -> None:
    head = (SCIENCE / "coverage.md").read_text().partition("\n## ")[0]
    for title, numbered, _ in sections():
        counts = Counter(row.state for row in numbered)
        line = next(line for line in head.splitlines() if line.startswith(f"| [{title}]"))
        assert line.split(" | ")[1:] == [*(str(counts[state]) for state in STATES[:-1]), f"{counts[STATES[-1]]} |"]
