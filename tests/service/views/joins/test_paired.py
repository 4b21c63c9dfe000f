"""LEFT and FULL JOIN that count partners by the pairs of their inner join: runs of versions by brute force, and what is not told."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from livejoin.wire.batch import RowBlock
from livejoin.wire.schema import parse_relation
from service.tables.changes import Run, Runs, batch_run
from service.tables.indexes import SharedIndexes
from service.tables.masks import Mask
from service.tables.relations import Relation
from service.tables.resolution import Indices
from service.views import live_view
from service.views.deltas import Combination, Delta
from service.views.joins import paired
from service.views.joins.match_join import MatchedInputs, MatchJoin
from service.views.joins.paired import PairedJoin
from service.views.live_view import LiveView
from service.views.parse import parse_view
from structures.core import entry_tree
from structures.core.arena import B

NONE = np.empty(0, np.int32)
PIECE = B + 36  # rows of a delta that a tree tells at once
MEETS = "overlaps(a.span, b.span)"
DEFINITION = parse_relation(
    {
        "columns": [{"name": "id", "type": "int64"}, *({"name": name, "type": "int64", "nullable": True} for name in ("k", "s", "e"))],
        "key": ["id"],
        "intervals": {"span": {"start": "s", "end": "e"}},
    }
)
Row = tuple[int, int | None, int, int]  # id, k, s, e


class Kept:
    """A view over relations a and b, and what they have now by slot."""

    def __init__(self, kind: str, condition: str = MEETS, **more: Any) -> None:
        self.keyed, self.kind = condition != MEETS, kind
        self.ids: dict[str, dict[int, int]] = {"a": {}, "b": {}}  # by slot, of rows that have gone too
        self.relations = {name: Relation(at, name, DEFINITION) for at, name in enumerate("ab")}
        self.rows: dict[str, dict[int, Row]] = {"a": {}, "b": {}}
        sql = f"SELECT a.id AS i, b.id AS j FROM a {kind} JOIN b ON {condition}"
        view = parse_view("v", {"sql": sql, **more}, dict.fromkeys("ab", DEFINITION))
        self.view, self.version = LiveView("v", view, self.relations, SharedIndexes()), 1
        self.view.make_room()
        self.join.build(1, lambda part: None)
        self.view.state = "live"

    @property
    def join(self) -> MatchJoin:
        assert isinstance(self.view.join, MatchJoin)
        return self.view.join

    def changed(self, name: str, deleted: list[int], inserted: list[Row]) -> Run:
        """As a run of the next version, not applied. A row that comes replaces one of its key."""
        relation, mine = self.relations[name], self.rows[name]
        columns = [pa.array(column, pa.int64()) for column in zip(*inserted, strict=True)] or [pa.array([], pa.int64())] * 4
        by_key = {row[0]: slot for slot, row in mine.items()}
        previous = np.array([by_key.get(row[0], -1) for row in inserted], np.int32)
        deletes = np.concatenate((previous[previous >= 0], np.array(deleted, np.int32)))
        relation.table.delete(self.version + 1, deletes)
        block = RowBlock(pa.RecordBatch.from_arrays(columns, ["id", "k", "s", "e"]))
        new = relation.table.insert(self.version + 1, block) if inserted else NONE
        for slot in deletes.tolist():
            del mine[slot]
        mine.update(zip(new.tolist(), inserted, strict=True))
        self.ids[name].update((slot, row[0]) for slot, row in mine.items())
        return batch_run(previous, deletes, new)

    def apply(self, runs: Runs, most: int | None = None) -> Delta | None:
        """`most`: rows of a change that the feed keeps."""
        self.version += next(iter(runs.values())).versions
        first = self.version - next(iter(runs.values())).versions + 1
        with pytest.MonkeyPatch.context() as patch:
            if most is not None:
                patch.setattr(live_view, "most_candidates", lambda _: most)
            delta = self.view.apply(first, self.version - first + 1, runs)
        self.validate()
        return delta

    def validate(self) -> None:
        self.join.check()
        cursor, found = self.join.rows(self.join.root, None), Counter[tuple[int, ...]]()
        while not cursor.done:
            found.update(zip(*(slots.tolist() for slots in cursor.fill(1000)), strict=True))
        assert found == Counter(self.wanted())

    def looks(self) -> set[tuple[int, int]]:
        """The same by ids."""
        return {(self.ids["a"].get(x, -1), self.ids["b"].get(y, -1)) for x, y in self.wanted()}

    def emitted(self, delta: Delta, number: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What a version of a delta deletes and inserts, by ids."""
        low, high = delta.starts[number : number + 2]
        x, y = ([self.ids[name].get(slot, -1) for slot in slots[low:high].tolist()] for name, slots in zip("ab", delta.slots, strict=True))
        rows = [*zip(x, y, strict=True)]
        return rows[: delta.deletes[number]], rows[delta.deletes[number] :]

    def wanted(self) -> set[tuple[int, int]]:
        """The rows of the view as slots, by brute force."""
        a, b = self.rows.values()
        pairs = {(x, y) for x, mine in a.items() for y, its in b.items() if self._meet(mine, its)}
        alone = {(x, -1) for x in a.keys() - {x for x, _ in pairs}} if self.kind != "RIGHT" else set()
        others = {(-1, y) for y in b.keys() - {y for _, y in pairs}} if self.kind != "LEFT" else set()
        return pairs | alone | others

    def _meet(self, one: Row, other: Row) -> bool:
        is_one_key = not self.keyed or (one[1] is not None and one[1] == other[1])
        return is_one_key and one[2] < other[3] and other[2] < one[3]


