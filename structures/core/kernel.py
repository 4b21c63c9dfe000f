"""The decorator for compiled code, and its cache.

`@kernel` compiles a plain module-level function with Numba: GIL released, cached on disk. With a
signature the function is also listed, so that a service compiles all of them before the first request
unless they are in the cache (`service/warming.py`). Without one it is a helper
(`helpers.py`): part of the code of the kernels that call it, plain Python for all others. Nothing is
compiled at import.

Environment
    LIVEJOIN_JIT=off      kernels run as plain Python (coverage, tiny tests)
    LIVEJOIN_LEAF, LIVEJOIN_FANOUT   capacities of the trees' blocks (`arena.py`); tests shrink them
    LIVEJOIN_CACHE        folder of compiled code; default: `.cache` in the virtual environment. It need not be writable for what is in
                          it; what is not is then compiled into the user's cache, `~/.cache/livejoin`
    NUMBA_BOUNDSCHECK=1   Numba's own switch for checked indexing

Each room (`sources.py`) has a cache folder of its own, named by a hash of these settings, of its sources, and of those of all rooms
that it imports: an edited helper never leaves a stale caller behind, and rooms that do not use it are not compiled again. Kernels
defined elsewhere (in tests) depend on all of `structures`. In it a module has a folder by its name (`Locator`), so that an environment
that is copied or moved finds what was compiled in it. Numba tells processors apart: for more than one kind of them, fix NUMBA_CPU_NAME
and NUMBA_CPU_FEATURES.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np

from structures.core.sources import Sources

JIT = os.environ.get("LIVEJOIN_JIT", "on") != "off"
_SETTINGS = ("LIVEJOIN_LEAF", "LIVEJOIN_FANOUT", "NUMBA_BOUNDSCHECK")

_listed: list[tuple[Any, Any]] = []  # kernel, signature
_tuples: dict[type, Any] = {}  # Numba's types of them
T = TypeVar("T")

wide: Callable[[Any], int] = np.int64  # type: ignore[assignment]  # in kernels: the number with 64 bits
_sources = Sources(Path(__file__).parents[1])


@cache
def cache_folder(file: str) -> Path:
    """Return the folder of compiled code for kernels that this source file defines, with the current sources and settings."""
    room = _sources.room_of(file)
    digest = hashlib.sha256(_sources.digest(room))
    for name in _SETTINGS:
        digest.update(f"{name}={os.environ.get(name, '')}\n".encode())
    base = os.environ.get("LIVEJOIN_CACHE") or Path(sys.prefix) / ".cache" / "livejoin"
    return Path(base) / f"{room or 'outside'}-{digest.hexdigest()[:16]}"


if JIT:
    import numba
    from numba.core import types
    from numba.core.caching import UserProvidedCacheLocator

    from structures.core.helpers import HelperCompiler, KernelCompiler, compile_divided, only_for_kernels

    _placing = Lock()  # Numba's settings are the whole process's

    class Locator(UserProvidedCacheLocator):
        """Names the folder where Numba stores the compiled code of a function. Its own locators name a folder by the path of the sources,
        and refuse one that cannot be written."""

        def __init__(self, function: Callable[..., Any], file: str) -> None:
            super().__init__(function, file)
            if function.__module__.startswith("structures."):
                self._cache_path = os.path.join(numba.config.CACHE_DIR, function.__module__)

        def ensure_cache_path(self) -> None:
            if not Path(self.get_cache_path()).is_dir():
                super().ensure_cache_path()

    class UserLocator(Locator):
        """Stores code in the user's cache if the cache folder cannot be written."""

        def __init__(self, function: Callable[..., Any], file: str) -> None:
            super().__init__(function, file)
            folder = Path(numba.config.CACHE_DIR)
            self._cache_path = str(Path.home() / ".cache" / "livejoin" / folder.name / Path(self._cache_path).name)

    _LOCATORS = f"{__name__}.Locator,{__name__}.UserLocator"


def arrays(*kinds: str | type) -> Callable[[type[T]], type[T]]:
    """Decorate a NamedTuple of arrays that belong together, so that signatures may name it. `kinds`: the types of its fields, as in a
    signature, or other such NamedTuples.

    Kernels take such a tuple at no cost. A call from Python costs some 0.15 µs for each array in it (`compiled`): keep the tuple.
    """

    def register(tuple_class: type[T]) -> type[T]:
        if JIT:
            found = [eval(kind, vars(types)) if isinstance(kind, str) else _tuples[kind] for kind in kinds]
            same = found.count(found[0]) == len(found)  # Numba has a type of its own for these
            _tuples[tuple_class] = types.NamedUniTuple(found[0], len(found), tuple_class) if same else types.NamedTuple(found, tuple_class)
        return tuple_class

    return register


