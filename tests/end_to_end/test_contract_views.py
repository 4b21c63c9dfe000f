"""docs/reference/rest.md, *Views*: line by line, as a client meets it."""
from __future__ import annotations

import time
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.end_to_end.bookings import CLASHES, EVERYTHING, Case, day


def put(case: Case, definition: dict[str, Any] | str, name: str | None = None) -> Any:
    return case.client.put(f"/v1/views/{name or case.v}", json={"sql": definition} if isinstance(definition, str) else definition)


def created(case: Case, definition: dict[str, Any] | str, name: str | None = None) -> dict[str, Any]:
    """Return a view that did not exist before, once it is live: the answer is `201` with it, or `202` if that takes over a second."""
    made = put(case, definition, name)
    assert made.status_code in (201, 202), f"{definition}: {made.text}"
    assert made.json()["state"] == ("live" if made.status_code == 201 else "building")
    return talk.live(made, case.client, name or case.v)


def test_created_same_different(case: Case) -> None:
    case.define()
    body = created(case, case.json)
    assert body["name"] == case.v and body["state"] == "live" and body["empty"] is True and body["version"] == case.version()
    assert put(case, case.json).status_code == 200
    talk.problem(put(case, {**case.json, "where": []}), 409, "definition-differs")
    assert talk.ok(case.client.get(f"/v1/views/{case.v}"))["definition"]["from"] == case.json["from"]


def test_sql_again_is_the_same(case: Case) -> None:
    case.define()
    created(case, case.sql)
    assert put(case, case.sql).status_code == 200


def test_get_list_delete(live: Case) -> None:
    one = talk.ok(live.client.get(f"/v1/views/{live.v}"))
    assert {"name", "state", "version", "empty", "definition", "plan", "statistics"} <= set(one)
    assert one["empty"] is False and one["version"] == live.version()
    plan = one["plan"]
    assert set(plan) == {"class", "algorithm", "theorem", "guarantee", "bounds", "order", "notes"}
    assert plan["algorithm"] == "interval-tree" and plan["guarantee"] == "strict" and "keyed" in plan["class"]
    assert set(plan["bounds"]) == {"space", "update", "delay"} and "Tao" in plan["theorem"]
    statistics = one["statistics"]
    assert statistics["intervals"] == 6, "four confirmed bookings and two jobs"
    assert statistics["bytes"] > 0 and {"p50", "p99"} <= set(statistics["update_seconds"]) and "max" in statistics["delay_steps"]
    listed = talk.ok(live.client.get("/v1/views"))
    assert live.v in [view["name"] for view in listed["views"]]
    deleted = live.client.delete(f"/v1/views/{live.v}")
    assert deleted.status_code == 204 and deleted.content == b""
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/rows"), ("GET", "/count"), ("GET", "/changes")):
        talk.problem(live.client.request(method, f"/v1/views/{live.v}{path}"), 404, "not-found")


def test_json_and_sql_agree(live: Case) -> None:
    talk.view(live.client, f"{live.v}_json", live.json)
    columns = ["booking", "job", "clash_start", "clash_end"]
    rows = sorted(talk.read(live.client, live.v, talk.JSONL, columns))
    assert rows == sorted(talk.read(live.client, f"{live.v}_json", talk.JSONL, columns))
    assert rows == [(1, 7, day(4), day(5)), (2, 7, day(4), day(6)), (3, 8, day(25), day(26))]


