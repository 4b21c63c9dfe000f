"""The admin token that an operator gives the service in a file, as is common for secrets in containers."""

from __future__ import annotations

import time
from pathlib import Path

from service.access.access_token import PREFIX, TEXT, make
from service.access.store import add_token, read_tokens
from service.durability.folder import FOLDER_MODE

NAME = "admin-token-file"  # the name of the token


class BadAdminFile(Exception):
    """The file cannot be used; the message says what to do."""


def take_admin_token(folder: Path, path: Path) -> None:
    """Make the text in this file an admin token of the data folder, replacing the one that the file contained before. The folder is created
    if it does not exist. Raises BadAdminFile, Damaged, OSError."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
        raise BadAdminFile(f"cannot read the file of the admin token ({reason}): check --admin-token-file and the file's owner") from None
    if TEXT.fullmatch(text) is None:
        kind = f"{PREFIX} and 32 to 200 letters, digits, - and _, on one line"
        raise BadAdminFile(f"the file of the admin token does not hold a token: it must be {kind}")
    token = make({"name": NAME, "scope": "admin"}, text, time.time())
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    found = (read_tokens(folder) or {}).get(NAME)
    if found is None or found.digest != token.digest:
        add_token(folder, token, begin=True, replace=True)
