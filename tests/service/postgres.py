"""PostgreSQL for comparisons, where it is installed: a server in a temporary folder, which only this process reaches."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any


def _programs() -> Path | None:
    found = shutil.which("postgres")
    programs = Path(found).resolve().parent if found else None
    return programs if programs and (programs / "initdb").exists() and (programs / "psql").exists() else None


PROGRAMS = _programs()


def _as_user() -> dict[str, Any]:
    """Who runs the server: it refuses root."""
    return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}


@cache
def _folder() -> str:
    assert PROGRAMS is not None
    folder = tempfile.mkdtemp(prefix="livejoin-postgres-")
    user = _as_user()
    if user:
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
    data = f"{folder}/data"
    run = {"check": True, "stdout": subprocess.DEVNULL, "cwd": folder, **user}
    subprocess.run([PROGRAMS / "initdb", "-D", data, "-U", "test", "--no-sync", "--locale=C.UTF-8", "--encoding=UTF8"], **run)
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off -c timezone=UTC -c jit=off"
    subprocess.run([PROGRAMS / "pg_ctl", "-D", data, "-w", "-l", f"{folder}/log", "-o", options, "start"], **run)

    def stop() -> None:
        subprocess.run([PROGRAMS / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(stop)
    return folder


def answers(script: Sequence[str]) -> list[list[str | None]]:
    """Run statements; return the rows of their results, each value as text. An error ends the script and fails."""
    assert PROGRAMS is not None
    command = [PROGRAMS / "psql", "-h", _folder(), "-U", "test", "-d", "postgres", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]
    command += ["-F", "\x1f", "-R", "\x1e", "-P", "null=\x1d"]
    done = subprocess.run(command, input="\n".join(script), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:2000]
    rows = done.stdout.removesuffix("\n").split("\x1e") if done.stdout else []
    return [[None if value == "\x1d" else value for value in row.split("\x1f")] for row in rows]
