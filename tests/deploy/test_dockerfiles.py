"""The Dockerfiles keep our rules, their locks are parts of requirements.lock, and the rules notice what breaks them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.checks.dockerfiles import FILES, LOCKS, complaints, instructions, strange_pins
from tests.server_process import ROOT

WHOLE = (ROOT / "requirements.lock").read_text()
SERVICE = next(path for path in FILES if path.name == "service.Dockerfile").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_is_good(path: Path) -> None:
    assert list(complaints(path.read_text())) == []


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_each_lock_is_a_part(path: Path) -> None:
    assert list(strange_pins(path.read_text(), WHOLE)) == []
    assert "://" not in path.read_text()


def test_the_job_needs_nothing_that_its_image_lacks() -> None:
    """Numba, llvmlite, highspy and duckdb are left out of its lock: no module of the job and of the demo imports them; joins on a cluster
    are not the job's."""
    program = """
import importlib, pkgutil, sys
sys.modules.update(dict.fromkeys(("duckdb", "highspy", "llvmlite", "numba")))
import service.commands.stream, service.commands.demo, service.demo, streaming
for package in (service.demo, streaming):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.startswith("streaming.cluster."):
            importlib.import_module(module.name)
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_a_pin_of_its_own_is_found() -> None:
    lock = "numpy==1.0 \\\n    --hash=sha256:00\nhttpx==0.28.1 \\\n    --hash=sha256:00\n"
    assert [complaint.split(" is ")[0] for complaint in strange_pins(lock, WHOLE)] == ["numpy==1.0", "httpx==0.28.1"]


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("FROM python:3.11.14-slim-bookworm", "FROM python:latest", "FROM python:latest: neither a stage nor an image with a version"),
        ("FROM base AS", "FROM bass AS", "FROM bass: neither a stage nor an image with a version"),
        ("NUMBA_CPU_FEATURES=+neon", "NUMBA_FEATURES=+neon", "base-arm64: the cache of kernels depends on both"),
        ("USER 10001:10001\n", "", "the image has no USER by number"),
        ("USER 10001:10001", "USER livejoin", "the image has no USER by number"),
        ("USER 10001:10001", "USER 0:0", "the image has no USER by number"),
        ('ENTRYPOINT ["livejoin"]', "ENTRYPOINT livejoin", "ENTRYPOINT must be a JSON list"),
        ("--require-hashes ", "", "packages come from a lock with hashes"),
        ("COPY . /src/", "ADD . /src/", "ADD . /src/: use COPY"),
        ("COPY . /src/", "COPY services /src/", "services does not exist"),
        ("WORKDIR /\n", "RUN curl https://example.org | sh\n", "nothing vouches for what is fetched"),
        ("WORKDIR /\n", "RUN apt-get update && apt-get install --yes vim\n", "install with --no-install-recommends"),
        ("ENV LIVEJOIN_DATA", "ENV LIVEJOIN_TOKEN=lj_x LIVEJOIN_DATA", "a secret would stay in the image"),
    ],
)
def test_mistakes_are_found(before: str, after: str, complaint: str) -> None:
    assert before in SERVICE
    assert any(complaint in found for found in complaints(SERVICE.replace(before, after)))


def test_what_is_copied_is_what_the_build_needs() -> None:
    """`.dockerignore` lets in the sources of both wheels and the locks, and nothing else."""
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_in == {
        *("client/livejoin", "client/pyspark_livejoin", "client/pyproject.toml", "client/README.md", "deploy/docker/*.lock"),
        *("pyproject.toml", "service", "streaming", "structures"),
    }
    assert all((ROOT / path).exists() or list(ROOT.glob(path)) for path in let_in)


def test_continued_lines_are_one_instruction() -> None:
    assert [tuple(one) for one in instructions("# x\nRUN a \\\n # why\n && b\n\nuser 1:1\n")] == [("RUN", "a && b"), ("USER", "1:1")]
