"""What a page shows when something goes wrong: no connection, no token, a view that is dropped, a change of hands."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, Route

from service.access.access_token import TEXT
from tests.dashboard.conftest import picture, violations
from tests.dashboard.data import CLASHES, STAYS, stay, upsert
from tests.end_to_end import talk
from tests.forked import finished
from tests.server_process import ServerProcess

Visitor = Callable[..., Page]


def fill(server: ServerProcess) -> None:
    client = server.client()
    talk.define(client, "stays", STAYS)
    talk.view(client, "clashes", {"sql": CLASHES})
    talk.ok(talk.send(client, [upsert("stays", stay(n)) for n in range(24)]))


def test_a_broken_connection_is_shown_and_resumed(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        fill(server)
        page = visitor()
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_text("18 rows in view").wait_for()
        page.locator("#link[data-state=live]").wait_for()
        page.get_by_text("Following: nothing has changed").wait_for()
        server.stop()
        page.locator("#link[data-state=lost]", has_text="no connection · as of").wait_for()
        assert page.get_by_text("18 rows in view").is_visible(), "what is shown stays"
        assert page.locator("body.stale").count() == 1, "and is marked as old"
        page.wait_for_function("() => document.getElementById('say').textContent.startsWith('The connection to the service is lost')")
        picture(page, "lost-1280-light", whole=False)
        assert not violations(page)
        server.start()
        talk.ok(talk.send(server.client(), [upsert("stays", stay(24)), upsert("stays", stay(25))]))
        page.locator("#link[data-state=live]").wait_for()
        assert page.locator("body.stale").count() == 0
        page.get_by_text("20 rows in view").wait_for()
        page.locator("tr.insert", has_text="guest 24").first.wait_for()
        server.stop()
        page.get_by_role("link", name="Query", exact=True).click()
        page.locator("#sql").fill("SELECT id FROM stays")
        page.get_by_role("button", name="Run once").click()
        page.locator("#sql-fault", has_text="Try again once it is back.").wait_for()


def test_a_view_that_is_dropped_while_it_is_shown(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        fill(server)
        page = visitor()
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_text("18 rows in view").wait_for()
        page.locator("#link[data-state=live]").wait_for()
        talk.drop(server.client(), ["clashes"])
        dropped = page.get_by_text("The view clashes has been dropped. It is shown as")
        dropped.wait_for()
        assert page.locator("table.rows tbody tr").count() > 0
        picture(page, "dropped-1280-light", whole=False)
        for sql in (CLASHES, CLASHES.replace("a.guest AS guest", "a.guest AS first")):
            talk.view(server.client(), "clashes", {"sql": sql})
            dropped.wait_for(state="detached")
            page.get_by_text("Following: nothing has changed").wait_for()
            talk.drop(server.client(), ["clashes"])
            talk.view(server.client(), "clashes", {"sql": sql.replace("b.guest AS other", "b.guest AS second")})  # before it is missed
            page.get_by_role("columnheader", name="second").first.wait_for()
            page.get_by_text("18 rows in view").wait_for()
            talk.drop(server.client(), ["clashes"])
            dropped.wait_for()


def test_a_view_that_fails_while_it_is_shown(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "stays", STAYS)
        talk.view(client, "guests", {"sql": "SELECT guest FROM stays GROUP BY guest", "groups": 2})
        page = visitor()
        page.goto(f"{server.url}/#/views/guests")
        page.get_by_text("Following: nothing has changed").wait_for()
        talk.ok(talk.send(client, [upsert("stays", stay(n)) for n in range(3)]))
        page.locator(".title .badge", has_text="failed").wait_for()
        page.locator(".trouble", has_text="The view has too many groups").first.wait_for()
        page.goto(f"{server.url}/#/")
        page.locator(".warnings li", has_text="The view guests has failed").get_by_role("link", name="Look at it").click()
        page.get_by_role("heading", name="guests").wait_for()
        picture(page, "failed-1280-light", whole=False)


def test_integers_that_no_number_of_javascript_has(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "stays", STAYS)
        talk.view(client, "clashes", {"sql": CLASHES})
        first = 2**53
        for id_ in (first, first + 1):
            talk.ok(talk.send(client, [upsert("stays", stay(0) | {"id": id_})]))
        page = visitor()
        page.goto(f"{server.url}/#/relations/stays")
        for id_ in (first, first + 1):
            page.get_by_role("cell", name=f"{id_}", exact=True).wait_for()
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_text("1 row in view").wait_for()
        page.get_by_text("Following: nothing has changed").wait_for()
        talk.ok(talk.send(client, [upsert("stays", stay(0) | {"id": first + 3})]))
        page.get_by_text("3 rows in view").wait_for()
        page.locator("tr.insert", has_text=f"{first + 1}").wait_for()
        columns = [{"name": name, "type": "int64"} for name in ("id", "low", "high")]
        talk.define(client, "spans", {"columns": columns, "key": ["id"], "intervals": {"span": {"start": "low", "end": "high"}}})
        talk.view(client, "spanned", {"sql": "SELECT a.id AS a, b.id AS b FROM spans a JOIN spans b ON overlaps(a.span, b.span)"})
        talk.ok(talk.send(client, [upsert("spans", {"id": 1, "low": 5, "high": 2**63 - 1})]))
        page.goto(f"{server.url}/#/views/spanned")
        page.get_by_text("1 row in view").wait_for()
        assert page.evaluate("async () => new (await import('/dashboard/axis.js')).Axis('int64').words(-0.3)") == "0", "not -0"
        with page.expect_response("**/window?*") as answered:
            page.get_by_role("button", name="Zoom out").click()
        assert answered.value.ok
        keyed = "SELECT a.id AS a, b.id AS b FROM spans a JOIN spans b ON a.low = b.low AND overlaps(a.span, b.span)"
        talk.view(client, "beside", {"sql": keyed})
        page.goto(f"{server.url}/#/views/beside")
        page.get_by_role("searchbox").fill("five")
        page.keyboard.press("Enter")
        page.locator(".timeline .note", has_text='got the text "five", expected a 64-bit integer').wait_for()
        page.goto(f"{server.url}/#/query?sql=SELECT max(id) AS id FROM stays")
        page.get_by_role("button", name="Run once").click()
        page.get_by_role("cell", name=f"{first + 3}", exact=True).wait_for()


def test_a_relation_that_is_dropped_while_it_is_shown(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "stays", STAYS)
        page = visitor()
        page.goto(f"{server.url}/#/relations/stays")
        page.get_by_text("0 rows ·").wait_for()
        assert client.delete("/v1/relations/stays").is_success
        page.get_by_text("The relation stays has been dropped. It is shown as").wait_for()
        talk.define(client, "stays", STAYS)
        talk.ok(talk.send(client, [upsert("stays", stay(7))]))
        page.get_by_role("cell", name="guest 7").wait_for()
        more = {"add_columns": [{"name": "price", "type": "int64", "nullable": True}]}
        assert client.patch("/v1/relations/stays", json=more).is_success
        talk.ok(talk.send(client, [upsert("stays", stay(8) | {"price": 77})]))
        page.get_by_role("cell", name="77", exact=True).wait_for()
        assert page.get_by_role("rowheader", name="price").count() == 1, "among the columns, too"
        assert not page.locator(".message", has_text="has been dropped").count()


def test_a_token_that_is_revoked_while_a_page_is_shown(tmp_path: Path, visitor: Visitor) -> None:
    """The page asks for another one, and goes on where it was."""
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        fill(server)
        made = {name: finished(["token", "create", name, "--scope", name, "--data", str(data)])[1] for name in ("admin", "read")}
        made["few"] = finished(["token", "create", "few", "--scope", "read", "--relations", "stays", "--data", str(data)])[1]
        tokens = {name: re.findall(TEXT, said)[0] for name, said in made.items()}
        page = visitor()
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_label("Token", exact=True).fill(tokens["read"])
        page.keyboard.press("Enter")
        page.get_by_text("Following: nothing has changed").wait_for()
        headers = {"Authorization": f"Bearer {tokens['admin']}"}
        assert server.client().delete("/v1/tokens/read", headers=headers).is_success
        page.locator("#token-fault", has_text="it was revoked").wait_for()
        page.get_by_label("Token", exact=True).fill(tokens["admin"])
        page.keyboard.press("Enter")
        page.get_by_text("18 rows in view").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token", exact=True).fill(tokens["few"])
        page.keyboard.press("Enter")
        page.locator("main .trouble", has_text="the access token 'few' is not for the view 'clashes'").wait_for()
        assert not page.get_by_text("Loading …").count()


def test_dropping_asks_first(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        fill(server)
        page = visitor()
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_role("button", name="Drop …").wait_for()
        page.once("dialog", lambda dialog: dialog.dismiss())
        page.get_by_role("button", name="Drop …").click()
        assert talk.ok(server.client().get("/v1/views"))["views"]
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Drop …").click()
        page.get_by_role("heading", name="Overview").wait_for()
        assert not talk.ok(server.client().get("/v1/views"))["views"]


def test_a_followers_token_that_has_expired(tmp_path: Path, visitor: Visitor) -> None:
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        talk.define(client, "stays", STAYS)
        talk.view(client, "clashes", {"sql": CLASHES, "changes": {"retain_rows": 4, "retain_bytes": 100_000}})
        page = visitor()
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_text("Following: nothing has changed").wait_for()
        talk.ok(talk.send(client, [upsert("stays", stay(n)) for n in range(24)]))  # more than the view keeps of one version
        page.get_by_text("Some changes came too fast to be followed").wait_for()
        page.get_by_text("18 rows in view").wait_for()
        for number in range(24, 90):  # it follows from now on, whenever that is
            talk.ok(talk.send(client, [upsert("stays", stay(number))]))
            page.wait_for_timeout(100)
            if page.locator("tr.insert").count():
                break
        page.locator("tr.insert").first.wait_for()


def test_tokens(tmp_path: Path, visitor: Visitor) -> None:
    data = tmp_path / "data"
    with ServerProcess(data) as server:
        fill(server)
        tokens = {}
        for name in ("admin", "read"):
            done, said = finished(["token", "create", name, "--scope", name, "--data", str(data)])
            assert done == 0
            tokens[name] = re.findall(TEXT, said)[0]
        page = visitor()
        page.goto(f"{server.url}/#/operations")
        field = page.get_by_label("Token", exact=True)
        field.wait_for()
        assert page.evaluate("() => document.activeElement.id") == "token"
        picture(page, "login-1280-light", whole=False)
        assert not violations(page)
        field.fill("lj_\N{EN DASH}")
        field.press("Enter")
        page.locator("#token-fault", has_text="This is not an access token").wait_for()
        field.fill("lj_" + "x" * 40)
        field.press("Enter")
        page.locator("#token-fault", has_text="the access token is not valid").wait_for()
        field.fill(tokens["read"])
        field.press("Enter")
        page.get_by_text("The token read has the scope read").wait_for()
        assert page.evaluate("() => sessionStorage.getItem('livejoin.token')") == tokens["read"]
        assert page.context.cookies() == []
        assert "lj_" not in page.evaluate("() => JSON.stringify(localStorage) + document.cookie + location.href")
        page.get_by_role("link", name="stays").first.click()
        page.get_by_role("cell", name="guest 7").wait_for()
        assert not page.get_by_text("Drop a file to load it").count(), "which this token may not"
        page.get_by_role("link", name="clashes").first.click()
        page.get_by_text("18 rows in view").wait_for()
        assert not page.get_by_role("button", name="Drop …").is_visible()
        page.get_by_role("link", name="Metrics").click()
        page.get_by_text("livejoin_changes_total").wait_for()
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token", exact=True).fill(tokens["admin"])
        page.keyboard.press("Enter")
        page.get_by_text("livejoin_changes_total").wait_for()
        page.get_by_role("link", name="Operations").click()
        page.get_by_role("table", name="Tokens").wait_for()
        page.get_by_label("Name").fill("etl")
        page.get_by_label("Scope").select_option("write")
        page.get_by_role("button", name="Create").click()
        page.get_by_text("The token etl, shown this once").wait_for()
        picture(page, "tokens-1280-light")
        assert not violations(page)
        made = page.locator(".message.good code").inner_text()
        headers = {"Authorization": f"Bearer {made}"}
        talk.ok(server.client().get("/v1/views", headers=headers))
        page.once("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Revoke etl").click()
        page.get_by_role("button", name="Revoke etl").wait_for(state="detached")
        assert server.client().get("/v1/views", headers=headers).status_code == 401
        page.goto(f"{server.url}/#/views/clashes")
        page.get_by_text("18 rows in view").wait_for()
        page.get_by_text("Following: nothing has changed").wait_for()  # with the token, which EventSource could not send


def test_what_is_refused_for_a_while_is_asked_again(service: ServerProcess, visitor: Visitor) -> None:
    """As after a restart, while views are being built."""
    page = visitor()
    problem = {"type": "/problems/view-building", "title": "The view is being built", "status": 503, "detail": "the view is at 10 %"}
    for path in ("window", "rows"):
        page.route(f"**/v1/views/clashes/{path}?*", lambda route: route.fulfill(status=503, json=problem), times=1)
    page.goto(f"{service.url}/#/views/clashes")
    page.get_by_text("the view is at 10 %").first.wait_for()
    page.get_by_text("rows in view").wait_for()
    page.get_by_role("table", name="Rows of clashes").wait_for()
    page.get_by_text("the view is at 10 %").first.wait_for(state="detached")


def test_long_names_stay_within_the_page(tmp_path: Path, visitor: Visitor) -> None:
    name, view, interval, column = ("n" * 63, "v" * 63, "i" * 63, "w" * 63)
    with ServerProcess(tmp_path / "data") as server:
        client = server.client()
        columns = [*STAYS["columns"], {"name": column, "type": "string"}]
        talk.define(client, name, {**STAYS, "columns": columns, "intervals": {interval: {"start": "starts", "end": "ends"}}})
        talk.view(client, view, {"sql": f"SELECT a.{column}, b.id FROM {name} a JOIN {name} b ON overlaps(a.{interval}, b.{interval})"})
        talk.ok(talk.send(client, [upsert(name, stay(0) | {column: "many words " * 60})]))
        page = visitor(360, 740)
        for address in (f"views/{view}", f"relations/{name}", f"views/{'x' * 63}", "query", ""):
            page.goto(f"{server.url}/#/{address}")
            page.locator("main h1").wait_for()
            page.wait_for_function("() => !document.querySelector('main .wait')")  # there may be two
            assert page.evaluate("() => document.documentElement.scrollWidth") == 360, address


def test_a_slow_answer_says_so(service: ServerProcess, visitor: Visitor) -> None:
    page = visitor()
    held: list[Route] = []
    page.route("**/v1/views/clashes", lambda route: held.append(route))
    page.goto(f"{service.url}/#/views/clashes")
    page.get_by_text("Waiting for the service, 1 s").wait_for()
    held[0].continue_()
    page.get_by_text("rows in view").wait_for()
    assert not page.get_by_text("Waiting for the service").count()
