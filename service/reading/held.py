"""Readings: views at one version in parts, each with a cursor that is valid as long as the reading holds the version.

A part's cursor is like any other, except that its pin does not expire and that it makes room for no other cursor, so a part can be read
again from its beginning. The bound on the memory of old versions (--pin-bytes) ends a reading like every other holder of one.

Readers who cannot tell each other of a reading agree on its name: whoever asks for it first begins it, and the others get the same.
"""

from __future__ import annotations

from service.errors import Problem, bad_parameter
from service.reading.cursors import HeldReading, Readers, live_view, owner_of
from service.reading.parts import parts_of
from service.views.live_view import LiveView


def begin_reading(
    readers: Readers, view_name: str, most: int, seconds: float, version: int | None, client: str, name: str | None = None
) -> tuple[HeldReading, list[str]]:
    """Hold the newest version, or one that a cursor holds, until this long after the last use; return the cursors of one to `most` parts of
    the view, too. To end it sooner, release it: its cursors are then no longer valid, but reads in progress continue.

    Problems: `not-found`, `view-building`, `view-failed`, `snapshot-expired` (of a `name` also: its reading has ended), `too-busy` (too
    many cursors), `bad-parameter`, `disk-full`.
    """
    view, holdings = live_view(readers, view_name), readers.holdings
    if name is None:
        reading = _begun(readers, view, most, seconds, version, client, None)
    else:
        with readers.names.lock:
            known = holdings.find(HeldReading, (name,))
            reading = known or _begun(readers, view, most, seconds, version, client, name)
            if version not in (None, reading.version):
                raise bad_parameter("version", f"the reading {name} is of version {reading.version}")
            if owner_of(view) not in reading.cursors:
                _add(readers, reading, view, most)
            reading.idle = max(reading.idle, seconds)
            holdings.use(reading)
    return reading, reading.cursors[owner_of(view)]


def _begun(readers: Readers, view: LiveView, most: int, seconds: float, version: int | None, client: str, name: str | None) -> HeldReading:
    reading = HeldReading(client, view.name, readers.versions.pin(version), seconds)
    try:
        _add(readers, reading, view, most)
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


def _add(readers: Readers, reading: HeldReading, view: LiveView, most: int) -> None:
    with readers.versions.reading(reading.pin) as pinned:
        if (root := pinned.roots.get(view.id)) is None:
            raise Problem("snapshot-expired", f"version {pinned.number} is older than the view", version=pinned.number)
        readers.add_parts(reading, owner_of(view), parts_of(root.view, pinned, most, readers.delays))


def find_reading(readers: Readers, id_: str) -> HeldReading:
    """Problem `not-found`."""
    reading = readers.holdings.find(HeldReading, id_)
    if reading is None:
        raise Problem("not-found", "there is no such reading: it has ended, or the service has been restarted since it began")
    return reading
