"""The site: mkdocs builds it without a warning, every page is in its menu, and nothing on it comes from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import UNRUN, Block, Reader, blocks_of, steps_of
from tests.docs.test_pages import ELSEWHERE, PAGES
from tests.server_process import ROOT, ServerProcess

FETCHED = re.compile(r"""<(?:script|link|img|source|iframe)[^>]*?(?:src|href)=["']?(https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


def test_nothing_is_fetched_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        found = [match for match in FETCHED.finditer(page.read_text()) if 'rel="canonical"' not in match[0]]
        assert not found, f"{page.name}: {found[0][0]}"
    assert (site / "assets").is_dir() and (site / "search" / "search_index.json").is_file()


def test_what_is_made_of_the_service_is_there(site: Path) -> None:
    endpoints, problems = ((site / "docs" / "reference" / f"{name}.html").read_text() for name in ("endpoints", "problems"))
    assert "/v1/views/{name}/rows" in endpoints and "overlaps.*" not in endpoints.partition("<article")[0]
    assert 'id="infeasible-view"' in problems


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = yaml.safe_load(re.sub(r"^theme:.*?(?=^plugins)", "", (ROOT / "mkdocs.yml").read_text(), flags=re.DOTALL | re.MULTILINE))["nav"]
    named = set(_paths(menu))
    missing = {*PAGES, *ELSEWHERE} - named - {"deploy/grafana/dashboards/README.md"}
    assert not missing, f"pages that the nav of mkdocs.yml lacks: {missing}"


def _paths(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    values = entry if isinstance(entry, list) else list(entry.values()) if isinstance(entry, dict) else []
    return [path for value in values for path in _paths(value)]


def test_blocks_are_found_with_their_marks() -> None:
    text = "a\n<!-- not run: why -->\n```sh\nx\n```\n\n```text\ny\n```\nb\n\n```console\n$ f '1\n2'\n3\n$ g\n```\n"
    assert blocks_of(text) == [
        Block("sh", "x\n", "not run: why", 3, False),
        Block("text", "y\n", "", 7, True),
        Block("console", "$ f '1\n2'\n3\n$ g\n", "", 12, False),
    ]
    assert [tuple(step) for step in steps_of("$ f '1\n2'\n3\n$ g\n")] == [("f '1\n2'", "3"), ("g", "")]


FALSE = {
    "another output": "```python\nprint(1)\n```\n\n```text\n2\n```\n",
    "an error": "```python\n1 / 0\n```\n",
    "a command that fails": "```sh\nfalse\n```\n",
    "a command that prints something else": "```console\n$ echo 1\n2\n```\n",
    "a statement that is refused": "```sql\nSELECT a.id FROM nowhere a\n```\n",
    "a statement that is accepted": "<!-- refused: unsupported-query -->\n```sql\nSELECT COUNT(*) AS n FROM r\n```\n",
    "a request that is refused": "```http\nGET /v1/views/nowhere\n```\n",
    "another answer": '```http\nGET /v1/relations\n```\n\n```json\n{"relations": []}\n```\n',
    "no JSON": "```json\n{x}\n```\n",
    "a key of no stream": "```toml\nx = 1\n```\n",
    "an unknown language": "```cobol\nx\n```\n",
    "a mark without a reason": f"<!-- {UNRUN} -->\n```sh\nx\n```\n",
    "a text that is no output": "```text\nx\n```\n",
}


def test_what_is_false_is_found(server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.client().put("/v1/relations/r", json={"columns": [{"name": "id", "type": "int64"}], "key": ["id"]}).raise_for_status()
    monkeypatch.chdir(tmp_path)
    reader = Reader(server, tmp_path)
    monkeypatch.setattr("tests.docs.pages.ROOT", tmp_path)
    page = tmp_path / "page.md"
    for what, text in FALSE.items():
        page.write_text(text)
        with pytest.raises(AssertionError, match=r"page\.md:\d"):
            print(what)
            reader.read(page)
