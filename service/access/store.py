"""The file of access tokens in a data folder. While it exists, the folder is in token mode, even if no token in it is valid any more.

    livejoin.tokens    two lines: a JSON object with `format` and `tokens`, and its CRC-32

It is a separate file, not a table of the database, which belongs to the running service alone: commands write it while a service runs,
which sees the new file at its next request. It is replaced as a whole, under a lock on the folder itself.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path
from typing import Any

import orjson

from service.access.access_token import AccessToken, of_json
from service.durability.folder import DamagedFolder, FolderLock, private, sync, sync_path, tokens_locked
from service.errors import Problem

TOKENS = "livejoin.tokens"
FORMAT = 1
_REMEDY = "restore this file from a copy, or end token mode with `livejoin token disable` and create new tokens"

Tokens = dict[str, AccessToken]  # by name


def read_tokens(folder: Path) -> Tokens | None:
    """Return the tokens by name; None if the folder is not in token mode. Raises Damaged, OSError."""
    path = folder / TOKENS
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    body, _, crc = data.partition(b"\n")
    if crc != _crc(body):
        raise DamagedFolder("wrong checksum", path, _REMEDY)
    document: dict[str, Any] = orjson.loads(body)
    if document["format"] != FORMAT:
        raise DamagedFolder(
            f"format {document['format']} instead of {FORMAT}", path, "use the version of livejoin that wrote it, or a newer one"
        )
    try:
        return {token.name: token for token in map(of_json, document["tokens"])}
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFolder(f"a token that is not valid ({error!r})", path, _REMEDY) from None


def add_token(folder: Path, token: AccessToken, *, begin: bool, replace: bool = False) -> bool:
    """Add a token; it is on disk on return. `begin`: allow this to begin token mode; `replace`: allow a name that is in use.

    Return whether it was the first. Problems: `definition-differs`, `forbidden` (it would begin token mode). Raises Damaged, OSError.
    """
    with tokens_locked(folder):
        tokens = read_tokens(folder)
        if tokens is None and not begin:
            first = "create its first token with `livejoin token create NAME --scope admin --data DIR`"
            raise Problem("forbidden", f"the data folder is not in token mode: {first}")
        found = tokens or {}
        if token.name in found and not replace:
            raise Problem("definition-differs", f"there is a token {token.name!r}: use another name, or revoke it first")
        _write(folder, found | {token.name: token})
        return tokens is None


def remove_token(folder: Path, name: str, *, keep_admin_at: float | None = None) -> AccessToken:
    """Remove a token; on disk on return. `keep_admin_at`: do not remove the last token that may administer tokens at this time.

    Problems: `not-found`, `forbidden` (the last one). Raises Damaged, OSError.
    """
    with tokens_locked(folder):
        tokens = read_tokens(folder) or {}
        if name not in tokens:
            raise Problem("not-found", f"there is no token {name!r}")
        removed = tokens.pop(name)
        if keep_admin_at is not None and administers(removed, keep_admin_at):
            if not any(administers(token, keep_admin_at) for token in tokens.values()):
                said = "is the last admin token, which cannot be revoked over HTTP: create another one first"
                raise Problem("forbidden", f"{name!r} {said}, or use `livejoin token revoke` with --data")
        _write(folder, tokens)
        return removed


def end_token_mode(folder: Path) -> int:
    """Remove all tokens, while no service uses the folder. Return their number. Raises FolderInUse, OSError.

    A damaged file is removed too: this is the way to recover from it.
    """
    with FolderLock(folder, read_only=True), tokens_locked(folder):
        try:
            count = len(read_tokens(folder) or {})
        except DamagedFolder:
            count = 0
        with contextlib.suppress(FileNotFoundError):
            os.unlink(folder / TOKENS)
        sync_path(folder)
        return count


def forget_tokens(folder: Path) -> None:
    """Replace a damaged file by an empty one; on disk on return. No token is then valid, and token mode remains."""
    with tokens_locked(folder):
        _write(folder, {})


def give_to_owner(file: int, folder: Path) -> None:
    """Give a file written by root to the owner of the folder, so that the service can read it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(file, owner.st_uid, owner.st_gid)


def administers(token: AccessToken, now: float) -> bool:
    """Return whether tokens can be managed with this one at this time."""
    return token.scope == "admin" and token.covers_all and token.expires > now


def _write(folder: Path, tokens: Tokens) -> None:
    body = orjson.dumps({"format": FORMAT, "tokens": [token.to_json() | {"sha256": token.digest.hex()} for token in tokens.values()]})
    path = folder / TOKENS
    unfinished = path.with_suffix(".tokens.unfinished")
    with open(unfinished, "wb", opener=private) as file:
        file.write(body + b"\n" + _crc(body))
        give_to_owner(file.fileno(), folder)
        file.flush()
        sync(file.fileno(), folder)
    os.replace(unfinished, path)
    sync_path(folder)


def _crc(body: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(body)

