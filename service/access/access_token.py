"""Access tokens: what a token permits, and its text form. The text of a token is never stored, only its digest.

    text := "lj_" base64url(32 random bytes);  digest := SHA-256 of the text

A fast hash is enough, because 32 random bytes cannot be guessed; a slow one would cost each request milliseconds.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from livejoin.wire.schema import NAME
from livejoin.wire.wording import wording
from service.errors import Problem

Scope = Literal["read", "write", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin")  # each includes the previous ones
_INCLUDED = {scope: SCOPES[: position + 1] for position, scope in enumerate(SCOPES)}
ALL = "*"
PREFIX = "lj_"
TEXT = re.compile(PREFIX + "[A-Za-z0-9_-]{32,200}")
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

_Names = Annotated[list[Annotated[str, Field(pattern=rf"^(\*|{NAME.pattern})$")]], Field(max_length=1000)]


class TokenForm(BaseModel):
    """The request for a token. If both `relations` and `views` are absent, the token covers all of both. If only one is given, the token
    covers none of the other."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: str = Field(
        pattern=f"^{TOKEN_NAME.pattern}$",
        description="1 to 63 letters, digits, dots, hyphens and underscores, beginning with a letter or a digit; lists and the audit log "
        "show it",
    )
    scope: Scope = Field(description="what it allows: `read`; `write`, which includes `read`; `admin`, which is everything")
    relations: _Names | None = Field(
        None,
        description="the relations that the token is for, by name, at most 1,000; `*` for all. Null: all, or none if `views` is given",
    )
    views: _Names | None = Field(
        None,
        description="the views that the token is for, by name, at most 1,000; `*` for all. Null: all, or none if `relations` is given",
    )
    expires: str | None = Field(
        None,
        json_schema_extra={"format": "date-time"},
        description="when it becomes invalid, by RFC 3339 with an offset, such as 2027-01-01T00:00:00Z, in the future; null: never",
    )


class AccessToken(NamedTuple):
    """An existing token. `relations`, `views`: None for all. Times in seconds since 1970; `expires` is inf for never."""

    name: str
    scope: Scope
    relations: frozenset[str] | None
    views: frozenset[str] | None
    expires: float
    created: float
    digest: bytes

    @property
    def covers_all(self) -> bool:
        """Whether the token covers all relations and views, including future ones."""
        return self.relations is None and self.views is None

    def covers_relation(self, name: str) -> bool:
        return self.relations is None or name in self.relations

    def may_use(self, written: frozenset[str]) -> bool:
        """Whether the token may use a source that has written these relations."""
        return self.has("write") and owns(self.relations, written)

    def covers_view(self, name: str) -> bool:
        return self.views is None or name in self.views

    def has(self, scope: Scope) -> bool:
        return scope in _INCLUDED[self.scope]

    def grant(self) -> dict[str, Any]:
        """Return what the token permits, as the interface and the audit log show it."""
        return {
            "name": self.name,
            "scope": self.scope,
            "relations": _listed(self.relations),
            "views": _listed(self.views),
            "expires": None if math.isinf(self.expires) else moment(self.expires),
        }

    def to_json(self) -> dict[str, Any]:
        """Return the token as the interface shows it, without the digest."""
        return self.grant() | {"created": moment(self.created)}


# The sender of a request while the folder is not in token mode.
EVERYONE = AccessToken("", "admin", None, None, math.inf, 0.0, b"")


def owns(writes: frozenset[str] | None, written: frozenset[str]) -> bool:
    """Whether a source that has written these relations belongs to those who may write to `writes` (None: all)."""
    return writes is None or written <= writes


def make(data: Any, text: str, now: float) -> AccessToken:
    """Return the token with this text, as requested by the form in `data` (JSON). Problem `bad-definition`."""
    try:
        form = TokenForm.model_validate(data)
    except ValidationError as error:
        raise _bad(_fault(error)) from None
    expires = math.inf if form.expires is None else _expiry(form.expires)
    if expires <= now:
        raise _bad(f"expires: {form.expires} is in the past")
    named = form.relations is not None or form.views is not None
    relations, views = _set(form.relations, named), _set(form.views, named)
    if relations == views == frozenset():
        raise _bad("relations and views are both empty: name at least one, or omit both for all of them")
    return AccessToken(form.name, form.scope, relations, views, expires, now, digest(text))


def of_json(data: dict[str, Any]) -> AccessToken:
    """Return the token that is stored as `to_json` shows it, with its digest in hexadecimal. Raises KeyError, TypeError, ValueError."""
    expires = math.inf if data["expires"] is None else _seconds(data["expires"])
    relations, views = _set(data["relations"], True), _set(data["views"], True)
    scope = SCOPES[SCOPES.index(data["scope"])]
    return AccessToken(str(data["name"]), scope, relations, views, expires, _seconds(data["created"]), bytes.fromhex(data["sha256"]))


def new_text() -> str:
    return PREFIX + secrets.token_urlsafe(32)


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def moment(seconds: float) -> str:
    """Format a time by RFC 3339, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _seconds(text: str) -> float:
    """Parse a time by RFC 3339, truncated to the second. Raises ValueError."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("there is no offset from UTC")
    return float(math.floor(found.astimezone(UTC).timestamp()))


def _expiry(text: str) -> float:
    try:
        return _seconds(text)
    except (ValueError, OverflowError):
        raise _bad(f"expires: {text[:40]!r} is not a time such as 2027-01-01T00:00:00Z") from None


def _set(names: Iterable[str] | None, named: bool) -> frozenset[str] | None:
    """Return the set of names; None for all. `named`: whether the token names relations or views at all."""
    if names is None:
        return frozenset() if named else None
    found = frozenset(names)
    return None if ALL in found else found


def _listed(names: frozenset[str] | None) -> list[str]:
    return [ALL] if names is None else sorted(names)


def _bad(detail: str) -> Problem:
    return Problem("bad-definition", detail)


def _fault(error: ValidationError) -> str:
    fault = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "string_pattern_mismatch":
        return f"{path}: {str(fault['input'])[:70]!r} must match {fault['ctx']['pattern']}"
    return f"{path}: {wording(fault)}" if path else wording(fault)