def random_row(rng: np.random.Generator, id_: int, longest: int = 12) -> Row:
    start = int(rng.integers(0, 60))
    return id_, None if rng.random() < 0.1 else int(rng.integers(0, 2)), start, start + int(rng.integers(1, longest))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
@pytest.mark.parametrize("condition", [MEETS, f"a.k = b.k AND {MEETS}"])
@pytest.mark.parametrize("kind", ["LEFT", "RIGHT", "FULL"])
def test_runs_by_brute_force(kind: str, condition: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each version the rows that it has and the one before it lacks, and the other way round; pieces are small."""
    monkeypatch.setattr(entry_tree, "CHUNK", B + 3)
    kept, rng = Kept(kind, condition), np.random.default_rng(seed)
    for step in range(25):
        follow(kept, rng, (1, 6)[step % 2])


def follow(kept: Kept, rng: np.random.Generator, versions: int, longest: int = 12, many: int = 8) -> None:
    """Have a batch or a run of single changes applied, and compare what each version is told to delete and insert."""
    parts: dict[str, list[tuple[int, Run]]] = {"a": [], "b": []}
    states, ids = [kept.looks()], {name: rng.permutation(30).tolist() for name in "ab"}
    for offset in range(versions):
        for name in "ab" if versions == 1 else "ab"[int(rng.integers(2))]:
            most = many if versions == 1 else 1
            mine, ids[name] = ids[name][:most], ids[name][most:]  # each row changes once
            there = {row[0]: slot for slot, row in kept.rows[name].items()}
            deleted = [id_ for id_ in mine if id_ in there and rng.random() < 0.3]
            same = [id_ for id_ in mine if id_ in there and rng.random() < 0.3]
            rows = [kept.rows[name][there[id_]] if id_ in same else random_row(rng, id_, longest) for id_ in mine if id_ not in deleted]
            parts[name].append((offset, kept.changed(name, [there[id_] for id_ in deleted], rows)))
        states.append(kept.looks())
    first, delta = kept.version + 1, kept.apply({name: _together(some, versions) for name, some in parts.items() if some})
    found = {} if delta is None else {version: kept.emitted(delta, number) for number, version in enumerate(delta.versions)}
    for offset, (before, after) in enumerate(zip(states, states[1:], strict=False)):
        deleted_rows, inserted_rows = found.get(first + offset, ([], []))
        assert sorted(deleted_rows) == sorted(before - after) and sorted(inserted_rows) == sorted(after - before), offset


def _together(some: list[tuple[int, Run]], versions: int) -> Run:
    offsets = np.concatenate([np.full(len(run.old), offset, np.int64) for offset, run in some])
    old, new = (np.concatenate([getattr(run, name) for _, run in some]) for name in ("old", "new"))
    return Run(versions, offsets, old, new, sum(run.rows for _, run in some))


class _Full:
    """A sink that wants so many rows of a batch; 0: all."""

    limit = 10

    def __init__(self, wanted: int) -> None:
        self._wanted, self.pieces, self.alone = wanted, list[int](), list[tuple[bool, int]]()

    def __call__(self, offsets: Indices, inserted: Mask, rows: Combination) -> bool:
        alone = np.flatnonzero(rows[1] < 0)
        self.alone += zip(inserted[alone].tolist(), rows[0][alone].tolist(), strict=True)
        if len(alone) < len(inserted):
            self.pieces.append(len(inserted) - len(alone))
        return self._wanted == 0 or sum(self.pieces) <= self._wanted

    def exceeded(self, offset: int) -> None:
        raise AssertionError("it is told all")


def _spread(count: int, length: int, first: int = 0) -> list[Row]:
    return [(first + i, 0, 10 * i, 10 * i + length) for i in range(count)]


def _few(monkeypatch: pytest.MonkeyPatch, enough: int, least: int) -> None:
    monkeypatch.setattr(entry_tree, "CHUNK", PIECE)
    monkeypatch.setattr(paired, "_ENOUGH", enough)
    monkeypatch.setattr(paired, "_LEAST", least)


def _guessed(kept: Kept) -> int:
    (input,) = kept.join._paired
    return int(input.matching.guessed(input.now()[0]).sum())


def test_one_row_with_many_partners_is_not_counted_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a thousand partners, of which the view's sink wants a few: some are looked at. When all go, it is told at the right one."""
    _few(monkeypatch, 100, 60)
    kept = Kept("LEFT")
    kept.apply({"b": kept.changed("b", [], _spread(1000, 5))})
    for id_, most in ((1, 10), (2, 0)):
        before = kept.join.update_steps
        kept.apply({"a": kept.changed("a", [], [(id_, 0, 0, 20_000)])}, most)
        assert kept.join.update_steps - before < 400
    kept.apply({"a": kept.changed("a", [], [(2, 0, 0, 20_000)])}, 10)  # it moves, and the next one is another
    kept.apply({"a": kept.changed("a", [], [(1, 0, 5_000, 20_000)])}, 10)
    assert _guessed(kept) == 2
    flips = kept.join.flips
    slots = [*kept.rows["b"]]
    for first in range(0, 1000, 50):
        assert kept.join.flips == flips
        kept.apply({"b": kept.changed("b", slots[first : first + 50], [])})
    assert kept.join.flips == flips + 2 and {row for row in kept.looks() if row[1] == -1} == {(1, -1), (2, -1)}
    assert not _guessed(kept)


class _Looks:
    """Which rows are looked at again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._slots, look = list[int](), PairedJoin._some_partners

        def looked(input: PairedJoin, slot: int, *more: int) -> tuple[int, bool]:
            self._slots.append(slot)
            return look(input, slot, *more)

        monkeypatch.setattr(PairedJoin, "_some_partners", looked)

    def taken(self) -> list[int]:
        """Since the last call."""
        slots, self._slots = self._slots, []
        return slots


def test_a_batch_looks_only_at_rows_that_have_lost_partners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: each of 10,000 guessed rows looked at as many partners as the batch deleted, and as many again."""
    _few(monkeypatch, 50, 30)
    kept, looks = Kept("LEFT"), _Looks(monkeypatch)
    groups = [[(100 * group + i, 0, 1_000 * group, 1_000 * group + 5) for i in range(100)] for group in range(20)]
    kept.apply({"b": kept.changed("b", [], [row for rows in groups for row in rows])})
    for group in range(20):
        kept.apply({"a": kept.changed("a", [], [(group, 0, 1_000 * group, 1_000 * group + 5)])}, 0)
    assert _guessed(kept) == 20 == len(looks.taken())
    slots = {row[0]: slot for slot, row in kept.rows["b"].items()}
    kept.apply({"b": kept.changed("b", [slots[id_] for id_ in [*range(90), *range(100, 200)]], [])})
    assert sorted(kept.rows["a"][slot][0] for slot in looks.taken()) == [0, 1]
    assert {row for row in kept.looks() if row[1] == -1} == {(1, -1)} and _guessed(kept) == 18


def test_rows_that_lose_the_same_partners_are_looked_at_one_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    _few(monkeypatch, 50, 30)
    kept, looks = Kept("LEFT"), _Looks(monkeypatch)
    kept.apply({"b": kept.changed("b", [], [(i, 0, 0, 5) for i in range(250)])})
    for id_ in range(40):
        kept.apply({"a": kept.changed("a", [], [(id_, 0, 0, 5)])}, 0)
    assert len(looks.taken()) == 40
    again = 0
    for slot in [*kept.rows["b"]][:150]:
        kept.apply({"b": kept.changed("b", [slot], [])})
        again += len(now := looks.taken())
        assert len(now) <= 5, "of 40 rows: some for the second time, some for the first"
    assert again >= 40


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))])
@pytest.mark.parametrize("condition", [MEETS, f"a.k = b.k AND {MEETS}"])
def test_guessed_rows_by_brute_force(condition: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows whose partners nobody wants to be told come between batches and runs of single changes, which tell what becomes of them."""
    _few(monkeypatch, 9, 7)
    kept, rng, guessed = Kept("LEFT", condition), np.random.default_rng(seed), 0
    kept.apply({"b": kept.changed("b", [], [random_row(rng, id_, 60) for id_ in range(30)])})
    for step in range(30):
        for id_ in rng.permutation(30)[:3].tolist():
            kept.apply({"a": kept.changed("a", [], [random_row(rng, id_, 60)])}, 0)
        guessed += _guessed(kept)
        follow(kept, rng, (1, 6)[step % 2], 60, 12)
        if step % 5 == 4:  # all partners but a few go, by one batch; then others come
            before, left = kept.looks(), int(rng.integers(0, 3))
            delta = kept.apply({"b": kept.changed("b", [*kept.rows["b"]][left:], [])})
            assert delta is not None
            deleted, inserted = kept.emitted(delta, 0)
            assert set(deleted) == before - kept.looks() and set(inserted) == kept.looks() - before and len(inserted) == len(set(inserted))
            kept.apply({"b": kept.changed("b", [], [random_row(rng, id_, 60) for id_ in range(30)])})
    assert guessed > (60 if condition == MEETS else 15)


def test_very_many_pairs_are_counted_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch tells so many, then all rows are counted: which are alone now is told, and is right."""
    monkeypatch.setattr(entry_tree, "CHUNK", PIECE)
    monkeypatch.setattr(paired, "_ANEW", 2)
    kept = Kept("LEFT")
    kept.apply({"a": kept.changed("a", [], _spread(300, 5)), "b": kept.changed("b", [], [(i, 0, 0, 2_000) for i in range(300)])})
    for deleted, wanted in ((299, 50), (1, 1_000)):
        before, sink = kept.looks(), _Full(wanted)
        runs = {"b": kept.changed("b", [*kept.rows["b"]][:deleted], [])}
        kept.version += 1
        kept.join.apply(kept.version, runs, sink)
        kept.validate()
        ids = [(inserted, kept.ids["a"][slot]) for inserted, slot in sink.alone]
        assert sorted(id_ for inserted, id_ in ids if inserted) == sorted(row[0] for row in kept.looks() - before if row[1] == -1)
        assert not any(not inserted for inserted, _ in ids)
        assert sum(sink.pieces) < 2_000, "of up to 60,000 pairs"


def test_the_pairs_of_a_run_are_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are, no more than a piece is in memory."""
    monkeypatch.setattr(entry_tree, "CHUNK", PIECE)
    kept, sink = Kept("LEFT"), _Full(0)
    kept.apply({"a": kept.changed("a", [], _spread(200, 5))})
    runs = [kept.changed("b", [], [(i, 0, 0, 2_000)]) for i in range(50)]
    kept.version += 50
    kept.join.apply(kept.version, {"b": _together([*enumerate(runs)], 50)}, sink)
    kept.validate()
    assert sum(sink.pieces) == 50 * 200 and max(sink.pieces) <= PIECE
    assert len(sink.alone) == 200 and not any(inserted for inserted, _ in sink.alone)


def test_a_view_that_tells_nothing_visits_no_partners() -> None:
    """A partner over all rows comes and goes, at the cost of the rows that it flips."""
    kept = Kept("LEFT", changes=False)
    assert all(isinstance(input, MatchedInputs) for input in kept.join.matched)
    kept.apply({"a": kept.changed("a", [], _spread(2_000, 5)), "b": kept.changed("b", [], _spread(1_990, 5))})
    for deleted, inserted in (([], [(5_000, 0, 0, 30_000)]), (None, [])):
        steps, flips = kept.join.update_steps, kept.join.flips
        slots = deleted if deleted is not None else [slot for slot, row in kept.rows["b"].items() if row[0] == 5_000]
        kept.apply({"b": kept.changed("b", slots, inserted)})
        assert kept.join.flips - flips == 10
        assert kept.join.update_steps - steps < 100
