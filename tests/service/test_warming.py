"""Kernels that are loaded while the service runs."""

from __future__ import annotations

import time

import pytest

from service import warming
from structures.core import kernel


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What `Loading` loads: a list that grows, of ten."""
    numbers: list[int] = []
    monkeypatch.setattr(warming, "_DELAY", 0.0)
    monkeypatch.setattr(kernel, "_listed", [(number, "") for number in range(10)])
    monkeypatch.setattr(kernel, "load", lambda number, signature: numbers.append(number))
    return numbers


def test_all_are_loaded_one_after_another(loaded: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "_PAUSE", 0.0)
    loading = warming.Loading(lambda: True)
    loading.start()
    loading.join()
    loading.end()
    assert loaded == list(range(10))


def test_an_end_stops_it(loaded: list[int]) -> None:
    loading = warming.Loading(lambda: True)
    loading.start()
    while not loaded:
        time.sleep(0.01)
    loading.end()
    assert not loading.is_alive() and len(loaded) < 10


def test_one_that_never_started_ends() -> None:
    warming.Loading(lambda: True).end()
