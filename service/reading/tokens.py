"""Opaque texts that only this data folder can have issued: cursors of readers and tokens of followers.

text := base64url(mac, payload);  payload := JSON of [kind, field, ...]
mac := HMAC-SHA-256 over the folder's id and the payload, cut to 16 bytes
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

_MAC = 16


class ForgedToken(ValueError):
    """The text was not issued here, or is of another kind."""


class Signer:
    """Seals and opens such texts, across restarts of the service."""

    def __init__(self, folder_id: str, secret: bytes) -> None:
        self._secret = secret
        self._folder = folder_id.encode()

    def seal(self, kind: str, *fields: str | int) -> str:
        payload = json.dumps([kind, *fields], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(payload) + payload).rstrip(b"=").decode()

    def open(self, kind: str, text: str) -> list[Any]:
        """Return the fields. Raises Forged."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise ForgedToken(text) from None
        mac, payload = data[:_MAC], data[_MAC:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise ForgedToken(text)
        found, *fields = json.loads(payload)
        if found != kind:
            raise ForgedToken(text)
        return list(fields)

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, self._folder + b"\0" + payload, "sha256")[:_MAC]


class Token(NamedTuple):
    """The position of a follower: a view by name and id, and the last version that it has. `is_of_here`: the folder has had this version,
    and all its later versions follow it; otherwise the version was lost, or belongs to data that a restored copy does not have."""

    name: str
    id: str
    version: int
    is_of_here: bool


class Tokens:
    """Tokens of followers. `timelines`: of the folder, oldest first, (number, version at which it began); each began where the previous one
    was left."""

    def __init__(self, signer: Signer, timelines: Sequence[tuple[int, int]]) -> None:
        self._signer = signer
        self._timeline = timelines[-1][0]
        begun = [version for _, version in timelines[1:]]
        self._ends = {number: min(begun[at:], default=None) for at, (number, _) in enumerate(timelines)}

    def seal(self, name: str, id_: str, version: int) -> str:
        return self._signer.seal("token", self._timeline, name, id_, version)

    def open(self, text: str) -> Token:
        """Raises Forged."""
        timeline, name, id_, version = self._signer.open("token", text)
        end = self._ends.get(timeline, -1)
        return Token(name, id_, version, end is None or version <= end)
