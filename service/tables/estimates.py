"""Estimate the rows of an alias, the rows per key, and how likely two rows meet, from a sample of each relation.

A join by lookups orders its aliases by these estimates (`binding`). They determine what a view costs, never its content. The same rows in
the same slots give the same estimates.

Costs: reading a few thousand rows of each alias.
Source of the number of distinct keys: the estimator GEE of Charikar, Chaudhuri, Motwani and Narasayya (Towards Estimation Error Guarantees
for Distinct Values, 2000): keys that occur once in a sample of s of n rows stand for sqrt(n / s) keys each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod, sqrt

import numpy as np
import pyarrow as pa

from livejoin.wire.schema import RelationDefinition
from service.planning.meets import meets_of
from service.query.conditions import ColumnRef
from service.query.model import Meet, Query, Span
from service.tables.inputs import Input, ends_of
from service.tables.relations import Relation
from service.tables.resolution import Slots

_SAMPLE = 4096


def estimates_of(query: Query, relations: Mapping[str, Relation], version: int) -> Estimates | None:
    """For a pinned version, or the newest one in the writer's thread; None if some alias has no rows, or no relation, as a stored query has
    none."""
    if any(name not in relations for _, name in query.aliases):
        return None
    samples = {name: relations[name].table.sample(version, _SAMPLE) for _, name in query.aliases}
    inputs = [_SampledRows(Input(query, position, relations[name]), samples[name]) for position, (_, name) in enumerate(query.aliases)]
    return Estimates(inputs) if all(len(input.slots) for input in inputs) else None


def shares_of(inputs: Sequence[Input], spans: Sequence[tuple[Span, Span]], version: int, size: int) -> list[float] | None:
    """Estimate how likely two rows, one of each of two aliases, meet in each of these pairs of spans, from about `size` rows of each; None
    if one has none."""
    sampled = [_SampledRows(input, input.relation.table.sample(version, size)) for input in inputs]
    if not all(len(input.slots) for input in sampled):
        return None
    estimates = Estimates(sampled)
    return [estimates.share(Meet(*pair, "")) for pair in spans]


def rows_of(query: Query, relations: Mapping[str, RelationDefinition], estimates: Estimates | None) -> float | None:
    """Estimate the rows of a view: an inner join, perhaps grouped by its columns, of independent conditions. None: unknown."""
    is_computed = any(ref.is_computed for pair in query.equal for ref in pair)
    others = query.subqueries or query.branches or query.united or query.stretches or query.latest or query.as_of
    if estimates is None or is_computed or others:
        return None
    positions = {alias: position for position, (alias, _) in enumerate(query.aliases)}

    def distinct(ref: ColumnRef) -> float:
        position = positions[ref.alias]
        return estimates.rows(position) / max(1.0, estimates.of_key(position, (ref.column,)))

    rows = prod(estimates.rows(position) for position in positions.values())
    for left, right in query.equal:
        rows /= max(1.0, distinct(left), distinct(right))
    for meet in meets_of(query, query.defined(relations)):
        rows *= estimates.share(meet)
    if query.groups is not None:
        keys = [query.outputs[one.of].column for one in query.groups.columns]
        rows = min(rows, prod(distinct(ref) for ref in keys if ref is not None)) if None not in keys else rows
    return rows


class _SampledRows:
    """Sampled rows of an alias that meet its filters."""

    def __init__(self, input: Input, sample: Slots) -> None:
        self.input, self.table = input, input.relation.table
        self.slots: Slots = input.chosen(sample)
        self.rows = self.table.rows * len(self.slots) / max(1, len(sample))
        self._ends: dict[Span, tuple[np.ndarray, np.ndarray]] = {}

    def ends(self, meet: Meet) -> tuple[np.ndarray, np.ndarray]:
        """Return the sorted starts and ends of the spans that are not empty."""
        span = meet.of(self.input.alias)
        if span not in self._ends:
            left, right = ends_of(self.table, span, self.slots)
            some = left <= right
            self._ends[span] = np.sort(left[some]), np.sort(right[some])
        return self._ends[span]


class Estimates:
    """`binding.Counts`, by sampling."""

    def __init__(self, inputs: list[_SampledRows]) -> None:
        self._inputs = inputs
        self._of_alias = {one.input.alias: one for one in inputs}
        self._shares: dict[Meet, float] = {}

    def rows(self, position: int) -> float:
        return self._inputs[position].rows

    def of_key(self, position: int, columns: tuple[str, ...]) -> float:
        one = self._inputs[position]
        sample = pa.Table.from_batches([one.table.take(columns, one.slots)]).drop_null()
        if len(sample) == 0:
            return 0.0
        counts = np.asarray(sample.group_by(list(columns)).aggregate([([], "count_all")]).column("count_all"))
        rows = one.rows * len(sample) / len(one.slots)
        once = np.count_nonzero(counts == 1)
        keys = len(counts) - once + once * sqrt(max(1.0, rows / len(sample)))
        return float(rows / keys)

    def share(self, meet: Meet) -> float:
        if meet not in self._shares:
            one, other = (self._of_alias[span.alias] for span in (meet.left, meet.right))
            (left, right), (its_left, its_right) = one.ends(meet), other.ends(meet)
            # The pairs of which neither ends before the other begins; half a pair if there is none.
            begun = np.searchsorted(its_left, right, "right").sum()
            over = np.searchsorted(its_right, left, "left").sum()
            self._shares[meet] = max(0.5, float(begun - over)) / (len(one.slots) * len(other.slots))
        return self._shares[meet]
