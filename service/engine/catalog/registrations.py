"""Register views, replace and drop them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from livejoin.wire.errors import WireError
from service.durability.log import Log
from service.engine.builds import Builds
from service.engine.catalog.replacements import Candidates, Replacements
from service.engine.queued import change
from service.engine.refusals import or_no_room, refuse_new, refuse_used
from service.engine.state import State
from service.engine.versions import Pins
from service.engine.writer import Writer
from service.errors import Problem, unsupported
from service.query.assembly import Limits
from service.settings import Settings
from service.tables.estimates import estimates_of
from service.tables.relations import Relation
from service.views.joins.making import rooms_of
from service.views.live_view import LiveView
from service.views.parse import View, ViewSource, noted, parse_view
from service.views.stored import StoredView
from service.warming import Kernels

OTHER = "the {} {} already exists with another definition: use another name, {}or drop it first (DELETE)"

Building = Future[None] | Future[Problem | None]
Registration = tuple[LiveView, Building | None]
"""A view, and a future that is done when it is live, has failed or was dropped; None: it was registered already."""


class Registrations:
    """Called from any thread but the writer's. `kernels` returns the service's kernels."""

    def __init__(
        self, state: State, writer: Writer, log: Log, versions: Pins, builds: Builds, kernels: Callable[[], Kernels], settings: Settings,
        limits: Limits, replacements: Replacements,
    ) -> None:  # fmt: skip
        self._state, self._writer, self._log, self._versions, self._builds = state, writer, log, versions, builds
        self._kernels, self._settings, self._limits, self._replacements = kernels, settings, limits, replacements

    def register(self, name: str, data: dict[str, Any]) -> Future[Registration]:
        """Register a view and queue its build. The result is there once the definition is durable. Does not wait for the writer.

        Problems: those of `parse_view`; by the future `definition-differs`, `too-many`, `no-room`, and `too-busy`, if a view that it reads
        is being replaced.
        """
        known = self._state.views.get(name)
        if known is not None and self.is_as_registered(known, data):
            return _done((known, None))
        with self._versions.holding() as version:  # here, not in the writer's turn: planning reads thousands of rows
            relations = self._state.relations
            parsed = self._parse(name, data, version, self._state.view_sources)
        self._kernels().load_compiled(rooms_of(parsed.plan))
        return self._writer.call(partial(change, partial(self._put, parsed, data, relations)))

    def replace(self, name: str, data: dict[str, Any]) -> Future[Registration]:
        """Give a view another definition: build it, and all views that read it, anew beside the present ones, which then change in one
        version of its own; a new name is registered. The future in the result is done when that version is published; its result is a
        Problem if the replacement has failed (`Replacements.of`) or was cancelled: the former definitions then stay. Another call for this
        name with another definition, also with that which the view has, cancels the replacement that is under way.

        Problems: as `register`; `unsupported-query`, if the view would read itself, or a view that reads it would not be valid; by the
        future also `too-busy`, if another view is being replaced. Cost: that of building these views.
        """
        known = self._state.views.get(name)
        if known is None:
            return self.register(name, data)
        if self.is_as_registered(known, data):
            self._writer.call(partial(self._replacements.forget, name)).result()
            return _done((known, None))
        with self._versions.holding() as version:
            catalogue = self._state.views, self._state.relations
            parsed = self._parse_with_readers(name, data, version)
        for one in parsed.values():
            self._kernels().load_compiled(rooms_of(one.plan))

        def plan() -> Callable[[], Registration]:
            if (same := self._replacements.under_way(name, parsed[name])) is not None:
                return lambda: (same.views[name], same.future)
            self._replacements.refuse_other(name)
            self._log.require_room()
            now = parsed
            if (self._state.views, self._state.relations) != catalogue:  # neither is ever changed in place
                now = self._parse_with_readers(name, data, self._state.newest)
            self._replacements.forget(name)  # before others are made, which would take the stored views that are built for it
            with or_no_room(f"the view {name}"):
                candidates = self._candidates(now)
            return lambda: (candidates.views[name], self._replacements.begin(name, candidates))

        return self._writer.call(partial(change, plan))

    def drop(self, name: str) -> None:
        """Drop a view; waits. Its followers are notified; its readers finish. A replacement that it is part of is cancelled. Problems
        `not-found`, `relation-in-use`: other views read it."""

        def drop() -> LiveView:
            view = self._state.views.get(name)
            if view is None:
                raise Problem("not-found", f"there is no view {name}")
            refuse_used(f"the view {name} is read by ", {one.name for one in self._state.registered if name in one.view.reads})
            self._replacements.forget(name)
            self._log.drop_view(name)
            self._builds.cancel(view)
            view.release_shared()
            self._state.views = {other: view for other, view in self._state.views.items() if other != name}
            for stored in self._state.drop_unread():
                self._builds.cancel(stored)
            self._versions.publish(self._state.version())
            if view.feed is not None:
                view.feed.close(Problem("not-found", f"the view {name} was dropped"))
            return view

        self._writer.call(drop).result()  # its memory is freed here, not in the writer's turn

    def is_as_registered(self, known: LiveView, data: dict[str, Any]) -> bool:
        """Whether a definition gives the same view, under the definitions that its relations had when it was registered."""
        definitions = {name: relation.definition for name, relation in self._state.relations.items()} | known.view.relations
        try:
            views = self._state.view_sources | known.view.reads
            return parse_view(known.name, data, definitions, None, False, self._limits, views).stated == known.view.stated
        except (Problem, WireError):  # compare under the present definitions
            return False

    def _parse(self, name: str, data: dict[str, Any], version: int, views: Mapping[str, ViewSource], own: View | None = None) -> View:
        """Parse and plan the view, by the rows of a held version, or of the newest one in the writer's thread. `own`: as it is registered,
        if the names of relations mean what they meant then."""
        relations = self._state.relations
        definitions = {name: relation.definition for name, relation in relations.items()} | (own.relations if own is not None else {})
        counted = partial(estimates_of, relations=relations, version=version)
        return parse_view(name, data, definitions, counted, own is not None, self._limits, views=views)

    def _put(self, parsed: View, data: dict[str, Any], relations: Mapping[str, Relation]) -> Callable[[], Registration]:
        """The plan of a registration, in the writer's turn. `relations`: those that the view was parsed with."""
        known = self._state.views.get(parsed.name)
        if known is not None:
            if known.view.stated != parsed.stated:
                raise Problem("definition-differs", OTHER.format("view", parsed.name, "replace it (?replace=true), "))
            return lambda: (known, None)
        refuse_new("view", parsed.name, self._state.views, self._state.relations, self._settings.max_views)
        self._log.require_room()
        self._replacements.refuse_reader(parsed.reads)
        read = {name: view.view.source for name, view in self._state.views.items() if name in parsed.reads}
        if read != parsed.reads or any(self._state.relations.get(name) is not relations.get(name) for name in parsed.query.named):
            parsed = self._parse(parsed.name, data, self._state.newest, self._state.view_sources)
        with or_no_room(f"the view {parsed.name}"):
            made = self._candidates({parsed.name: parsed})
        return partial(self._write, made.views[parsed.name], made.stored, noted(parsed))

    def _candidates(self, parsed: Mapping[str, View]) -> Candidates:
        """Return new views, with the stored views that they read. OSError, MemoryError: there is no room."""
        stored, views = dict[str, StoredView](), dict[str, LiveView]()
        for one in parsed.values():
            stored |= self._state.stored_for(one, stored)
            readable = self._state.readable | {name: each.relation for name, each in stored.items()}
            views[one.name] = view = LiveView("", one, readable, self._state.indexes)
            if self._kernels().has_loaded(rooms_of(one.plan)):  # otherwise it would load, or compile, some of them here
                view.make_room()
        return Candidates(views, stored)

    def _write(self, view: LiveView, stored: Mapping[str, StoredView], note: str) -> Registration:
        view.id = self._log.put_view(view.name, view.view.definition, note)
        fresh = self._state.add_stored(stored)
        self._state.views = {**self._state.views, view.name: view}
        for one in fresh:
            self._builds.start(one)
        return view, self._builds.start(view)

    def _parse_with_readers(self, name: str, data: dict[str, Any], version: int) -> dict[str, View]:
        """Parse a view's new definition, and those of all views that read it, each after those that it reads."""
        views = self._state.views
        parsed = {name: self._parse(name, data, version, self._state.view_sources)}
        _refuse_cycle(name, [name], parsed[name].reads)
        left = {other: view.view for other, view in views.items() if _reads(view.view.reads, name)}
        while left:
            reader = next(one for one in left.values() if left.keys().isdisjoint(one.reads))
            del left[reader.name]
            sources = reader.reads | {one: parsed[one].source for one in reader.reads if one in parsed}
            try:
                parsed[reader.name] = self._parse(reader.name, reader.definition, version, sources, reader)
            except Problem as problem:
                said = f"this definition of {name}: the view {reader.name}, which reads it, would be refused ({problem.detail})"
                raise unsupported(said, f"keep what {reader.name} uses, or drop it first") from None
        return parsed


def is_over(built: Building) -> bool:
    """Whether a build, or the replacement of a view, is over. Raises the Problem of a replacement that has failed."""
    if not built.done():
        return False
    if (problem := built.result()) is not None:
        raise problem
    return True


def _done(result: Registration) -> Future[Registration]:
    future = Future[Registration]()
    future.set_result(result)
    return future


def _reads(reads: Mapping[str, ViewSource], name: str) -> bool:
    """Whether a view that reads these reads that one, at any depth."""
    return name in reads or any(_reads(one.reads, name) for one in reads.values())


def _refuse_cycle(name: str, path: list[str], reads: Mapping[str, ViewSource]) -> None:
    """Raise Problem `unsupported-query` if these, which are read at the end of a path, read the view where it begins."""
    for other, source in reads.items():
        if other == name:
            raise unsupported(f"a view that reads itself: {' reads '.join([*path, name])}", "read what that view is made of")
        _refuse_cycle(name, [*path, other], source.reads)