SPELLINGS = {
    "function": "SELECT b.id AS booking, m.id AS job FROM {b} b JOIN {m} m ON b.room = m.room AND overlaps(b.stay, m.slot)",
    "operator": "SELECT b.id AS booking, m.id AS job FROM {b} b JOIN {m} m ON b.room = m.room AND b.stay OVERLAPS m.slot",
    "pairs": "SELECT b.id AS booking, m.id AS job FROM {b} b JOIN {m} m ON b.room = m.room"
    " AND (b.starts, b.ends) OVERLAPS (m.begins, m.finishes)",
    "comma join": "SELECT b.id AS booking, m.id AS job FROM {b} b, {m} m WHERE m.room = b.room AND overlaps(m.slot, b.stay)",
    "cross join": "SELECT b.id AS booking, m.id AS job FROM {b} b CROSS JOIN {m} m WHERE m.room = b.room AND overlaps(m.slot, b.stay)",
    "inequalities with null": "SELECT b.id booking, m.id job FROM {b} AS b JOIN {m} AS m ON b.room = m.room"
    " AND b.starts < m.finishes AND (b.ends IS NULL OR m.begins < b.ends)",
    "coalesce": "SELECT b.id booking, m.id job FROM {b} AS b JOIN {m} AS m ON b.room = m.room"
    " AND m.finishes > b.starts AND COALESCE(b.ends, 'infinity') > m.begins",
    "upper case": "select B.ID as BOOKING, M.ID as JOB from {b} as B inner join {m} as M on (B.ROOM = M.ROOM) and OVERLAPS(B.STAY, M.SLOT)",
    "quoted": 'SELECT b."id" AS "booking", m."id" AS "job" FROM "{b}" b JOIN {m} m ON b."room" = m.room AND overlaps(b.stay, m."slot")',
}


