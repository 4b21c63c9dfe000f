"""Words as sets of up to 64 places: the lowest bit, the number of bits, and eight entries compared at once."""

from __future__ import annotations

from typing import Any

from structures.kernel import JIT

LANES = 8

if JIT:
    from llvmlite import ir
    from numba.core import types
    from numba.core.cgutils import get_item_pointer2
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def lowest(typing_context: Any, mask: Any) -> Any:
        """The place of the lowest bit set in an int64; there is one."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.cttz(arguments[0], context.get_constant(types.boolean, True))

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def count_bits(typing_context: Any, mask: Any) -> Any:
        """How many bits of an int64 are set."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.ctpop(arguments[0])

        return types.int64(types.int64), generate

    @intrinsic  # type: ignore[untyped-decorator]
    def within8(typing_context: Any, array: Any, p: Any, most: Any, q: Any, least: Any) -> Any:
        """The c in 0..7 with array[p + c] <= most and array[q + c] >= least, as bits; all are read, whatever is there."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = signature.args[0]
            a = context.make_array(kind)(context, builder, arguments[0])
            lanes = ir.VectorType(ir.IntType(64), LANES)

            def load(place: Any) -> Any:
                at = get_item_pointer2(context, builder, a.data, [a.nitems], [a.itemsize], "C", [place])
                loaded = builder.load(builder.bitcast(at, lanes.as_pointer()))
                loaded.align = 8
                return loaded

            def spread(value: Any) -> Any:
                one = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, ir.IntType(32)(0))
                return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))

            low = builder.icmp_signed("<=", load(arguments[1]), spread(arguments[2]))
            high = builder.icmp_signed(">=", load(arguments[3]), spread(arguments[4]))
            bits = builder.bitcast(builder.and_(low, high), ir.IntType(LANES))
            return builder.zext(bits, ir.IntType(64))

        return types.int64(array, types.int64, types.int64, types.int64, types.int64), generate

else:

    def lowest(mask: int) -> int:
        return int(mask & -mask).bit_length() - 1

    def count_bits(mask: int) -> int:
        return int(mask).bit_count()

    def within8(array: Any, p: int, most: int, q: int, least: int) -> int:
        return sum(1 << c for c in range(LANES) if array[p + c] <= most and array[q + c] >= least)
