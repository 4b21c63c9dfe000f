"""The interface of a view's structures, of whatever kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from service.query.model import Span
from service.tables.changes import Runs
from service.tables.relations import Relation
from service.tables.resolution import Resolution, Slots
from service.tables.store import Numbers
from service.views.deltas import Combination, Sink
from service.views.read_counts import Counts
from structures.core.blocks import Blocks

Bounds = dict[Span, tuple[int, int]]
"""Closed, encoded windows of joined intervals."""

HoldNewest = Callable[[Relation], int]
"""Holds the newest version beside earlier ones until the first round, and returns it: the relation's changes up to it are not followed."""


Store = Blocks
"""Of the blocks of structures."""


class Enumeration(Protocol):
    """A resumable cursor on the rows of one version; plain data beside the structures."""

    @property
    def done(self) -> bool: ...

    @property
    def counts(self) -> Counts: ...

    def fill(self, limit: int) -> Combination:
        """Return at most about `limit` rows; a call takes milliseconds and may find none yet."""
        ...

    def clone(self) -> Enumeration: ...


class Join(Protocol):
    """The base of all structures of a view. `root` represents the newest applied version: plain data, valid while that version is pinned or
    newest. `hold_newest`: set while a view is loaded beside the writer."""

    hold_newest: HoldNewest | None = None

    @property
    def root(self) -> Any: ...

    @property
    def update_steps(self) -> int:
        """Nodes, entries and candidates visited for all deltas so far, including their rows, but not on the way to an entry's place."""
        ...

    def build(self, version: int, progress: Callable[[float], None]) -> None:
        """Load all rows that the relations have at a held version, beside the writer. From then on `apply` may be called, too. A relation
        may instead be read, once, at the version that `hold_newest` returns for it: the later, the fewer changes must be followed."""
        ...

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        """Raise MemoryError, before anything is changed, unless `apply` surely has room."""
        ...

    def apply(self, version: int, runs: Runs, sink: Sink | None) -> None:
        """Follow the changed relations to `version`, the last of the runs (earlier ones cannot be read); report the rows that each version
        deletes and inserts, some of them both ways."""
        ...

    def reclaim(self, oldest_needed: int, pins: Numbers) -> bool:
        """Make reusable, a piece at a time, what neither `oldest_needed`, the published version, nor a pin needs; return whether there is
        more."""
        ...

    def rows(self, root: Any, window: Bounds | None) -> Enumeration: ...

    def partners(self, root: Any, position: int, slots: Slots, window: Bounds | None) -> Enumeration:
        """Read the rows that have one of these rows as alias `position`."""
        ...

    def of_key(self, root: Any, position: int, key: pa.RecordBatch, window: Bounds | None) -> Enumeration:
        """Read the rows whose alias `position` has these values (one row) in its join columns."""
        ...

    def is_empty(self, root: Any) -> bool | None:
        """Whether the version has no row, in O(1); None: it must be read to find out."""
        ...

    def entries(self, root: Any) -> int:
        """Number of entries in the structures."""
        ...

    @property
    def bytes(self) -> int: ...

    @property
    def retired_bytes(self) -> int:
        """Bytes that only older versions need."""
        return sum(store.retired_bytes for store in self.stores)

    def check(self) -> None:
        """Verify the invariants, for tests and `livejoin check`."""
        ...

    # what most need not override

    def hold(self, version: int) -> None:
        """Note that `version`, the newest, is held from now on, in place of the previous one. In the writer's turn, each round of building:
        O(1)."""
        return

    def catch_up(self, version: int, runs: Runs, sink: Sink | None = None) -> None:
        """Do the same as `apply` while the join is built: as nobody has read it yet, nothing need be kept for earlier versions. After a
        MemoryError the join is lost."""
        self.apply(version, runs, sink)

    def settle(self) -> None:
        """Do, beside the writer, the work that changes have deferred while the join is built."""
        return

    def conclude(self, version: int) -> bool:
        """Do a step, some milliseconds long, of the building that must be done in the writer's turn; all changes up to `version`, the
        newest, were followed. Return whether it was the last step; otherwise another round begins."""
        return True

    def abandon(self, version: int) -> None:
        """Give up an unfinished build; `version` is the newest. In the writer's turn, when no thread builds it any more."""
        return

    def is_outgrown(self, version: int) -> bool:
        """Whether the data has changed so much that other structures should replace these; `version` is the newest. In the writer's turn:
        takes a few milliseconds now and then."""
        return False

    @property
    def stores(self) -> Sequence[Store]:
        """The stores of its structures' blocks, without those of shared indexes."""
        return ()

    @property
    def flips(self) -> int | None:
        """Number of rows or prefixes that became live or dead, over all changes; None: the structure does not record what is live."""
        return None

    @property
    def bits_per_tuple(self) -> float | None:
        """Size of the compact form; None: there is none."""
        return None

    @property
    def groups(self) -> int | None:
        """Number of groups that have rows, including those that HAVING excludes; None: rows are not grouped."""
        return None

    @property
    def sums_out_of_range(self) -> int | None:
        """Number of sums that are null because they exceed their type's range; None: rows are not grouped."""
        return None

    @property
    def texts_too_long(self) -> int | None:
        """Number of lists of values that are null because they are too long; None: rows are not grouped."""
        return None
