"""`deploy/check` itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from deploy.checks import __main__ as command
from deploy.checks.tools import Missing, find
from tests.server_process import ROOT


def complain() -> list[str]:
    return ["too long"]


def lack() -> list[str]:
    find("no-such-tool", "Debian: none")
    return []


def test_each_check_is_a_line_and_a_complaint_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "QUICK", {"good": list, "lacking": lack})
    monkeypatch.setattr(sys, "argv", ["deploy/check"])
    assert command.main() == 0
    monkeypatch.setattr(command, "SLOW", {"bad": complain})
    monkeypatch.setattr(sys, "argv", ["deploy/check", "--all"])
    assert command.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["ok   good", "--   lacking: not checked: no-such-tool is not installed (Debian: none)"]
    assert said[2:] == [*said[:2], "bad  bad", "     too long"]


def test_a_missing_tool_is_said() -> None:
    with pytest.raises(Missing, match="no-such-tool is not installed"):
        find("no-such-tool", "Debian: none")


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_everything() -> None:
    """With the tools that are there; the output says which are not."""
    done = subprocess.run([ROOT / "deploy" / "check", "--all"], stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    assert done.returncode == 0
