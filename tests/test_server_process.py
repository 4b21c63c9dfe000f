"""The guarantees of the server process that tests use."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.server_process import ServerProcess


def test_a_port_that_another_test_has_taken(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data")
    taken = server.port
    with socket.create_server(("127.0.0.1", taken)), server:
        assert server.port != taken
        assert server.client().get("/livez").status_code == 200
