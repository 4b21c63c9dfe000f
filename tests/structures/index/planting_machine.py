"""What the machines of structures with trees of their own share: such a structure comes to be, step by step, while the indexes change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from structures.index import planting
from structures.index.indexes import OrderedIndexes, Run
from structures.index.planting import IndexLoader
from tests.structures.machines import ReadingMachine


class Growing:
    """A view whose tree is not there yet, and the version that is held for it."""

    def __init__(self, view: Any, version: int) -> None:
        self.view, self.held = view, version
        self.tree.hold()

    @property
    def tree(self) -> IndexLoader:
        tree: IndexLoader = self.view.tree
        return tree


class PlantingMachine(ReadingMachine):
    """A machine tells `note` what it does to the indexes, makes `another` view, not loaded, and looks at all of `views` in `_settle`."""

    indexes: OrderedIndexes
    views: list[Any]
    _settle: Callable[[], None]

    def __init__(self) -> None:
        super().__init__()
        self.growing: list[Growing] = []

    def another(self, view: Any) -> Any:
        """A view of the same atoms; its tree is not loaded."""
        raise NotImplementedError

    def pin_array(self) -> np.ndarray:
        return np.array(sorted({*self.pins, *(one.held for one in self.growing)}), np.int64)

    def note(self, run: Run) -> None:
        """What was done to indexes."""
        for one in self.growing:
            for atom, first in enumerate(one.tree.first):
                one.tree.note(atom, run.entries.take(np.flatnonzero(run.indexes == one.tree.members[first].index)))

    @property
    def planted(self) -> list[Any]:
        return [view for view in self.views if isinstance(view.tree, IndexLoader)]

    @property
    def unlinked(self) -> list[tuple[int, int]]:
        """The arity and the root of each part of trees that are being written: a level, and what of the one before is not below it yet."""
        found = []
        for growth in filter(None, (one.tree._growth for one in self.growing)):
            below = [] if growth.below is None else growth.below[growth.made * growth.children :].tolist()
            found += [(self.indexes.arity(growth.index), o) for o in (*growth.level[: growth.made].tolist(), *below)]
        return found

    @precondition(lambda self: self.planted and len(self.growing) < 2 and len(self.views) < 5)
    @rule(data=st.data())
    def plant(self, data: st.DataObject) -> None:
        self.growing.append(Growing(self.another(data.draw(st.sampled_from(self.planted))), self.version))

    @precondition(lambda self: self.growing)
    @rule(hold=st.booleans())
    def gather(self, hold: bool) -> None:
        one = self.growing[0]
        if hold:
            one.held = self.version
            one.tree.hold()
        one.tree.gather()

    @precondition(lambda self: self.growing)
    @rule(piece=st.integers(1, 4), planted=st.sampled_from([1, 8, planting.PLANTED]), rounds=st.sampled_from([1, 2, 20]))
    def advance(self, piece: int, planted: int, rounds: int) -> None:
        one = self.growing.pop(0)
        self.indexes.begin(self.version)
        with patch.object(planting, "PIECE", piece), patch.object(planting, "PLANTED", planted):
            while not (done := one.tree.advance()):
                one.held = self.version
                one.tree.hold()
                rounds -= 1
                if not rounds:
                    break
                one.tree.gather()
        (self.views if done else self.growing).append(one.view if done else one)
        self._settle()
