"""The squares of numbers in two words, exactly, for variances."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from service.views.stages.aggregates import SQUARE, SQUARE_ERROR, SQUARE_HIGH, SQUARE_LOW

Words = npt.NDArray[np.int64]
_SPLIT = 134217729.0  # 2**27 + 1


def of_form(words: Words, form: int) -> Words:
    """int64[n]: the words in this form; in any form but those of squares they are as they are."""
    if form in (SQUARE_LOW, SQUARE_HIGH):
        return _whole(words)[form == SQUARE_HIGH]
    if form in (SQUARE, SQUARE_ERROR):
        return _product(np.ascontiguousarray(words).view(np.float64))[form == SQUARE_ERROR].view(np.int64)
    return words


def _whole(words: Words) -> tuple[Words, Words]:
    """Numbers l and h, signed, so that 2**64 h + l is the square."""
    size = np.where(words < 0, np.uint64(0) - words.view(np.uint64), words.view(np.uint64))
    upper, lower = size >> np.uint64(32), size & np.uint64(0xFFFFFFFF)
    middle, first = upper * lower, lower * lower
    low = first + (middle << np.uint64(33))
    high = upper * upper + (middle >> np.uint64(31)) + (low < first)
    signed = low.view(np.int64)
    return signed, high.view(np.int64) + (signed < 0)


def _product(x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The product of each float with itself, rounded, and the rest. Source: Dekker, A floating-point technique (1971)."""
    with np.errstate(all="ignore"):
        product, split = x * x, _SPLIT * x
        upper = split - (split - x)
        lower = x - upper
        error = ((upper * upper - product) + 2 * upper * lower) + lower * lower
    return product, np.where(np.isfinite(product) & np.isfinite(error), error, 0.0)
