"""What every kernel must keep, whatever it computes."""

from __future__ import annotations

import importlib
import pkgutil
import re

import numpy as np
import pytest

import structures
from structures.core.kernel import JIT, _listed, kernel, load

pytestmark = pytest.mark.skipif(not JIT, reason="with the JIT off kernels are plain functions")


def test_kernels_that_borrow_neither_return_nor_receive_arrays():
    from numba.core.dispatcher import Dispatcher

    modules = [importlib.import_module(one.name) for one in pkgutil.walk_packages(structures.__path__, "structures.")]
    kernels = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Dispatcher)}
    listed = {id(dispatcher): signature for dispatcher, signature in _listed}

    def gives_arrays(dispatcher):
        signature = listed.get(id(dispatcher))
        returned = dispatcher.py_func.__annotations__.get("return") or str(signature.return_type if signature else "")
        return re.search(r"Any|[Aa]rray|\[:", returned) is not None

    assert len(kernels) > 200
    counted = 0
    for dispatcher in kernels.values():
        function = dispatcher.py_func
        called = [function.__globals__.get(name) for name in function.__code__.co_names]
        if any(gives_arrays(one) for one in (dispatcher, *called) if isinstance(one, Dispatcher)):
            assert dispatcher.targetoptions["_nrt"], f"{function.__module__}.{function.__name__} must be @kernel(allocates=True)"
            counted += 1
    assert counted > 5


def test_a_call_finds_what_was_compiled_ahead(tmp_path, monkeypatch):
    """Of another process: the one that warms the cache is not the one that calls."""
    monkeypatch.setattr("structures.core.kernel.cache_folder", lambda file: tmp_path)
    monkeypatch.setattr("structures.core.kernel._listed", [])

    def made():
        @kernel("int64(int64[::1], boolean)")
        def first_of(numbers, negative):
            return -numbers[0] if negative else numbers[0]

        return first_of

    ahead, called = made(), made()
    load(ahead, "int64(int64[::1], boolean)")
    assert called(np.array([5]), True) == -5
    assert sum(called.stats.cache_hits.values()) == 1 and not called.stats.cache_misses


def test_a_kernel_that_borrows_cannot_allocate(monkeypatch):
    from numba.core.errors import NumbaError

    monkeypatch.setattr("structures.core.kernel._listed", [])  # a test that warms all kernels may come after it

    @kernel("int64(int64)")
    def makes_one(n):
        return np.empty(n, np.int64)[0]

    with pytest.raises(NumbaError, match="array passed into the function|NRT required"):
        makes_one(3)


def test_a_helper_is_part_of_its_callers_and_python_for_all_others(tmp_path, monkeypatch):
    """It was optimized, made into machine code and kept for itself, too: half of a cold start, for code that nobody ran."""
    monkeypatch.setattr("structures.core.kernel.cache_folder", lambda file: tmp_path)
    monkeypatch.setattr("structures.core.kernel._listed", [])

    @kernel
    def twice(n):
        return 2 * n

    @kernel
    def square_of_twice(n):
        return twice(n) * twice(n)

    @kernel("int64(int64)")
    def one_more(n):
        return square_of_twice(n) + 1

    assert one_more(3) == 37
    (compiled,) = square_of_twice.overloads.values()
    assert compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name) == 0
    assert {file.name.split("-")[0].rsplit(".", 1)[-1] for file in tmp_path.rglob("*.nb?")} == {"one_more"}
    assert twice("ab") == "abab", "not compiled"


def test_nobody_else_finds_the_helpers_of_a_kernel(tmp_path, monkeypatch):
    """They lost arguments that they do not use: a call from another kernel, linked by the name, would go wrong."""
    from structures.rows.retired import _sift

    monkeypatch.setattr("structures.core.kernel.cache_folder", lambda file: tmp_path)
    monkeypatch.setattr("structures.core.kernel._listed", [])
    signature = "int64(int32[::1], int64[::1], int64[::1], int64[::1], int64[::1], int32[::1], int64[::1])"
    again = kernel(signature)(_sift.py_func)
    load(again, signature)
    (made,) = again.overloads.values()
    functions = [one for one in made.library._final_module.functions if not one.is_declaration and "structures" in one.name]
    assert [one.name for one in functions if "_sift" not in one.name and one.linkage.name != "private"] == []
    assert any("_sift" in one.name and one.linkage.name != "private" for one in functions)
