"""The log of the service and of the streaming job: one line a record on standard error, from our own code and from libraries.

    2026-01-31T12:00:00.123Z WARNING livejoin.pipeline: topic bookings now has 3 partitions: …

Time in UTC, level, component, message; a traceback follows on lines of its own. A component is a logger's name, which begins with
`livejoin.` for our own.
"""

from __future__ import annotations

import logging
import os
import re
import time

_HEAD = re.compile(r"^\S+Z [A-Z]+ [\w.]+: ")


class _Line(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class StandardError(logging.Handler):
    """Writes each record past Python's buffer: lines of several threads stay whole, and a signal handler may log, too."""

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{self.format(record)}\n".encode(errors="backslashreplace")
        try:
            while line:
                line = line[os.write(2, line) :]
        except OSError:
            pass  # nobody reads it, which must not end what is logged about


def start_log() -> None:
    """Sends to standard error what `livejoin` logs from INFO on, and libraries from WARNING on. A second call changes nothing."""
    root = logging.getLogger()
    if not any(isinstance(handler, StandardError) for handler in root.handlers):
        handler = StandardError()
        handler.setFormatter(_Line("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("livejoin").setLevel(logging.INFO)


def message_of(line: str) -> str:
    """A line of the log without time, level and component."""
    return _HEAD.sub("", line)
