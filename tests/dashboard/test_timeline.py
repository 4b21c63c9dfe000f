"""The timeline in a real browser: what it asks for, how it follows, how it is moved; over a few rows and over a million."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pyarrow as pa
import pytest
from playwright.sync_api import Page

from tests.dashboard.chromium import FRAMES
from tests.dashboard.conftest import measured, picture, until
from tests.dashboard.data import DELEGATION, LAND, PRESIDENTS, box, stay, upsert
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

Visitor = Callable[..., Page]
MILLION = 1_000_000
PLAIN = declared("id:int64, lo:int64, hi:int64", x="lo hi")


def windows(page: Page) -> list[dict[str, str]]:
    """The queries of the windows that a page asks for, from now on."""
    found: list[dict[str, str]] = []
    page.on("request", lambda request: "/window?" in request.url and found.append(query_of(request.url)))
    return found


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


def lit(page: Page) -> int:
    """How many pixels of the picture have a colour of their own: bars, not lines and texts."""
    return int(page.evaluate("""() => {
        const canvas = document.querySelector("canvas");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let found = 0;
        for (let at = 0; at < data.length; at += 4) {
            const colour = [data[at], data[at + 1], data[at + 2]];
            if (data[at + 3] > 40 && Math.max(...colour) - Math.min(...colour) > 60) found++;
        }
        return found;
    }"""))


def years_of(query: dict[str, str]) -> float:
    lo, hi = (int(date[:4]) for date in query["overlaps"].split(",")) if "overlaps" in query else (0, 9999)
    return hi - lo


def test_it_asks_for_the_window_in_view_only(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    asked = windows(page)
    page.goto(f"{service.url}/#/views/{PRESIDENTS}")
    page.locator("text=62 rows in view").wait_for()
    until(lambda: lit(page) > 1000, page)
    page.get_by_role("button", name="Zoom in").click()
    until(lambda: years_of(asked[-1]) < 160, page)  # the whole may be asked for once more, after the first news
    lo, hi = asked[-1]["overlaps"].split(",")
    shown = page.locator(".span").inner_text().split(" – ")
    assert lo <= shown[0] and hi >= shown[1]
    assert all(int(one["limit"]) <= 400 for one in asked)
    until(lambda: re.fullmatch("[1-5]?[0-9] rows in view", page.locator(".timeline .note").inner_text()), page)


def test_mouse_and_touch_move_it(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor(has_touch=True)
    page.goto(f"{service.url}/#/views/{PRESIDENTS}")
    page.locator("text=62 rows in view").wait_for()
    position = page.locator("canvas").bounding_box()
    assert position is not None
    x, y = position["x"] + position["width"] / 2, position["y"] + position["height"] / 2
    span = page.locator(".span")
    whole = span.inner_text()
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x - 200, y, steps=4)
    page.mouse.up()
    moved = span.inner_text()
    assert moved > whole, "dragged to the left, later times come into view"
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    until(lambda: span.inner_text() != moved, page)
    closer = span.inner_text()
    scrolled = page.evaluate("() => scrollY")
    page.mouse.wheel(0, 120)
    assert span.inner_text() == closer, "without Ctrl the wheel scrolls"
    assert page.evaluate("() => scrollY") >= scrolled
    page.get_by_role("button", name="Show everything").click()
    assert span.inner_text() == whole
    page.mouse.dblclick(x, y)
    assert span.inner_text() != whole
    page.get_by_role("button", name="Show everything").click()
    _pinch(page, x, y)
    assert span.inner_text() != whole, "two fingers zoom"


def _pinch(page: Page, x: float, y: float) -> None:
    """Two fingers, apart."""
    page.evaluate(
        """([x, y]) => {
            const canvas = document.querySelector("canvas");
            canvas.setPointerCapture = () => {};
            const send = (type, pointerId, clientX) =>
                canvas.dispatchEvent(new PointerEvent(type, { pointerId, pointerType: "touch", clientX, clientY: y, bubbles: true }));
            send("pointerdown", 11, x - 20); send("pointerdown", 12, x + 20);
            send("pointermove", 11, x - 120); send("pointermove", 12, x + 120);
            send("pointerup", 11, x - 120); send("pointerup", 12, x + 120);
        }""",
        [x, y],
    )


def test_rows_that_come_flash_and_rows_that_go_fade(service: ServerProcess, visitor: Visitor) -> None:
    client = service.client()
    page = visitor()
    page.goto(f"{service.url}/#/views/clashes")
    page.get_by_text("Following: nothing has changed").wait_for()
    page.get_by_text("rows in view").wait_for()
    rows = page.locator(".timeline .note")
    before = int(re.findall(r"\d+", rows.inner_text())[0])
    talk.ok(talk.send(client, [upsert("stays", stay(60, 9))]))
    page.locator("tr.insert", has_text="guest 60").first.wait_for()
    until(lambda: int((re.findall(r"\d+", rows.inner_text()) or ["0"])[0]) > before, page)
    picture(page, "flash-1280-light", whole=False)
    talk.ok(talk.send(client, [{"relation": "stays", "op": "delete", "key": {"id": 60}}]))
    page.locator("tr.delete", has_text="guest 60").first.wait_for()
    until(lambda: rows.inner_text() == f"{before} rows in view", page)


def test_what_shows_everything_grows_until_somebody_moves_it(service: ServerProcess, visitor: Visitor) -> None:
    """Whoever opens the demo's timeline sees it before the first row is there."""
    client = service.client()
    for relation in ("early", "late"):
        talk.define(client, relation, PLAIN)
    talk.view(client, "meetings", {"sql": "SELECT a.id AS i, b.id AS j FROM early a JOIN late b ON overlaps(a.x, b.x)"})
    talk.ok(talk.send(client, [upsert("early", {"id": 0, "lo": 0, "hi": 1})]))
    page = visitor()
    page.goto(f"{service.url}/#/views/meetings")
    page.get_by_text("0 rows in view").wait_for()
    pairs = [{"id": number, "lo": 100 * number, "hi": 100 * number + 50} for number in range(1, 12)]
    for number, pair in enumerate(pairs[:5], 1):
        talk.ok(talk.send(client, [upsert(relation, pair) for relation in ("early", "late")]))
        page.get_by_text(re.compile(f"^{number} rows? in view$")).wait_for()
    page.get_by_role("button", name="Zoom in").click()
    closer = page.locator(".span").inner_text()
    talk.ok(talk.send(client, [upsert(relation, pair) for relation in ("early", "late") for pair in pairs[5:]]))
    page.locator("tr.insert td", has_text=re.compile("^11$")).first.wait_for()
    page.wait_for_timeout(600)  # in which it would have grown
    assert page.locator(".span").inner_text() == closer
    page.get_by_role("button", name="Show everything").click()
    page.get_by_text("11 rows in view").wait_for()


