"""A listening port of a test, for what is placed between a client and a service."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Self


class Listener:
    """While the context is open, a thread accepts connections to `url`, one after another."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._take(client)

    def _take(self, client: socket.socket) -> None:
        """Handle a new connection; the next one is accepted when this returns."""
        raise NotImplementedError
