"""A stop during a start, or while batches wait: a clean end, like any other. And how a crash is shown."""

from __future__ import annotations

import resource
import signal
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from service import server as serving
from service.durability.folder import Mark, Reach
from service.engine import recovery
from service.engine.writer import Writer
from tests.end_to_end import talk
from tests.end_to_end.test_folder import DEFINITION, SQL, expect, fill, item
from tests.faults.patches import replace
from tests.server_process import Crashed, ServerProcess
from tests.waiting import until


def slow_replay() -> None:
    decode = recovery.decode_effects

    def slowly(*row: Any) -> Any:
        time.sleep(0.2)
        return decode(*row)

    replace(recovery, "decode_effects", slowly)


def test_a_stop_during_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is closed: the mark says that everything is on disk, so that a power cut does not begin a new timeline."""
    data, normal = tmp_path / "data", {"LIVEJOIN_SYNCHRONOUS": "normal"}
    with ServerProcess(data, environment=normal) as server:
        talk.define(server.client(), "items", DEFINITION)
        talk.view(server.client(), "neighbours", SQL)
        fill(server.client(), 1, 60)
    server = ServerProcess(data, environment=normal, before=slow_replay)
    try:
        server.start(wait=False)
        until(lambda: "replaying the log" in emitted(server), server.output)
        assert server.stop() == 0, server.output()
    finally:
        server.close()
    with monkeypatch.context() as patch:
        patch.setattr("service.durability.folder._boot_id", lambda: b"another start...")
        reach, is_certain = Mark.read(data)
    assert is_certain and isinstance(reach, Reach) and reach.version == 60
    with ServerProcess(data) as server:
        expect(server.client(), 60)


def emitted(server: ServerProcess) -> str:
    try:
        return server.client().get("/readyz").text
    except httpx.TransportError:  # it does not listen yet
        return ""


def held_up(folder: Path) -> None:
    """The first batch is in progress once the folder has the file `begun`, and waits for the file `go`. The time limit of a stop is
    short."""
    commit = Writer._commit

    def late(self: Writer, group: Any) -> Any:
        (folder / "begun").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
        return commit(self, group)

    replace(Writer, "_commit", late)
    replace(serving, "TURNS", 0.2)


def impatient(folder: Path) -> None:
    held_up(folder)
    replace(serving, "PATIENCE", 1)


class Busy:
    """A server with a batch of items 1 and 2 in progress, and two waiting batches: one of item 3, and one with a source, of item 4."""

    def __init__(self, folder: Path, server: ServerProcess, threads: ThreadPoolExecutor, **fields: Any) -> None:
        self.folder, self.server, self.threads = folder, server, threads
        talk.define(server.client(), "items", DEFINITION)
        self.first = self.posted([item(1), item(2)], **fields)
        until((folder / "begun").exists)
        self.waiting = [self.posted([item(3)]), self.posted([item(4)], source="s", epoch=1)]
        self.until_there_wait(2)

    def posted(self, changes: list[Any], **fields: Any) -> Future[httpx.Response]:
        return self.threads.submit(self.server.client().post, "/v1/changes", json={"changes": changes} | fields)

    def until_there_wait(self, count: int) -> None:
        client = self.server.client()
        until(lambda: f"livejoin_waiting_batches {count}.0" in client.get("/metrics").text)

    def stopped(self, errors: int = 0) -> None:
        """Check that the stop is clean, once it is requested and the batch in progress continues. `errors`: those expected in the log."""
        (self.folder / "go").touch()
        assert self.server.wait() == 0, self.server.output()
        assert self.server.output().count("ERROR") == errors, self.server.output()


def test_batches_that_wait_for_their_turns_at_a_stop(tmp_path: Path) -> None:
    """They are refused when the time is over, and no part of them is applied. The batch in progress is completed."""
    data = tmp_path / "data"
    with ServerProcess(data, before=partial(held_up, tmp_path)) as server, ThreadPoolExecutor(8) as threads:
        busy = Busy(tmp_path, server, threads)
        replaced = threads.submit(server.client().post, "/v1/relations/items/replace", content=b"", headers={"Content-Type": talk.JSONL})
        busy.until_there_wait(3)
        server.process.send_signal(signal.SIGTERM)
        for one in busy.waiting:
            talk.problem(one.result(60), 503, "recovering")
        busy.stopped()
        assert talk.ok(busy.first.result(60))["version"] == 1
        talk.problem(replaced.result(60), 503, "recovering")
    with ServerProcess(data) as server:
        expect_items(server.client(), {1, 2})


@pytest.mark.parametrize("source", [None, "t"])
def test_a_batch_that_is_in_progress_for_too_long_at_a_stop(tmp_path: Path, source: str | None) -> None:
    """Its client is told that it may be applied, or to send it again, and it is applied."""
    data, fields = tmp_path / "data", {} if source is None else {"source": source, "epoch": 1}
    with ServerProcess(data, before=partial(impatient, tmp_path)) as server, ThreadPoolExecutor(8) as threads:
        busy = Busy(tmp_path, server, threads, **fields)
        server.process.send_signal(signal.SIGTERM)
        emitted = busy.first.result(60)
        busy.stopped(errors=int(source is None))
        talk.problem(emitted, 500, "internal") if source is None else talk.problem(emitted, 503, "recovering")
        for one in busy.waiting:
            talk.problem(one.result(60), 503, "recovering")
    with ServerProcess(data) as server:
        expect_items(server.client(), {1, 2})
        if source is not None:
            again = talk.ok(server.client().post("/v1/changes", json={"changes": [item(1), item(2)]} | fields))
            assert again["duplicate"] and again["first"]["version"] == 1


def expect_items(client: httpx.Client, numbers: set[int]) -> None:
    rows = talk.ok(client.get("/v1/relations/items/rows", headers={"Accept": talk.JSON}))["rows"]
    assert {row["id"] for row in rows} == numbers


def without_core() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def test_a_crash_of_native_code(tmp_path: Path) -> None:
    """Standard error shows where each thread was, and a test whose server ends like this fails."""
    emitted = r"(?s)status -11:.*Fatal Python error: Segmentation fault.*writer\.py"
    with pytest.raises(Crashed, match=emitted), ServerProcess(tmp_path / "data", before=without_core) as server:
        server.process.send_signal(signal.SIGSEGV)
        assert server.wait() == -signal.SIGSEGV


def test_an_end_that_no_test_has_asked_for(tmp_path: Path) -> None:
    with pytest.raises(Crashed, match="ended with status -9"), ServerProcess(tmp_path / "data") as server:
        server.process.send_signal(signal.SIGKILL)
        until(lambda: server.process.poll() is not None)
