"""What a view's structures do for it, whatever they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from service.query.model import Span
from service.tables.changes import Runs
from service.tables.resolution import Resolved, Slots
from service.tables.store import Numbers
from service.views.deltas import Combination, Sink

Bounds = dict[Span, tuple[int, int]]
"""Closed, encoded windows of joined intervals."""


class Store(Protocol):
    """Blocks of memory, as `structures.core.blocks` has them: bytes of the newest version's, of those that only older ones see, and of all
    that the store keeps from the system."""

    @property
    def live_bytes(self) -> int: ...

    @property
    def retired_bytes(self) -> int: ...

    @property
    def held_bytes(self) -> int: ...


class Enumeration(Protocol):
    """Rows of one version, resumable; plain data beside the structures."""

    @property
    def done(self) -> bool: ...

    @property
    def steps(self) -> int:
        """Nodes, entries and candidates looked at so far."""
        ...

    @property
    def largest_gap(self) -> int:
        """The most steps between two rows so far."""
        ...

    @property
    def dead_ends(self) -> int | None:
        """Nodes entered, rows bound and candidates looked at for nothing so far; None: not counted."""
        ...

    @property
    def counters(self) -> Mapping[str, int]:
        """What else the algorithm counts, by name: so far."""
        ...

    def fill(self, limit: int) -> Combination:
        """About `limit` rows at most; a call takes milliseconds and may find none yet."""
        ...

    def clone(self) -> Enumeration: ...


class Defaults:
    """What most classes of joins do not have to do, or do not count. Each inherits it."""

    def hold(self, version: int) -> None:
        """From now on `version`, the newest, is held, in place of the last one. In the writer's turn, in each round of building: O(1)."""

    def settle(self) -> None:
        """Do beside the writer what the changes that it has followed while it is built have left to do."""

    def conclude(self, version: int) -> bool:
        """A step of what building has to do in the writer's turn, some milliseconds long: it has followed all up to `version`, the newest.
        Whether that was the last one, else another round begins."""
        return True

    def abandon(self, version: int) -> None:
        """It was not built after all; `version` is the newest. In the writer's turn, when nobody builds any more."""

    def maintain(self, steps: int) -> bool:
        """Do so many steps of what changes have put off, between versions; whether there may be more to do. What the newest version has
        stays."""
        return False

    def is_outgrown(self, version: int) -> bool:
        """Whether other structures should be built in place of these, as the data has become another; `version` is the newest. In the
        writer's turn: takes a few milliseconds now and then."""
        return False

    @property
    def stores(self) -> Sequence[Store]:
        """Where its structures have their blocks; not those of shared indexes."""
        return ()

    @property
    def flips(self) -> int | None:
        """Rows or prefixes that became live, or died, in all changes so far; None: the structure does not keep what is live."""
        return None

    @property
    def bits_per_tuple(self) -> float | None:
        """Of the compact form; None: there is none."""
        return None

    @property
    def groups(self) -> int | None:
        """Groups that have rows, those that HAVING drops too; None: rows are not grouped."""
        return None

    @property
    def sums_out_of_range(self) -> int | None:
        """Sums that are null because they are outside of their type's range; None: rows are not grouped."""
        return None


class Join(Protocol):
    """The structures of one view; see also `Defaults`. `root` stands for the newest applied version: plain data, good while that version
    is pinned or newest."""

    @property
    def root(self) -> Any: ...

    @property
    def update_steps(self) -> int:
        """What was looked at for all deltas so far, their rows included: nodes, entries, candidates; not the way to an entry's place."""
        ...

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Load all that the relations have at a version, which is held, beside the writer. From then on `apply` may be called, too."""
        ...

    def require(self, resolved: Mapping[str, Resolved]) -> None:
        """MemoryError, before anything is touched, unless `apply` surely has room."""
        ...

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Follow the changed relations to `version`, the last of the runs (nobody can read one before it); tell the rows that each version
        deletes and inserts, some of them both ways."""
        ...

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        """Let be reused what neither `oldest_needed`, the published version, nor a pin sees: a piece of it; whether there is more."""
        ...

    def rows(self, root: Any, window: Bounds | None) -> Enumeration: ...

    def partners(self, root: Any, place: int, slots: Slots, window: Bounds | None) -> Enumeration:
        """The rows in which these rows take part as alias number `place`."""
        ...

    def of_key(self, root: Any, place: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """The rows whose alias number `place` has these values (one row) in the columns that join it."""
        ...

    def is_empty(self, root: Any) -> bool | None:
        """Whether the version has no row, in O(1); None: only its rows tell."""
        ...

    def entries(self, root: Any) -> int:
        """Entries in the structures."""
        ...

    @property
    def bytes(self) -> int: ...

    @property
    def retired_bytes(self) -> int: ...

    def check(self) -> None:
        """Prove the invariants, for tests and `livejoin check`."""
        ...

    def hold(self, version: int) -> None: ...

    def settle(self) -> None: ...

    def conclude(self, version: int) -> bool: ...

    def abandon(self, version: int) -> None: ...

    def maintain(self, steps: int) -> bool: ...

    def is_outgrown(self, version: int) -> bool: ...

    @property
    def stores(self) -> Sequence[Store]: ...

    @property
    def flips(self) -> int | None: ...

    @property
    def bits_per_tuple(self) -> float | None: ...

    @property
    def groups(self) -> int | None: ...

    @property
    def sums_out_of_range(self) -> int | None: ...
