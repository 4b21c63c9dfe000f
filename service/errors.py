"""Problems: every error that the service returns, in the form of RFC 9457.

`problems.toml` lists each type of problem with its status, title and page; one exception carries a problem from where it is detected to
where it is rendered.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple


class Kind(NamedTuple):
    """A type of problem: the content of `/problems/{type}` and of its responses."""

    type: str
    status: int
    title: str
    meaning: str
    remedy: str
    retry_after: int | None = None


CATALOGUE: dict[str, Kind] = {
    type: Kind(type, **texts) for type, texts in tomllib.loads(Path(__file__).with_name("problems.toml").read_text("utf-8")).items()
}


MOST_COMPLAINTS = 100  # about one definition, in `complaints`


class Problem(Exception):
    """One problem, of a type in the catalogue.

    `extensions` are further members of the JSON form (`errors`, `views`, `theorem`, `progress` …). `headers` are sent with the response;
    use them for what only the place of detection knows (`Allow`).
    """

    def __init__(self, type: str, detail: str, **extensions: Any) -> None:
        super().__init__(type, detail)
        self.kind = CATALOGUE[type]
        self.type = type
        self.status = self.kind.status
        self.title = self.kind.title
        self.detail = detail
        self.extensions = extensions
        self.headers: dict[str, str] = {}
        if self.kind.retry_after is not None:
            self.headers["Retry-After"] = str(self.kind.retry_after)

    def __str__(self) -> str:
        return f"{self.type}: {self.detail}"

    def to_json(self) -> dict[str, Any]:
        """Return the `application/problem+json` form."""
        head = {"type": f"/problems/{self.type}", "title": self.title, "status": self.status, "detail": self.detail}
        return head | self.extensions


def bad_parameter(parameter: str, reason: str) -> Problem:
    """Return the problem of a query parameter, or of a field of a body, by its name; of a family of which several do not go together by
    what their names begin with, such as `where`."""
    return Problem("bad-parameter", f"{parameter}: {reason}", parameter=parameter)


def dropped(relation: str) -> Problem:
    """Return the problem of a relation that was dropped while it was needed, even if there is another one of its name now."""
    return Problem("not-found", f"the relation {relation} was dropped in the meantime")


def ending() -> Problem:
    """Return the problem for requests that arrive while the service stops."""
    return Problem("recovering", "the service is shutting down")


def unsupported(part: str, instead: str) -> Problem:
    """Return the problem for an unsupported part of a definition, with what to write instead."""
    return Problem("unsupported-query", f"{part} is not supported: {instead}")
