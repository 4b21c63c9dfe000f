"""The audit log: what is in it at once, what is counted, how it is rotated."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.access import audit
from service.access.access_token import AccessToken
from service.access.audit import AUDIT, FILES, Audit, append

ETL = AccessToken("etl", "write", None, None, math.inf, 0.0, b"\1" * 32)
CLIENT = ("10.0.0.7", 4711)


class Loop:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now, self.due = 1_800_000_000.0, list[tuple[float, Callable[[], None]]]()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.now + seconds, call))

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        for due in [due for due in self.due if due[0] <= self.now]:
            self.due.remove(due)
            due[1]()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def log(tmp_path: Path, loop: Loop) -> Audit:
    return Audit(tmp_path, loop.later, lambda: loop.now)


def lines(path: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def test_a_request_is_written_at_once_and_its_repetitions_are_counted(tmp_path: Path, loop: Loop, log: Audit) -> None:
    for _ in range(3):
        log.request(ETL, "POST", "/v1/changes", 200, CLIENT)
    log.request(ETL, "POST", "/v1/changes", 422, CLIENT)
    first = {"time": "2027-01-15T08:00:00Z", "token": "etl", "address": "10.0.0.7", "action": "POST /v1/changes", "status": 200}
    assert lines(tmp_path / AUDIT) == [first, first | {"status": 422}]
    loop.pass_by(61)
    emitted = lines(tmp_path / AUDIT)[2:]
    repeated = {"time": "2027-01-15T08:01:01Z", "since": first["time"], "token": "etl", "action": "POST /v1/changes", "status": 200}
    assert emitted == [repeated | {"repeated": 2}]
    log.request(ETL, "POST", "/v1/changes", 200, None)
    log.close()
    assert lines(tmp_path / AUDIT)[3:] == [first | {"time": "2027-01-15T08:01:01Z", "address": None}]
    assert (tmp_path / AUDIT).stat().st_mode & 0o777 == 0o600


def test_those_without_a_token_cannot_fill_it(tmp_path: Path, loop: Loop, log: Audit) -> None:
    for i in range(5000):
        log.request(None, "GET", f"/{i}", 401, (f"10.0.{i // 256}.{i % 256}", 1))
    assert len(lines(tmp_path / AUDIT)) == 1
    loop.pass_by(61)
    assert [line["repeated"] for line in lines(tmp_path / AUDIT)[1:]] == [4999]


def test_nor_can_one_token(tmp_path: Path, loop: Loop, log: Audit) -> None:
    for i in range(5000):
        log.request(ETL, "GET", f"/v1/views/{i}", 404, CLIENT)
    log.request(ETL, "GET", "/" + "a" * 5000, 404, CLIENT)
    loop.pass_by(61)
    emitted = lines(tmp_path / AUDIT)
    assert len(emitted) == 1002 and emitted[-1]["repeated"] == 4000 and max(len(line["action"]) for line in emitted) < 250


def test_it_is_rotated(tmp_path: Path, log: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FILE_BYTES", 1000)
    for i in range(200):
        log.event(ETL, CLIENT, "create token", name=f"t{i}")
    log.close()
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == [AUDIT, *(f"{AUDIT}.{i}" for i in range(1, FILES))]
    assert all(path.stat().st_size <= 1000 and path.stat().st_mode & 0o777 == 0o600 for path in files)
    emitted = [line["name"] for path in (files[0], *files[1:]) for line in reversed(lines(path))]
    assert emitted == [f"t{i}" for i in range(199, 199 - len(emitted), -1)] and len(emitted) > 30


def test_commands_append_to_it(tmp_path: Path, log: Audit) -> None:
    log.event(ETL, CLIENT, "create token", name="a")
    append(tmp_path, "revoke token", name="a")
    log.event(ETL, CLIENT, "create token", name="b")
    assert [(line["token"], line["action"]) for line in lines(tmp_path / AUDIT)] == [
        ("etl", "create token"), (None, "revoke token"), ("etl", "create token"),
    ]  # fmt: skip


def test_a_log_that_cannot_be_written_is_told_and_stops_nobody(tmp_path: Path, loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    log = Audit(tmp_path / "none", loop.later, lambda: loop.now)
    log.request(ETL, "GET", "/v1/views", 200, CLIENT)
    assert "the audit log cannot be written: No such file or directory" in caplog.text
