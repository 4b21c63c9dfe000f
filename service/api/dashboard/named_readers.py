"""What readers that give their name in `Livejoin-Reader`, such as queries on Spark, have read last. In memory, for an hour."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple
from urllib.parse import unquote

from service.api.http.media import Fields
from service.views.live_view import LiveView

HEADER = b"livejoin-reader"
_FORGOTTEN_AFTER = 3600.0  # seconds
_MOST, _LONGEST = 1000, 200


class NamedReader(NamedTuple):
    """`version`: up to which it has requested the view; `at`: when, on the monotonic clock."""

    name: str
    view: str
    version: int
    at: float

    def behind(self, view: LiveView | None, newest: int) -> int:
        """Number of versions that it has yet to read; 0 if none of them changes the view."""
        return max(0, newest - (view.feed.quiet_until(self.version) if view and view.feed else self.version))

    def to_json(self, view: LiveView | None, newest: int) -> dict[str, Any]:
        shown = {"name": self.name, "view": self.view, "version": self.version, "behind": self.behind(view, newest)}
        return shown | {"idle_seconds": round(time.monotonic() - self.at, 1)}


class NamedReaders:
    """By name and view, the one that has been idle for longest first. Any thread."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], NamedReader] = {}
        self._lock = threading.Lock()

    def note(self, fields: Fields, view: str, version: int) -> None:
        """Note what the request with these header fields reads, if it gives a name, of which terminals get no control characters."""
        if name := "".join(filter(str.isprintable, unquote(fields.get(HEADER, b"").decode("latin-1"))))[:_LONGEST]:
            with self._lock:
                self._last.pop((name, view), None)
                self._last[name, view] = NamedReader(name, view, version, time.monotonic())
                if len(self._last) > _MOST:
                    del self._last[next(iter(self._last))]

    def recent(self) -> list[NamedReader]:
        since = time.monotonic() - _FORGOTTEN_AFTER
        with self._lock:
            return [one for one in self._last.values() if one.at > since]
