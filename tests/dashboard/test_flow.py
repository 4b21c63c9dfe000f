"""The graph of views: what reads what, with rows, bytes and costs, as a picture, by keyboard and as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page

from tests.dashboard.conftest import picture, until, violations
from tests.dashboard.data import upsert
from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

Visitor = Callable[..., Page]
BOOKINGS = declared("id:int64, room:int64, guest:string, starts:timestamp, ends:timestamp", stay="starts ends")
VIEWS = {
    "clashes": "SELECT b.id AS id, b.room AS room FROM bookings b JOIN maintenance m ON b.room = m.room AND overlaps(b.stay, m.stay)",
    "rooms": "SELECT room, count(*) AS stays FROM bookings GROUP BY room",
    "risk": "SELECT r.room, r.stays, count(c.id) AS clashes FROM rooms r LEFT JOIN clashes c ON c.room = r.room GROUP BY r.room, r.stays",
    "idle": "SELECT m.id AS id FROM maintenance m WHERE NOT EXISTS (SELECT 1 FROM bookings b WHERE b.room = m.room)",
}
READS = {"clashes": {"bookings", "maintenance"}, "rooms": {"bookings"}, "idle": {"bookings", "maintenance"}}
GEOMETRY = """() => {
    const boxes = [...document.querySelectorAll(".flow .node")].map((node) => {
        const box = node.getBoundingClientRect();
        return [node.dataset.id, box.left, box.top, box.right, box.bottom];
    });
    const origin = document.querySelector(".flow svg").getBoundingClientRect();
    const ends = [...document.querySelectorAll(".flow path")].map((path) => {
        const points = path.getAttribute("d").match(/-?[0-9.]+/g).map(Number);
        const end = Number(path.getAttribute("d").match(/H([0-9.]+)m-5/)[1]), y = points[points.length - 8];
        return [points[0] + origin.left, points[1] + origin.top, end + origin.left, y + origin.top];
    });
    return [boxes, ends];
}"""
DURATION = "async (values) => { const { duration } = await import('/dashboard/format.js'); return values.map(duration); }"


def booking(id_: int) -> dict[str, Any]:
    return upsert("bookings", times(id_) | {"guest": f"guest {id_}"})


def times(id_: int) -> dict[str, Any]:
    return {"id": id_, "room": id_ % 4, "starts": f"2026-03-{1 + id_:02}T14:00:00Z", "ends": f"2026-03-{3 + id_:02}T10:00:00Z"}


def filled(client: httpx.Client) -> None:
    talk.define(client, "bookings", BOOKINGS)
    talk.define(client, "maintenance", declared("id:int64, room:int64, starts:timestamp, ends:timestamp", stay="starts ends"))
    for name, sql in VIEWS.items():
        talk.view(client, name, {"sql": sql})
    talk.ok(talk.send(client, [booking(n) for n in range(20)]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("flow") / "data") as process:
        filled(process.client())
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> httpx.Client:
    return server.client()


def shown(client: httpx.Client) -> dict[str, dict[str, Any]]:
    """The views, by name."""
    return {one["name"]: one for one in talk.ok(client.get("/v1/views"))["views"]}


def opened(page: Page, server: ServerProcess) -> Page:
    page.goto(f"{server.url}/#/graph")
    page.locator(".flow .node", has_text="risk").wait_for()
    page.locator("#link[data-state=live]").wait_for()
    return page


def row(page: Page, name: str) -> list[str]:
    """The cells of a node in the table, after its name."""
    found = page.locator("table.list tbody tr").filter(has=page.get_by_role("rowheader", name=name, exact=True))
    return found.locator("td").all_inner_texts()


def node(page: Page, id_: str) -> str:
    return page.locator(f'.flow .node[data-id="{id_}"]').inner_text()


def require_drawn_apart(page: Page) -> None:
    """No node covers another, and each edge leads rightwards from a node to another one's left side, none twice to the same height."""
    boxes, ends = page.evaluate(GEOMETRY)
    for (one, left, top, right, bottom), (other, *box) in combinations(boxes, 2):
        assert right <= box[0] or box[2] <= left or bottom <= box[1] or box[3] <= top, f"{one} covers {other}"
    for x1, y1, x2, y2 in ends:
        assert x1 < x2
        assert any(abs(x1 - right) < 1 and abs(y1 - (top + bottom) / 2) < 1 for _, _, top, right, bottom in boxes), "it begins at no node"
        assert any(abs(x2 - left) < 3 and top < y2 < bottom for _, left, top, _, bottom in boxes), "it ends at no node"
    assert len({(round(x), round(y)) for *_, x, y in ends}) == len(ends)


