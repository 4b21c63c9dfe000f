"""Reserved address space: arrays that never move.

An array made here spans far more than it holds. The kernel of the operating system gives a page when it is
first touched (zeroed), so a writer can append while readers hold the same array: nothing is ever copied
to grow. The memory is returned when the last array that views it is freed.
"""

from __future__ import annotations

import mmap
import os
import sys
from contextlib import suppress
from typing import Any

import numpy as np

# Python 3.11 and 3.12 do not name it; 0x4000 is Linux's value.
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
SLOTS = 1 << 30  # of the rows of a relation, or of a structure's entries
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # bytes of this machine's memory


def reserve(bytes: int, dtype: Any) -> np.ndarray:
    """Return a writable array of zeros, `bytes` // itemsize long, whose pages are small and allocated when they are touched.

    `bytes`: at least one item. Raises OSError if there is not enough address space. O(1).
    """
    kind = np.dtype(dtype)
    length = bytes // kind.itemsize
    if length < 1:
        raise ValueError(f"{bytes} bytes hold no {kind}")
    space = mmap.mmap(-1, length * kind.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # the first access to a large page takes milliseconds on some virtual machines
        with suppress(OSError):  # the system has none
            space.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(space, dtype=kind)


def give_back(array: np.ndarray, first: int, end: int) -> None:
    """Return pages to the system that hold only items [first, end) of an array made here, which are no longer needed."""
    space: Any = array
    while not isinstance(space, mmap.mmap):
        space = space.obj if isinstance(space, memoryview) else space.base
    low, high = -(-first * array.itemsize // mmap.PAGESIZE) * mmap.PAGESIZE, end * array.itemsize // mmap.PAGESIZE * mmap.PAGESIZE
    if high > low:
        space.madvise(mmap.MADV_DONTNEED, low, high - low)
