"""The lowest bit of a word and the number of its bits, each as one instruction."""

from __future__ import annotations

from typing import Any

from structures.kernel import JIT

if JIT:
    from numba.core import types
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

else:

    def lowest(mask: int) -> int:
        return int(mask & -mask).bit_length() - 1

    def count_bits(mask: int) -> int:
        return int(mask).bit_count()
