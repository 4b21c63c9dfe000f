"""TLS: the certificate of the service, and its replacement while connections continue.

A context cannot be given another pair safely: a key that does not match would leave it without any. So each pair gets its own context, and
a new handshake uses the newest. Open connections keep theirs.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any


class BadPair(Exception):
    """The certificate and the key cannot be used; the text says why and what to do."""


class _ListenerContext(ssl.SSLContext):
    """The context of the listener. It is asked for an object at each new handshake; an OSError there closes the connection."""

    admit: Callable[[ssl.SSLObject], None] | None = None

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        begun = super().wrap_bio(*arguments, **options)
        if self.admit is not None:
            self.admit(begun)
        return begun


class Certificate:
    """A certificate with the certificates that sign it, and its key, both in PEM. Raises BadPair."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate, self._key = certificate, key
        self._newest = self.context = self._load()
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Read both files again, for new connections. BadPair: the earlier pair remains in use."""
        self._newest = self._load()

    def _choose(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        """Called in every handshake, with or without a server name."""
        connection.context = self._newest

    def _load(self) -> _ListenerContext:
        _require(self._certificate, b"-----BEGIN CERTIFICATE-----", "the certificate (--tls-certificate)", "certificate")
        _require(self._key, b"PRIVATE KEY-----", "the key (--tls-key)", "private key")
        context = _ListenerContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=self._refuse)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                emitted = f"the key {self._key} does not belong to the first certificate in {self._certificate}"
                raise BadPair(f"{emitted}: give the key that this certificate was issued for") from None
            emitted = f"the certificate {self._certificate} and the key {self._key} cannot be used ({error.reason or error})"
            raise BadPair(f"{emitted}: give a certificate and its key, whole and in PEM") from None
        except OSError as error:  # removed since they were checked
            raise BadPair(f"the certificate and the key cannot be read ({error.strerror}): give files that can be read") from None
        return context

    def _refuse(self) -> str:
        raise BadPair(f"the key {self._key} is encrypted: give one without a password (`openssl pkey -in FILE -out FILE`)")


def _require(path: Path, mark: bytes, what: str, wanted: str) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadPair(f"{what} {path} cannot be read ({error.strerror}): give the path of a PEM file that the service can read") from None
    if mark not in data:
        raise BadPair(f"{what} {path} contains no PEM {wanted}: give a file with a {wanted}")
