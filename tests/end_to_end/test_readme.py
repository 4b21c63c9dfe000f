"""README.md and docs/ are true word for word: the tour and the examples that continue it are run, files and tables are read."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from service.settings import reference
from tests.server_process import ROOT, ServerProcess

README = (ROOT / "README.md").read_text()
TOUR = README.partition("## A tour")[2].partition("\n## ")[0]
SQL_PAGE = (ROOT / "docs" / "sql.md").read_text()  # continues the tour
WATCH = "livejoin watch clashes"


class Step(NamedTuple):
    command: str
    output: str


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def steps(text: str) -> list[Step]:
    found = []
    for block in blocks(text, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            length = 1
            while subprocess.run(["bash", "-n", "-c", "\n".join(lines[:length])], capture_output=True).returncode:
                length += 1  # a command goes on until its quotes are closed
            found.append(Step("\n".join(lines[:length]), "\n".join(lines[length:])))
    return found


class Terminal:
    """A command on a terminal without colours; standard error goes there too."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self._process = subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, stdout=follower, stderr=follower)
        os.close(follower)

    def read(self, lines: int | None = None) -> str:
        """So many lines that are not empty, or all."""
        text = b""
        while lines is None or sum(bool(line.strip()) for line in text.split(b"\n")[:-1]) < lines:
            try:
                block = os.read(self._leader, 65536)
            except OSError:  # Linux says so at the end
                break
            if not block:
                break
            text += block
        return "\n".join(line.rstrip() for line in text.decode().replace("\r\n", "\n").split("\n") if line.strip())

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._leader)


@pytest.fixture
def environment(server: ServerProcess, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "livejoin"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m service.cli "$@"\n')
    script.chmod(0o755)
    return os.environ | {"PATH": f"{script.parent}:{os.environ['PATH']}", "LIVEJOIN_URL": server.url, "TERM": "dumb", "NO_COLOR": "1"}


@pytest.fixture
def followed(server: ServerProcess, tmp_path: Path, environment: dict[str, str]) -> Iterator[list[Terminal]]:
    terminals: list[Terminal] = []
    yield terminals
    for terminal in terminals:
        terminal.close()


def test_the_tour(server: ServerProcess, tmp_path: Path, environment: dict[str, str], followed: list[Terminal]) -> None:
    (files,) = [block for block in blocks(TOUR, "sh") if "cat >" in block]
    subprocess.run(["bash", "-c", files], cwd=tmp_path, check=True)
    tour, examples = steps(TOUR), steps(SQL_PAGE)
    assert len(tour) == 8 and len(examples) == 3
    for step in tour + examples:
        if step.command == WATCH:
            assert followed[0].read(len(step.output.splitlines())) == step.output
            continue
        if step.command.startswith("curl") and "changes" in step.command:
            followed.append(Terminal(WATCH, tmp_path, environment))
            wait_for_follower(server)
        command = step.command.replace("http://127.0.0.1:8080", server.url)
        terminal = Terminal(command, tmp_path, environment)
        try:
            assert terminal.read() == step.output, step.command
        finally:
            terminal.close()


def wait_for_follower(server: ServerProcess) -> None:
    with server.client() as client:
        while client.get("/v1/status").json()["figures"]["subscribers"] == 0:
            pass


@pytest.mark.parametrize("page", ["README.md", "docs/kafka.md"])
def test_the_stream_s_file(page: str, tmp_path: Path) -> None:
    from streaming.config import read_config

    (text,) = blocks((ROOT / page).read_text(), "toml")
    (tmp_path / "stream.toml").write_text(text)
    config = read_config(tmp_path / "stream.toml")
    assert config.topics[0].relation == "bookings" and config.outs[0].view == "clashes"


def test_the_table_of_settings_is_the_declaration() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page.partition("## Configuration")[2].partition("\n## ")[0]
    assert reference() in table
