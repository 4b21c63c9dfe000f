"""Who is woken when a feed has changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("livejoin.feeds")


class Listeners:
    """The functions to call when the feed of a view has changes. Any thread."""

    def __init__(self, view: str) -> None:
        self._name, self._guard = view, threading.Lock()
        self._listeners: dict[int, Callable[[], None]] = {}

    def wake(self) -> None:
        """Notify the followers of new changes."""
        with self._guard:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener()
            except Exception:  # the follower's own problem: its event loop is closed
                log.exception("a follower of the view %s could not be woken", self._name)

    def add_listener(self, listener: Callable[[], None]) -> int:
        """Register `listener`, which the writer calls whenever there are new changes (it must not wait); return its number."""
        with self._guard:
            number = max(self._listeners, default=0) + 1
            self._listeners[number] = listener
            return number

    def remove_listener(self, number: int) -> None:
        with self._guard:
            self._listeners.pop(number, None)
