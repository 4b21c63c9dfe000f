"""A refusal lists all complaints, with their positions: each of a single mistake is also made alone, and nothing else is said."""

from __future__ import annotations

import random
from typing import Any

import pytest

from service.errors import MOST_COMPLAINTS, Problem
from service.query.assembly import Limits
from service.views.parse import parse_view
from tests.service.definitions import RELATIONS, refused

SELECTED = {
    "id": None,
    "b.price": None,
    "nope(b.price)": "nope",
    "row_number() OVER (ORDER BY b.id)": "row_number() over",
    "b.guest + 1": "string + int64",
}
CONDITIONS = {
    "b.floor > 3": None,
    "b.guest = 'x'": None,
    "b.guest = 3": "guest",
    "nope(b.floor) = 1": "nope",
    "b.price BETWEEN SYMMETRIC 2 AND 1": "BETWEEN SYMMETRIC",
    "(b.floor = 1 OR nope(b.id))": "nope",
    "EXISTS (SELECT 1 FROM maintenance m WHERE m.room = b.room AND nope(m.id) AND m.code = 'x' LIMIT 3)": "LIMIT in EXISTS",
}
CLAUSES = {"": None, "LIMIT 3": "LIMIT without ORDER BY", "LIMIT 3 OFFSET 2": "LIMIT without ORDER BY", "FOR UPDATE": "FOR UPDATE"}


def complaints(problem: Problem) -> list[dict[str, Any]]:
    listed = problem.extensions.get("complaints")
    if listed is None:
        return [{"detail": problem.detail} | ({"position": problem.extensions["position"]} if "position" in problem.extensions else {})]
    assert len(listed) > 1 and listed[0]["detail"] == problem.detail and listed[0].get("position") == problem.extensions.get("position")
    found: list[dict[str, Any]] = listed
    return found


def places(text: str, problem: Problem) -> list[str]:
    """Return the words at the positions."""
    return [text[one["position"]["column"] - 1 :].split()[0] for one in complaints(problem)]


def said(text: str) -> list[dict[str, Any]]:
    try:
        parse_view("v", {"sql": text}, RELATIONS)
    except Problem as problem:
        return complaints(problem)
    return []


@pytest.mark.parametrize("seed", range(30))
def test_all_at_once(seed: int) -> None:
    rng = random.Random(seed)
    columns, clause = rng.sample(list(SELECTED), rng.randrange(1, 4)), rng.choice(list(CLAUSES))
    columns = ["b.id", *columns] if all(SELECTED[one] for one in columns) else columns
    conditions = rng.sample(list(CONDITIONS), rng.randrange(1, 5))

    def text(chosen: list[str], where: list[str], end: str) -> str:
        shown = ", ".join(one if one in chosen else " " * (len(one) - 1) + "1" for one in columns)
        met = " AND ".join(one if one in where else " " * (len(one) - 4) + "true" for one in conditions)
        return f"SELECT {shown} FROM bookings b WHERE {met} {end}"

    alone = [said(text([one], [], "")) for one in columns] + [said(text([], [one], "")) for one in conditions]
    alone.append(said(text([], [], clause)))
    everything = said(text(columns, conditions, clause))
    assert sorted(map(repr, everything)) == sorted({repr(one) for some in alone for one in some})
    wrong = [*map(SELECTED.get, columns), *map(CONDITIONS.get, conditions), CLAUSES[clause]]
    for part in filter(None, wrong):
        assert any(part.lower() in one["detail"].lower() for one in everything), part
    assert all("position" in one for one in everything if "FOR UPDATE" not in one["detail"])


