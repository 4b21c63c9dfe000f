"""The demo as people run it: its data, its output, the commands that it prints, and how it ends."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import orjson
import psutil
import pytest

from livejoin.wire.debezium import DebeziumDecoder
from livejoin.wire.schema import parse_relation
from service.demo.history import EPOCH, FOLDER, RELATIONS, VIEWS, checksum, history
from service.demo.kafka import Children, Kafka, RoadClosed, missing, stream_toml
from service.demo.play import Panel
from service.views.parse import parse_view
from tests.modes_of_files import exposed
from tests.server_process import ROOT

ALL_RIGHT = "All changes have arrived. Row counts and checksums match the known results: " + (
    "presidents_with_vices 62, senators_under_presidents 608, delegation 2,879, same_state_senators 159 rows."
)


# -- the data


def test_history_is_whole_and_in_order() -> None:
    changes = history()
    rows: dict[tuple[str, int], dict[str, object]] = {}
    for change in changes:
        key = change.relation, change.after["id"]
        assert rows.get(key) == change.before
        rows[key] = change.after
    assert [change.day for change in changes] == sorted(change.day for change in changes)
    assert (len(changes), changes[0].day, changes[-1].day) == (5307, date(1789, 4, 21), date(2026, 6, 10))
    assert {relation: sum(key[0] == relation for key in rows) for relation in RELATIONS} == {
        "president_terms": 69, "vice_president_terms": 62, "senator_terms": 267, "rep_terms": 2525,
    }  # fmt: skip
    assert sum(row["end_date"] is None for row in rows.values()) == 539


def test_the_views_can_all_be_kept_strictly() -> None:
    definitions = {name: parse_relation(definition) for name, definition in RELATIONS.items()}
    for name, view in VIEWS.items():
        parsed = parse_view(name, {"sql": view["sql"], "guarantee": "strict"}, definitions)
        assert set(view["checked"]) <= {output.name for output in parsed.query.outputs}


def test_the_final_rows_are_those_of_the_data() -> None:
    known = {view["name"]: view for view in orjson.loads((FOLDER / "queries.json").read_bytes())["views"]}
    assert {name: (view["rows"], view["checksum"]) for name, view in VIEWS.items()} == {
        name: (known[name]["rows"], known[name]["checksum"]) for name in VIEWS
    }


def test_the_checksum_is_that_of_the_data() -> None:
    assert checksum([{"n": 3, "name": "Ann"}], ("n", "name")) == (1, "1538414541632953806")
    assert checksum([], ("n",)) == (0, "0")


def test_debezium_records_say_what_rest_says() -> None:
    changes = [change for change in history() if change.relation == "senator_terms"]
    decoder = DebeziumDecoder("senator_terms", parse_relation(RELATIONS["senator_terms"]))
    records = [change.to_debezium(position) for position, change in enumerate(changes)]
    batch = decoder.decode([key for key, _ in records], [value for _, value in records])
    (decoded,) = batch.changes
    assert batch.error_count == 0 and len(decoded.ops) == len(changes)
    for change, row in zip(changes, decoded.rows.arrow.to_pylist(), strict=True):
        sent = change.to_rest()["row"]
        assert sent | {"start_date": date.fromisoformat(sent["start_date"])} == row | {
            "end_date": row["end_date"] and row["end_date"].isoformat()
        }
    assert orjson.loads(records[0][1])["after"]["start_date"] == (changes[0].day - EPOCH).days


def test_the_stream_s_file_is_good(tmp_path: Path) -> None:
    from streaming.config import read_config

    (tmp_path / "stream.toml").write_text(stream_toml("http://127.0.0.1:1", "127.0.0.1:2", tmp_path / "checkpoint"))
    config = read_config(tmp_path / "stream.toml")
    assert {topic.relation for topic in config.topics} == set(RELATIONS)


# -- the play


@contextmanager
def demo(tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A demo in a pipe, its temporary folders below tmp_path."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "service.cli", "demo", "--port", str(port), *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, umask=0
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout
    finally:
        process.kill()
        process.wait()


def read_until(output: IO[str], words: str) -> str:
    text = ""
    for line in output:
        text += line
        if words in line:
            return text
    raise AssertionError(f"{words!r} was not said in:\n{text}")


def end(process: subprocess.Popen[str], output: IO[str], tmp_path: Path, number: signal.Signals = signal.SIGINT) -> None:
    """Ends as it should: quietly, status 0, no child left, nothing left in the temporary folder."""
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    process.send_signal(signal.SIGINT)  # an impatient second time changes nothing
    rest = output.read()
    assert process.wait(60) == 0, rest
    assert rest.endswith("\nStopping …\n"), rest
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert list(tmp_path.glob("livejoin-*")) == []


def commands(text: str) -> list[str]:
    """The lines to be pasted, the set-up first."""
    return re.findall(r"^  (\S.*)$", text.partition("terminal, try:")[2], re.MULTILINE)


def test_by_rest_and_what_it_prints_works(tmp_path: Path) -> None:
    with demo(tmp_path, "--no-kafka", "--pace", "100") as (process, output):
        text = read_until(output, "The service keeps running")
        assert ALL_RIGHT in text and "Running without Kafka and Spark (--no-kafka)" in text
        assert "  + " in text and "presidents_with_vices" in text
        setup, *lines = commands(text.partition("Running without Kafka")[0])
        assert len(lines) == 7
        for line in lines:
            if line.startswith("curl") and shutil.which("curl") is None:
                continue
            endless = "watch" in line or "curl -sN" in line
            script = f"{setup}\n{'export -f livejoin 2>/dev/null; timeout 5 bash -c ' if endless else ''}" + (
                repr(line) if endless else line
            )
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=tempfile.gettempdir())
            assert done.returncode == (124 if endless else 0), (line, done)
            assert done.stdout and not done.stderr, (line, done)
        end(process, output, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_ended_while_the_service_starts_and_while_history_runs(tmp_path: Path, number: signal.Signals) -> None:
    with demo(tmp_path, "--no-kafka") as (process, output):
        while not list(tmp_path.glob("livejoin-demo-*/service.log")):
            assert process.poll() is None
        end(process, output, tmp_path, number)
    with demo(tmp_path, "--no-kafka") as (process, output):
        read_until(output, "(by REST)")
        end(process, output, tmp_path, number)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        command = [sys.executable, "-m", "service.cli", "demo", "--port", str(taken.getsockname()[1])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "is in use" in done.stderr and done.stderr.count("\n") == 1


kafka = pytest.mark.skipif(missing() is not None, reason=f"no Kafka and Spark here: {missing()}")


@kafka
@pytest.mark.usefixtures("quick_java")
def test_through_kafka_and_spark(tmp_path: Path) -> None:
    with demo(tmp_path, "--pace", "50", "--prepare", "true") as (process, output):
        text = read_until(output, "The service keeps running")
        assert ALL_RIGHT in text and "Running without Kafka" not in text and "by REST." not in text
        (folder,) = tmp_path.glob("livejoin-demo-*")
        assert (folder / "checkpoint" / "offsets").is_dir() and exposed(folder) == []
        end(process, output, tmp_path)


@kafka
def test_goes_on_by_rest_when_kafka_cannot_be_installed(tmp_path: Path) -> None:
    """What make says at its end is not the reason."""
    failing = "sh -c 'echo no route to the packages; echo make: Error 1; exit 2'"
    with demo(tmp_path, "--pace", "100", "--prepare", failing) as (process, output):
        text = read_until(output, "The service keeps running")
        assert "could not be installed: no route to the packages. The changes since 1989 are sent by REST" in text and ALL_RIGHT in text
        end(process, output, tmp_path)


@kafka
@pytest.mark.soak
@pytest.mark.usefixtures("quick_java")
def test_goes_on_by_rest_when_the_stream_breaks(tmp_path: Path) -> None:
    with demo(tmp_path, "--pace", "5") as (process, output):
        read_until(output, "(through Kafka and Spark)")
        (stream,) = [child for child in psutil.Process(process.pid).children() if "stream" in child.cmdline()]
        stream.kill()
        text = read_until(output, "The service keeps running")
        assert "livejoin stream ended" in text and "are sent by REST" in text and ALL_RIGHT in text
        end(process, output, tmp_path)


@kafka
def test_a_stream_that_stands_still_closes_the_road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Accepting:
        sent = 5

        def __init__(self, brokers: str) -> None: ...

        def topics(self) -> set[str]:
            return set()

        def open(self) -> None: ...

    class Silent(Children):
        def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
            return super().start(name, "sh", "-c", f"echo {name} waits; exec sleep 60")

    monkeypatch.setattr("service.demo.kafka.Records", Accepting)
    monkeypatch.setattr("service.demo.kafka.PATIENCE", 0.5)
    children = Silent(tmp_path)
    late = "0 of 5 changes have arrived through Kafka and Spark, none for 0 s; the stream said: livejoin stream waits"
    road = Kafka(children, "http://127.0.0.1:1", ())
    with pytest.raises(RoadClosed, match=late):
        for _ in road.stages:
            time.sleep(0.05)
    road.close()
    children.close()


def test_a_pipe_gets_no_line_twice(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("service.demo.play.EVERY", 0.0)
    row = {"name": "Ann", "together_start": "2001-01-01", "together_end": None}
    change = SimpleNamespace(op="insert", row=row)

    class View:
        async def follow(self, snapshot: bool) -> AsyncIterator[SimpleNamespace]:
            yield SimpleNamespace(changes=[change])

    class Client:
        async def view(self, name: str) -> View:
            return View()

    panel = Panel()
    for _ in range(2):
        asyncio.run(panel.follow(Client(), "delegation"))  # type: ignore[arg-type]
        for _ in range(3):
            panel.show(date(2001, 1, 1), 0.5, "by REST")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "delegation:" not in line] == [
        f"2001-01-01  presidents_with_vices 0  senators_under_presidents 0  delegation {count}  same_state_senators 0  (by REST)"
        for count in (1, 2)
    ]


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert "need Java 17" in (missing() or "")
