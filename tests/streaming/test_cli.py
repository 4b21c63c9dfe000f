"""How the command ends: asked to, by one failure, by several, by one that nobody has thought of."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from streaming import cli
from streaming.config import read_config
from streaming.errors import StreamError
from streaming.metrics import Metrics
from tests.streaming.out_job import OutJob

NOWHERE = ("http://127.0.0.1:1", "127.0.0.1:1")


def test_a_signal_in_the_midst_of_a_line(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Where Python would write to standard error a second time."""

    def reentrant(line: str) -> None:
        raise RuntimeError("reentrant call")

    monkeypatch.setattr(cli, "say", reentrant)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    stop = threading.Event()
    try:
        cli._listen(stop)
        signal.raise_signal(signal.SIGTERM)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert stop.is_set() and capfd.readouterr().err == "livejoin: finishing the current batch\n"


def test_every_failure_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job = OutJob(tmp_path, *NOWHERE, "v", "one")
    with job.path.open("a") as file:
        file.write('\n[[out]]\nview = "v"\ntopic = "two"\n')
    both = threading.Barrier(2)

    def fail(self: cli.Publisher) -> None:
        both.wait()
        raise StreamError(f"{self._out.topic} is refused")

    monkeypatch.setattr(cli.Publisher, "run", fail)
    with pytest.raises(StreamError) as first:
        cli._run(read_config(job.path), threading.Event(), Metrics())
    assert {f"livejoin: {first.value}\n", capsys.readouterr().err} == {"livejoin: one is refused\n", "livejoin: two is refused\n"}


def test_what_nobody_has_thought_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("what\nelse")

    monkeypatch.setattr(cli, "_listen", lambda stop: None)
    monkeypatch.setattr(cli, "_run", fail)
    assert cli.run(OutJob(tmp_path, *NOWHERE, "v", "t").path) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"livejoin: internal error, please report it: KeyError: 'what\\nelse' ({Path(__file__).name}:")
