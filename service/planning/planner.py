"""From a query to its class, its algorithm and its guarantee: chooses the best plan of the modules of `plans`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from service.errors import Problem
from service.planning.binding import Counts, equal_classes
from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural, meets_of, residual_of
from service.planning.plans import (
    bow_tie,
    boxes,
    clique,
    heap,
    indexed,
    intersect,
    lqdag,
    minesweeper,
    pair,
    product,
    qdag,
    selection,
    tree,
    tree_tracker,
    view_tree,
)  # fmt: skip
from service.planning.plans.plan import THEOREM_1, THEOREM_3, THEOREM_4, THEOREM_NATURAL, Part, Plan, dimensions, names
from service.query.model import ALGORITHMS, GUARANTEES, Query

Maker = Callable[[Query, Relations], Plan | None]
Counted = Callable[[Query], Counts | None]


class Makers(NamedTuple):
    """The joins that it supports, in words, and the modules of `plans` that plan for it."""

    words: str
    makers: tuple[Maker, ...]


# Of equal guarantees the first is taken. A definition may name any.
BUILT: dict[str, Makers] = {
    "interval-tree": Makers(
        "joins of two relations on one overlap, and self-joins whose aliases all overlap",
        (selection.make, pair.make, clique.make),
    ),
    "ij-heap": Makers(heap.WORDS, (heap.make,)),
    "box-tree": Makers("joins of two relations on two or more interval conditions", (boxes.make,)),
    "view-tree": Makers(view_tree.WORDS, (view_tree.make,)),
    "join-tree": Makers("joins whose conditions form a tree, with equalities and at most one interval condition per edge", (tree.make,)),
    "qdag": Makers(qdag.WORDS, (qdag.make,)),
    "nested-loop": Makers("joins of two or more relations", (indexed.make,)),
    "tree-tracker": Makers(tree_tracker.WORDS, (tree_tracker.make,)),
    "minesweeper": Makers(minesweeper.WORDS, (minesweeper.make,)),
    "elimination": Makers(minesweeper.NESTED_WORDS, (bow_tie.make_by_one_index, minesweeper.make_nested)),
    "intersect": Makers(intersect.WORDS, (intersect.make,)),
    "bow-tie": Makers(bow_tie.WORDS, (bow_tie.make,)),
    "lqdag": Makers(lqdag.WORDS, (lqdag.make,)),
}
assert {*BUILT} == {*ALGORITHMS}


def plan(query: Query, relations: Relations, counted: Counted | None = None) -> Plan:
    """The best plan; `counted`: statistics of the rows, for orders. Raises `infeasible-view` if the query's algorithm or guarantee
    is not possible."""
    best = _best(query, relations)
    return best if counted is None else _by_counts(Part((), query, best), relations, counted)


def _best(query: Query, relations: Relations) -> Plan:
    found = _plans(query, relations)
    if not found:
        raise lqdag.refusal(query, relations)
    best = found[0]
    if query.algorithm != "auto":
        named = [one for one in found if one.algorithm == query.algorithm]
        if not named:
            raise _no_such_plan(query, relations, found)
        best = named[0]
    if not _promises(best, query.guarantee):
        raise _no_such_promise(query, relations, best, found)
    return best


def alternatives(query: Query, relations: Relations, counted: Counted | None = None) -> list[Plan]:
    """The plans of the other implemented algorithms that are correct for the query."""
    best = _best(query, relations)
    others = [one for one in _plans(query, relations) if one.algorithm != best.algorithm]
    return others if counted is None else [_by_counts(Part((), query, one), relations, counted) for one in others]


def _by_counts(part: Part, relations: Relations, counted: Counted) -> Plan:
    """The same plan, with the binding order of indexed joins chosen by counts."""
    if part.plan.shape == "product":
        return product.of_parts([replace(one, plan=_by_counts(one, relations, counted)) for one in part.plan.parts])
    if part.plan.shape != "indexed":
        return part.plan
    made = indexed.make(part.query, relations, counted(part.query))
    assert made is not None
    return made


def _plans(query: Query, relations: Relations) -> list[Plan]:
    """One per algorithm, the best first; none where NOT EXISTS, UNION or EXCEPT is not supported."""
    if query.absent or query.branches:
        return [one for one in (lqdag.make(query, relations),) if one is not None]
    found = product.make(query, relations, _plans)
    found += [one for algorithm in BUILT.values() for make in algorithm.makers if (one := make(query, relations)) is not None]
    found.sort(key=lambda one: GUARANTEES.index(one.guarantee), reverse=True)
    return list({one.algorithm: one for one in reversed(found)}.values())[::-1]


def _promises(one: Plan, guarantee: str) -> bool:
    return GUARANTEES.index(one.guarantee) >= GUARANTEES.index(guarantee)


def _no_such_plan(query: Query, relations: Relations, found: list[Plan]) -> Problem:
    algorithm = query.algorithm
    better = ", ".join(f'"{one.algorithm}"' for one in found)
    instead = f'write "algorithm": {better} or "auto"'
    what = f"this view {_in_words(query, relations)}"
    if query.cross and not query.absent:
        joins = [one for one in product.parts(query) if len(one.aliases) > 1]
        parts = [one for one in joins if algorithm not in {other.algorithm for other in _plans(one, relations)}]
        if parts:
            what = f"the part ({', '.join(names(parts[0]))}) of this view {_in_words(parts[0], relations)}"
    reason = f"{algorithm} supports {BUILT[algorithm].words}, but {what}"
    return Problem("infeasible-view", f"{reason}; {instead}", theorem=reason)


def _in_words(query: Query, relations: Relations) -> str:
    """Describes the view."""
    count = len(query.aliases)
    words = ["selects from one relation" if count == 1 else f"joins {count} relations"]
    if query.branches:
        return f"is defined by {lqdag.operations(query)}"
    if conditions := [one.words for one in meets_of(query, relations)] + [str(one) for one in residual_of(query, relations)]:
        conditions = ["equality"] * bool(query.equal) + conditions
        words.append(f"on {', '.join(conditions)}")
    elif query.equal:
        graph, classes = hypergraph(query), len(equal_classes(query))
        words.append(f"on equality only ({graph.words}{f', {classes} classes of equal columns' if classes > graph.dimension else ''})")
    if query.cross:
        words.append("with a product")
    if query.absent:
        words.append(f"with {lqdag.operations(query)}")
    return " ".join(words)


def _no_such_promise(query: Query, relations: Relations, best: Plan, found: list[Plan]) -> Problem:
    others = [f'"algorithm": "{one.algorithm}"' for one in found if _promises(one, query.guarantee)]
    instead = " or ".join([*others, f'"guarantee": "{best.guarantee}"'])
    by = f" by {best.algorithm}" if others else ""
    refused = f'the guarantee "{query.guarantee}" cannot be given{by}, only "{best.guarantee}"'
    reasons = "; ".join(_reasons(query, relations, best))
    theorem = reasons if others else _in_the_way(query, relations)
    return Problem("infeasible-view", f"{refused}: {reasons}; write {instead}", theorem=theorem)


def _reasons(query: Query, relations: Relations, best: Plan) -> tuple[str, ...]:
    if query.branches or query.absent:
        return (_in_the_way(query, relations),)
    if is_natural(query, relations) and best.shape != "product":
        if not hypergraph(query).acyclic:
            return ("the equalities form a cycle, for which no algorithm bounds the delay between rows",)
        if best.guarantee == "best-effort":
            return (f"{best.algorithm} does not bound the delay between rows",)
    return best.notes


def _in_the_way(query: Query, relations: Relations) -> str:
    """The reason why the requested guarantee is impossible; for a product, that of the part with the weakest guarantee."""
    if query.absent or query.branches:
        return f"no algorithm that supports {lqdag.operations(query)} bounds the cost of a change or the delay between rows"
    parts = product.make(query, relations, _plans)
    if parts:
        least = min(parts[0].parts, key=lambda part: GUARANTEES.index(part.plan.guarantee))
        return _in_the_way(least.query, relations)
    if is_natural(query, relations):
        relations_joined = [relation for _, relation in query.aliases]
        itself = len(set(relations_joined)) < len(relations_joined)
        return THEOREM_NATURAL + ("; it does not cover self-joins, but no better algorithm is implemented for them" if itself else "")
    if len(query.aliases) > 2 and dimensions(query, relations) > 1:
        return THEOREM_3
    leaves_out = " AND ".join(map(str, query.comparisons))
    if len(query.aliases) == 2 and leaves_out:
        return f"{THEOREM_1}: two sets and one overlap; rows that {leaves_out} excludes are visited too"
    both = f"{THEOREM_1}: two sets and one overlap, and {THEOREM_4}: one interval per alias"
    return f"{both}; a join tree guarantees the delay, an indexed join nothing"
