"""How the service's memory is allocated: by one allocator, which returns what it keeps for reuse once work has ended.

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

# Of glibc's `mallopt`, and our values
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_ARENAS = 2
_MAPPED = 32 << 20  # bytes; a larger block is a mapping of its own. A fixed threshold for trimming fixes this one too, at glibc's maximum
_END = 2 * _MAPPED  # bytes of the free end of an arena that stay while there is work, as glibc's own maximum
_LEAST_END = 1 << 17  # bytes of it that stay afterwards

_SMALL, _MUCH = 1 << 11, 1 << 18  # bytes of a block, and of one after whose freeing glibc looks at the arena's end


class _ArenaEnds:
    """Returns the free ends of all arenas: `malloc_trim` returns that of the first only.

    glibc looks at the end of an arena when much is freed there, in the heap of the block that is freed, whichever thread frees it. So this
    keeps a block in each arena, has it grow and shrink, and what it frees is looked at under a low threshold. During work the threshold is
    high: pages would be returned and requested again.
    """

    def __init__(self, c: ctypes.CDLL) -> None:
        c.malloc.restype = c.realloc.restype = ctypes.c_void_p
        c.malloc.argtypes, c.realloc.argtypes = [ctypes.c_size_t], [ctypes.c_void_p, ctypes.c_size_t]
        self._c, self._blocks, self._lock = c, list[int](), threading.Lock()
        c.mallopt(_M_ARENA_MAX, _ARENAS)
        c.mallopt(_M_MMAP_THRESHOLD, _MAPPED)
        c.mallopt(_M_TRIM_THRESHOLD, _END)
        all_have = threading.Barrier(2 * _ARENAS)
        threads = [threading.Thread(target=self._keep, args=(all_have,)) for _ in range(all_have.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _keep(self, all_have: threading.Barrier) -> None:
        """Keep a block of this thread's arena. New threads take arenas that have none, then one after the other."""
        if block := self._c.malloc(_SMALL):
            self._blocks.append(block)
        all_have.wait()

    def give_back(self) -> None:
        with self._lock:
            self._c.mallopt(_M_TRIM_THRESHOLD, _LEAST_END)
            try:
                self._blocks = [self._resized(self._resized(block, _MUCH), _SMALL) for block in self._blocks]
            finally:
                self._c.mallopt(_M_TRIM_THRESHOLD, _END)

    def _resized(self, block: int, size: int) -> int:
        return self._c.realloc(block, size) or block


_ends: _ArenaEnds | None = None


def use_one_allocator() -> None:
    """Let Arrow use C's allocator like everything else. Its own keeps what the threads freed, and can return one thread's memory only. All
    threads share two arenas. Call it once, before there are other threads that allocate much."""
    global _ends
    pa.set_memory_pool(pa.system_memory_pool())
    c = ctypes.CDLL(None)
    if hasattr(c, "mallopt"):  # glibc
        _ends = _ArenaEnds(c)


def give_back() -> None:
    """Return C's free memory, of all threads, to the system (glibc's `malloc_trim`, and the ends of arenas). Takes about 10 ms per 100 MB,
    without the GIL; the threads that allocate from the same arena wait meanwhile, so never call it in a thread with a low priority."""
    pa.system_memory_pool().release_unused()
    if _ends is not None:
        _ends.give_back()


_asked = threading.Event()


def give_back_later() -> None:
    """Have memory returned after work that `MemoryTrimmer` cannot see, once the service is quiet. Any thread."""
    _asked.set()


class MemoryTrimmer:
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
