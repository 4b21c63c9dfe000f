"""Readings: a view at one version in parts, each with a cursor that is valid as long as the reading holds the version.

A part's cursor is like any other, except that its pin does not expire and that it makes room for no other cursor, so a part can be read
again from its beginning. The bound on the memory of old versions (--pin-bytes) ends a reading like every other holder of one.
"""

from __future__ import annotations

import secrets

from service.engine.versions import Pin
from service.errors import Problem
from service.reading.cursors import Cursor, Readers, live_view, owner_of
from service.reading.holdings import Holding
from service.reading.parts import parts_of


class HeldReading(Holding):
    """`id`: its key; `view`: its name; `cursors`: the texts of those of the parts. It ends `seconds` from now."""

    def __init__(self, readers: Readers, owner: str, client: str, view: str, pin: Pin, seconds: float) -> None:
        super().__init__(owner, client)
        self._readers = readers
        self.id, self.view, self.version = secrets.token_urlsafe(12), view, pin.version.number
        self.until = readers.holdings.clock() + seconds
        self.cursors: list[str] = []
        self._parts: list[Cursor] = []
        self.pin: Pin = self._unexpiring(pin)

    def add(self, part: Cursor) -> None:
        """Problem `too-busy`."""
        self.cursors.append(self._readers.keep(part))
        self._parts.append(part)
        self._unexpiring(part.pin)

    def discard(self) -> None:
        for part in self._parts:
            self._readers.holdings.release(part)

    def _unexpiring(self, pin: Pin) -> Pin:
        pin.reading, pin.expires = f"a reading of the view {self.view} in parts", False
        return pin


def begin_reading(readers: Readers, view_name: str, most: int, seconds: float, version: int | None, client: str) -> HeldReading:
    """Hold the newest version, or one that a cursor holds, for this long, in one to `most` parts; the cursors count as the client's. To end
    it sooner, release it: its cursors are then no longer valid, but reads in progress continue.

    Problems: `not-found`, `view-building`, `view-failed`, `snapshot-expired`, `too-busy` (too many cursors).
    """
    view, versions = live_view(readers, view_name), readers.versions
    reading = HeldReading(readers, owner_of(view), client, view_name, versions.pin(version), seconds)
    try:
        with versions.reading(reading.pin) as pinned:
            if (root := pinned.roots.get(view.id)) is None:
                raise Problem("snapshot-expired", f"version {pinned.number} is older than the view", version=pinned.number)
            for index, part in enumerate(parts_of(root.view, pinned, most, readers.delays)):
                asked = f"part {index} of the reading {reading.id}"
                reading.add(Cursor(owner_of(view), versions.again(reading.pin), part, None, None, asked, 0, client, stays=True))
    except BaseException:
        versions.release(reading.pin)
        reading.discard()
        raise
    readers.holdings.add(reading, reading.id)
    return reading


def find_reading(readers: Readers, id_: str) -> HeldReading:
    """Problem `not-found`."""
    reading = readers.holdings.find(HeldReading, id_)
    if reading is None:
        raise Problem("not-found", "there is no such reading: it has ended, or the service has been restarted since it began")
    return reading
