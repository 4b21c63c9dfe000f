"""The log of the service and of the streaming job: one line per record on standard error, from our own code and from libraries.

    2026-01-31T12:00:00.123Z WARNING livejoin.pipeline: topic bookings now has 3 partitions: …
    2026-01-31T12:00:00.123Z ERROR livejoin.api [5f2c9a1b-1a]: /v1/views/clashes/rows aborted
    {"time": "2026-01-31T12:00:00.123Z", "level": "ERROR", "component": "livejoin.api", "message": "…", "request_id": "5f2c9a1b-1a"}

Time in UTC, level, component, the id of the request that the record is about, message. A component is the name of a logger, which begins
with `livejoin.` for our own. For an exception, a record names the type and where it was raised, from the innermost call outwards: its text
and its traceback may contain rows of data. They follow in a record at level DEBUG: as text on separate lines, in JSON as the field
`traceback`.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from contextvars import ContextVar
from copy import copy
from pathlib import Path
from traceback import extract_tb
from typing import Any, Literal

Format = Literal["text", "json"]
Level = Literal["info", "debug"]
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)  # of the request that the current task answers

_CALLS = 8  # of a traceback that are named
_HEAD = re.compile(r"^\S+Z [A-Z]+ [\w.]+(?: \[\S+\])?: ")
# A message may quote what a client has sent: no part of it may look like a line of the log.
_CONTROL = {code: repr(chr(code))[1:-1] for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}


class _Text(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def formatMessage(self, record: logging.LogRecord) -> str:
        request = REQUEST_ID.get()
        about = "" if request is None else f" [{request}]"
        return f"{record.asctime} {record.levelname} {record.name}{about}: {record.message.translate(_CONTROL)}"

    def usesTime(self) -> bool:
        return True


class _Json(_Text):
    """One object per line, including the members of the record's `fields`, a mapping."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "component": record.name,
            "message": record.getMessage(),
        }
        request = REQUEST_ID.get()
        if request is not None:
            line["request_id"] = request
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)  # unlike orjson, this accepts a lone surrogate


_FORMATS: dict[Format, type[logging.Formatter]] = {"text": _Text, "json": _Json}


class StandardError(logging.Handler):
    """Writes each record without Python's buffer: lines of several threads stay whole, and a signal handler may log too."""

    def __init__(self, tracebacks: bool) -> None:
        super().__init__()
        self.tracebacks = tracebacks

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno > logging.DEBUG and record.exc_info:
            self._write(_without_traceback(record))
            if not self.tracebacks:
                return
            record = copy(record)
            record.levelno, record.levelname = logging.DEBUG, "DEBUG"
        self._write(record)

    def _write(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            while line:
                line = line[os.write(2, line) :]
        except OSError:
            pass  # a log that nobody reads must not end the work


def _without_traceback(record: logging.LogRecord) -> logging.LogRecord:
    assert record.exc_info
    kind, _, trace = record.exc_info
    calls = [f"{'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno} {frame.name}" for frame in extract_tb(trace)[-_CALLS:]]
    brief = copy(record)
    brief.msg, brief.args = f"{record.getMessage()}: {kind.__name__ if kind else 'no exception'} ({' < '.join(reversed(calls))})", None
    brief.exc_info = brief.exc_text = None
    return brief


def start_log(form: Format = "text", level: Level = "info") -> None:
    """Log to standard error: `livejoin` from INFO on, libraries from WARNING on.

    With level "debug", also the tracebacks of errors, which may contain rows of data. A second call adds no second handler.
    """
    root = logging.getLogger()
    if not any(isinstance(handler, StandardError) for handler in root.handlers):
        handler = StandardError(tracebacks=level == "debug")
        handler.setFormatter(_FORMATS[form]())
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("livejoin").setLevel(logging.INFO)


def message_of(line: str) -> str:
    """Return a line of the log, in either format, without time, level and component."""
    if line.startswith('{"time": '):
        try:
            return str(json.loads(line)["message"])
        except (ValueError, KeyError):
            return line
    return _HEAD.sub("", line)
