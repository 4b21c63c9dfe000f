"""How fast the machine provides memory. The host of a virtual machine may only look for memory when a page is accessed for the first time,
and may take away pages that have not been used for some seconds: the next access to each then takes tens of microseconds, which the system
of the virtual machine does not see.
"""

from __future__ import annotations

import mmap
import time
from typing import NamedTuple

import numpy as np

from structures.core.reserve import reserve

_PAGE = mmap.PAGESIZE
_PIECE = 64 << 10  # bytes
_READ = 20_000  # pages


def first_access(size: int) -> str:
    """Return in words how long the machine takes to provide this many bytes, in small pages, which the service uses."""
    pages = reserve(size, np.uint8)[::_PAGE]
    longest, started = 0.0, time.perf_counter()
    for at in range(0, len(pages), _PIECE // _PAGE):
        before = time.perf_counter()
        pages[at : at + _PIECE // _PAGE] = 1
        longest = max(longest, time.perf_counter() - before)
    seconds = time.perf_counter() - started
    each = f"{1e3 * longest:.1f} ms for {_PIECE >> 10} KiB"
    return f"touched for the first time {seconds * (1 << 30) / size:.2f} s a GiB, at most {each}"


class Access(NamedTuple):
    """Microseconds to read a page that was not used for some seconds (`unused`), and to read it again at once: averages."""

    unused: float
    first: float
    again: float


class UnusedMemory:
    """Memory that is filled, and then not used until `read`."""

    def __init__(self, size: int) -> None:
        """`size`: bytes; several times `_READ` pages, since the processor's caches must not hold them."""
        self._memory = np.ones(size, np.uint8)
        self._filled = time.perf_counter()

    def read(self) -> Access:
        """Read some pages, in random order, twice."""
        unused = time.perf_counter() - self._filled
        pages = np.random.default_rng(1).permutation(len(self._memory) // _PAGE)[:_READ] * _PAGE
        return Access(unused, *(self._seconds(pages) * 1e6 / len(pages) for _ in range(2)))

    def _seconds(self, pages: np.ndarray) -> float:
        started = time.perf_counter()
        self._memory[pages].sum()
        return time.perf_counter() - started
