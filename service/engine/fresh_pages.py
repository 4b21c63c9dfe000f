"""Touch the memory that stores will need next, beside the writer (`structures.pages`).

The system allocates a page when it is first touched, and clears it. That takes some microseconds, or more where the host of a virtual
machine only then looks for memory. While a pin holds old versions, each batch writes megabytes of new memory, and waits for it in its turn.
So this module requests the pages behind the end of arrays that grow from the front before the writer needs them.

    array   | in use            end | requested already | requested now | reserved …
                                    |---------- ahead ------------------|

Ahead is twice what the array has grown by since the last check, or 256 KiB if that is more, as a page that is requested only when the end
is near may come too late; at most an eighth of the array, and 4 MiB. Nothing is requested for an array that does not grow, or grows by more
than that at once: the turns of a load are long anyway, and requested memory stays until it is used. A check covers only the tables and
structures that have changed since the last one. Builds request memory for their structures themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt

from service.tables.store import Table
from service.views.joins.protocol import Store
from structures.core.blocks import Blocks
from structures.core.control import NEXT_CHUNK, RECORDS, SHIFT
from structures.pages.touch import STEP, touch, whole

Front = tuple[npt.NDArray[np.generic], int]
"""A reserved array that is filled from the front, and how many of its items (of several columns: rows) are in use."""

_LEAST, _MOST = 256 << 10, 4 << 20  # bytes ahead
_PART = 8  # ahead at most one byte per so many in use
_PER_ENTRY, _MOST_AT_FIRST = 256, 128 << 20  # bytes for each store that will go live while relations are written: at most
_TOGETHER = 64  # tables and owners of structures to check before other threads go on: half a millisecond


class _Seen(NamedTuple):
    """Addresses: the end of the array at the last check, and the end of the pages requested."""

    end: int
    asked: int


class Structures(Protocol):
    """A view, or the shared indexes."""

    @property
    def stores(self) -> Sequence[Store]: ...


Growing = Table | Structures


def fronts_of(one: Growing) -> Iterator[Front]:
    """Return the arrays to check: the rows of a table and the versions in which they came; the blocks of stores, and the records of retired
    blocks."""
    if isinstance(one, Table):
        yield one.store.cells, one.used
        yield one.store.born, one.used
        return
    for store in one.stores:
        if isinstance(store, Blocks):
            yield store.M, store.C.item(NEXT_CHUNK) << store.C.item(SHIFT)
            yield store.Q, 3 * store.C.item(RECORDS)


def _bounds(array: npt.NDArray[np.generic], items: int) -> tuple[int, int, int]:
    """The addresses where the array begins, where its items in use end, and where it ends."""
    begin: int = array.__array_interface__["data"][0]
    return begin, begin + items * array.strides[0], begin + array.nbytes


def request_at_first(one: Structures, entries: int) -> None:
    """Request the pages that the first batches need after these structures, which are being built, went live. `entries`: how many entries
    they are expected to change in trees whose blocks are copied for each version. The former blocks are reused only after the batch: the
    first batches over a million boxes waited for 0.1 to 0.4 s for the system. The thread of the build."""
    for array, items in fronts_of(one):
        begin, end, beyond = _bounds(array, items)
        first = whole(end)
        size = min(_PER_ENTRY * entries, end - begin, _MOST_AT_FIRST, max(0, beyond - first))
        touch(first, size // STEP * STEP)


class FreshPages:
    """Owns the thread. `fronts` returns the arrays of a table or of structures."""

    def __init__(self, fronts: Callable[[Growing], Iterable[Front]] = fronts_of) -> None:
        self._fronts = fronts
        self._grown: WeakSet[Growing] = WeakSet()  # may have grown since the last check
        self._lock = threading.Lock()  # guards _grown
        self._seen: WeakKeyDictionary[Growing, dict[int, _Seen]] = WeakKeyDictionary()  # keys: the addresses of the arrays
        self._due, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        if not self._ended:
            self._thread.start()

    def look_soon(self, grown: Iterable[Growing]) -> None:
        """Schedule a check of these, which may have grown. Does not wait."""
        if not self._ended:
            with self._lock:
                self._grown.update(grown)
            self._due.set()

    def stop(self) -> None:
        self._ended = True
        self._due.set()

    def look(self, populate: Callable[[int, int], None]) -> None:
        """Request the memory that grown arrays need next: `populate(address, bytes)`. Cost: as `fronts` of the changed ones."""
        with self._lock:
            grown, self._grown = self._grown, WeakSet()
        for number, one in enumerate(grown, 1):
            self._seen[one] = dict(self._look_at(one, self._seen.get(one, {}), populate))
            if number % _TOGETHER == 0:
                time.sleep(0.0)

    def _look_at(self, one: Growing, before: dict[int, _Seen], populate: Callable[[int, int], None]) -> Iterator[tuple[int, _Seen]]:
        for array, items in self._fronts(one):
            begin, end, beyond = _bounds(array, items)
            seen = before.get(begin, _Seen(end, end))
            grown = end - seen.end
            ahead = min(max(2 * grown, _LEAST), _MOST, (end - begin) // _PART) if 0 < grown <= _MOST else 0
            first = max(seen.asked, whole(end))
            last = min(whole(end + ahead), beyond // STEP * STEP)
            if first < last:
                populate(first, last - first)
            yield begin, _Seen(end, max(first, last))

    def _run(self) -> None:
        while self._due.wait() and not self._ended:
            self._due.clear()
            self.look(touch)
