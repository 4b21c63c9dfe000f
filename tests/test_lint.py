"""What `make lint` checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import ROOT


@pytest.mark.parametrize("command", ["ruff check .", "mypy", "lint-imports"])
def test_lint(command: str) -> None:
    program, *arguments = command.split()
    done = subprocess.run([Path(sys.executable).parent / program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
