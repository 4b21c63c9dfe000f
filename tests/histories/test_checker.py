"""The checker accepts a correct history, and finds errors that are planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from tests.histories.checker import anomalies
from tests.histories.history import Event, Expired, Extended, Poll, Reading, Record, Start, Write
from tests.histories.life import lived

Events = list[Event]
T = TypeVar("T")


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Events:
    found = lived(tmp_path_factory.mktemp("lived") / "data", 4, starts=2, steps=30, kills=0)
    events = [event for event in found if not isinstance(event, Expired)]
    assert anomalies(events) == []
    return events


def last(events: Events, kind: type[T], fits: Callable[[T], bool] = lambda event: True) -> T:
    return next(event for event in reversed(events) if isinstance(event, kind) and fits(event))


def changed(events: Events, event: Event, **fields: object) -> Events:
    return [replace(event, **fields) if one is event else one for one in events]  # type: ignore[arg-type]


def _effective(event: Write) -> bool:
    return any(change.op == "upsert" for change in event.changes)


def lost_batch(events: Events) -> Events:
    """It is acknowledged, but has no effect."""
    return changed(events, last(events, Write, _effective), changes=())


def lost_version(events: Events) -> Events:
    return [event for event in events if event is not last(events, Write, lambda event: event.version == 20)]


def lost_at_a_start(events: Events) -> Events:
    start = last(events, Start)
    return changed(events, start, version=start.version - 1)


def one_version_for_two(events: Events) -> Events:
    write = last(events, Write)
    return changed(events, write, version=write.version - 1)


def applied_twice(events: Events) -> Events:
    write, now = last(events, Write), max(event.ended for event in events)
    return [*events, replace(write, version=write.version + 1, began=now + 1, ended=now + 2)]


def sent_again_and_taken(events: Events) -> Events:
    """It has the same version, but is not called a duplicate."""
    write, now = last(events, Write), max(event.ended for event in events)
    return [*events, replace(write, began=now + 1, ended=now + 2)]


def epochs_in_another_order(events: Events) -> Events:
    write = last(events, Write)
    return changed(events, write, epoch=0)


def an_old_version_made_late(events: Events) -> Events:
    """The versions of two batches, far apart in time, are exchanged."""
    other = last(events, Write)
    one = last(events, Write, lambda event: event.version == 3)
    return changed(changed(events, one, version=other.version), other, version=3)


def a_stale_reading(events: Events) -> Events:
    """All rows are of an older version, which the answer states correctly."""
    reading = last(events, Reading, lambda event: event.name == "stays")
    old = next(event for event in events if isinstance(event, Reading) and event.name == "stays" and event.version < reading.version - 3)
    return changed(events, reading, version=old.version, rows=old.rows)


def another_version_than_it_says(events: Events) -> Events:
    reading = last(events, Reading, lambda event: event.name == "stays")
    old = next(event for event in events if isinstance(event, Reading) and event.name == "stays" and event.rows != reading.rows)
    return changed(events, reading, rows=old.rows)


def a_row_missing(events: Events) -> Events:
    reading = last(events, Reading, lambda event: bool(event.rows))
    return changed(events, reading, rows=reading.rows[1:])


def a_row_twice(events: Events) -> Events:
    reading = last(events, Reading, lambda event: bool(event.rows))
    return changed(events, reading, rows=(*reading.rows, reading.rows[0]))


def of_the_future(events: Events) -> Events:
    reading = last(events, Reading)
    return changed(events, reading, version=10**6)


def _with_changes(event: Poll) -> bool:
    """Return two versions, each with changes."""
    closes = [i for i, record in enumerate(event.records) if record.op == "progress"]
    return event.since is not None and len(closes) > 1 and closes[0] > 0 and closes[1] > closes[0] + 1


def a_delta_lost(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    return changed(events, poll, records=poll.records[1:])


def a_delta_twice(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    return changed(events, poll, records=(poll.records[0], *poll.records))


def a_version_skipped(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    first = next(i for i, record in enumerate(poll.records) if record.op == "progress")
    return changed(events, poll, records=poll.records[first + 1 :])


def a_version_sent_again(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    first = next(i for i, record in enumerate(poll.records) if record.op == "progress")
    return changed(events, poll, records=poll.records[: first + 1] * 2)


def versions_exchanged(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    first = next(i for i, record in enumerate(poll.records) if record.op == "progress") + 1
    second = next(i for i, record in enumerate(poll.records) if record.op == "progress" and i >= first) + 1
    return changed(events, poll, records=(*poll.records[first:second], *poll.records[:first], *poll.records[second:]))


def another_value_in_a_delta(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    record = poll.records[0]
    return changed(events, poll, records=(record._replace(row=(*record.row[:-1], "other")), *poll.records[1:]))


def a_progress_too_far(events: Events) -> Events:
    poll = last(events, Poll, _with_changes)
    return changed(events, poll, records=(*poll.records[:-1], Record("progress", 10**6)))


def resumed_elsewhere(events: Events) -> Events:
    """The token of one version returns what follows another."""
    poll = last(events, Poll, _with_changes)
    return changed(events, poll, since=(poll.since or 0) - 1)


def a_token_refused(events: Events) -> Events:
    now = max(event.ended for event in events)
    return [*events, Expired("follower of pairs", 3, now + 1, now + 2)]


def _rewritten(op: str) -> Callable[[Write], bool]:
    return lambda event: not event.duplicate and event.changes[0].op == op


def a_replacement_without_effect(events: Events) -> Events:
    return changed(events, last(events, Write, _rewritten("replace")), changes=())


def a_row_that_a_replacement_forgets(events: Events) -> Events:
    write = last(events, Write, lambda event: _rewritten("replace")(event) and len(event.changes[0].row[0]) > 1)
    change = write.changes[0]
    rows, kept = change.row
    return changed(events, write, changes=(change._replace(row=(rows[1:], kept)),))


def a_column_lost(events: Events) -> Events:
    extended = next(event for event in events if isinstance(event, Extended))
    reading = last(events, Reading, lambda event: event.name == extended.relation and bool(event.rows))
    return changed(events, reading, columns=reading.columns - {extended.column})


def a_value_lost(events: Events) -> Events:
    """A value of a column that was added is missing."""
    reading = last(events, Reading, lambda event: event.name == "stays" and any(len(row) > 5 for row in event.rows))
    return changed(events, reading, rows=tuple(row[:5] for row in reading.rows))


PLANTED = [
    a_replacement_without_effect, a_row_that_a_replacement_forgets, a_column_lost, a_value_lost, lost_batch, lost_version,
    lost_at_a_start, one_version_for_two, applied_twice, sent_again_and_taken, epochs_in_another_order, an_old_version_made_late,
    a_stale_reading, another_version_than_it_says, a_row_missing, a_row_twice, of_the_future, a_delta_lost, a_delta_twice,
    a_version_skipped, a_version_sent_again, versions_exchanged, another_value_in_a_delta, a_progress_too_far, resumed_elsewhere,
    a_token_refused,
]  # fmt: skip


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_an_anomaly_is_found(history: Events, plant: Callable[[Events], Events]) -> None:
    planted = plant(history)
    assert planted != history
    assert anomalies(planted)
