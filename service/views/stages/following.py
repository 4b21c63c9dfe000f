"""Follow few changed rows of one relation into groups by one kernel call (`structures.grouped`), where all columns read are numbers.
Computed ones, such as the beginning of a month, are computed before the call."""

from __future__ import annotations

import numpy as np

from service.tables.arrow import writable
from service.tables.inputs import Input
from service.tables.resolution import NO_SLOTS, Slots
from service.views.stages.table import GroupTable
from structures.aggregate.groups import Groups
from structures.grouped.following import MOST, FollowResult, GroupChanges, GroupedRows
from structures.rows.reading import Run


class GroupFollower:
    """Follows changes for one view. Used by the writer."""

    def __init__(self, input: Input, table: GroupTable, groups: Groups) -> None:
        """`table`: with places; its columns can be read in this way (`Columns.are_numbers`)."""
        columns, domain = table.columns, table.columns.domain
        assert domain is not None
        self._relation, self._table, self._domain = input.relation, table, domain
        self._columns = columns
        having = table.plain_conditions()
        self._succeeds = having is not None
        reads = columns.reads(input.relation.table, input.varying, having or [])
        self._rows = GroupedRows(*domain.counted, groups, table.table.store, table.succession, reads)

    def follow(self, version: int, run: Run) -> FollowResult | None:
        """The result has the groups' values only if the caller must evaluate HAVING. None: there are too many changes, or too many codes
        for what they may need. Raises MemoryError before anything is changed."""
        if len(run.old) > MOST:
            return None
        old, new = writable(run.old, np.int32), writable(run.new, np.int32)
        changes = GroupChanges(Run(run.offsets, old, new), self._columns.computed(old, new))
        stored = self._relation.table.store.stored

        def count(known: int) -> tuple[FollowResult | None, Slots]:
            if not self._rows.has_room(len(run.old)):
                return None, NO_SLOTS
            self._table.changed = version  # set before a group loses its place
            followed = self._rows.follow((known, version), stored, changes, self._succeeds)
            return followed, followed.dropped

        followed = self._domain.count_by(version, count)
        if followed is not None:
            self._table.table.succeeded(followed.lost, followed.new)
        return followed
