"""The service as seen by the commands: reached through the client, whose failures become one line and an exit status."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import livejoin
from livejoin.terminal import Failure, say

PATIENCE = 300.0  # seconds to wait for a service that is busy, or unavailable in the middle of a command
TIMEOUT = 300.0  # seconds to wait for an answer


@contextmanager
def connect(args: argparse.Namespace, patience: float = PATIENCE, timeout: float = TIMEOUT) -> Iterator[livejoin.Client]:
    """Yield the client for `--url`. Reports what it waits for; converts the client's exceptions to Failure."""
    emitted = _LogHandler()
    log = logging.getLogger("livejoin.client")
    log.addHandler(emitted)
    log.setLevel(logging.INFO)
    try:
        with _client(args, patience, timeout) as client:
            yield client
    except (livejoin.BadAddress, livejoin.BadFile) as error:
        raise Failure(str(error), 2) from error
    except livejoin.LivejoinError as error:
        raise Failure(str(error)) from error
    finally:
        log.removeHandler(emitted)


def _client(args: argparse.Namespace, patience: float, timeout: float) -> livejoin.Client:
    try:
        return livejoin.connect(args.url, ca=args.ca, patience=patience, timeout=timeout)
    except livejoin.LivejoinError:  # for the address, or the CA file; these are ValueErrors too
        raise
    except ValueError as error:
        raise Failure(f"LIVEJOIN_TOKEN: {error}", 2) from error


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
