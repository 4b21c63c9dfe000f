"""The naive twin of `structures.index.indexes`: a set of entries, searched one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.naive.natural_join import Entry


def below(entries: Collection[Entry], prefix: Sequence[int]) -> list[Entry]:
    """Return the entries that begin with the prefix, in order."""
    return sorted(one for one in entries if one[: len(prefix)] == tuple(prefix))


def find_gap(entries: Collection[Entry], prefix: Sequence[int], value: int) -> tuple[int | None, int | None]:
    following = [one[len(prefix)] for one in below(entries, prefix)]
    return max((v for v in following if v <= value), default=None), min((v for v in following if v >= value), default=None)


def seek(entries: Collection[Entry], position: Sequence[int]) -> Entry | None:
    return min((one for one in entries if one[: len(position)] >= tuple(position)), default=None)


def in_common(entries: Collection[Entry], entry: Entry) -> int:
    """Return the maximum number of coordinates that another entry has in common with this one."""
    lengths = range(len(entry))
    return max((n for other in entries if other != entry for n in lengths if other[:n] == entry[:n]), default=0)
