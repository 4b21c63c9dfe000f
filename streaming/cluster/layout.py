"""Which cells a row goes to, and which cell reports a row of the join.

A layout has coordinates; cells are the points of their product. In each coordinate a row gets a set of values: if its alias takes part, by
hash the one of its columns, in slabs those of all points of its interval from its own position on; if its alias does not take part, every
value. It goes to all cells of these values.

    hash    home is the hash of what the members have in common; only there do they meet
    slabs   the members overlap. A position is that of (hash of the key, start, tie) among quantiles; home is the position of the member
            that starts last, a point in the intervals of all. It is the highest position of the members, so a cell is home iff one
            member starts there (`here`). t filtered views find each row once: in view i, member i is here, and those before it are not
    bands   the same for streams, whose times go on: a position is hash of the key + point / width, mod size; for a key that is not hot,
            only the hash. Home is that of the member that starts last. A member that starts there need not be the last, so the t views
            find a row at most t times, and the one that is at home must be chosen (`homes`)

So a row of the join is found in exactly one cell, whatever collides. Ties divide equal starts: any number that depends only on the row will
do. Plain data, stored as JSON; routing is pure NumPy, about 0.2 µs per copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Point = tuple[int, int, int]
"""In slabs: the hash of a key, a start, a tie."""

_LAST_TIE = np.iinfo(np.int64).max


class Member(NamedTuple):
    """How an alias takes part. `columns`: those that are equal to the other members'; if there are none, the tie of the row is used.
    `interval`: in slabs."""

    columns: tuple[str, ...]
    interval: str | None = None


class Coordinate(NamedTuple):
    """`members`: by alias. `bounds`: of slabs, size - 1 of them, ascending: a slab begins at each. `width`: of bands; `hot`: the hashes of
    the keys that they divide; None: all."""

    kind: Literal["hash", "slabs", "bands"]
    members: Mapping[str, Member]
    size: int = 1
    bounds: tuple[Point, ...] = ()
    width: int = 0
    hot: tuple[int, ...] | None = None


class Role(NamedTuple):
    """Aliases of one relation that take part in the same way share their cells. `members`: for each coordinate, None if they do not take
    part."""

    relation: str
    members: tuple[Member | None, ...]


class CoordinateValues(NamedTuple):
    """The values of rows that determine a coordinate, int64[n]: the hash of the member's columns; for slabs the ends of the closed
    interval."""

    hashes: Numbers
    starts: Numbers | None = None
    ends: Numbers | None = None


class RoutedRows(NamedTuple):
    """Copies: the cell of each, its row, and for each coordinate whether it starts there (None: for hashes, or if the alias is not a
    member)."""

    cells: Numbers
    rows: Numbers
    here: list[Mask | None]


class Layout(NamedTuple):
    """`aliases`: (alias, relation)."""

    aliases: tuple[tuple[str, str], ...]
    coordinates: tuple[Coordinate, ...]

    @property
    def cells(self) -> int:
        return prod(one.size for one in self.coordinates)

    @property
    def roles(self) -> list[Role]:
        return list(dict.fromkeys(map(self._role, self.aliases)))

    def names(self) -> dict[str, str]:
        """By alias, the name of its role, which is the name of its relation in a cell."""
        roles = self.roles
        return {one[0]: f"r{roles.index(self._role(one))}" for one in self.aliases}

    def _role(self, alias: tuple[str, str]) -> Role:
        return Role(alias[1], tuple(one.members.get(alias[0]) for one in self.coordinates))

    def home_tests(self) -> Iterator[list[tuple[str, int, bool]]]:
        """The views of a cell, which together find all rows whose home it is, each once: for each view (alias, coordinate, whether its rows
        are here)."""
        ranges = [(index, list(one.members)) for index, one in enumerate(self.coordinates) if one.kind != "hash" and one.size > 1]
        for chosen in product(*(range(len(members)) for _, members in ranges)):
            yield [
                (alias, index, position == first)
                for (index, members), first in zip(ranges, chosen, strict=True)
                for position, alias in enumerate(members[: first + 1])
            ]

    def homes(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The coordinates in which a row of these views may have its home elsewhere: the number of each, and the intervals of its members.
        There, the member that starts last must be here."""
        for index, one in enumerate(self.coordinates):
            if one.kind == "bands" and one.size > 1:
                yield index, {alias: member.interval for alias, member in one.members.items() if member.interval is not None}

    def firsts(self, role: Role) -> Mask:
        """bool[cells]: where the coordinates in which the role is not a member have their first value. Exactly one copy of each row is in
        such a cell with all its flags set."""
        left, found = np.arange(self.cells), np.ones(self.cells, np.bool_)
        for coordinate, member in zip(reversed(self.coordinates), reversed(role.members), strict=True):
            left, value = np.divmod(left, coordinate.size)
            found &= (value == 0) | (member is not None)
        return found

    def route(self, role: Role, ties: Numbers, given: Sequence[CoordinateValues | None]) -> RoutedRows:
        """`given`: for each coordinate, None if the role is not a member."""
        lowest, counts = self._values(role, ties, given)
        copies = counts.prod(axis=0)
        of = np.repeat(np.arange(len(ties)), copies)
        left = np.arange(len(of)) - np.repeat(np.cumsum(copies) - copies, copies)
        cells, here = np.zeros(len(of), np.int64), list[Mask | None]()
        for index, (coordinate, own) in enumerate(zip(self.coordinates, given, strict=True)):
            width = counts[index][of]
            offset, left = left % width, left // width
            cells = cells * coordinate.size + (lowest[index][of] + offset) % coordinate.size
            here.append(offset == 0 if own is not None and own.starts is not None else None)
        return RoutedRows(cells, of, here)

    def copies(self, role: Role, ties: Numbers, given: Sequence[CoordinateValues | None]) -> int:
        """The number of copies that `route` would make."""
        return int(self._values(role, ties, given)[1].prod(axis=0).sum())

    def rows_by_cell(self, role: Role, ties: Numbers, given: CoordinateValues) -> Numbers:
        """int64[cells]: how many copies `route` would make for each cell, in a layout of one coordinate. Takes memory only for the rows."""
        (lowest,), (counts,) = self._values(role, ties, [given])
        ends = 2 * self.cells  # of values that come round again
        found = np.cumsum(np.bincount(lowest, minlength=ends) - np.bincount(lowest + counts, minlength=ends))
        return found[: self.cells] + found[self.cells :]

    def _values(self, role: Role, ties: Numbers, given: Sequence[CoordinateValues | None]) -> tuple[Numbers, Numbers]:
        """int64[coordinates, n]: the first value of each row, and how many there are from it on, cyclically."""
        rows = len(ties)
        lowest, counts = np.zeros((len(self.coordinates), rows), np.int64), np.ones((len(self.coordinates), rows), np.int64)
        for index, (coordinate, member, own) in enumerate(zip(self.coordinates, role.members, given, strict=True)):
            if member is None or own is None:
                counts[index] = coordinate.size
            elif own.starts is None or own.ends is None:
                lowest[index] = (own.hashes if member.columns else ties) % coordinate.size
            elif coordinate.kind == "bands":
                lowest[index], counts[index] = _bands(coordinate, own.hashes, own.starts, own.ends)
            else:
                lowest[index] = positions(coordinate.bounds, own.hashes, own.starts, ties)
                counts[index] = 1 + positions(coordinate.bounds, own.hashes, own.ends, np.full(rows, _LAST_TIE)) - lowest[index]
        return lowest, counts

    def to_json(self) -> str:
        return json.dumps([self.aliases, [tuple(one) for one in self.coordinates]])

    @classmethod
    def of_json(cls, text: str) -> Layout:
        aliases, coordinates = json.loads(text)
        return cls(tuple(map(tuple, aliases)), tuple(_coordinate(*one) for one in coordinates))


