"""Which batches that follow one another are applied together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from service.wire.batch import TRUNCATE, Batch


def is_single(batch: Batch) -> bool:
    """Whether the batch is one row's change, with nothing else to it: such ones may be applied many at a time."""
    return batch.sent == 1 and len(batch.changes) == 1 and len(batch.changes[0].ops) == 1 and batch.changes[0].ops[0] != TRUNCATE


def runs_of(batches: list[Batch]) -> Iterator[list[Batch]]:
    """The batches in order: those that may be one run together, any other by itself. No source twice in a run."""
    run: list[Batch] = []
    sources: set[str | None] = set()
    for batch in batches:
        single = is_single(batch)
        if run and not (single and (batch.source is None or batch.source not in sources)):
            yield run
            run, sources = [], set()
        if single:
            run.append(batch)
            sources.add(batch.source)
        else:
            yield [batch]
    if run:
        yield run


def smaller_runs(batches: Sequence[Batch]) -> list[list[Batch]]:
    """What to try of single changes, two at least, that are no run together: runs in which no row comes twice; where none does, halves."""
    runs: list[list[Batch]] = [[]]
    met: set[tuple[Any, ...]] = set()
    for batch in batches:
        key = _key_of(batch)
        if key in met:
            runs.append([])
            met.clear()
        runs[-1].append(batch)
        met.add(key)
    if len(runs) > 1:
        return runs
    middle = len(batches) // 2
    return [[*batches[:middle]], [*batches[middle:]]]


def _key_of(batch: Batch) -> tuple[Any, ...]:
    """Of a single change: its relation, and the key of its row."""
    (changes,) = batch.changes
    rows, key = changes.rows, changes.definition.rules.key_ordinals
    if rows.values is not None:
        return changes.relation, *[rows.values[0][ordinal] for ordinal in key]
    return changes.relation, *[rows.arrow.column(ordinal)[0].as_py() for ordinal in key]
