"""The page of each algorithm tells the bounds of the plan of the statement that it shows, and has a picture."""

from __future__ import annotations

from typing import Any

import pytest

from service.query.model import ALGORITHMS
from tests.docs.pages import blocks_of
from tests.docs.test_pages import bookings
from tests.server_process import ROOT, ServerProcess

FOLDER = ROOT / "docs" / "explanation" / "algorithms"


def test_each_algorithm_has_a_page() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(ALGORITHMS)
    overview, menu = (path.read_text() for path in (FOLDER.with_suffix(".md"), ROOT / "mkdocs.yml"))
    for name in ALGORITHMS:
        assert f": docs/explanation/algorithms/{name}.md\n" in menu
        assert f"(algorithms/{name}.md)" in overview
        assert f"(../../pictures/algorithms/{name}.svg)" in (FOLDER / f"{name}.md").read_text()
        assert (ROOT / "docs" / "pictures" / "algorithms" / f"{name}.svg").is_file()


def test_bounds_are_those_of_the_plan(server: ServerProcess) -> None:
    bookings(server)
    client = server.client()
    for name in ALGORITHMS:
        page = (FOLDER / f"{name}.md").read_text()
        (statement,) = [block.text for block in blocks_of(page) if block.language == "sql"]
        answer = client.post("/v1/explain", json={"sql": statement, "algorithm": name})
        assert answer.is_success, f"{name}: {answer.text}"
        plan: dict[str, Any] = answer.json()["plan"]
        assert row_of(plan) in page, f"{name}: {row_of(plan)}"


def row_of(plan: dict[str, Any]) -> str:
    return f"| {plan['guarantee']} | {' | '.join(plan['bounds'][what] for what in ('space', 'update', 'delay'))} |\n"


@pytest.mark.parametrize("picture", sorted((ROOT / "docs" / "pictures").rglob("*.*")), ids=lambda path: path.name)
def test_pictures_are_small_and_fetch_nothing(picture: Any) -> None:
    assert picture.stat().st_size < 150_000
    if picture.suffix == ".svg":
        assert "http" not in picture.read_text().replace("http://www.w3.org/2000/svg", "")
