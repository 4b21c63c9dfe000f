"""Where a service is, from the arguments and the environment."""

from __future__ import annotations

import os
from os import PathLike

from livejoin._async.client import AsyncClient
from livejoin._sync.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
PATIENCE = 60.0  # seconds


def connect(
    url: str | None = None,
    *,
    token: str | None = None,
    ca: str | PathLike[str] | None = None,
    patience: float = PATIENCE,
    timeout: float = 300.0,
    reader: str = "",
) -> Client:
    """A client of the service at `url`, else LIVEJOIN_URL, else http://127.0.0.1:8080. Asks nothing of it yet.

    token: else LIVEJOIN_TOKEN. ca: a PEM file with the certificates that may sign the service's; else LIVEJOIN_CA, else those that browsers
    trust. patience: for so many seconds a request is repeated while the service is away, busy or starting, where
    repeating is safe: reads, batches with source and epoch, and what the service says that it did not do. A service that has never
    answered this client is not waited for if it refuses the connection. timeout: seconds without an answer. reader: a name under which
    the service shows what this client reads, in `livejoin top` and the dashboard. Raises BadAddress, BadFile (of `ca`).
    A client may be used by several threads.
    """
    return Client(*_settings(url, token, ca), patience, timeout, reader)


def connect_async(
    url: str | None = None,
    *,
    token: str | None = None,
    ca: str | PathLike[str] | None = None,
    patience: float = PATIENCE,
    timeout: float = 300.0,
    reader: str = "",
) -> AsyncClient:
    """The same for asyncio."""
    return AsyncClient(*_settings(url, token, ca), patience, timeout, reader)


def _settings(url: str | None, token: str | None, ca: str | PathLike[str] | None) -> tuple[str, str | None, str | PathLike[str] | None]:
    given = os.environ.get
    return url or given("LIVEJOIN_URL") or DEFAULT_URL, token or given("LIVEJOIN_TOKEN"), ca or given("LIVEJOIN_CA") or None
