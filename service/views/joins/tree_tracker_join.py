"""An acyclic natural join by TreeTracker over the service's shared indexes; `reading_join` has what such joins share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from service.planning.plans.plan import Path
from service.tables.indexes import Applied, SharedIndexes
from service.tables.sides import Side
from service.views.joins.reading_join import ReadingJoin
from structures.tree_tracker.tracker import Deltas, Member, TreeTracker


class TreeTrackerJoin(ReadingJoin[TreeTracker]):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(
        self, sides: Sequence[Side], paths: Sequence[Sequence[Path]], edges: Sequence[tuple[int, int]], never: bool, indexes: SharedIndexes,
        own: bool,
    ) -> None:  # fmt: skip
        """`paths`: of each alias, what its indexes go by; `edges`: of the join tree."""
        super().__init__(sides, never, indexes, own)
        self._paths, self._edges = paths, edges

    def _read(self, version: int, progress: Callable[[float], None]) -> TreeTracker:
        atoms = []
        for side, paths in zip(self.sides, self._paths, strict=True):
            taken = [self._take(version, side, path) for path in paths]
            self._of_alias.append(taken[0])
            atoms.append(tuple(Member(one.number, path.variables) for one, path in zip(taken, paths, strict=True)))
            progress(len(atoms) / len(self.sides))
        return TreeTracker(self.indexes.structure, atoms, self._edges)

    def _follow_in_order(self, reader: TreeTracker, applied: Applied, limit: int | None, quiet: npt.NDArray[np.bool_]) -> Deltas:
        return reader.follow_in_order(applied.run, applied.order.offsets, limit, quiet)

    @property
    def bytes(self) -> int:
        """What the readings that are under way know to lead nowhere, and of an index that several views or aliases have its share."""
        return super().bytes + (self._reader.no_good_bytes if self._reader is not None else 0)
