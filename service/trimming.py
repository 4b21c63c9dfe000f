"""Returns memory that the allocator keeps for reuse to the system, once work has ended.

The batches of a load, the pieces that a view is built from, and the rows of a large reading pass through the allocator. It keeps what was
freed: tens to hundreds of megabytes that no row needs. During work this memory is reused, so it is returned when nothing has been published
or read in bulk for a moment, and occasionally if there is no such moment.
"""

from __future__ import annotations

import ctypes
import threading

import pyarrow as pa

_QUIET = 1.0  # seconds without work
_LONGEST = 60.0  # seconds of work without a pause
_LARGE = 100_000  # rows read by clients before this counts as work


_M_ARENA_MAX, _ARENAS = -8, 2  # of glibc's `mallopt`


def use_one_allocator() -> None:
    """Let Arrow use C's allocator like everything else. Its own keeps what the threads freed, and can return one thread's memory only. All
    threads share two arenas: `malloc_trim` returns the end of the first one only, and of the others what lies between used blocks. Call it
    before there are other threads."""
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc
        mallopt(_M_ARENA_MAX, _ARENAS)


def give_back() -> None:
    """Return C's free memory, of all threads, to the system (glibc's `malloc_trim`). Takes about 10 ms per 100 MB, without the GIL; the
    threads that allocate from the same arena wait meanwhile, so never call it in a thread with a low priority."""
    pa.system_memory_pool().release_unused()


_asked = threading.Event()


def give_back_later() -> None:
    """Have memory returned after work that `Leftovers` cannot see, once the service is quiet. Any thread."""
    _asked.set()


class Leftovers:
    """Decides when to return memory; to be asked regularly."""

    def __init__(self) -> None:
        self._seen: object = None  # what was published last
        self._read = 0  # rows, at the last work
        self._seen_at = self._since = 0.0  # when work was last seen; when it was first seen since memory was returned
        self._is_due = False

    def are_due(self, published: object, rows_read: int, now: float) -> bool:
        """Return True once after work that has ended or continues for long. `published`: another object for each publication; `rows_read`:
        by all readers so far."""
        least = 1 if self._is_due else _LARGE  # a large reading in progress is work, however slow
        if published is not self._seen or rows_read - self._read >= least or _asked.is_set():
            _asked.clear()
            if not self._is_due:
                self._is_due, self._since = True, now
            self._seen, self._read, self._seen_at = published, rows_read, now
        if self._is_due and (now - self._seen_at >= _QUIET or now - self._since >= _LONGEST):
            self._is_due = False
            return True
        return False