def kernel(signature: str | Callable[..., Any] | None = None, *, allocates: bool = False, **options: Any) -> Any:
    """Decorate a kernel; `signature` is Numba's text form, e.g. "int64(int64[::1], int32)"; it may name NamedTuples of `arrays`.

    Entry points (called from Python) have one, helpers do not. Use it bare (`@kernel`) for helpers.

    `allocates`: it makes arrays (copying a slice to another does, too), or gets them from a kernel. All others borrow: their caller holds
    the arguments, and Numba counts no references. Those atomic steps took half of the time in kernels that call many others. A kernel that
    borrows cannot return an array.
    """
    if callable(signature):
        return kernel()(signature)

    def decorate(function: Callable[..., Any]) -> Any:
        if not JIT:
            return function
        inlined = options.get("inline") == "always"  # by Numba, before it makes any code
        helper = {"pipeline_class": HelperCompiler, "no_cpython_wrapper": True}
        kept = helper if signature is None and not inlined else {"pipeline_class": KernelCompiler, "cache": True}
        with _placing:
            before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
            try:  # a kernel keeps the folder that is set where it is decorated
                numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = str(cache_folder(function.__code__.co_filename)), _LOCATORS
                dispatcher = numba.njit(nogil=True, _nrt=allocates, no_cfunc_wrapper=True, **kept, **options)(function)
            finally:
                numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = before
        _compile_once(dispatcher)
        if signature is not None:
            named = {name: _tuples[value] for name, value in function.__globals__.items() if isinstance(value, type) and value in _tuples}
            _listed.append((dispatcher, eval(signature, {**vars(types), **named})))
        elif not inlined:
            only_for_kernels(dispatcher)
        return dispatcher

    return decorate


if JIT:
    from llvmlite import ir
    from numba.core.cgutils import get_item_pointer2
    from numba.core.sigutils import normalize_signature
    from numba.extending import intrinsic

    def _compile_once(dispatcher: Any) -> None:
        """Compile a helper once for the kinds of its arguments, not again for each literal and each width of integer with which it is
        called.

        Numba does that for callees of other compiled code. It took half of the time of a cold start, and no kernel ran faster by it: small
        helpers are inlined, their literals with them.
        """
        resolve = dispatcher.get_call_template

        def plain(kind: Any) -> Any:
            kind = types.unliteral(kind)
            return types.int64 if kind == types.int32 else kind

        dispatcher.get_call_template = lambda args, kws: resolve(tuple(map(plain, args)), {name: plain(kind) for name, kind in kws.items()})

    @intrinsic
    def prefetch(typing_context: Any, array: Any, position: Any) -> Any:
        """Ask the processor for the cache line of array[place], of one dimension, without waiting for it."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = signature.args[0]
            a = context.make_array(kind)(context, builder, arguments[0])
            at = get_item_pointer2(context, builder, a.data, [a.nitems], [a.itemsize], "C", [arguments[1]])
            at = builder.bitcast(at, ir.IntType(8).as_pointer())
            i32 = ir.IntType(32)
            kinds = ir.FunctionType(ir.VoidType(), [at.type, i32, i32, i32])
            function = builder.module.declare_intrinsic("llvm.prefetch", [at.type], kinds)
            builder.call(function, [at, i32(0), i32(3), i32(1)])
            return context.get_dummy_value()

        return types.void(array, types.int64), generate

    @intrinsic
    def fence(typing_context: Any) -> Any:
        """Make other threads see the reads and writes before it before those after it. On x86 this restrains only the compiler."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            builder.fence("acq_rel")
            return context.get_dummy_value()

        return types.void(), generate

else:

    def prefetch(array: Any, position: int) -> None:
        pass

    def fence() -> None:
        pass


def load(dispatcher: Any, signature: Any) -> None:
    """Compile a listed kernel, or load it, as a call does: by the types of its arguments.

    Numba caches code compiled by a text signature under that text, where no call finds it: a process that was not warmed compiled it again.
    """
    arguments, _ = normalize_signature(signature)
    dispatcher.compile(arguments)


def load_divided(dispatcher: Any, signature: Any) -> int:
    """Do the same as `load`, but have a new process optimize and store the code. Returns the result of `compile_divided`."""
    arguments, _ = normalize_signature(signature)
    return compile_divided(dispatcher, arguments)


@cache
def compiled(dispatcher: Any) -> Any:
    """Return the code of a listed kernel, to be called without the inspection of its arguments, which takes microseconds for tuples of
    arrays: they must match its signature, and be contiguous (`contiguous`)."""
    if not JIT:
        return dispatcher
    (arguments,) = (normalize_signature(signature)[0] for listed, signature in _listed if listed is dispatcher)
    return dispatcher.compile(arguments)


def contiguous(kinds: tuple[type, ...], arrays: tuple[Any, ...]) -> None:
    """Raise TypeError unless the arrays are contiguous and of these kinds."""
    for kind, array in zip(kinds, arrays, strict=True):
        if array.dtype.type is not kind or not array.flags.c_contiguous:
            raise TypeError(f"a contiguous array of {kind.__name__} is needed, not of {array.dtype} with strides {array.strides}")


def require_columns(kinds: tuple[type, ...], columns: tuple[Any, ...]) -> None:
    """Do the same as `contiguous`; raise ValueError unless the columns have one length."""
    contiguous(kinds, columns)
    if len({len(column) for column in columns}) != 1:
        raise ValueError(f"columns have different lengths: {', '.join(str(len(column)) for column in columns)}")


def is_cached() -> bool:
    """Return whether the cache has all listed kernels, in their current form, for this processor: each is then loaded in some ten
    milliseconds.

    It looks in Numba's index of each for what a call would look for. Cost: some ten milliseconds.
    """
    if not _listed:
        return True
    codegen = numba.core.registry.cpu_target.target_context.codegen()
    for dispatcher, signature in _listed:
        cache = dispatcher._cache
        arguments, _ = normalize_signature(signature)
        name = cache._cache_file._load_index().get(cache._index_key(arguments, codegen))
        if name is None or not Path(cache._cache_file._data_path(name)).exists():
            return False
    return True
