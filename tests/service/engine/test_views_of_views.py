"""Views that name views: what they mean when relations change their definitions, what may be dropped, and what a start makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.schema import parse_patch
from service.checking.comparison import compare
from service.errors import Problem
from service.instance import Instance
from service.reading.cursors import open_rows
from tests.service.running import PAIR, batch, opened, rows_of, running

OVER = {
    "early": {"sql": "SELECT * FROM a WHERE s < 8"},
    "both": {"sql": "SELECT e.id AS i, y.id AS j FROM (early e JOIN b y ON overlaps(e.x, y.x))"},
    "json": {"from": {"v": "both"}, "where": [{"column": "v.i", "op": ">", "value": 1}], "select": ["v.j as j"]},
    "count": {"sql": "SELECT count(*) AS n FROM both"},
}


def filled(folder: Path) -> Instance:
    engine = running(folder, PAIR)
    engine.apply(batch(("upsert", "a", rows_of(0, 9)), ("upsert", "b", rows_of(3, 7))))
    for name, definition in OVER.items():
        engine.put_view(name, definition, wait=60)
    return engine


def all_rows(engine: Instance) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for name in OVER:
        reader = open_rows(engine.readers, name)
        found[name] = sorted(reader.read(1000).to_pylist(), key=repr)
        reader.close()
    return found


def test_what_views_read(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    read = {name: [*engine.views[name].view.reads] for name in OVER}
    assert read == {"early": [], "both": ["early"], "json": ["both"], "count": ["both"]}
    assert "early is a view: its definition is written out" in engine.views["both"].view.plan.notes
    by_hand = {"sql": "SELECT e.id AS i, y.id AS j FROM a e JOIN b y ON overlaps(e.x, y.x) WHERE e.s < 8"}
    engine.put_view("by_hand", by_hand, wait=60)
    assert engine.views["by_hand"].view.stated == engine.views["both"].view.stated
    assert engine.put_view("both", OVER["both"])[1] == "same"
    before = all_rows(engine)
    assert before["count"] == [{"n": len(before["both"])}]
    assert [row["j"] for row in before["json"]] == sorted(row["j"] for row in before["both"] if row["i"] > 1)
    engine.close()


def test_names_are_folded(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    engine.put_view("upper", {"sql": "SELECT COUNT(*) AS n FROM Both"}, wait=60)
    assert engine.views["upper"].view.stated == engine.views["count"].view.stated
    engine.close()


def test_a_view_keeps_its_columns(tmp_path: Path) -> None:
    """Those that `*` had when it was registered, also for views that read it later, and after a start."""
    engine = filled(tmp_path)
    columns = list(all_rows(engine)["early"][0])
    engine.patch_relation("a", parse_patch({"add_columns": [{"name": "later", "type": "int64", "nullable": True}]}))
    engine.put_view("after", {"sql": "SELECT * FROM early"}, wait=60)
    for _ in range(2):
        assert list(engine.views["after"].shown.schema.names) == columns
        engine.close()
        engine = opened(tmp_path)
    with pytest.raises(Problem, match="column later"):
        engine.put_view("more", {"sql": "SELECT later FROM early"})
    engine.close()


def test_drops(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    for name, users in (("early", ["both"]), ("both", ["count", "json"])):
        with pytest.raises(Problem) as caught:
            engine.drop_view(name)
        assert caught.value.type == "relation-in-use" and caught.value.extensions["views"] == users
    with pytest.raises(Problem) as caught:
        engine.drop_relation("a")
    assert caught.value.extensions["views"] == ["both", "count", "early", "json", "v"]
    for name in ("count", "json", "both", "early"):
        engine.drop_view(name)
    engine.close()


def test_a_start_and_a_check(tmp_path: Path) -> None:
    engine = filled(tmp_path)
    before = all_rows(engine)
    engine.close()
    engine = opened(tmp_path)
    assert all_rows(engine) == before
    engine.apply(batch(("delete", "a", rows_of(0, 4))))
    assert all_rows(engine) != before
    engine.close()
    said: list[str] = []
    assert compare(tmp_path, ["v", *OVER], ["both", "count"], said.append) == [], said  # without the views that these read
    engine = opened(tmp_path)
    assert {view.state for view in engine.views.values()} == {"live"}
    engine.close()


UNKNOWN = ["SELECT v.id FROM missing v", "SELECT * FROM self", "WITH w AS (SELECT * FROM nothing) SELECT 1 AS i FROM a"]


@pytest.mark.parametrize("sql", UNKNOWN)
def test_unknown(sql: str, tmp_path: Path) -> None:
    engine = filled(tmp_path)
    with pytest.raises(Problem, match="there is no relation or view"):
        engine.put_view("self", {"sql": sql})
    engine.close()


def test_what_is_named_in_vain_cannot_be_dropped(tmp_path: Path) -> None:
    """A definition is read again at each start, with all that it names."""
    engine = filled(tmp_path)
    engine.put_view("w", {"sql": "WITH unused AS (SELECT id FROM b), other AS (SELECT i FROM both) SELECT id FROM a"}, wait=60)
    for name in ("json", "count"):
        engine.drop_view(name)
    with pytest.raises(Problem, match="the view both is read by w"):
        engine.drop_view("both")
    engine.close()
    engine = opened(tmp_path)
    assert engine.views["w"].state in ("building", "live")
    engine.close()
