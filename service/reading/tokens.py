"""Opaque texts that only this data folder can have issued: cursors of readers and tokens of followers.

    text := base64url(mac, payload);  payload := JSON of [kind, boot, field, ...]
    mac := HMAC-SHA-256 over the folder's id and the payload, cut to 16 bytes
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
from typing import Any

_MAC = 16


class Forged(ValueError):
    """The text was not issued here, or is of another kind."""


class FromBefore(ValueError):
    """The text was issued here, before the last start of the service."""


class Signer:
    """Seals and opens such texts. `boot` changes with every start."""

    def __init__(self, folder_id: str, secret: bytes) -> None:
        self._secret = secret
        self._folder = folder_id.encode()
        self._boot = secrets.token_urlsafe(6)

    def seal(self, kind: str, *fields: str | int) -> str:
        payload = json.dumps([kind, self._boot, *fields], separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(self._mac(payload) + payload).rstrip(b"=").decode()

    def open(self, kind: str, text: str) -> list[Any]:
        """The fields. Raises Forged; FromBefore, with the fields as its argument."""
        try:
            data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise Forged(text) from None
        mac, payload = data[:_MAC], data[_MAC:]
        if not hmac.compare_digest(mac, self._mac(payload)):
            raise Forged(text)
        found, boot, *fields = json.loads(payload)
        if found != kind:
            raise Forged(text)
        if boot != self._boot:
            raise FromBefore(fields)
        return list(fields)

    def _mac(self, payload: bytes) -> bytes:
        return hmac.digest(self._secret, self._folder + b"\0" + payload, "sha256")[:_MAC]
