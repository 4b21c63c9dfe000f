"""The access tokens as the running service sees them.

Cost: a header that was seen before is one look-up. Whether the file has changed is asked once in ten milliseconds at most, which takes
a system call; what the service itself changes counts at once (`look_again`). So tokens are created, rotated and revoked without a restart.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable
from pathlib import Path

from service.access.access_token import TEXT, AccessToken, digest
from service.access.store import TOKENS, read_tokens

PAUSE = 0.01  # seconds between two looks at the file
_SELECTOR = 8  # bytes of a digest by which its token is looked up; the rest is compared in constant time


class Guard:
    """The tokens of one folder. `now`: seconds since 1970; `pause`: as PAUSE. Raises Damaged, OSError, here and in `refresh` and `all`.

    known: tokens by the header that bears them, as clients usually write it; only while the file is as it was at the last look.
    """

    def __init__(self, folder: Path, now: Callable[[], float] = time.time, pause: float = PAUSE) -> None:
        self.folder, self.now = folder, now
        self.known: dict[bytes, AccessToken] = {}
        self._pause, self._next = pause, 0.0
        self._path = str(folder / TOKENS)
        self._stamp: tuple[int, ...] = ()
        self._tokens: dict[bytes, AccessToken] = {}
        self.token_mode = False  # as of the last look
        self.refresh()

    def refresh(self) -> bool:
        """Look whether the file has changed. Returns whether the folder is in token mode, which no running service leaves."""
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
            self._load()
            self._stamp = stamp
        return True

    def find(self, text: str) -> AccessToken | None:
        """The token of this text, which may have expired. `refresh` comes first."""
        if not TEXT.fullmatch(text):
            return None
        given = digest(text)
        token = self._tokens.get(given[:_SELECTOR])
        if token is None or not hmac.compare_digest(token.digest, given):
            return None
        self.known[b"Bearer " + text.encode()] = token  # at most one for each token
        return token

    def look_again(self) -> None:
        """The file has just been changed: the next look is due."""
        self._next = 0.0

    def is_in_force(self, token: AccessToken) -> bool:
        """Whether a request that was let in with this token would be let in now; for streams. False also while the file cannot be read."""
        try:
            if not self.refresh():
                return True
        except Exception:
            return False
        return self._tokens.get(token.digest[:_SELECTOR]) == token and token.expires > self.now()

    def all(self) -> list[AccessToken]:
        """By name."""
        self.look_again()
        self.refresh()
        return sorted(self._tokens.values())

    def _load(self) -> None:
        self._tokens, self.known = {}, {}  # also when the file cannot be read: then nobody may do anything
        self._tokens = {token.digest[:_SELECTOR]: token for token in (read_tokens(self.folder) or {}).values()}
