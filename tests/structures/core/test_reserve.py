import resource

import numpy as np
import pytest

from structures.core.reserve import reserve


def test_zeros_writable_of_the_asked_length():
    array = reserve(1000, np.int64)
    assert len(array) == 125 and array.flags.writeable and not array.any()
    array[124] = 7
    assert array[124] == 7


def test_an_item_that_is_no_divisor_and_structured_types():
    array = reserve(50, np.dtype([("a", np.int32), ("b", np.int64)]))
    assert len(array) == 4
    array["b"][3] = -1
    assert array[3].tolist() == (0, -1)


def test_nothing_fits():
    with pytest.raises(ValueError):
        reserve(7, np.int64)


def test_pages_come_when_touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arrays = [reserve(1 << 36, np.int64) for _ in range(16)]  # 1 TiB
    for array in arrays:
        array[len(array) // 2] = 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024  # KiB


def test_the_memory_outlives_the_first_view():
    part = reserve(1 << 20, np.uint8)[10:20]
    part[:] = 3
    assert part.base is not None and part.sum() == 30
