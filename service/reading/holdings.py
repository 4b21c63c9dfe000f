"""What the service holds for its clients between their requests: cursors, readings in parts, files of rows, subscriptions.

Each holding has an owner, the view or relation that it is of, and counts to a client. It is found by its keys until it is released, or is
over: its version is no longer held, its time has come, or nobody has used it for long. The idle time of versions is that of their pins.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, TypeVar

from service.engine.versions import Pin, Pins

_MOST_KEYS = 1000  # of one holding, besides the first


class Holding:
    """What is held. It is over when `pin` is no longer held, at the time `until`, or `idle` seconds after its last use."""

    pin: Pin | None = None
    until = idle = math.inf

    def __init__(self, owner: str, client: str = "") -> None:
        self.owner, self.client = owner, client
        self.used = 0.0  # time of the last use
        self.keys: dict[Hashable, float] = {}  # with the time of their last use: the first one, then the others by that time

    def discard(self) -> None:
        """Free what it consists of, besides the pin. Called once, without the lock of `Holdings`."""


H = TypeVar("H", bound=Holding)


class Holdings:
    """All holdings. Any thread; each call is short, except that `sweep` looks at all of them."""

    def __init__(self, versions: Pins, clock: Callable[[], float] = time.monotonic) -> None:
        self.versions, self.clock = versions, clock
        self.lock = threading.RLock()  # for those who look before they add
        self._found: dict[tuple[type[Holding], Hashable], Any] = {}
        self._sets: dict[tuple[type[Holding], str | None, str | None], dict[Any, None]] = {}  # by kind, owner, client; the oldest first

    def add(self, holding: Holding, *keys: Hashable) -> None:
        with self.lock:
            for name in _sets_of(holding):
                self._sets.setdefault(name, {})[holding] = None
            self.use(holding, *keys)

    def find(self, kind: type[H], key: Hashable) -> H | None:
        """Return the holding of this kind that has this key; that is no use of it."""
        found: H | None = self._found.get((kind, key))
        return found

    def of(self, kind: type[H], owner: str | None = None, client: str | None = None) -> list[H]:
        """Return the holdings of a kind, those of a view or relation, or those of a client; the oldest first."""
        with self.lock:
            return list(self._sets.get((kind, owner, client), ()))

    def count(self, kind: type[Holding], owner: str | None = None, client: str | None = None) -> int:
        return len(self._sets.get((kind, owner, client), ()))

    def use(self, holding: Holding, *keys: Hashable) -> None:
        """Restart its idle time, and let these keys be its own, and no other's. It keeps its first key, and the newest of the others."""
        with self.lock:
            holding.used = self.clock()
            if holding not in self._sets.get((Holding, None, None), ()):
                return
            for key in keys:
                if (before := self._found.get((type(holding), key))) is not None:
                    del before.keys[key]
                self._found[type(holding), key] = holding
                holding.keys[key] = holding.used
            while len(holding.keys) > _MOST_KEYS + 1:
                oldest = next(islice(holding.keys, 1, None))
                del holding.keys[oldest], self._found[type(holding), oldest]

    def release(self, holding: Holding) -> None:
        """Release it, with its pin; a second call does nothing."""
        with self.lock:
            if holding not in self._sets.get((Holding, None, None), ()):
                return
            for name in _sets_of(holding):
                del self._sets[name][holding]
                if not self._sets[name]:
                    del self._sets[name]
            for key in holding.keys:
                del self._found[type(holding), key]
        if holding.pin is not None:
            self.versions.release(holding.pin)
        holding.discard()

    def sweep(self, kind: type[Holding] = Holding) -> None:
        """Release what is over."""
        now = self.clock()
        for holding in self.of(kind):
            is_lost = holding.pin is not None and not self.versions.is_held(holding.pin)
            if is_lost or holding.until <= now or holding.used < now - holding.idle:
                self.release(holding)


def _sets_of(holding: Holding) -> list[tuple[type[Holding], str | None, str | None]]:
    kind = type(holding)
    return [(Holding, None, None), (kind, None, None), (kind, holding.owner, None), (kind, None, holding.client)]
