"""The state of a group: one row of int64 by its code, and the layout of that row.

    cells[code]   ROWS, STAMP, OUT (how many of its sums were out of range when last reported), then the words of each accumulator
    steps         int64[k, 3]: for each accumulator its kind, the column of the values that it takes, and its first word
    results       int64[r, 5]: for each result column its kind, the first word that it reads, the word of its count of values, the number of
                  its values in the tree (or the first word of a second sum), and a further divisor of its sum (10**s of a decimal; 1)

    COUNT     1 word: values that are not null
    INT_SUM   3 words: the sum in two's complement of 128 bits: 32 bits, 32 bits, and the rest with the sign
    FLOAT_SUM 7 words: where its limbs are (`limbs.py`), and counts of NaN and of both infinities
    VALUES    1 word: distinct values; each with its count in a tree (`values.py`), by (code * trees + number, value)

Floats are passed as their bits. Values in the tree are int64 in the order of the values that they represent (`ordered_bits`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from structures.core.kernel import arrays, kernel

COUNT, INT_SUM, FLOAT_SUM, VALUES = range(4)
WORDS = {COUNT: 1, INT_SUM: 3, FLOAT_SUM: 7, VALUES: 1}
ROWS, STAMP, OUT, HEAD = range(4)

OF_ROWS, OF_COUNT, OF_INT_SUM, OF_INT_MEAN, OF_FLOAT_SUM, OF_FLOAT_MEAN = range(6)
OF_LEAST, OF_GREATEST, OF_LEAST_FLOAT, OF_GREATEST_FLOAT = range(6, 10)
OF_WIDE_SUM = 10  # of an INT_SUM, in two columns: the high and the low word of 128 bits; out of range with more than 38 digits
OF_WIDER_SUM, OF_WIDER_MEAN = 11, 12  # the same of two INT_SUMs, of low words and of high ones (`results.wider`)
OF_FILLED = 13  # left to the caller (`grouped/filled.py`)
STEP_KIND, STEP_COLUMN, STEP_WORD = range(3)  # columns of `steps`
KIND, WORD, COUNTED, TREE, SCALE = range(5)  # columns of `results`
LOWEST, MIDDLE, HIGHEST, DIGITS = range(4)  # words of an INT_SUM, and of an amount that is added to one

# Words of `control`: groups that have rows; sums that are out of range; rows and values that were removed but not there.
GROUPS, BEYOND, WRONG, CONTROL_WORDS = range(4)
NULLS_A_CELL = 32  # as in `rows/key_table.py`

LOW32, WORD32 = 0xFFFFFFFF, 1 << 32
SIGN = -(1 << 63)
NAN_BITS, INFINITY_BITS = 0x7FF8 << 48, 0x7FF << 52
NAN_ORDER = (1 << 63) - 1  # above that of infinity


@arrays("int64[::1]", "int64[::1]")
class Limbs(NamedTuple):
    """`store`: extents of limbs; `control`: the free ones (`limbs.py`)."""

    store: np.ndarray
    control: np.ndarray


@arrays("int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]", "int64[::1]")
class Tree(NamedTuple):
    """All blocks, one after another: groups and values, counts (in inner nodes: the children), and the size of each block (`values.py`)."""

    group: np.ndarray
    value: np.ndarray
    times: np.ndarray
    size: np.ndarray
    control: np.ndarray


@arrays("int64[:, ::1]", Limbs, Tree, "int64[::1]", "int64[::1]")
class Store(NamedTuple):
    """The arrays of all kernels. `scratch`: digits of a sum, and a path in the tree."""

    cells: np.ndarray
    limbs: Limbs
    tree: Tree
    control: np.ndarray
    scratch: np.ndarray


@arrays("int64[:, ::1]", "int64[:, ::1]", "int64")
class Plan(NamedTuple):
    """See the module's head. `trees`: the number of accumulators that are VALUES."""

    steps: np.ndarray
    results: np.ndarray
    trees: int


@arrays("int32[::1]", "int8[::1]", "int64[:, ::1]", "uint8[:, ::1]")
class GroupedColumns(NamedTuple):
    """n rows: their groups' codes, signs (1 comes, -1 goes), and for each of the columns the values and null flags."""

    codes: np.ndarray
    signs: np.ndarray
    values: np.ndarray
    nulls: np.ndarray


@kernel
def ordered_bits(bits: int) -> int:
    """The bits of a float as a number in its order: -0.0 is 0.0, all NaNs are equal and the greatest. `bits_of` is the inverse."""
    if (bits & ~SIGN) > INFINITY_BITS:
        return NAN_ORDER
    if bits >= 0:
        return bits
    return -(bits & ~SIGN)


@kernel
def bits_of(order: int) -> int:
    """The bits of the float with this place in the order."""
    if order == NAN_ORDER:
        return NAN_BITS
    if order >= 0:
        return order
    return (-order) | SIGN


@kernel
def bit_length(number: int) -> int:
    """The bit length of a number from 0 to 2**32 - 1."""
    length = 0
    for step in (16, 8, 4, 2, 1):
        if number >> step:
            length += step
            number >>= step
    return length + (number > 0)
