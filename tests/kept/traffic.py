"""The requests sent to the service before its folder is kept: every form of body, and every kind of row that a log can hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from tests.kept import bodies
from tests.kept.bodies import Change, delete, insert, truncate, upsert
from tests.kept.model import Model, Sender
from tests.kept.relations import Rows

COUNTS = {
    "bookings": 36, "jobs": 28, "rooms": 8, "cleanings": 18, "shifts": 26, "marks": 24, "everything": 12, "links": 40, "ticks": 12,
    "emptied": 3, "dropped": 4, "again": 3,
}  # fmt: skip
CONNECTIONS = 8


class Epochs:
    """The next epoch of each source."""

    def __init__(self) -> None:
        self._last = {"négatif – ü": -(10**6), "large": 2**63 - 100}

    def of(self, source: str, run: str | None = None) -> dict[str, Any]:
        """Return the parameters of a source's next batch."""
        self._last[source] = self._last.get(source, 0) + 1
        return {"source": source, "epoch": self._last[source], **({} if run is None else {"run": run})}

    def restart(self, source: str) -> None:
        self._last[source] = 0


def fill(sender: Sender, rows: Rows, epochs: Epochs) -> None:
    """Insert the first rows of the relations, each relation's in another form."""
    for place, (relation, count) in enumerate(COUNTS.items()):
        changes = [insert(relation, rows.make(relation, number)) for number in range(count)]
        sender.post(bodies.FORMS[place % len(bodies.FORMS)], changes, **epochs.of("load"))


def every_kind(sender: Sender, rows: Rows, epochs: Epochs, base: int) -> None:
    """Each form of body and each kind of effect at least once; new rows are numbered from `base`."""
    model = sender.model

    def some(relation: str, count: int) -> list[Change]:
        return [delete(relation, model.definitions[relation], row) for row in model.some(relation, count)]

    def new(relation: str, first: int, count: int, make: Callable[..., Change] = upsert) -> list[Change]:
        return [make(relation, rows.make(relation, base + first + number)) for number in range(count)]

    for place, form in enumerate(bodies.OF_ONE):
        relation = ("bookings", "marks", "everything", "shifts", "jobs", "cleanings")[place]
        sender.post(form, [*new(relation, 0, 3), *some(relation, 2), *new(relation, 2, 2)], **epochs.of("pms"))
    for form in bodies.OF_ANY:
        mixed = [*some("bookings", 1), *new("bookings", 5, 2), *new("jobs", 5, 2), *some("jobs", 1), *new("ticks", 5, 2)]
        sender.post(form, mixed, **epochs.of("négatif – ü"))
    sender.post("json", new("ticks", 0, 1))
    sender.post("json", new("everything", 10, 1), **epochs.of("large"))
    sender.post("json", some("ticks", 1), **epochs.of("singles"))
    sender.post("json", [*new("ticks", 1, 1), *new("rooms", 1, 1)], **epochs.of("pms"))
    sender.post("jsonl", [*new("rooms", 2, 1), *new("bookings", 8, 4)])
    unknown_key = {"relation": "ticks", "op": "delete", "key": {"id": -1}}
    sender.post("json", [unknown_key], **epochs.of("pms"))
    sender.post("json", new("ticks", 2, 1))
    sender.post("json", [])
    sender.post("json", some("ticks", 1))
    height = {**rows.make("rooms", 1), "Ceiling height": "-Infinity"}
    sender.post("json", [upsert("rooms", height)])  # no JSON for it: one row in Arrow
    sender.post("lines", some("marks", 3))
    sender.post("lines", [truncate("emptied"), *new("emptied", 0, 1), *new("emptied", 1, 1)])
    sender.post("json", [truncate("emptied")], **epochs.of("pms"))
    again = new("emptied", 0, 3)
    sender.post("json", [*new("emptied", 0, 3, insert), *some("emptied", 1), again[1], again[1], truncate("emptied"), *again])
    fault = upsert("links", {"src": 1, "dst": "no number"})
    exists = insert("links", model.some("links", 1)[0])
    sender.post("json", [*new("links", 3, 2), fault, exists], bad=(2, 3), on_error="skip", **epochs.of("skipping"))


def runs_of_a_source(sender: Sender, rows: Rows, epochs: Epochs) -> None:
    """One source numbered by one run, then taken over by another."""
    for run in ("run-a", "run-b"):
        epochs.restart("spark")
        sender.post("json", [upsert("bookings", rows.make("bookings", 3))], reset=True, **epochs.of("spark", run))
        sender.post("jsonl", [upsert("links", rows.make("links", number)) for number in (3, 4, 5)], **epochs.of("spark", run))


def singles(senders: Sequence[Sender], rows: Rows, base: int, rounds: int) -> None:
    """Send single changes over all connections at once: those that wait together are logged together."""
    barrier = threading.Barrier(len(senders))
    failures: list[BaseException] = []

    def change_of(place: int, number: int) -> Change:
        relation = ("ticks", "late", "cleanings")[(place + number) % 3] if number % 2 else "ticks"
        return upsert(relation, rows.make(relation, base + 10 * place + number))

    changes = [[change_of(place, number) for number in range(rounds)] for place in range(len(senders))]

    def send(place: int) -> None:
        sender, source = senders[place], f"connection {place}"
        try:
            for number, change in enumerate(changes[place]):
                barrier.wait(60)
                if number == rounds - 1:
                    relation = changes[place][0]["relation"]
                    change = delete(relation, sender.model.definitions[relation], changes[place][0]["row"])
                sender.post("json", [change], **({"source": source, "epoch": base + number} if place % 2 else {}))
        except BaseException as error:
            barrier.abort()
            failures.append(error)

    threads = [threading.Thread(target=send, args=(place,), daemon=True) for place in range(len(senders))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Stream(threading.Thread):
    """Continuous changes over one connection, until the service is gone, to rows that no other stream changes."""

    PACE = 0.04  # seconds between two batches

    def __init__(self, url: str, model: Model, place: int) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._rows = Rows(1000 + place)
        self._place = place
        self.sender = Sender(httpx.Client(base_url=url, timeout=60), model)
        self.failure: BaseException | None = None

    def run(self) -> None:
        pause = threading.Event()
        for number in range(10**6):
            try:
                self._send(number)
            except httpx.TransportError:
                return
            except BaseException as error:
                self.failure = error
                return
            pause.wait(self.PACE)

    def _send(self, number: int) -> None:
        sender, base = self.sender, 1000 + 100 * self._place
        parameters = {"source": f"stream {self._place}", "epoch": number} if self._place % 3 else {}
        if self._place < 4:
            relation = ("ticks", "late", "bookings", "cleanings")[self._place]
            sender.post("json", [upsert(relation, self._rows.make(relation, base + number % 5))], **parameters)
            return
        changes = [upsert(name, self._rows.make(name, base + (number + step) % 3)) for name in ("bookings", "marks") for step in range(2)]
        if number % 4 == 3:
            changes.append(delete("marks", sender.model.definitions["marks"], changes[-1]["row"]))
        sender.post("json" if number % 2 else "jsonl", changes, **parameters)
