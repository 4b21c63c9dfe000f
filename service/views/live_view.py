"""A view that is kept live: changed rows update its structures, which report the delta.

A thread of `engine/builds.py` builds it, the writer applies changes; readers take a root of some version, and read its structures.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from livejoin.wire.batch import RowBlock
from service.errors import Problem
from service.histogram import Histogram
from service.query.computed import with_computed
from service.tables.changes import Runs, apart, inserting
from service.tables.indexes import SharedIndexes, Sparse
from service.tables.inputs import Input
from service.tables.relations import Relation, RowVisibility
from service.tables.resolution import Resolution
from service.tables.steps import Step
from service.views.collecting import Collector, RetainedRows, RowCollector, StretchCollector
from service.views.deltas import Delta, DeltaSink, Sink, most_candidates
from service.views.joins.protocol import Join, Store
from service.views.parse import View
from service.views.read_counts import ReadCounts
from service.views.shown import STRETCH
from service.views.stages.counted import CountedStage, counter_by
from service.views.stages.coverage import CoverageStage
from service.views.stages.groups import GroupsStage, LoadedGroups
from service.views.stages.key_stretches import KeyStretches
from service.views.stages.making import core_by, kept_by, shown_of
from service.views.stages.table import GroupTable
from service.warming import Unusable

log = logging.getLogger("livejoin.views")

_LESS = 0.75  # of the bytes for whose copy there was no room: with fewer it is tried again


def _reason(error: Exception) -> str:
    """Return the part of an error that clients may see: the texts of unexpected errors may contain rows, and those of the system paths."""
    if isinstance(error, MemoryError | Problem | Unusable):
        return str(error)
    return (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}, see the service's log"


def _constant_relations(view: View) -> dict[str, Relation]:
    """Return the tables of constants that a view reads, as relations whose rows every version has. OSError, MemoryError: there is no
    room."""
    found = dict[str, Relation]()
    for name in {name for _, name in view.query.whole.aliases} & view.constants.keys():
        definition, rows = view.constants[name]
        found[name] = Relation(0, name, definition)
        found[name].table.insert(0, RowBlock.few(rows, pa.struct(found[name].schema)))
    return found


class ViewRoot(NamedTuple):
    """A version of a view: the root, and the structures and the view it belongs to. The view may have other structures by now (`made`: how
    many it had before these), and another view its name. A version may be published again in other structures, which have its rows in
    another order."""

    join: Join
    root: Any
    made: int
    view: LiveView


class LiveView:
    """A view and its structures. `root` is the newest applied version's, perhaps not published yet."""

    def __init__(self, id_: str, view: View, relations: Mapping[str, Relation], indexes: SharedIndexes | None) -> None:
        """relations: by name, those of stored views included. indexes: None, to share none with other views, as one that reads stored
        views never does: these change after the shared indexes, a version at a time."""
        self.id = id_  # from its registration on; a view that is dropped and registered again gets another id, one that replaces it this
        self.since = 0  # the version that has replaced its definition
        self.view = view
        self.name = view.name
        self.state = "building"
        self.progress = 0.0
        self.problem: Problem | None = None
        query, whole = view.query, view.query.whole
        relations = {**relations, **_constant_relations(view)}
        self.reads = [Input(whole, position, relations[name]) for position, (_, name) in enumerate(whole.aliases)]
        self.inputs = self.reads[: len(query.aliases)]  # of a row; the others belong to NOT EXISTS
        self.relations = {input.relation.name: input.relation for input in self.reads}
        self.definitions = {name: relation.definition for name, relation in self.relations.items()}
        self.shown = shown_of(query, self.inputs, self.definitions)
        self.width = STRETCH if query.stretches is not None else 1 if query.groups is not None else len(self.inputs)  # arrays per row
        self.is_composed = bool(view.stored)  # whether it follows stored views, or is one
        self._indexes = None if self.is_composed else indexes
        self._join: Join | None = None  # None until `make_room`, and after the view has failed
        self._former: list[weakref.ref[Join]] = []  # replaced structures, while a version is read in them
        self._former_steps = 0
        self._made = 0
        self.refused: int | None = None  # bytes of the structures when there was no room for others
        self._sparse = Sparse()
        self.feed: DeltaSink | None = None  # if it may be followed: from "live" on, or from the start of a replay
        self.update_seconds = Histogram()
        self.read_counts = ReadCounts()
        self.changed_rows = 0  # rows deleted and inserted in its relations
        changing = [name for name in self.relations if name not in view.constants]
        self._spent = dict.fromkeys(changing, (0.0, 0))  # seconds that changes of each have taken, and their rows

    def follow_definition(self, relation: Relation) -> None:
        """Adapt to a relation that has more columns, or may have nulls in columns that the view does not join by. The writer's thread."""
        definition = with_computed(relation.definition, self.view.query.computed)
        self.definitions = {**self.definitions, relation.name: definition}
        if isinstance(self.shown, GroupTable | KeyStretches):  # they have their own storage
            self.shown.follow(self.definitions)
        else:
            self.shown = shown_of(self.view.query, self.inputs, self.definitions)

    def make_room(self, own_indexes: bool = False) -> None:
        """Reserve address space for the structures, before anything else. `own_indexes`: share none with other views. OSError, MemoryError:
        there is no room, and nothing was done."""
        indexes = None if own_indexes else self._indexes
        self._join = kept_by(self.view.query, self.view.plan, self.reads, indexes, self.is_composed, self.shown)

    @property
    def core(self) -> Join:
        """The structures that a rebuild replaces: for groups, the join below them."""
        join = self.join
        return join.core if isinstance(join, GroupsStage) else join

    def another(self) -> Join:
        """Return an empty join of the kind of `core`. OSError, MemoryError: as `make_room`."""
        return core_by(self.view.query, self.view.plan, self.reads, self._indexes, self.is_composed)

    def without(self, names: Collection[str]) -> tuple[Join, RowVisibility]:
        """Return an empty join of the kind of `core`, which shares nothing with other views, and what hides the rows of the relations
        `names` from it. OSError, MemoryError: as `make_room`."""
        hidden = RowVisibility()
        relations = {name: relation.hiding(hidden) if name in names else relation for name, relation in self.relations.items()}
        inputs = [Input(self.view.query.whole, input.position, relations[input.relation.name]) for input in self.reads]
        if isinstance(self.shown, KeyStretches):
            return CoverageStage(self.view.query, inputs, self.shown, True), hidden
        if isinstance(self.join, CountedStage):
            return cast(Join, counter_by(self.view.query, self.view.plan, inputs, cast(GroupTable, self.shown))), hidden
        return core_by(self.view.query, self.view.plan, inputs, None, False), hidden

    def replace(self, core: Join) -> Join:
        """Use this core, which has the same rows, from now on; return the former one, in which older versions are read."""
        former, join = self.core, self.join
        self.refused, self._sparse = None, Sparse()
        self._former = [kept for kept in self._former if kept() is not None] + [weakref.ref(former)]
        self._former_steps += former.update_steps
        if self._indexes is not None:
            self._indexes.forget(former)
        if isinstance(join, GroupsStage):  # its rows stay where they are
            join.core = core
        else:
            self._made += 1
            self._join = core
        return former

    @property
    def groups(self) -> GroupsStage | None:
        """What stores a row for each group, if anything does."""
        return self._join if isinstance(self._join, GroupsStage) else None

    @property
    def owns_rows(self) -> bool:
        """Whether the slots of its rows are its own, not those of relations."""
        return self.view.query.groups is not None

    @property
    def has_room(self) -> bool:
        return self._join is not None

    @property
    def join(self) -> Join:
        """The structures. Problem `view-failed` if there are none."""
        if self._join is None:
            raise self.problem or Problem("view-failed", f"the view {self.name} has no structures")
        return self._join

    @property
    def root(self) -> ViewRoot:
        join = self.join
        return ViewRoot(join, join.root, self._made, self)

    @property
    def input_rows(self) -> int:
        """The number of rows of its relations."""
        return sum(relation.table.rows for relation in self.relations.values())

    def is_outgrown(self, version: int) -> bool:
        """Whether other structures should replace the view's: as `Join.is_outgrown`, or as their stores are `Sparse`. Counted groups
        and coverage stay as they are: their structures share codes with the rows of the view; what they hold too much is used again."""
        if self._join is None or (self.refused is not None and self.bytes > _LESS * self.refused):
            return False
        stores = () if isinstance(self._join, CountedStage | CoverageStage) else self.core.stores
        return self._join.is_outgrown(version) or self._sparse.found(stores)

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"the view {self.name}"

    def lack_room(self, error: Exception) -> None:
        """Note that there was no room for other structures."""
        self.refused = self.bytes
        said = "there is no room to rebuild the structures of the view %s; they stay in use, and it is tried again when a quarter of their"
        log.warning(f"{said} entries has gone: %s", self.name, error)

    def fail(self, error: Exception) -> None:
        """Mark the view as failed, because its structures could not be built or maintained, and tell its followers; the relations are
        intact."""
        what = "built" if self.state == "building" else "maintained"
        if isinstance(error, Problem) and error.kind.type in ("too-many-groups", "view-failed"):
            log.error("%s could not be %s: %s", self.title, what, error.detail)
            self._fails_by(error)
            return
        log.error("%s could not be %s", self.title, what, exc_info=error)
        again = "" if what == "built" else "; to rebuild it, restart the service, or drop the view and register it again"
        self._fails_by(Problem("view-failed", f"the structures of {self.title} could not be {what}: {_reason(error)}{again}"))

    def _fails_by(self, problem: Problem) -> None:
        self.problem = problem
        self.state = "failed"
        self.release_shared()
        self._join = None
        if self.feed is not None:
            self.feed.close(problem)

    def refuse(self, reason: str) -> None:
        """Keep the view, unbuilt, with a definition that another version of livejoin accepted and this one rejects."""
        said = f"this version of livejoin refuses the definition of the view {self.name}, which an earlier one accepted ({reason})"
        again = "drop it and register what is accepted, or use the version of livejoin that accepted it"
        self.problem, self.state = Problem("view-failed", f"{said}: {again}"), "failed"

    def release_shared(self) -> None:
        """Release the indexes that the view shares with others, and follow no more changes."""
        if self._indexes is not None:
            self._indexes.forget(self._join)

    def require(self, resolved: Mapping[str, Resolution]) -> None:
        """Raise MemoryError, before anything is changed, unless `apply` surely has room for these changes."""
        self.join.require(resolved)

    def apply(self, first: int, versions: int, runs: Runs) -> Delta | None:
        """Follow the changed relations over this many versions from `first` on; return the delta if the view may be followed. Only the last
        version can be read, so the structures go to it directly. Cost: as the plan says."""
        started = time.perf_counter()
        mine = {name: run for name, run in runs.items() if name in self.relations}
        delta = self._follow(first, versions, mine)
        changes = 1 if versions == 1 else sum(len(run.offsets) for run in mine.values())
        seconds = time.perf_counter() - started
        self.update_seconds.observe(seconds / changes, changes)
        self.spend(seconds, mine)
        return delta

    def spend(self, seconds: float, runs: Runs, counted: bool = False) -> None:
        """Note how long it took to follow changes of its relations, or, if these are counted already, to store what follows from them."""
        all_rows = sum([run.rows for run in runs.values()]) or 1
        for name, run in runs.items():
            spent, rows = self._spent[name]
            self._spent[name] = spent + seconds * run.rows / all_rows, rows + (0 if counted else run.rows)

    def apply_without(self, version: int, runs: Runs, names: Collection[str], taken: LoadedGroups | None) -> Delta | None:
        """Follow a batch that truncates the relations `names`, in a core that has replaced the view's own and lacks only the rows of
        `names`. Return the delta of groups; that of other views is the difference from the former core (`differences.py`). taken: of
        groups, those of the core's rows."""
        started = time.perf_counter()
        mine = {name: run for name, run in runs.items() if name in self.relations}
        self.changed_rows += sum(run.rows for run in mine.values())
        left = {name: inserting(run) if name in names else apart(run) for name, run in mine.items()}
        delta = None
        if isinstance(self.join, GroupsStage):
            assert taken is not None
            groups = None if self.view.query.retain is None else RowCollector(self.view.query.retain[0])
            self.join.apply_without(version, left, groups, taken)
            delta = None if groups is None else groups.delta(version)
        else:
            if isinstance(self.join, CoverageStage):
                self.join.begin_anew(version)
            self.join.apply(version, left, None)
        self.update_seconds.observe(time.perf_counter() - started)
        return delta

    def replay(self, step: Step) -> Delta | None:
        """Follow changes that were applied earlier, as `apply`, before the view is live. Raises as `require`."""
        self.require(step.resolved)
        return self._follow(step.first, step.versions, step.runs)

    def _follow(self, first: int, versions: int, mine: Runs) -> Delta | None:
        for run in mine.values():
            self.changed_rows += run.rows
        query = self.view.query
        retain = query.retain
        if query.stretches is not None:
            return self._follow_stretches(first, versions, mine)
        if query.groups is not None:
            rows = None if retain is None else RowCollector(retain[0])
            self.join.apply(first + versions - 1, mine, cast(Sink | None, rows))
            return None if rows is None else rows.delta(first)
        collector = None if retain is None else Collector(most_candidates(retain[0]), versions)
        self.join.apply(first + versions - 1, mine, collector)
        return None if collector is None else collector.delta(first, self.retained(mine))

    def _follow_stretches(self, first: int, versions: int, mine: Runs) -> Delta | None:
        retain = self.view.query.retain
        stretches = None if retain is None else StretchCollector(most_candidates(retain[0]))
        self.join.apply(first + versions - 1, mine, cast(Sink | None, stretches))
        return None if stretches is None else stretches.delta(first, self.retained(mine))

    def retained(self, runs: Runs) -> RetainedRows:
        """What the delta of these changes depends on, if the view may be followed."""
        query = self.view.query
        assert query.retain is not None
        if query.groups is not None or query.branches:  # rows are not made of rows of the aliases
            return RetainedRows(self.inputs, {}, None, query.retain[0])
        return RetainedRows(self.inputs, runs, self.shown, query.retain[0])

    def reclaim(self, oldest_needed: int, pins: npt.NDArray[np.int64]) -> bool:
        """As `Join.reclaim`."""
        if self.owns_rows and self.feed is not None:
            floor = self.feed.floor()
            oldest_needed = oldest_needed if floor is None else min(oldest_needed, floor)
        return self._join is not None and self._join.reclaim(oldest_needed, pins)

    @property
    def retired_bytes(self) -> int:
        join = self._join
        kept = sum(former.bytes + former.retired_bytes for ref in self._former if (former := ref()) is not None)
        return kept + (join.retired_bytes if join is not None else 0)

    @property
    def stores(self) -> list[Store]:
        """The stores of its structures, and of replaced ones while a version is read in them."""
        joins = (self._join, *(ref() for ref in self._former))
        return [store for join in joins if join is not None for store in join.stores]

    @property
    def bytes(self) -> int:
        """Bytes of its structures at the newest version."""
        join = self._join  # the writer may set it to None meanwhile
        return join.bytes if join is not None else 0

    @property
    def costs(self) -> dict[str, float | None]:
        """What it reads, each with the average seconds to follow one changed row of it; None: none has changed."""
        return {name: spent / rows if rows else None for name, (spent, rows) in self._spent.items()}

    def statistics(self) -> dict[str, Any]:
        """The statistics of `GET /v1/views/{name}`."""
        join = self._join
        held = join.bytes if join is not None else 0
        flips = join.flips if join is not None else None
        steps = self._former_steps + (join.update_steps if join is not None else 0)
        rows = self.input_rows
        return {
            "intervals": join.entries(join.root) if join is not None else 0,
            "bytes": held,
            "update_seconds": {"p50": self.update_seconds.quantile(0.5), "p99": self.update_seconds.quantile(0.99)},
            "bytes_per_row": held / rows if join is not None and rows else None,
            "groups": join.groups if join is not None else None,
            "sums_out_of_range": join.sums_out_of_range if join is not None else None,
            "texts_too_long": join.texts_too_long if join is not None else None,
            "bits_per_tuple": join.bits_per_tuple if join is not None else None,
            "steps_per_update": steps / self.changed_rows if join is not None and self.changed_rows else None,
            "flips_per_update": flips / self.changed_rows if flips is not None and self.changed_rows else None,
            **self.read_counts.to_json(),
        }
