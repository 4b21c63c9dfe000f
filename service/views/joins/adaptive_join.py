"""Natural joins by the adaptive algorithms, over the service's shared indexes; `reading_join` has what such joins share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from service.planning.plans.plan import Path
from service.tables.indexes import Applied, SharedIndexes
from service.tables.sides import Side
from service.views.joins.reading_join import ReadingJoin
from structures.adaptive.bow_tie import Atom, BowTie, Deltas, Member
from structures.adaptive.intersect import Intersect

R = TypeVar("R", Intersect, BowTie)


class AdaptiveJoin(ReadingJoin[R]):
    """See the module's head; what the methods do is said in `protocol`."""

    def __init__(
        self, sides: Sequence[Side], paths: Sequence[Sequence[Path]], never: bool, indexes: SharedIndexes, own: bool
    ) -> None:  # fmt: skip
        """`paths`: of each alias, what its indexes go by."""
        super().__init__(sides, never, indexes, own)
        self._paths = paths

    def _read(self, version: int, progress: Callable[[float], None]) -> R:
        atoms = []
        for side, paths in zip(self.sides, self._paths, strict=True):
            taken = [self._take(version, side, path) for path in paths]
            self._of_alias.append(taken[0])
            atoms.append(tuple(Member(one.number, path.variables) for one, path in zip(taken, paths, strict=True)))
            progress(len(atoms) / (len(self.sides) + 1))
        return self._make(version, atoms)

    @abstractmethod
    def _make(self, version: int, atoms: Sequence[Atom]) -> R:
        """The structure over these."""

    def _follow_in_order(self, reader: R, applied: Applied, limit: int | None, quiet: npt.NDArray[np.bool_]) -> Deltas:
        return reader.follow_in_order(applied.run, applied.order.offsets, limit, quiet)


class IntersectJoin(AdaptiveJoin[Intersect]):
    """Of a chain of variable sets."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> Intersect:
        return Intersect(self.indexes.structure, atoms)


class BowTieJoin(AdaptiveJoin[BowTie]):
    """R(x), S(x, y), T(y), with a two-dimensional tree of its own."""

    def _make(self, version: int, atoms: Sequence[Atom]) -> BowTie:
        return self.indexes.plant(self, version, lambda indexes: BowTie(indexes, atoms))

    @property
    def bytes(self) -> int:
        """The tree, and of an index that several views or aliases have its share."""
        return super().bytes + (self._reader.level_bytes if self._reader is not None else 0)
