"""How stored views, and the views that read them, follow a batch: after all others, a version at a time, each once it is known what has
changed in everything that it reads.

A single change may touch a row of a stored view that another one of the same run has touched, and structures rely on different rows; so a
run is taken apart here. Whether there is room cannot be judged in advance, as only a delta shows what changes in a stored view: a view for
which there is none fails alone, with those that read it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

from service.tables.backlog import Recorder
from service.tables.changes import Run, Runs, by_version
from service.tables.interest import Interest, TouchedRows
from service.tables.steps import resolution_of
from service.views.deltas import Delta
from service.views.live_view import LiveView
from service.views.stored import StoredView

Deltas = list[tuple[LiveView, Delta]]


class Cascade:
    """One batch. stored: all stored views, each after those that it reads; `fail` marks a view as failed."""

    def __init__(
        self, stored: Mapping[str, StoredView], interest: Interest[LiveView], recorder: Recorder,
        fail: Callable[[LiveView, Exception], None],
    ) -> None:  # fmt: skip
        self._stored, self._interest, self._recorder, self._fail = list(stored.values()), interest, recorder, fail
        self._positions = {view: position for position, view in enumerate(self._stored)}
        self.followed = dict[LiveView, None]()  # views, in any state

    def apply(self, first: int, runs: Runs, concerned: Iterable[LiveView]) -> Deltas:
        """Follow the changed relations from version `first` on; `concerned`: by these. Return the deltas of the views that may be followed,
        by version. Cost: for each version, that of each view that it reaches."""
        views = [view for view in concerned if view.is_composed]
        return [one for offset, some in by_version(runs) for one in self._version(first + offset, some, views)]

    def _version(self, version: int, runs: Runs, concerned: Iterable[LiveView]) -> Deltas:
        changed, deltas, readers, waiting = dict(runs), Deltas(), dict[LiveView, None](), list[int]()

        def add(views: Iterable[LiveView]) -> None:
            for view in views:
                if isinstance(view, StoredView):
                    if (position := self._positions[view]) not in waiting:
                        heappush(waiting, position)
                else:
                    readers[view] = None

        add(view for view in concerned if not runs.keys().isdisjoint(view.relations))
        while waiting:
            stored = self._stored[heappop(waiting)]
            if (delta := self._follow(stored, version, changed)) is not None and (run := self._store(stored, delta, changed)) is not None:
                changed[stored.name] = run
                add(self._interest.concerned(TouchedRows([resolution_of(stored.relation, run)])))
        for view in readers:
            if (delta := self._follow(view, version, changed)) is not None:
                deltas.append((view, delta))
        return deltas

    def _follow(self, view: LiveView, version: int, changed: Mapping[str, Run]) -> Delta | None:
        if view.state != "live":
            return None
        self.followed[view] = None
        mine = {name: run for name, run in changed.items() if name in view.relations}
        try:
            view.require({name: resolution_of(view.relations[name], run) for name, run in mine.items()})
            return view.apply(version, 1, mine)
        except Exception as error:
            self._fail(view, error)
            return None

    def _store(self, view: StoredView, delta: Delta, changed: Mapping[str, Run]) -> Run | None:
        started = time.perf_counter()
        try:
            runs = view.store(delta)
        except Exception as error:
            self._fail(view, error)
            return None
        view.spend(time.perf_counter() - started, {name: run for name, run in changed.items() if name in view.relations}, counted=True)
        for version, run in runs:
            self._recorder.note(version, {view.name: run})
        return runs[0][1] if runs else None
