"""Which files of a folder are accessible to other users."""

from __future__ import annotations

from pathlib import Path


def exposed(folder: Path) -> list[str]:
    """Return those of the folder and its contents whose mode is not 0600 for a file or 0700 for a folder. The folder must not be empty."""
    paths = [folder, *sorted(folder.rglob("*"))]
    assert len(paths) > 1
    modes = [(path, path.stat().st_mode & 0o777) for path in paths]
    return [f"{path.relative_to(folder)}: {mode:o}" for path, mode in modes if mode != (0o700 if path.is_dir() else 0o600)]
