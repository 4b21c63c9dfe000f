"""Compiled helpers: typed and lowered once for their callers, and compiled to machine code only in them.

Numba optimizes every function that it compiles and emits machine code for it and everything it calls. Our helpers are part of
other kernels, which link and optimize them again: half of the time of a cold start went into code that was never run. `HelperCompiler`
stops when a helper can be linked.

A call of a helper from Python, by a check or a class that reads a word or two, runs its source. So a helper has no defaults, as Numba would
hand over its own objects for them, and one that uses an intrinsic cannot be called so. It has no environment, either: it cannot print, or
raise exceptions with values from run time.

`CompiledElsewhere` hands the rest of a kernel to another process; the helpers that were lowered for it are kept for the next kernel.

It depends on Numba's compiler pipeline (`pipeline_class`) and on two of its classes, `NativeLowering` and `JITCodeLibrary`;
`tests/structures/core/test_kernel.py` shows what must hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder, _LowerResult
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


class _Library(JITCodeLibrary):
    """Code to be linked, neither optimized nor loaded for execution."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


_OURS = "_ZN10structures"  # prefix of this package's function names in the code; some of Numba's passes search for Numba's own names


class _KernelLibrary(JITCodeLibrary):
    """Code of a kernel, including its own copies of its helpers, which are inlined or stripped of unused arguments: most calls use little
    of a tuple of arrays. The copies are private, not internal, because the JIT's linker would find internal ones by name for other
    kernels."""

    def add_llvm_module(self, ll_module: Any) -> None:
        super().add_llvm_module(ll_module)
        self._exported = {function.name for function in self._final_module.functions}

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.name.startswith(_OURS) and not function.is_declaration and function.name not in self._exported:
                function.linkage = "private"
        super()._optimize_final_module()


class _Key:
    """The key by which callers find the code of a helper."""


@register_pass(mutates_CFG=True, analysis_only=False)
class _HelperLowering(NativeLowering):
    _name = "livejoin_helper_lowering"

    def run_pass(self, state: Any) -> bool:
        state.library = _Library(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = True  # no pointer to its code: it has none
        super().run_pass(state)
        lowered, key = state["cr"], _Key()
        state.targetctx.insert_user_function(key, lowered.fndesc, [state.library])
        state["cr"] = _LowerResult(lowered.fndesc, lowered.call_helper, cfunc=key, env=lowered.env)
        return True


class CompiledElsewhere(BaseException):
    """Raised when process `pid` takes over the compilation of a kernel."""

    def __init__(self, pid: int) -> None:
        super().__init__(pid)
        self.pid = pid


_divided: list[Callable[..., Any]] = []  # kernels to divide: at most one


def compile_divided(dispatcher: Any, arguments: Any) -> int:
    """Compile a kernel as `dispatcher.compile` does, but in a new process once the types of its variables are known and its helpers are
    lowered. Returns the process id, or 0: the kernel was in the cache, or this is the new process, and all is done. No other thread may
    compile meanwhile, and this process must have no other threads."""
    _divided.append(dispatcher.py_func)
    try:
        dispatcher.compile(arguments)
    except CompiledElsewhere as elsewhere:
        return elsewhere.pid
    finally:
        _divided.clear()
    return 0


@register_pass(mutates_CFG=True, analysis_only=False)
class _KernelLowering(NativeLowering):
    _name = "livejoin_kernel_lowering"

    def run_pass(self, state: Any) -> bool:
        if state.func_id.func in _divided and (pid := os.fork()):
            raise CompiledElsewhere(pid)
        state.library = _KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


class _Compiler(CompilerBase):
    lowering: type[NativeLowering]

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.passes = [(self.lowering if step is NativeLowering else step, words) for step, words in manager.passes]
        manager.finalize()
        return [manager]


class HelperCompiler(_Compiler):
    lowering = _HelperLowering


class KernelCompiler(_Compiler):
    lowering = _KernelLowering


def only_for_kernels(dispatcher: Any) -> None:
    """Make calls from Python run the helper's source: it has no code of its own."""

    def add_overload(compiled: Any) -> None:
        dispatcher.overloads[tuple(compiled.signature.args)] = compiled

    dispatcher.add_overload = add_overload
    dispatcher._compile_for_args = lambda *arguments, **named: dispatcher.py_func
