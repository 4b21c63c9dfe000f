"""Touched pages are there, and hold what they held, whatever is written meanwhile."""

from __future__ import annotations

import ctypes
import sys
import threading

import numpy as np
import pytest

from structures.core.kernel import JIT
from structures.core.reserve import reserve
from structures.pages.touch import STEP, touch, whole

pytestmark = pytest.mark.skipif(not JIT, reason="nothing is touched without compiled kernels")
_PAGES = 64


def aligned(array: np.ndarray) -> int:
    return whole(array.__array_interface__["data"][0])


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which pages are resident")
def test_pages_become_resident() -> None:
    array = reserve((_PAGES + 1) * STEP, np.int64)
    address, found = aligned(array), ctypes.create_string_buffer(_PAGES)

    def resident() -> list[int]:
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(_PAGES * STEP), found) == 0
        return [page for page in range(_PAGES) if found.raw[page] & 1]

    before = resident()
    touch(address + 8 * STEP, 4 * STEP)
    assert {*resident()} == {*before, 8, 9, 10, 11} and len(before) < 8
    assert not array.any()


def test_what_others_write_meanwhile_is_kept() -> None:
    array = reserve((_PAGES + 1) * STEP, np.int64)
    address = aligned(array)
    first = (address - int(array.__array_interface__["data"][0])) // 8
    words = array[first : first + _PAGES * STEP // 8 : STEP // 8]  # those that are touched
    ended = threading.Event()

    def touching() -> None:
        while not ended.is_set():
            touch(address, _PAGES * STEP)

    thread = threading.Thread(target=touching)
    thread.start()
    for value in range(1, 20_001):
        words[:] = value % 3  # 0, too
        assert (words == value % 3).all()
    ended.set()
    thread.join(60)
    words[:] = 7
    touch(address, _PAGES * STEP)
    assert (words == 7).all()
