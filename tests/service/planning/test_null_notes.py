"""What is said of nullable intervals: where comparisons leave out rows that an overlap would keep."""

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
    ],
)  # fmt: skip
def test_notes_name_the_other_spelling(text: str, noted: tuple[str, ...]) -> None:
    notes = [note for note in sql(text).plan.notes if "is null are left out" in note]
    assert len(notes) == bool(noted)
    assert all(word in note for note in notes for word in noted)
