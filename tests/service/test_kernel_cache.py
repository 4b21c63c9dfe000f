"""A read-only cache of compiled kernels, as in an image with a read-only root file system."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import ROOT

# The superuser can write everywhere, unless this capability is dropped.
BOUNDED = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override"] if os.geteuid() == 0 else []
PROGRAM = """
import os
import signal
import sys
from service import warming
from structures.core import helpers, kernel

def once(number):
    return number

def twice(number):
    return 2 * number

def thrice(number):
    return 3 * number

warming.import_all = lambda: None
kernel._listed.clear()
for function in (once, twice, thrice):
    kernel.kernel(sys.argv[1])(function)
warming._COMMAND = (sys.executable, *sys.argv, "compile")
if sys.argv[3:] == ["compile"]:
    class Library(helpers._KernelLibrary):
        def _optimize_final_module(self):
            if sys.argv[2] in self.name:
                os.kill(os.getpid(), signal.SIGKILL)
            super()._optimize_final_module()

    helpers._KernelLibrary = Library
    warming._compile_on_demand()
    sys.exit()
print(kernel.is_cached())
warming.warm(lambda done, total: print("compiled", done, "of", total))
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """The folder; it is made writable again so that it can be removed."""
    folder = tmp_path / "cache"
    yield folder
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)


def warm(cache: Path, signature: str = "int64(int64)", killed: str = "none", **variables: str) -> subprocess.CompletedProcess[str]:
    """Compile or load three kernels in a separate process; the process that optimizes the kernel `killed` is killed."""
    program = cache.with_name("program.py")
    program.write_text(PROGRAM)
    environment = os.environ | {"LIVEJOIN_CACHE": str(cache), "PYTHONPATH": str(ROOT), **variables}
    command = [*BOUNDED, sys.executable, str(program), signature, killed]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def close(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o555)


def test_what_is_in_it_is_used_and_what_is_missing_is_an_error(cache: Path) -> None:
    said = warm(cache).stdout.splitlines()  # two kernels may be finished at the same time
    assert said[0] == "False" and said[-1] == "compiled 3 of 3" and said[1:] == sorted(set(said[1:]))
    assert set(said[1:]) <= {f"compiled {done} of 3" for done in (1, 2, 3)}
    close(cache)
    found = warm(cache)
    assert (found.stdout, found.returncode) == ("True\n", 0), found.stderr
    missing = warm(cache, "float64(float64)")
    assert missing.stdout == "False\n" and missing.returncode == 1
    assert "compiled kernels cannot be stored" in missing.stderr and "set LIVEJOIN_CACHE to a folder that can be written" in missing.stderr


def test_a_cache_without_a_place_for_them_leaves_them_to_that_of_the_user(cache: Path) -> None:
    """Numba's own locator, which identifies a source by its path alone, kept outdated callers of a helper that had changed."""
    cache.mkdir()
    close(cache)
    home = {"HOME": str(cache.with_name("home"))}
    assert warm(cache, **home).stdout.splitlines()[-1] == "compiled 3 of 3"
    assert warm(cache, **home).stdout == "True\n" and not list(cache.iterdir())
    (room,) = (cache.with_name("home") / ".cache" / "livejoin").iterdir()
    assert room.name.startswith("outside-")


@pytest.mark.parametrize("killed", ["once", "twice", "thrice"])
def test_a_compiler_that_is_killed_is_noticed(cache: Path, killed: str) -> None:
    done = warm(cache, killed=killed)
    assert done.returncode == 1
    assert re.search(rf"the process that compiles kernels ended at .*{killed}.*: its reason is above; start again", done.stderr)
    assert warm(cache).stdout.splitlines()[-1] == "compiled 3 of 3"


def test_a_processor_without_what_is_compiled_for_is_refused(cache: Path) -> None:
    done = warm(cache, NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="+never,+heard-of")
    assert done.returncode == 1 and "this processor lacks never, heard-of, for which the kernels are compiled" in done.stderr
