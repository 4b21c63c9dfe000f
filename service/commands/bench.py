"""`livejoin bench`: the benchmarks, which are in the repository with the tests."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from livejoin.terminal import Failure

REPOSITORY = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    """Run `python -m tests.benchmarks` with the same arguments, including `--help`."""
    if not (REPOSITORY / "tests" / "benchmarks" / "__main__.py").is_file():
        raise Failure("the benchmarks are in the repository, not in the package: clone it, run `make setup`, then `livejoin bench` there")
    if find_spec("psutil") is None:
        raise Failure("the packages of the benchmarks are not installed: run `make setup` in the repository first")
    return subprocess.run([sys.executable, "-m", "tests.benchmarks", *arguments], cwd=REPOSITORY, check=False).returncode