def test_it_stays_where_somebody_moves_it_while_everything_is_asked_for(service: ServerProcess, visitor: Visitor) -> None:
    client = service.client()
    for relation in ("before", "after"):
        talk.define(client, relation, PLAIN)
    talk.view(client, "held", {"sql": "SELECT a.id AS i, b.id AS j FROM before a JOIN after b ON overlaps(a.x, b.x)"})
    pairs = [{"id": number, "lo": 100 * number, "hi": 100 * number + 50} for number in range(4)]
    talk.ok(talk.send(client, [upsert(relation, pair) for relation in ("before", "after") for pair in pairs[:3]]))
    page = visitor()
    page.goto(f"{service.url}/#/views/held")
    page.get_by_text("3 rows in view").wait_for()
    page.get_by_text("Following: nothing has changed").wait_for()
    page.evaluate("""() => {
        const real = window.fetch;
        window.moved_ = 0;
        window.fetch = async (...given) => {
            const answer = await real(...given);
            if (!window.moved_ && String(given[0]).includes("extent=true")) {
                const closer = () => new KeyboardEvent("keydown", {key: "+", bubbles: true});
                for (let at = 0; at < 3; at++) document.querySelector("canvas").dispatchEvent(closer());
                window.moved_ = document.querySelector(".span").innerText;
            }
            return answer;
        };
    }""")
    talk.ok(talk.send(client, [upsert(relation, pairs[3]) for relation in ("before", "after")]))
    until(lambda: page.evaluate("() => window.moved_"), page)
    page.get_by_text("1 row in view").wait_for()
    assert page.locator(".span").inner_text() == page.evaluate("() => window.moved_")
    talk.drop(client, ["held"], ["before", "after"])


