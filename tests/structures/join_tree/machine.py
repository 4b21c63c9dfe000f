"""A Hypothesis state machine that drives join trees of 2 to 5 aliases, some of them in parts, beside a naive twin: batches with and without
deltas, single changes in runs, rows that only move, pins, reads by bits, of rows, of codes, in windows, unpins; `check()` after every
batch."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from structures.core.cursor import GivenCursor
from structures.core.entries import DELETE, INSERT
from structures.join_tree.changes import MOVE
from structures.join_tree.cursors import Start
from structures.join_tree.layout import ABSENT, EXISTS, OPTIONAL, REQUIRED
from structures.join_tree.tree import JoinTree, Port, RowChanges
from tests.naive.tree_join import Rows, Seen, join
from tests.structures.batches import apply_to_join
from tests.structures.machines import Reading, ReadingMachine, Row, read_all, transposed

# Often alike, seldom without a code or with an empty span: most rows are to have partners. (code, left, length)
SEEN = st.tuples(st.sampled_from([0, 0, 0, 0, 1, 1, 2, -1]), st.integers(0, 6), st.sampled_from([3, 0, 1, 2, 4, 5, 6, -1]))
CHANGE = st.tuples(st.integers(0, 4), st.lists(SEEN, min_size=4, max_size=4), st.integers(1, 3))
CHANGES = st.lists(CHANGE, max_size=6)


class Shape(NamedTuple):
    ports: tuple[Port, ...]
    edges: tuple[tuple[int, int], ...]
    kinds: tuple[int, ...]

    @property
    def aliases(self) -> int:
        return len(self.edges) + 1

    def of(self, alias: int) -> list[int]:
        return [p for p, port in enumerate(self.ports) if port.alias == alias]


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """Trees of 2 to 5 aliases; an edge is by equality, by overlap, or both, and may use a port that its alias has already. The last aliases
    are those of parts that no row has."""
    ports: list[Port] = []
    edges, kinds, core, hidden = [], [], [0], list[int]()
    for far in range(1, draw(st.integers(2, 5))):
        kind = draw(st.sampled_from([REQUIRED, REQUIRED, REQUIRED, OPTIONAL, OPTIONAL, EXISTS, ABSENT, ABSENT]))
        if kind in (EXISTS, ABSENT) or hidden:
            kind = draw(st.sampled_from([EXISTS, ABSENT])) if kind in (REQUIRED, OPTIONAL) and draw(st.booleans()) else kind
            kind = kind if kind in (EXISTS, ABSENT) else REQUIRED
            near = draw(st.sampled_from(hidden if kind == REQUIRED else core))
            hidden.append(far)
        else:
            near = draw(st.integers(0, far - 1))
            core += [far] if kind == REQUIRED and near in core else []
        kinds.append(kind)
        keyed, spanned = draw(st.sampled_from([(True, False), (True, False), (False, True), (True, True)]))
        shared = [p for p, port in enumerate(ports) if port.alias == near and port.spanned == spanned and (port.domain >= 0) == keyed]
        if shared and draw(st.booleans()):
            a = shared[0]
        else:
            a = len(ports)
            ports.append(Port(near, far if keyed else -1, spanned))
        ports.append(Port(far, ports[a].domain, spanned))
        edges.append((a, len(ports) - 1))
    for u in range(len(edges) + 1):  # a port that sees all rows
        asked = {b for _, b in edges} | {a for (a, _), kind in zip(edges, kinds, strict=True) if kind in (REQUIRED, EXISTS)}
        if not any(ports[p].alias == u for p in asked):
            ports.append(Port(u, -1, False))
    return Shape(tuple(ports), tuple(edges), tuple(kinds))


class JoinMachine(ReadingMachine):
    @initialize(shape=shapes(), points=st.lists(CHANGE, min_size=4, max_size=10))
    def begin(self, shape: Shape, points: list[tuple[int, list[Seen], int]]) -> None:
        self.shape = shape
        self.tree = JoinTree(shape.ports, shape.edges, 1 << 22, 1 << 12, shape.kinds)
        self.version, self.slot = 0, 0
        self.now: list[dict[int, dict[int, Seen]]] = [{} for _ in range(shape.aliases)]
        self._batch([[] for _ in self.now], self._new(points), True)

    def _new(self, points: list[tuple[int, list[Seen], int]]) -> list[list[int]]:
        """The slots of new rows, described, of each alias; up to three alike."""
        made: list[list[int]] = [[] for _ in self.now]
        self.described: list[dict[int, dict[int, Seen]]] = [{} for _ in self.now]
        for alias, seen, copies in points:
            alias %= len(made)
            ports = self.shape.of(alias)
            for _ in range(copies):
                self.slot += 1
                made[alias].append(self.slot)
                self._describe(alias, self.slot, {p: self._seen(p, seen[i % 4]) for i, p in enumerate(ports)})
        return made

    def _seen(self, p: int, given: Seen) -> Seen:
        code, left, length = given
        port = self.shape.ports[p]
        return (code if port.domain >= 0 else 0, *((left, left + length) if port.spanned else (0, 0)))

    def _describe(self, alias: int, slot: int, row: dict[int, Seen]) -> None:
        one = np.array([slot], np.int32)
        codes = [np.array([seen[0]], np.int32) if self.shape.ports[p].domain >= 0 else None for p, seen in row.items()]
        ends = [(np.array([seen[1]]), np.array([seen[2]])) if self.shape.ports[p].spanned else None for p, seen in row.items()]
        self.tree.describe(alias, one, codes, ends)
        self.described[alias][slot] = row

    def _wanted(self) -> set[Row]:
        return join(self.now, self.shape.edges, [port.alias for port in self.shape.ports], self.shape.kinds, self.tree.shown)

    def _deleted(self, data: st.DataObject) -> list[list[int]]:
        return [data.draw(st.lists(st.sampled_from(sorted(of)), unique=True, max_size=6)) if of else [] for of in self.now]

    def _batch(self, deleted: list[list[int]], inserted: list[list[int]], asked: bool) -> None:
        self.version += 1
        for sign, of in ((False, deleted), (True, inserted)):
            for alias, slots in enumerate(of):
                self._change(alias, slots, sign, asked)
        self._validate()

    def _change(self, alias: int, slots: list[int], inserted: bool, asked: bool) -> None:
        emitted = Counter[Row]()

        def sink(sign: bool, rows: np.ndarray) -> bool:
            emitted.update(transposed(rows)) if sign else emitted.subtract(transposed(rows))
            return True

        before = self._wanted()
        if inserted and not asked:
            self.tree.load(self.version, alias, np.array(slots, np.int32))
        else:
            apply_to_join(self.tree, self.version, alias, np.array(slots, np.int32), inserted, sink if asked else None)
        for slot in slots:
            if inserted:
                self.now[alias][slot] = self.described[alias][slot]
            else:
                del self.now[alias][slot]
        if asked:
            after = self._wanted()
            wanted = dict.fromkeys(after - before, 1) | dict.fromkeys(before - after, -1)
            assert {row: count for row, count in emitted.items() if count} == wanted

    def _validate(self) -> None:
        after = self._wanted()
        self.tree.reclaim(self.version, self.pin_array())
        rows = [np.array(sorted(of), np.int32) for of in self.now]
        self.tree.check(rows, tuple(roots for roots, _, _ in self.pins.values()))
        roots = self.tree.roots
        found = read_all(self.tree.rows(roots, 0, self.tree.all_of(roots, self.tree.base[0])), 3)
        assert len(found) == len(set(found)) and set(found) == after
        assert self.tree.is_empty(roots) == (not after)

    @rule(points=CHANGES, data=st.data(), asked=st.booleans())
    def batch(self, points: list[tuple[int, list[Seen], int]], data: st.DataObject, asked: bool) -> None:
        deleted = self._deleted(data)
        self._batch(deleted, self._new(points), asked)

    @rule(points=CHANGES, data=st.data())
    def singles(self, points: list[tuple[int, list[Seen], int]], data: st.DataObject) -> None:
        """In a random order, each a version of the twin's own."""
        self.version += 1
        inserted = self._new(points)
        changes = [(DELETE, alias, slot) for alias, slots in enumerate(self._deleted(data)) for slot in slots]
        changes += [(INSERT, alias, slot) for alias, slots in enumerate(inserted) for slot in slots]
        changes = [one for one in data.draw(st.permutations(changes)) if self._able(one)]
        limit = data.draw(st.sampled_from([None, 2, 1000]))
        signs = np.array([sign for sign, _, _ in changes], np.int8)
        slots = np.array([slot for _, _, slot in changes], np.int32)
        room = self.tree._out
        self.tree._out = room[:, : data.draw(st.sampled_from([2, 7, 1000]))].copy()
        emitted: dict[int, list[np.ndarray]] = {at: [] for at in range(len(changes))}

        def sink(at: np.ndarray, rows: np.ndarray) -> int:
            for one in np.unique(at).tolist():
                emitted[one].append(rows[:, at == one])
            last = int(at[-1])
            return 0 if limit is None or sum(rows.shape[1] for rows in emitted[last]) <= limit else last + 1

        singles = RowChanges(signs, np.array([u for _, u, _ in changes], np.int64), slots, slots, np.zeros(len(signs), np.int64))
        self.tree.apply(self.version, singles, np.arange(len(signs)), None if limit is None else sink)
        self.tree._out = room
        for i, (sign, alias, slot) in enumerate(changes):
            before = self._wanted()
            if sign == DELETE:
                del self.now[alias][slot]
            else:
                self.now[alias][slot] = self.described[alias][slot]
            now = self._wanted()
            part = np.concatenate([np.empty((self.tree.shown, 0), np.int32), *emitted[i]], axis=1)
            found = transposed(part)
            assert [row in now for row in found] == self.tree.is_inserted(alias, sign == INSERT, part).tolist()
            assert len(found) == len(set(found)) and set(found) <= before ^ now
            assert limit is None or len(before ^ now) > limit or set(found) == before ^ now
        for alias, slots_ in enumerate(inserted):
            self.now[alias].update({slot: self.described[alias][slot] for slot in slots_ if slot not in self.now[alias]})
        self._validate()

    def _able(self, change: tuple[int, int, int]) -> bool:
        _, alias, slot = change
        return bool(self.tree.able(alias, np.array([slot], np.int32))[0])

    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        self.version += 1
        self.described = [{} for _ in self.now]
        for alias, slots in enumerate(self._deleted(data)):
            after = list(range(self.slot + 1, self.slot + 1 + len(slots)))
            self.slot += len(slots)
            for old, new in zip(slots, after, strict=True):
                self._describe(alias, new, self.now[alias].pop(old))
                self.now[alias][new] = self.described[alias][new]
            before, behind = np.array(slots, np.int32), np.array(after, np.int32)
            some = self.tree.able(alias, behind)
            n = int(some.sum())
            singles = RowChanges(np.full(n, MOVE, np.int8), np.full(n, alias), before[some], behind[some], np.zeros(n, np.int64))
            self.tree.apply(self.version, singles, np.zeros(n, np.int64), None)
        self._validate()

    def pinned(self) -> Any:
        now = [dict(of) for of in self.now]
        return self.tree.roots, self._wanted(), now

    @precondition(lambda self: self.pins)
    @rule(data=st.data(), how=st.sampled_from(["all", "rows", "code"]), windowed=st.booleans())
    def open(self, data: st.DataObject, how: str, windowed: bool) -> None:
        version = self.some_pin(data)
        roots, wanted, then = self.pins[version]
        alias = data.draw(st.integers(0, self.tree.shown - 1))
        port = data.draw(st.sampled_from(self.shape.of(alias)))
        wanted = {row for row in wanted if row[alias] >= 0}
        start: Start
        if how == "all":
            start = self.tree.all_of(roots, self.tree.base[alias])
        elif how == "code":
            code = data.draw(st.integers(0, 3))
            start = self.tree.of_code(roots, port, code)
            wanted = {row for row in wanted if self._has(then[alias][row[alias]][port], code)}
        else:
            slots = np.array(data.draw(st.lists(st.sampled_from(sorted(then[alias])), unique=True)) if then[alias] else [], np.int32)
            start = GivenCursor(slots[self.tree.holds(roots, alias, slots)].reshape(1, -1))
            wanted = {row for row in wanted if row[alias] in slots}
        bounds = np.empty((0, 2), np.int64)
        if windowed:
            lows = [data.draw(st.integers(-1, 9)) for _ in self.shape.ports]
            bounds = np.array([(low, low + 4) for low in lows], np.int64)
            wanted = {row for row in wanted if all(self._in_window(then, row, p, low) for p, low in enumerate(lows))}
        self.readings.append(Reading(self.tree.rows(roots, alias, start, bounds), wanted, version))

    @staticmethod
    def _has(seen: Seen, code: int) -> bool:
        return seen[0] == code and seen[1] <= seen[2]

    def _in_window(self, then: Rows, row: Row, p: int, low: int) -> bool:
        port = self.shape.ports[p]
        if port.alias >= self.tree.shown or row[port.alias] < 0:
            return True
        _, left, right = then[port.alias][row[port.alias]][p]
        return not port.spanned or (left <= low + 4 and low <= right)
