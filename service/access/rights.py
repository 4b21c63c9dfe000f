"""The rights that each path of the interface requires of a token: the table, and its enforcement.

`read` covers reading only, also by POST; `write` changes rows, and includes reading; `admin` covers everything else, and includes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from livejoin.wire.errors import cut
from service.access.access_token import EVERYONE, AccessToken, Scope
from service.errors import Problem


class Right(NamedTuple):
    """A scope, and what the token must cover: the relation or view in the path; everything (`service`), if the operation would exceed the
    names in the token; or nothing here (None): the handler checks each name, or shows only what the token covers.
    """

    scope: Scope
    of: Literal["relation", "view", "service"] | None = None


FILES = ("parquet", "arrow", "csv", "jsonl")  # the file formats of rows: `rows.parquet`
CHANGES, RELATION_CHANGES = Right("write"), Right("write", "relation")  # checked by the gate itself

# None: requires no token.
RIGHTS: Mapping[tuple[str, str], Right | None] = {
    ("GET", "/v1/relations"): Right("read"),
    ("GET", "/v1/relations/{name}"): Right("read", "relation"),
    ("PUT", "/v1/relations/{name}"): Right("admin", "relation"),
    ("PATCH", "/v1/relations/{name}"): Right("admin", "relation"),
    ("DELETE", "/v1/relations/{name}"): Right("admin", "relation"),
    ("GET", "/v1/relations/{name}/rows"): Right("read", "relation"),
    ("POST", "/v1/relations/{name}/changes"): RELATION_CHANGES,
    ("POST", "/v1/relations/{name}/replace"): Right("write", "relation"),
    ("POST", "/v1/relations/{name}/delete"): Right("write", "relation"),
    ("POST", "/v1/changes"): CHANGES,
    ("GET", "/v1/views"): Right("read"),
    ("GET", "/v1/views/{name}"): Right("read", "view"),
    ("PUT", "/v1/views/{name}"): Right("admin", "view"),
    ("DELETE", "/v1/views/{name}"): Right("admin", "view"),
    ("GET", "/v1/views/{name}/rows"): Right("read", "view"),
    ("HEAD", "/v1/views/{name}/rows"): Right("read", "view"),
    ("GET", "/v1/views/{name}/count"): Right("read", "view"),
    ("GET", "/v1/views/{name}/changes"): Right("read", "view"),
    ("GET", "/v1/views/{name}/changes/end"): Right("read", "view"),
    ("POST", "/v1/views/{name}/readings"): Right("read", "view"),
    ("POST", "/v1/relations/{name}/readings"): Right("read", "relation"),
    ("DELETE", "/v1/readings/{id}"): Right("read"),
    **{(method, f"/v1/views/{{name}}/rows.{kind}"): Right("read", "view") for kind in FILES for method in ("GET", "HEAD")},
    **{(method, f"/v1/relations/{{name}}/rows.{kind}"): Right("read", "relation") for kind in FILES for method in ("GET", "HEAD")},
    ("GET", "/v1/views/{name}/window"): Right("read", "view"),
    ("POST", "/v1/explain"): Right("read"),
    ("POST", "/v1/query"): Right("read"),
    ("GET", "/v1/tokens"): Right("admin", "service"),
    ("POST", "/v1/tokens"): Right("admin", "service"),
    ("DELETE", "/v1/tokens/{name}"): Right("admin", "service"),
    ("GET", "/v1/sources"): Right("read"),  # also for tokens of named relations: a job compares its checkpoint with the service's state
    ("DELETE", "/v1/sources/{name}"): Right("admin", "service"),
    ("GET", "/v1/backup"): Right("admin", "service"),
    ("POST", "/v1/backup"): Right("admin", "service"),
    ("GET", "/v1/status"): Right("read"),
    ("GET", "/metrics"): Right("read"),
    ("GET", "/livez"): None,
    ("GET", "/readyz"): None,
    ("GET", "/"): None,
    ("GET", "/dashboard/{file}"): None,
    ("GET", "/problems/{type}"): None,
}

_OPEN = frozenset({"/docs", "/openapi.json"}) | {path for (_, path), right in RIGHTS.items() if right is None}


def is_open(path: str) -> bool:
    """Return whether a path, as requested, requires no token."""
    return path in _OPEN or path.startswith(("/problems/", "/dashboard/"))


def require(token: AccessToken | None, right: Right, name: str | None) -> None:
    """Raise Problem `forbidden` unless the token has this right on what the path names, whether that exists or not; `unauthorized` without
    a token, which the gate admits only to paths that require none."""
    if token is EVERYONE:
        return
    if token is None:
        raise Problem("unauthorized", "this path requires an access token")
    if not token.has(right.scope):
        raise forbidden(token, right.scope, f"has the scope {token.scope}; this operation requires {right.scope}")
    if right.of == "service" and not token.covers_all:
        raise forbidden(token, right.scope, "is restricted to named relations or views; this operation concerns the whole service")
    if right.of == "relation" and name is not None:
        require_relation(token, name, right.scope)
    if right.of == "view" and name is not None:
        require_view(token, name, right.scope)


def require_relation(token: AccessToken, name: str, scope: Scope) -> None:
    """Raise Problem `forbidden` unless the token covers this relation; for names in bodies too."""
    if not token.covers_relation(name):
        raise forbidden(token, scope, f"is not for the relation {cut(name)!r}")


def require_view(token: AccessToken, name: str, scope: Scope) -> None:
    """The same for a view."""
    if not token.covers_view(name):
        raise forbidden(token, scope, f"is not for the view {cut(name)!r}")


def forbidden(token: AccessToken, scope: Scope, reason: str) -> Problem:
    """Return the problem of a token that lacks a right of this scope."""
    problem = Problem("forbidden", f"the access token {token.name!r} {reason}")
    problem.headers["WWW-Authenticate"] = f'Bearer realm="livejoin", error="insufficient_scope", scope="{scope}"'
    return problem
