"""EXISTS, NOT EXISTS, LEFT and FULL JOIN over every core: the engine's twin with drawn views, identities, nulls."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.errors import Problem
from service.planning.planner import alternatives
from service.views.parse import parse_view
from tests.naive.outer_join import NaivePart, outer_join
from tests.service.engine.test_engine import run
from tests.service.random_views import KeptBy
from tests.service.twin import _INF, DEFINITIONS, Row, TwinView, _equal, _meet, _not_null, _slot, _stay

SPANS = {"a": ("stay", _stay), "b": ("slot", _slot)}
SHOWN = {"a": ("id", "tag"), "b": ("nr", "note")}
FILTERED = {"a": ("tag", "uvw"), "b": ("note", "no")}
Condition = tuple[dict[str, Any], Callable[[Any], bool]]
KINDS = ("equal", "equal", "overlaps", "overlaps", "at_most", "within", "not_equal")
FIELDS = {"exists": "exists", "absent": "not_exists", "optional": "left"}


class _Missing(dict[str, Any]):
    def __missing__(self, key: str) -> None:
        return None


_MISSING = _Missing()


def _condition(kind: str, x: tuple[str, str], y: tuple[str, str], column: str) -> Condition:
    (p, of), (q, its) = x, y
    if kind == "equal":
        return {"equal": [f"{p}.{column}", f"{q}.{column}"]}, lambda rows: _equal(rows[p][column], rows[q][column])
    if kind == "overlaps":
        (name, ends), (other, its_ends) = SPANS[of], SPANS[its]
        return {"overlaps": [f"{p}.{name}", f"{q}.{other}"]}, lambda rows: _meet(ends(rows[p]), its_ends(rows[q]))
    if kind == "within":
        emitted = {"within": [f"{p}.starts", f"{q}.starts"], "distance": 4}
        return emitted, lambda rows: _not_null(rows[p]["starts"], rows[q]["starts"]) and abs(rows[p]["starts"] - rows[q]["starts"]) <= 4
    if kind == "at_most":
        return (
            {"at_most": [f"{p}.floor", f"{q}.floor"]},
            lambda rows: _not_null(rows[p]["floor"], rows[q]["floor"]) and rows[p]["floor"] <= rows[q]["floor"],
        )
    return (
        {"not_equal": [f"{p}.room", f"{q}.room"]},
        lambda rows: _not_null(rows[p]["room"], rows[q]["room"]) and rows[p]["room"] != rows[q]["room"],
    )


class PartsView(TwinView):
    """A core of one or two aliases, and parts."""

    def __init__(self, rng: random.Random, kinds: list[str]) -> None:
        count = 1 if kinds == ["full"] else rng.choice((1, 1, 2))
        core = [(f"x{at}", rng.choice("ab")) for at in range(count)]
        self._aliases, self._overlapping = list(core), set[str]()
        join, tests = self._join(rng, core, [])
        where = list[dict[str, Any]]()
        self._kept = self._filter(rng, core[0], where, 0.0 if kinds == ["full"] else 0.3)
        self._core, self._core_tests, self._parts = core, tests, list[NaivePart]()
        definition: dict[str, Any] = {"from": dict(core), "join": join, "where": where}
        for number, kind in enumerate(kinds):
            own = [(f"p{number}{at}", rng.choice("ab")) for at in range(1 if kind == "full" else rng.choice((1, 1, 2)))]
            on = rng.choice(core if kind in ("exists", "full") else self._aliases)
            conditions, its = self._join(rng, [on, *own], own)
            filters = list[dict[str, Any]]()
            kept = self._filter(rng, own[0], filters, 0.3)
            form = {"from": dict(own), "join": conditions, "where": filters}
            if kind == "full":
                definition["full"] = form
            else:
                definition.setdefault(FIELDS[kind], []).append(form)
            self._parts.append(NaivePart(kind, on[0], own, lambda rows, its=its, kept=kept: kept(rows) and all(test(rows) for test in its)))
            if kind in ("optional", "full"):
                self._aliases += own
        # left parts come before the others, as optional aliases are there for all of them
        self._parts.sort(key=lambda part: part.kind not in ("optional", "full"))
        names = [alias for alias, _ in self._aliases]
        definition["select"] = [f"{alias}.{column} as {alias}_{column}" for alias, name in self._aliases for column in SHOWN[name]]
        ends = [
            (lambda row, of=SPANS[name][1]: of(row) if row else (-_INF, _INF)) if alias in self._overlapping else _everywhere
            for alias, name in self._aliases
        ]

        def select(*rows: Row) -> Row:
            named = zip(self._aliases, rows, strict=True)
            return {f"{alias}_{column}": row[column] for (alias, name), row in named for column in SHOWN[name]}

        super().__init__(self._aliases, definition, lambda *rows: True, select, ends if self._overlapping & {*names} else [])

    def _join(self, rng: random.Random, aliases: list[tuple[str, str]], own: list[tuple[str, str]]) -> tuple[list[Any], list[Any]]:
        """Conditions that connect these."""
        emitted, tests = [], []
        for at in range(1, len(aliases)):
            chosen = rng.sample(KINDS, rng.choice((1, 2)))
            if chosen == ["not_equal"]:
                chosen = ["equal"]
            for kind in dict.fromkeys(chosen):
                x, y = aliases[rng.randrange(at)], aliases[at]
                if kind == "overlaps":
                    self._overlapping |= {x[0], y[0]}
                condition, test = _condition(kind, x, y, rng.choice(("room", "floor")))
                emitted.append(condition)
                tests.append(test)
        return emitted, tests

    @staticmethod
    def _filter(rng: random.Random, alias: tuple[str, str], where: list[dict[str, Any]], share: float) -> Callable[[Any], bool]:
        column, values = FILTERED[alias[1]]
        value = rng.choice(values)
        if rng.random() >= share:
            return lambda rows: True
        where.append({"column": f"{alias[0]}.{column}", "op": "=", "value": value})
        return lambda rows: bool(rows[alias[0]][column] == value)

    def combinations(self, relations: dict[str, dict[tuple[Any, ...], Row]]) -> list[tuple[Row, ...]]:
        rows: list[dict[str, Row]] = [{}]
        for alias, name in self._core:
            rows = [{**row, alias: more} for row in rows for more in relations[name].values()]
        rows = [row for row in rows if self._kept(row) and all(test(row) for test in self._core_tests)]
        found = outer_join(rows, self._parts, {name: list(some.values()) for name, some in relations.items()})
        return [tuple(_MISSING if row[alias] is None else row[alias] for alias, _ in self._aliases) for row in found]  # type: ignore[misc]


def _everywhere(row: Row) -> tuple[float, float]:
    return -_INF, _INF


CHOICES = [
    ["optional"], ["absent"], ["exists"], ["full"], ["optional"], ["full"], ["absent", "exists"], ["optional", "optional"],
    ["optional", "absent"], ["optional", "optional", "exists"],
]  # fmt: skip


def drawn(rng: random.Random, kinds: list[str], shape: str = "") -> PartsView:
    """`shape`: of the plan; "": any."""
    while True:
        view = PartsView(rng, kinds)
        try:
            plan = parse_view("v", view.definition, DEFINITIONS).plan
        except Problem as problem:
            assert problem.type == "unsupported-query", (view.definition, problem.detail)
        else:
            assert plan.shape in ("outer", "match", "join_tree") or plan.algorithm == "lqdag"
            if shape in ("", plan.shape):
                return view


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 60))])
def test_random_views(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    views: dict[str, TwinView] = {}
    for number, kinds in enumerate(rng.sample(CHOICES, 5)):
        view = drawn(rng, kinds)
        views[f"v{number}"] = view
        query = parse_view("v", view.definition, DEFINITIONS).query
        others = [one.algorithm for one in alternatives(query, DEFINITIONS)]
        if others and number < 2:
            views[f"v{number}_other"] = KeptBy(view, rng.choice(others))
    run(tmp_path, 2300 + seed, 16, lambda source: source.random.randrange((5, 25)[seed % 2]), 6, views)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60))])
def test_random_views_by_a_match_tree(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    views: dict[str, TwinView] = {}
    for kind in ("optional", "absent", "exists", "full"):
        view = views[kind] = drawn(rng, [kind], "match")
        query = parse_view("v", view.definition, DEFINITIONS).query
        counted = [one for one in alternatives(query, DEFINITIONS) if one.shape == "outer"]
        if kind in ("absent", "full"):
            views[f"{kind}_counted"] = KeptBy(view, counted[0].algorithm)
    run(tmp_path, 5300 + seed, 16, lambda source: source.random.randrange((5, 25)[seed % 2]), 6, views)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 60))])
def test_random_views_by_a_join_tree(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    views: dict[str, TwinView] = {}
    for number, kinds in enumerate(rng.sample([kinds for kinds in CHOICES if kinds != ["full"]], 5)):
        view = views[f"v{number}"] = drawn(rng, kinds, "join_tree")
        query = parse_view("v", view.definition, DEFINITIONS).query
        counted = [one for one in alternatives(query, DEFINITIONS) if one.shape == "outer"]
        if counted and number < 2:
            views[f"v{number}_counted"] = KeptBy(view, counted[0].algorithm)
    run(tmp_path, 7300 + seed, 16, lambda source: source.random.randrange((5, 25)[seed % 2]), 6, views)
