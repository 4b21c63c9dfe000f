"""Versions and pins: what readers see, and what must be kept for them.

The writer publishes a version by one assignment; a reader pins the published version and reads it for as long as it holds the pin. Pinning,
publishing and asking which versions are needed share one lock, held for a few assignments, so no reader can pin a version that was just
released. Nobody waits for a read to finish.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from sortedcontainers import SortedDict

from service.errors import Problem
from service.tables.store import Numbers


class Version(NamedTuple):
    """A version of the whole service: plain data."""

    number: int
    roots: Mapping[str, Any]  # keys: view ids
    counts: Mapping[int, int]  # rows, by relation id


class Pin:
    """A reader's hold on a version; `rows_only`: on the rows of relations and on shared indexes, not on the structures of views. Only
    `Pins` uses the private attributes."""

    __slots__ = ("_busy", "_doomed", "_held", "_made", "_used", "expires", "reading", "rows_only", "version")

    def __init__(self, version: Version, rows_only: bool, now: float) -> None:
        self.version, self.rows_only = version, rows_only
        self.reading = ""  # description of what its reader reads
        self.expires = True  # whether it expires when its reader has been idle for long
        self._made = now
        self._used = now  # time of its reader's last read
        self._busy = 0  # reads in progress
        self._doomed = False  # to be released as soon as no read is in progress
        self._held = True


class VersionsInUse(NamedTuple):
    """What must not be reused: the number of the published version, and the sorted numbers of the pinned ones, for rows and for the
    structures of views."""

    published: int
    rows: Numbers
    views: Numbers


class HeldVersion(NamedTuple):
    """A held version, for monitoring. `reading`: what the reader that has been idle for longest (`idle`) reads, "" if unknown; `age`: of
    the oldest pin."""

    version: int
    readers: int
    reading: str
    idle: float
    age: float


class Pins:
    """The published version, and the versions that readers hold. Any thread; each call is short."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: SortedDict[int, list[Pin]] = SortedDict()
        self._numbers: tuple[Numbers, Numbers] | None = None  # as in `VersionsInUse`; None: to be recomputed
        self.published = Version(0, {}, {})

    def publish(self, version: Version) -> None:
        with self._lock:
            self.published = version

    def pin(self, number: int | None = None, rows_only: bool = False) -> Pin:
        """Hold the published version, or another that is held already, with its views. Problem `snapshot-expired` if it is not."""
        with self._lock:
            version = self.published
            if number is not None and number != version.number:
                if number > version.number:
                    raise Problem("snapshot-expired", f"there is no version {number} yet, the newest is {version.number}", version=number)
                if not self._has_views(number):
                    raise expired(number)
                version = self._whole(number)
            return self._add(version, rows_only)

    def again(self, pin: Pin) -> Pin:
        """Return another hold on the version of `pin`, with its own age. Problem `snapshot-expired`."""
        with self._lock:
            if not pin._held or pin._doomed:
                raise expired(pin.version.number)
            return self._add(pin.version, pin.rows_only)

    def release(self, pin: Pin) -> None:
        """Release the pin; a second call does nothing."""
        with self._lock:
            self._doom(pin)

    @contextmanager
    def reading(self, pin: Pin) -> Iterator[Version]:
        """Context of a read under a pin: the pin cannot expire in it, and its idle time restarts afterwards. Problem `snapshot-expired`."""
        with self._lock:
            if not pin._held or pin._doomed:
                raise expired(pin.version.number)
            pin._busy += 1
        try:
            yield pin.version
        finally:
            with self._lock:
                pin._busy -= 1
                pin._used = self._clock()
                if pin._doomed:
                    self._doom(pin)

    def touch(self, pin: Pin) -> None:
        """Restart the pin's idle time, if it is held."""
        with self._lock:
            pin._used = self._clock()

    @contextmanager
    def holding(self, rows_only: bool = True) -> Iterator[int]:
        """Hold the published version, and yield its number; the hold never expires, however much memory it retains."""
        with self._lock:
            pin = self._add(self.published, rows_only)
            pin._busy += 1
        try:
            yield pin.version.number
        finally:
            with self._lock:
                pin._busy -= 1
                self._doom(pin)

    def needed(self) -> VersionsInUse:
        with self._lock:
            if self._numbers is None:
                numbers = list(self._held)
                self._numbers = np.array(numbers, np.int64), np.array([one for one in numbers if self._has_views(one)], np.int64)
            return VersionsInUse(self.published.number, *self._numbers)

    def expire_idle(self, seconds: float) -> None:
        """Release the pins whose readers have been idle for this long."""
        if not self._held:
            return
        with self._lock:
            limit = self._clock() - seconds
            for pins in list(self._held.values()):
                for pin in list(pins):
                    if pin._used < limit and pin.expires and not pin._busy:
                        self._doom(pin)

    def expire_oldest(self, count: int = 1) -> bool:
        """Release all pins of the `count` oldest versions that are not the published one; False if there is none."""
        with self._lock:
            published = self.published.number
            held = (number for number, pins in self._held.items() if number < published and not all(pin._doomed for pin in pins))
            oldest = list(islice(held, count))
            for number in oldest:
                for pin in list(self._held[number]):
                    self._doom(pin)
            return bool(oldest)

    def held(self) -> list[HeldVersion]:
        """Return the versions that readers hold, the oldest first."""
        with self._lock:
            now, found = self._clock(), []
            for number, pins in self._held.items():
                idle = min(pins, key=lambda pin: pin._used)
                found.append(HeldVersion(number, len(pins), idle.reading, now - idle._used, now - min(pin._made for pin in pins)))
            return found

    def is_held(self, pin: Pin) -> bool:
        return pin._held and not pin._doomed

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._held.values()))

    def _has_views(self, number: int) -> bool:
        """Whether the structures of views are held at this version."""
        return not all(pin.rows_only for pin in self._held.get(number, ()))

    def _add(self, version: Version, rows_only: bool) -> Pin:
        pin = Pin(version, rows_only, self._clock())
        pins = self._held.setdefault(version.number, [])
        if not pins or not (rows_only or self._has_views(version.number)):
            self._numbers = None
        pins.append(pin)
        return pin

    def _whole(self, number: int) -> Version:
        """Return a held version with every view and relation that was registered at it: registering publishes the number again."""
        held = [pin.version for pin in self._held[number]]
        roots = {id_: root for version in held for id_, root in version.roots.items()}
        counts = {id_: count for version in held for id_, count in version.counts.items()}
        return Version(number, roots, counts)

    def _doom(self, pin: Pin) -> None:
        pin._doomed = True
        if pin._busy or not pin._held:
            return
        pin._held = False
        number = pin.version.number
        pins = self._held[number]
        pins.remove(pin)
        if not pins or not (pin.rows_only or self._has_views(number)):
            self._numbers = None
        if not pins:
            del self._held[number]


def expired(number: int) -> Problem:
    return Problem("snapshot-expired", f"version {number} is no longer kept", version=number)
