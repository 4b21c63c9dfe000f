"""Relations replaced, deleted from by condition, extended; sources."""

from __future__ import annotations

import pytest

import livejoin
from livejoin import encoding
from tests.client.hotel import Hotel, row
from tests.waiting import until


def ids(relation: livejoin.Relation) -> list[int]:
    return sorted(one["id"] for one in relation.rows())


def test_at_once_and_in_parts(hotel: Hotel, monkeypatch: pytest.MonkeyPatch) -> None:
    bookings = hotel.bookings
    first = bookings.replace([row(1), row(2)])
    assert first.applied == 2 and ids(bookings) == [1, 2]
    monkeypatch.setattr(encoding, "ROWS", 10)
    receipt = bookings.replace((row(number) for number in range(35)), name="nightly", epoch=3)
    assert (receipt.version, receipt.applied) == (first.version + 1, 35) and ids(bookings) == list(range(35))
    again = bookings.replace((row(number) for number in range(40)), name="nightly", epoch=3)
    assert again.duplicate and again.first is not None and again.first["applied"] == 35 and ids(bookings) == list(range(35))
    with pytest.raises(livejoin.BadRows) as error:
        bookings.replace([*(row(number) for number in range(25)), row(25) | {"s": "x"}])
    assert error.value.errors[0]["index"] == 25 and ids(bookings) == list(range(35))
    skipped = bookings.replace([*(row(number) for number in range(12)), row(20) | {"s": "x"}], on_error="skip")
    assert skipped.skipped_count == 1 and skipped.skipped[0]["index"] == 12 and ids(bookings) == [*range(12), 20]
    assert bookings.replace([]).applied == 0 and ids(bookings) == []


def test_conditions(hotel: Hotel) -> None:
    hotel.bookings.replace([row(number, start=number) for number in range(8)])
    assert hotel.bookings.delete_where({"column": "s", "op": ">", "value": 5}).applied == 2
    both = {"column": "id", "op": "in", "value": [0, 1]}, {"column": "room", "op": "=", "value": "A"}
    assert hotel.bookings.delete_where(*both).applied == 2
    assert ids(hotel.bookings) == [2, 3, 4, 5]
    assert hotel.bookings.delete_where("s + id > 7", {"expression": "room IS NOT NULL"}).applied == 2
    assert ids(hotel.bookings) == [2, 3]
    with pytest.raises(livejoin.BadDefinition, match="truncate"):
        hotel.bookings.delete_where()


def test_extensions(hotel: Hotel) -> None:
    made = hotel.bookings.patch(add_columns={"note": "string", "until": {"type": "date"}}, add_intervals={"arrival": "s"})
    assert [column["name"] for column in made["columns"]][-2:] == ["note", "until"] and set(made["intervals"]) == {"stay", "arrival"}
    assert hotel.bookings.patch(retain=("until", "P90D"))["retain"] == {"column": "until", "for": "P90D"}
    assert hotel.bookings.patch()["retain"]["for"] == "P90D" and "retain" not in hotel.bookings.patch(retain=None)
    hotel.bookings.upsert([row(1) | {"until": "2025-12-31"}, row(2) | {"until": None}, row(3) | {"until": "9999-12-31"}])
    emitted = hotel.bookings.patch(retain=("until", "P1D"), dry_run=True)
    assert (emitted["expired_rows"], emitted["rows"], emitted["retain"]) == (1, 3, {"column": "until", "for": "P1D"})
    assert "expired_rows" not in hotel.bookings.patch() and "retain" not in hotel.bookings.patch()
    assert ids(hotel.bookings) == [1, 2, 3]
    assert hotel.bookings.patch(retain=("until", "P1D"))["expired_rows"] == 1
    until(lambda: ids(hotel.bookings) == [2, 3])
    hotel.bookings.patch(retain=None)
    hotel.bookings.truncate()
    with pytest.raises(livejoin.DefinitionDiffers):
        hotel.bookings.patch(add_columns={"note": "int64"})
    with pytest.raises(livejoin.RelationInUse):
        hotel.bookings.patch(nullable=["room"])
    hotel.bookings.upsert([row(1) | {"note": "late"}])
    assert [one["note"] for one in hotel.bookings.rows()] == ["late"]


def test_sources(hotel: Hotel) -> None:
    with hotel.lj.batch("a/b", 7) as batch:
        batch.upsert(hotel.bookings.name, [row(1)])
    assert [(one["run"], one["epoch"]) for one in hotel.lj.sources() if one["name"] == "a/b"] == [(None, 7)]
    hotel.lj.forget_source("a/b")
    with pytest.raises(livejoin.NotFound):
        hotel.lj.forget_source("a/b")
