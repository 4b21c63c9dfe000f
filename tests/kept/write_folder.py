"""Writes kept folders: `python -m tests.kept.write_folder DIR` makes DIR/clean.tar.gz, DIR/killed.tar.gz and DIR/expected.json.

It runs the service of this checkout, which must be committed. Folders that are kept are never written again: DIR must not be there yet.

    clean    three services, each ended by SIGTERM. The first leaves a snapshot; the others cannot write theirs, so the log goes on.
    killed   three services: the first ended by SIGTERM without a snapshot, the second killed behind its snapshot, before the log is cut;
             the last one killed while eight clients send, with another snapshot half written.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx

from tests.end_to_end import talk
from tests.kept import expectation, log_rows, relations, serve, traffic, views
from tests.kept.archive import contents, pack
from tests.kept.expectation import Kept
from tests.kept.model import Model, Sender
from tests.kept.relations import Rows
from tests.server_process import ROOT, ServerProcess

_OF_THE_DATABASE = {"in the database", "in the WAL"}


class KeptServer(ServerProcess):
    """The service as `tests.kept.serve` runs it; its output beside the folder."""

    _module = "tests.kept.serve"

    def __init__(self, data: Path, **environment: str) -> None:
        super().__init__(data, environment=environment, fresh=True)


class Story:
    """One folder in the making: its services one after the other, and what they were sent."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rows = folder, Rows(seed)
        self.model, self.epochs, self.kept = Model(), traffic.Epochs(), Kept()
        self.sources: dict[str, dict[str, Any]] = {}

    @contextmanager
    def service(self, synchronous: str, **environment: str) -> Iterator[tuple[KeptServer, Sender]]:
        with KeptServer(self.folder, LIVEJOIN_SYNCHRONOUS=synchronous, **environment) as server:
            sender = Sender(server.client(), self.model)
            yield server, sender
            self.sources |= sender.sources

    def senders(self, server: KeptServer, count: int) -> list[Sender]:
        return [Sender(httpx.Client(base_url=server.url, timeout=60), self.model) for _ in range(count)]

    def register(self, client: httpx.Client, definitions: dict[str, dict[str, Any]], joins: list[tuple[str, str, dict[str, Any]]]) -> None:
        for name, definition in definitions.items():
            talk.define(client, name, definition)
            self.model.define(name, definition)
        for name, algorithm, definition in joins:
            made = talk.view(client, name, definition)
            assert made["plan"]["algorithm"] == algorithm, (name, made["plan"])
            self.kept.definitions[name] = definition

    def change_the_catalogue(self, sender: Sender) -> None:
        """With rows of the log left that are of relations which are gone, one of them under the name of another one."""
        for name in ("dropped", "again"):
            sender.post("json", [traffic.upsert(name, self.rows.make(name, number)) for number in (1, 7)])
        talk.drop(sender.client, ["dropped_view"], ["dropped", "again"])
        del self.kept.definitions["dropped_view"]
        for name in ("dropped", "again"):
            self.model.drop(name)
        self.register(sender.client, relations.LATER, views.LATER)
        for name, count in (("again", 4), ("late", 14)):
            sender.post("csv", [traffic.insert(name, self.rows.make(name, number)) for number in range(count)])

    def singles(self, server: KeptServer, base: int) -> None:
        senders = self.senders(server, traffic.CONNECTIONS)
        traffic.singles(senders, self.rows, base, rounds=6)
        for sender in senders:
            self.sources |= sender.sources

    def stop_without_a_snapshot(self, server: KeptServer) -> None:
        """As on a disk that takes no snapshot: there is a file where it would be written."""
        number = talk.ok(server.client().get("/v1/status"))["version"]
        blocker = self.folder / "snapshots" / f"{number}.tmp"
        blocker.parent.mkdir(exist_ok=True)
        blocker.touch()
        assert server.stop() == 0
        assert "no snapshot could be written" in server.output()
        blocker.unlink()


def write_clean(folder: Path) -> Story:
    story = Story(folder, 1)
    with story.service("normal") as (server, sender):
        story.register(sender.client, relations.RELATIONS, views.VIEWS)
        traffic.fill(sender, story.rows, story.epochs)
        traffic.every_kind(sender, story.rows, story.epochs, 60)
        traffic.runs_of_a_source(sender, story.rows, story.epochs)
        assert server.stop() == 0
    with story.service("full") as (server, sender):
        story.kept.follow(sender.client, views.FOLLOWED[::2], "an earlier service")
        story.kept.turn_pages(sender.client)
        story.change_the_catalogue(sender)
        traffic.every_kind(sender, story.rows, story.epochs, 70)
        traffic.runs_of_a_source(sender, story.rows, story.epochs)
        story.singles(server, 100)
        story.stop_without_a_snapshot(server)
    with story.service("normal") as (server, sender):
        story.kept.follow(sender.client, views.FOLLOWED, "at the start")
        for number in range(200, 212):
            relation = ("ticks", "late", "ticks", "bookings")[number % 4]
            sender.post("json", [traffic.upsert(relation, story.rows.make(relation, number))], **story.epochs.of("singles"))
        story.kept.follow(sender.client, views.FOLLOWED[:4], "in the middle")
        sender.post("lines", [traffic.upsert("jobs", story.rows.make("jobs", number)) for number in range(12)], **story.epochs.of("pms"))
        story.kept.turn_pages(sender.client)
        story.kept.finish(sender.client, "at the start")
        story.kept.finish(sender.client, "in the middle")
        story.kept.follow(sender.client, views.FOLLOWED[:2], "at the end")
        story.stop_without_a_snapshot(server)
    return story


