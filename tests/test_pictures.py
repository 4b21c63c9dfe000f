"""The pictures in README.md match the demo that it describes."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from service.demo.history import VIEWS
from tests.pictures import FOLDER, MOMENT, ROAD, main


def shown(terminal: Path) -> str:
    """Return the text of the picture of a terminal."""
    return unescape(re.sub(r"<[^>]*>", " ", terminal.read_text(encoding="utf-8"))).replace("\xa0", " ")


def check(folder: Path) -> None:
    text = shown(folder / "terminal.svg")
    day = re.search(r"\d{4}-\d\d-\d\d", text)
    assert "$ make demo" in text and ROAD in text and day is not None and day[0] >= MOMENT
    assert all(view in text for view in VIEWS) and "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", (folder / "terminal.svg").read_text())


def test_the_terminal_shows_the_demo() -> None:
    check(FOLDER)


@pytest.mark.soak
@pytest.mark.usefixtures("quick_java")
def test_pictures_can_be_made(tmp_path: Path) -> None:
    main([str(tmp_path)])
    check(tmp_path)
