"""An index that is made beside the writer has just the rows of its relation when it is put into the store, and no text more."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from livejoin.wire.batch import DELETE, UPSERT
from service.tables import loading
from service.tables.backlog import pieces
from service.tables.indexes import Key
from service.tables.loading import IndexLoad
from service.tables.shared_index import Order, SharedIndex
from structures.index import indexes
from tests.service.tables.test_indexes import Case, input, order

ORDERS = [order("n"), order("t", "n"), order("t", same=((0, "u"),)), order("x"), order("u", "t", "n")]


def key_of(case: Case, by: Order) -> Key:
    return case.indexes.key(0, input(case.state), by)


class Making(Case):
    """A case, and what changes in its relation r."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.put(*(self.row(i) for i in range(40)))
        self.backlog = self.state.recorder.open([self.state.relations["r"]])

    def row(self, number: int) -> dict[str, Any]:
        pick = self.rng.choice
        texts = {name: pick(["a", "b", "", None]) for name in "tu"}
        return {"id": number, "n": pick([1, 2, 3, None]), "x": pick([0.0, -0.0, 1.5, None]), **texts}

    def some_changes(self) -> None:
        for _ in range(self.rng.randrange(4)):
            numbers = self.rng.sample(range(60), self.rng.randrange(1, 9))
            self.apply(*(("r", self.rng.choice([UPSERT, DELETE]), number, self.row(number)) for number in numbers))

    def loading(self, order: Order) -> IndexLoad:
        made = self.indexes.loading(key_of(self, order), input(self.state), order)
        assert made is not None
        parts: list[float] = []
        made.load(self.state.newest, parts.append)
        assert parts == sorted(parts) and parts[-1] < 1.0
        return made

    def take(self, view: str, by: Order, made: IndexLoad) -> SharedIndex | None:
        return self.indexes.take(view, self.state.newest, key_of(self, by), input(self.state), made)

    def taken(self, view: str, by: Order, made: IndexLoad) -> SharedIndex:
        """Put into the store piece by piece, while rows change, and texts come and go."""
        while (one := self.take(view, by, made)) is None:
            self.some_changes()
            self.follow(made)
            made.settle()
        return one

    def follow(self, made: IndexLoad) -> None:
        for piece in pieces(self.backlog.take(self.state.newest)):
            made.note(piece.runs["r"])


@pytest.fixture(autouse=True)
def little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_PUT", 1)
    monkeypatch.setattr(loading, "_FOLLOWED", 1)
    monkeypatch.setattr(indexes, "LEAF_FILL", np.minimum(indexes.LEAF_FILL, 8))


@pytest.mark.parametrize("by", ORDERS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_it_follows(by: Order, seed: int) -> None:
    case = Making(seed)
    made = case.loading(by)
    for _ in range(case.rng.randrange(4)):
        case.some_changes()
        case.follow(made)
        made.settle()
    for _ in range(case.rng.randrange(1, 4)):  # as a view does that takes several indexes, one a turn
        case.some_changes()
        case.follow(made)
    one = case.taken("v", by, made)
    assert one is made.index and case.indexes.loading(key_of(case, by), input(case.state), by) is None
    for _ in range(3):
        case.compare(one)
        case.indexes.check()
        case.some_changes()
    case.state.recorder.close(case.backlog)
    case.indexes.forget("v")
    case.apply(("s", UPSERT, 1, {}))
    case.reclaim()
    case.reclaim()
    assert case.indexes._texts.keys == 0 and case.indexes.structure.live_bytes == 0


@pytest.mark.parametrize("begun", [False, True])
def test_another_view_was_first(begun: bool) -> None:
    """Perhaps while this one had put some of the same index into the store."""
    case = Making(1)
    by = order("t", "n")
    first, second = case.loading(by), case.loading(by)
    case.some_changes()
    changed = list(pieces(case.backlog.take(case.state.newest)))
    for made in (first, second):
        for piece in changed:
            made.note(piece.runs["r"])
    if begun:
        assert case.take("w", by, second) is None
    one = case.taken("v", by, first)
    assert case.take("w", by, second) is one
    case.compare(one)
    case.indexes.forget("v")
    case.indexes.forget("w")
    case.apply(("s", UPSERT, 1, {}))
    case.reclaim()
    case.reclaim()
    assert case.indexes._texts.keys == 0


@pytest.mark.parametrize("then", ["noted", "settled", "put in part", "put"])
def test_nobody_wants_it(then: str) -> None:
    """Also when it was given up in the midst of reading."""
    case = Making(2)
    half = case.indexes.loading(key_of(case, order("t")), input(case.state), order("t"))
    assert half is not None

    def stop(part: float) -> None:
        if part:
            raise InterruptedError

    with pytest.MonkeyPatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(loading, "_CHUNK", 7)
        half.load(case.state.newest, stop)
    made = case.loading(order("t"))
    case.some_changes()
    case.follow(made)
    if then != "noted":
        made.settle()
    if then == "put in part":
        assert case.take("v", order("t"), made) is None
        case.some_changes()
        case.follow(made)
    if then == "put":
        while made._parts:
            case.apply(*(("r", UPSERT, number, case.row(number) | {"t": case.rng.choice("abc")}) for number in range(9)))
            case.follow(made)
            assert case.take("v", order("t"), made) is None
    assert case.indexes._texts.keys > 0
    all_go(case, half, made)


def all_go(case: Making, *made: IndexLoad) -> None:
    for one in made:
        case.indexes.give_up(one, case.state.newest)
    case.apply(("s", UPSERT, 1, {}))
    case.reclaim()
    case.reclaim()
    assert case.indexes._texts.keys == 0 and case.indexes.structure.live_bytes == 0


def test_no_room_for_texts() -> None:
    """Nothing is counted of a piece whose second column finds none, read or noted."""
    case, by = Making(3), order("t", "u")
    case.put(*(case.row(number) | {"t": f"t{number}", "u": f"u{number}"} for number in range(40)))
    case.backlog.take(case.state.newest)
    texts = case.indexes._texts._rows
    room, texts.most = texts.most, 35
    half = case.indexes.loading(key_of(case, by), input(case.state), by)
    assert half is not None
    with pytest.MonkeyPatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(loading, "_CHUNK", 10)
        half.load(case.state.newest, lambda part: None)
    assert case.indexes._texts.keys == 20, "of the first piece"
    texts.most = room
    made = case.loading(by)
    case.apply(*(("r", UPSERT, number, case.row(number) | {"t": f"x{number}", "u": f"y{number}"}) for number in range(9)))
    texts.most = texts.used + 9
    with pytest.raises(MemoryError):
        case.follow(made)
    texts.most = room
    all_go(case, half, made)


def test_no_room_for_what_was_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index has all that was read, and a part of what has changed since."""
    case, by = Making(4), order("t")
    made = case.loading(by)
    for number in range(3):
        case.apply(("r", UPSERT, number, case.row(number) | {"t": f"t{number}"}))
        case.follow(made)
    while made._parts:
        assert case.take("v", by, made) is None
    assert len(made._noted[0][1].slot)

    def no_room(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(case.indexes.structure, "require", no_room)
        case.take("v", by, made)
    all_go(case, made)
