"""The locked archives: checked on every use, never half in the cache."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from streaming import jars
from streaming.errors import StreamError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of our own with the true files of Spark's group."""
    for path in jars.jars("spark"):
        shutil.copy(path, tmp_path)
    monkeypatch.setenv("LIVEJOIN_JARS", str(tmp_path))
    return tmp_path


def no_network(*_: object) -> None:
    raise AssertionError("a whole cache needs no network")


def test_the_lock_holds_the_roots() -> None:
    locked = jars.read_lock()
    for group, roots in jars.ROOTS.items():
        assert set(roots) <= {jar.coordinates for jar in locked[group]}
    assert {jar.coordinates for jar in locked["spark"]} == set(jars.ROOTS["spark"])


def test_offline_when_whole(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "_fetch", no_network)
    assert [path.parent for path in jars.jars("spark")] == [cache] * len(jars.ROOTS["spark"])


def test_a_damaged_file_is_fetched_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = jars.jars("spark")[0]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[:-1])
    asked: list[str] = []

    def fetch(missing: list[jars.Jar], work: Path) -> None:
        asked.extend(jar.file for jar in missing)
        (work / "jars").mkdir()
        (work / "jars" / damaged.name).write_bytes(whole)

    monkeypatch.setattr(jars.shutil, "which", lambda name: "mvn")
    monkeypatch.setattr(jars, "_fetch_by_maven", fetch)
    monkeypatch.setattr(jars, "find_java", lambda: Path("java"))
    jars.jars("spark")
    assert asked == [damaged.name]
    assert hashlib.sha256(damaged.read_bytes()).digest() == hashlib.sha256(whole).digest()


def test_a_file_that_is_not_the_locked_one_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jars.jars("spark")[0]
    path.unlink()

    def fetch(missing: list[jars.Jar], work: Path) -> None:
        (work / "jars").mkdir()
        (work / "jars" / path.name).write_bytes(b"another")

    monkeypatch.setattr(jars.shutil, "which", lambda name: "mvn")
    monkeypatch.setattr(jars, "_fetch_by_maven", fetch)
    monkeypatch.setattr(jars, "find_java", lambda: Path("java"))
    with pytest.raises(StreamError, match="SHA-256 differs"):
        jars.jars("spark")
    assert not path.exists()
