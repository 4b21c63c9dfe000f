"""`where`, `columns` and `overlaps` over HTTP: of rows, counts, files, readings and changes; what is refused, and where."""

from __future__ import annotations

import io
import itertools
import json
import random
from collections import Counter
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.end_to_end import talk
from tests.relations import declared
from tests.server_process import ServerProcess

SEED = 20261201
NUMBERS = itertools.count(1)
TABLE: dict[str, Any] = declared("id:int64, room:string?, lo:int64, hi:int64?, price:decimal(18,2)?", span="lo hi")
Rows = list[dict[str, Any]]


class House:
    """Two relations, a view of their join, and one of groups with sums that have more digits than columns may have."""

    def __init__(self, client: httpx.Client) -> None:
        number = next(NUMBERS)
        self.client, self.left, self.right, self.view, self.sums = client, *(f"{one}_{number}" for one in ("l", "r", "where", "sums"))
        for relation in (self.left, self.right):
            talk.define(client, relation, TABLE)
            self.post(relation, [row(random.Random(f"{relation} {id_}"), id_) for id_ in range(60)])
        talk.view(
            client, self.view,
            f"SELECT a.id AS i, b.id AS j, a.room AS room, b.price AS \"its, price\", a.lo AS lo, a.hi AS hi, b.lo AS blo "
            f"FROM {self.left} a JOIN {self.right} b ON a.room = b.room AND overlaps(a.span, b.span)",
        )  # fmt: skip
        sums = f"SELECT room, sum(price) AS total, count(*) AS n, array_agg(id ORDER BY id) AS ids FROM {self.left} GROUP BY room"
        talk.view(client, self.sums, sums)

    def post(self, relation: str, rows: Rows) -> None:
        body = "".join(json.dumps(one) + "\n" for one in rows)
        talk.ok(self.client.post(f"/v1/relations/{relation}/changes", content=body, headers={"Content-Type": "application/jsonl"}))

    def rows(self, name: str = "", kind: str = "views", **query: Any) -> Rows:
        answer = self.client.get(f"/v1/{kind}/{name or self.view}/rows", params=query, headers={"Accept": "application/jsonl"})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def refused(self, path: str = "", **query: Any) -> dict[str, Any]:
        return talk.problem(self.client.get(path or f"/v1/views/{self.view}/rows", params=query), 400, "bad-parameter")


def row(chance: random.Random, id_: int) -> dict[str, Any]:
    lo = chance.randrange(100)
    hi = None if chance.random() < 0.1 else lo + chance.randrange(1, 30)
    price = None if chance.random() < 0.2 else f"{chance.randrange(10**15)}.25"
    return {"id": id_, "room": chance.choice(["A", "B", "C", None]), "lo": lo, "hi": hi, "price": price}


@pytest.fixture(scope="module")
def house(shared_server: ServerProcess) -> House:
    return House(shared_server.client())


def counted(rows: Rows) -> Counter[str]:
    return Counter(map(repr, rows))


