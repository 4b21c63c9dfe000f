"""The common parts of the structures' state machines: pins, partial readings of pinned versions, unpins; batches of entries."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import zip_longest
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from structures.core import entry_tree
from structures.core.entries import DELETE, ENTER, INSERT, LEAVE
from structures.core.entry_tree import CHUNK, EntryTree
from tests.naive.interval_join import entries
from tests.structures.batches import apply_batch, apply_singly

Row = tuple[int, ...]


def drive(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    """Run a state machine against its twin: `examples` of at most so many steps."""
    checks = settings(max_examples=examples, stateful_step_count=steps, suppress_health_check=list(HealthCheck), print_blob=True)
    run_state_machine_as_test(machine, settings=checks)


def transposed(slots: np.ndarray) -> list[Row]:
    """Return the rows of a chunk of slots, with one alias per line."""
    return list(zip(*slots.tolist(), strict=True))


def read_all(cursor: Any, limit: int = 1000) -> list[Row]:
    rows: list[Row] = []
    while not cursor.done:
        rows += transposed(cursor.fill(limit))
    return rows


class Reading:
    """A cursor that is read in pieces, and what it must have read in the end: a list in its order, a set in any order, with at most this
    number of dead ends."""

    def __init__(self, cursor: Any, wanted: Collection[Row], version: int, dead_ends: int | None = None) -> None:
        self.cursor, self.wanted, self.version, self.dead_ends = cursor, wanted, version, dead_ends
        self.rows: list[Row] = []

    def validate(self) -> None:
        """Check that all rows have been read, each once."""
        if isinstance(self.wanted, list):
            assert self.rows == self.wanted
        else:
            assert len(self.rows) == len(set(self.rows)), "a row twice"
            assert set(self.rows) == self.wanted
        assert self.dead_ends is None or self.cursor.dead_ends <= self.dead_ends


class ReadingMachine(RuleBasedStateMachine):
    """Pins versions and reads them: `pinned` returns what a pin keeps, `open` of each machine starts readings."""

    def __init__(self) -> None:
        super().__init__()
        self.version, self.slot = 1, 0
        self.pins: dict[int, Any] = {}
        self.readings: list[Reading] = []

    def pinned(self) -> Any:
        """Return what to keep of the newest version."""
        raise NotImplementedError

    def rows_of(self, *chunk: np.ndarray) -> list[Row]:
        """Return the rows that a cursor or a delta returns at once: one array of slots, unless a machine overrides this."""
        return transposed(*chunk)

    def pin_array(self) -> np.ndarray:
        return np.array(sorted(self.pins), np.int64)

    def some_pin(self, data: st.DataObject) -> int:
        return data.draw(st.sampled_from(sorted(self.pins)))

    @rule()
    def pin(self) -> None:
        self.pins[self.version] = self.pinned()

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        version = self.some_pin(data)
        self.readings = [one for one in self.readings if one.version != version]
        del self.pins[version]

    @precondition(lambda self: self.readings)
    @rule(data=st.data(), limit=st.sampled_from([1, 2, 7, 1000]), fork=st.booleans())
    def read(self, data: st.DataObject, limit: int, fork: bool) -> None:
        i = data.draw(st.integers(0, len(self.readings) - 1))
        if fork:
            self.readings[i].cursor = self.readings[i].cursor.clone()
        if self.ends(self.readings[i], limit):
            self.readings.pop(i)

    def ends(self, reading: Reading, limit: int) -> bool:
        """Read up to `limit` rows and check them; return whether that was the end."""
        chunk = reading.cursor.fill(limit)
        rows = self.rows_of(*chunk) if isinstance(chunk, tuple) else self.rows_of(chunk)
        assert len(rows) <= limit
        reading.rows += rows
        if rows or not reading.cursor.done:
            return False
        reading.validate()
        return True

    def teardown(self) -> None:
        for reading in self.readings:
            while not self.ends(reading, 50):
                pass


class BatchMachine(ReadingMachine):
    """For a structure over entries that each have a slot: it is loaded, changed by batches and by runs, and each delta is compared with the
    twin's."""

    SPARE = 0  # rows that the writing kernel keeps free

    def __init__(self) -> None:
        super().__init__()
        entry_tree.CHUNK = self.SPARE + 7  # for the next tree, so that deltas are returned in pieces

    def load(self, tree: EntryTree[Any], new: Iterable[Any]) -> None:
        entry_tree.CHUNK = CHUNK
        self.tree, self.now = tree, {one.slot: one for one in new}
        self.root = tree.bulk_load(1, self.packed(self.now.values()))
        tree.check(self.root)

    def packed(self, some: Iterable[Any]) -> Any:
        """Return the entries as the structure takes them: intervals, unless a machine overrides this."""
        return entries(some)

    def wanted(self, some: Iterable[Any]) -> set[Row]:
        """Return the rows of these entries, by the twin."""
        raise NotImplementedError

    def pinned(self) -> Any:
        return self.root, dict(self.now)

    def doomed(self, data: st.DataObject, least: int = 0, more: int = 12) -> list[int]:
        """Return slots of some entries, `least` to `least + more` if there are enough."""
        slots = st.sampled_from(sorted(self.now))
        return data.draw(st.lists(slots, unique=True, min_size=least, max_size=least + more)) if self.now else []

    @precondition(lambda self: self.now)
    @rule(data=st.data(), others=st.booleans())
    def empty(self, data: st.DataObject, others: bool) -> None:
        """Delete all entries of a set, with or without some of the others."""
        deleted = data.draw(st.sampled_from(sorted({one.set for one in self.now.values()})))
        doomed = [slot for slot, one in self.now.items() if one.set == deleted]
        more = [slot for slot in self.doomed(data) if slot not in doomed] if others else []
        self.change(doomed + more, [])

    def change(self, doomed: Iterable[int], inserts: list[Any]) -> None:
        """Apply a version; check the delta, what can be reused, and the invariants."""
        self.version += 1
        if self.version % 4 == 2:
            self._change_in_order(doomed, inserts)
        else:
            self._change_at_once(doomed, inserts)
        self.tree.reclaim(self.version, self.pin_array())
        self.tree.check(self.root, tuple(root for root, _ in self.pins.values()))
        assert self.tree.is_empty(self.root) == (not self.wanted(self.now.values()))

    def _change_at_once(self, doomed: Iterable[int], inserts: list[Any]) -> None:
        before = self.wanted(self.now.values())
        deletes = [self.now.pop(slot) for slot in doomed]
        between = self.wanted(self.now.values())
        self.now.update({one.slot: one for one in inserts})
        after = self.wanted(self.now.values())
        got: dict[int, list[Row]] = {-1: [], 1: []}

        def sink(sign: int, slots: np.ndarray) -> bool:
            got[sign] += self.rows_of(slots)
            return True

        if self.version % 3 == 0:  # without deltas, first there and back
            apply_batch(self.tree, self.version, self.packed(deletes), self.packed([]), None)
            apply_batch(self.tree, self.version, self.packed([]), self.packed(deletes), None)
        self.root = apply_batch(self.tree, self.version, self.packed(deletes), self.packed(inserts), sink)
        assert sorted(got[-1]) == sorted(before - between)
        assert sorted(got[1]) == sorted(after - between)

    def _change_in_order(self, doomed: Iterable[int], inserts: list[Any]) -> None:
        """Apply the first few changes one after another, alternating, where the slot of each insert is finally replaced by another; every
        other time, no delta is requested."""
        steps: list[tuple[int, Any, set[Row]]] = []  # sign, entry, delta

        def step(sign: int, one: Any) -> None:
            before = self.wanted(self.now.values())
            if sign in (DELETE, LEAVE):
                del self.now[one.slot]
            else:
                self.now[one.slot] = one
            steps.append((sign, one, before ^ self.wanted(self.now.values()) if sign in (DELETE, INSERT) else set()))

        for slot, one in zip_longest(list(doomed)[:3], inserts[:3]):
            if slot is not None:
                step(DELETE, self.now[slot])
            if one is not None:
                step(INSERT, one)
                self.slot += 1
                step(LEAVE, one)
                step(ENTER, one._replace(slot=self.slot))
        signs, limit = np.array([sign for sign, _, _ in steps], np.int8), None if self.version % 8 == 6 else 10
        found = apply_singly(self.tree, self.version, signs, self.packed(one for _, one, _ in steps), limit)
        self.root = self.tree.root
        for i, (_, _, delta) in enumerate(steps):
            wanted = [] if limit is None or len(delta) > limit else sorted(delta)
            assert sorted(self.rows_of(found[i]) if i in found else []) == wanted
