"""Memory that stores need next is touched beside the writer.

The system gives a page when it is first touched, and clears it: a large one in half a millisecond, or in tens of them where the host of a
virtual machine looks for the memory only then. While a pin holds old versions, each batch writes megabytes anew, and waits for them in its
turn. So the pages behind the end of arrays that grow from the front are asked for here, before the writer comes to them.

    array   | in use            end | asked for already | asked for now | reserved …
                                    |---------- ahead ------------------|

Ahead is twice what the array has grown by since the last look, at most an eighth of the array, and 4 MiB; the page where this ends is asked
for whole. Nothing is asked for behind an array that does not grow, or by more than that at once: a load's turns are long anyway, and what
was asked for stays until it is used. Nor in the beginning of an array, which has small pages: of many little arrays each would become a
large page long. Only what may have grown is looked at: the tables and structures that have been changed since the last look.
"""

from __future__ import annotations

import ctypes
import logging
import sys
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

Front = tuple[npt.NDArray[np.generic], int]
"""A reserved array that is filled from the front, and how many of its items (of several columns: rows) are in use."""

log = logging.getLogger("livejoin.pages")

_PAGE = 2 << 20  # bytes of a large page
_SMALL = 2 << 20  # bytes at the beginning of an array that have small pages: as `reserve` has it
_PART, _MOST = 8, 4 << 20  # at most one byte ahead for so many in use; bytes
_POPULATE_WRITE = 23  # of madvise, since Linux 5.14: makes pages without changing what is in them
_TOGETHER = 64  # tables and owners of structures that are looked at before other threads go on: half a millisecond


class _Seen(NamedTuple):
    """Addresses: where the array ended at the last look, and up to where its pages have been asked for."""

    end: int
    asked: int


class Structures(Protocol):
    """A view, or the indexes that several share."""

    @property
    def stores(self) -> Sequence[Store]: ...


Growing = Table | Structures


def fronts_of(one: Growing) -> Iterator[Front]:
    """Of a table the rows; of stores of blocks these, and the records of those that are retired."""
    if isinstance(one, Table):
        yield one.store.cells, one.used
        return
    for store in one.stores:
        if isinstance(store, Blocks):
            yield store.M, store.C.item(NEXT_CHUNK) << store.C.item(SHIFT)
            yield store.Q, 3 * store.C.item(RECORDS)


def _whole(address: int) -> int:
    """The first beginning of a page that is not before this address."""
    return -(-address // _PAGE) * _PAGE


class FreshPages:
    """Owns the thread. `fronts`: the arrays of a table, or of structures."""

    def __init__(self, fronts: Callable[[Growing], Iterable[Front]] = fronts_of) -> None:
        self._fronts = fronts
        self._grown: WeakSet[Growing] = WeakSet()  # perhaps, since the last look
        self._lock = threading.Lock()  # of it
        self._seen: WeakKeyDictionary[Growing, dict[int, _Seen]] = WeakKeyDictionary()  # by where the arrays begin
        self._due, self._ended = threading.Event(), sys.platform != "linux"
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        if not self._ended:
            self._thread.start()

    def look_soon(self, grown: Iterable[Growing]) -> None:
        """These may have grown. Does not wait."""
        if not self._ended:
            with self._lock:
                self._grown.update(grown)
            self._due.set()

    def stop(self) -> None:
        self._ended = True
        self._due.set()

    def look(self, populate: Callable[[int, int], None]) -> None:
        """Ask for what arrays that have grown need next: `populate(address, bytes)`, by the page. Cost: that of the changed ones."""
        with self._lock:
            grown, self._grown = self._grown, WeakSet()
        for number, one in enumerate(grown, 1):
            self._seen[one] = dict(self._look_at(one, self._seen.get(one, {}), populate))
            if number % _TOGETHER == 0:
                time.sleep(0.0)

    def _look_at(self, one: Growing, before: dict[int, _Seen], populate: Callable[[int, int], None]) -> Iterator[tuple[int, _Seen]]:
        for array, items in self._fronts(one):
            begin: int = array.__array_interface__["data"][0]
            end = begin + items * array.strides[0]
            seen = before.get(begin, _Seen(end, end))
            grown = end - seen.end
            ahead = min(2 * grown, _MOST, (end - begin) // _PART) if 0 < grown <= _MOST else 0
            first = max(seen.asked, _whole(end), _whole(begin + _SMALL))
            last = min(_whole(end + ahead), (begin + array.nbytes) // _PAGE * _PAGE)
            for address in range(first, last, _PAGE):
                populate(address, _PAGE)
            yield begin, _Seen(end, max(first, last))

    def _run(self) -> None:
        madvise = ctypes.CDLL(None, use_errno=True).madvise  # does not hold the interpreter meanwhile
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

        def populate(address: int, size: int) -> None:
            if madvise(address, size, _POPULATE_WRITE) != 0:
                raise OSError(ctypes.get_errno(), "memory was not populated")

        try:
            while self._due.wait() and not self._ended:
                self._due.clear()
                self.look(populate)
        except Exception as error:  # an older kernel, or no memory: pages come as they are touched
            log.debug("pages are no longer allocated in advance: %s", error)
            self._ended = True
