"""The resident memory of a process by kind: Linux's `/proc/<pid>/smaps`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_HEAP = 64 << 20  # bytes of the largest other mapping that is not reserved in advance: a heap of glibc


class Resident(NamedTuple):
    """Bytes of a process.

    reserved   the large arrays of `structures/core/reserve.py`
    anonymous  those, and all other memory not mapped from files: the allocators of C, NumPy, Arrow, SQLite and Python, stacks
    files      code, libraries, including pages that are shared with other processes: a share of them would change whenever another process
               starts or ends that has loaded the same libraries, such as the one that measures
    """

    reserved: int
    anonymous: int
    files: int

    @property
    def all(self) -> int:
        return sum(self)


def resident(pid: int) -> Resident:
    """The current values. Raises OSError if there is no such process, or no smaps."""
    reserved = anonymous = files = 0
    for name, span, size, flags in _mappings(Path(f"/proc/{pid}/smaps")):
        if name.startswith("/"):
            files += size
        elif "nr" in flags and span > _HEAP:  # not reserved in advance
            reserved += size
        else:
            anonymous += size
    return Resident(reserved, anonymous, files)


def _mappings(path: Path) -> Iterator[tuple[str, int, int, set[str]]]:
    """Name (of the file; empty or in brackets for anonymous memory), bytes of address space, resident bytes, and flags of each mapping."""
    name, span, size = "", 0, 0
    for line in path.read_text().splitlines():
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):
            parts = rest.split(maxsplit=4)
            name = parts[4] if len(parts) == 5 else ""
        elif first == "Size:":
            span = 1024 * int(rest.split()[0])
        elif first == "Rss:":
            size = 1024 * int(rest.split()[0])
        elif first == "VmFlags:":
            yield name, span, size, set(rest.split())
