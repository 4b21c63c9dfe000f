"""Exact sums of float64: a sum is an integer multiple of 2**-1074, in signed limbs of 32 bits, rounded once when it is reported.

    limb i weighs 2**(32 i); a group has an extent of 8, 16, 32 or 72 limbs, from limb LOW on, at START in the store
    a limb is an int64: an addition changes three of them, by less than 2**33 each, and carries nothing; after 2**30 additions, and before
    the sum is reported, all but the top one are normalised to [-2**31, 2**31)

So a sum depends only on the rows that are there, not on the order of changes, including deletes. Amounts of money, which differ by a few
orders of magnitude, need an extent of 8 limbs, 10**308 beside 5 * 10**-324 one of 72; a group keeps its largest extent until it has no
rows.

Costs: an addition O(1), about 10 ns; reporting a sum O(limbs); a larger extent O(limbs), at most three times.
Source: Kulisch's long accumulator; lazy carries as in Neal, Fast exact summation using small and large superaccumulators (2015).
"""

from __future__ import annotations

from typing import Any

from structures.aggregate.layout import INFINITY_BITS, LOW32, NAN_BITS, SIGN, WORD32, Limbs, bit_length
from structures.core.kernel import kernel

LIMBS = 72  # 2098 bits of a float, 62 of a count of rows, and the excess of a limb that is not normalised
SIZES = 8, 16, 32, LIMBS
QUOTIENT_DIGITS = 6  # below those of a sum: what two divisors of 62 bits take off, and 53 bits with what decides how they are rounded
USED, FREE, LIMB_WORDS = 0, 1, 1 + len(SIZES)  # of `control`: limbs used, and for each size the first free extent; these are linked
START, LOW, SIZE, ADDED, NAN, PLUS, MINUS = range(7)  # words of an accumulator
_MOST_ADDED = 1 << 30
_HALF, _FRACTION = 1 << 31, (1 << 52) - 1
_ROOM = 4  # limbs that an addition may need: three, and one for the carries


@kernel
def add_float(cells: Any, code: int, w: int, limbs: Limbs, bits: int, sign: int) -> None:
    """Add the float with these bits (`sign` 1), or subtract it (-1)."""
    exponent, fraction = (bits >> 52) & 0x7FF, bits & _FRACTION
    if exponent == 0x7FF:
        cells[code, w + (NAN if fraction else MINUS if bits < 0 else PLUS)] += sign
        return
    if exponent == 0:
        if fraction == 0:
            return
        exponent = 1
    else:
        fraction |= 1 << 52
    if bits < 0:
        sign = -sign
    first, shift = (exponent - 1) >> 5, (exponent - 1) & 31
    low, size = cells[code, w + LOW], cells[code, w + SIZE]
    if size == 0 or first < low or first + _ROOM > low + size:
        _extend(cells, code, w, limbs, first)
    at = cells[code, w + START] + first - cells[code, w + LOW]
    lower, upper = (fraction & LOW32) << shift, (fraction >> 32) << shift
    store = limbs.store
    store[at] += sign * (lower & LOW32)
    store[at + 1] += sign * ((lower >> 32) + (upper & LOW32))
    store[at + 2] += sign * (upper >> 32)
    cells[code, w + ADDED] += 1
    if cells[code, w + ADDED] >= _MOST_ADDED:
        carry(cells, code, w, limbs)


@kernel
def carry(cells: Any, code: int, w: int, limbs: Limbs) -> None:
    """Normalise all limbs but the top one to [-2**31, 2**31)."""
    store, start, size = limbs.store, cells[code, w + START], cells[code, w + SIZE]
    over = start * 0
    for i in range(start, start + size - 1):
        limb = store[i] + over
        over = (limb + _HALF) >> 32
        store[i] = limb - (over << 32)
    if size:
        store[start + size - 1] += over
    cells[code, w + ADDED] = 0


