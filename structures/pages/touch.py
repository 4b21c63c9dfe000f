"""Touch memory that others may be writing.

A page is allocated when it is first written. `madvise(MADV_POPULATE_WRITE)` allocates it too, but holds the lock of the address space while
the system looks for a page: on a virtual machine, no other thread could map or unmap memory for 39 ms, as long as it took to allocate a
large page. A page fault does not hold it. An atomic compare-and-exchange of 0 with 0 is a write to the processor, and changes nothing,
whatever others write meanwhile.
"""

from __future__ import annotations

from typing import Any

from structures.core.kernel import JIT, compiled, kernel

STEP = 4096  # bytes of a page


def whole(bytes: int) -> int:
    """Round up to a multiple of a page: an address to a boundary, or a size to that of the pages that hold it."""
    return -(-bytes // STEP) * STEP


if JIT:
    from llvmlite import ir
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic
    def exchange_nothing(typing_context: Any, address: Any) -> Any:
        """Replace 0 by 0 at an address that is a multiple of 8, atomically."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            word, zero = ir.IntType(64), ir.Constant(ir.IntType(64), 0)
            builder.cmpxchg(builder.inttoptr(arguments[0], word.as_pointer()), zero, zero, "monotonic", "monotonic")
            return context.get_dummy_value()

        return types.void(types.int64), generate

else:

    def exchange_nothing(address: int) -> None:
        pass


@kernel("void(int64, int64)")
def touch_pages(first: int, end: int) -> None:
    """Touch each page in [first, end), addresses of mapped memory that are multiples of its size. O(pages)."""
    for address in range(first, end, STEP):
        exchange_nothing(address)


def touch(address: int, size: int) -> None:
    """Have the system allocate the pages of `size` bytes from this address on, both multiples of a page; what they hold does not
    change. Without compiled kernels nothing is done. Releases the interpreter's lock."""
    if JIT:
        compiled(touch_pages)(address, address + size)
