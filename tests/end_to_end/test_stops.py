"""A stop while the service still starts: a clean end, as any other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.durability.folder import Mark, Reach
from service.engine import recovery
from tests.end_to_end import talk
from tests.end_to_end.test_folder import DEFINITION, SQL, expect, fill
from tests.faults.patches import replace
from tests.server_process import ServerProcess


def slow_replay() -> None:
    decode = recovery.decode_effects

    def slowly(*row: Any) -> Any:
        time.sleep(0.2)
        return decode(*row)

    replace(recovery, "decode_effects", slowly)


def test_a_stop_during_recovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is closed: the mark says that all is on disk, so that no power cut begins a new timeline."""
    data, normal = tmp_path / "data", {"LIVEJOIN_SYNCHRONOUS": "normal"}
    with ServerProcess(data, environment=normal) as server:
        talk.define(server.client(), "items", DEFINITION)
        talk.view(server.client(), "neighbours", SQL)
        fill(server.client(), 1, 60)
    server = ServerProcess(data, environment=normal, before=slow_replay)
    try:
        server.start(wait=False)
        end = time.monotonic() + 60
        while "replaying the log" not in told(server):
            assert time.monotonic() < end, server.output()
            time.sleep(0.02)
        assert server.stop() == 0, server.output()
    finally:
        server.close()
    with monkeypatch.context() as patch:
        patch.setattr("service.durability.folder._boot_id", lambda: b"another start...")
        reach, is_certain = Mark.read(data)
    assert is_certain and isinstance(reach, Reach) and reach.version == 60
    with ServerProcess(data) as server:
        expect(server.client(), 60)


def told(server: ServerProcess) -> str:
    try:
        return server.client().get("/readyz").text
    except httpx.TransportError:  # it doesn't listen yet
        return ""
