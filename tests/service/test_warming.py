"""Loading kernels while the service runs."""

from __future__ import annotations

import gc
import io
import threading
import time

import pytest

from service import warming
from structures.core import kernel


def test_what_somebody_waits_for_is_compiled_first() -> None:
    """With what it imports, because the code of each room includes that of lower ones."""
    warming.import_all()
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
    assert [kernels.take() for _ in wanted] == wanted
    rest = [name for name in names if name not in wanted]
    assert kernels.take() == rest[0]
    kernels.end()
    assert kernels.take() is None
    waiter.join()


def test_kernels_are_loaded_once_and_with_those_that_they_import(monkeypatch: pytest.MonkeyPatch) -> None:
    warming.import_all()
    names: list[str] = []
    monkeypatch.setattr(warming, "_ready", set())
    monkeypatch.setattr(kernel, "compiled", lambda dispatcher: names.append(warming._name(dispatcher)))
    kernels, frozen = warming.Kernels(), gc.get_freeze_count()
    assert not kernels.has_loaded({"interval"})
    kernels.load({"interval"})
    assert gc.get_freeze_count() > frozen, "no request waits while Python searches what belongs to kernels"
    assert {name.split(".")[1] for name in names} == {"interval", "ordered", "core"}
    assert {*names} == warming._kernels_of({"interval"})
    assert kernels.has_loaded({"interval"}) and not kernels.has_loaded({"interval", "box"})
    kernels.load({"interval"})
    assert len(names) == len({*names})


def test_nothing_is_loaded_that_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever loads it would compile it."""
    loaded: list[object] = []
    monkeypatch.setattr(kernel, "compiled", loaded.append)
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


def test_a_log_has_a_line_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    now = 100.0
    monkeypatch.setattr(warming, "monotonic", lambda: now)
    terminal, log = Terminal(), io.StringIO()
    lines = warming.Line(terminal), warming.Line(log)
    for done in range(1, 31):
        now += 1
        for line in lines:
            line(done, 30)
    words = "compiling kernels (once, some two minutes):"
    assert log.getvalue() == "".join(f"{words} {done} of 30\n" for done in (1, 11, 21, 30))
    assert terminal.getvalue() == "".join(f"\r{words} {done} of 30" for done in range(1, 31)) + "\n"
