"""The access tokens as the running service sees them.

Cost: one system call a request tells whether the file has changed; a token that was seen before is one look-up more. A change counts
from the next request on, so tokens are created, rotated and revoked without a restart.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path

from service.access.access_token import TEXT, AccessToken, digest
from service.access.store import TOKENS, read_tokens

_SELECTOR = 8  # bytes of a digest by which its token is looked up; the rest is compared in constant time


class Guard:
    """The tokens of one folder. `now`: seconds since 1970. Raises Damaged, OSError, here and in all methods but `is_in_force`."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self.folder, self.now = folder, now
        self._path = str(folder / TOKENS)
        self._stamp: tuple[int, ...] = ()
        self._tokens: dict[bytes, AccessToken] = {}
        self._known: dict[str, AccessToken] = {}
        self.token_mode = False  # as of the last look
        self.refresh()

    def refresh(self) -> bool:
        """Look whether the file has changed. Returns whether the folder is in token mode, which no running service leaves."""
        if not self.token_mode and not os.access(self._path, os.F_OK):
            return False
        self.token_mode = True
        try:
            found = os.stat(self._path)
            stamp: tuple[int, ...] = (found.st_ino, found.st_mtime_ns, found.st_size)
        except FileNotFoundError:
            stamp = ()  # removed by hand: no token is valid
        if stamp != self._stamp or not stamp:
            self._load()
            self._stamp = stamp
        return True

    def find(self, text: str) -> AccessToken | None:
        """The token of this text, which may have expired. `refresh` comes first."""
        token = self._known.get(text)
        if token is None and TEXT.fullmatch(text):
            given = digest(text)
            token = self._tokens.get(given[:_SELECTOR])
            if token is None or not hmac.compare_digest(token.digest, given):
                return None
            self._known[text] = token  # at most one text for each token
        return token

    def is_in_force(self, token: AccessToken) -> bool:
        """Whether who was let in before would be let in now: the token neither revoked nor expired, or still no token mode; for streams."""
        try:
            if not self.refresh():
                return True
        except Exception:
            return False
        return self._tokens.get(token.digest[:_SELECTOR]) == token and token.expires > self.now()

    def all(self) -> list[AccessToken]:
        """By name."""
        self.refresh()
        return sorted(self._tokens.values())

    def _load(self) -> None:
        self._tokens, self._known = {}, {}  # also when the file cannot be read: then nobody may do anything
        self._tokens = {token.digest[:_SELECTOR]: token for token in (read_tokens(self.folder) or {}).values()}
