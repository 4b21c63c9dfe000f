"""Words as sets of up to 64 positions: the lowest and the highest bit, the number of bits; comparing or copying eight or sixteen entries at
once; searching ascending numbers in this way; words moved."""

from __future__ import annotations

from typing import Any

import numpy as np

from structures.core.kernel import JIT, kernel, wide

LANES = 8

if JIT:
    from llvmlite import ir
    from numba.core import types
    from numba.core.cgutils import get_item_pointer2
    from numba.extending import intrinsic

    @intrinsic
    def lowest(typing_context: Any, mask: Any) -> Any:
        """Return the place of the lowest bit set in an int64, which is not 0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

        return types.int64(types.int64), generate

    @intrinsic
    def highest(typing_context: Any, mask: Any) -> Any:
        """Return the place of the highest bit set in an int64, which is not 0."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.sub(ir.Constant(ir.IntType(64), 63), builder.ctlz(arguments[0], context.get_constant(types.boolean, True)))

        return types.int64(types.int64), generate

    @intrinsic
    def count_bits(typing_context: Any, mask: Any) -> Any:
        """Return the number of bits set in an int64."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.int64(types.int64), generate

    def _lanes(context: Any, builder: Any, kind: Any, array: Any, position: Any, lanes: int = LANES) -> Any:
        """Return the items of the array from `position` on as a vector, whatever they are."""
        a = context.make_array(kind)(context, builder, array)
        at = get_item_pointer2(context, builder, a.data, [a.nitems], [a.itemsize], "C", [position])
        loaded = builder.load(builder.bitcast(at, ir.VectorType(ir.IntType(kind.dtype.bitwidth), lanes).as_pointer()))
        loaded.align = kind.dtype.bitwidth // 8
        return loaded

    def _spread(builder: Any, value: Any, lanes: int = LANES) -> Any:
        """Return a vector with the value in all lanes."""
        one = builder.insert_element(ir.Constant(ir.VectorType(value.type, lanes), ir.Undefined), value, ir.IntType(32)(0))
        return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes))

    def _as_bits(builder: Any, flags: Any) -> Any:
        return builder.zext(builder.bitcast(flags, ir.IntType(flags.type.count)), ir.IntType(64))

    def _compare8(comparison: str, array: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = _lanes(context, builder, signature.args[0], arguments[0], arguments[1])
            return _as_bits(builder, builder.icmp_signed(comparison, lanes, _spread(builder, arguments[2])))

        return types.int64(array, types.int64, array.dtype), generate

    @intrinsic
    def below8(typing_context: Any, array: Any, p: Any, value: Any) -> Any:
        """Return the c in 0..7 with array[p + c] < value, as bits; all eight are read, whatever is there."""
        return _compare8("<", array)

    @intrinsic
    def at_most8(typing_context: Any, array: Any, p: Any, value: Any) -> Any:
        """Return the c in 0..7 with array[p + c] <= value, as bits; all eight are read, whatever is there."""
        return _compare8("<=", array)

    @intrinsic
    def within8(typing_context: Any, array: Any, p: Any, most: Any, q: Any, least: Any) -> Any:
        """Return the c in 0..7 with array[p + c] <= most and array[q + c] >= least, as bits; all are read, whatever is there."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = signature.args[0]
            low, high = (_lanes(context, builder, kind, arguments[0], position) for position in (arguments[1], arguments[3]))
            low = builder.icmp_signed("<=", low, _spread(builder, arguments[2]))
            high = builder.icmp_signed(">=", high, _spread(builder, arguments[4]))
            return _as_bits(builder, builder.and_(low, high))

        return types.int64(array, types.int64, types.int64, types.int64, types.int64), generate

    @intrinsic
    def equal16(typing_context: Any, array: Any, p: Any, value: Any) -> Any:
        """Return the c in 0..15 with array[p + c] == value, as bits; all sixteen are read, whatever is there."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = _lanes(context, builder, signature.args[0], arguments[0], arguments[1], 2 * LANES)
            return _as_bits(builder, builder.icmp_signed("==", lanes, _spread(builder, arguments[2], 2 * LANES)))

        return types.int64(array, types.int64, array.dtype), generate

    @intrinsic
    def with_bit16(typing_context: Any, array: Any, p: Any, b: Any) -> Any:
        """Return the c in 0..15 for which array[p + c] has bit b, as bits; all sixteen are read, whatever is there."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = _lanes(context, builder, signature.args[0], arguments[0], arguments[1], 2 * LANES)
            chosen = builder.and_(lanes, _spread(builder, builder.shl(arguments[2].type(1), arguments[2]), 2 * LANES))
            return _as_bits(builder, builder.icmp_signed("!=", chosen, ir.Constant(lanes.type, None)))

        return types.int64(array, types.int64, array.dtype), generate

    @intrinsic
    def copy16(typing_context: Any, target: Any, q: Any, array: Any, p: Any) -> Any:
        """Set target[q + c] = array[p + c] for c in 0..15, for items of one kind; all sixteen are written, whatever is there."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = _lanes(context, builder, signature.args[2], arguments[2], arguments[3], 2 * LANES)
            _store(context, builder, signature.args[0], arguments[0], arguments[1], lanes)
            return context.get_dummy_value()

        return types.void(target, types.int64, array, types.int64), generate

    def _store(context: Any, builder: Any, kind: Any, array: Any, position: Any, lanes: Any) -> None:
        a = context.make_array(kind)(context, builder, array)
        at = get_item_pointer2(context, builder, a.data, [a.nitems], [a.itemsize], "C", [position])
        builder.store(lanes, builder.bitcast(at, lanes.type.as_pointer())).align = kind.dtype.bitwidth // 8

    def _widening(width: int) -> Any:
        @intrinsic
        def widen(typing_context: Any, target: Any, q: Any, source: Any, p: Any, shift: Any, mask: Any, high: Any) -> Any:
            def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                bytes_ = _lanes(context, builder, signature.args[2], arguments[2], arguments[3], 2 * LANES * width)
                lanes = builder.bitcast(bytes_, ir.VectorType(ir.IntType(8 * width), 2 * LANES))
                lanes = lanes if width == 4 else builder.zext(lanes, ir.VectorType(ir.IntType(32), 2 * LANES))
                shift, mask, high = (_spread(builder, value, 2 * LANES) for value in arguments[4:])
                lanes = builder.or_(builder.and_(builder.lshr(lanes, shift), mask), high)
                _store(context, builder, signature.args[0], arguments[0], arguments[1], lanes)
                return context.get_dummy_value()

            return types.void(target, types.int64, source, types.int64, types.int32, types.int32, types.int32), generate

        return widen

else:

    def lowest(mask: int) -> int:
        return int(mask & -mask).bit_length() - 1

    def highest(mask: int) -> int:
        return int(mask).bit_length() - 1

    def count_bits(mask: int) -> int:
        return int(mask).bit_count()

    def below8(array: Any, p: int, value: int) -> int:
        return sum(1 << c for c in range(LANES) if array[p + c] < value)

    def at_most8(array: Any, p: int, value: int) -> int:
        return sum(1 << c for c in range(LANES) if array[p + c] <= value)

    def within8(array: Any, p: int, most: int, q: int, least: int) -> int:
        return sum(1 << c for c in range(LANES) if array[p + c] <= most and array[q + c] >= least)

    def equal16(array: Any, p: int, value: int) -> int:
        return sum(1 << c for c in range(2 * LANES) if p + c < len(array) and array[p + c] == value)

    def with_bit16(array: Any, p: int, b: int) -> int:
        return sum(1 << c for c in range(2 * LANES) if p + c < len(array) and array[p + c] >> b & 1)

    def copy16(target: Any, q: int, array: Any, p: int) -> None:
        n = min(2 * LANES, len(target) - q, len(array) - p)
        target[q : q + n] = array[p : p + n]

    def _widening(width: int) -> Any:
        def widen(target: Any, q: int, source: Any, p: int, shift: int, mask: int, high: int) -> None:
            n = min(2 * LANES, len(target) - q)
            target[q : q + n] = source[p : p + n * width].view(f"<u{width}").astype("int64") >> shift & mask | high

        return widen


# target[q + c] = (number c >> shift) & mask | high, for c in 0..15; the numbers have 1, 2 or 4 bytes each, from source[p] (uint8) on.
widen16_1, widen16_2, widen16_4 = (_widening(width) for width in (1, 2, 4))


@kernel(forceinline=True)
def equals(array: Any, p: int, end: int, value: int) -> tuple[int, int]:
    """Return the range of the numbers equal to the value among the ascending numbers in [p, end): the first place, and the one behind the
    last. Up to LANES items behind the end are read, whatever is there."""
    others = wide(0)
    while p < end and others == 0:
        others = ~below8(array, p, value) & (2**LANES - 1)
        p += LANES if others == 0 else lowest(others)
    low = p = min(p, end)
    others = 0
    while p < end and others == 0:
        others = ~at_most8(array, p, value) & (2**LANES - 1)
        p += LANES if others == 0 else lowest(others)
    return low, min(p, end)


@kernel(forceinline=True)
def move_words(words: Any, source: int, target: int, n: int) -> None:
    """Copy n words of an array to another place, which may overlap; vectorised, as unsigned places need no check of their sign."""
    a, b = np.uint64(source), np.uint64(target)
    if target > source:
        for i in range(n, 0, -1):
            words[b + np.uint64(i - 1)] = words[a + np.uint64(i - 1)]
    else:
        for i in range(np.uint64(max(n, 0))):
            words[b + i] = words[a + i]
