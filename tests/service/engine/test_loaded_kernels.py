"""Nobody loads kernels in the writer's turn: they are loaded beforehand, beside the writer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from structures.core.kernel import JIT
from tests.server_process import ROOT
from tests.service.engine.loads import CASES


@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_the_writer_loads_and_compiles_nothing(tmp_path: Path) -> None:
    """In processes that have loaded no kernels, whatever happens to relations and views."""
    command = [sys.executable, "-m", "tests.service.engine.loads", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = dict(json.loads(line) for line in done.stdout.splitlines())
    assert len(found) == len(CASES) + 3
    assert {name: kernels for name, kernels in found.items() if kernels} == {}