def test_a_new_last_row_comes_into_view_until_somebody_scrolls(service: ServerProcess, visitor: Visitor) -> None:
    client = service.client()
    for relation in ("hosts", "guests"):
        talk.define(client, relation, PLAIN)
    talk.view(client, "visits", {"sql": "SELECT a.id AS i, b.id AS j FROM hosts a JOIN guests b ON overlaps(a.x, b.x)"})

    def meet(*numbers: int) -> None:
        pairs = [{"id": number, "lo": 100 * number, "hi": 100 * number + 50} for number in numbers]
        talk.ok(talk.send(client, [upsert(relation, pair) for relation in ("hosts", "guests") for pair in pairs]))

    meet(*range(10, 60))
    page = visitor()
    page.goto(f"{service.url}/#/views/visits")
    page.get_by_text("50 rows in view").wait_for()
    lanes = page.locator(".lanes")
    rest = "(lanes) => lanes.scrollHeight - lanes.clientHeight - lanes.scrollTop"  # pixels below what is seen
    assert lanes.evaluate("(lanes) => lanes.scrollTop") == 0 and lanes.evaluate(rest) > 300
    meet(5)
    page.get_by_text("51 rows in view").wait_for()
    assert lanes.evaluate("(lanes) => lanes.scrollTop") == 0, "a row before the last one moves nothing"
    meet(61)
    until(lambda: lanes.evaluate(rest) < 2, page)
    lanes.hover()
    page.mouse.wheel(0, -400)
    until(lambda: lanes.evaluate(rest) > 300, page)
    meet(62)
    page.get_by_text("53 rows in view").wait_for()
    page.wait_for_timeout(400)  # in which it would have moved
    assert lanes.evaluate(rest) > 300


def test_a_sample_of_rows_that_lie_close_together(service: ServerProcess, visitor: Visitor) -> None:
    """Two centuries are in view, the rows lie in forty years: it is not the few of some slices that are shown."""
    sql = "SELECT p.name AS president, s.name AS senator FROM president_terms p, senator_terms s WHERE overlaps(p.term, s.term)"
    talk.view(service.client(), "under", {"sql": sql})
    page = visitor()
    page.goto(f"{service.url}/#/views/under")
    note = page.locator(".timeline .note", has_text="A sample of")
    note.wait_for()
    assert int(re.findall("[0-9]+", note.inner_text())[0]) > 50
    talk.drop(service.client(), ["under"])


def test_rows_of_one_interval_meet_nothing(service: ServerProcess, visitor: Visitor) -> None:
    later = "SELECT 1 FROM stays b WHERE a.id < b.id AND overlaps(a.stay, b.stay)"
    talk.view(service.client(), "alone", {"sql": f"SELECT a.id AS id, a.guest AS guest FROM stays a WHERE NOT EXISTS ({later})"})
    page = visitor()
    page.goto(f"{service.url}/#/views/alone")
    page.get_by_text("1 row in view").wait_for()
    assert page.locator(".legend").inner_text().split() == ["a", "·", "stays"]
    page.locator("canvas").press("ArrowDown")
    page.locator(".tip", has_text="guest").wait_for()
    assert "together" not in page.locator(".tip").inner_text()
    talk.drop(service.client(), ["alone"])


def test_a_map_grows_with_its_view(service: ServerProcess, visitor: Visitor) -> None:
    client = service.client()
    for relation in ("plots", "ponds"):
        talk.define(client, relation, LAND)
    meet = [{"overlaps": ["f.across", "w.across"]}, {"overlaps": ["f.up", "w.up"]}]
    talk.view(client, "wet", {"from": {"f": "plots", "w": "ponds"}, "join": meet})
    page = visitor()
    page.goto(f"{service.url}/#/views/wet")
    page.get_by_text("0 rows in view").wait_for()
    for number in range(1, 4):
        talk.ok(talk.send(client, [upsert(relation, box(number, 50 * number, 90 * number, 5, 5)) for relation in ("plots", "ponds")]))
        page.get_by_text(re.compile(f"^{number} rows? in view$")).wait_for()


