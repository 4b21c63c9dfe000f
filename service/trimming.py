"""How the service's memory is allocated: by one allocator, with one arena, whose free memory is returned once work has ended.

The batches of a load, the pieces that a view is built from, and the rows of a large reading pass through the allocator. It keeps what was
freed: tens to hundreds of megabytes that no row needs.
"""

from __future__ import annotations

import ctypes

import pyarrow as pa

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # of glibc's `mallopt`
_MAPPED = 32 << 20  # bytes; a larger block is a mapping of its own


def use_one_allocator() -> None:
    """Let Arrow use C's allocator like everything else. Its own keeps what the threads freed, and can return one thread's memory only.
    Call it once, before there are other threads that allocate much."""
    pa.set_memory_pool(pa.system_memory_pool())
    c = ctypes.CDLL(None)
    if hasattr(c, "mallopt"):  # glibc, of which `malloc_trim` returns the end of the first arena only
        c.mallopt(_M_ARENA_MAX, 1)
        c.mallopt(_M_MMAP_THRESHOLD, _MAPPED)


def give_back() -> None:
    """Return free memory to the system. Takes about 10 ms per 100 MB, without the GIL; threads that allocate wait meanwhile."""
    pa.system_memory_pool().release_unused()
