"""What becomes of batches: validated, applied, answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import orjson

from livejoin.wire.batch import Batch
from livejoin.wire.errors import RowError
from service.engine.build import Build
from service.tables.interest import TouchedRows
from service.tables.resolution import Resolution
from service.views.deltas import Delta
from service.views.live_view import LiveView


class Receipt(NamedTuple):
    """The result of a batch; applied + ignored + skipped_count are the changes sent, unless it is a duplicate."""

    version: int
    applied: int
    ignored: int
    skipped_count: int
    skipped: list[RowError]  # the first 100
    duplicate: bool
    timeline: int = 1
    first: bytes | None = None  # of a duplicate that is the last batch of its source: the answer to the first copy

    def encoded(self) -> bytes:
        """The answer as JSON; its header names the timeline."""
        emitted = {
            "version": self.version,
            "applied": self.applied,
            "ignored": self.ignored,
            "skipped_count": self.skipped_count,
            "skipped": [error._asdict() for error in self.skipped],
            "duplicate": self.duplicate,
        }
        return orjson.dumps(emitted if self.first is None else {**emitted, "first": orjson.Fragment(self.first)})


class AppliedBatches(NamedTuple):
    """The result of batches that became a version each: the answers, one log entry for all of them, under the last version, and the deltas
    for the followers."""

    receipts: list[Receipt]
    payload: bytes
    deltas: list[tuple[LiveView, Delta]]


class Outcome(NamedTuple):
    """The net effect of a run of batches on each relation; the first bad rows and their number; the rows by value, and the views that they
    concern. rebuilt: the builds whose structures replace those of views, as the batch truncates relations."""

    batches: Sequence[Batch]
    resolved: list[Resolution]
    errors: list[RowError]
    error_count: int
    touched: TouchedRows
    views: Sequence[LiveView]
    rebuilt: Mapping[LiveView, Build] = MappingProxyType({})