def test_a_keyed_view_shows_a_page_of_keys(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    asked = windows(page)
    page.goto(f"{service.url}/#/views/{DELEGATION}")
    page.get_by_text("state 1–24 of 50").wait_for()
    assert (asked[0]["keys"], asked[0]["from"]) == ("24", "0")
    page.get_by_role("button", name="Keys after").click()
    page.get_by_text("state 25–48 of 50").wait_for()
    assert asked[-1]["from"] == "24"
    page.get_by_role("searchbox", name="Show the lane of one state").fill("WA")
    page.keyboard.press("Enter")
    page.get_by_text("state = WA").wait_for()
    until(lambda: asked[-1].get("where.s.state") == "WA" and "keys" not in asked[-1], page)


def test_a_map_of_boxes_moves_in_two_dimensions(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    asked = windows(page)
    page.goto(f"{service.url}/#/views/flooded")
    page.get_by_text("rows in view").wait_for()
    until(lambda: lit(page) > 1000, page)
    page.locator("canvas").focus()
    page.keyboard.press("+")
    page.keyboard.press("ArrowUp")
    until(lambda: "overlaps.across" in asked[-1] and "overlaps.up" in asked[-1], page)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A million rows of a view over two relations of half a million."""
    with ServerProcess(tmp_path_factory.mktemp("large") / "data") as process:
        client = process.client()
        for relation in ("a", "b"):
            talk.define(client, relation, PLAIN)
            ids = np.arange(MILLION // 2, dtype=np.int64)
            rows = pa.table({"id": ids, "lo": 10 * ids, "hi": 10 * ids + 11})
            body = talk.arrow_bytes(rows)
            talk.ok(client.post(f"/v1/relations/{relation}/changes", content=body, headers={"Content-Type": talk.ARROW}))
        talk.view(client, "pairs", {"sql": "SELECT a.id AS i, b.id AS j, a.hi AS hi, b.hi AS other FROM a JOIN b ON overlaps(a.x, b.x)"})
        yield process


def test_a_million_rows_are_as_quick_as_a_hundred(large: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    asked = windows(page)
    sizes: list[int] = []
    page.on("response", lambda answer: "/window?" in answer.url and sizes.append(int(answer.headers.get("content-length", 0))))
    page.goto(f"{large.url}/#/views/pairs")
    page.get_by_text("A sample of").wait_for()
    until(lambda: lit(page) > 100, page)
    picture(page, "million-1280-light", whole=False)
    page.locator("canvas").evaluate("""(canvas) => {
        canvas.focus();
        for (let at = 0; at < 48; at++) canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "+", bubbles: true}));
    }""")
    until(lambda: re.fullmatch("[0-9]+ rows in view", page.locator(".timeline .note").inner_text()), page)
    picture(page, "million-close-1280-light", whole=False)
    assert max(sizes) < 200_000, "an answer is as long as its limit, whatever the view has"
    assert len(asked) < 60, "windows that are passed by are not asked for"
    seconds = page.evaluate(
        """async () => {
            const times = [];
            for (let at = 0; at < 20; at++) {
                const begun = performance.now();
                await (await fetch(`/v1/views/pairs/window?limit=400&overlaps=${200000 * at},${200000 * at + 500}`)).json();
                times.push(performance.now() - begun);
            }
            return times.sort((a, b) => a - b)[10];
        }"""
    )
    measured("window_of_a_million", median_milliseconds=seconds, requests=len(asked), largest_bytes=max(sizes))


def test_changes_by_the_hundred_thousand_are_sampled_and_said_so(large: ServerProcess, visitor: Visitor) -> None:
    client = large.client()
    page = visitor()
    page.goto(f"{large.url}/#/views/pairs")
    page.get_by_text("Following: nothing has changed").wait_for()
    page.evaluate(FRAMES)
    ids = np.arange(20_000, dtype=np.int64)
    for number in range(200):
        rows = pa.table({"id": ids, "lo": 10 * ids, "hi": 10 * ids + 12 + number})
        talk.ok(client.post("/v1/relations/a/changes", content=talk.arrow_bytes(rows), headers={"Content-Type": talk.ARROW}))
        if number >= 5 and page.get_by_text("Too many to show: the list is a sample").count():
            break
    page.get_by_text("Too many to show: the list is a sample").wait_for()
    assert page.locator(".changes tbody tr").count() <= 40
    picture(page, "sampled-1280-light")
    times: list[float] = page.evaluate("() => window.frames_")
    measured("frames_under_100000_changes", **frames_of(times))


def frames_of(times: list[float]) -> dict[str, float]:
    gaps = np.diff(times)
    return {"a_second": 1000 * len(gaps) / (times[-1] - times[0]), "longest_milliseconds": float(gaps.max())}


def test_frames_while_a_thousand_changes_a_second_come(large: ServerProcess, visitor: Visitor) -> None:
    client = large.client()
    page = visitor()
    page.goto(f"{large.url}/#/views/pairs")
    page.get_by_text("Following: nothing has changed").wait_for()
    page.evaluate(FRAMES)
    sent = 0
    for number in range(20):
        ids = range(25 * number, 25 * number + 25)
        changes: list[dict[str, Any]] = [upsert("b", {"id": id_, "lo": 10 * id_, "hi": 10 * id_ + 12}) for id_ in ids]
        talk.ok(talk.send(client, changes))
        sent += len(changes)
    page.locator("tr.insert").first.wait_for()
    times: list[float] = page.evaluate("() => window.frames_")
    measured("frames_while_following", **frames_of(times), changed_rows_sent=sent)
