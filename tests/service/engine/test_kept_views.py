"""A view whose definition this version refuses fails alone; a full disk refuses changes of the catalogue, and nothing else happens."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from service.durability.checksums import checksum
from service.errors import Problem
from service.instance import Instance
from service.query.model import Query
from service.reading.cursors import open_rows
from service.views.stages.making import shown_of
from tests.server_process import ServerProcess
from tests.service.running import DEFINITION, PAIR, batch, ids, opened, parts, rows_of, running


def spoil(folder: Path, definition: dict[str, object]) -> None:
    """Have the view `w` another definition, as if an earlier version had accepted it."""
    with contextlib.closing(sqlite3.connect(folder / "livejoin.db", isolation_level=None)) as db:
        id_, query = db.execute("SELECT id, query FROM views WHERE name = 'w'").fetchone()
        text = json.dumps(definition)
        db.execute("UPDATE views SET definition = ?, crc = ? WHERE name = 'w'", (text, checksum(id_, "w", text, query)))


REFUSED = [
    {"sql": "SELECT a.id FROM a TABLESAMPLE SYSTEM (10)"},
    {"sql": "SELECT FROM WHERE ((("},
    {"sql": "SELECT a.id FROM a QUALIFY " + "(" * 3000},
    {"from": {"a": "a"}, "where": [{"column": "a.id", "op": "~", "value": 1}]},
]


def test_a_view_that_cannot_be_made_fails_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path)
    engine.put_view("w", {"sql": "SELECT a.id AS i FROM a"}, wait=60)
    engine.close()

    def fail(query: Query, *rest: Any) -> Any:
        if query.aliases == (("a", "a"),):
            raise KeyError("r")
        return shown_of(query, *rest)

    monkeypatch.setattr("service.views.live_view.shown_of", fail)
    engine = opened(tmp_path)
    assert engine.state == "ready" and {name: view.state for name, view in engine.views.items()} == {"v": "live", "w": "failed"}
    engine.close()


@pytest.mark.parametrize("definition", REFUSED)
def test_a_view_that_is_refused_fails_alone(definition: dict[str, object], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = running(tmp_path)
    engine.put_view("w", {"sql": "SELECT a.id AS i FROM a"}, wait=60)
    engine.apply(batch(("upsert", "a", rows_of(0, 5)), ("upsert", "b", rows_of(0, 2))))
    expected = ids(open_rows(engine.readers, "v"))
    engine.close()
    spoil(tmp_path, definition)
    engine = opened(tmp_path)
    assert engine.state == "ready" and ids(open_rows(engine.readers, "v")) == expected
    view = engine.views["w"]
    assert view.state == "failed" and view.problem is not None and view.problem.type == "view-failed"
    assert "refuses the definition of the view w" in view.problem.detail and "drop it" in view.problem.detail
    assert view.view.definition == definition and "the definition of the view w is refused" in caplog.text
    with pytest.raises(Problem, match="refuses the definition"):
        open_rows(engine.readers, "w")
    engine.apply(batch(("upsert", "a", rows_of(7, 1))))
    with pytest.raises(Problem, match="is used by v, w"):
        engine.drop_relation("a")
    engine.close()
    engine = opened(tmp_path)
    assert engine.views["w"].state == "failed"
    engine.drop_view("w")
    assert engine.put_view("w", {"sql": "SELECT a.id AS i FROM a"}, wait=60)[1] == "created"
    engine.close()


def test_what_is_noted_beside_a_definition(tmp_path: Path) -> None:
    engine = running(tmp_path)
    (record,) = parts(engine).log.catalog()[1]
    assert record.query is not None
    noted = json.loads(record.query)
    assert noted["relations"].keys() == {"a", "b"} and noted["query"]["aliases"] == [["a", "a"], ["b", "b"]]
    engine.close()


def full(engine: Instance) -> int:
    """Let the database not grow any more. Gives what it was allowed before."""
    db = parts(engine).log._db
    before: int = db.execute("PRAGMA max_page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {db.execute('PRAGMA page_count').fetchone()[0]}")
    return before


def test_a_full_disk_refuses_changes_of_the_catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = running(tmp_path)
    large = {"sql": "SELECT a.id AS i FROM a WHERE a.tag <> '" + "x" * 60_000 + "'"}

    def refused() -> None:
        with pytest.raises(Problem) as caught:
            engine.put_view("w", large)
        assert caught.value.type == "disk-full" and caught.value.status == 503
        assert engine.state == "ready" and "w" not in engine.views

    before = full(engine)
    refused()
    parts(engine).log._db.execute(f"PRAGMA max_page_count = {before}")
    with monkeypatch.context() as patch:
        patch.setattr("service.durability.log._CATALOG_ROOM", 1 << 60)
        refused()
        with pytest.raises(Problem, match="no room"):
            engine.put_relation("c", DEFINITION)
        assert "c" not in engine.relations
    assert engine.put_view("w", large, wait=60)[1] == "created" and engine.put_relation("c", DEFINITION) == "created"
    assert engine.put_view("x", PAIR, wait=60)[1] == "created"
    engine.apply(batch(("upsert", "a", rows_of(0, 5))))
    assert engine.close()
    engine = opened(tmp_path)
    assert set(engine.views) == {"v", "w", "x"} and "c" in engine.relations
    engine.close()


def test_over_http(tmp_path: Path) -> None:
    engine = running(tmp_path)
    engine.put_view("w", {"sql": "SELECT a.id AS i FROM a"}, wait=60)
    engine.close()
    spoil(tmp_path, REFUSED[0])
    with ServerProcess(tmp_path) as server:
        client = server.client()
        assert client.get("/readyz").status_code == 200
        shown = {view["name"]: view for view in client.get("/v1/views").json()["views"]}
        assert shown["v"]["state"] == "live" and shown["w"]["state"] == "failed"
        assert "refuses the definition" in shown["w"]["problem"]["detail"] and shown["w"]["definition"] == REFUSED[0]
        for path in ("rows", "count", "changes?wait=0"):
            answer = client.get(f"/v1/views/w/{path}")
            assert answer.status_code == 503 and answer.json()["type"] == "/problems/view-failed", path
        assert client.put("/v1/views/w", json=REFUSED[0]).status_code == 422
        assert client.delete("/v1/views/w").status_code == 204
        assert server.stop() == 0