def _coordinate(
    kind: Literal["hash", "slabs", "bands"], members: dict[str, Any], size: int, bounds: list[list[int]], width: int, hot: list[int] | None
) -> Coordinate:
    found = {alias: Member(tuple(columns), interval) for alias, (columns, interval) in members.items()}
    points = tuple((one[0], one[1], one[2]) for one in bounds)
    return Coordinate(kind, found, size, points, width, None if hot is None else tuple(hot))


def _bands(coordinate: Coordinate, hashes: Numbers, starts: Numbers, ends: Numbers) -> tuple[Numbers, Numbers]:
    """The places of the starts, and how many places there are from them to the ends."""
    first, last = starts // coordinate.width, ends // coordinate.width
    if coordinate.hot is not None:
        is_hot = np.isin(hashes, np.array(coordinate.hot, np.int64))
        first, last = np.where(is_hot, first, 0), np.where(is_hot, last, 0)
    passed = last.view(np.uint64) - first.view(np.uint64)  # of an open interval more than int64 has
    counts = 1 + np.minimum(passed, np.uint64(coordinate.size - 1)).astype(np.int64)
    return (hashes % coordinate.size + first % coordinate.size) % coordinate.size, counts


def positions(bounds: Sequence[Point], hashes: Numbers, points: Numbers, ties: Numbers) -> Numbers:
    """int64[n]: how many bounds are not above each (hash, point, tie): by binary search, in log steps over all."""
    if not bounds:
        return np.zeros(len(ties), np.int64)
    first, second, third = np.array(bounds, np.int64).T
    low, high = np.zeros(len(ties), np.int64), np.full(len(ties), len(bounds))
    for _ in range(len(bounds).bit_length()):
        middle = np.minimum((low + high) // 2, len(bounds) - 1)
        h, p, t = first[middle], second[middle], third[middle]
        is_not_above = (h < hashes) | ((h == hashes) & ((p < points) | ((p == points) & (t <= ties))))
        going = low < high
        low = np.where(going & is_not_above, middle + 1, low)
        high = np.where(going & ~is_not_above, middle, high)
    return low
