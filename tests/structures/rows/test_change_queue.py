"""The queue of changes against a list."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from structures.rows import change_queue
from structures.rows.change_queue import ChangeQueue


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(change_queue, "_BLOCK", 4)
    yield


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue, self.twin, self.begin = ChangeQueue(3), list[tuple[int, ...]](), 0
        self.kept = list[tuple[list[np.ndarray], list[tuple[int, ...]]]]()  # parts that were read, and what they held then

    @rule(olds=st.lists(st.integers(-1, 9), max_size=11), version=st.integers(0, 5))
    def append(self, olds: list[int], version: int) -> None:
        news = np.arange(len(olds), dtype=np.int32)
        self.queue.append(len(olds), version, np.array(olds, np.int32), news)
        self.twin += [(version, old, new) for new, old in enumerate(olds)]

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(0, len(self.twin)))
        self.queue.drop(end)
        self.begin = max(self.begin, end)

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(self.begin, len(self.twin)))
        end = data.draw(st.integers(first, len(self.twin)))
        self.kept.append((self.queue.parts(first, end), self.twin[first:end]))

    @invariant()
    def agrees(self) -> None:
        self.queue.check()
        assert (self.queue.begin, self.queue.end) == (self.begin, len(self.twin))
        for parts, wanted in self.kept:
            assert [tuple(record) for part in parts for record in part.T.tolist()] == wanted
        for block in self.queue._blocks:
            assert block.shape == (3, 4)


def test_agrees_with_a_list() -> None:
    run_state_machine_as_test(Machine)


def test_nothing_moves() -> None:
    queue = ChangeQueue(1)
    queue.append(6, 1)
    blocks = list(queue._blocks)
    queue.append(9, np.arange(9))
    assert all(now is before for now, before in zip(queue._blocks, blocks, strict=False))
    queue.drop(7)
    assert queue._blocks[0] is blocks[1] and [part.tolist() for part in queue.parts(7, 10)] == [[[1]], [[2, 3]]]
