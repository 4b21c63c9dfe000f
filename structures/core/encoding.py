"""Endpoints as int64 that keep their order, and the exact way back.

Every structure sees closed intervals of int64. Integers, microseconds and days are taken as they are. A float is
its bits, turned from sign and magnitude into two's complement: negative x becomes -(bits of |x|). So -0.0 and 0.0
are both 0, neighbouring floats are neighbouring integers, and -inf, inf and NaN lie within the extremes.

An open start is the next value (`shift` 1), an open end the one before (`shift` -1). The two extremes of int64
stand for "since ever" and "until further notice"; no value may reach them (`livejoin.wire` judges that).

All functions cost O(n).
"""

from __future__ import annotations

import numpy as np

from structures.core.kernel import wide

NEG_INF = -(2**63)
POS_INF = 2**63 - 1

_SIGN = wide(-(2**63))


def decode_ints(encoded: np.ndarray, open_shift: int) -> np.ndarray:
    """Return int64[n]: the integers as they were before the shift."""
    return np.subtract(encoded, open_shift, dtype=np.int64)


def encode_floats(values: np.ndarray, open_shift: int) -> np.ndarray:
    """Return int64[n] for float64[n] (no NaN)."""
    bits = np.ascontiguousarray(values, np.float64).view(np.int64)
    return np.where(bits < 0, _SIGN - bits, bits) + open_shift


def encode_any_floats(values: np.ndarray) -> np.ndarray:
    """Return int64[n]: the same for floats that may be NaN, which is one value, above all others."""
    return encode_floats(np.where(np.isnan(values), np.nan, values), 0)


def decode_floats(encoded: np.ndarray, open_shift: int) -> np.ndarray:
    """Return float64[n]: the arguments of `encode_floats`, with 0.0 for -0.0."""
    order = np.subtract(encoded, open_shift, dtype=np.int64)
    return np.where(order < 0, _SIGN - order, order).view(np.float64)
