"""From a query to its class, the algorithm that keeps it, and what is promised: the best of what the modules of `plans` offer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from service.binding import Counts
from service.errors import Problem
from service.meets import Relations, meets_of
from service.plans import boxes, clique, heap, indexed, pair, product, qdag, selection, tree
from service.plans.plan import GUARANTEES, THEOREM_1, THEOREM_3, THEOREM_4, Part, Plan, dimensions
from service.terms import Query

Maker = Callable[[Query, Relations], Plan | None]
Counted = Callable[[Query], Counts | None]

# In the order of the design: of equal promises the first is taken.
MAKERS: dict[str, tuple[Maker, ...]] = {
    "interval-tree": (selection.make, pair.make, clique.make),
    "ij-heap": (heap.make,),
    "box-tree": (boxes.make,),
    "join-tree": (tree.make,),
    "qdag": (qdag.make,),
    "nested-loop": (indexed.make,),
}


class Algorithm(NamedTuple):
    """What it keeps: overlaps (o), natural joins (n), a selection of one relation (s); and in words."""

    kinds: str
    words: str = "natural joins"


ALGORITHMS = {
    "interval-tree": Algorithm("os", "joins of two relations by one overlap, and of one relation with itself, all its aliases overlapping"),
    "ij-heap": Algorithm("os", f"joins of two to {heap.MOST_SETS} relations, each by one interval, with a key common to all or none"),
    "box-tree": Algorithm("o", "joins of two relations by two conditions of intervals and more"),
    "view-tree": Algorithm("ns"),
    "join-tree": Algorithm("ons", "joins in the shape of a tree, each edge by equalities and at most one condition of intervals"),
    "tree-tracker": Algorithm("ns"),
    "minesweeper": Algorithm("n"),
    "intersect": Algorithm("n"),
    "bow-tie": Algorithm("n"),
    "elimination": Algorithm("n"),
    "qdag": Algorithm("n", qdag.WORDS),
    "lqdag": Algorithm("n"),
    "nested-loop": Algorithm("ons", "joins of two relations and more"),
}


def plan(query: Query, relations: Relations, counted: Counted | None = None) -> Plan:
    """The best plan; `counted`: what is known of the rows, for orders. Raises `infeasible-view` where the query's algorithm or guarantee
    cannot be had, `not-yet` where only not yet."""
    best = _best(query, relations)
    return best if counted is None else _by_counts(Part((), query, best), relations, counted)


def _best(query: Query, relations: Relations) -> Plan:
    found = _plans(query, relations)
    best = found[0]
    if query.algorithm != "auto":
        named = [one for one in found if one.algorithm == query.algorithm]
        if not named:
            raise _no_such_plan(query, relations, found)
        best = named[0]
    if GUARANTEES.index(best.guarantee) < GUARANTEES.index(query.guarantee):
        raise Problem(
            "infeasible-view",
            f'the guarantee "{query.guarantee}" cannot be given, only "{best.guarantee}": {"; ".join(best.notes)}',
            theorem=_in_the_way(query, relations),
        )
    return best


def alternatives(query: Query, relations: Relations, counted: Counted | None = None) -> list[Plan]:
    """The plans of the other algorithms that are correct for the query and built."""
    best = _best(query, relations)
    others = [one for one in _plans(query, relations) if one.algorithm != best.algorithm]
    return others if counted is None else [_by_counts(Part((), query, one), relations, counted) for one in others]


def _by_counts(part: Part, relations: Relations, counted: Counted) -> Plan:
    """The same plan, what is bound alias after alias in an order by counts."""
    if part.plan.parts:
        return product.of_parts([replace(one, plan=_by_counts(one, relations, counted)) for one in part.plan.parts])
    if part.plan.binding is None:
        return part.plan
    made = indexed.make(part.query, relations, counted(part.query))
    assert made is not None
    return made


def _plans(query: Query, relations: Relations) -> list[Plan]:
    """One an algorithm, the best first."""
    found = product.make(query, relations, _plans)
    found += [one for makers in MAKERS.values() for make in makers if (one := make(query, relations)) is not None]
    found.sort(key=lambda one: GUARANTEES.index(one.guarantee), reverse=True)
    return list({one.algorithm: one for one in reversed(found)}.values())[::-1]


def _no_such_plan(query: Query, relations: Relations, found: list[Plan]) -> Problem:
    algorithm, better = query.algorithm, " or ".join(f'"{one.algorithm}"' for one in found)
    kinds, words = ALGORITHMS[algorithm]
    meets = meets_of(query, relations)
    kind = "s" if len(query.aliases) == 1 else "o" if meets else "n"
    instead = f'write "algorithm": {better} or "auto"'
    if kind in kinds and algorithm not in MAKERS:
        return Problem("not-yet", f"the algorithm {algorithm} comes with a later version; {instead}")
    has = {"s": "selects from one relation", "n": "joins by equality alone", "o": f"joins {len(query.aliases)} relations by "}[kind]
    if kind == "o":
        has += ", ".join(meet.words for meet in meets)
    reason = f"{algorithm} keeps {words}, and this view {has}"
    return Problem("infeasible-view", f"{reason}; {instead}", theorem=reason)


def _in_the_way(query: Query, relations: Relations) -> str:
    """What forbids the promise that was asked for: of a product, in the part that promises least."""
    parts = product.make(query, relations, _plans)
    if parts:
        least = min(parts[0].parts, key=lambda part: GUARANTEES.index(part.plan.guarantee))
        return _in_the_way(least.query, relations)
    if len(query.aliases) > 2 and dimensions(query, relations) > 1:
        return THEOREM_3
    leaves_out = " AND ".join(map(str, query.comparisons))
    if len(query.aliases) == 2 and leaves_out:
        return f"{THEOREM_1}: two sets and one overlap; the rows that {leaves_out} leaves out are met on the way"
    both = f"{THEOREM_1}: two sets and one overlap, and {THEOREM_4}: one interval an alias"
    return f"{both}; a join tree promises the delay, an indexed join nothing"