def test_names_come_first() -> None:
    text = "SELECT nothing, b.id, b.other FROM bookings b JOIN maintenance m ON b.room = m.rooms WHERE b.id = 'x' LIMIT 3"
    problem = refused(text)
    assert places(text, problem) == ["nothing,", "other", "rooms", "3", "'x'"], "each once"
    names = complaints(problem)[:3]
    assert all("has no column" in one["detail"] or "no relation of the view has a column" in one["detail"] for one in names)
    both = refused("SELECT nope(id) FROM nowhere a JOIN neither b ON a.x = b.x OFFSET 3")
    said = [one["detail"].split(";")[0] for one in complaints(both)]
    assert said[:2] == [f"there is no relation or view {name}" for name in ("nowhere", "neither")]
    assert [one.split(" is")[0] for one in said[2:]] == ["OFFSET"], "no more of this SELECT can be judged"
    within = "SELECT b.nope FROM bookings b WHERE EXISTS (SELECT 1 FROM shifts s WHERE s.room = b.room AND s.nope = 3 AND s.s = 'x')"
    assert places(within, refused(within)) == ["nope", "nope", "'x')"]


def test_groups() -> None:
    text = (
        "SELECT guest, SUM(guest), nope(room), COUNT(*) FROM bookings GROUP BY guest, room "
        "HAVING SUM(guest) > 1 AND COUNT(*) > 2 AND COUNT(*) > 'x'"
    )
    assert places(text, refused(text)) == ["SUM(guest),", "nope(room),", "SUM(guest)"]
    text = text.replace("SUM(guest), nope(room)", "room")
    assert places(text, refused(text)) == ["SUM(guest)", "'x'"]
    text = "SELECT nope(room), SUM(guest) FROM bookings GROUP BY nope(room), 7"
    assert places(text, refused(text)) == ["nope(room),", "7", "SUM(guest)"], "not what depends on the groups"
    assert text.index("GROUP") < complaints(refused(text))[0]["position"]["column"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SELECT b.id FROM bookings b, maintenance m, shifts s", ["maintenance", "shifts"]),
        ("SELECT nope(b.id) FROM bookings b, maintenance m LIMIT 3", ["3", "nope(b.id)", "maintenance"]),
        (
            "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.id AND m.room = b.id AND nope(b.id)",
            ["b.room", "m.room", "nope(b.id)"],
        ),
        ("SELECT b.id, nope(b.id) FROM bookings b JOIN maintenance m ON nope(m.id) > b.id", ["nope(m.id)", "nope(b.id)"]),
        (
            "SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.digits) AND overlaps(b.stay, b.open)",
            ["overlaps(b.stay,"] * 2,
        ),
        (
            "SELECT duration(b.stay, m.slot), intersection(b.open, m.slot) FROM bookings b "
            "JOIN maintenance m USING (room)",
            ["duration(b.stay,", "intersection(b.open,"],
        ),
        ("SELECT b.id FROM bookings b JOIN maintenance m USING (room) JOIN shifts s USING (s)", ["shifts"]),
        (
            "SELECT b.id FROM bookings b, maintenance m "
            "UNION SELECT nope(b.id) FROM bookings b UNION SELECT id FROM bookings",
            ["nope(b.id)"],
        ),
        ("SELECT b.id FROM bookings b UNION SELECT m.room FROM maintenance m UNION SELECT s.room FROM shifts s", ["m.room", "s.room"]),
        (
            "SELECT b.id FROM bookings b LEFT JOIN maintenance m ON b.floor > 3 "
            "LEFT JOIN shifts s ON m.room = s.room AND b.room = s.room",
            ["maintenance"],
        ),
        ("SELECT b.id FROM bookings b, maintenance m WHERE NOT EXISTS (SELECT 1 FROM shifts s WHERE b.id = 3)", ["maintenance", "b.id"]),
        ("SELECT b.id FROM bookings b WHERE (nope(b.id) = 1 OR b.guest = 3 OR b.id = 2)", ["nope(b.id)", "3"]),
        ("SELECT nope(b.id) FROM bookings b JOIN bookings m ON b.price < COALESCE(m.price, 'infinity')", ["nope(b.id)", "b.price"]),
        (
            "SELECT b.id, CASE WHEN nope(b.id) THEN b.id ELSE nix(b.room) END FROM bookings b WHERE b.id + lower(b.id) > upper(b.id)",
            ["lower(b.id)", "upper(b.id)", "nope(b.id)", "nix(b.room)"],
        ),
        (
            "SELECT b.guest || nope(b.id + nix(b.id)) FROM bookings b WHERE nope(b.id) > 3 OR b.id IN (2, nope(b.id))",
            ["nope(b.id)", "nope(b.id))", "nope(b.id"],
        ),
        ("SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room AND b.checkin > COALESCE(m.e, 'infinity')", ["b.checkin"]),
        (
            "SELECT row_number() OVER (), SUM(b.guest) "
            "FROM bookings b GROUP BY b.x HAVING SUM(b.room) > 1",
            ["row_number()", "x", "SUM(b.guest)", "SUM(b.room)"],
        ),
    ],
)  # fmt: skip
def test_what_is_judged_late(text: str, words: list[str]) -> None:
    problem = refused(text)
    assert places(text, problem) == words, complaints(problem)


