"""The access tokens as seen by the running service.

Cost: one look-up for a header that was seen before. At most once in ten milliseconds, a system call checks whether the file has changed;
changes by the service itself take effect at once (`look_again`). So tokens are created, rotated and revoked without a restart.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path

from service.access.access_token import TEXT, AccessToken, digest
from service.access.store import TOKENS, read_tokens

PAUSE = 0.01  # seconds between two checks of the file
_SELECTOR = 8  # bytes of a digest that select its token; the rest is compared in constant time


class Guard:
    """The tokens of one folder. `now`: seconds since 1970; `pause`: like PAUSE. Raises Damaged, OSError, here and in `refresh` and `all`.

    known: tokens by the header that carries them, as clients usually write it; valid until the file changes.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.time, pause: float = PAUSE) -> None:
        self.folder, self.now = folder, now
        self.known: dict[bytes, AccessToken] = {}
        self._pause, self._next = pause, 0.0
        self._path = str(folder / TOKENS)
        self._stamp: tuple[int, ...] = ()
        self._tokens: dict[bytes, AccessToken] = {}
        self.token_mode = False  # at the last check
        self.refresh()

    def refresh(self) -> bool:
        """Check whether the file has changed. Return whether the folder is in token mode, which no running service leaves."""
        moment = time.monotonic()
        if moment < self._next:
            return self.token_mode
        self._next = moment + self._pause
        if not self.token_mode and not os.access(self._path, os.F_OK):
            return False
        self.token_mode = True
        try:
            found = os.stat(self._path)
            stamp: tuple[int, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
        except FileNotFoundError:
            stamp = ()  # removed by hand: no token is valid
        if stamp != self._stamp or not stamp:
            try:
                self._load()
            except Exception:
                self._next = 0.0  # so that each request is told so
                raise
            self._stamp = stamp
        return True

    def find(self, text: str) -> AccessToken | None:
        """Return the token with this text, which may have expired. Call `refresh` first."""
        if not TEXT.fullmatch(text):
            return None
        given = digest(text)
        token = self._tokens.get(given[:_SELECTOR])
        if token is None or not hmac.compare_digest(token.digest, given):
            return None
        self.known[b"Bearer " + text.encode()] = token  # at most one per token
        return token

    def look_again(self) -> None:
        """Check the file at the next `refresh`: it has just been changed."""
        self._next = 0.0

    def is_in_force(self, token: AccessToken) -> bool:
        """Return whether a request with this token would be accepted now; for streams. False also while the file cannot be read."""
        try:
            if not self.refresh():
                return True
        except Exception:
            return False
        return self._tokens.get(token.digest[:_SELECTOR]) == token and token.expires > self.now()

    def all(self) -> list[AccessToken]:
        """Return all tokens, by name."""
        self.look_again()
        self.refresh()
        return sorted(self._tokens.values())

    def _load(self) -> None:
        self._tokens, self.known = {}, {}  # also if the file cannot be read: then nothing is permitted
        self._tokens = {token.digest[:_SELECTOR]: token for token in (read_tokens(self.folder) or {}).values()}