def test_the_service_says_what_is_read_and_at_what_cost(client: httpx.Client) -> None:
    views = shown(client)
    stored = {one["name"]: one for one in views["risk"]["stored"]}
    assert {name: set(views[name]["inputs"]) for name in READS} == READS
    assert set(views["risk"]["inputs"]) == set(stored), "both are stored, as groups read them"
    assert sorted(sorted(one["inputs"]) for one in stored.values()) == [["bookings"], ["bookings", "maintenance"]]
    for one in (*views.values(), *stored.values()):
        assert one["inputs"].get("maintenance") is None, "no row of it has changed"
        assert all(0 < cost < 1 for name, cost in one["inputs"].items() if name == "bookings")
    explained = talk.ok(client.post("/v1/explain", json={"sql": VIEWS["risk"]}))
    unmeasured = {name: dict.fromkeys(one["inputs"]) for name, one in stored.items()}
    assert {one["name"]: one["inputs"] for one in explained["stored"]} == unmeasured


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (360, "light"), (1280, "light"), (1280, "dark")])
def test_the_picture_and_the_table_say_what_the_service_says(
    server: ServerProcess, client: httpx.Client, visitor: Visitor, width: int, scheme: str
) -> None:
    page = opened(visitor(width, 740 if width == 360 else 900, scheme), server)
    page.get_by_text(f"Views store no rows: they were counted at version {talk.ok(client.get('/v1/status'))['version']}.").wait_for()
    views = shown(client)
    stored = {one["name"]: one for one in views["risk"]["stored"]}
    assert page.locator(".flow .node").count() == len(views) + len(stored) + 2
    edges = [cost for one in (*views.values(), *stored.values()) for cost in one["inputs"].values()]
    assert page.locator(".flow path.reads").count() == len(edges) and page.locator(".flow path.named").count() == 2
    labels = [text for text in page.locator(".flow text").all_text_contents() if text]
    assert sorted(labels) == sorted(page.evaluate(DURATION, [cost for cost in edges if cost is not None]))
    assert "bookings\n20 rows · " in node(page, "bookings") and "maintenance\n0 rows · " in node(page, "maintenance")
    for name, one in stored.items():
        text = node(page, name)
        assert name[:7] in text and f"{one['rows']} rows · " in text
        cells = row(page, name[:7])
        assert cells[:2] == ["stored query", str(one["rows"])] and cells[5] == one["query"]
        bookings = page.evaluate(DURATION, [one["inputs"]["bookings"]])[0]
        assert f"bookings {bookings}" in cells[3]
    until(lambda: [row(page, name)[:2] for name in VIEWS] == [["view", str(talk.count(client, name))] for name in VIEWS], page)
    assert row(page, "risk")[4] == "clashes, rooms"
    require_drawn_apart(page)
    assert not violations(page)
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    picture(page, f"graph-{width}-{scheme}")


def test_the_graph_by_keyboard(server: ServerProcess, client: httpx.Client, visitor: Visitor) -> None:
    page = opened(visitor(), server)
    page.locator(".scroll:has(.flow)").focus()
    reached = []
    for _ in range(len(shown(client)) + 4):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.dataset.id"))
    assert reached[:2] == ["bookings", "maintenance"] and set(reached[-len(VIEWS) :]) == {f".{name}" for name in VIEWS}
    lit = page.locator(".flow .node.lit")
    page.locator('.flow .node[data-id=".risk"]').focus()
    assert lit.count() == 7, "all but idle: what it reads and names, at any depth"
    page.locator('.flow .node[data-id=".idle"]').focus()
    assert lit.count() == 3
    page.locator(".flow button.node").first.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.closest('tr').textContent").startswith("~")
    assert lit.count() == 0
    page.locator('.flow .node[data-id=".rooms"]').focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="rooms", exact=True).wait_for()


def test_the_graph_follows_changes_and_registrations(server: ServerProcess, client: httpx.Client, visitor: Visitor) -> None:
    page = opened(visitor(), server)
    page.locator('.flow .node[data-id=".risk"]').focus()
    talk.ok(talk.send(client, [upsert("maintenance", times(n)) for n in range(3)]))
    until(lambda: "3 rows" in node(page, "maintenance"), page)
    until(lambda: "maintenance –" not in row(page, "clashes")[3], page)
    talk.view(client, "later", {"sql": "SELECT room, stays FROM rooms WHERE stays > 3"})
    page.locator('.flow .node[data-id=".later"]').wait_for()
    assert page.evaluate("() => document.activeElement.dataset.id") == ".risk", "what had the focus keeps it"
    require_drawn_apart(page)
    page.get_by_role("button", name="Count rows again").click()
    until(lambda: row(page, "later")[1] == str(talk.count(client, "later")), page)
    talk.drop(client, ["later"])
    page.locator('.flow .node[data-id=".later"]').wait_for(state="detached")
    talk.ok(client.post("/v1/changes", json={"changes": [{"relation": "maintenance", "op": "truncate"}]}))
    until(lambda: "0 rows" in node(page, "maintenance"), page)


def test_no_views_and_a_hundred(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "unread", declared("id:int64, n:int64"))
        page = visitor(360, 740)
        page.goto(f"{server.url}/#/graph")
        page.get_by_text("No views yet.").wait_for()
        assert not violations(page)
        filled(client)
        page.locator(".flow .node", has_text="risk").wait_for()
        page.locator(".note", has_text="1 relation that no view reads is left out.").wait_for()
        kinds = (
            "SELECT b.id AS id FROM bookings b WHERE b.room > {}",
            "SELECT guest, count(*) AS n{} FROM bookings GROUP BY guest",
            VIEWS["risk"].replace("AS clashes", "AS clashes{}"),
        )
        names = [f"view_{n}_with_a_name_that_is_as_long_as_names_may_be"[: 8 + n % 3 * 20] for n in range(100 - len(VIEWS))]
        for n, name in enumerate(names):
            talk.view(client, name, {"sql": kinds[n % 3].format(n)})
        nodes = page.locator(".flow .node")
        until(lambda: nodes.count() == 100 + 4, page)
        assert page.locator("table.list tbody tr").count() == 100 + 4
        require_drawn_apart(page)
        assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        page = opened(visitor(), server)
        until(lambda: nodes.count() == 100 + 4, page)
        require_drawn_apart(page)
        assert page.locator('.flow .node[data-id="bookings"]').evaluate(
            "(node) => { const [at, room] = [node, document.querySelector('.scroll:has(.flow)')].map((one) => one.getBoundingClientRect());"
            " return at.top >= room.top && at.bottom <= room.bottom; }"
        ), "it begins where the relations are"
        picture(page, "graph-hundred-1280", whole=False)
        assert not violations(page)
