"""The audit log: who did what and when, by the names of the tokens. One JSON object per line, in `livejoin.audit` in the data folder.

    {"time": …, "token": "etl", "address": "10.0.0.7", "action": "POST /v1/changes", "status": 200}
    {"time": …, "since": …, "token": "etl", "action": "POST /v1/changes", "status": 200, "repeated": 5230}
    {"time": …, "token": "ops", "address": …, "action": "create token", "name": "etl", "scope": "write", …}

A request is written at once, and its repetitions within a minute as one line at the end of that minute; so neither many small batches nor
someone who tries out tokens displaces the rest of the log. Texts of tokens, query strings and bodies are never logged.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, TextIO, cast

import orjson

from service.access.access_token import AccessToken, moment
from service.access.store import give_to_owner
from service.durability.folder import private

AUDIT = "livejoin.audit"
FILES, FILE_BYTES = 5, 16 << 20
WINDOW = 60.0  # seconds in which repetitions are counted
_DISTINCT = 1000  # requests written in one window; further ones are counted by token and status
_LONGEST = 200  # characters of a path

Key = tuple[str | None, str, str, int]  # token, method, path, status
log = logging.getLogger("livejoin.access")


class _File(RotatingFileHandler):
    """A file that only its owner can read, rotated by size."""

    def _open(self) -> Any:
        return _opened(Path(self.baseFilename))

    def handleError(self, record: logging.LogRecord) -> None:
        _complain(cast(BaseException, sys.exc_info()[1]))


class Audit:
    """The audit log of a running service. Everything runs in the event loop; `later(seconds, call)` schedules a call in it."""

    def __init__(self, folder: Path, later: Callable[[float, Callable[[], None]], object], now: Callable[[], float] = time.time) -> None:
        self._folder, self._later, self._now = folder, later, now
        self._file: _File | None = None
        self._begun = 0.0  # start of the window
        self._repeated: dict[Key, int] = {}

    def request(self, token: AccessToken | None, method: str, path: str, status: int, client: Any) -> None:
        """Log a request; `token`: None if it had no valid one. `client`: its address and port, if known."""
        if token is None:
            key: Key = (None, "-", "-", status)
        else:
            key = (token.name, method, path[:_LONGEST], status)
        count = self._repeated.get(key)
        if count is None and len(self._repeated) >= _DISTINCT:
            key = (key[0], "-", "-", status)
            count = self._repeated.get(key)
        if count is not None:
            self._repeated[key] = count + 1
            return
        if not self._repeated:
            self._begun = self._now()
            self._later(WINDOW, self.flush)
        self._repeated[key] = 0
        self._write({"token": key[0], "address": client and client[0], "action": _action(key), "status": status})

    def event(self, token: AccessToken, client: Any, action: str, **facts: Any) -> None:
        """Log an action, with facts that the path of its request does not show."""
        self._write({"token": token.name, "address": client and client[0], "action": action, **facts})

    def flush(self) -> None:
        """End the window: write the repetitions counted in it."""
        repeated, self._repeated = self._repeated, {}
        for key, count in repeated.items():
            if count:
                since, action = moment(self._begun), _action(key)
                self._write({"since": since, "token": key[0], "action": action, "status": key[3], "repeated": count})

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, entry: dict[str, Any]) -> None:
        try:
            if self._file is None:
                self._file = _File(self._folder / AUDIT, maxBytes=FILE_BYTES, backupCount=FILES - 1)
            line = _line(self._now(), entry)
            self._file.handle(logging.LogRecord("livejoin.audit", logging.INFO, "", 0, line, None, None))
        except OSError as error:
            _complain(error)


def append(folder: Path, action: str, **facts: Any) -> None:
    """Log what a command did to the folder, with or without a running service. Only the service rotates the file. Raises OSError."""
    with _opened(folder / AUDIT) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(_line(time.time(), {"token": None, "user": os.getuid(), "action": action, **facts}) + "\n")


def _action(key: Key) -> str:
    return f"{key[1]} {key[2]}"


def _complain(error: BaseException) -> None:
    log.error("the audit log cannot be written: %s", error.strerror if isinstance(error, OSError) else type(error).__name__)


def _line(now: float, entry: dict[str, Any]) -> str:
    return orjson.dumps({"time": moment(now), **entry}).decode()


def _opened(path: Path) -> TextIO:
    file = open(path, "a", encoding="utf-8", opener=private)
    give_to_owner(file.fileno(), path.parent)
    return cast(TextIO, file)
