"""The repository's files, read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "livejoin"  # tools and images of earlier runs


def read_yaml(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def is_pinned(image: str) -> bool:
    """Does its tag name a version?"""
    tag = image.rpartition("/")[2].partition(":")[2]
    return tag != "latest" and any(letter.isdigit() for letter in tag)
