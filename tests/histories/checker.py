"""Whether a history is one that the service guarantees (docs/design/versions.md), as a pure function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.histories.history import Event, Expired, Extended, Poll, Reading, Record, Start, Write, newest
from tests.histories.model import Change, Row, State


def anomalies(events: Sequence[Event], tokens_last: bool = True) -> list[str]:
    """Return all errors in a history, as text; [] for a correct one. Without `tokens_last`, tokens may be refused.

    Each batch makes one version, once; the versions of all batches are 1, 2, ... without a gap. A request that begins after another one has
    ended sees its version or a newer one, and the columns that were added. A reading has the rows of the model at its version. The rows of
    a follower are those of the view at each progress, and versions are sent once, complete and in order; its tokens never expire
    (everything is within the limits of what is kept).
    """
    found: list[str] = []
    batches = _batches(events, found)
    states = _states(batches, found)
    found += _of_time(events)
    found += _of_columns(events)
    for event in events:
        if isinstance(event, Reading):
            found += _of_a_reading(event, states)
        elif isinstance(event, Expired) and tokens_last:
            found.append(f"{event.follower}: its token of version {event.since} is refused")
    for name in sorted({event.follower for event in events if isinstance(event, Poll)}):
        found += _Following(name, states).check([event for event in events if isinstance(event, Poll) and event.follower == name])
    return found


def states_of(events: Sequence[Event]) -> list[State]:
    """Return the states after the answered batches, by version. ValueError: their versions are wrong."""
    found: list[str] = []
    states = _states(_batches(events, found), found)
    if found:
        raise ValueError("; ".join(found))
    return states


def _batches(events: Sequence[Event], found: list[str]) -> dict[int, tuple[Change, ...]]:
    """Return their changes by version."""
    of_version: dict[int, Write] = {}
    of_epoch: dict[tuple[str, int], int] = {}
    first: set[tuple[str, int]] = set()
    for event in events:
        if not isinstance(event, Write):
            continue
        name = event.source, event.epoch
        before = of_epoch.setdefault(name, event.version)
        if before != event.version:
            found.append(f"{name} made version {before}, and version {event.version}")
        elif not event.duplicate and name in first:
            found.append(f"{name} was applied twice")
        if not event.duplicate:
            first.add(name)
        other = of_version.setdefault(event.version, event)
        if (other.source, other.epoch) != name:
            found.append(f"version {event.version} is of {(other.source, other.epoch)} and of {name}")
    last: dict[str, int] = {}
    for version in sorted(of_version):
        write = of_version[version]
        if write.epoch <= last.get(write.source, -1):
            found.append(f"epoch {write.epoch} of {write.source} comes behind {last[write.source]}")
        last[write.source] = write.epoch
    return {version: write.changes for version, write in of_version.items()}


def _states(batches: dict[int, tuple[Change, ...]], found: list[str]) -> list[State]:
    states = [State()]
    for version in range(1, max(batches, default=0) + 1):
        if version not in batches:
            found.append(f"version {version} is of no batch")
        states.append(states[-1].after(batches.get(version, ())))
    return states


def _of_time(events: Sequence[Event]) -> Iterator[str]:
    """The effects of what has ended are visible to everything that begins later."""
    seen = 0
    ended = sorted(events, key=lambda event: event.ended)
    position = 0
    for event in sorted(events, key=lambda event: event.began):
        while ended[position].ended < event.began:
            seen = max(seen, newest(ended[position]) or 0)
            position += 1
        if isinstance(event, Write) and not event.duplicate and event.version <= seen:
            yield f"{(event.source, event.epoch)} made version {event.version} after version {seen} was seen"
        elif isinstance(event, Reading | Start) and event.version < seen:
            what = f"a reading of {event.name}" if isinstance(event, Reading) else "a start"
            yield f"{what} is of version {event.version} after version {seen} was seen"


def _of_columns(events: Sequence[Event]) -> Iterator[str]:
    """A column that was added exists from then on."""
    added: dict[tuple[str, str], int] = {}
    for event in events:
        if isinstance(event, Extended):
            name = event.relation, event.column
            added[name] = min(event.ended, added.get(name, event.ended))
    for event in events:
        if isinstance(event, Reading) and event.rows:
            for (relation, column), ended in added.items():
                if relation == event.name and ended < event.began and column not in event.columns:
                    yield f"a reading of {relation} at version {event.version} is without {column}, which was there before"


def _of_a_reading(event: Reading, states: list[State]) -> Iterator[str]:
    if event.version >= len(states):
        yield f"a reading of {event.name} is of version {event.version}, which no batch made"
        return
    expected, got = Counter(states[event.version].rows(event.name).values()), Counter(event.rows)
    if expected != got:
        yield f"{event.name} at version {event.version}: {_differences(expected, got)}"


def _differences(expected: Counter[Row], got: Counter[Row]) -> str:
    return f"missing {sorted((expected - got).elements(), key=repr)[:3]}, too many {sorted((got - expected).elements(), key=repr)[:3]}"


class _Following:
    """The rows of one follower, by identity, at its last progress."""

    def __init__(self, name: str, states: list[State]) -> None:
        self._name, self._states = name, states
        self._rows: dict[str, Row] = {}
        self._at: int | None = None

    def check(self, polls: Sequence[Poll]) -> Iterator[str]:
        for poll in sorted(polls, key=lambda poll: poll.began):
            if poll.since is None:
                self._rows, self._at = {}, None
            elif poll.since != self._at:
                yield f"{self._name} resumes at {poll.since}, but was at {self._at}"
                return
            for wrong in self._take(poll):
                yield f"{self._name} after {poll.since}: {wrong}"
                return

    def _take(self, poll: Poll) -> Iterator[str]:
        pending: list[Record] = []
        for record in poll.records:
            if record.op != "progress":
                pending.append(record)
                continue
            if {one.version for one in pending} - {record.version}:
                yield f"version {pending[0].version} is closed by the progress of {record.version}"
            if self._at is not None and (record.version < self._at or (pending and record.version == self._at)):
                yield f"version {record.version} comes behind {self._at}"
            yield from self._apply(pending)
            pending = []
            self._at = record.version
            if record.version >= len(self._states):
                yield f"progress of version {record.version}, which no batch made"
                return
            expected, got = Counter(self._states[record.version].rows(poll.view).items()), Counter(self._rows.items())
            if expected != got:
                yield f"at version {record.version}: {_differences(expected, got)}"

    def _apply(self, pending: list[Record]) -> Iterator[str]:
        if [record.op for record in pending] != sorted(record.op for record in pending):
            yield f"an insert comes before a delete in version {pending[0].version}"
        for op, version, identity, row in pending:
            if op == "delete" and self._rows.pop(identity, None) != row:
                yield f"version {version} deletes {identity}, which is not there"
            elif op == "insert":
                if identity in self._rows:
                    yield f"version {version} inserts {identity}, which is there"
                self._rows[identity] = row
