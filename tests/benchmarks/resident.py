"""The resident memory of a process by kind: Linux's `/proc/<pid>/smaps`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Resident(NamedTuple):
    """Bytes of a process.

    reserved   the arrays of `structures/core/reserve.py`
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
    for name, size, flags in _mappings(Path(f"/proc/{pid}/smaps")):
        if name.startswith("/"):
            files += size
        elif {"nr", "nh"} <= flags:  # not reserved in advance, and never in large pages
            reserved += size
        else:
            anonymous += size
    return Resident(reserved, anonymous, files)


def _mappings(path: Path) -> Iterator[tuple[str, int, set[str]]]:
    """Name (of the file; empty or in brackets for anonymous memory), bytes and flags of each mapping."""
    name, size = "", 0
    for line in path.read_text().splitlines():
        first, _, rest = line.partition(" ")
        if not first.endswith(":"):
            parts = rest.split(maxsplit=4)
            name = parts[4] if len(parts) == 5 else ""
        elif first == "Rss:":
            size = 1024 * int(rest.split()[0])
        elif first == "VmFlags:":
            yield name, size, set(rest.split())
