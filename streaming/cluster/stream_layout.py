"""Layouts of streams, whose rows cannot be counted: by samples of similar rows, or for rows that are spread evenly.

Where a batch has slabs, streams have bands, because later starts are beyond all quantiles. They divide only the keys that have a large part
of a cell's rows, and their width, found from samples, is such that a row of these keys has few copies. How large this part must be is
determined by trial: the choice with the smallest fullest cell is best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from livejoin.wire.schema import OP_COLUMN
from service.engine.headless import parse_for_cells
from service.query.model import Query
from streaming.cluster.batch import sample_of
from streaming.cluster.candidates import MUCH_COPIED, candidates, choose
from streaming.cluster.cells_batch import VIEW
from streaming.cluster.changes import SEQ_COLUMN
from streaming.cluster.frames import Table
from streaming.cluster.layout import Coordinate, CoordinateValues, Layout, Mask
from streaming.cluster.sampling import Sample, Samples, copies_of

_MOST_COPIES = 1.25  # of a row that bands divide
_HOT = 1.0, 0.25, 0.0625  # of what a cell gets on the average, tried in turn: keys just below it share cells by chance, and copies cost
_EVENLY = 4096  # rows of which an even layout is made
_UNBOUNDED = np.iinfo(np.int64).min  # a start
_WIDEST = 1 << 62


def stream_layout(definition: Mapping[str, Any] | str, tables: Mapping[str, Table], cells: int, max_copies: float = 8.0) -> str:
    """The layout of streams, found from samples: `tables` are frames with similar rows, over a time that is much longer than the intervals.
    Keep the text: the states of a query have one layout. `cells`: a power of two, ideally four times the state partitions
    (`spark.sql.shuffle.partitions`).

    Raises like `live_join`.
    """
    view = {"sql": definition} if isinstance(definition, str) else dict(definition)
    frames = {name: plain(table) for name, table in tables.items()}
    definitions = {name: table.definition() for name, table in frames.items()}
    query = parse_for_cells(VIEW, view, definitions).query
    possible, samples = candidates(query), dict[str, Sample]()
    counts = {relation: frames[relation].frame.count() for relation in {relation for _, relation in query.whole.aliases}}
    for alias, relation in query.whole.aliases:
        samples[alias] = sample_of(alias, relation, frames[relation], definitions[relation], possible, counts[relation])
    return choose_layout(query, possible, samples, cells, max_copies, None)


def even_layout(query: Query, cells: int, width: int | None, max_copies: float) -> str:
    """For unknown rows: without a width, rows with a key are divided only by the key. Raises NotDistributable, ValueError (a width is
    needed)."""
    possible, points, rng = candidates(query), np.arange(_EVENLY), np.random.default_rng(1)
    if width is None:
        possible = [one for one in possible if one.kind == "hash" or not _is_keyed(one)]
    samples = {}
    for alias, _ in query.whole.aliases:
        given = {}
        for index, one in enumerate(possible):
            if alias in one.members:
                keys = rng.permutation(points) if one.members[alias].columns else 0 * points
                ends = () if one.kind == "hash" else (points, points + _EVENLY // (4 * cells))
                given[index] = CoordinateValues(keys, *ends)
        samples[alias] = Sample(_EVENLY, rng.integers(1 << 62, size=_EVENLY), given)
    return choose_layout(query, possible, samples, cells, max_copies, width or 0)


def require_fits(layout: str, query: Query) -> None:
    """Raises ValueError (the layout belongs to another view), NotDistributable."""
    found, possible = Layout.of_json(layout), [(one.kind, one.members) for one in candidates(query)]
    kinds = [("slabs" if one.kind == "bands" else one.kind, one.members) for one in found.coordinates]
    if found.aliases != query.whole.aliases or not all(one in possible for one in kinds):
        raise ValueError(f"the layout belongs to a different view: make one for this view with stream_layout\nlayout: {layout}")


def plain(table: Table) -> Table:
    """The table without the columns that describe changes."""
    return replace(table, frame=table.frame.drop(OP_COLUMN, SEQ_COLUMN))


def choose_layout(
    query: Query, possible: Sequence[Coordinate], samples: Samples, cells: int, max_copies: float, width: int | None
) -> str:  # fmt: skip
    chosen = choose(query.whole.aliases, possible, samples, 1 << (cells - 1).bit_length())
    coordinates, indices = list[Coordinate](), list[int]()
    for one in chosen.layout.coordinates:
        index = next(position for position, other in enumerate(possible) if (other.kind, other.members) == (one.kind, one.members))
        coordinates.append(one if one.kind == "hash" else _in_bands(one, index, samples, width))
        indices.append(index)
    by_samples = width is None  # else rows are even, and a width says nothing of them
    copies = _copies(coordinates, indices, samples) if by_samples else chosen.copies
    chosen._replace(copies=copies).require_few_copies(max_copies)
    return Layout(chosen.layout.aliases, tuple(coordinates)).to_json()


def _in_bands(slabs: Coordinate, index: int, samples: Samples, width: int | None) -> Coordinate:
    if width is not None:
        if width < 1:
            names = ", ".join(f"{alias}.{member.interval}" for alias, member in slabs.members.items())
            raise ValueError(f"{names} are joined in bands of time: give a width, several times the length of an interval, or a layout")
        return Coordinate("bands", slabs.members, slabs.size, width=width)
    members = {alias: samples[alias] for alias in slabs.members}
    if not _is_keyed(slabs):
        return _divided(slabs, index, members, None)
    tried = dict.fromkeys(_hot(slabs, index, members, share) for share in _HOT)
    return min((_divided(slabs, index, members, hot) for hot in tried), key=lambda bands: _cost(bands, index, members))


def _divided(slabs: Coordinate, index: int, members: Samples, hot: tuple[int, ...] | None) -> Coordinate:
    """In the narrowest bands for which the rows of hot keys have few copies."""
    some, widest = _of_a_time(slabs.size, index, members, hot)
    found = Coordinate("bands", slabs.members, slabs.size, width=1, hot=hot)
    while 2 * found.width <= widest and _copies([found], [index], some) > _MOST_COPIES:
        found = found._replace(width=2 * found.width)
    return found


def _of_a_time(size: int, index: int, members: Samples, hot: tuple[int, ...] | None) -> tuple[Samples, int]:
    """What determines the width of bands: among the rows that they divide, those whose intervals are shorter than the time over which all
    of them start; and the widest bands that divide this time among all cells. Longer intervals, such as open ones, are in all cells,
    whatever the width."""
    starts = [one.given[index].starts for one in members.values()]
    known = np.concatenate([one[one > _UNBOUNDED] for one in starts if one is not None])
    time = int(known.max()) - int(known.min()) if len(known) else 0
    some = members if hot is None else {alias: _chosen_of(one, index, _is_among(one, index, hot)) for alias, one in members.items()}
    shorter = {alias: _chosen_of(one, index, _is_shorter(one, index, time)) for alias, one in some.items()}
    if any(len(one.ties) for one in shorter.values()):
        return shorter, time // size
    return some, _WIDEST  # of too short a time


def _is_among(sample: Sample, index: int, hot: tuple[int, ...]) -> Mask:
    return np.isin(sample.given[index].hashes, np.array(hot, np.int64))


def _is_shorter(sample: Sample, index: int, time: int) -> Mask:
    _, starts, ends = sample.given[index]
    assert starts is not None and ends is not None
    found: Mask = ends.view(np.uint64) - starts.view(np.uint64) < time
    return found


def _chosen_of(sample: Sample, index: int, chosen: Mask) -> Sample:
    given = CoordinateValues(*(column[chosen] for column in sample.given[index] if column is not None))
    return Sample(round(sample.scale * np.count_nonzero(chosen)), sample.ties[chosen], {index: given})


def _cost(bands: Coordinate, index: int, members: Samples) -> float:
    """In rows of the fullest cell, as in `choose`."""
    rows = np.zeros(bands.size)
    for alias, one in members.items():
        alone = Layout(((alias, ""),), (bands,))
        rows += one.scale * alone.rows_by_cell(alone.roles[0], one.ties, one.given[index])
    return float(rows.max() + MUCH_COPIED * rows.mean())


def _is_keyed(coordinate: Coordinate) -> bool:
    return any(member.columns for member in coordinate.members.values())


def _hot(slabs: Coordinate, index: int, members: Samples, share: float) -> tuple[int, ...]:
    """The hashes of the keys of which any member has more rows than this fraction of a cell's share."""
    found = set[int]()
    for one in members.values():
        keys, counts = np.unique(one.given[index].hashes, return_counts=True)
        found.update(keys[counts > share * counts.sum() / slabs.size].tolist())
    return tuple(sorted(found))


def _copies(coordinates: Sequence[Coordinate], indices: Sequence[int], samples: Samples) -> float:
    """The copies of a row, on average. `indices`: of the coordinates in the samples."""
    total = rows = 0.0
    for alias, sample in samples.items():
        alone = Layout(((alias, ""),), tuple(coordinates))
        total += sample.rows * copies_of(alone, alone.roles[0], sample, [sample.given.get(index) for index in indices])
        rows += sample.rows
    return total / max(1.0, rows)
