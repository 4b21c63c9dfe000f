"""Every page in a real browser: at three widths, light and dark, by keyboard; without a violation of axe-core, without an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product

import pytest
from playwright.sync_api import Page

from tests.dashboard.conftest import measured, picture, violations
from tests.dashboard.data import DELEGATION, PRESIDENTS
from tests.server_process import ServerProcess

Visitor = Callable[..., Page]
FEWER = re.compile("^[1-5]?[0-9] rows in view$")  # than all 62 presidencies
PAGES = {  # name: address, what stands there once it is whole
    "overview": ("#/", "text=presidents_with_vices"),
    "relation": ("#/relations/president_terms", "text=George Washington"),
    "view": (f"#/views/{PRESIDENTS}", "text=62 rows in view"),
    "view_keyed": (f"#/views/{DELEGATION}", "text=state 1–24 of 50"),
    "view_map": ("#/views/flooded", "text=rows in view"),
    "view_graph": ("#/views/triangles", "svg path.edge"),
    "graph": ("#/graph", ".flow .node"),
    "query": ("#/query?sql=SELECT * FROM stays a JOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay)", "text=Alternatives"),
    "operations": ("#/operations", "text=Token mode is off"),
    "metrics": ("#/metrics", "text=livejoin_changes_total"),
}
SHIFTS = """
window.shift = 0;
new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) window.shift += one.value;
}).observe({ type: "layout-shift", buffered: true });
"""


QUICK = ((360, "dark"), (1280, "light"))  # colours do not depend on the width, nor what fits on the colours
SHOWN = [pytest.param(*one, marks=() if one in QUICK else pytest.mark.soak) for one in product((360, 1280, 2560), ("light", "dark"))]


@pytest.mark.parametrize(("width", "scheme"), SHOWN)
def test_pages(service: ServerProcess, visitor: Visitor, width: int, scheme: str) -> None:
    page = visitor(width, {360: 740, 1280: 900, 2560: 1440}[width], scheme)
    faults = []
    for name, (address, there) in PAGES.items():
        page.goto(f"{service.url}/{address}")
        page.locator("main").locator(there).first.wait_for()
        page.locator("#link[data-state=live]").wait_for()
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        picture(page, f"{name}-{width}-{scheme}")
        faults += [f"{name}: {one}" for one in violations(page)]
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        if wide > 0:
            faults.append(f"{name} is {wide} pixels wider than the window")
    assert not faults, "\n".join(faults)


def test_the_keyboard_is_enough(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    page.goto(f"{service.url}/#/")
    page.locator("table a", has_text=PRESIDENTS).wait_for()
    focused = "() => document.activeElement"
    page.keyboard.press("Tab")
    assert page.evaluate(f"({focused})().className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate(f"({focused})().id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"({focused})().textContent") == PRESIDENTS and page.evaluate(f"({focused})().closest('table') !== null"):
            break
    else:
        raise AssertionError("the link to the view is not reached by Tab")
    assert page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle") == "solid", "what has the focus shows it"
    page.keyboard.press("Enter")
    page.locator("text=62 rows in view").wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate(f"({focused})().tagName") == "CANVAS":
            break
    before = page.locator(".span").inner_text()
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert page.locator(".span").inner_text() != before
    page.get_by_text(FEWER).wait_for()
    page.keyboard.press("0")
    assert page.locator(".span").inner_text() == before
    page.locator("text=62 rows in view").wait_for()
    page.keyboard.press("ArrowDown")
    page.locator(".tip", has_text="George Washington").wait_for()
    page.wait_for_function("() => document.getElementById('say').textContent.startsWith('Lane 1 of 62')")


def test_a_chosen_lane_stays_chosen_when_others_come_into_view(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    page.goto(f"{service.url}/#/views/{PRESIDENTS}")
    page.locator("text=62 rows in view").wait_for()
    page.locator("canvas").press("+")
    page.keyboard.press("ArrowRight")
    page.get_by_text(FEWER).wait_for()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.getElementById('say').textContent.startsWith('Lane 1 of ')")
    label = page.locator("#say").inner_text().split(". ")[1]
    page.keyboard.press("0")
    page.locator("text=62 rows in view").wait_for()
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")  # the lanes are drawn
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.wait_for_function("(label) => say.textContent.includes(' of 62. ' + label)", arg=label)
    assert not page.locator("#say").inner_text().startswith("Lane 1 of ")


def test_nothing_moves_once_a_page_is_there(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    page.add_init_script(SHIFTS)
    page.goto(f"{service.url}/#/views/{PRESIDENTS}")
    page.locator("text=62 rows in view").wait_for()
    page.locator("#link[data-state=live]").wait_for()
    page.wait_for_function("() => performance.getEntriesByType('paint').length === 2")
    paint = page.evaluate("() => Object.fromEntries(performance.getEntriesByType('paint').map((one) => [one.name, one.startTime]))")
    sent = page.evaluate("() => performance.getEntriesByType('resource').map((one) => one.transferSize).reduce((sum, one) => sum + one, 0)")
    shift = page.evaluate("() => window.shift")
    measured("first_paint", milliseconds=paint["first-contentful-paint"], bytes=sent, layout_shift=shift)
    assert shift < 0.1, "what is called good of cumulative layout shift"


def test_colours_are_chosen_and_kept(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor(scheme="light")
    page.goto(f"{service.url}/#/")
    ground = "() => getComputedStyle(document.documentElement).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    assert page.evaluate(ground) == dark


def test_an_address_without_a_page_says_so(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    for address, said in (
        ("#/nowhere", "There is nothing at this address."),
        ("#/views/nothing", "There is no view nothing."),
        ("#/relations/nothing", "There is no relation nothing."),
    ):
        page.goto(f"{service.url}/{address}")
        page.get_by_text(said).wait_for()
        assert not violations(page)


def test_the_menu_of_narrow_windows(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor(360, 740)
    page.goto(f"{service.url}/#/")
    page.get_by_role("button", name="Menu").click()
    page.get_by_role("link", name=PRESIDENTS).first.wait_for()
    picture(page, "menu-360-light", whole=False)
    assert not violations(page)
    page.keyboard.press("Escape")
    assert not page.locator("#side").is_visible()
    page.get_by_role("button", name="Menu").click()
    page.locator("#side").get_by_role("link", name=DELEGATION).click()
    page.locator("text=state 1–24 of 50").wait_for()
    assert not page.locator("#side").is_visible()
