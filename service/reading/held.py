"""Readings: views and relations at one version in parts, each with a cursor that is valid as long as the reading holds the version.

A part's cursor is like any other, except that its pin does not expire and that it makes room for no other cursor, so a part can be read
again from its beginning. The bound on the memory of old versions (--pin-bytes) ends a reading like every other holder of one.

Readers who cannot tell each other of a reading agree on its name: whoever asks for it first begins it, and the others get the same.
"""

from __future__ import annotations

from service.errors import Problem, bad_parameter
from service.reading.choosing import Asked, parts_of_relation, parts_of_view
from service.reading.cursors import HeldReading, Readers, owner_of
from service.tables.relations import Relation
from service.views.live_view import LiveView

_MOST_PARTS = 10_000  # of one reading, before more are added
_EVERYTHING = Asked()


def begin_reading(
    readers: Readers, of: LiveView | Relation, most: int, seconds: float, version: int | None, client: str, name: str | None = None,
    asked: Asked = _EVERYTHING,
) -> tuple[HeldReading, list[str]]:  # fmt: skip
    """Hold the newest version, or one that a cursor holds, until this long after the last use; return the cursors of one to `most` parts of
    what is asked of a live view or a relation, too. To end it sooner, release it: its cursors are then no longer valid, but reads in
    progress continue.

    Problems: `snapshot-expired` (of a `name` also: its reading has ended), `too-busy` (too many cursors), `bad-parameter`, `disk-full`.
    """
    holdings, key = readers.holdings, (owner_of(of), repr(asked))
    if name is None:
        reading = _begun(readers, of, most, seconds, version, client, None, asked)
    else:
        with readers.names.lock:
            known = holdings.find(HeldReading, (name,))
            reading = known or _begun(readers, of, most, seconds, version, client, name, asked)
            if version not in (None, reading.version):
                raise bad_parameter("version", f"the reading {name} is of version {reading.version}")
            if key not in reading.cursors:
                _add(readers, reading, of, most, asked)
            reading.idle = max(reading.idle, seconds)
            holdings.use(reading)
    return reading, reading.cursors[key]


def _begun(
    readers: Readers, of: LiveView | Relation, most: int, seconds: float, version: int | None, client: str, name: str | None, asked: Asked
) -> HeldReading:
    reading = HeldReading(client, owner_of(of), readers.versions.pin(version), seconds)
    try:
        _add(readers, reading, of, most, asked)
        with readers.holdings.lock:
            readers.make_room(reading)
            readers.holdings.add(reading, reading.id)
        if name is not None:
            readers.names.use(name)
            readers.holdings.use(reading, (name,))
    except BaseException as error:
        readers.versions.release(reading.pin)
        readers.holdings.release(reading)
        if isinstance(error, Problem) and error.type == "too-busy":
            del error.headers["Retry-After"]  # a reading may last for an hour
        raise
    return reading


def _add(readers: Readers, reading: HeldReading, of: LiveView | Relation, most: int, asked: Asked) -> None:
    if sum(map(len, reading.parts.values())) >= _MOST_PARTS:
        raise bad_parameter("name", f"the reading has {_MOST_PARTS} parts already: begin another one, with another name")
    with readers.versions.reading(reading.pin) as pinned:
        if isinstance(of, Relation):
            readers.add_parts(reading, owner_of(of), asked, parts_of_relation(of, pinned, asked, readers.settings, most))
            return
        if (root := pinned.roots.get(of.id)) is None:
            raise Problem("snapshot-expired", f"version {pinned.number} is older than the view", version=pinned.number)
        parts = parts_of_view(root.view, pinned, asked, readers.settings, readers.delays, most)
        readers.add_parts(reading, owner_of(of), asked, parts)


def find_reading(readers: Readers, id_: str) -> HeldReading:
    """Problem `not-found`."""
    reading = readers.holdings.find(HeldReading, id_)
    if reading is None:
        raise Problem("not-found", "there is no such reading: it has ended, or the service has been restarted since it began")
    return reading
