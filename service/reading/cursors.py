"""Readers: one version of a view or a relation, row by row, with cursors to resume from.

A cursor is an opaque text. Its state (that of the enumeration, and a pin on its version) is kept here, under a number, until the pin
expires. It can be used more than once: each use gets a copy of the state. The interface promises a version for a time after its page,
whether or not a client continues, so the number of cursors is bounded, in all and for each client. A client that requests the same page of
the same version again gets the same cursor; when it has as many as it may, the oldest one that it has continued from makes room for the
next; a reading in parts, which counts as one cursor, does so once all its parts have been read to their ends.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from service.engine.engine import Engine
from service.engine.versions import Pin, Version, expired
from service.errors import Problem, bad_parameter
from service.reading.choosing import Asked, of_relation, of_view
from service.reading.holdings import Holding, Holdings
from service.reading.lookups import Point
from service.reading.names import ReadingNames
from service.reading.readings import Delays, Reading, ViewReading, split
from service.reading.tokens import ForgedToken, Signer
from service.reading.windows import Window
from service.settings import Settings
from service.tables.relations import Relation
from service.tables.store import pieces
from service.views.deltas import Combination
from service.views.live_view import LiveView
from service.views.read_counts import Counts
from service.views.shown import ShownAliases

T = TypeVar("T")

_PEEK = 64
_LONGEST_STEP = 65_536  # rows to visit in one call, where rows are rare


class Cursor(Holding):
    """The state of an enumeration at a version. `state`: the reading, and slots that were enumerated but not read yet; None once the cursor
    is released, or its view or relation dropped."""

    def __init__(
        self, owner: str, pin: Pin, reading: Reading, held: Combination | None, empty: bool | None, asked: Any, passed: int, client: str,
        part_of: HeldReading | None = None,
    ) -> None:  # fmt: skip
        super().__init__(owner, client)
        self.pin: Pin = pin
        self.state: tuple[Reading, Combination | None] | None = (reading, held)
        self.made = _made(pin, reading)
        self.empty, self.asked = empty, asked
        self.passed = passed  # number of rows before it
        self.number = 0
        self.is_continued = False  # a client has continued from it; if it is a part's, to the end
        self.part_of = part_of  # with whose pin

    @property
    def position(self) -> tuple[Any, ...]:
        """The key that equivalent cursors share: rows of one structure have one order in a version."""
        return self.client, self.owner, self.pin.version.number, self.made, repr(self.asked), self.passed

    def discard(self) -> None:
        self.state = None


class HeldReading(Holding):
    """Views and relations at one version, each in parts, for `seconds` after the last use. It counts as one cursor. `id`: its first key."""

    def __init__(self, client: str, owner: str, pin: Pin, seconds: float) -> None:
        super().__init__("", client)
        self.id, self.version = secrets.token_urlsafe(12), pin.version.number
        self.idle = seconds
        self.pin: Pin = pin
        pin.reading, pin.expires = f"a reading of the {_name(owner)} in parts", False
        self.parts: dict[str, list[Cursor]] = {}  # by owner
        self.cursors: dict[tuple[str, str], list[str]] = {}  # their texts, by what was asked of the owner

    @property
    def is_continued(self) -> bool:
        """Every part has been read to its end."""
        return all(part.is_continued for parts in self.parts.values() for part in parts)

    @property
    def read(self) -> set[tuple[str, str]]:
        """The kind and name of each view and relation."""
        return {(kind, name) for kind, _, name in (_name(owner).partition(" ") for owner, _ in self.cursors)}

    def discard(self) -> None:
        self.parts = {}


class Readers:
    """What reading needs: the published versions, what is held for clients, the cursors, and measurements. Any thread."""

    def __init__(self, published: Engine, signer: Signer, settings: Settings, folder: Path) -> None:
        self.published, self.settings = published, settings
        self.names = ReadingNames(folder)
        self.versions = published.versions
        self.holdings = Holdings(published.versions)
        self.delays = Delays()
        self.rows_read = 0  # approximate: concurrent additions may be lost
        self._signer = signer
        self._start = secrets.token_urlsafe(6)  # identifies this run of the service: the states of its cursors are in its memory
        self._numbers = itertools.count(1)

    def keep(self, cursor: Cursor) -> str:
        """Return the text of a cursor, and take over its pin. Problem `too-busy`; its pin is then released."""
        with self.holdings.lock:
            before = self.holdings.find(Cursor, cursor.position)
            if before is not None:  # of the same rows, but it may not yet have found that none follow for long, or at all
                cursor.number, cursor.is_continued = before.number, before.is_continued
                self.holdings.release(before)
            else:
                self.make_room(cursor)
                cursor.number = next(self._numbers)
            self.holdings.add(cursor, cursor.number, cursor.position)
        return self._signer.seal("cursor", self._start, cursor.owner, cursor.number)

    def add_parts(self, reading: HeldReading, owner: str, asked: Asked, parts: Sequence[Reading]) -> None:
        """Add parts of a view or relation to a reading, with their cursors."""
        with self.holdings.lock:
            made = reading.parts.setdefault(owner, [])
            first = len(made)
            for index, part in enumerate(parts, first):
                what = f"part {index} of the reading {reading.id}"
                made.append(Cursor(owner, reading.pin, part, None, None, what, 0, reading.client, reading))
            texts = [self._signer.seal("cursor", self._start, owner, reading.id, index) for index in range(first, len(made))]
            reading.cursors[owner, repr(asked)] = texts

    def find(self, owner: str, text: str) -> tuple[Cursor, tuple[Reading, Combination | None], Pin]:
        """Return a cursor, its state, and a new pin on its version. Problems `bad-cursor`, `snapshot-expired`."""
        try:
            start, whose, *number = self._signer.open("cursor", text)
        except ForgedToken:
            raise Problem("bad-cursor", "the cursor was not issued by this service") from None
        if whose != owner and (start == self._start or _name(whose) != _name(owner)):
            raise Problem("bad-cursor", "the cursor belongs to another view or relation")
        if start != self._start:
            raise Problem("snapshot-expired", "the service has been restarted since the cursor was issued")
        with self.holdings.lock:
            cursor = self._cursor(owner, *number)
            state = None if cursor is None else cursor.state
            if cursor is None or state is None or not self.versions.is_held(cursor.pin):
                raise Problem("snapshot-expired", "the cursor was idle for too long, or its reading has been released")
            cursor.is_continued = cursor.part_of is None
            self.holdings.use(cursor.part_of or cursor)
            with self.versions.reading(cursor.pin):  # restarts its idle time
                return cursor, state, self.versions.again(cursor.pin)

    def touch(self, text: str) -> None:
        """Note that the client of this cursor, which was issued here, is still taking the page before it."""
        cursor = self.holdings.find(Cursor, self._signer.open("cursor", text)[-1])
        if cursor is not None:
            self.versions.touch(cursor.pin)

    def drop(self, owner: str) -> None:
        """Free the memory of a view or relation that is dropped: its cursors cannot be used any more, and keep only their version."""
        for cursor in self.holdings.of(Cursor, owner):
            cursor.discard()
        with self.holdings.lock:
            for reading in self.holdings.of(HeldReading):
                reading.parts.pop(owner, None)

    def count(self) -> int:
        """Return how many cursors there are."""
        return self.holdings.count(Cursor) + self.holdings.count(HeldReading)

    def _cursor(self, owner: str, number: Any, part: int = 0) -> Cursor | None:
        reading = self.holdings.find(HeldReading, number)
        return self.holdings.find(Cursor, number) if reading is None else reading.parts[owner][part] if owner in reading.parts else None

    def make_room(self, one: Cursor | HeldReading) -> None:
        """Make room for one more of its client. Problem `too-busy`; its pin is then released. Call it with the lock of the holdings."""
        total, client = self.count(), one.client
        own: list[Cursor | HeldReading] = [*self.holdings.of(Cursor, client=client), *self.holdings.of(HeldReading, client=client)]
        if len(own) < self.settings.max_client_cursors and total < self.settings.max_cursors:
            return
        finished = next((each for each in own if each.is_continued), None)  # cursors first
        if finished is None:
            self.versions.release(one.pin)
            if len(own) >= self.settings.max_client_cursors:
                whose = f"this client has {len(own)} cursors and readings (--max-client-cursors), and has finished none of them"
            else:
                whose = f"there are already {total} cursors (--max-cursors)"
            raise Problem("too-busy", f"{whose}; a cursor expires some time after its page, a reading after its last request")
        self.holdings.release(finished)


class RowReader:
    """Rows of one version in chunks; used by one thread at a time. Any call raises Problem `snapshot-expired` once its pin has expired.

    A call takes milliseconds, even if the next row is hours away (behind a comparison that hardly any pair meets): the caller can stop in
    between, and knows whether there is more.
    """

    def __init__(self, readers: Readers, owner: str, pin: Pin, reading: Reading, asked: Any, held: Combination | None = None) -> None:
        self._readers, self._owner, self._pin, self._reading, self._asked = readers, owner, pin, reading, asked
        pin.reading = _name(owner)
        self._held = held  # slots that were enumerated but not read yet
        self._empty: bool | None = None
        self._passed = 0  # number of rows
        self._begun: Cursor | None = None  # the cursor that it continues from
        self.client = ""  # the client to which its cursors count
        self._stride = 1  # rows to visit after a call that found none
        self.version = pin.version.number
        self.schema, self.every = reading.schema, reading.every

    @property
    def view(self) -> LiveView:
        """That is read, as it was defined at the version."""
        assert isinstance(self._reading, ViewReading)
        return self._reading.view

    @property
    def order(self) -> str:
        """Equal for two readers of a version with the same filters if they return the same rows in the same order, until the service
        restarts."""
        return f"{self._owner} {_made(self._pin, self._reading)}"

    def leave_uncounted(self) -> None:
        """Keep what is read out of the statistics of the view."""
        assert isinstance(self._reading, ViewReading)
        self._reading.is_counted = False

    @property
    def counts(self) -> Counts:
        """The work so far, of a view."""
        assert isinstance(self._reading, ViewReading)
        return self._reading.counts

    def empty(self) -> bool | None:
        """Whether there is no row at all, before the first one was read; None: not known yet, call again."""
        if self._empty is None:
            self._empty = self._reading.is_empty()
            if self._empty is None:
                self.ended()
        return self._empty

    def ended(self) -> bool | None:
        """Whether no row is left; None: not known yet, call again."""
        with self._readers.versions.reading(self._pin):
            if not self._look(_PEEK):
                return True
            return None if self._held is None or len(self._held[0]) == 0 else False

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        """Return up to `max_rows` >= 1 rows; an empty batch does not mean the end, None does."""
        return self._read(max_rows, self._reading.rows)

    def find(self, max_rows: int) -> Combination | None:
        """As `read`, but return the slots. Cost: that of the enumeration, without columns."""
        with self._readers.versions.reading(self._pin):
            return self._next(max_rows)

    def rows(self, found: Combination) -> pa.RecordBatch:
        """Return the rows that `find` has found."""
        with self._readers.versions.reading(self._pin):
            return self._reading.rows(found)

    def parts(self, found: Combination) -> Iterator[Combination]:
        """Yield the same in parts, of which `rows` returns texts of limited size each."""
        with self._readers.versions.reading(self._pin):
            sizes = self._reading.text_bytes(found) if self._reading.has_texts else np.zeros(len(found[0]), np.int64)
        for piece in pieces(sizes):
            yield tuple(part[piece] for part in found)

    def read_with_keys(self, max_rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch] | None:
        """As `read`, for a view: (keys, rows)."""
        assert isinstance(self._reading, ViewReading)
        return self._read(max_rows, self._reading.with_keys)

    def read_with_ends(self, max_rows: int) -> tuple[pa.RecordBatch, pa.RecordBatch, pa.RecordBatch] | None:
        """As `read_with_keys`, with the ends of the joined intervals: (keys, rows, ends). For a view whose rows have intervals."""
        assert isinstance(self._reading, ViewReading) and isinstance(shown := self._reading.view.shown, ShownAliases)
        return self._read(max_rows, lambda slots: (*shown.with_keys(slots), shown.ends(slots)))

    def skip(self, max_rows: int) -> int | None:
        """As `find`, but return only the number of rows."""
        found = self.find(max_rows)
        return None if found is None else len(found[0])

    def token(self) -> str:
        """Return a cursor to resume from here. Problem `too-busy`: there are too many."""
        pin = self._readers.versions.again(self._pin)
        pin.reading = f"a cursor of the {_name(self._owner)}"
        cursor = Cursor(self._owner, pin, self._reading.clone(), self._held, self._empty, self._asked, self._passed, self.client)
        return self._readers.keep(cursor)

    def twin(self) -> RowReader:
        """Return another reader at this position, with its own pin."""
        pin = self._readers.versions.again(self._pin)
        other = RowReader(self._readers, self._owner, pin, self._reading.clone(), self._asked, self._held)
        other._empty, other._passed, other.client = self._empty, self._passed, self.client
        return other

    def touch(self) -> None:
        """Note that the client has taken some of the data read. Any thread."""
        self._readers.versions.touch(self._pin)
        if self._begun is not None and self._begun.part_of is not None:
            self._readers.holdings.use(self._begun.part_of)

    def close(self) -> None:
        """Release the version; a second call does nothing."""
        self._readers.versions.release(self._pin)

    def _read(self, max_rows: int, shown: Callable[[Combination], T]) -> T | None:
        with self._readers.versions.reading(self._pin):
            slots = self._next(max_rows)
            return None if slots is None else shown(slots)

    def _next(self, limit: int) -> Combination | None:
        if not self._look(limit):
            if self._begun is not None:
                self._begun.is_continued = True
            return None
        slots, self._held = self._held, None
        if slots is not None and len(slots[0]):
            most = self._fitting(tuple([part[:limit] for part in slots]))
            if len(slots[0]) > most:
                slots, self._held = split(slots, most)
            self._readers.rows_read += len(slots[0])
            self._passed += len(slots[0])
        return slots

    def _fitting(self, slots: Combination) -> int:
        """Return how many of these rows, from the first on, may be taken at once."""
        if not self._reading.has_texts:
            return len(slots[0])
        first = next(pieces(self._reading.text_bytes(slots)))
        return int(first.stop)

    def _look(self, limit: int) -> bool:
        """Fetch the next rows, perhaps none yet; False at the end."""
        if self._held is None or len(self._held[0]) == 0:
            if self._reading.done:
                if self._empty is None:
                    self._empty = True
                return False
            looked_at = max(limit, self._stride)
            self._held = self._reading.fill(looked_at)
            if len(self._held[0]) == 0:
                self._stride = min(4 * looked_at, _LONGEST_STEP)
                return True
            self._stride = 1
        self._empty = False
        return True


def open_rows(
    readers: Readers, view_name: str, *, version: int | None = None, window: Window | None = None, point: Point | None = None,
    cursor: str | None = None, where: str | None = None, columns: Sequence[str] | None = None,
) -> RowReader:  # fmt: skip
    """Read a view at the newest version, at one that a cursor holds, or from a cursor on (with the cursor's filters).

    window   by an interval's name, "" for all, (lo, hi), texts in the endpoints' type, None for no bound: rows all of whose joined
             intervals (of that dimension) meet it
    point    (alias, {column: text}): the key columns of one alias, or the join key
    where    a condition in SQL on the columns of the rows; as far as it is a point and a window, these are looked up
    columns  of the rows; None: all of them

    Problems: `not-found`, `view-building`, `view-failed`, `bad-parameter`, `bad-cursor`, `snapshot-expired`.
    """
    asked = Asked(window, point, None, where, columns)
    if cursor is not None:
        return _resume(readers, owner_of(readers.published.view(view_name)), cursor, version, asked)
    view = live_view(readers, view_name)

    def reading_at(at: Version, search: bool) -> Reading | None:
        if (root := at.roots.get(view.id)) is None:
            raise expired(at.number)
        return of_view(root.view, at, asked, readers.settings, readers.delays, search)

    return _opened(readers, owner_of(view), version, asked, reading_at)


def live_view(readers: Readers, name: str) -> LiveView:
    """Return the view if it is live. Problems: `not-found`, `view-building`, `view-failed`."""
    view = readers.published.view(name)
    if view.state == "failed":
        raise view.problem or Problem("view-failed", f"the view {name} has failed")
    if view.state != "live":
        raise Problem("view-building", f"the view {name} is being built", progress=view.progress)
    return view


def _made(pin: Pin, reading: Reading) -> int:
    """Return which of its structures a view's rows are read from."""
    return pin.version.roots[reading.view.id].made if isinstance(reading, ViewReading) else 0


def owner_of(thing: LiveView | Relation) -> str:
    """Return the owner of the cursors of a view or relation; another one of its name is another owner."""
    return f"{'view' if isinstance(thing, LiveView) else 'relation'} {thing.name} {thing.id}"


def open_relation_rows(
    readers: Readers, name: str, *, version: int | None = None, window: Window | None = None, key: Mapping[str, str] | None = None,
    cursor: str | None = None, where: str | None = None, columns: Sequence[str] | None = None,
) -> RowReader:  # fmt: skip
    """Read a relation, as `open_rows` does a view.

    window   by an interval's name, "" for the only one: rows that meet it
    key      the columns of the key, as texts
    where, columns   as in `open_rows`

    Problems: `not-found`, `bad-parameter`, `bad-cursor`, `snapshot-expired`.
    """
    relation = readers.published.relation(name)
    asked = Asked(window, None, key, where, columns)
    if cursor is not None:
        return _resume(readers, owner_of(relation), cursor, version, asked)

    def reading_at(at: Version, search: bool) -> Reading | None:
        return of_relation(relation, at, asked, readers.settings, search)

    return _opened(readers, owner_of(relation), version, asked, reading_at)


def _opened(
    readers: Readers, owner: str, version: int | None, asked: Asked, reading_at: Callable[[Version, bool], Reading | None]
) -> RowReader:  # fmt: skip
    """Read what `reading_at` returns for a version; if that must not search, it returns None for a row that has changed, where the change
    is not published yet."""
    versions = readers.versions

    def opened(search: bool) -> RowReader | None:
        pin, reader = versions.pin(version), None
        try:
            with versions.reading(pin):
                reading = reading_at(pin.version, search)
                if reading is not None:
                    reader = RowReader(readers, owner, pin, reading, asked)
            return reader
        finally:
            if reader is None:
                versions.release(pin)

    reader = opened(version is not None) or readers.published.at_rest(lambda: opened(True))
    assert reader is not None
    return reader


def _resume(readers: Readers, owner: str, text: str, version: int | None, asked: Asked) -> RowReader:
    cursor, (reading, held), pin = readers.find(owner, text)
    reader = RowReader(readers, owner, pin, reading.clone(), cursor.asked, held)
    reader._empty, reader._passed, reader._begun = cursor.empty, cursor.passed, cursor
    try:
        if version not in (None, pin.version.number):
            raise bad_parameter("version", f"the cursor belongs to version {pin.version.number}")
        if asked not in (Asked(), cursor.asked):
            raise bad_parameter("cursor", "the previous page was requested with other filters or columns")
    except Problem:
        reader.close()
        raise
    return reader


def _name(owner: str) -> str:
    """Return the kind and name of the view or relation, without the id."""
    return owner.rpartition(" ")[0]
