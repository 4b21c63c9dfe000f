"""All complaints about a definition at once: reading goes on behind a refused part, as far as the rest can be judged without it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from sqlglot import exp

from service.errors import MOST_COMPLAINTS, Problem

_REFUSED = "refused"
"""In the metadata of a node about which there is a complaint."""


class Noted(Problem):
    """What follows cannot be judged, because of a complaint that is noted."""

    def __init__(self) -> None:
        super().__init__("unsupported-query", "refused before")


def is_refused(node: exp.Expr) -> bool:
    """Return whether a complaint about the node is noted."""
    return _REFUSED in node.meta


class Complaints(ABC):
    """Those about one definition."""

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str], Problem] = {}  # by what is said of which place: names, and an ON, are read twice
        self.count = 0
        """Of the complaints, and of the places that could not be judged because of them."""

    @abstractmethod
    def placed(self, problem: Problem, node: exp.Expr) -> Problem:
        """Return the problem with the place of its node, unless it has one already."""

    @contextmanager
    def noting(self, node: exp.Expr | None = None) -> Iterator[None]:
        """Note a problem that is raised, at `node` unless it has a place; what follows is then read nevertheless. One problem is noted of
        each node."""
        try:
            yield
        except Problem as problem:
            if len(self._noted) >= MOST_COMPLAINTS:
                raise
            self.count += 1
            if isinstance(problem, Noted) or (node is not None and is_refused(node)):
                return
            if node is not None:
                problem = self.placed(problem, node)
                node.meta[_REFUSED] = True
            self._noted.setdefault((problem.detail, str(problem.extensions.get("position"))), problem)
            if len(self._noted) >= MOST_COMPLAINTS:
                self.finish()

    def require_no_more(self, than: int) -> None:
        """Raise `Noted` if more complaints are noted than at an earlier `count`."""
        if self.count > than:
            raise Noted

    def finish(self) -> None:
        """Raise the first complaint, if there is one. If there are several, it lists all, in `complaints`."""
        if not self._noted:
            return
        problems = list(self._noted.values())
        if len(problems) > 1:
            more = [{name: one.extensions[name] for name in ("position", "relation") if name in one.extensions} for one in problems]
            problems[0].extensions["complaints"] = [{"detail": one.detail, **its} for one, its in zip(problems, more, strict=True)]
        raise problems[0]
