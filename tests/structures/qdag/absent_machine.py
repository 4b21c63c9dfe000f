"""A Hypothesis state machine that drives ANDs with NOT EXISTS groups beside a naive twin: batches in the two steps of a view, pins,
reads by bits, given values, unpins; `check()` after every batch."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from tests.naive.natural_join import Entry, entries
from tests.structures.machines import Reading, Row, read_all
from tests.structures.qdag.machine import CODES, POINTS, Relations, Shape, Trees, TreesMachine

# A relation stands in groups, or outside of them.
SHAPES = [
    Shape((2, 2), ((0, (0, 1)), (0, (1, 2)), (0, (2, 0))), (((1, (0, 2)),),)),
    Shape((2, 2, 2), ((0, (0, 1)), (1, (1, 2))), (((2, (0, 2)),),)),  # the paper's R(A, B), S(B, C), not T(A, C)
    Shape((3, 2, 1), ((0, (0, 1, 2)),), (((1, (2, 0)), (2, (1,))),)),
    Shape((2, 1, 2, 1), ((0, (0, 1)), (1, (1,))), (((2, (1, 0)), (3, (0,))), ((3, (1,)),))),
    Shape((2, 2, 3), ((0, (0, 1)), (1, (1, 2))), (((2, (0, 1, 2)),), ((2, (2, 1, 0)),))),
    Shape((1, 1), ((0, (0,)),), (((1, (0,)),),)),
    Shape((2, 2, 2), ((0, (0, 1)), (0, (2, 3)), (1, (1, 2))), (((2, (0, 3)), (2, (3, 1))),)),
]


class AbsentMachine(TreesMachine):
    @initialize(shape=st.sampled_from(SHAPES), points=st.lists(POINTS, max_size=30), least=st.sampled_from([1, 1, 40, 10**6]))
    def begin(self, shape: Shape, points: list[tuple[int, Row, int]], least: int) -> None:
        self.shape, self.of = shape, Trees(shape, least=least)
        self.grouped = {relation for group in shape.absent for relation, _ in group}
        loaded = self._new(points)
        for relation, given in enumerate(loaded):
            self.of.load(1, relation, given)
        self.now: Relations = tuple(map(frozenset, loaded))
        self.root = self.of.trees.roots
        self._read_all()

    @rule(points=st.lists(POINTS, max_size=10), data=st.data())
    def batch(self, points: list[tuple[int, Row, int]], data: st.DataObject) -> None:
        """What takes rows away: deletes, and in groups inserts; then the rest."""
        deleted = [data.draw(st.lists(st.sampled_from(sorted(one)), unique=True, max_size=8)) if one else [] for one in self.now]
        inserted_rows = self._new(points)
        for come_back in (False, True):
            self.version += 1
            before = self.now, self.root
            after, emitted = list(self.now), dict[int, list[Entry]]()
            for relation, one in enumerate(self.now):
                inserted = come_back != (relation in self.grouped)
                changed = (inserted_rows if inserted else deleted)[relation]
                self.of.change(self.version, relation, changed, inserted)
                after[relation] = one.union(changed) if inserted else one.difference(changed)
                emitted[relation] = changed
                if relation in self.grouped:
                    others = {entry[:-1] for entry in (one if inserted else after[relation])}
                    emitted[relation] = [(*codes, 0) for codes in {entry[:-1] for entry in changed} - others]
            self.now, self.root = tuple(after), self.of.trees.roots
            self.of.trees.check(self.root, (before[1], *(root for root, _ in self.pins.values())))
            self._delta(emitted, before, (self.now, self.root), come_back)
        self.of.trees.reclaim(self.version, self.pin_array())
        self.of.trees.check(self.root, tuple(root for root, _ in self.pins.values()))
        self._read_all()

    def _delta(self, emitted: dict[int, list[Entry]], before: tuple, after: tuple, inserted_rows: bool) -> None:  # type: ignore[type-arg]
        """Each changed row of the view falls to exactly one atom."""
        found: list[Row] = []
        atoms = self.shape.all_atoms
        for position, (relation, _) in enumerate(atoms):
            versions = [(after if other < position else before)[1] for other in range(len(atoms))]
            found += read_all(self.of.join.partners(versions, position, entries(emitted[relation], self.shape.arities[relation])), 4)
        old, new = self._wanted(before[0]), self._wanted(after[0])
        assert len(found) == len(set(found)), "a row of the delta twice"
        assert set(found) == (new - old if inserted_rows else old - new)
        assert not (old - new if inserted_rows else new - old), "a step that takes rows away brings some, or the other way round"

    def _wanted(self, now: Relations, codes: list[int] | None = None) -> set[Row]:
        return self.of.wanted([now] * len(self.shape.all_atoms), codes or ())

    def _read_all(self) -> None:
        rows = read_all(self.of.join.rows([self.root] * len(self.shape.all_atoms)), 3)
        assert len(rows) == len(set(rows)), "a row twice"
        assert set(rows) == self._wanted(self.now)

    def pinned(self) -> tuple:  # type: ignore[type-arg]
        return self.root, self.now

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), codes=st.lists(CODES, min_size=4, max_size=4), bound=st.booleans())
    def open(self, data: st.DataObject, codes: list[int], bound: bool) -> None:
        version = self.some_pin(data)
        roots, then = self.pins[version]
        given = None
        if bound:
            _, own = data.draw(st.sampled_from(self.shape.all_atoms))
            given = [code if v in own else -1 for v, code in enumerate(codes[: self.shape.dimension])]
        cursor = self.of.join.rows([roots] * len(self.shape.all_atoms), given)
        self.readings.append(Reading(cursor, self._wanted(then, given), version))
