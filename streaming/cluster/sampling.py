"""Estimates from samples: bounds of slabs, copies, the part of the rows in the fullest cell, and the number of pairs that overlap.

A sample of a role has some of its rows, drawn uniformly, and the total number. Sums over samples are scaled up; a pair of rows is in two
samples with the product of their probabilities, whatever it has in common, so sums over pairs are unbiased as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from streaming.cluster.layout import Coordinate, CoordinateValues, Layout, Numbers, Point, Role

SAMPLED = 100_000  # rows of a relation
_DEPTH = 8  # so many partners weigh as much as a row


class Sample(NamedTuple):
    """`rows`: the total number. `given`: by the number of each candidate coordinate in which the alias takes part."""

    rows: int
    ties: Numbers
    given: Mapping[int, CoordinateValues]

    @property
    def scale(self) -> float:
        return self.rows / max(1, len(self.ties))


Samples = Mapping[str, Sample]
"""By alias."""


def bounds_of(index: int, coordinate: Coordinate, samples: Samples, size: int) -> tuple[Point, ...]:
    """The quantiles of all members' starts, each weighted by its cost: itself, and its partners."""
    members = [samples[alias] for alias in coordinate.members]
    starts, ends = [_with_hash(one, index, True) for one in members], [_with_hash(one, index, False) for one in members]
    ranks = _ranks([*starts, *ends])
    weights = []
    for mine, one in enumerate(members):
        own, depth = ranks[mine], np.zeros(len(one.ties))
        for other, sample in enumerate(members):
            if other != mine:
                begun = np.searchsorted(np.sort(ranks[other]), own, "right")
                ended = np.searchsorted(np.sort(ranks[len(members) + other]), own, "left")
                depth += sample.scale * (begun - ended)
        weights.append(one.scale * (1 + depth / _DEPTH))
    hashes, points = (np.concatenate([pair[part] for pair in starts]) for part in (0, 1))
    ties, weight = np.concatenate([one.ties for one in members]), np.concatenate(weights)
    if not len(ties):
        return ()
    ordered = np.lexsort((ties, points, hashes))
    total = np.cumsum(weight[ordered])
    at = ordered[np.searchsorted(total, total[-1] * np.arange(1, size) / size)]
    return tuple(zip(hashes[at].tolist(), points[at].tolist(), ties[at].tolist(), strict=True))


def copies_of(layout: Layout, role: Role, sample: Sample, given: Sequence[CoordinateValues | None]) -> float:
    """The number of copies of a row, on average."""
    return layout.copies(role, sample.ties, given) / max(1, len(sample.ties))


def largest_share(coordinate: Coordinate, sample: Sample, index: int, alias: str) -> float:
    """The part of the rows with the most frequent value of a hash coordinate."""
    hashes = sample.given[index].hashes if coordinate.members[alias].columns else sample.ties
    if not len(hashes):
        return 0.0
    return float(np.bincount(hashes % coordinate.size).max()) / len(hashes)


def pairs_of(x: Sample, y: Sample, index: int) -> float:
    """The approximate number of pairs that overlap and whose keys have the same hash."""
    x_starts, y_starts, x_ends, y_ends = _ranks([_with_hash(one, index, start) for start in (True, False) for one in (x, y)])
    begun = np.searchsorted(np.sort(y_starts), x_ends, "right")
    ended = np.searchsorted(np.sort(y_ends), x_starts, "left")
    return float((begun - ended).sum()) * x.scale * y.scale


def _ranks(lists: Sequence[tuple[Numbers, Numbers]]) -> list[Numbers]:
    """The dense ranks of pairs (hash, point) among those of all lists."""
    hashes, points = (np.concatenate([pair[part] for pair in lists]) for part in (0, 1))
    order = np.lexsort((points, hashes))
    differs = (np.diff(hashes[order]) != 0) | (np.diff(points[order]) != 0)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.concatenate(([0], np.cumsum(differs)))[: len(order)]
    return np.split(ranks, np.cumsum([len(pair[0]) for pair in lists])[:-1])


def _with_hash(sample: Sample, index: int, start: bool) -> tuple[Numbers, Numbers]:
    given = sample.given[index]
    points = given.starts if start else given.ends
    assert points is not None
    return given.hashes, points
