"""How the command ends: asked to, by one failure, by several, by one that nobody has thought of."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from livejoin.wire.log_lines import message_of, start_log
from streaming import cli
from streaming.config import read_config
from streaming.errors import StreamError
from streaming.kafka_broker import free_port
from streaming.metrics import Metrics
from tests.forked import finished
from tests.streaming.out_job import OutJob

NOWHERE = ("http://127.0.0.1:1", "127.0.0.1:1")


class Interrupted:
    """A word of a line, at which a signal is_inserted: the first time that it is written, as a second signal would end the process."""

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop

    def __str__(self) -> str:
        if not self._stop.is_set():
            signal.raise_signal(signal.SIGTERM)
        return "word"


@pytest.fixture
def log() -> Iterator[None]:
    """The log of a process; it ends with the test."""
    root = logging.getLogger()
    before = root.handlers[:]
    start_log()
    yield
    for handler in {*root.handlers} - {*before}:
        root.removeHandler(handler)


@pytest.mark.usefixtures("log")
def test_a_signal_in_the_midst_of_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    stop = threading.Event()
    try:
        cli._listen(stop)
        cli.log.info("a %s", Interrupted(stop))
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert stop.is_set()
    assert sorted(map(message_of, capfd.readouterr().err.splitlines())) == ["a word", "finishing the current batch"]


def test_the_log_s_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By option or variable; told in it: a CA that cannot be read."""
    job = OutJob(tmp_path, "https://127.0.0.1:1", NOWHERE[1], "v", "t")
    monkeypatch.setenv("LIVEJOIN_CA", str(tmp_path / "none.pem"))
    for arguments, variable, is_json in ((["--log-format", "json"], "text", True), ([], "json", True), ([], "", False)):
        monkeypatch.setenv("LIVEJOIN_LOG_FORMAT", variable)
        status, emitted = finished(["stream", "--config", str(job.path), *arguments])
        last = emitted.splitlines()[-1]
        assert status == 1 and last.startswith("{") == is_json and "none.pem cannot be used" in message_of(last), emitted
    for arguments, variable in ((["--log-format", "xml"], ""), ([], "xml")):
        monkeypatch.setenv("LIVEJOIN_LOG_FORMAT", variable)
        status, emitted = finished(["stream", "--config", str(job.path), *arguments])
        assert status == 2 and "'xml' is not a format of the log: use text or json" in emitted


def test_every_failure_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    job = OutJob(tmp_path, *NOWHERE, "v", "one")
    with job.path.open("a") as file:
        file.write('\n[[out]]\nview = "v"\ntopic = "two"\n')
    both = threading.Barrier(2)

    def fail(self: cli.Publisher, ask: object) -> None:
        both.wait()
        raise StreamError(f"{self._out.topic} is refused")

    monkeypatch.setattr(cli.Publisher, "run", fail)
    with pytest.raises(StreamError) as first:
        cli._run(read_config(job.path), threading.Event(), Metrics())
    assert sorted([str(first.value), *caplog.messages]) == ["one is refused", "two is refused"]


def test_what_nobody_has_thought_of(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("what\nelse")

    monkeypatch.setattr(cli, "_listen", lambda stop: None)
    monkeypatch.setattr(cli, "_run", fail)
    path = OutJob(tmp_path, *NOWHERE, "v", "t").path
    assert cli.run(path) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert " ERROR livejoin.stream: " in line
    assert message_of(line).startswith("internal error, please report it with its traceback, which --log-level debug adds: KeyError (")


def test_the_log_s_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """By option or variable; `start_log` adds tracebacks at level debug only."""
    levels: list[str] = []
    monkeypatch.setattr(cli, "_listen", lambda stop: None)
    monkeypatch.setattr(cli, "_run", lambda *arguments: None)
    monkeypatch.setattr(cli, "start_log", lambda form, level: levels.append(level))

    def run(*arguments: str) -> int:
        parser = argparse.ArgumentParser()
        cli.add_arguments(parser)
        return cli.command(parser.parse_args(["--config", str(OutJob(tmp_path, *NOWHERE, "v", "t").path), *arguments]))

    for arguments, variable in ((["--log-level", "debug"], "info"), (["--log-level", "info"], "debug"), ([], "debug"), ([], "")):
        monkeypatch.setenv("LIVEJOIN_LOG_LEVEL", variable)
        assert run(*arguments) == 0
    assert levels == ["debug", "info", "debug", "info"]
    for arguments, variable in ((["--log-level", "all"], ""), ([], "all")):
        monkeypatch.setenv("LIVEJOIN_LOG_LEVEL", variable)
        with pytest.raises(SystemExit, match="2"):
            run(*arguments)
        assert "'all' is not a level of the log: use info or debug" in capsys.readouterr().err


def test_metrics_at_another_address() -> None:
    """As in a container, where Prometheus comes from outside."""
    port = free_port()
    Metrics().serve(port, "127.0.0.2")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/metrics")
    assert "livejoin_stream_batches_total 0.0" in httpx.get(f"http://127.0.0.2:{port}/metrics").text
    with pytest.raises(StreamError, match=f"cannot listen on port {port} of 127.0.0.2"):
        Metrics().serve(port, "127.0.0.2")
