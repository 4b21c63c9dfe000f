"""Pages that growing arrays need next are asked for beside the writer: those, each once, and no others."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import fresh_pages
from service.engine.fresh_pages import FreshPages, Front, Structures, request_at_first
from service.instance import Instance
from service.tables.store import Table
from structures.core.kernel import JIT
from structures.core.reserve import reserve
from structures.pages.touch import STEP
from tests.service.running import batch, keep_house, look, rows_of, running
from tests.waiting import until

_LEAST, _MOST, _PART = fresh_pages._LEAST, fresh_pages._MOST, fresh_pages._PART
_SIZE = 64 << 20  # bytes


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


class _Grown:
    """In place of structures."""

    stores = ()


class Growing(_Grown):
    """An array that grows to its first `size` bytes, and the pages that were asked for behind it: the address of each."""

    def __init__(self, size: int) -> None:
        self.array, self.size, self.asked = reserve(_SIZE, np.uint8), size, list[int]()
        self.begin = address_of(self.array)
        self.pages = FreshPages(lambda one: [(self.array, self.size)])
        self.grow(0)

    def grow(self, by: int) -> list[int]:
        """What is asked for then."""
        self.size += by
        new: list[int] = []

        def populate(address: int, size: int) -> None:
            assert size > 0 and size % STEP == 0
            new.extend(range(address, address + size, STEP))

        self.pages.look_soon([self])
        self.pages.look(populate)
        self.asked += new
        return new


def test_what_does_not_grow_is_left_alone() -> None:
    one = Growing(32 << 20)
    assert one.grow(0) == one.grow(-STEP) == []


def test_the_next_pages_of_what_grows_are_asked_for_once() -> None:
    one = Growing(32 << 20)
    first = one.begin + one.size + _LEAST
    assert one.grow(_LEAST) == [*range(first, first + 2 * _LEAST, STEP)], "twice as much as it has grown by"
    assert one.grow(_LEAST) == [*range(first + 2 * _LEAST, first + 3 * _LEAST, STEP)]
    assert one.grow(1) == []


def test_a_page_is_asked_for_long_before_the_end_comes_to_it() -> None:
    one = Growing(32 << 20)
    assert one.grow(1)[-1] - (one.begin + one.size) > _LEAST - STEP
    for _ in range(80):
        one.grow(STEP // 8)
        assert one.asked[-1] - (one.begin + one.size) > _LEAST - STEP


def test_nothing_is_asked_for_behind_a_load() -> None:
    one = Growing(32 << 20)
    assert one.grow(_MOST + 1) == []
    assert one.grow(_MOST) != []


def test_little_arrays_stay_little() -> None:
    """Seen: of 200 views each had 2 MiB more."""
    one = Growing(100_000)
    one.grow(8192)
    assert one.asked[-1] + STEP - (one.begin + one.size) <= one.size // _PART + STEP


@given(st.integers(0, 40 << 20), st.lists(st.integers(-_LEAST, 2 * _MOST), max_size=20))
def test_each_page_is_asked_for_once_behind_the_end_and_not_far(size: int, steps: list[int]) -> None:
    one = Growing(size)
    for by in steps:
        by = min(by, _SIZE - one.size)
        for address in one.grow(by):
            assert address % STEP == 0 and one.begin + one.size <= address <= one.begin + _SIZE - STEP
            assert address - (one.begin + one.size) < min(max(2 * by, _LEAST), _MOST, one.size // _PART)
    assert len(one.asked) == len(set(one.asked))


@given(st.integers(1, 40 << 20), st.integers(0, 200_000))
def test_structures_that_go_live_have_pages_for_their_first_batches(size: int, entries: int) -> None:
    """As many as these change, and no more than the structures have already."""
    one, asked = Growing(size), list[tuple[int, int]]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fresh_pages, "fronts_of", lambda structures: [(one.array, one.size)])
        patched.setattr(fresh_pages, "touch", lambda *bounds: asked.append(bounds))
        request_at_first(_Grown(), entries)
    ((first, length),) = asked
    assert first % STEP == length % STEP == 0 and 0 <= first - (one.begin + size) < STEP and first + length <= one.begin + _SIZE
    wanted = min(256 * entries, size, _SIZE - size - STEP)
    assert wanted - STEP < length <= max(wanted, 0) + STEP


def _is_resident(address: int) -> bool:
    found = ctypes.create_string_buffer(1)
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(1), found) == 0
    return bool(found.raw[0] & 1)


@pytest.mark.skipif(sys.platform != "linux" or not JIT, reason="asks Linux which pages are resident; only compiled kernels touch them")
def test_the_thread_has_the_system_give_them() -> None:
    array, size, looks = reserve(_SIZE, np.uint8), 32 << 20, 0

    def fronts(one: object) -> Iterator[Front]:
        nonlocal looks
        yield array, size
        looks += 1

    pages, grown = FreshPages(fronts), _Grown()
    pages.start()
    pages.look_soon([grown])
    until(lambda: looks >= 1)
    size += STEP // 2
    pages.look_soon([grown])
    until(lambda: looks >= 2)
    end = address_of(array) + size
    next_page = -(-end // STEP) * STEP
    assert _is_resident(next_page) and _is_resident(next_page + _LEAST - STEP)
    assert not _is_resident(next_page + _LEAST) and not _is_resident(next_page - STEP)
    assert array[next_page - address_of(array)] == 0
    pages.stop()
    pages._thread.join(60)
    assert not pages._thread.is_alive()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.setattr(FreshPages, "start", lambda pages: None)  # the test looks
    engine = running(tmp_path, synchronous="normal")
    yield engine
    engine.close()


def test_changes_make_a_service_look_at_its_tables_and_structures(engine: Instance) -> None:
    pages, asked = engine._housekeeping.pages, list[int]()
    for first in range(0, 12_000, 3_000):
        pages._due.clear()
        engine.apply(batch(("upsert", "a", rows_of(first, 3_000, start=first))))
        keep_house(engine)
        assert pages._due.is_set()
        pages.look(lambda address, size: asked.append(address))
    (store,) = engine.views["v"].stores
    table = engine.relation("a").table
    for array, used in ((table.store.cells, table.used * table.store.cells.strides[0]), (table.store.born, 8 * table.used), (store.M, 0)):
        begin = address_of(array)
        assert any(begin + used <= address < begin + array.nbytes for address in asked)


def test_only_what_was_changed_is_looked_at(engine: Instance) -> None:
    """Seen: each round looked at all arrays, for 7 ms with 1,000 views."""
    looked, pages = list[object](), engine._housekeeping.pages
    fronts = pages._fronts

    def noted(one: Table | Structures) -> Iterable[Front]:
        looked.append(one)
        return fronts(one)

    pages._fronts = noted
    engine.apply(batch(("upsert", "a", rows_of(0, 10))))
    look(engine)
    pages.look(lambda address, size: None)
    looked.clear()
    look(engine)
    pages.look(lambda address, size: None)
    assert not looked, "nothing has changed"
    engine.apply(batch(("upsert", "b", rows_of(0, 10))))
    look(engine)
    pages.look(lambda address, size: None)
    tables = {engine.relation(name).table for name in "ab"}
    assert tables & set(looked) == {engine.relation("b").table} and engine.views["v"] in looked