@pytest.mark.parametrize("sql", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_spellings_of_an_overlap(live: Case, sql: str) -> None:
    made = talk.view(live.client, f"{live.v}_x", sql.format(b=live.b, m=live.m))
    assert made["plan"]["algorithm"] == "interval-tree" and made["plan"]["guarantee"] == "strict"
    assert sorted(talk.read(live.client, f"{live.v}_x", talk.JSONL, ["booking", "job"])) == CLASHES


def test_plain_comparisons_keep_the_meaning_of_sql(live: Case) -> None:
    condition = "b.room = m.room AND b.starts < m.finishes AND m.begins < b.ends"
    talk.view(live.client, f"{live.v}_x", f"SELECT b.id AS booking, m.id AS job FROM {live.b} b, {live.m} m WHERE {condition}")
    assert sorted(talk.read(live.client, f"{live.v}_x", talk.JSONL, ["booking", "job"])) == CLASHES[:2], "a null end matches nothing"


def test_without_select_all_columns(live: Case) -> None:
    definition = {name: value for name, value in live.json.items() if name != "select"}
    talk.view(live.client, f"{live.v}_x", definition)
    row = talk.ok(live.client.get(f"/v1/views/{live.v}_x/rows", headers={"Accept": talk.JSON}))["rows"][0]
    assert list(row) == ["id", "room", "starts", "ends", "status", "id_1", "room_1", "begins", "finishes"]


def test_names_of_columns_without_as(live: Case) -> None:
    talk.view(live.client, f"{live.v}_x", f"SELECT b.id, m.id, m.room AS place FROM {live.b} b, {live.m} m WHERE overlaps(b.stay, m.slot)")
    row = talk.ok(live.client.get(f"/v1/views/{live.v}_x/rows", headers={"Accept": talk.JSON}))["rows"][0]
    assert list(row) == ["id", "id_1", "place"]


def test_duration_and_unbounded_sides(live: Case) -> None:
    sql = (
        f"SELECT x.id AS one, y.id AS two, intersection(x.stay, y.stay) AS both, duration(x.stay, y.stay) AS d"
        f" FROM {live.b} x JOIN {live.b} y ON overlaps(x.stay, y.stay) AND x.id < y.id"
    )
    made = talk.view(live.client, f"{live.v}_x", sql)
    assert made["plan"]["guarantee"] == "strict" and made["plan"]["algorithm"] == "interval-tree"
    talk.ok(talk.send(live.client, [live.booking(10, "Z", 28, None)]))
    rows = {row[:2]: row[2:] for row in talk.read(live.client, f"{live.v}_x", talk.JSONL, ["one", "two", "both_start", "both_end", "d"])}
    assert rows[1, 2] == (day(4), day(5), 86_400_000_000) and rows[3, 10] == (day(28), None, None)


def test_the_same_relation_twice(live: Case) -> None:
    both = {"from": {"x": live.b, "y": live.b}, "join": [{"overlaps": ["x.stay", "y.stay"]}], "select": ["x.id as one", "y.id as two"]}
    found = {}
    for name, more in (("all", []), ("unequal", [{"not_equal": ["x.id", "y.id"]}]), ("once", [{"less": ["x.id", "y.id"]}])):
        talk.view(live.client, f"{live.v}_{name}", {**both, "join": both["join"] + more})
        found[name] = sorted(talk.read(live.client, f"{live.v}_{name}", talk.JSONL, ["one", "two"]))
    once = [(1, 2), (1, 4), (2, 4), (3, 4)]
    orders = sorted(once + [(b, a) for a, b in once])
    assert found == {"once": once, "unequal": orders, "all": sorted(orders + [(n, n) for n in (1, 2, 3, 4)])}


def test_a_view_of_one_relation(live: Case) -> None:
    talk.view(live.client, f"{live.v}_x", f"SELECT id, room FROM {live.b} WHERE status = 'confirmed' AND room IN ('A', 'C')")
    rows = talk.ok(live.client.get(f"/v1/views/{live.v}_x/rows", headers={"Accept": talk.JSON}))["rows"]
    assert sorted(tuple(row.values()) for row in rows) == [(1, "A"), (2, "A"), (3, "A")]


@pytest.mark.parametrize(("op", "value", "expected"), [
    ("=", 2, {2}), ("!=", 2, {1, 3, 4}), ("<", 2, {1}), ("<=", 2, {1, 2}), (">", 3, {4}), (">=", 3, {3, 4}), ("in", [1, 4, 9], {1, 4}),
])
def test_where_operators(live: Case, op: str, value: Any, expected: set[int]) -> None:
    where = [{"column": "b.id", "op": op, "value": value}]
    talk.view(live.client, f"{live.v}_x", {"from": {"b": live.b}, "where": where, "select": ["b.id as id"]})
    assert {row for (row,) in talk.read(live.client, f"{live.v}_x", talk.JSONL, ["id"])} == expected


def test_where_null(live: Case) -> None:
    for op, expected in (("is_null", {3}), ("not_null", {1, 2, 4})):
        where = [{"column": "b.ends", "op": op}]
        talk.view(live.client, f"{live.v}_{op}", {"from": {"b": live.b}, "where": where, "select": ["b.id as id"]})
        assert {row for (row,) in talk.read(live.client, f"{live.v}_{op}", talk.JSONL, ["id"])} == expected


FROM = "FROM {b} b JOIN {m} m ON b.room = m.room AND overlaps(b.stay, m.slot)"
UNSUPPORTED = [
    "SELECT b.id, rank() OVER (ORDER BY b.room) AS r FROM {b} b",
    f"SELECT b.id {FROM} LIMIT 3",
    "SELECT a.id FROM " + ", ".join(f"{{b}} {x}" for x in "abcdefghi") + " WHERE "
    + " AND ".join(f"overlaps(a.stay, {x}.stay)" for x in "bcdefghi"),
]  # fmt: skip


@pytest.mark.parametrize("sql", UNSUPPORTED)
def test_unsupported_queries(case: Case, sql: str) -> None:
    case.define()
    text = sql.format(b=case.b, m=case.m)
    emitted = talk.problem(put(case, text), 422, "unsupported-query")
    assert len(emitted["detail"]) > 20, "it names the part and says what to write instead"
    talk.problem(case.client.post("/v1/explain", json={"sql": text}), 422, "unsupported-query")
    talk.problem(case.client.get(f"/v1/views/{case.v}"), 404, "not-found")


BAD_SQL = ["SELECT FROM WHERE", "", "SELECT b.id FROM {b} b JOIN", "SELECT (", "DROP TABLE {b}", "SELECT 1; SELECT 2"]


@pytest.mark.parametrize("sql", BAD_SQL)
def test_bad_sql(case: Case, sql: str) -> None:
    case.define()
    answer = put(case, sql.format(b=case.b))
    assert answer.status_code == 422 and answer.json()["type"] in ("/problems/bad-query", "/problems/unsupported-query"), answer.text


def test_bad_sql_tells_the_position(case: Case) -> None:
    case.define()
    emitted = talk.problem(put(case, f"SELECT b.id\nFROM {case.b} b JOIN ON"), 422, "bad-query")
    assert "2" in emitted["detail"]


def join(*conditions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"from": {"b": "{b}", "m": "{m}"}, "join": list(conditions), "select": ["b.id as booking"], **more}


OVERLAP = {"overlaps": ["b.stay", "m.slot"]}
REFUSED: list[tuple[Any, str]] = [
    (join(OVERLAP) | {"from": {"b": "nowhere", "m": "{m}"}}, "unknown-relation"),
    ({"sql": "SELECT b.nope FROM {b} b JOIN {m} m ON overlaps(b.stay, m.slot)"}, "unknown-column"),
    (join(OVERLAP, nonsense=1), "bad-definition"),
    ({"sql": "SELECT", "from": {}}, "bad-definition"),
    (join(), "unsupported-query"),
    (join(OVERLAP, {"less": ["b.room", "m.room"]}, guarantee="strict"), "infeasible-view"),
]


@pytest.mark.parametrize(("definition", "kind"), REFUSED)
def test_refused_definitions(case: Case, definition: dict[str, Any], kind: str) -> None:
    case.define()
    named = _fill(definition, case)
    for answer in (put(case, named), case.client.post("/v1/explain", json=named)):
        talk.problem(answer, 422, kind)


def _fill(value: Any, case: Case) -> Any:
    if isinstance(value, dict):
        return {name: _fill(part, case) for name, part in value.items()}
    if isinstance(value, list):
        return [_fill(part, case) for part in value]
    return value.format(b=case.b, m=case.m) if isinstance(value, str) else value


def test_algorithms_that_are_not_for_this_view(case: Case) -> None:
    case.define()
    for algorithm in ("tree-tracker", "qdag", "bow-tie"):
        talk.problem(put(case, {**case.json, "algorithm": algorithm}), 422, "infeasible-view")


def test_infeasible_names_the_theorem(case: Case) -> None:
    """Each pair once, by a column that is not the key: the best guarantee is not strict, so strict is refused."""
    case.define()
    definition = {
        "from": {"x": case.b, "y": case.b}, "guarantee": "strict", "select": ["x.id as one", "y.id as two"],
        "join": [{"overlaps": ["x.stay", "y.stay"]}, {"less": ["x.room", "y.room"]}],
    }
    emitted = talk.problem(put(case, definition), 422, "infeasible-view")
    assert "theorem" in emitted
    made = talk.ok(put(case, {**definition, "guarantee": "best-effort"}), 201)
    assert made["plan"]["guarantee"] != "strict" and made["plan"]["notes"]


def test_a_stated_guarantee_and_algorithm(case: Case) -> None:
    case.define()
    made = created(case, {**case.json, "guarantee": "strict", "algorithm": "interval-tree"})
    assert made["plan"]["guarantee"] == "strict"


def test_explain(case: Case) -> None:
    case.define()
    emitted = talk.ok(case.client.post("/v1/explain", json=case.json))
    assert set(emitted) == {"plan", "alternatives", "reads", "stored"} and emitted["plan"]["algorithm"] == "interval-tree"
    assert isinstance(emitted["alternatives"], list)
    talk.problem(case.client.get(f"/v1/views/{case.v}"), 404, "not-found")


def test_a_natural_join(case: Case) -> None:
    """Each correct algorithm is accepted and stored, others are refused with the reason, and explain describes the join."""
    case.define()
    columns = [{"name": name, "type": "int64"} for name in ("src", "dst")]
    talk.define(case.client, f"{case.b}_edges", {"columns": columns, "key": ["src", "dst"]})
    edges, hop, triangle = f"{case.b}_edges", {"equal": ["x.dst", "y.src"]}, [{"equal": ["y.dst", "z.src"]}, {"equal": ["z.dst", "x.src"]}]
    rows = [(i, j) for i in range(4) for j in range(4)]
    talk.ok(talk.send(case.client, [{"relation": edges, "op": "upsert", "row": {"src": i, "dst": j}} for i, j in rows]))
    pair = {"from": {"x": edges, "y": edges}, "join": [hop]}
    cyclic = {"from": {"x": edges, "y": edges, "z": edges}, "join": [hop, *triangle]}
    acyclic = ("view-tree", "join-tree", "qdag", "nested-loop", "tree-tracker", "minesweeper", "elimination", "intersect")
    for definition, algorithms in ((pair, acyclic), (cyclic, ("qdag", "nested-loop", "minesweeper"))):
        emitted = talk.ok(case.client.post("/v1/explain", json=definition))
        assert [emitted["plan"]["algorithm"], *(other["algorithm"] for other in emitted["alternatives"])] == list(algorithms)
        for algorithm in algorithms:
            name = f"{case.v}_{algorithm.replace('-', '_')}_{len(definition['from'])}"
            made = talk.view(case.client, name, {**definition, "algorithm": algorithm})
            assert made["plan"]["algorithm"] == algorithm and talk.count(case.client, name) == 64
        assert "natural" in emitted and emitted["natural"]["agm"]["rows"] >= 64
    assert emitted["natural"]["agm"] == {"exponent": 1.5, "rows": 64.0, "cover": {"x": 0.5, "y": 0.5, "z": 0.5}}
    assert "NOT EXISTS" in talk.problem(put(case, {**cyclic, "algorithm": "lqdag"}), 422, "infeasible-view")["theorem"]
    for algorithm in ("intersect", "view-tree", "join-tree", "tree-tracker", "elimination"):
        assert "cyclic" in talk.problem(put(case, {**cyclic, "algorithm": algorithm}), 422, "infeasible-view")["theorem"]


def test_not_exists(live: Case) -> None:
    """Bookings of rooms without a job, in SQL and JSON: rows, look-ups, pages, changes with the outer key, and what is refused."""
    sql = f"SELECT b.id AS booking, b.room AS room FROM {live.b} b WHERE NOT EXISTS (SELECT 1 FROM {live.m} m WHERE m.room = b.room)"
    part = {"from": {"m": live.m}, "join": [{"equal": ["m.room", "b.room"]}]}
    definition = {"from": {"b": live.b}, "select": ["b.id as booking", "b.room as room"], "not_exists": [part]}
    free = f"{live.v}_free"
    made = created(live, sql, free)
    assert made["plan"]["algorithm"] == "match-tree" and made["plan"]["guarantee"] == "strict"
    assert put(live, definition, free).status_code == 200, "the same in JSON"
    read = partial(talk.read, live.client, free, talk.JSONL, ["booking", "room"])
    assert read() == [(4, "B")] and talk.count(live.client, free) == 1
    follower = talk.Follower(live.client, free, ["booking", "room"], snapshot=True)
    bookings, jobs = [live.booking(5, "C", 1, 2), live.booking(6, "C", 3, 4)], [live.job(9, "B", 1, 2), live.job(10, "B", 5, 6)]
    talk.ok(talk.send(live.client, bookings + jobs))
    paged = sorted((row["booking"], row["room"]) for page in talk.pages(live.client, free, 1) for row in page["rows"])
    assert sorted(read()) == [(5, "C"), (6, "C")] == paged
    assert sorted(talk.read(live.client, free, talk.JSONL, ["booking"], **{"where.b.room": "C"})) == [(5,), (6,)]
    assert talk.read(live.client, free, talk.JSONL, ["booking"], **{"where.b.id": "4"}) == []
    talk.ok(talk.send(live.client, [{"relation": live.m, "op": "delete", "key": {"id": 9}}]))
    assert (4, "B") not in read(), "another job is in the room"
    talk.ok(talk.send(live.client, [{"relation": live.m, "op": "delete", "key": {"id": 10}}, live.job(11, "C", 1, 2)]))
    assert read() == [(4, "B")]
    talk.ok_poll(follower)
    assert follower.rows == {b'{"b":{"id":4}}': (4, "B")} and follower.progresses >= 3
    talk.problem(live.client.delete(f"/v1/relations/{live.m}"), 409, "relation-in-use")
    for more, kind, word in (
        ({"algorithm": "ij-heap"}, "infeasible-view", "NOT EXISTS"),
        ({"guarantee": "strict", "algorithm": "view-tree"}, "infeasible-view", "to count them"),
        ({"not_exists": [{**part, "select": ["m.id"]}]}, "bad-definition", "has no field select"),
        ({"not_exists": [{**part, "join": [{"equal": ["m.room", "x.room"]}]}]}, "unknown-column", "there is no alias x"),
    ):
        assert word in talk.problem(put(live, {**definition, **more}, f"{free}_no"), 422, kind)["detail"]


def test_outer_joins(live: Case) -> None:
    """LEFT, RIGHT, FULL, SEMI, ANTI, IN: in SQL and JSON, rows, keys in which a part is null, look-ups, counts, explain."""
    pairs = f"{live.v}_pairs"
    part = {"from": {"m": live.m}, "join": [{"equal": ["m.room", "b.room"]}, {"overlaps": ["m.slot", "b.stay"]}]}
    sql = f"SELECT b.id AS booking, m.id AS job FROM {live.b} b LEFT JOIN {live.m} m ON m.room = b.room AND overlaps(m.slot, b.stay)"
    made = created(live, sql, pairs)
    assert made["plan"]["class"].startswith("left outer join, 1-D, 2 relations, keyed") and made["plan"]["guarantee"] == "strict"
    selected = ["b.id as booking", "m.id as job"]
    assert put(live, {"from": {"b": live.b}, "left": [part], "select": selected}, pairs).status_code == 200, "the same in JSON"
    read = partial(talk.read, live.client, pairs, talk.JSONL, ["booking", "job"])
    follower = talk.Follower(live.client, pairs, ["booking", "job"], snapshot=True)
    talk.ok(talk.send(live.client, [live.booking(71, "Z", 1, 4), live.booking(72, "Z", 6, 9)]))
    talk.ok(talk.send(live.client, [live.job(81, "Z", 2, 3)]))
    assert {(71, 81), (72, None)} <= set(read())
    assert talk.read(live.client, pairs, talk.JSONL, ["booking", "job"], **{"where.b.id": "72"}) == [(72, None)]
    talk.ok_poll(follower)
    assert follower.rows[b'{"b":{"id":72},"m":null}'] == (72, None) and follower.rows[b'{"b":{"id":71},"m":{"id":81}}'] == (71, 81)
    mirrored = sql.replace(f"{live.b} b LEFT JOIN {live.m} m", f"{live.m} m RIGHT JOIN {live.b} b")
    both = sql.replace("LEFT", "FULL")
    talk.ok(talk.send(live.client, [live.job(82, "nowhere", 2, 3)]))
    created(live, mirrored, f"{live.v}_mirrored")
    created(live, both, f"{live.v}_both")
    rows = sorted(read(), key=str)
    assert sorted(talk.read(live.client, f"{live.v}_mirrored", talk.JSONL, ["booking", "job"]), key=str) == rows
    found = talk.read(live.client, f"{live.v}_both", talk.JSONL, ["booking", "job"])
    assert sorted((row for row in found if row[0] is not None), key=str) == rows and (None, 82) in found
    condition = "m.room = b.room AND overlaps(m.slot, b.stay)"
    for name, text in {
        "semi": f"SELECT b.id AS booking FROM {live.b} b SEMI JOIN {live.m} m ON {condition}",
        "exists": f"SELECT b.id AS booking FROM {live.b} b WHERE EXISTS (SELECT 1 FROM {live.m} m WHERE {condition})",
        "anti": f"SELECT b.id AS booking FROM {live.b} b ANTI JOIN {live.m} m ON {condition}",
        "null": f"SELECT b.id AS booking FROM {live.b} b LEFT JOIN {live.m} m ON {condition} WHERE m.id IS NULL",
        "in": f"SELECT b.id AS booking FROM {live.b} b WHERE b.room IN (SELECT m.room FROM {live.m} m)",
    }.items():
        made = created(live, text, f"{live.v}_{name}")
        assert made["plan"]["guarantee"] == "strict" and made["plan"]["algorithm"] == "match-tree"
        wanted = {booking for booking, job in rows if (job is None) == (name in ("anti", "null"))}
        if name != "in":
            assert set(talk.read(live.client, f"{live.v}_{name}", talk.JSONL, ["booking"])) == {(one,) for one in wanted}
    talk.ok(talk.send(live.client, [{"relation": live.m, "op": "delete", "key": {"id": one}} for one in (81, 82)]))


def test_union_and_except(live: Case) -> None:
    """Rooms with bookings but no job, in SQL and JSON: rows, pages, look-ups, changes with the row as key, and what is refused."""
    sql = f"SELECT b.room AS room FROM {live.b} b EXCEPT SELECT m.room FROM {live.m} m"
    inputs = [{"from": {"b": live.b}, "select": ["b.room as room"]}, {"from": {"m": live.m}, "select": ["m.room"]}]
    free, all_rooms = f"{live.v}_free", f"{live.v}_rooms"
    made = created(live, sql, free)
    assert made["plan"]["algorithm"] == "lqdag" and made["plan"]["guarantee"] == "best-effort"
    assert put(live, {"except": inputs}, free).status_code == 200, "the same in JSON"
    talk.view(live.client, all_rooms, {"union": inputs})
    talk.view(live.client, f"{live.v}_all", {"union_all": inputs})
    beside = talk.Follower(live.client, f"{live.v}_all", ["room"], snapshot=True)
    read = partial(talk.read, live.client, free, talk.JSONL, ["room"])
    assert read() == [("B",)] and talk.count(live.client, free) == 1
    follower = talk.Follower(live.client, free, ["room"], snapshot=True)
    bookings = [live.booking(5, "C", 1, 2), live.booking(6, "C", 3, 4), live.booking(7, "D", 3, 4)]
    talk.ok(talk.send(live.client, [*bookings, live.job(9, "B", 1, 2)]))
    paged = sorted(row["room"] for page in talk.pages(live.client, free, 1) for row in page["rows"])
    assert sorted(read()) == [("C",), ("D",)] and paged == ["C", "D"]
    assert {room for (room,) in talk.read(live.client, all_rooms, talk.JSONL, ["room"])} == {"A", "B", "C", "D"}
    assert read(**{"where.row.room": "C"}) == [("C",)] and read(**{"where.row.room": "B"}) == []
    talk.problem(live.client.get(f"/v1/views/{free}/rows", params={"where.b.id": "4"}), 400, "bad-parameter")
    talk.ok(talk.send(live.client, [{"relation": live.b, "op": "delete", "key": {"id": 5}}, live.job(10, "D", 5, 6)]))
    assert read() == [("C",)], "another booking has the room"
    talk.ok_poll(follower)
    assert follower.rows == {b'{"row":{"room":"C"}}': ("C",)} and follower.progresses >= 3
    talk.ok_poll(beside)
    assert beside.rows[b'{"b":null,"m":{"id":10}}'] == beside.rows[b'{"b":{"id":7},"m":null}'] == ("D",)
    for name in (live.b, live.m):
        talk.problem(live.client.delete(f"/v1/relations/{name}"), 409, "relation-in-use")
    for definition, kind, word in (
        ({"except": inputs, "algorithm": "qdag"}, "infeasible-view", "EXCEPT"),
        ({"union": inputs, "guarantee": "strict"}, "infeasible-view", "UNION"),
        ({"union": inputs[:1]}, "bad-definition", "at least 2"),
        ({"except": [*inputs, inputs[0]]}, "bad-definition", "at most 2"),
        ({"except": [inputs[0], {"union": [inputs[0]] * 9}]}, "bad-definition", "at most 8"),
    ):
        assert word in talk.problem(put(live, definition, f"{free}_no"), 422, kind)["detail"]


def test_malformed_and_unsupported_bodies(case: Case) -> None:
    for method, url in (("PUT", f"/v1/views/{case.v}"), ("POST", "/v1/explain")):
        cut = case.client.request(method, url, content=b"{", headers={"Content-Type": talk.JSON})
        talk.problem(cut, 400, "malformed-body")
        text = case.client.request(method, url, content=b"SELECT", headers={"Content-Type": "text/plain"})
        talk.problem(text, 415, "unsupported-media-type")


@pytest.mark.parametrize("name", ["Upper", "1st", "a" * 64, "with-dash"])
def test_names_that_are_not(case: Case, name: str) -> None:
    case.define()
    answer = put(case, case.sql, name)
    assert answer.status_code in (400, 404, 422) and answer.headers["content-type"].startswith(talk.PROBLEM), answer.text


def test_comparing_across_types_of_filters(case: Case) -> None:
    talk.define(case.client, case.b, EVERYTHING)
    rows = [{"k": 1, "x": 0.5, "day": "2026-01-01", "at": day(1), "yes": True, "text": "a"}, {"k": 2, "x": "NaN", "text": None}]
    talk.ok(talk.send(case.client, [{"relation": case.b, "op": "upsert", "row": row} for row in rows]))
    for position, (condition, expected) in enumerate([
        ("x < 1", {1}), ("x <> 0.5", {2}), ("day = '2026-01-01'", {1}), ("yes", {1}),
        ("at <= TIMESTAMP '2026-01-01 00:00:00+00'", {1}),
        ("text <> 'b'", {1}), ("text IS NULL", {2}), ("k BETWEEN 2 AND 3", {2}), ("k = NULL", set()), ("text IN ('a', NULL)", {1}),
    ]):
        created(case, f"SELECT k AS k FROM {case.b} t WHERE {condition}", f"{case.v}_{position}")
        assert {row for (row,) in talk.read(case.client, f"{case.v}_{position}", talk.JSONL, ["k"])} == expected, condition


def test_a_view_that_takes_long_to_build(case: Case) -> None:
    """200,000 rows: the answer arrives within a few seconds, live or building; until the view is live, rows answer 503."""
    case.define()
    talk.define(case.client, f"{case.b}_n", {
        "columns": [{"name": name, "type": "int64"} for name in ("k", "a", "b")], "key": ["k"],
        "intervals": {"x": {"start": "a", "end": "b"}},
    })
    number = pa.array(range(200_000))
    talk.load(case.client, f"{case.b}_n", pa.table({"k": number, "a": number, "b": pa.array(range(2, 200_002))}), talk.ARROW)
    start = time.monotonic()
    answer = put(case, f"SELECT x.k AS one, y.k AS two FROM {case.b}_n x JOIN {case.b}_n y ON overlaps(x.x, y.x) AND x.k < y.k")
    assert answer.status_code in (201, 202) and time.monotonic() - start < 10
    while answer.json()["state"] == "building":
        assert 0 <= answer.json()["progress"] <= 1
        rows = case.client.get(f"/v1/views/{case.v}/rows", params={"limit": 1})
        if rows.status_code != 200:
            talk.problem(rows, 503, "view-building")
            assert int(rows.headers["retry-after"]) >= 1
        answer = case.client.get(f"/v1/views/{case.v}")
    assert talk.count(case.client, case.v) == 199_999
    talk.drop(case.client, [case.v], [f"{case.b}_n"])


def test_a_bow_tie_by_holes(case: Case) -> None:
    """All but two rows of S lie between values of R and of T: each reading visits one of them, as the counters show."""
    left, pairs, right = (f"{case.b}_{what}" for what in ("left", "pairs", "right"))
    for name, columns in ((left, ["v"]), (right, ["v"]), (pairs, ["x", "y"])):
        talk.define(case.client, name, {"columns": [{"name": one, "type": "int64"} for one in columns], "key": columns})
    rows = [(name, {"v": v}) for name in (left, right) for v in (0, 100)] + [(pairs, {"x": i, "y": 100 - i}) for i in range(101)]
    talk.ok(talk.send(case.client, [{"relation": name, "op": "upsert", "row": row} for name, row in rows]))
    definition = {
        "from": {"r": left, "s": pairs, "t": right}, "join": [{"equal": ["r.v", "s.x"]}, {"equal": ["s.y", "t.v"]}], "algorithm": "bow-tie",
    }  # fmt: skip
    made = talk.view(case.client, case.v, definition)
    assert made["plan"]["algorithm"] == "bow-tie" and talk.count(case.client, case.v) == 2
    counters = talk.ok(case.client.post("/v1/explain", json=definition))["measured"][case.v]["counters"]
    assert 2 * counters["probes"] == 3 * counters["outputs"] > 0
    talk.ok(talk.send(case.client, [{"relation": name, "op": "upsert", "row": {"v": 50}} for name in (left, right)]))
    assert talk.count(case.client, case.v) == 3
