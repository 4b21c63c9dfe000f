"""The scripts of docker-compose.yml: secrets and tokens, each made once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from deploy.checks.files import DEPLOY


def test_secrets_are_made_once(tmp_path: Path) -> None:
    script = shutil.copy(DEPLOY / "docker" / "make-secrets", tmp_path)
    subprocess.run([script], check=True)
    folder = tmp_path / "secret"
    first = {path.name: path.read_text() for path in folder.iterdir()}
    subprocess.run([script], check=True)
    assert first == {path.name: path.read_text() for path in folder.iterdir()}
    assert re.fullmatch(r"lj_[\w-]{43}\n", first["admin_token"]) and re.fullmatch(r"[\w-]{43}", first["grafana_password"])
    assert folder.stat().st_mode & 0o777 == 0o700


def test_tokens_are_made_once(tmp_path: Path) -> None:
    """With a `livejoin` that notes how it is called: what it does is tested elsewhere."""
    command = tmp_path / "livejoin"
    command.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\necho lj_made\n')
    command.chmod(0o755)
    script = (DEPLOY / "docker" / "make-tokens").read_text().replace("/run/livejoin", str(tmp_path / "tokens"))
    (tmp_path / "tokens").mkdir()
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LIVEJOIN_DATA": "/data"}
    for _ in range(2):
        subprocess.run(["sh", "-c", script, "make-tokens", "stream:write:0600", "prometheus:read:0644"], env=environment, check=True)
    made = {path.name: (path.stat().st_mode & 0o777, path.read_text()) for path in (tmp_path / "tokens").iterdir()}
    assert made == {"stream": (0o600, "lj_made\n"), "prometheus": (0o644, "lj_made\n")}
    assert (tmp_path / "calls").read_text().splitlines() == [
        "token revoke stream --data /data",
        "token create stream --scope write --data /data",
        "token revoke prometheus --data /data",
        "token create prometheus --scope read --data /data",
    ]
