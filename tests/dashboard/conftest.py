"""A Chromium, and pages of it that tell what went wrong in them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.dashboard.chromium import launched
from tests.dashboard.data import fill
from tests.server_process import ROOT, ServerProcess

PICTURES = ROOT / "build" / "dashboard"
_OF_THE_BROWSER = (
    "Failed to load resource",  # answers that are refusals
    "Canvas2D: Multiple readback operations",  # of tests that look at pixels
)
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    PICTURES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launched(playwright, "Europe/Berlin")
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service with relations and views of all kinds, for the tests of a module."""
    with ServerProcess(tmp_path_factory.mktemp("dashboard") / "data") as process:
        fill(process.client())
        yield process




@pytest.fixture
def visitor(chromium: Browser) -> Iterator[Callable[..., Any]]:
    """Makes pages. What they log as errors fails the test at its end, but for what the browser logs itself."""
    made: list[tuple[BrowserContext, list[str]]] = []

    def make(width: int = 1280, height: int = 900, scheme: str = "light", **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        context.set_default_timeout(60_000)
        context.add_init_script(AXE)
        page = context.new_page()
        errors: list[str] = []
        page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: errors.append(f"{error}\n{error.stack}"))
        made.append((context, errors))
        return page

    yield make
    found = [error for _, errors in made for error in errors if not error.startswith(_OF_THE_BROWSER)]
    for context, _ in made:
        context.close()
    assert not found, "\n".join(found)


def violations(page: Page) -> list[str]:
    """What axe-core finds on the page, in words."""
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [f"{one['id']}: {one['help']}: {node['html'][:200]}" for one in found["violations"] for node in one["nodes"]]


def picture(page: Page, name: str, whole: bool = True) -> None:
    """Kept to be looked at."""
    page.screenshot(path=PICTURES / f"{name}.png", full_page=whole)


def measured(name: str, **figures: Any) -> None:
    """Kept as data; nothing is asserted of times."""
    print(name, json.dumps(figures))
    PICTURES.mkdir(parents=True, exist_ok=True)
    (PICTURES / f"{name}.json").write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")


def until(holds: Callable[[], Any], page: Page | None = None, seconds: float = 60) -> Any:
    """What it gives as soon as that is true. `page`: the one that it hears events of, which come while the browser is waited for."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "nothing has happened for too long"
        if page is None:
            time.sleep(0.03)
        else:
            page.wait_for_timeout(30)
    return found


