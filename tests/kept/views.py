"""The views of a kept folder: each class of joins with each algorithm that can maintain it, in SQL and in JSON."""

from __future__ import annotations

from typing import Any

Definition = dict[str, Any]


def _sql(text: str, **options: Any) -> Definition:
    return {"sql": text, **options}


_PAIR = "SELECT b.id AS id, j.nr AS nr, j.room AS job_room FROM bookings b JOIN jobs j ON"
_SELF = "SELECT a.room AS a_room, a.nr AS a_nr, b.room AS b_room, b.nr AS b_nr FROM shifts a JOIN shifts b ON"
_MARKS = "SELECT a.id AS a_id, b.id AS b_id FROM marks a JOIN marks b ON"
_THREE = "SELECT a.nr AS a_nr, b.nr AS b_nr, c.nr AS c_nr FROM shifts a, shifts b, shifts c WHERE a.room = b.room AND b.room = c.room AND"
_MEET = "overlaps(a.span, b.span) AND overlaps(b.span, c.span) AND overlaps(a.span, c.span)"
_CYCLE = "a.dst = b.src AND b.dst = c.src AND c.dst = a.src"
_TRIANGLE = f"SELECT a.src AS x, b.src AS y, c.src AS z FROM links a, links b, links c WHERE {_CYCLE}"
_STAR = "SELECT r.room AS room, b.id AS id, j.nr AS nr FROM rooms r JOIN bookings b USING (room) JOIN jobs j USING (room)"

_WHERE = [
    {"column": "b.id", "op": ">=", "value": 1},
    {"column": "b.floor", "op": "<=", "value": 7},
    {"column": "b.floor", "op": "!=", "value": 3},
    {"column": "b.checkin", "op": ">", "value": "2026-01-01T01:00:00Z"},
    {"column": "b.startDate", "op": "<", "value": "2026-01-29"},
    {"column": "b.room", "op": "in", "value": ["A1", "A2", "Žižkov", "日本", ""]},
    {"column": "b.price", "op": "not_null"},
]