def test_unions_and_joins() -> None:
    text = "SELECT id FROM bookings WHERE id = 'x' EXCEPT SELECT id FROM maintenance WHERE code = 'y' LIMIT 3"
    assert [one["detail"].split(" is not")[0][:16] for one in complaints(refused(text))][:1] == ["LIMIT with UNION"]
    assert len(complaints(refused(text))) == 3
    on = "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room AND nope(m.id) AND b.guest = 3 LEFT JOIN shifts s ON nope(s.nr)"
    assert len(complaints(refused(on))) == 3


def test_the_most() -> None:
    names = ", ".join(f"b.nope{number}" for number in range(MOST_COMPLAINTS + 50))
    for text in (f"SELECT {names} FROM bookings b LIMIT 3", f"SELECT id FROM bookings b WHERE EXISTS (SELECT {names} FROM shifts)"):
        assert len(complaints(refused(text))) == MOST_COMPLAINTS
    many = Limits(aliases=8, conditions=64, columns=64, sql=1 << 20)
    with pytest.raises(Problem, match="a view with 65 conditions") as caught:
        parse_view("v", {"sql": "SELECT id FROM bookings b WHERE " + " AND ".join(["nope(b.id)"] * 65)}, RELATIONS, limits=many)
    assert "complaints" not in caught.value.extensions, "refused before it is read"


def test_json() -> None:
    definition = {
        "from": {"b": "bookings"}, "select": ["b.id", {"expression": "nope(b.id)"}],
        "where": [{"column": "b.id", "op": "=", "value": "x"}, {"column": "b.guest", "op": "like", "value": "%\\"}],
    }  # fmt: skip
    assert [one["detail"].split(":")[0] for one in complaints(refused(definition))] == ["where.0.value", "where.1", "select.1.expression"]
    names = {"from": {"b": "bookings"}, "select": ["b.nope", "b.id"], "where": [{"column": "b.other", "op": "=", "value": 1}]}
    assert [one["detail"].split(":")[0] for one in complaints(refused(names))] == ["select.0", "where.0.column"]
    group = {"from": {"b": "bookings"}, "group": [{"trunc": "second", "of": "b.nope"}, "b.other"]}
    assert [one["detail"].split(":")[0] for one in complaints(refused(group))] == ["group.0.of", "group.1"]
    form = {"from": {"b": "bookings"}, "selected": [], "wheres": []}
    assert "has no field" in refused(form).detail
    form = {"from": {"b": "bookings"}, "select": [], "where": [{"column": 3, "op": "="}]}
    assert [one["detail"].split(":")[0] for one in complaints(refused(form))] == ["where.0.column", "select"]


def test_what_a_refused_join_joins_is_not_judged() -> None:
    text = "SELECT m.id FROM maintenance m RIGHT ANTI JOIN bookings b ON b.room = b.room AND b.floor <> m.floor"
    assert [one["detail"].split(" is not")[0] for one in complaints(refused(text))] == ["RIGHT ANTI JOIN"]
