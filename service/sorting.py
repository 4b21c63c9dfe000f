"""Which of numpy's implementations of sorting a process uses: chosen before numpy is imported, also for its children."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_DISABLED = "NPY_DISABLE_CPU_FEATURES"
_AVX512 = "X86_V4 AVX512_ICL AVX512_SPR"  # numpy's names since 2.4; earlier releases ignore them


def avoid_slow_sorts() -> None:
    """Have numpy sort without AVX-512 on AMD's Zen 4 processors, where that takes several times as long as with AVX2: the instruction that
    stores some lanes to memory is microcode there (github.com/numpy/x86-simd-sort, issue 6). This applies to what imports numpy afterwards:
    this process, and those that it starts. No effect on other processors, or if the environment says what numpy must not use. Linux only,
    numpy 2.4 or newer."""
    if sys.platform != "linux" or _DISABLED in os.environ:
        return
    with suppress(OSError), _CPUINFO.open() as lines:
        if has_slow_sorts(lines):
            os.environ[_DISABLED] = _AVX512


def has_slow_sorts(lines: Iterable[str]) -> bool:
    """Whether the first processor in /proc/cpuinfo is of AMD's family 19h (Zen 3, Zen 4) and has AVX-512 (Zen 4)."""
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        if not name.strip():
            break
        found[name.strip()] = value.split()
    return found.get("vendor_id") == ["AuthenticAMD"] and found.get("cpu family") == ["25"] and "avx512f" in found.get("flags", [])
