"""The wheels: the same bytes from the same sources, and enough to serve from in a clean environment."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # not of `files`: `make wheels` needs only what the service needs, which has no YAML
EPOCH = "1767225600"  # SOURCE_DATE_EPOCH of the files in a wheel: 2026-01-01
SOURCES = ("structures", "service", "streaming", "client", "pyproject.toml", "LICENSE")
_BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"


def build(folder: Path) -> list[Path]:
    """Both wheels, in the folder, from a copy of the sources: a build leaves files beside them."""
    copy = folder / "sources"
    copy.mkdir(parents=True)
    for name in SOURCES:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(source, copy / name, ignore=ignored) if source.is_dir() else shutil.copy2(source, copy / name)
    made = []
    for project in (copy / "client", copy):
        command = [sys.executable, "-c", _BUILD, str(folder)]
        environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
        done = subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, text=True)
        made.append(folder / done.stdout.splitlines()[-1])
    shutil.rmtree(copy)
    return made


def differences(first: list[Path], second: list[Path]) -> Iterator[str]:
    """Between the wheels of two builds."""
    for one, other in zip(first, second, strict=True):
        if hashlib.sha256(one.read_bytes()).digest() != hashlib.sha256(other.read_bytes()).digest():
            yield f"{one.name} differs between two builds of the same sources"


def install(wheels: list[Path], folder: Path) -> Path:
    """A new environment with the wheels; its `livejoin`.

    What they depend on comes from this environment's packages, but none of its own projects: their import needs a .pth file there,
    and such files are not read from a folder that is itself named by one.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    command = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, *map(str, wheels)], check=True, capture_output=True, text=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "livejoin"


if __name__ == "__main__":
    print(*build(Path(sys.argv[1]).resolve()), sep="\n")
