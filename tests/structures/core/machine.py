"""The store of blocks against a dictionary: nothing that somebody can see is written over, and nothing is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from structures.core.blocks import ALL_BLOCKS, Blocks, WriteState, allocate, drop
from structures.core.check import check_blocks, retired_blocks
from structures.core.control import VERSION
from structures.core.kernel import kernel

SIZES = 3, 7, 40


@kernel("int64(int64[::1], int64[::1], int64)")
def make(M: Any, C: Any, cls: int) -> int:
    return allocate(M, C, cls)


@kernel("void(int64[::1], WriteState, int64, int64)")
def lose(M: Any, writing: WriteState, o: int, cls: int) -> None:
    drop(M, writing, o, cls)


class BlocksMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.store = Blocks(SIZES, 0, 1 << 17)
        self.version = self.oldest = 1
        self.store.C[VERSION] = 1
        self.live: dict[int, int] = {}  # block, class
        self.lives: dict[int, tuple[int, int]] = {}  # of retired blocks: born, retired
        self.marks: dict[int, tuple[int, int]] = {}  # of all: what their last word says, class
        self.pins: dict[int, int] = {}
        self.made = 0
        self.published: dict[int, int] = {}  # `live` when the version began

    @rule(cls=st.integers(0, 2), count=st.integers(1, 200))
    def make(self, cls: int, count: int) -> None:
        for _ in range(count):
            o = int(make(self.store.M, self.store.C, cls))
            assert o not in self.live and o not in self.lives, f"block {o} is in use"
            assert self.store.M[o] == self.version
            self.made += 1
            self.live[o], self.marks[o] = cls, (self.made, cls)
            self.store.M[o + SIZES[cls] - 1] = self.made

    @precondition(lambda self: self.live)
    @rule(data=st.data(), count=st.integers(1, 300), stretch=st.booleans())
    def lose(self, data: st.DataObject, count: int, stretch: bool) -> None:
        """A stretch of blocks, or some here and there."""
        blocks = sorted(self.live)
        at = data.draw(st.integers(0, len(blocks) - 1))
        for o in blocks[at : at + count] if stretch else blocks[at % 7 :: 7][:count]:
            born = int(self.store.M[o])
            lose(self.store.M, self.store.writing, o, self.live[o])
            del self.live[o]
            if born == self.version:
                del self.marks[o]
            else:
                self.lives[o] = born, self.version

    @rule()
    def publish(self) -> None:
        self.version += 1
        self.store.C[VERSION] = self.version
        self.published = dict(self.live)

    @precondition(lambda self: self.oldest < self.version)
    @rule()
    def undo(self) -> None:
        """What the version made is free, what it retired is in use again."""
        self.store.undo()
        for o in self.live.keys() - self.published.keys():
            del self.marks[o]
        self.live = dict(self.published)
        self.lives = {o: life for o, life in self.lives.items() if life[1] < self.version}

    @rule(back=st.integers(0, 3))
    def pin(self, back: int) -> None:
        version = max(self.oldest, self.version - 1 - back)
        if version < self.version:
            self.pins[version] = self.pins.get(version, 0) + 1

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(sorted(self.pins)))
        self.pins[version] -= 1
        if not self.pins[version]:
            del self.pins[version]

    @rule(behind=st.integers(0, 2), most=st.sampled_from([1, 20, ALL_BLOCKS]))
    def reclaim(self, behind: int, most: int) -> None:
        """All, or a piece: what goes then is not said, but it is nothing that somebody needs."""
        self.oldest = max(self.oldest, self.version - behind)
        pins = sorted(self.pins)
        more = self.store.reclaim(self.oldest, np.array(pins, np.int64), most)
        waiting, deleted = {o for o, _ in retired_blocks(self.store)}, 0
        for o, (born, retired) in list(self.lives.items()):
            if retired <= self.oldest and not any(born <= pin < retired for pin in pins) and not (more and o in waiting):
                del self.lives[o], self.marks[o]
                deleted += 1
        assert waiting == set(self.lives)
        assert deleted <= most if more else deleted < most

    @invariant()
    def whole(self) -> None:
        if not hasattr(self, "store"):
            return
        check_blocks(self.store, self.live)
        for o, (mark, cls) in self.marks.items():
            assert self.store.M[o + SIZES[cls] - 1] == mark, f"block {o} was written over"
