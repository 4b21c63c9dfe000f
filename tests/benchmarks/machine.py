"""What the figures were measured on and with; no host names, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "numpy", "numba", "pyarrow", "fastapi", "uvicorn", "uvloop", "orjson", "pyspark", "confluent-kafka", "duckdb", "intervaltree", "ncls",
)  # fmt: skip


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, and load: figures include the effect of other processes."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "load_before": round(os.getloadavg()[0], 1),
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return found


def revision() -> str:
    """The commit, with a plus sign if the code in the working tree differs from it."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", "structures", "service", "streaming", "tests/benchmarks/*.py")
    return commit + ("+" if changed else "")


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return ended.stdout.strip() if ended.returncode == 0 else "unknown"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
