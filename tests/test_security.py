"""SECURITY.md, and what it promises about the sources and the dependencies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import ROOT
from tests.test_house import source

PAGE = (ROOT / "SECURITY.md").read_text()


def test_every_named_test_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and not re.match(r"\|(-|.*\| test \|$)", line)]
    assert len(named) == len(lines) > 30, "each line names one test"
    assert [name for path, name in named if name not in {function.name for function in source(ROOT / path).functions}] == []


def test_every_package_is_pinned_by_hash() -> None:
    entries = re.split(r"\n(?=\S)", re.sub(r"^ *#.*\n", "", (ROOT / "requirements.lock").read_text(), flags=re.MULTILINE).strip())
    assert len(entries) > 50
    assert [entry for entry in entries if not re.match(r"[\w.-]+==\S+.*--hash=sha256:[0-9a-f]{64}", entry, re.DOTALL)] == []
    assert "--require-hashes" in (ROOT / "Makefile").read_text()


UNSAFE = [
    "import pickle; pickle.loads(DATA)",
    "import marshal; marshal.loads(DATA)",
    "import yaml; yaml.load(DATA)",
    "eval(DATA)",
    "exec(DATA)",
    "import subprocess; subprocess.run(DATA, shell=True)",
    "import os; os.system(DATA)",
]


@pytest.mark.parametrize("folder", ["service", "streaming", "structures", "client/livejoin"])
def test_code_that_loads_code_is_refused(folder: str) -> None:
    """By the rules that `make lint` applies to every file."""
    command = [Path(sys.executable).parent / "ruff", "check", "--stdin-filename", f"{folder}/new.py", "--output-format", "concise", "-"]
    done = subprocess.run(command, cwd=ROOT, input="\n".join([*UNSAFE, ""]), capture_output=True, text=True, check=False)
    assert set(map(int, re.findall(r"new\.py:(\d+):\d+: S\d+ ", done.stdout))) == set(range(1, len(UNSAFE) + 1)), done.stdout
