"""What is said of nullable intervals: where comparisons leave out rows that an overlap would keep; and of lengths that become null."""

from __future__ import annotations

import pytest

from tests.service.definitions import sql

FROM = "SELECT b.id FROM bookings b JOIN maintenance m ON "


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        (FROM + "overlaps(b.open, m.slot)", ()),
        (FROM + "b.checkin < m.e AND m.s < b.checkout", ()),
        (FROM + "b.checkin < m.e AND m.s < b.until", ("b.until", "overlaps(b.open, m.slot)")),
        (FROM + "b.checkin < m.e AND m.s < COALESCE(b.until, 'infinity')", ()),
        (FROM + "b.room = m.room AND m.s < b.until", ("b.until", "overlaps(…, b.open)")),
        (FROM.replace("JOIN", "LEFT JOIN") + "b.checkin < m.e AND m.s < b.until", ("b.until", "overlaps(b.open, m.slot)")),
        ("SELECT b.id FROM bookings b WHERE NOT EXISTS (SELECT 1 FROM maintenance m WHERE b.checkin < m.e AND m.s < b.until)",
            ("b.until", "overlaps(b.open, m.slot)")),
        ("SELECT b.id FROM bookings b JOIN bookings c ON b.room = c.room WHERE NOT EXISTS (SELECT 1 FROM maintenance m WHERE "
            "b.checkin < m.e AND m.s < b.until)", ("b.until", "overlaps(b.open, m.slot)")),
    ],
)  # fmt: skip
def test_notes_name_the_other_spelling(text: str, noted: tuple[str, ...]) -> None:
    notes = [note for note in sql(text).plan.notes if "is null are excluded" in note]
    assert len(notes) == bool(noted)
    assert all(word in note for note in notes for word in noted)


NULL, PASSED = "{} is null where a length does not fit into 64 bits", "{} ignores lengths that do not fit into 64 bits"


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("SELECT b.id, duration(b.stay) AS d FROM bookings b", [NULL.format("d")]),
        ("SELECT b.room AS r, SUM(duration(b.stay)) AS d, COUNT(*) AS n FROM bookings b GROUP BY b.room", [PASSED.format("d")]),
        ("SELECT b.room AS r, SUM(duration(b.stay)) AS d, AVG(duration(b.stay)) AS a FROM bookings b GROUP BY b.room",
            [PASSED.format("d"), PASSED.format("a")]),
        ("SELECT DISTINCT b.room AS r, duration(b.stay) AS d FROM bookings b", [NULL.format("d")]),
        ("SELECT b.room AS r, COUNT(*) AS n FROM bookings b GROUP BY b.room HAVING SUM(duration(b.stay)) > 5", [PASSED.format("HAVING")]),
        ("SELECT b.room AS r, COUNT(*) AS n FROM bookings b GROUP BY b.room", []),
    ],
)  # fmt: skip
def test_notes_of_lengths_name_the_columns_of_the_view(text: str, noted: list[str]) -> None:
    assert [note for note in sql(text).plan.notes if "fit into 64 bits" in note] == noted
