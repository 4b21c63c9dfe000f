"""The part of the engine that readers use: no writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from service.engine.versions import Pins
from service.tables.relations import Relation
from service.views.live_view import LiveView

T = TypeVar("T")


class PublishedState(Protocol):
    """Relations and views by name (Problem `not-found`), and the versions that can be pinned."""

    versions: Pins

    def relation(self, name: str) -> Relation: ...

    def view(self, name: str) -> LiveView: ...

    def at_rest(self, work: Callable[[], T]) -> T:
        """Call `work`, which only reads, in the writer's thread when the newest version is the published one."""
