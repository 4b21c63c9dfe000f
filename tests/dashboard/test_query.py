"""The query page and the loading of files, in a real browser."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from playwright.sync_api import FilePayload, Page

from tests.dashboard.conftest import picture, violations
from tests.dashboard.data import stay, upsert
from tests.end_to_end import talk
from tests.server_process import ServerProcess

Visitor = Callable[..., Page]
JOIN = "SELECT a.id AS i, b.id AS j FROM stays a\nJOIN stays b ON a.room = b.room AND overlaps(a.stay, b.stay)"


@pytest.fixture
def editor(service: ServerProcess, visitor: Visitor) -> Page:
    page = visitor()
    page.goto(f"{service.url}/#/query")
    page.locator("#sql").wait_for()
    return page


def test_names_are_completed_and_words_coloured(editor: Page) -> None:
    sql = editor.locator("#sql")
    sql.fill("")
    sql.press_sequentially("SELECT * FROM president_te")
    editor.get_by_role("option", name="president_terms").first.wait_for()
    editor.keyboard.press("ArrowDown")
    picture(editor, "completion-1280-light", whole=False)
    assert not violations(editor)
    editor.keyboard.press("Enter")
    sql.press_sequentially(" p WHERE p.par")
    editor.get_by_role("option", name="party").click()
    assert sql.input_value() == "SELECT * FROM president_terms p WHERE p.party"
    assert editor.locator(".back .keyword").all_inner_texts() == ["SELECT", "FROM", "WHERE"]
    assert editor.locator(".back").inner_text().strip() == sql.input_value()
    sql.press_sequentially(" = 'FROM")
    assert editor.locator(".back .string").inner_text() == "'FROM", "no words in a text"


@pytest.mark.parametrize(
    ("sql", "marked", "said"),
    [
        ("SELECT *\nFROM stays a\nJOIN stays b ON overlaps(a.sty, b.stay)", "sty", "sty"),
        ("SELECT *\nFROM nowhere a", "nowhere", "nowhere"),
        ("SELEC *\nFROM stays a", "SELEC", "begins with SELECT"),
        ("SELECT *\nFROM stays a\nJION stays b ON a.id = b.id", "JION", "did you mean JOIN?"),
        ("SELECT *\nFROM stays a\nWHERE overlap(a.stay, a.stay)", "overlap", "did you mean overlaps(…)?"),
        ("SELECT * FROM stays a WHERE (a.id = 1", None, "line 1"),
        ("SELECT a.id FROM stays a JOIN stays a ON overlaps(a.stay, a.stay)", None, "used twice"),
    ],
)
def test_a_refusal_stands_at_its_place(editor: Page, sql: str, marked: str | None, said: str) -> None:
    editor.locator("#sql").fill(sql)
    editor.locator("#sql").press("Control+Enter")
    trouble = editor.get_by_role("alert").filter(has_text=said).first
    trouble.wait_for()
    editor.locator(".back .fault").first.wait_for()
    if marked is not None:
        assert editor.locator(".back .fault").inner_text() == marked
    assert editor.evaluate("() => document.activeElement.id") == "sql"
    assert editor.locator("#sql").get_attribute("aria-describedby") == "sql-fault"
    picture(editor, "refusal-1280-light", whole=False)
    editor.locator("#sql").press_sequentially(" ")
    assert not editor.locator(".back .fault").count(), "gone with the next edit"


def test_all_refused_places_are_marked(editor: Page) -> None:
    editor.locator("#sql").fill("SELECT nope(a.id), a.id, a.id || nix(a.id)\nFROM stays a, stays b\nWHERE a.id = 'x' LIMIT 3")
    editor.locator("#sql").press("Control+Enter")
    editor.get_by_role("alert").locator("li").nth(3).wait_for()
    marked = editor.locator(".back .fault")
    assert [marked.nth(at).inner_text() for at in range(marked.count())] == ["nope", "nix", "'x'", "3"]


def test_explaining_and_registering(service: ServerProcess, editor: Page) -> None:
    editor.locator("#sql").fill(JOIN)
    editor.get_by_role("button", name="Explain").click()
    editor.get_by_role("table", name="The plan and its alternatives").wait_for()
    assert editor.locator("tr.taken").count() == 1 and editor.locator(".plans tbody tr").count() > 1
    editor.get_by_role("button", name="Register").click()
    editor.get_by_text("Give the view a name.").wait_for()
    editor.get_by_label("View", exact=True).fill("Not A Name")
    editor.get_by_role("button", name="Register").click()
    editor.get_by_text("Not A Name cannot be a name").wait_for()
    editor.get_by_label("View", exact=True).fill("clashes")
    editor.get_by_role("button", name="Register").click()
    editor.get_by_text("There is a view clashes with another definition").wait_for()
    editor.get_by_label("View", exact=True).fill("meetings")
    editor.keyboard.press("Enter")
    editor.get_by_role("heading", name="meetings").wait_for()
    editor.get_by_text("rows in view").wait_for()
    assert not editor.get_by_text("has been dropped").count()
    talk.drop(service.client(), ["meetings"])


def test_running_once(editor: Page) -> None:
    sql, run = editor.locator("#sql"), editor.get_by_role("button", name="Run once")
    sql.fill("SELECT id, guest, note FROM (SELECT *, NULL AS note FROM stays) WHERE id < 3 ORDER BY id DESC")
    run.click()
    table = editor.get_by_role("table", name="Rows of the query")
    table.wait_for()
    assert table.locator("thead").inner_text().split() == ["id", "guest", "note"]
    assert [row.split("\t")[:2] for row in table.locator("tbody tr").all_inner_texts()] == [[f"{n}", f"guest {n}"] for n in (2, 1, 0)]
    assert re.search("^3 rows in .* s at version [0-9]", editor.locator(".result .note").inner_text())
    assert not violations(editor)
    picture(editor, "once-1280-light", whole=False)
    sql.fill("SELECT a.id AS i, b.id AS j, c.id AS k FROM stays a, stays b, stays c")
    run.click()
    editor.get_by_text("1,000 rows, the first of more").wait_for()
    sql.fill("SELECT id FROM stays WHERE id < 0")
    run.click()
    editor.locator(".result").get_by_text("No rows.").wait_for()


@pytest.mark.parametrize(
    ("sql", "marked", "said"),
    [
        ("SELECT id FROM nowhere", "nowhere", "nowhere"),
        ("SELECT guest,\n FROM stays WHERE (id = 1", None, ""),
        ("DROP TABLE stays", None, "SELECT"),
        ("SELECT CAST(guest AS bigint) AS n FROM stays", None, "guest"),
    ],
)
def test_what_cannot_be_run_once(editor: Page, sql: str, marked: str | None, said: str) -> None:
    editor.locator("#sql").fill(sql)
    editor.get_by_role("button", name="Run once").click()
    editor.get_by_role("alert").filter(has_text=said).first.wait_for()
    if marked is not None:
        assert editor.locator(".back .fault").inner_text() == marked
    assert not editor.get_by_role("table", name="Rows of the query").count()


def drop(page: Page, name: str, body: bytes) -> None:
    page.locator("#file").set_input_files(FilePayload(name=name, mimeType="application/octet-stream", buffer=body))


def test_files_are_loaded(service: ServerProcess, visitor: Visitor) -> None:
    client = service.client()
    page = visitor()
    page.goto(f"{service.url}/#/relations/stays")
    page.get_by_text("Drop a file to load it").wait_for()
    rows = [stay(id_) for id_ in (2000, 2001)]
    drop(page, "more.csv", ("id,room,guest,starts,ends\n" + "".join(",".join(map(str, row.values())) + "\n" for row in rows)).encode())
    page.locator("main").get_by_text("more.csv: 2 rows applied").wait_for()
    drop(page, "more.jsonl", b'{"id": 2002, "room": "x", "guest": "y", "starts": "2026-01-01T00:00:00Z"}\n')
    page.locator("main").get_by_text("more.jsonl: 1 row applied").wait_for()
    made = io.BytesIO()
    day = pa.array([datetime(2026, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    parquet.write_table(pa.table({"id": [2003], "room": ["x"], "guest": ["z"], "starts": day}), made)
    drop(page, "more.parquet", made.getvalue())
    page.locator("main").get_by_text("more.parquet: 1 row applied").wait_for()
    talk.ok(talk.send(client, [{"relation": "stays", "op": "delete", "key": {"id": id_}} for id_ in range(2000, 2004)]))


def test_bad_rows_are_listed_and_skipped_on_request(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    page.goto(f"{service.url}/#/relations/stays")
    page.get_by_text("Drop a file to load it").wait_for()
    lines = ("id,room,guest,starts,ends", "3000,r,g,2026-01-02,2026-01-01", "x,r,g,2026-01-02,", "3001,r,g,2026-01-02T00:00:00Z,")
    body = "\n".join(lines).replace("-02,", "-02T00:00:00Z,").replace("-01-01", "-01-01T00:00:00Z").encode()
    drop(page, "bad.csv", body)
    page.get_by_text("2 of 3 changes are bad; nothing was applied").wait_for()
    table = page.get_by_role("table", name="Bad rows")
    assert table.locator("tbody tr").all_inner_texts()[0].startswith("1\tends\t")
    assert table.locator("tbody tr").nth(1).inner_text().startswith("2\tid\t")
    picture(page, "bad_rows-1280-light")
    assert not violations(page)
    page.get_by_label("load the good rows even if some are bad").check()
    drop(page, "bad.csv", body)
    page.locator("main").get_by_text("bad.csv: 1 row applied").wait_for()
    assert page.get_by_text("2 skipped rows").is_visible()
    drop(page, "bad.txt", b"x")
    page.locator("main").get_by_text("bad.txt is not a file that can be loaded here").wait_for()
    talk.ok(talk.send(service.client(), [{"relation": "stays", "op": "delete", "key": {"id": 3001}}]))


DROP = """(place, id) => {
    const data = new DataTransfer();
    const row = JSON.stringify({ id, room: "r", guest: "g", starts: "2026-01-01T00:00:00Z" });
    data.items.add(new File([row], `${id}.jsonl`));
    return place.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


def test_a_file_is_dropped(service: ServerProcess, visitor: Visitor) -> None:
    """Anywhere on the page of a relation; on others, the browser must not open it in place of the dashboard."""
    page = visitor()
    page.goto(f"{service.url}/#/")
    page.locator("main").get_by_text("stays").wait_for()
    assert page.locator("main").evaluate(DROP, 3999) is False, "the browser does nothing with it"
    page.goto(f"{service.url}/#/relations/stays")
    page.get_by_text("Drop a file to load it").wait_for()
    for position in (".drop", "main table"):
        assert page.locator(position).first.evaluate(DROP, 4000) is False
        page.locator("main").get_by_text("4000.jsonl: 1 row applied").wait_for()
        page.get_by_text("61 rows ·").wait_for()
        page.reload()
        page.get_by_text("Drop a file to load it").wait_for()
    talk.ok(talk.send(service.client(), [{"relation": "stays", "op": "delete", "key": {"id": 4000}}]))


def test_nothing_that_the_data_holds_is_taken_for_markup(service: ServerProcess, visitor: Visitor) -> None:
    client = service.client()
    nasty = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
    talk.ok(talk.send(client, [upsert("stays", stay(5000) | {"guest": nasty}), upsert("stays", stay(5006, 9))]))
    page = visitor()
    page.goto(f"{service.url}/#/views/clashes")
    page.get_by_text("rows in view").wait_for()
    page.goto(f"{service.url}/#/relations/stays")
    for _ in range(3):
        if page.get_by_text(nasty).count():
            break
        page.get_by_role("button", name="Next page").click()
        page.wait_for_timeout(200)
    page.get_by_text(nasty).first.wait_for()
    assert page.locator("main img").count() == 0 and "taken" not in page.title()
    talk.ok(talk.send(client, [{"relation": "stays", "op": "delete", "key": {"id": id_}} for id_ in (5000, 5006)]))
