"""The `Authorization` of a request (RFC 6750)."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from service.access.access_token import AccessToken, moment
from service.access.guard import Guard
from service.api.http.media import Fields
from service.errors import Problem

_SCHEME = b"bearer "


def token_of(guard: Guard, fields: Fields) -> AccessToken:
    """Return the valid token of a request, for a folder in token mode. Problem `unauthorized`, which does not repeat what was sent."""
    given = fields.get(b"authorization")
    if given is None:
        raise _unauthorized("the request has no access token: send `Authorization: Bearer lj_…`")
    token = guard.known.get(given)
    if token is None:
        if given[: len(_SCHEME)].lower() != _SCHEME or b"," in given:
            raise _unauthorized("the Authorization header must appear once and be `Bearer` followed by an access token")
        token = guard.find(given[len(_SCHEME) :].strip().decode("latin-1"))
    if token is None:
        raise _unauthorized("the access token is not valid: it was revoked, is of another data folder, or is mistyped", "invalid_token")
    if token.expires <= guard.now():
        raise _unauthorized(f"the access token {token.name!r} expired at {moment(token.expires)}", "invalid_token")
    return token


def require_still(scope: MutableMapping[str, Any]) -> None:
    """Raise Problem `unauthorized` if the token that was accepted with the head of this request is no longer valid: a body may take
    long."""
    token, guard = scope.get("token"), scope.get("guard")
    if token is not None and guard is not None and not guard.is_in_force(token):
        raise _unauthorized("the access token was revoked or has expired, or token mode has begun", "invalid_token")


def _unauthorized(detail: str, error: str | None = None) -> Problem:
    problem = Problem("unauthorized", detail)
    problem.headers["WWW-Authenticate"] = 'Bearer realm="livejoin"' + (f', error="{error}"' if error else "")
    return problem
