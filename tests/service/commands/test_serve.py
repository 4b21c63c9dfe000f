"""`livejoin serve` begins quickly: it imports nothing that only other commands need."""

from __future__ import annotations

import subprocess
import sys

from tests.datasets import ROOT

IMPORTS = "import sys, service.cli, service.commands.serve, service.server; print(*sys.modules)"


def test_serve_does_without_the_client() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert "uvicorn" in modules and modules.isdisjoint({"httpx", "livejoin.public", "rich", "streaming"})
