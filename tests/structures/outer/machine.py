"""A Hypothesis state machine that drives a `PairCounts` beside its naive twin: runs of one version and of several, rows that move, rows
that can have no partner, pairs that are told in pieces or not at all, rows of which not all partners are counted, readings of pinned
versions; `check()` after each step."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from structures.core.cursor import Cursor
from structures.core.entries import Entries
from structures.core.entry_tree import EntryRoot
from structures.outer.counts import SILENT, Flips, OwnRows, PairCounts
from tests.naive import outer
from tests.naive.interval_join import Interval, entries
from tests.structures.event_tree.machine import SHAPES, SidesMachine

MOVE, DELETE, INSERT = range(3)  # in the order of a version
LEAST = 2
Change = tuple[int, int, int, Interval, int]  # the version's number, the kind, the side (0: rows), as it is then, its former slot


class CountsMachine(SidesMachine):
    def __init__(self) -> None:
        super().__init__()
        self.inputs: outer.Inputs = ({}, {})

    @initialize(shapes=st.lists(SHAPES, max_size=40))
    def begin(self, shapes: list[tuple[bool, int, int, int]]) -> None:
        self.counts = PairCounts(LEAST, 1 << 20)
        for is_row, one in self.new(shapes):
            self.inputs[1 - is_row][one.slot] = one
        self.counts.load(1, *self.both())
        self.validate()

    def both(self) -> tuple[Entries, Entries]:
        return entries(self.inputs[0].values()), entries(self.inputs[1].values())

    def validate(self) -> None:
        self.counts.check(*self.both(), others=tuple(root for root, _ in self.pins.values()))
        assert self.counts.count(self.counts.root) == len(outer.alone(*self.inputs))

    def pinned(self) -> tuple[EntryRoot, dict[int, Interval]]:
        return self.counts.root, {slot: self.inputs[0][slot] for slot in outer.alone(*self.inputs)}

    # --- changes

    def drawn(self, data: st.DataObject, shapes: list[tuple[bool, int, int, int]], versions: int) -> list[Change]:
        """Each entry is changed once, in any of the versions."""
        some = [(input, slot) for input in range(2) for slot in self.inputs[input]]
        doomed = data.draw(st.lists(st.sampled_from(some), unique=True, max_size=10)) if some else []
        found: list[Change] = []
        at = st.integers(0, versions - 1)
        for input, slot in doomed:
            one, moves = self.inputs[input][slot], data.draw(st.booleans())
            kind, now, former = (MOVE, one._replace(slot=slot + 1000), slot) if moves else (DELETE, one, -1)
            found.append((data.draw(at), kind, input, now, former))
        found += [(data.draw(at), INSERT, 1 - is_row, one, -1) for is_row, one in self.new(shapes)]
        return sorted(found, key=lambda change: change[:2])

    def own(self, changes: list[Change], emitted: set[int]) -> OwnRows:
        """Those of rows; `emitted`: new slots of rows that move and are told all the same."""
        mine = {kind: [change for change in changes if change[1:3] == (kind, 0)] for kind in range(3)}
        at = {kind: np.array([change[0] for change in some], np.int64) for kind, some in mine.items()}
        now = {kind: np.array([change[3].slot for change in some], np.int32) for kind, some in mine.items()}
        former = np.array([change[4] for change in mine[MOVE]], np.int32)
        is_emitted = np.array([change[3].slot in emitted for change in mine[MOVE]], np.uint8)
        return OwnRows(at[DELETE], now[DELETE], at[MOVE], former, now[MOVE], is_emitted, at[INSERT], now[INSERT])

    @rule(shapes=st.lists(SHAPES, max_size=12), data=st.data(), versions=st.sampled_from((1, 1, 2, 5)), piece=st.sampled_from((1, 3, 1000)))
    def run(self, shapes: list[tuple[bool, int, int, int]], data: st.DataObject, versions: int, piece: int) -> None:
        """What is told of each version are the rows that are alone after it and were not before, and the other way round. Of guessed rows
        that is known of a single version only."""
        versions = 1 if self.counts.guessed(self.both()[0]).any() else versions
        changes = self.drawn(data, shapes, versions)
        emitted = {change[3].slot for change in changes if change[1] == MOVE and data.draw(st.booleans())}
        known, wanted, pairs = {**self.inputs[0]}, [], list[tuple[int, bool, int]]()
        for version, some in groupby(changes, key=lambda change: change[0]):
            before, moved = outer.alone(*self.inputs), dict[int, int]()
            for _, kind, input, one, former in some:
                if kind == MOVE:
                    del self.inputs[input][former]
                    if input == 0:
                        moved[former] = one.slot
                elif kind == DELETE:
                    pairs += [(version, False, slot) for slot in outer.rows_emitted(self.inputs, input, one)]
                    del self.inputs[input][one.slot]
                if kind == INSERT:
                    pairs += [(version, True, slot) for slot in outer.rows_emitted(self.inputs, input, one)]
                if kind != DELETE:
                    self.inputs[input][one.slot] = one
            known |= self.inputs[0]
            after = outer.alone(*self.inputs)
            quiet = {former: slot for former, slot in moved.items() if slot not in emitted}
            before = {quiet.get(slot, slot) for slot in before}
            wanted += [(version, ~slot) for slot in before - after] + [(version, slot) for slot in after - before]
        self.counts.begin(self.own(changes, emitted))
        for first in range(0, len(pairs), piece):
            at, is_inserted, slots = (np.array(column) for column in zip(*pairs[first : first + piece], strict=True))
            self.counts.take(at, is_inserted, slots.astype(np.int32))
        self.conclude(wanted, known)

    def conclude(self, wanted: list[tuple[int, int]], known: dict[int, Interval]) -> None:
        """End a run: what is told besides those that a version tells both ways, and the list."""
        flips = self.counts.end()
        for slot in self.counts.few.tolist():
            partners = len(outer.met(self.inputs[0][slot], self.inputs[1]))
            guessed = slot % 2 == 0 and partners > LEAST
            if self.counts.recount(slot, partners - guessed, not guessed):
                flips = Flips(np.append(flips.at, 0), np.append(flips.slots, np.int32(slot)))
        found = [(at, slot) for at, slot in zip(flips.at.tolist(), flips.slots.tolist(), strict=True) if at != SILENT]
        left = [(at, slot) for at, slot in found if found.count((at, slot)) > found.count((at, ~slot))]
        assert sorted(set(left)) == sorted(wanted), (found, wanted)
        inserted = flips.slots >= 0
        slots = np.where(inserted, flips.slots, ~flips.slots)
        self.version += 1
        self.counts.require(len(self.inputs[0]))
        self.relist(entries(known[slot] for slot in slots.tolist()), inserted)
        self.counts.reclaim(self.version, self.pin_array(), 1 << 40)
        self.validate()

    @rule(shape=SHAPES, data=st.data())
    def untold(self, shape: tuple[bool, int, int, int], data: st.DataObject) -> None:
        """A row comes whose pairs are not told."""
        ((_, one),) = self.new([(True, *shape[1:])])
        self.inputs[0][one.slot] = one
        partners = len(outer.met(one, self.inputs[1]))
        counted = data.draw(st.integers(LEAST, partners)) if partners >= LEAST else partners
        self.counts.begin(self.own([(0, INSERT, 0, one, -1)], set()))
        self.counts.overrule(one.slot, counted, partners < LEAST or (counted == partners and data.draw(st.booleans())))
        self.conclude([] if partners else [(0, one.slot)], self.inputs[0])

    @rule()
    def anew(self) -> None:
        """All partners go, of which nothing is told."""
        self.inputs[1].clear()
        self.counts.begin(self.own([], set()))
        self.conclude_anew()

    def conclude_anew(self) -> None:
        self.counts.end()
        rows, partners = self.both()
        alone = self.counts.replace(rows, partners)
        flipped = np.flatnonzero(alone != self.counts.holds(self.counts.root, rows))
        self.version += 1
        self.relist(rows.take(flipped), alone[flipped])
        self.validate()

    def relist(self, rows: Entries, inserted: np.ndarray) -> None:
        try:
            self.counts.relist(self.version, rows, inserted)
        except KeyError as missing:  # all that goes is listed
            raise AssertionError(str(missing)) from missing

    # --- reading

    def listed(self, root: EntryRoot, key: int | None, window: tuple[int, int] | None) -> Cursor:
        return self.counts.rows(root, key, window)
