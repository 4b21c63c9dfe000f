"""`livejoin token` on folders that do not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.access.store import read_tokens
from service.cli import main


@pytest.mark.parametrize("options", [["--scope", "read"], ["--scope", "write"], ["--scope", "admin", "--views", "v"]])
def test_a_misspelt_folder_is_not_created(tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    """Seen: it was, with the only copy of the token that was meant for the service."""
    folder = tmp_path / "dta"
    assert main(["token", "create", "board", *options, "--data", str(folder)]) == 1
    emitted = capsys.readouterr()
    assert emitted.out == "" and emitted.err.startswith(f"livejoin: there is no folder {folder}: ") and emitted.err.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_a_first_start_begins_with_an_admin_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As docs/tokens.md says; the message tells that the folder is new."""
    folder = tmp_path / "new" / "data"
    assert main(["token", "create", "ops", "--scope", "admin", "--data", str(folder)]) == 0
    emitted = capsys.readouterr()
    assert emitted.out.startswith("lj_") and "is a new data folder" in emitted.err and set(read_tokens(folder) or ()) == {"ops"}
    assert main(["token", "create", "board", "--scope", "read", "--data", str(folder)]) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_that_exists_may_begin_with_any_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "board", "--scope", "read", "--data", str(tmp_path)]) == 0
    assert "is now in token mode" in capsys.readouterr().err


@pytest.mark.parametrize("action", [["list"], ["revoke", "ops"], ["disable"]])
def test_the_other_actions_say_that_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str], action: list[str]) -> None:
    assert main(["token", *action, "--data", str(tmp_path / "dta")]) == 1
    assert f"there is no folder {tmp_path / 'dta'}" in capsys.readouterr().err and not any(tmp_path.iterdir())


def test_tokens_of_a_folder_or_of_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An https service may need both its address and its CA."""
    service = ["--url", "https://127.0.0.1:1", "--ca", str(tmp_path / "ca.pem")]
    assert main(["token", "list", "--data", str(tmp_path), *service]) == 2
    assert "--data cannot be combined with --url or --ca" in capsys.readouterr().err
    assert main(["token", "list", *service]) == 2
    assert str(tmp_path / "ca.pem") in capsys.readouterr().err
