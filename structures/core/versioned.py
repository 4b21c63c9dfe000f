"""The base of the classes over a store of blocks."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from structures.core.blocks import ALL_BLOCKS, Blocks

Store = TypeVar("Store", bound=Blocks)


class VersionedStructure(Generic[Store]):
    """A structure whose blocks lie in `arena`. One thread writes; any number read roots of pinned versions meanwhile."""

    arena: Store

    def reclaim(self, oldest: int, pins: np.ndarray, most: int = ALL_BLOCKS) -> bool:
        """Free blocks that no version >= `oldest` and no pin (ascending int64) can see, at most about `most`. Returns whether there may be
        more."""
        return self.arena.reclaim(oldest, pins, most)

    @property
    def live_bytes(self) -> int:
        """The bytes of the newest version's blocks."""
        return self.arena.live_bytes

    @property
    def retired_bytes(self) -> int:
        """The bytes of blocks that only older versions see."""
        return self.arena.retired_bytes
