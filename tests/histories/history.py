"""What clients did and received, in the order of a clock that all share: `began` before the request, `ended` after the answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.histories.model import Change, Row


@dataclass(frozen=True)
class Write:
    """A batch that was answered. `version`: the one that it made; for a duplicate, the one that its first copy made."""

    source: str
    epoch: int
    changes: tuple[Change, ...]
    version: int
    duplicate: bool
    began: int
    ended: int


@dataclass(frozen=True)
class Reading:
    """All rows of a relation or view at one version, read in one request or by pages. `columns`: those that each row had, if there is a
    row."""

    name: str
    version: int
    rows: tuple[Row, ...]
    began: int
    ended: int
    columns: frozenset[str] = frozenset()


class Record(NamedTuple):
    """A record that a follower received: `op` is insert, delete, or progress (which ends a version)."""

    op: str
    version: int
    identity: str = ""
    row: Row = ()


@dataclass(frozen=True)
class Poll:
    """What a follower received in one request: after the token of version `since`, or from a snapshot (None). It may be aborted at any
    point."""

    follower: str
    view: str
    since: int | None
    records: tuple[Record, ...]
    began: int
    ended: int


@dataclass(frozen=True)
class Expired:
    """A follower's token of version `since` was refused."""

    follower: str
    since: int
    began: int
    ended: int


@dataclass(frozen=True)
class Extended:
    """The definition of a relation was extended by a column."""

    relation: str
    column: str
    began: int
    ended: int


@dataclass(frozen=True)
class Start:
    """The service was started, at this version."""

    version: int
    began: int
    ended: int


Event = Write | Reading | Poll | Expired | Extended | Start


def newest(event: Event) -> int | None:
    """Return the newest version that a client knows to exist after this event."""
    if isinstance(event, Poll):
        return max((record.version for record in event.records), default=None)
    return None if isinstance(event, Expired | Extended) else event.version


@dataclass
class History:
    """`emitted` is called after each event with what a client knows to exist: the newest version, or a column, as `relation.column`.
    `columns`: those of all events so far, by relation."""

    events: list[Event] = field(default_factory=list)
    emitted: Callable[[str], None] | None = None
    columns: dict[str, set[str]] = field(default_factory=dict)
    _time: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def now(self) -> int:
        with self._lock:
            self._time += 1
            return self._time

    def add(self, event: Event) -> None:
        version = newest(event)
        with self._lock:
            self.events.append(event)
            if isinstance(event, Extended):
                self.columns[event.relation] = self.columns.get(event.relation, set()) | {event.column}
            if self.emitted and isinstance(event, Extended):
                self.emitted(f"{event.relation}.{event.column}")
            elif self.emitted and version is not None:
                self.emitted(str(version))
