"""Memory that stores need next is touched beside the writer.

The system gives a page when it is first touched, and clears it: a large one in half a millisecond, or in tens of them where the host of a
virtual machine looks for the memory only then. While a pin holds old versions, each batch writes megabytes anew, and waits for them in its
turn. So the pages behind the end of arrays that grow from the front are asked for here, before the writer comes to them.

    array   | in use            end | asked for already | asked for now | reserved …
                                    |---------- ahead ------------------|

Ahead is twice what the array has grown by since the last look, at most an eighth of the array, and 4 MiB; the page where this ends is asked
for whole. Nothing is asked for behind an array that does not grow, or by more than that at once: a load's turns are long anyway, and what
was asked for stays until it is used. Nor in the beginning of an array, which has small pages: of many little arrays each would become a
large page long.
"""

from __future__ import annotations

import ctypes
import logging
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

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


class _Seen(NamedTuple):
    """Addresses: where the array ended at the last look, and up to where its pages have been asked for."""

    end: int
    asked: int


def fronts_of(tables: Iterable[Table], stores: Iterable[Store]) -> Iterator[Front]:
    """Of tables the rows; of stores of blocks these, and the records of those that are retired."""
    for table in tables:
        yield table.store.cells, table.used
    for store in stores:
        if isinstance(store, Blocks):
            yield store.M, store.C.item(NEXT_CHUNK) << store.C.item(SHIFT)
            yield store.Q, 3 * store.C.item(RECORDS)


def _whole(address: int) -> int:
    """The first beginning of a page that is not before this address."""
    return -(-address // _PAGE) * _PAGE


class FreshPages:
    """Owns the thread. `fronts`: the arrays, whenever it is asked."""

    def __init__(self, fronts: Callable[[], Iterable[Front]]) -> None:
        self._fronts = fronts
        self._seen: dict[int, _Seen] = {}  # by where the array begins
        self._due, self._ended = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="pages", daemon=True)

    def start(self) -> None:
        if sys.platform == "linux":
            self._thread.start()

    def look_soon(self) -> None:
        """Something may have grown. Does not wait."""
        self._due.set()

    def stop(self) -> None:
        self._ended = True
        self._due.set()

    def look(self, populate: Callable[[int, int], None]) -> None:
        """Ask for what arrays that have grown need next: `populate(address, bytes)`, by the page."""
        seen: dict[int, _Seen] = {}
        for array, items in self._fronts():
            begin: int = array.__array_interface__["data"][0]
            end = begin + items * array.strides[0]
            before = self._seen.get(begin, _Seen(end, end))
            grown = end - before.end
            ahead = min(2 * grown, _MOST, (end - begin) // _PART) if 0 < grown <= _MOST else 0
            first = max(before.asked, _whole(end), _whole(begin + _SMALL))
            last = min(_whole(end + ahead), (begin + array.nbytes) // _PAGE * _PAGE)
            for address in range(first, last, _PAGE):
                populate(address, _PAGE)
            seen[begin] = _Seen(end, max(first, last))
        self._seen = seen

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
            log.debug("pages are no longer asked for ahead: %s", error)
