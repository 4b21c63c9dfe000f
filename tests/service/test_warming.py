"""Loading kernels while the service runs."""

from __future__ import annotations

import threading
import time

import pytest

from service import warming
from structures.core import kernel


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What `Loading` loads: a growing list of ten items."""
    numbers: list[int] = []
    monkeypatch.setattr(warming, "LOADING_DELAY", 0.0)
    monkeypatch.setattr(kernel, "_listed", [(number, "") for number in range(10)])
    monkeypatch.setattr(kernel, "compiled", numbers.append)
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


def test_nothing_is_loaded_before_all_is_compiled(loaded: list[int]) -> None:
    """Otherwise it would be compiled here, in the interpreter of the event loop."""
    asked: list[int] = []

    def compiled() -> bool:
        asked.append(len(loaded))
        return len(asked) > 3

    loading = warming.Loading(compiled)
    loading.start()
    while not loaded:
        time.sleep(0.01)
    loading.end()
    assert asked == [0] * 4


def test_what_somebody_waits_for_is_compiled_first() -> None:
    """With what it imports, because the code of each room includes that of lower ones."""
    warming._import_all()
    names = [warming._name(dispatcher) for dispatcher, _ in kernel._listed]
    kernels = warming.Kernels()
    kernels._waiting, kernels._missing = list(names), set(names)

    def wait() -> None:
        with pytest.raises(warming.Unusable, match="the service ends"):
            kernels.require({"interval"})

    waiter = threading.Thread(target=wait)
    waiter.start()
    while not kernels._wanted:
        time.sleep(0.001)
    wanted = [name for name in names if name.split(".")[1] in ("interval", "ordered", "core")]
    assert 0 < len(wanted) < len(names)
    assert [kernels._take() for _ in wanted] == wanted
    rest = [name for name in names if name not in wanted]
    assert kernels._take() == rest[0]
    kernels.end()
    assert kernels._take() is None
    waiter.join()


def test_kernels_are_loaded_once_and_with_those_that_they_import(monkeypatch: pytest.MonkeyPatch) -> None:
    warming._import_all()
    names: list[str] = []
    monkeypatch.setattr(warming, "_ready", set())
    monkeypatch.setattr(kernel, "compiled", lambda dispatcher: names.append(warming._name(dispatcher)))
    kernels = warming.Kernels()
    assert not kernels.has_loaded({"interval"})
    kernels.load({"interval"})
    assert {name.split(".")[1] for name in names} == {"interval", "ordered", "core"}
    assert {*names} == warming._kernels_of({"interval"})
    assert kernels.has_loaded({"interval"}) and not kernels.has_loaded({"interval", "box"})
    kernels.load({"interval"})
    assert len(names) == len({*names})


def test_nothing_is_loaded_that_is_not_compiled(loaded: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise it would be compiled by the thread that loads it."""
    monkeypatch.setattr(warming, "_ready", {"interval"})
    monkeypatch.setattr(warming, "_kernels_of", lambda rooms: {"missing"})
    kernels = warming.Kernels()
    kernels._missing = {"missing"}
    assert not kernels.has_loaded({"interval"})
    kernels.load_compiled({"interval"})
    kernels.end()
    with pytest.raises(warming.Unusable, match="the service ends"):
        kernels.load({"interval"})
    assert not loaded


def test_one_that_never_started_ends() -> None:
    warming.Loading(lambda: True).end()