VIEWS: list[tuple[str, str, Definition]] = [
    ("filtered_sql", "interval-tree", _sql(
        "SELECT b.id AS id, b.guest AS guest, b.\"startDate\" AS day, b.price AS price, b.vip AS vip FROM bookings b WHERE b.floor > -2"
        " AND b.floor <= 7 AND b.room <> 'B1' AND b.id >= 2 AND b.price < 1e301 AND b.guest IS NOT NULL AND b.room IN ('A1', 'Žižkov', '')"
    )),
    ("filtered_json", "interval-tree", {"from": {"b": "bookings"}, "where": _WHERE}),
    ("equals_and_nulls", "interval-tree", {
        "from": {"e": "everything"}, "select": ["e.n as n", "e.x2", "e.flag2", "e.day2", "e.at2 as at"],
        "where": [{"column": "e.flag", "op": "=", "value": True}, {"column": "e.text2", "op": "is_null"}],
    }),
    ("nothing", "interval-tree", {"from": {"b": "bookings"}, "where": [{"column": "b.floor", "op": "=", "value": None}]}),
    ("everything_of_it", "interval-tree", _sql("SELECT * FROM everything")),
    ("overlapping", "interval-tree", _sql(f"{_PAIR} overlaps(b.stay, j.slot) WHERE b.floor > 4")),
    ("clashes", "interval-tree", {
        "from": {"b": "bookings", "j": "jobs"}, "join": [{"equal": ["b.room", "j.room"]}, {"overlaps": ["b.stay", "j.slot"]}],
        "where": [{"column": "j.cost", "op": ">=", "value": 0}],
        "select": ["b.id as booking", "j.nr as job", {"intersection": ["b.stay", "j.slot"], "as": "clash"},
                   {"duration": ["b.stay", "j.slot"], "as": "length"}],
        "guarantee": "strict", "changes": {"retain_rows": 5000, "retain_bytes": 1_000_000},
    }),
    ("clashes_by_operator", "interval-tree", _sql(
        "SELECT b.id AS booking, j.nr AS job, intersection(b.stay, j.slot) AS clash FROM bookings b JOIN jobs j USING (room)"
        " WHERE b.stay OVERLAPS j.slot", changes=False
    )),
    ("inequalities", "interval-tree", _sql(
        f"{_PAIR} b.checkin < j.finishes AND j.begins < COALESCE(b.checkout, 'infinity') AND b.floor < 2"
    )),
    ("begun_inside", "interval-tree", _sql(f"{_PAIR} b.room = j.room AND b.checkin BETWEEN j.since AND j.finishes")),
    ("each_pair_once", "interval-tree", _sql(f"{_SELF} overlaps(a.span, b.span) AND a.room = b.room AND a.nr < b.nr")),
    ("both_orders", "interval-tree", _sql(f"{_SELF} overlaps(a.span, b.span) AND a.room = b.room AND a.nr <> b.nr")),
    ("with_the_diagonal", "interval-tree", _sql(f"{_SELF} overlaps(a.span, b.span) WHERE a.tag = 3")),
    ("near_in_price", "interval-tree", _sql(f"{_PAIR} abs(b.price - j.cost) <= 1.5")),
    ("near_in_time", "interval-tree", {
        "from": {"b": "bookings", "c": "cleanings"}, "join": [{"within": ["b.checkin", "c.from"], "distance": "PT6H"}],
        "select": ["b.id as b", "c.id as c"],
    }),
    ("no_higher", "interval-tree", {
        "from": {"b": "bookings", "j": "jobs"}, "join": [{"equal": ["b.room", "j.room"]}, {"at_most": ["b.floor", "j.level"]}],
        "select": ["b.id", "j.nr"],
    }),
    ("lower", "interval-tree", {
        "from": {"b": "bookings", "j": "jobs"}, "join": [{"equal": ["b.room", "j.room"]}, {"less": ["b.floor", "j.level"]}],
        "select": ["b.id", "j.nr"],
    }),
    ("bounds_of_ints", "interval-tree", _sql(f"{_MARKS} overlaps(a.int_left, b.int_open) AND b.a > 0")),
    ("bounds_of_floats", "interval-tree", _sql(f"{_MARKS} overlaps(a.float_half, b.float_closed) AND a.x < 10")),
    ("bounds_of_dates", "interval-tree", _sql(f"{_MARKS} overlaps(a.date_closed, b.date_left)")),
    ("bounds_of_times", "interval-tree", _sql(f"{_MARKS} overlaps(a.time_open, b.time_half)")),
    ("points", "interval-tree", _sql(f"{_MARKS} overlaps(a.int_point, b.int_closed) AND a.a < 20")),
    ("clique_in_order", "interval-tree", _sql(f"{_THREE} {_MEET} AND a.nr < b.nr AND b.nr < c.nr")),
    ("clique_in_all_orders", "interval-tree", _sql(f"{_THREE} {_MEET} AND a.nr <> b.nr AND b.nr <> c.nr AND a.nr <> c.nr")),
    ("path_of_overlaps", "ij-heap", _sql(
        "SELECT b.id AS b, j.nr AS j, c.id AS c FROM bookings b, jobs j, cleanings c WHERE overlaps(b.stay, j.slot)"
        " AND overlaps(j.slot, c.span) AND c.cost > 44"
    )),
    ("path_of_a_room", "ij-heap", {
        "from": {"b": "bookings", "j": "jobs", "c": "cleanings"},
        "join": [{"equal": ["b.room", "j.room"]}, {"equal": ["j.room", "c.room"]}, {"overlaps": ["b.stay", "j.slot"]},
                 {"overlaps": ["b.stay", "c.span"]}],
        "select": ["b.id", "j.nr", "c.id"],
    }),
    ("pair_by_heap", "ij-heap", _sql(f"{_PAIR} overlaps(b.stay, j.slot) AND b.room = j.room", algorithm="ij-heap")),
    ("boxes", "box-tree", _sql(f"{_PAIR} overlaps(b.stay, j.slot) AND b.floor < j.level")),
    ("boxes_once", "box-tree", _sql(f"{_MARKS} overlaps(a.int_half, b.int_half) AND overlaps(a.float_half, b.float_half) AND a.id < b.id")),
    ("boxes_both_orders", "box-tree", {
        "from": {"a": "marks", "b": "marks"}, "select": ["a.id", "b.id"],
        "join": [{"overlaps": ["a.int_closed", "b.int_closed"]}, {"within": ["a.x", "b.x"], "distance": 9.5},
                 {"not_equal": ["a.id", "b.id"]}],
    }),
    ("path_of_equalities", "join-tree", _sql(
        "SELECT b.id AS b, r.room AS room, s.nr AS s FROM bookings b JOIN rooms r ON b.room = r.room JOIN shifts s ON r.seats = s.tag"
        " WHERE s.s < 16"
    )),
    ("tree_of_both", "join-tree", _sql(
        "SELECT r.room AS room, b.id AS b, c.id AS c FROM rooms r JOIN bookings b ON r.room = b.room JOIN cleanings c"
        " ON overlaps(b.stay, c.span)"
    )),
    ("star", "view-tree", _sql(_STAR + " WHERE j.cost < 100 AND b.floor > 1")),
    ("star_of_nulls", "view-tree", _sql(
        "SELECT a.n AS a, b.n AS b FROM everything a JOIN everything b ON a.x2 = b.x2 AND a.flag2 = b.flag2"
    )),
    ("triangles", "qdag", _sql(_TRIANGLE)),
    ("star_by_qdag", "qdag", _sql(_STAR + " WHERE j.cost > 240", algorithm="qdag")),
    ("triangles_by_look_ups", "nested-loop", _sql(_TRIANGLE, algorithm="nested-loop", changes={"retain_rows": 100})),
    ("texts_in_order", "nested-loop", _sql(
        "SELECT r.room AS r, s.room AS s FROM rooms r JOIN rooms s ON r.room < s.room AND r.seats = s.seats"
    )),
    ("product", "interval-tree", {
        "from": {"r": "rooms", "s": "shifts"}, "join": [{"cross": ["r", "s"]}], "select": ["r.room as room", "s.nr"],
        "where": [{"column": "s.tag", "op": "in", "value": [2, 5]}],
    }),
    ("product_of_joins", "box-tree", _sql(
        "SELECT a.id AS a, b.id AS b, e.name AS name FROM marks a JOIN marks b ON overlaps(a.int_open, b.int_point) AND a.id < b.id"
        " CROSS JOIN emptied e"
    )),
    ("ticks_together", "interval-tree", _sql(
        "SELECT a.id AS a, b.id AS b FROM ticks a JOIN ticks b ON overlaps(a.span, b.span) AND a.id < b.id"
    )),
    ("of_nothing", "interval-tree", _sql(
        "SELECT n.id AS n, m.id AS m FROM never_filled n JOIN marks m ON overlaps(n.day_point, m.date_half)"
    )),
    ("dropped_view", "interval-tree", _sql("SELECT id FROM dropped")),
]  # fmt: skip

LATER: list[tuple[str, str, Definition]] = [
    ("late_pairs", "interval-tree", _sql(
        "SELECT l.id AS l, s.room AS room, s.nr AS nr FROM late l JOIN shifts s ON overlaps(l.span, s.span) AND l.room = s.room"
    )),
    ("again_all", "interval-tree", _sql("SELECT * FROM again")),
]  # fmt: skip
"""Registered when there is a snapshot already."""

FOLLOWED = ("clashes", "overlapping", "each_pair_once", "clique_in_order", "path_of_overlaps", "boxes", "path_of_equalities", "star",
            "triangles", "triangles_by_look_ups", "product", "ticks_together", "filtered_json")  # fmt: skip
