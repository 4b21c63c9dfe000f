"""From a query to its class, the algorithm that keeps it, and what is promised.

Classes
    list            one relation, filtered: a tree of one set
    pair            two sets and one overlap (the same relation twice too: both orders and the diagonal)
    self_less       the aliases are interchangeable and `a.c < b.c`: one set, each unordered pair once, oriented by c
    self_not_equal  the aliases are interchangeable and `a.c <> b.c` tells any two rows of one key apart: one set, both orders

Aliases are interchangeable when swapping them changes nothing: one relation, the same interval, the
same key columns, the same filters. Comparisons outside these classes are checked row by row (the
plan's `residual`), which voids the promise on the delay.

Source: Tao and Yi, Intersection Joins under Updates, Theorem 1 (two sets, one dimension).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.errors import Problem
from service.terms import ColumnRef, Comparison, Query
from service.wire.schema import RelationDefinition

GUARANTEES = ("best-effort", "delay", "strict")  # each implies those before it
THEOREM = "Tao and Yi, Theorem 1"
BUILT = "interval-tree"

# What each algorithm keeps: overlaps (o), natural joins (n), a selection of one relation (s).
ALGORITHMS = {
    "interval-tree": "os",
    "ij-heap": "os",
    "box-tree": "o",
    "view-tree": "ns",
    "join-tree": "ons",
    "tree-tracker": "ns",
    "minesweeper": "n",
    "intersect": "n",
    "bow-tie": "n",
    "elimination": "n",
    "qdag": "n",
    "lqdag": "n",
    "nested-loop": "ons",
}


@dataclass(frozen=True)
class Plan:
    """How a view is kept. `residual`: comparisons between the aliases to be checked on every candidate row."""

    cls: str
    algorithm: str
    theorem: str | None
    guarantee: str
    bounds: Mapping[str, str]
    notes: tuple[str, ...]
    shape: str
    residual: tuple[Comparison, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "class": self.cls,
            "algorithm": self.algorithm,
            "theorem": self.theorem,
            "guarantee": self.guarantee,
            "bounds": dict(self.bounds),
            "notes": list(self.notes),
        }


def plan(query: Query, relations: Mapping[str, RelationDefinition]) -> Plan:
    """The best plan. Raises `infeasible-view` where the query's algorithm or guarantee cannot be had, `not-yet` where only not yet."""
    _check_algorithm(query)
    found = _list_plan(query) if len(query.aliases) == 1 else _join_plan(query, relations)
    if GUARANTEES.index(found.guarantee) < GUARANTEES.index(query.guarantee):
        raise Problem(
            "infeasible-view",
            f'the guarantee "{query.guarantee}" cannot be given, only "{found.guarantee}": {"; ".join(found.notes)}',
            theorem=f"{THEOREM}: two sets and one overlap; the rows that {_condition(query)} leaves out are met on the way",
        )
    return found


def alternatives(query: Query, relations: Mapping[str, RelationDefinition]) -> list[Plan]:
    """The plans of the other algorithms that are correct for the query and built: of these classes only one is."""
    return []


def _check_algorithm(query: Query) -> None:
    if query.algorithm in ("auto", BUILT):
        return
    kind = "s" if len(query.aliases) == 1 else "o"
    if kind in ALGORITHMS[query.algorithm]:
        raise Problem("not-yet", f'the algorithm {query.algorithm} comes with a later version; write "algorithm": "{BUILT}" or "auto"')
    keeps = "natural joins" if "n" in ALGORITHMS[query.algorithm] else "overlaps"
    has = "selects from one relation" if kind == "s" else "joins by an overlap of intervals"
    reason = f"{query.algorithm} keeps {keeps}, and this view {has}"
    raise Problem("infeasible-view", f'{reason}; write "algorithm": "{BUILT}" or "auto"', theorem=reason)


def _list_plan(query: Query) -> Plan:
    bounds = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    return Plan("selection, 1 relation", BUILT, None, "strict", bounds, _never(query), "list")


def _join_plan(query: Query, relations: Mapping[str, RelationDefinition]) -> Plan:
    keyed = ", keyed" if query.equal else ""
    comparisons = [Comparison(x, "<", y) for x, y in query.less] + [Comparison(x, "<>", y) for x, y in query.not_equal]
    bounds = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    notes = _never(query) + _open_ends(query, relations)
    if not comparisons:
        return Plan(f"interval join, 1-D, 2 relations{keyed}", BUILT, THEOREM, "strict", bounds, notes, "pair")
    if len(comparisons) == 1 and _interchangeable(query):
        one = comparisons[0]
        exact = _tells_apart(query, one.left, relations)
        if one.op == "<>" and exact:
            return Plan(f"interval self-join, 1-D, both orders{keyed}", BUILT, THEOREM, "strict", bounds, notes, "self_not_equal")
        if one.op == "<":
            cls = f"interval self-join, 1-D, each pair once{keyed}"
            if exact:
                return Plan(cls, BUILT, THEOREM, "strict", bounds, notes, "self_less")
            note = (
                f"pairs that are equal in {one.left.column} are passed over: "
                f"{one.left.column} is not the key, nor do it and the equality columns make one"
            )
            return Plan(cls, BUILT, THEOREM, "best-effort", _candidates(), (*notes, note), "self_less")
    note = (
        ", ".join(f"{c.left} {c.op} {c.right}" for c in comparisons)
        + " is checked row by row: rows that overlap without it are passed over"
    )
    return Plan(
        f"interval join, 1-D, 2 relations{keyed}, filtered",
        BUILT,
        THEOREM,
        "best-effort",
        _candidates(),
        (*notes, note),
        "pair",
        tuple(comparisons),
    )


def _candidates() -> dict[str, str]:
    """What holds when candidates are passed over."""
    return {"space": "O(n)", "update": "O(log n) and a step per candidate", "delay": "O(log n) between candidates, no bound between rows"}


def _interchangeable(query: Query) -> bool:
    (a, left), (b, right) = query.aliases
    filters = {alias: {(f.column.column, f.op, f.value) for f in query.filters if f.column.alias == alias} for alias in (a, b)}
    return (
        left == right
        and all(x.interval == y.interval for x, y in query.overlaps)
        and all(x.column == y.column for x, y in query.equal)
        and filters[a] == filters[b]
    )


def _tells_apart(query: Query, ref: ColumnRef, relations: Mapping[str, RelationDefinition]) -> bool:
    """Whether two different rows that agree in the equality columns always differ in this column."""
    relation = dict(query.aliases)[ref.alias]
    return set(relations[relation].key) <= {ref.column} | {x.column for x, _ in query.equal}


def _condition(query: Query) -> str:
    pairs = [f"{x} < {y}" for x, y in query.less] + [f"{x} <> {y}" for x, y in query.not_equal]
    return " AND ".join(pairs)


def _never(query: Query) -> tuple[str, ...]:
    return ("a condition can match nothing (a comparison with NULL, or FALSE): the view is empty",) if query.never else ()


def _open_ends(query: Query, relations: Mapping[str, RelationDefinition]) -> tuple[str, ...]:
    """An open start against an open end: where inequalities and a shared value of a discrete type part."""
    by_alias = dict(query.aliases)
    for pair in query.overlaps:
        x, y = (relations[by_alias[ref.alias]].intervals[ref.interval] for ref in pair)
        if (x.start_open and y.end_open) or (y.start_open and x.end_open):
            return ("an open start against an open end: the intervals overlap when a value of their type lies in both",)
    return ()
