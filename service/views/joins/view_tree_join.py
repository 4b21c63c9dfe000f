"""A hierarchical natural join by a view tree over the service's shared indexes; `reading_join` has what such joins share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from service.planning.plans.plan import Path
from service.tables.indexes import Applied, SharedIndexes
from service.tables.sides import Side
from service.views.joins.reading_join import ReadingJoin
from structures.view_tree.tree import Atom, Deltas, ViewTree


class ViewTreeJoin(ReadingJoin[ViewTree]):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(self, sides: Sequence[Side], paths: Sequence[Path], never: bool, indexes: SharedIndexes, own: bool) -> None:
        super().__init__(sides, never, indexes, own)
        self._paths = paths

    @property
    def flips(self) -> int:
        """Prefixes that became live, or died, in all changes so far."""
        return self._reader.flipped if self._reader is not None else 0

    def _read(self, version: int, progress: Callable[[float], None]) -> ViewTree:
        """Cost: O(n) for the tree."""
        for done, (side, path) in enumerate(zip(self.sides, self._paths, strict=True), 1):
            self._of_alias.append(self._take(version, side, path))
            progress(done / (len(self.sides) + 1))
        atoms = [Atom(one.number, path.variables) for one, path in zip(self._taken, self._paths, strict=True)]
        return self.indexes.plant(self, version, lambda indexes: ViewTree(indexes, atoms))

    def _follow_in_order(self, reader: ViewTree, applied: Applied, limit: int | None, quiet: npt.NDArray[np.bool_]) -> Deltas:
        return reader.follow_in_order(applied.run, limit, quiet)

    @property
    def bytes(self) -> int:
        """Live prefixes, and of an index that several views or aliases have its share."""
        return super().bytes + (self._reader.live_bytes if self._reader is not None else 0)
