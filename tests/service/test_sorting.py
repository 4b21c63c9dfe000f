"""The service avoids numpy's slow sorts: on which processors, and that this happens before numpy is imported."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from service import sorting
from service.sorting import has_slow_sorts
from tests.server_process import ROOT


def _cpuinfo(vendor: str, family: int, flags: str) -> list[str]:
    """Two processors, of which the first is described by the arguments."""
    one = ["processor\t: 0\n", f"vendor_id\t: {vendor}\n", f"cpu family\t: {family}\n", f"flags\t\t: {flags}\n", "bugs\t\t:\n", "\n"]
    return [*one, "vendor_id\t: AuthenticAMD\n", "cpu family\t: 25\n", "flags\t\t: avx2 avx512f\n"]


@pytest.mark.parametrize(
    ("vendor", "family", "flags", "slow"),
    [
        ("AuthenticAMD", 25, "fpu avx2 avx512f avx512dq", True),  # Zen 4
        ("AuthenticAMD", 25, "fpu avx2", False),  # Zen 3
        ("AuthenticAMD", 26, "fpu avx2 avx512f avx512dq", False),  # Zen 5
        ("GenuineIntel", 25, "fpu avx2 avx512f avx512dq", False),
    ],
)
def test_on_which_processors_sorts_are_slow(vendor: str, family: int, flags: str, slow: bool) -> None:
    assert has_slow_sorts(_cpuinfo(vendor, family, flags)) == slow


def test_other_systems_describe_no_processor() -> None:
    assert not has_slow_sorts([])


# Runs a command that imports numpy; prints whether numpy was there when the processor was looked at, and the variable afterwards.
_COMMAND = """
import os, sys, service.cli, service.sorting
looked = []
def has_slow_sorts(lines):
    looked.append("numpy" in sys.modules)
    return {slow}
service.sorting.has_slow_sorts = has_slow_sorts
service.cli.main(["check", "nowhere"])
print(looked, "numpy" in sys.modules, os.environ.get("NPY_DISABLE_CPU_FEATURES"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux describes the processor in /proc/cpuinfo")
@pytest.mark.parametrize(
    ("slow", "given", "expected"), [(True, None, sorting._AVX512), (False, None, "None"), (True, "AVX512_SPR", "AVX512_SPR")]
)
def test_commands_choose_before_numpy_is_imported(slow: bool, given: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != sorting._DISABLED}
    if given is not None:
        environment[sorting._DISABLED] = given
    program = _COMMAND.format(slow=slow)
    found = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    looked = [] if given else [False]
    assert found.stdout.splitlines()[-1] == f"{looked} True {expected}"
