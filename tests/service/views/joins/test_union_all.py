"""UNION ALL: keys, look-ups, windows, brute force, JSON, plans, refusals. `test_random_sql` compares random ones with DuckDB."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from livejoin.wire.batch import DELETE, UPSERT
from livejoin.wire.schema import RelationPatch
from service.access.access_token import EVERYONE
from service.api.views import _explain as explained
from service.checking.comparison import agrees, table_of
from service.checking.recomputation import recompute, total
from service.errors import Problem
from service.instance import Instance
from service.planning.planner import alternatives
from service.reading.cursors import open_rows
from service.views.parse import parse_view
from tests.service.definitions import refused
from tests.service.engine.test_engine import read_all
from tests.service.running import opened
from tests.service.twin import DEFINITIONS, Source, to_batch
from tests.service.views.joins.test_view_tree_join import a as a_row
from tests.service.views.joins.test_view_tree_join import b as b_row

BOTH = "SELECT x.id AS n, 'a' AS kind, x.room AS room FROM a x UNION ALL SELECT x.nr, 'b', x.room FROM b x"
VIEWS = {
    "both": BOTH,
    "twice": "SELECT x.id AS n FROM a x UNION ALL SELECT x.id FROM a x",
    "joins": "SELECT x.id AS n, y.note AS t FROM a x JOIN b y ON overlaps(x.stay, y.slot) WHERE x.room = 'A' "
    "UNION ALL SELECT x.id, coalesce(y.note, '-') FROM a x LEFT JOIN b y ON x.room = y.room "
    "UNION ALL SELECT y.nr, x.tag FROM a x FULL JOIN b y ON x.floor = y.floor "
    "UNION ALL SELECT x.id, x.tag FROM a x WHERE NOT EXISTS (SELECT 1 FROM b z WHERE z.nr = x.id)",
    "never": "SELECT x.id AS n FROM a x WHERE x.id = NULL UNION ALL SELECT y.nr FROM b y",
}


def prepared(folder: Path, *names: str) -> Instance:
    engine = opened(folder)
    for name, definition in DEFINITIONS.items():
        engine.put_relation(name, definition)
    for name in names or VIEWS:
        assert engine.put_view(name, {"sql": VIEWS[name]}, wait=60)[1] == "created"
    return engine


def test_a_change_has_the_key_of_its_select(tmp_path: Path) -> None:
    engine = prepared(tmp_path, "both", "twice")
    feeds = [feed for name in ("both", "twice") if (feed := engine.views[name].feed) is not None]
    both, twice = [feed.subscribe() for feed in feeds]
    engine.apply(to_batch([("a", UPSERT, a_row(1)), ("b", UPSERT, b_row(1))]))
    (chunk, *_) = both.next()
    assert chunk.keys is not None and chunk.rows is not None
    told = Counter((*key.values(), *row.values()) for key, row in zip(chunk.keys.to_pylist(), chunk.rows.to_pylist(), strict=True))
    assert told == Counter([(1, None, None, 1, "a", "A"), (None, "N", 1, 1, "b", "A")])
    assert chunk.keys.schema.names == ["x.id", "x_2.site", "x_2.nr"]
    (chunk, *_) = twice.next()
    assert chunk.keys is not None
    assert sorted(map(repr, chunk.keys.to_pylist())) == ["{'x.id': 1, 'x_2.id': None}", "{'x.id': None, 'x_2.id': 1}"]
    engine.apply(to_batch([("a", UPSERT, a_row(1, tag="w"))]))
    assert not [chunk for chunk in both.next() if chunk.kind == "rows"], "nothing that it shows has changed"
    engine.close()


def test_rows_are_looked_up_by_the_keys_of_one_alias(tmp_path: Path) -> None:
    engine = prepared(tmp_path, "both", "joins")
    engine.apply(to_batch([("a", UPSERT, a_row(i)) for i in range(5)] + [("b", UPSERT, b_row(i)) for i in range(3)]))

    def found(view: str, alias: str, **given: str) -> Counter[Any]:
        return read_all(open_rows(engine.readers, view, point=(alias, given)))

    assert found("both", "x", id="1") == Counter([(1, "a", "A")])
    assert found("both", "x_2", site="N", nr="2") == Counter([(2, "b", "A")])
    assert found("both", "x", id="7") == Counter()
    assert sum(found("joins", "x_2", room="A").values()) == 15, "by the column that joins it"
    for refused_, said in ((("y", {"id": "1"}), "only x, x_2"), (("x_2", {"nr": "1"}), "all of the key")):
        with pytest.raises(Problem, match=said):
            open_rows(engine.readers, "both", point=refused_)
    for window in ({"": ("1", "2")}, {"x.stay": ("1", "2")}):
        with pytest.raises(Problem, match="intervals of their own"):
            open_rows(engine.readers, "joins", window=window)
    engine.close()


def test_brute_force_agrees(tmp_path: Path) -> None:
    """That of `livejoin check`, and it would notice a SELECT that is passed over."""
    engine, source = prepared(tmp_path), Source(3, 30)
    for seed in range(4):
        engine.apply(to_batch([(name, UPSERT, source.row(name)) for name in "ab" for _ in range(20)]))
        engine.apply(to_batch([("a", DELETE, {"id": seed})]))
        tables = {name: table_of(engine, name) for name in engine.relations}
        for name, live in engine.views.items():
            assert agrees(engine, name, tables, print), name
            alone = [total(recompute(one, live.definitions, tables)).rows for one in live.view.query.united]
            assert sum(read_all(open_rows(engine.readers, name)).values()) == sum(alone) and (len(alone) < 3 or all(alone))
    engine.close()


def test_sql_and_json_are_the_same_view(tmp_path: Path) -> None:
    x = {"from": {"x": "a"}, "select": ["x.id as n", {"expression": "'a'", "as": "kind"}, "x.room"]}
    y = {"from": {"x": "b"}, "select": ["x.nr", {"expression": "'b'"}, "x.room"]}
    made = parse_view("v", {"union_all": [x, y], "changes": {"retain_rows": 10}}, DEFINITIONS)
    text = {"sql": BOTH, "changes": {"retain_rows": 10}}
    assert made.query == parse_view("v", text, DEFINITIONS).query
    nested = {"sql": "SELECT id AS n FROM a UNION ALL (SELECT nr FROM b UNION ALL SELECT id FROM a) ORDER BY n"}
    assert [len(one.aliases) for one in parse_view("v", nested, DEFINITIONS).query.united] == [1, 1, 1]
    assert "union_all.1.select.0" in str(refused({"union_all": [x, y | {"select": ["x.nope"]}]}, DEFINITIONS).detail)


def test_the_plan_is_that_of_each_select(tmp_path: Path) -> None:
    engine = prepared(tmp_path, "both")
    told = explained(engine, EVERYONE, {"sql": VIEWS["joins"]})
    assert told["alternatives"] == [] and "natural" not in told and told["plan"]["class"].count(" UNION ALL (") == 3
    assert told["plan"]["notes"][0].startswith("the SELECTs are kept separately: (x, y) by interval-tree, (x_2, y_2) by")
    assert explained(engine, EVERYONE, {"sql": BOTH, "guarantee": "strict"})["plan"]["guarantee"] == "strict"
    assert explained(engine, EVERYONE, {"sql": BOTH})["measured"].keys() == {"both"}
    assert alternatives(parse_view("v", {"sql": BOTH}, DEFINITIONS).query, DEFINITIONS) == []
    weak = f"{BOTH} UNION ALL SELECT x.id, 'c', y.room FROM a x JOIN b y ON x.id <> y.nr AND x.floor = y.floor"
    assert refused({"sql": weak, "guarantee": "strict"}, DEFINITIONS).type == "infeasible-view"
    assert "of its own" in str(refused({"sql": BOTH, "algorithm": "interval-tree"}, DEFINITIONS).detail)
    engine.close()


def test_what_is_compared_takes_no_nulls_later(tmp_path: Path) -> None:
    engine = prepared(tmp_path, "joins", "both")
    with pytest.raises(Problem, match="joins"):
        engine.patch_relation("a", RelationPatch(nullable=["starts"]))
    engine.patch_relation("a", RelationPatch(nullable=["tag"]))
    engine.apply(to_batch([("a", UPSERT, a_row(1)), ("b", UPSERT, b_row(1))]))
    assert sum(read_all(open_rows(engine.readers, "both")).values()) == 2
    with pytest.raises(Problem, match="both"):
        engine.drop_relation("b")
    engine.close()