@kernel
def _extend(cells: Any, code: int, w: int, limbs: Limbs, first: int) -> None:
    """Give the group an extent with room for its sum, and for an addition from limb `first` on."""
    store = limbs.store
    start, low, size = cells[code, w + START], cells[code, w + LOW], cells[code, w + SIZE]
    bottom, top = first, first + _ROOM
    a, z = size * 0, size
    if size:
        carry(cells, code, w, limbs)
        while a < z and store[start + a] == 0:
            a += 1
        while z > a and store[start + z - 1] == 0:
            z -= 1
        if a < z:
            bottom, top = min(bottom, low + a), max(top, low + z + 1)
    kind = 0
    while SIZES[kind] < top - bottom:
        kind += 1
    new_size = SIZES[kind]
    new_low = max(0, min(bottom - (new_size - (top - bottom)) // 2, LIMBS - new_size))
    new = _take(limbs, kind)
    for i in range(new, new + new_size):
        store[i] = 0
    for i in range(a, z):
        store[new + low + i - new_low] = store[start + i]
    give_back(cells, code, w, limbs)
    cells[code, w + START], cells[code, w + LOW], cells[code, w + SIZE] = new, new_low, new_size


@kernel
def _take(limbs: Limbs, kind: int) -> int:
    """Allocate an extent."""
    store, control = limbs
    start = control[FREE + kind]
    if start:
        control[FREE + kind] = store[start]
        return start
    start = control[USED]
    control[USED] += SIZES[kind]
    return start


@kernel
def give_back(cells: Any, code: int, w: int, limbs: Limbs) -> None:
    """Free the group's extent."""
    store, control = limbs
    size = cells[code, w + SIZE]
    if size:
        kind = 0
        while SIZES[kind] < size:
            kind += 1
        start = cells[code, w + START]
        store[start] = control[FREE + kind]
        control[FREE + kind] = start
    for i in range(START, ADDED + 1):
        cells[code, w + i] = 0


@kernel
def float_sum(cells: Any, code: int, w: int, limbs: Limbs, digits: Any, divisors: tuple[int, int]) -> int:
    """The bits of the sum, divided by both divisors (from 1 to 2**62), rounded once."""
    nan, plus, minus = cells[code, w + NAN], cells[code, w + PLUS], cells[code, w + MINUS]
    if nan > 0 or (plus > 0 and minus > 0):
        return NAN_BITS
    if plus > 0:
        return INFINITY_BITS
    if minus > 0:
        return INFINITY_BITS | SIGN
    store, start, size = limbs.store, cells[code, w + START], cells[code, w + SIZE]
    carry(cells, code, w, limbs)
    top = size - 1
    while top >= 0 and store[start + top] == 0:
        top -= 1
    if top < 0:
        return 0
    sign = 1 if store[start + top] > 0 else -1
    over = start * 0
    for i in range(size):
        limb = sign * store[start + i] + over
        digits[i] = limb & LOW32
        over = limb >> 32
    digits[size] = over
    low = cells[code, w + LOW]
    bits = quotient(digits, size + 1, low, divisors)
    return bits | SIGN if sign < 0 else bits


@kernel
def quotient(digits: Any, n: int, low: int, divisors: tuple[int, int]) -> int:
    """The bits of sum(digits[i] * 2**(32 (low + i))) * 2**-1074 / divisors, rounded once. Overwrites `digits`, which has room for
    QUOTIENT_DIGITS more."""
    more, rest = 0, False
    if divisors[0] > 1 or divisors[1] > 1:
        more = min(QUOTIENT_DIGITS, low + 1)
        for i in range(n - 1, -1, -1):
            digits[i + more] = digits[i]
        for i in range(more):
            digits[i] = 0
        n += more
        for divisor in divisors:
            if divisor > 1:
                rest |= _divide(digits, n, divisor)
    return rounded(digits, n, 32 * (low - more), rest)


@kernel
def _divide(digits: Any, n: int, divisor: int) -> bool:
    """Divide in place. Returns whether there is a remainder."""
    rest = divisor * 0
    if divisor < _HALF:
        for i in range(n - 1, -1, -1):
            whole = (rest << 32) | digits[i]
            digits[i] = whole // divisor
            rest = whole - digits[i] * divisor
        return rest != 0
    for i in range(n - 1, -1, -1):
        digit, found = digits[i], divisor * 0
        for bit in range(31, -1, -1):
            rest = (rest << 1) | ((digit >> bit) & 1)
            found <<= 1
            if rest >= divisor:
                rest -= divisor
                found |= 1
        digits[i] = found
    return rest != 0


@kernel
def rounded(digits: Any, n: int, exponent: int, rest: bool) -> int:
    """The bits of the float nearest to sum(digits[i] * 2**(32 i)) * 2**(exponent - 1074), ties to even; `rest`: whether there is a
    remainder below the last digit. Digits from 0 to 2**32 - 1; exponent >= -32, and a multiple of 32 if it is below 64."""
    h = n - 1
    while h >= 0 and digits[h] == 0:
        h -= 1
    if h < 0:
        return 0
    length = bit_length(digits[h])
    top = exponent + 32 * h + length - 1  # place of the highest bit; the last place of the result is top - 52, but not below 0
    if top < 52:
        whole = digits[0] * 0
        for i in range(h + 1):
            if exponent + 32 * i >= 0:
                whole += digits[i] << (exponent + 32 * i)
        if exponent < 0 and (digits[0] > _HALF or (digits[0] == _HALF and (rest or whole & 1))):
            whole += 1
        return whole
    d2, d1, d0 = digits[h], digits[h - 1] if h > 0 else 0, digits[h - 2] if h > 1 else 0
    for i in range(h - 2):
        rest |= digits[i] != 0
    if length > 21:  # leave 21 bits of the highest digit, which makes 53 with the next one
        r = length - 21
        mask = (1 << r) - 1
        upper, below = d2 >> r, ((d1 & mask) << (32 - r)) | (d0 >> r)
        lower = ((d2 & mask) << (32 - r)) | (d1 >> r)
        rest |= (d0 & mask) != 0
    else:
        s = 21 - length
        upper, below = (d2 << s) | (d1 >> (32 - s)), (d0 << s) & LOW32
        lower = ((d1 << s) & LOW32) | (d0 >> (32 - s))
    mantissa = upper * WORD32 + lower
    if below > _HALF or (below == _HALF and (rest or mantissa & 1)):
        mantissa += 1
    if top > 2097:
        return INFINITY_BITS
    return ((top - 52) << 52) + mantissa
