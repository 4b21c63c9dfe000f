"""Rows of one key, beside a dict."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from structures.rows.key_groups import key_groups
from structures.rows.key_table import ALL_BITS, FLOAT, PLAIN, TEXT
from structures.rows.rows import RowStore
from tests.structures.rows.test_rows import row_set

Key = tuple[bytes, float, int]
KEYS = st.tuples(
    st.sampled_from([b"", b"a", b"ab", b"abcde", b"abcdf"]),
    st.sampled_from([0.0, -0.0, 1.5, math.nan, -math.nan, math.inf]),
    st.sampled_from([0, 1, -1, 1 << 32, -(1 << 63), (1 << 63) - 1]),
)


def _first_of_each(keys: list[Key]) -> list[int] | None:
    first: dict[tuple[object, ...], int] = {}
    found = [first.setdefault((text, "nan" if math.isnan(real) else real, whole), row) for row, (text, real, whole) in enumerate(keys)]
    return None if len(first) == len(keys) else found


@given(st.lists(KEYS, min_size=1, max_size=40), st.sampled_from([ALL_BITS, 1, 0]))
@example([(b"a", 0.0, 1), (b"a", -0.0, 1)], ALL_BITS)
@example([(b"ab", 0.0, 1), (b"a", 0.0, 1)], 0)
def test_each_row_has_the_first_row_of_its_key(keys: list[Key], hash_mask: int) -> None:
    store = RowStore([TEXT, FLOAT, PLAIN], [0, 1, 2], False)
    found = key_groups(row_set(store, [list(key) for key in keys]), hash_mask)
    assert (None if found is None else found.tolist()) == _first_of_each(keys)


def test_other_columns_do_not_matter() -> None:
    store = RowStore([TEXT, PLAIN, TEXT], [2], False)
    found = key_groups(row_set(store, [[b"x", 1, b"k"], [b"yy", 2, b"l"], [b"", 3, b"k"]]))
    assert found is not None and found.tolist() == [0, 1, 0]


def test_many_keys_each_twice() -> None:
    store, n = RowStore([PLAIN], [0], False), 3_000
    keys = np.random.default_rng(5).permutation(np.repeat(np.arange(n) << 40, 2))
    given_rows = row_set(store, [[key] for key in keys.tolist()])
    found = key_groups(given_rows)
    assert found is not None and (keys[found] == keys).all() and len(np.unique(found)) == n
    assert key_groups(row_set(store, [[key] for key in range(n)])) is None
