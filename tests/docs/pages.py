"""The blocks of a page, and how each is run, so that the documentation shows what really happens.

    console   commands behind `$ `, each with what it prints on a terminal of 140 columns
    sh        commands that succeed
    python    run in one namespace for the page; a block `text` right behind it is what it prints
    sql       SELECTs that make views: each is explained, or refused by the problem that a mark such as
              `refused: infeasible-view, as strict` names
    json      parsed; with a mark such as `PUT /v1/views/x` it is sent, and accepted
    http      a request: a line with method and path, then its body; a block `json` right behind it is the answer
    toml      read as a file of `livejoin stream`

A mark is an HTML comment in the line before a block; `not run: …` gives the reason why it is not run. The address of the service in a page,
http://127.0.0.1:8080, and its data folder, livejoin-data, are replaced by those of the test's service; a line `livejoin serve` stands for
its start. Variables that a block of `sh` exports are set in later blocks.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.server_process import ROOT, ServerProcess

ADDRESS = "http://127.0.0.1:8080"
UNRUN = "not run: "
_FENCE = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    mark: str
    line: int
    follows: bool  # with nothing but an empty line before it and after another block


class Step(NamedTuple):
    command: str
    output: str


def blocks_of(text: str) -> list[Block]:
    found, end = list[Block](), -1
    for match in _FENCE.finditer(text):
        follows = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(match["language"], match["text"], match["mark"] or "", text.count("\n", 0, match.start("text")), follows))
        end = match.end()
    return found


def steps_of(text: str) -> list[Step]:
    """Return the commands of a block of `console`."""
    found = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
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
        """Return this number of non-empty lines, or all."""
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


def environment_of(server: ServerProcess, folder: Path) -> dict[str, str]:
    """Return an environment in which `livejoin` is this checkout, and finds this service."""
    script = folder / "bin" / "livejoin"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:{ROOT}/client" exec "{sys.executable}" -m service.cli "$@"\n')
    script.chmod(0o755)
    return os.environ | {"PATH": f"{script.parent}:{os.environ['PATH']}", "LIVEJOIN_URL": server.url, "TERM": "dumb", "NO_COLOR": "1"}


class Reader:
    """A user who follows the instructions of a page, in an empty folder beside the repository's data."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.client = server.client()
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.environment = environment_of(server, folder)
        for name in ("tests", "service", "deploy", "docs"):
            (folder / name).symlink_to(ROOT / name)

    def read(self, page: Path) -> int:
        """Return how many blocks have been run. Raises AssertionError, which names page and line, for anything that is not true."""
        done = 0
        shown = page.relative_to(ROOT)
        blocks = blocks_of(page.read_text())
        for at, block in enumerate(blocks):
            following = blocks[at + 1] if at + 1 < len(blocks) and blocks[at + 1].follows else None
            try:
                done += self._do(block, following)
            except Exception as error:
                said = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
                raise AssertionError(f"{shown}:{block.line + 1}: {said}") from error
        return done

    def _do(self, block: Block, following: Block | None) -> bool:
        if block.mark.startswith(UNRUN):
            assert block.mark.removeprefix(UNRUN).strip(), "the mark gives no reason"
            return False
        text = block.text.replace(ADDRESS, self.server.url).replace("--data livejoin-data", f"--data {self.server.data}")
        if block.language == "text":
            assert block.follows, "a text that is no output: give it the mark `not run: …`"
            return False
        run = getattr(self, f"_{block.language}", None)
        assert run is not None, f"nobody knows how to run {block.language or 'a block without a language'}: mark it `not run: …`"
        run(text, block.mark, following)
        return True

    def _console(self, text: str, mark: str, following: Block | None) -> None:
        for step in steps_of(text):
            terminal = Terminal(step.command, self.folder, self.environment)
            try:
                _same(terminal.read().replace(self.server.url, ADDRESS), step.output.replace(self.server.url, ADDRESS))
            finally:
                terminal.close()

    def _sh(self, text: str, mark: str, following: Block | None) -> None:
        exported = self.folder / "bin" / "exported"
        commands = re.sub(r"^livejoin serve .*\n", "", text, flags=re.MULTILINE) + f'env -0 > "{exported}"\n'
        command = ["bash", "-euc", commands]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        self.environment = dict(line.split("=", 1) for line in exported.read_text().split("\0") if line)

    def _python(self, text: str, mark: str, following: Block | None) -> None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "page", "exec"), self.names)
        if following is not None and following.language == "text" and not following.mark:
            _same("\n".join(line.rstrip() for line in printed.getvalue().splitlines()), following.text.rstrip("\n"))

    def _sql(self, text: str, mark: str, following: Block | None) -> None:
        for select in re.split(r"^(?=SELECT|WITH)", text, flags=re.MULTILINE)[1:]:
            refused, _, guarantee = mark.removeprefix("refused: ").partition(", as ")
            definition = {"sql": select, "guarantee": guarantee} if guarantee else {"sql": select}
            answer = self.client.post("/v1/explain", json=definition)
            if refused:
                assert answer.json().get("type") == f"/problems/{refused}", answer.text
            else:
                assert answer.status_code == 200, f"{select}: {answer.text}"

    def _json(self, text: str, mark: str, following: Block | None) -> None:
        value = json.loads(text)
        if request := re.fullmatch(r"(PUT|POST|PATCH) (/\S+)", mark):
            _accepted(self.client.request(request[1], request[2], json=value))

    def _http(self, text: str, mark: str, following: Block | None) -> None:
        head, _, body = text.partition("\n")
        method, path = head.split()
        given: dict[str, Any] = {"content": body, "headers": {"Content-Type": "application/json"}} if body.strip() else {}
        answer = _accepted(self.client.request(method, path, **given))
        if following is not None and following.language == "json":
            emitted, shown = answer.json(), json.loads(following.text)
            assert emitted == shown, json.dumps(emitted)

    def _toml(self, text: str, mark: str, following: Block | None) -> None:
        from streaming.config import read_config

        (self.folder / "page.toml").write_text(text)
        read_config(self.folder / "page.toml")


def _accepted(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    return answer


def _same(emitted: str, shown: str) -> None:
    assert emitted == shown, f"the page shows\n{shown}\n\nand this comes:\n{emitted}"
