"""Memory that the allocator keeps for reuse goes back to the system once work has ended.

The batches of a load, the pieces that a view is built of, and the rows of a large reading pass through the allocator. What was freed stays
its own: tens to hundreds of megabytes that no row needs. While work goes on it is used again, so it goes back when nothing has been
published or read in bulk for a moment, and now and then if that moment does not come.
"""

from __future__ import annotations

import pyarrow as pa

_QUIET = 1.0  # seconds without work
_LONGEST = 60.0  # seconds of work without a pause
_LARGE = 100_000  # rows that readers take before it counts as work


def use_one_allocator() -> None:
    """Let Arrow allocate from C's allocator like all others. Its own keeps what the threads freed, and can give back one thread's only."""
    pa.set_memory_pool(pa.system_memory_pool())


def give_back() -> None:
    """Have C's allocator give back what is free, all threads' alike (glibc's `malloc_trim`). About 10 ms for 100 MB, without the GIL."""
    pa.system_memory_pool().release_unused()


class Leftovers:
    """When it is time to give back, for who looks now and then."""

    def __init__(self) -> None:
        self._seen: object = None  # what was published last
        self._read = 0  # rows, as of the last work
        self._seen_at = self._since = 0.0  # when work was last seen; and first since memory was given back
        self._is_due = False

    def are_due(self, published: object, rows_read: int, now: float) -> bool:
        """`published`: another object for each publication; `rows_read`: by all readers so far. True once, after work that has ended or
        goes on for long."""
        least = 1 if self._is_due else _LARGE  # a large reading that goes on is work, however slow
        if published is not self._seen or rows_read - self._read >= least:
            if not self._is_due:
                self._is_due, self._since = True, now
            self._seen, self._read, self._seen_at = published, rows_read, now
        if self._is_due and (now - self._seen_at >= _QUIET or now - self._since >= _LONGEST):
            self._is_due = False
            return True
        return False
