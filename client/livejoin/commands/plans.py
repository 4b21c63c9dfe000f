"""What `livejoin apply` has to do: the definitions of a folder compared with those of a service. Nothing is changed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import livejoin
from livejoin.commands.definitions import Definitions, form_of, stripped
from livejoin.commands.view import BuildProgress
from livejoin.wire.schema import RelationDefinition, parse_relation
from livejoin.wire.wording import instead

_WORD = re.compile(r"\w+")


class Step(NamedTuple):
    """One request. `sign`: + creates, ~ extends a relation or replaces a view, - drops."""

    sign: str
    what: str
    note: str
    run: Callable[[], object]


class Explained(NamedTuple):
    """What a definition reads of views, the views with the same definition, and why it is refused, or could not be judged."""

    reads: AbstractSet[str] = frozenset()
    same: Collection[str] = ()
    refused: str = ""
    unread: str = ""


class Plan:
    """The steps in their order; `stops`, a line for each definition that stands in the way; `building`, views that are being built already;
    `extra`, what only the service has."""

    def __init__(self, client: livejoin.Client, wanted: Definitions, prune: bool) -> None:
        self._client, self._wanted = client, wanted
        self._relations = {one["name"]: one for one in client.relations()}
        self._views = {one["name"]: one for one in client.views()}
        self.steps, self.stops, self.building = list[Step](), list[str](), list[str]()
        for name in sorted(wanted.relations):
            self._add_relation(name)
        new = wanted.views.keys() - self._views.keys() - self._relations.keys()
        there = {name: self._changed(name) for name in sorted(wanted.views.keys() - new)}
        changed = {name: one for name, one in there.items() if one is not None}
        reads = self._add_views(sorted(new), changed)
        extra = sorted(self._views.keys() - wanted.views.keys() - wanted.relations.keys())
        if prune:
            self._drop(extra, reads)
        self.extra = [f"relation {name}" for name in sorted(self._relations.keys() - wanted.relations.keys() - wanted.views.keys())]
        self.extra += [] if prune else [f"view {name}" for name in extra]

    def _step(self, sign: str, what: str, note: str, run: Callable[[], object]) -> None:
        self.steps.append(Step(sign, what, note, run))

    def _stop(self, name: str, why: str) -> None:
        self.stops.append(f"{self._wanted.files[name]}: {why}")

    def _add_relation(self, name: str) -> None:
        relation, wanted = self._client.relation(name), self._wanted.relations[name]
        if name in self._views:
            return self._stop(name, f"{name} is a view of the service; to drop it: {self._drops(name)}")
        if name not in self._relations:
            if (refused := _refusal(relation.get)) is not None:
                return self._stop(name, f"{refused}")
            form = wanted.to_json()
            retain = form.pop("retain", None)
            create = partial(relation.create, **form, retain=retain and (retain["column"], retain["for"]))
            return self._step("+", f"relation {name}", "", create)
        known = parse_relation(form_of(self._relations[name]))
        if wanted.is_met_by(known):
            return None
        if (why := wanted.obstacle_from(known)) is not None:
            return self._stop(
                name,
                f"the relation {name} of the service {why}; a relation can only be extended: use another name, or drop it with its rows "
                f"first (`livejoin drop relation {name}`)",
            )
        patch, parts = _extension(known, wanted)
        try:
            expired = relation.patch(**patch, dry_run=True).get("expired_rows")
        except livejoin.Forbidden:  # a token that may only read is enough to print the plan
            expired = None
        except livejoin.Problem as error:
            return self._stop(name, f"{error}")
        parts += [f"{expired:,} rows have expired and will be deleted"] if expired else []
        return self._step("~", f"relation {name}", ", ".join(parts), partial(relation.patch, **patch))

    def _explained(self, name: str) -> Explained:
        try:
            answer = self._client.explain(definition=self._wanted.views[name])
            return Explained(set(answer["reads"]), answer.get("measured", {}).keys())
        except livejoin.Problem as error:
            complaints = error.complaints or [error.document]
            unknown = {one["relation"] for one in complaints if "relation" in one}
            reads = unknown & self._wanted.views.keys()
            if missing := sorted(unknown.difference(self._wanted.files)):
                known = [*self._wanted.files, *self._relations, *self._views]
                hints = [f"there is no relation or view {one}, in the service or in the folder{instead(one, known)}" for one in missing]
                return Explained(refused="; ".join(hints))
            if all("relation" in one for one in complaints):
                return Explained(reads)
            if any(step.sign == "~" for step in self.steps):
                return Explained(reads, unread="not checked before the relations are extended")  # it may need the new columns
            return Explained(refused=told(error, unknown))

    def _add_views(self, new: list[str], changed: Mapping[str, Explained]) -> dict[str, AbstractSet[str]]:
        """Return the views that each of the new and changed ones reads."""
        explained = dict[str, Explained]()
        for name in new:
            if (refused := _refusal(self._client.view(name).get)) is not None:
                self._stop(name, f"{refused}")
            else:
                explained[name] = self._explained(name)
        explained |= changed
        for name, one in explained.items():
            mentioned = {*_WORD.findall(str(self._wanted.views[name]))} & {*changed} - {name}
            if one.refused and mentioned:  # it may need their new columns
                explained[name] = Explained(mentioned, unread=f"not checked before {', '.join(sorted(mentioned))} is replaced")
            elif one.refused:
                self._stop(name, one.refused)
        try:
            order = [*TopologicalSorter({name: sorted(one.reads & explained.keys()) for name, one in explained.items()}).static_order()]
        except CycleError as error:
            cycle = error.args[1][::-1]
            self._stop(cycle[0], f"{' reads '.join(cycle)}; a view cannot read itself")
            order = []
        for name in order:
            one, sign = explained[name], "~" if name in changed else "+"
            if sign == "~":
                note = one.unread or "replace it, and those that read it"
            else:
                note = f"reads {', '.join(sorted(one.reads))}" if one.reads else one.unread
            self._step(sign, f"view {name}", note, partial(self._register, name))
        return {name: one.reads for name, one in explained.items()}

    def _register(self, name: str) -> None:
        view = self._client.view(name, definition=self._wanted.views[name], wait=False, replace=True)
        view.wait_until_live(BuildProgress(name))

    def _changed(self, name: str) -> Explained | None:
        """Return the new definition of a view that exists and is to be replaced."""
        if name in self._relations:
            self._stop(name, f"{name} is a relation of the service; to drop it with its rows: `livejoin drop relation {name}`")
            return None
        view, wanted = self._views[name], self._wanted.views[name]
        if stripped(wanted) != stripped(view["definition"]):
            if view["state"] == "building":
                self._stop(name, f"the view {name} is being built: repeat the command when it is live, to compare definitions")
                return None
            explained = self._explained(name)
            if name not in explained.same:
                return explained
        elif view["state"] == "failed":
            why = view["problem"]["detail"]
            self._stop(name, f"the view {name} has failed ({why}); drop it, and repeat the command: {self._drops(name)}")
        if view["state"] == "building":
            self.building.append(name)
        return None

    def _drop(self, extra: list[str], new: Mapping[str, AbstractSet[str]]) -> None:
        reads: dict[str, AbstractSet[str]] = {name: {*view["reads"]} for name, view in self._views.items() if name not in extra}
        for name, found in sorted({**reads, **new}.items()):
            if gone := sorted(found & set(extra)):
                which = ", ".join(gone)
                self._stop(name, f"{name} reads {which}, which the folder does not define, so that --prune would drop it: add its file")
        for name in self._above(extra):
            if name in extra:
                self._step("-", f"view {name}", "", self._client.view(name).drop)

    def _drops(self, name: str) -> str:
        """Return the commands that drop a view, after the views that read it."""
        return ", ".join(f"`livejoin drop view {one}`" for one in self._above([name]))

    def _above(self, names: Iterable[str]) -> list[str]:
        """Return these views and those that read them, directly or not: each before what it reads."""
        order = [*TopologicalSorter({name: view["reads"] for name, view in sorted(self._views.items())}).static_order()]
        found = set(names)
        for name in order:
            if name in self._views and not found.isdisjoint(self._views[name]["reads"]):
                found.add(name)
        return [name for name in reversed(order) if name in found]


def _refusal(look: Callable[[], object]) -> livejoin.Problem | None:
    """Return why a name that is not listed cannot be looked up: the token is not for it."""
    try:
        look()
    except livejoin.NotFound:
        return None
    except livejoin.Problem as error:
        return error
    return None


def told(error: livejoin.Problem, pending: Iterable[str] = ()) -> str:
    """Return the complaints of a refusal, each with its place in the SQL; not those about names that do not exist yet."""
    found = list[str]()
    for one in error.complaints or [error.document]:
        position, detail = one.get("position"), f"{one.get('detail') or error}"
        if one.get("relation", "") in pending:
            continue
        if isinstance(position, dict) and "(line " not in detail:
            detail = f"line {position['line']}, column {position['column']}: {detail}"
        found.append(detail)
    return "; ".join(found)


def _extension(known: RelationDefinition, wanted: RelationDefinition) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments of `Relation.patch`, and what they do in words."""
    before = {column.name: column for column in known.columns}
    columns = [column for column in wanted.columns if column.name not in before]
    nullable = [column.name for column in wanted.columns if column.name in before and column.nullable > before[column.name].nullable]
    intervals = {name: interval.to_json() for name, interval in wanted.intervals.items() if name not in known.intervals}
    patch: dict[str, Any] = {
        "add_columns": [column.model_dump(exclude_none=True) for column in columns], "add_intervals": intervals, "nullable": nullable,
    }  # fmt: skip
    parts = [f"add the column {column.name} ({column.kind})" for column in columns]
    parts += [f"add the interval {name}" for name in intervals] + [f"allow nulls in {name}" for name in nullable]
    if "retain" in wanted.model_fields_set and wanted.retain != known.retain:
        retain = wanted.retain
        patch["retain"] = retain and (retain.column, retain.duration)
        parts.append(f"delete rows whose {retain.column} is older than {retain.duration}" if retain else "keep rows of any age")
    return patch, parts
