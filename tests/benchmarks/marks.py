"""Marks of the benchmarks' tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from structures.core.kernel import JIT


def compiled(test: Callable[..., None]) -> Callable[..., None]:
    """Run this test in the soak only: compiling these loops takes a minute."""
    return pytest.mark.skipif(not JIT, reason="the loops of the benchmarks are compiled")(pytest.mark.soak(test))
