"""README.md and docs/ are correct: the tour and the examples that continue it are run, files and tables are read."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings, settings
from tests.docs.pages import Step, Terminal, blocks_of, environment_of, steps_of
from tests.server_process import ROOT, ServerProcess

README = (ROOT / "README.md").read_text()
TOUR = README.partition("## A tour")[2].partition("\n## ")[0]
SQL_PAGE = (ROOT / "docs" / "reference" / "sql.md").read_text()  # continues the tour
WATCH = "livejoin watch clashes"


def blocks(text: str, language: str) -> list[str]:
    return [block.text for block in blocks_of(text) if block.language == language]


def steps(text: str) -> list[Step]:
    return [step for block in blocks(text, "console") for step in steps_of(block)]


@pytest.fixture
def environment(server: ServerProcess, tmp_path: Path) -> dict[str, str]:
    return environment_of(server, tmp_path)


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


UNITS = {
    "DIR": "a path", "FILE": "a path", "ADDRESS": "an address", "ADDRESSES": "addresses or networks, separated by commas",
    "N": "an integer", "SECONDS": "a number of seconds", "SIZE": "a number of bytes, such as 268435456 or 256MiB",
}  # fmt: skip


def accepts(schema: dict[str, Any]) -> str:
    """The values that a setting accepts, in words."""
    if "enum" in schema:
        return " or ".join(f"`{choice}`" for choice in schema["enum"])
    unit = UNITS[schema["metavar"]]
    if "maximum" in schema:
        return f"{unit} from {schema['minimum']} to {schema['maximum']}"
    return f"{unit}, more than {schema['exclusiveMinimum']}" if "exclusiveMinimum" in schema else unit


def test_the_table_of_settings_is_the_declaration() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    table = page.partition("## Configuration")[2].partition("\n## ")[0]
    schemas = Settings.model_json_schema()["properties"]
    rows = [f"| `{one.flag}` | `{one.variable}` | `{one.default}` | {accepts(schemas[one.name])} | {one.purpose} |" for one in settings()]
    assert "\n".join(["| option | variable | default | accepts | |", "|---|---|---|---|---|", *rows]) in table
