"""The files of the dashboard, as the service sends them."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest

from service.api.dashboard.files import FOLDER, POLICY
from tests.dashboard import chromium
from tests.dashboard.conftest import measured
from tests.end_to_end import talk
from tests.server_process import ROOT, ServerProcess

FILES = sorted(path for path in FOLDER.iterdir() if path.is_file())
BUDGET = 250_000


@pytest.fixture(scope="module")
def client(shared_server: ServerProcess) -> httpx.Client:
    return shared_server.client()


def test_every_file_is_served_with_its_type_and_a_strict_policy(client: httpx.Client) -> None:
    for path in FILES:
        answer = client.get("/" if path.name == "index.html" else f"/dashboard/{path.name}")
        assert answer.status_code == 200, path.name
        assert answer.content == path.read_bytes()
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["content-type"].endswith("; charset=utf-8")
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY and "*" not in POLICY


def test_what_a_browser_has_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/")
    again = client.get("/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get("/", headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.get("/", headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'}).status_code == 304
    assert client.get("/dashboard/app.js").headers["etag"] != first.headers["etag"]


@pytest.mark.parametrize("name", ["nothing.js", "..%2fapi%2fapp.py", "%2e%2e%2fsettings.py", "App.js", "index.html%00.js"])
def test_a_name_that_is_no_file_is_not_found(client: httpx.Client, name: str) -> None:
    problem = talk.problem(client.get(f"/dashboard/{name}"), 404, "not-found")
    assert "dashboard" in problem["detail"]


def test_a_parameter_of_a_file_is_refused(client: httpx.Client) -> None:
    talk.problem(client.get("/dashboard/app.js?x=1"), 400, "bad-parameter")


def test_foreign_pages_are_refused_outside_token_mode(client: httpx.Client) -> None:
    talk.problem(client.get("/", headers={"Host": "evil.example"}), 403, "forbidden")


def test_the_weight_is_within_its_budget() -> None:
    weight = sum(path.stat().st_size for path in FILES)
    measured("weight", bytes=weight, files=len(FILES))
    assert weight < BUDGET


def test_every_file_is_in_the_wheel() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["service"]
    assert all(any(fnmatch(f"dashboard/{path.name}", pattern) for pattern in patterns) for path in FILES)
    assert all(path.is_file() for path in FOLDER.iterdir()), "package-data names no folders below it"


class _Page(HTMLParser):
    """What a page asks for, and what of it is inline."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: list[str] = []
        self.inline: list[str] = []
        self._within = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inline += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]
        self._within = tag if tag == "style" or (tag == "script" and "src" not in given) else ""
        if tag in ("script", "link", "img"):
            self.wanted.append(given.get("src") or given.get("href") or "")

    def handle_data(self, data: str) -> None:
        if self._within and data.strip():
            self.inline.append(self._within)


def test_the_page_names_every_module_once_and_nothing_foreign() -> None:
    page = _Page()
    page.feed((FOLDER / "index.html").read_text())
    assert not page.inline
    assert all(name.startswith("/dashboard/") for name in page.wanted)
    modules = {f"/dashboard/{path.name}" for path in FILES if path.suffix == ".js"}
    assert sorted(name for name in page.wanted if name.endswith(".js")) == sorted(modules), "each is loaded with the page, none later"


def test_modules_import_only_each_other_and_make_no_markup_of_texts() -> None:
    for path in FILES:
        text = path.read_text()
        if path.suffix == ".js":
            assert all(name.startswith("./") and (FOLDER / name).is_file() for name in re.findall(r'from "([^"]+)"', text)), path.name
            assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path.name
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), path.name


def test_modules_form_no_circle() -> None:
    imports = {path.name: set(re.findall(r'from "\./([^"]+)"', path.read_text())) for path in FILES if path.suffix == ".js"}
    while leaves := {name for name, wanted in imports.items() if not wanted}:
        imports = {name: wanted - leaves for name, wanted in imports.items() if name not in leaves}
    assert not imports


def test_without_a_browser_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(chromium, "HOME", tmp_path / "browsers" / "none")
    monkeypatch.delenv("LIVEJOIN_BROWSER", raising=False)
    with pytest.raises(chromium.NoBrowser, match=r"npm and node to fetch one are missing: install Chromium .*, or install Node\.js"):
        chromium.browser()
    monkeypatch.setenv("LIVEJOIN_BROWSER", "firefax")
    with pytest.raises(chromium.NoBrowser, match="names firefax, which is no program"):
        chromium.browser()
