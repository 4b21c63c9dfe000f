"""The client's wheel, installed beside nothing but its dependencies."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path

from tests.datasets import ROOT

PROGRAM = """
import asyncio, importlib.metadata, importlib.util, sys
import livejoin
assert all(importlib.util.find_spec(name) is None for name in ("service", "streaming", "structures", "fastapi"))
assert importlib.metadata.requires("livejoin-client")
try:
    with livejoin.connect("http://127.0.0.1:9") as lj:
        lj.view("v").count()
except livejoin.Unreachable as error:
    print(error)
"""


def pip(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "pip", "--quiet", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def requirements(names: list[str]) -> set[str]:
    """All that these distributions need, themselves included, without extras."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name in found:
            continue
        found.add(name)
        names += needed(name)
    return found


def needed(name: str) -> list[str]:
    """What a distribution needs without extras."""
    needs = [need for need in distribution(name).requires or [] if "extra ==" not in need and "python_version <" not in need]
    return [match[0] for need in needs if (match := re.match(r"[A-Za-z0-9_.-]+", need))]


def test_the_wheel_needs_only_what_it_names(tmp_path: Path) -> None:
    """Its dependencies are linked from where the tests run, so that no network is needed."""
    source = shutil.copytree(ROOT / "client", tmp_path / "client", ignore=shutil.ignore_patterns("*.egg-info", "build", "__pycache__"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("livejoin_client-*-py3-none-any.whl")
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    pip("--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    assert (site / "livejoin" / "py.typed").exists() and (site / "livejoin" / "_sync" / "client.py").exists()
    (licence,) = site.glob("livejoin_client-*.dist-info/licenses/LICENSE")
    assert licence.read_text() == (ROOT / "LICENSE").read_text()
    named = needed("livejoin-client")
    assert sorted(named) == ["httpx", "numpy", "orjson", "pyarrow", "pydantic"]
    for name in requirements(named):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (site / top).exists():
                (site / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    done = subprocess.run([python, "-I", "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "no service answers" in done.stdout, done.stderr
