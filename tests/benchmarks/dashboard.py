"""The dashboard in Chromium: its size, the first paint of a page, frames while changes arrive."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from service.api.dashboard.files import FOLDER
from tests.benchmarks.data import LINE, uniform
from tests.benchmarks.figures import Figure, Scale, middle, sampled
from tests.benchmarks.measured_tree import Note
from tests.benchmarks.served import PLAIN, load, serving
from tests.dashboard.chromium import FRAMES, launched
from tests.dashboard.data import PRESIDENTS, fill
from tests.server_process import ServerProcess

TITLE = "The dashboard in Chromium"
PARTNERS = 2
A_SECOND = 1000  # changes of the view a second, the aim for the page
TICK = 0.05  # seconds between two batches
PAINT = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def run(scale: Scale, note: Note) -> list[Figure]:
    n = scale.size(1_000_000, 2_000)
    with serving(scale) as server, chromium() as browser, httpx.Client(base_url=server.url, timeout=60) as client:
        load(server, PLAIN, uniform(n, PARTNERS).entries)
        fill(client)
        return [weight(), *first_paint(server, browser, scale, note), *frames(server, browser, client, n, scale, note)]


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launched(playwright, "UTC")
        yield browser
        browser.close()


def weight() -> Figure:
    sizes = [path.stat().st_size for path in FOLDER.iterdir()]
    return Figure("all files of the dashboard", sum(sizes) / 1000, "kB", aim=250, less=True, parameters={"files": len(sizes)})


def first_paint(server: ServerProcess, browser: Browser, scale: Scale, note: Note) -> list[Figure]:
    """The first paint of a view's page with a timeline, in a browser with an empty cache."""
    samples = []
    for _ in range(scale.size(15, 2)):
        page = browser.new_page()
        page.goto(f"{server.url}/#/views/{PRESIDENTS}")
        page.locator("text=62 rows in view").wait_for()
        page.wait_for_function(PAINT)
        samples.append(float(page.evaluate(PAINT)))
        page.close()
    note(f"first paint: {middle(samples):.0f} ms")
    return [sampled("first contentful paint of a view's page over loopback, nothing cached", samples, "ms", aim=200, less=True)]


def frames(server: ServerProcess, browser: Browser, client: httpx.Client, n: int, scale: Scale, note: Note) -> list[Figure]:
    """Frames while the page follows a view in which some thousand rows change each second; the browser draws without a GPU."""
    page = browser.new_page()
    page.goto(f"{server.url}/#/views/{PLAIN.view}")
    page.get_by_text("Following: nothing has changed").wait_for()
    page.evaluate(FRAMES)
    began, before = time.monotonic(), _emitted(client)
    _write(client, page, n, scale.size(10, 1))
    seconds, changed = time.monotonic() - began, _emitted(client) - before
    gaps = np.diff(np.array(page.evaluate("() => window.frames_"), dtype=float))
    page.close()
    rate = round(1000 / float(gaps.mean()))
    note(f"frames: {rate}/s while {changed / seconds:.0f} rows a second change, the longest gap {gaps.max():.0f} ms")
    about = {"changes_a_second": round(changed / seconds), "intervals": n}
    return [
        Figure("frames while the page follows", rate, "frames/s", aim=60, parameters=about),
        Figure("99th percentile of the time between two frames", float(np.percentile(gaps, 99)), "ms", less=True, parameters=about),
    ]


def _write(client: httpx.Client, page: Page, n: int, seconds: int) -> None:
    """Move rows of one relation, those with even keys; each move is a delete and an insert for each partner."""
    rng = np.random.default_rng(3)
    began, sent = time.monotonic(), 0
    while (elapsed := time.monotonic() - began) < seconds:
        each = math.ceil((elapsed + TICK) * A_SECOND / (2 * PARTNERS)) - sent  # more of them after a long tick
        sent += each
        changes = [
            {"relation": PLAIN.first, "op": "upsert", "row": {"id": 2 * int(key), "s": int(start), "e": int(start) + PARTNERS * LINE // n}}
            for key, start in zip(rng.integers(0, n // 2, each), rng.integers(0, LINE, each), strict=True)
        ]
        client.post("/v1/changes", json={"changes": changes}).raise_for_status()
        page.wait_for_timeout(max(1.0, 1000 * (began + elapsed + TICK - time.monotonic())))


def _emitted(client: httpx.Client) -> int:
    return int(client.get("/v1/status").raise_for_status().json()["views"][PLAIN.view]["feed"]["changes"])