def test_rows_pages_counts_and_files(house: House) -> None:
    every = house.rows()
    wanted = [{"j": one["j"], "its, price": one["its, price"]} for one in every if one["room"] == "A" and one["i"] > one["j"]]
    asked = {"where": "room = 'A' AND i > j", "columns": 'j,"its, price"'}
    assert len(wanted) > 20 and counted(house.rows(**asked)) == counted(wanted)
    assert talk.ok(house.client.get(f"/v1/views/{house.view}/count", params={"where": asked["where"]}))["count"] == len(wanted)
    for suffix, read in (("arrow", pa.ipc.open_stream), ("csv", None)):
        content = house.client.get(f"/v1/views/{house.view}/rows.{suffix}", params=asked).content
        assert content.count(b"\n") == len(wanted) + 1 if read is None else read(io.BytesIO(content)).read_all().num_rows == len(wanted)
    url, pages, found = f"/v1/views/{house.view}/rows?{httpx.QueryParams({**asked, 'limit': 7})}", 0, []
    while url:  # the link has the condition and the columns once more
        answer = house.client.get(url, headers={"Accept": talk.JSON})
        page = talk.ok(answer)
        found, pages = found + page["rows"], pages + 1
        url = answer.links["next"]["url"] if "next" in answer.links else ""
        if page["next"] is not None:  # and the cursor alone suffices
            rest = house.rows(cursor=page["next"])
            assert counted(found + rest) == counted(wanted)
    assert pages == -(-len(wanted) // 7) and counted(found) == counted(wanted)


def test_the_first_rows_in_an_order_of_a_column_that_is_not_sent(house: House) -> None:
    wanted = sorted((one["lo"], one["i"], one["j"]) for one in house.rows(where="room <> 'B'"))[:5]
    found = house.rows(where="room <> 'B'", columns="j", order="lo, i, j", limit=5)
    assert [one["j"] for one in found] == [j for _, _, j in wanted] and set(found[0]) == {"j"}


def test_a_head_says_whether_rows_meet_the_condition(house: House) -> None:
    for where, empty in (("i = j AND i < 0", "true"), ("i = i", "false"), ("TRUE", "false"), ("FALSE", "true"), ("NULL", "true")):
        assert house.client.head(f"/v1/views/{house.view}/rows", params={"where": where}).headers["Livejoin-Empty"] == empty, where


def test_of_a_relation(house: House) -> None:
    every = house.rows(house.left, "relations")
    wanted = [{"id": one["id"]} for one in every if one["hi"] is None or one["hi"] - one["lo"] > 15]
    assert counted(house.rows(house.left, "relations", where="hi IS NULL OR hi - lo > 15", columns="id")) == counted(wanted)
    assert house.rows(house.left, "relations", where="id = 7 AND lo < 1000", overlaps="0,") == [one for one in every if one["id"] == 7]


def test_sums_of_more_digits_than_a_column_has(house: House) -> None:
    every = house.rows(house.sums)
    assert max(len(str(one["total"])) for one in every) > 18
    for where, holds in (
        ("total > 5000000000000000", lambda one: float(one["total"]) > 5e15),
        (f"total = {every[0]['total']}", lambda one: one["total"] == every[0]["total"]),
        (f"total IN (1, {every[1]['total']}) OR n < 10", lambda one: one["total"] == every[1]["total"] or one["n"] < 10),
        ("total IS DISTINCT FROM 0 AND total * 2 > total", lambda one: True),
        ("coalesce(total, 'infinity') < 5000000000000000", lambda one: float(one["total"]) < 5e15),
    ):
        answer = house.client.get(f"/v1/views/{house.sums}/rows", params={"where": where}, headers={"Accept": "application/jsonl"})
        if "infinity" in where and answer.status_code == 400:
            continue
        assert counted([json.loads(line) for line in answer.text.splitlines()]) == counted([one for one in every if holds(one)]), where


@pytest.mark.parametrize(
    ("where", "said", "column"),
    [
        ("romo = 'A'", " has no column romo; did you mean room?", 1),
        ("i = 1 AND romo = 'A'", "romo", 11),
        ("room = ", "is missing after '='", 6),
        ("i = 1) OR (j = 2", "')' has no matching (", 6),
        ("i = 'x'", "expected a 64-bit integer", 5),
        ("count(*) > 1", "COUNT(*) in a condition on rows", 1),
        ("EXISTS (SELECT 1)", "EXISTS within a condition on rows", 16),
        ("i", "i is int64, not a condition", 1),
        ("i = 1; DROP TABLE x", "2 statements", 1),
        ("i = 1 GROUP BY i", "is not one expression", 1),
        ("", "is missing", 1),
        (" AND ".join(f"i <> {n}" for n in range(99)), "64 conditions are allowed (--max-conditions), not 99", 1),
        ("(" * 3000 + "i = 1" + ")" * 3000, "nested too deeply", 1),
    ],
)
def test_what_is_no_condition(house: House, where: str, said: str, column: int) -> None:
    problem = house.refused(where=where)
    assert problem["parameter"] == "where" and said in problem["detail"], problem["detail"]
    assert problem["detail"].startswith("where: ") and problem["position"] == {"line": 1, "column": column}, problem["detail"]
    body = {"where": where}
    begun = house.client.post(f"/v1/views/{house.view}/readings", json=body)
    assert talk.problem(begun, 400, "bad-parameter")["detail"] == problem["detail"]
    changes = house.client.get(f"/v1/views/{house.view}/changes", params={"where": where, "wait": 0})
    assert talk.problem(changes, 400, "bad-parameter")["detail"] == problem["detail"]


@pytest.mark.parametrize(
    ("columns", "said"), [("i,k", "no column 'k'"), ("i,i", "'i' is named twice"), ("", "name one at least"), ('"i', "must be names")]
)
def test_what_are_no_columns(house: House, columns: str, said: str) -> None:
    for path in (f"/v1/views/{house.view}/rows", f"/v1/views/{house.view}/rows.csv", f"/v1/views/{house.view}/changes"):
        problem = house.refused(path, columns=columns)
        assert problem["parameter"] == "columns" and said in problem["detail"]


def test_a_cursor_keeps_its_condition(house: House) -> None:
    asked = {"where": "room = 'A'", "limit": 3}
    page = talk.ok(house.client.get(f"/v1/views/{house.view}/rows", params=asked, headers={"Accept": talk.JSON}))
    for other in ({"where": "room = 'B'"}, {"columns": "i"}):
        assert "other filters or columns" in house.refused(cursor=page["next"], **other)["detail"]


def parts_of(house: House, kind: str, of: str, **body: Any) -> tuple[list[Rows], dict[str, Any]]:
    reading = talk.ok(house.client.post(f"/v1/{kind}/{of}/readings", json={"parts": 5, **body}), 201)
    return [house.rows(of, kind, cursor=cursor) for cursor in reading["cursors"]], reading


def test_a_named_reading_of_a_view_and_a_relation_with_conditions(house: House) -> None:
    """All at one version, whatever is written meanwhile; each of the parts of one condition has each of its rows once."""
    name = f"an-action-{next(NUMBERS)}"
    before = {one: house.rows(one, kind) for kind, one in (("views", house.view), ("relations", house.left))}
    first, reading = parts_of(house, "views", house.view, name=name, where="i > 3", columns=["i", "j"])
    assert len(first) == 5 and counted(sum(first, [])) == counted(
        [{"i": one["i"], "j": one["j"]} for one in before[house.view] if one["i"] > 3]
    )
    house.post(house.left, [row(random.Random(id_), id_) for id_ in range(10, 20)])
    for kind, one, body, holds in (
        ("views", house.view, {"where": "i = 7"}, lambda row: row["i"] == 7),
        ("views", house.view, {"overlaps": {"a.span": "10,20"}}, lambda row: row["lo"] <= 20 and (row["hi"] is None or row["hi"] > 10)),
        ("views", house.view, {}, lambda row: True),
        ("relations", house.left, {}, lambda row: True),
        ("relations", house.left, {"where": "room = 'A'"}, lambda row: row["room"] == "A"),
        ("relations", house.left, {"where": "id = 7"}, lambda row: row["id"] == 7),
        ("relations", house.left, {"overlaps": "10,20"}, lambda row: row["lo"] <= 20 and (row["hi"] is None or row["hi"] > 10)),
    ):
        parts, other = parts_of(house, kind, one, name=name, **body)
        assert (other["id"], other["version"]) == (reading["id"], reading["version"])
        assert counted(sum(parts, [])) == counted([row for row in before[one] if holds(row)]), body
        assert len(parts) == (1 if body.get("where") in ("i = 7", "id = 7") or isinstance(body.get("overlaps"), dict) else 5), body
        assert other["cursors"] == parts_of(house, kind, one, name=name, **body)[1]["cursors"]
        assert (other["token"] is None) == (kind == "relations")
    talk.ok(house.client.delete(f"/v1/readings/{reading['id']}"), 204)


class Filtered:
    """A follower's rows, by key."""

    def __init__(self, house: House, view: str = "", **asked: Any) -> None:
        self.house, self.view, self.asked, self.rows, self.token = house, view or house.view, asked, dict[str, Any](), ""

    def poll(self, **query: Any) -> None:
        query = self.asked | ({"since": self.token} if self.token else {"snapshot": "true"}) | {"wait": 0} | query
        answer = self.house.client.get(f"/v1/views/{self.view}/changes", params=query)
        assert answer.status_code == 200, answer.text
        for record in map(json.loads, answer.text.splitlines()):
            if record["op"] == "progress":
                self.token = record["token"] or self.token
            elif record["op"] == "delete":
                assert self.rows.pop(json.dumps(record["key"])) == record["row"]
            else:
                assert self.rows.setdefault(json.dumps(record["key"]), record["row"]) is record["row"]


def test_a_follower_has_the_filtered_view_at_each_version(house: House) -> None:
    """Also the Arrow form between two tokens, and a snapshot read in parts."""
    chance = random.Random(SEED)
    asked: list[dict[str, Any]] = [
        {"where": "room = 'A' AND lo > 40"},
        {"where": "\"its, price\" IS NULL", "columns": "j,i"},
        {"overlaps.a.span": "30,50"},
        {"overlaps.a.span": ",50", "where": "i % 2 = 0", "columns": "i"},
        {"columns": "room"},
    ]
    sums = {"where": "total > 5000000000000000 AND n % 2 = 0", "columns": "n,ids,total"}
    followers = [*(Filtered(house, **one) for one in asked), Filtered(house, house.sums, **sums)]
    for round_ in range(8):
        for one in followers:
            since = one.token
            one.poll()
            assert counted(list(one.rows.values())) == counted(house.rows(one.view, **one.asked)), (round_, one.asked)
            if since:
                answer = house.client.get(
                    f"/v1/views/{one.view}/changes", params=one.asked | {"since": since, "until": one.token},
                    headers={"Accept": talk.ARROW},
                )  # fmt: skip
                table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
                keys = ["group.room"] if one.view == house.sums else ["a.id", "b.id"]
                assert [name for name in table.column_names if "." in name] == keys
                columns = one.asked.get("columns", "blo").split(",")
                assert table.column_names[-len(columns) :] == columns
        for relation in (house.left, house.right):
            house.post(relation, [row(chance, chance.randrange(60)) for _ in range(6)])
    reading = talk.ok(house.client.post(f"/v1/views/{house.view}/readings", json={"where": "room = 'A'", "columns": ["j"]}), 201)
    found: list[Any] = []
    for cursor in reading["cursors"]:
        query = {"snapshot": "true", "cursor": cursor}
        answer = house.client.get(f"/v1/views/{house.view}/changes", params=query, headers={"Accept": talk.ARROW})
        table = pa.ipc.open_stream(io.BytesIO(answer.content)).read_all()
        assert table.column_names == ["_op", "_version", "a.id", "b.id", "j"]
        found += [{"j": one["j"]} for one in table.to_pylist()]
        house.refused(f"/v1/views/{house.view}/changes", **query, where="i = 1")
    assert counted(found) == counted(house.rows(where="room = 'A'", columns="j"))


def test_a_filtered_follower_beside_others_reads_by_itself(house: House) -> None:
    """It is woken with the others, who share their records, and its token moves on without a row."""
    with (
        house.client.stream("GET", f"/v1/views/{house.view}/changes", params={"limit": 3}) as every,
        house.client.stream("GET", f"/v1/views/{house.view}/changes", params={"limit": 3, "where": "i = 1001"}) as some,
    ):
        for id_ in (1000, 1001, 1000):
            house.post(house.left, [{"id": id_, "room": "A", "lo": id_ % 7, "hi": None, "price": None}])
        read = [[json.loads(line) for line in one.iter_lines()] for one in (every, some)]
    assert [one["version"] for one in read[0] if one["op"] == "progress"] == [one["version"] for one in read[1] if one["op"] == "progress"]
    assert {one["row"]["i"] for one in read[1] if one["op"] != "progress"} == {1001}
    assert {one["row"]["i"] for one in read[0] if one["op"] != "progress"} >= {1000, 1001}


@pytest.mark.parametrize("name", ["b.span", "span", "c.span", "a.stay"])
def test_a_window_of_changes_needs_both_ends(house: House, name: str) -> None:
    problem = house.refused(f"/v1/views/{house.view}/changes", **{f"overlaps.{name}": "1,2", "wait": 0})
    assert problem["parameter"] == f"overlaps.{name}"
    assert name in ("c.span", "a.stay") or "where" in problem["detail"]


def test_a_replacement_without_a_column_ends_a_follower_of_it(house: House) -> None:
    name = f"replaced_{next(NUMBERS)}"
    talk.view(house.client, name, f"SELECT id AS i, room AS room, lo AS lo FROM {house.left}")
    path, asked = f"/v1/views/{name}/changes", {"where": "lo > 3", "columns": "i"}
    token = json.loads(house.client.get(path, params=asked | {"wait": 0}).text.splitlines()[-1])["token"]
    with house.client.stream("GET", path, params=asked | {"since": token}) as stream:
        less = {"sql": f"SELECT id AS i, room AS room FROM {house.left}"}
        talk.ok(house.client.put(f"/v1/views/{name}?replace=true", json=less), 200, 202)
        last = json.loads(list(stream.iter_lines())[-1])
    assert last["op"] == "error", last
    assert house.refused(path, **asked)["parameter"] == "where"
