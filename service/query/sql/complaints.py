"""All complaints about a definition at once: reading goes on behind a refused part, as far as the rest can be judged without it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlglot import exp

from service.errors import MOST_COMPLAINTS, Problem


class Noted(Problem):
    """What follows cannot be judged, because of a complaint that is noted."""

    def __init__(self) -> None:
        super().__init__("unsupported-query", "refused before")


class Complaints(ABC):
    """Those about one definition."""

    def __init__(self) -> None:
        self._noted: list[Problem] = []

    @abstractmethod
    def placed(self, problem: Problem, node: exp.Expr) -> Problem:
        """Return the problem with the place of its node, unless it has one already."""

    @property
    def count(self) -> int:
        return len(self._noted)

    @contextmanager
    def noting(self, node: exp.Expr | None = None) -> Iterator[None]:
        """Note a problem that is raised, at `node` unless it has a place; what follows is then read nevertheless."""
        try:
            yield
        except Noted:
            pass
        except Problem as problem:
            self._noted.append(problem if node is None else self.placed(problem, node))

    def require_no_more(self, than: int) -> None:
        """Raise `Noted` if more complaints are noted than at an earlier `count`."""
        if self.count > than:
            raise Noted

    def finish(self) -> None:
        """Raise the first complaint, if there is one. If there are several, it lists all, in `complaints`."""
        if not self._noted:
            return
        first = self._noted[0]
        entries = list[dict[str, Any]]()
        for one in self._noted:
            entry = {"detail": one.detail} | {name: one.extensions[name] for name in ("position",) if name in one.extensions}
            if entry not in entries:  # an ON is read twice
                entries.append(entry)
        if len(entries) > 1:
            first.extensions["complaints"] = entries[:MOST_COMPLAINTS]
        raise first