def write_killed(folder: Path) -> Story:
    story = Story(folder, 2)
    with story.service("full") as (server, sender):
        story.register(sender.client, relations.RELATIONS, views.VIEWS)
        traffic.fill(sender, story.rows, story.epochs)
        story.stop_without_a_snapshot(server)
    with story.service("normal", LIVEJOIN_FAILPOINT="after-snapshot") as (server, sender):
        traffic.every_kind(sender, story.rows, story.epochs, 60)
        server.process.send_signal(signal.SIGTERM)
        assert server.wait() == -signal.SIGKILL
    worth = str(log_rows.look(folder).bytes + 50_000)
    with story.service("full", LIVEJOIN_FAILPOINT="in-snapshot:5", KEPT_LOG_WORTH=worth) as (server, sender):
        story.kept.follow(sender.client, views.FOLLOWED, "at the start")
        story.change_the_catalogue(sender)
        traffic.every_kind(sender, story.rows, story.epochs, 70)
        traffic.runs_of_a_source(sender, story.rows, story.epochs)
        story.singles(server, 100)
        story.kept.turn_pages(sender.client)
        _stream_until_killed(story, server, sender.client)
    return story


def _stream_until_killed(story: Story, server: KeptServer, client: httpx.Client) -> None:
    streams = [traffic.Stream(server.url, story.model, place) for place in range(traffic.CONNECTIONS)]
    for stream in streams:
        stream.start()
    with suppress(httpx.TransportError):
        story.kept.follow(client, views.FOLLOWED[:6], "in the stream")
    assert server.wait() == -signal.SIGKILL, server.output()
    for stream in streams:
        stream.join()
        assert stream.failure is None, stream.failure
        story.sources |= stream.sender.sources
    story.kept.unanswered = [stream.sender.unanswered for stream in streams if stream.sender.unanswered]
    story.kept.acknowledged = max(stream.sender.version for stream in streams)


def keep(story: Story, target: Path) -> dict[str, Any]:
    """The archive of the folder, and what is expected of it."""
    found = log_rows.look(story.folder)
    missing = set(found.lacks()) - _OF_THE_DATABASE
    assert not missing and found.snapshot and found.after, f"{story.folder.name} lacks {missing}: {found}"
    ours = [socket.gethostname(), str(ROOT), str(story.folder.parent), str(Path.home())]
    for name, data in contents(story.folder).items():
        for text in ours:  # a short one is there by chance
            assert len(text) < 4 or text.encode() not in data, f"{text!r} is in {name}"
    assert serve.BOOT in (story.folder / "livejoin.mark").read_bytes()
    archive = target / f"{story.folder.name}.tar.gz"
    pack(story.folder, archive)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return {"sha256": digest, "log": found._asdict(), **expectation.expect(story.folder, story.model, story.sources, story.kept)}


def _written() -> dict[str, str]:
    """Which code writes here, and by what."""
    code = ("service", "structures", "requirements.lock")
    assert not _git("status", "--porcelain", "--", *code), "commit the service first: a kept folder names the commit that wrote it"
    found = {"commit": _git("log", "-1", "--format=%H", "--", *code), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    return found | {name: version(name) for name in ("livejoin", "numpy", "orjson", "pyarrow")}


def _readable(value: Any, indent: str = "\n") -> str:
    """JSON with what is short in one line."""
    plain = json.dumps(value, ensure_ascii=False)
    if len(plain) < 140 or not isinstance(value, dict | list):
        return plain
    deeper = indent + " "
    if isinstance(value, dict):
        return "{" + ",".join(f"{deeper}{json.dumps(name)}: {_readable(part, deeper)}" for name, part in value.items()) + indent + "}"
    return "[" + ",".join(deeper + _readable(part, deeper) for part in value) + indent + "]"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or (target := Path(arguments[0])).exists():
        print("usage: python -m tests.kept.write_folder DIR (a folder that is not there yet)", file=sys.stderr)
        return 2
    written = _written()
    work = Path(tempfile.mkdtemp(prefix="livejoin-kept-"))
    made = work / "made"
    made.mkdir()
    try:
        folders = {story.folder.name: keep(story, made) for story in (write_clean(work / "clean"), write_killed(work / "killed"))}
        text = _readable({"written": written, "folders": folders})
        (made / "expected.json").write_text(text + "\n", encoding="utf-8")
        shutil.copytree(made, target)
    finally:
        shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
