"""Readings: a view at one version in parts, each with a cursor that is valid as long as the reading holds the version.

A part's cursor is like any other, except that its pin does not expire and that it makes room for no other cursor, so a part can be read
again from its beginning. The bound on the memory of old versions (--pin-bytes) ends a reading like every other holder of one.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from service.engine.versions import Pin
from service.errors import Problem
from service.reading.cursors import Kept, Readers, live_view, owner_of
from service.reading.parts import parts_of


class HeldReading(NamedTuple):
    """`id`: for `end`; `view`: its name; `cursors`: of the parts."""

    id: str
    view: str
    version: int
    cursors: list[str]


class _Held(NamedTuple):
    view: str
    pins: list[Pin]
    until: float


class HeldReadings:
    """The readings of the service. Any thread."""

    def __init__(self, readers: Readers, clock: Callable[[], float] = time.monotonic) -> None:
        self._readers, self._clock = readers, clock
        self._held: dict[str, _Held] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def begin(self, view_name: str, most: int, seconds: float, version: int | None, client: str) -> HeldReading:
        """Hold the newest version, or one that a cursor holds, for this long, in one to `most` parts; the cursors count as the client's.

        Problems: `not-found`, `view-building`, `view-failed`, `snapshot-expired`, `too-busy` (too many cursors).
        """
        view, versions, cursors = live_view(self._readers, view_name), self._readers.published.versions, self._readers.cursors
        id_, pins, texts = secrets.token_urlsafe(12), [versions.pin(version)], list[str]()
        try:
            with versions.reading(pins[0]) as pinned:
                if view.id not in pinned.roots:
                    raise Problem("snapshot-expired", f"version {pinned.number} is older than the view", version=pinned.number)
                for number, reading in enumerate(parts_of(view, pinned, most, self._readers.delays)):
                    pins.append(versions.again(pins[0]))
                    asked = f"part {number} of the reading {id_}"
                    texts.append(cursors.keep(Kept(owner_of(view), pins[-1], reading, None, None, asked, 0, client, stays=True)))
            for pin in pins:
                pin.reading, pin.expires = f"a reading of the view {view_name} in parts", False
        except BaseException:
            self._release(pins)
            raise
        with self._lock:
            self._held[id_] = _Held(view_name, pins, self._clock() + seconds)
        return HeldReading(id_, view_name, pinned.number, texts)

    def view_of(self, id_: str) -> str:
        """Return the name of a reading's view. Problem `not-found`."""
        held = self._held.get(id_)
        if held is None:
            raise Problem("not-found", "there is no such reading: it has ended, or the service has been restarted since it began")
        return held.view

    def end(self, id_: str) -> None:
        """Release the version; its cursors are no longer valid, but reads in progress continue. A second call does nothing."""
        with self._lock:
            held = self._held.pop(id_, None)
        if held is not None:
            self._release(held.pins)

    def sweep(self) -> None:
        """End the readings whose time is over, and forget those whose version has expired."""
        now, versions = self._clock(), self._readers.published.versions
        for id_, held in list(self._held.items()):
            if held.until <= now or not any(map(versions.is_held, held.pins)):
                self.end(id_)

    def _release(self, pins: list[Pin]) -> None:
        for pin in pins:
            self._readers.published.versions.release(pin)
        self._readers.cursors.sweep()
