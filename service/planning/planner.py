"""From a query to its class, its algorithm and its guarantee: chooses the best plan of the modules of `plans`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from service.errors import Problem, unsupported
from service.planning.binding import Counts, equal_classes
from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural, meets_of, overlaps_of, residual_of
from service.planning.plans import (
    bow_tie,
    boxes,
    clique,
    counting,
    groups,
    heap,
    indexed,
    intersect,
    lqdag,
    match,
    minesweeper,
    outer,
    pair,
    product,
    qdag,
    selection,
    tree,
    tree_tracker,
    view_tree,
)  # fmt: skip
from service.planning.plans.plan import (
    LEMMA_9,
    THEOREM_1,
    THEOREM_3,
    THEOREM_4,
    THEOREM_NATURAL,
    InnerJoin,
    Plan,
    ProductFactor,
    dimensions,
    names,
    no_such_promise,
    promises,
)
from service.planning.plans.stages import as_of, gaps, latest
from service.query.model import ALGORITHMS, GUARANTEES, Query
from service.query.subqueries import words_of

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
    "join-tree": Makers(tree.WORDS, (tree.make,)),
    "qdag": Makers(qdag.WORDS, (qdag.make,)),
    "nested-loop": Makers("joins of two or more relations", (indexed.make,)),
    "tree-tracker": Makers(tree_tracker.WORDS, (tree_tracker.make,)),
    "minesweeper": Makers(minesweeper.WORDS, (minesweeper.make,)),
    "elimination": Makers(minesweeper.NESTED_WORDS, (bow_tie.make_by_one_index, minesweeper.make_nested)),
    "intersect": Makers(intersect.WORDS, (intersect.make,)),
    "bow-tie": Makers(bow_tie.WORDS, (bow_tie.make,)),
    "lqdag": Makers(lqdag.WORDS, (lqdag.make,)),
    "match-tree": Makers(match.WORDS, ()),  # of joins with parts, as those by counts of `outer`
    "event-tree": Makers(f"{counting.WORDS}; {gaps.WORDS}", ()),  # of groups, and of stretches
}
assert {*BUILT} == {*ALGORITHMS}


def plan(query: Query, relations: Relations, counted: Counted | None = None) -> Plan:
    """The best plan; `counted`: statistics of the rows, for orders. Raises `infeasible-view` if the query's algorithm or guarantee
    is not possible."""
    relations = query.defined(relations)
    if query.stretches is not None:
        return gaps.make(query, relations)
    if query.united:
        return product.union_all(query, lambda one: plan(one, relations, counted))
    if query.groups is not None:
        return _of_groups(query, relations, counted)
    best = _best(query, relations)
    best = best if counted is None else _by_counts(ProductFactor((), query, best), relations, counted)
    return groups.of_distinct(query, best) if query.distinct else best


def _of_groups(query: Query, relations: Relations, counted: Counted | None) -> Plan:
    """Groups that are counted, otherwise by the rows of the join."""
    found = counting.make(query, relations)
    if isinstance(found, Plan) and query.algorithm in ("auto", found.algorithm):
        if not promises(found, query.guarantee):
            raise no_such_promise(query, "these groups", found, found.notes[-1])
        return found
    obstacle = found if isinstance(found, str) else ""
    if query.algorithm == "event-tree":
        reason = f"event-tree supports {counting.WORDS}, but {obstacle or f'this view {_in_words(query, relations)}'}"
        raise Problem("infeasible-view", f'{reason}; write "algorithm": "auto"', theorem=reason)
    made = groups.of_core(query, relations, plan(groups.core_of(query), relations, counted), obstacle)
    if not promises(made, query.guarantee):
        raise groups.refusal(query, made, obstacle)
    return made


def _best(query: Query, relations: Relations) -> Plan:
    found = _plans(query, relations)
    if not found:
        raise lqdag.refusal(query, relations) if not query.subqueries else _no_parts(query)
    best = found[0]
    if query.algorithm != "auto":
        named = [one for one in found if one.algorithm == query.algorithm]
        if not named:
            raise _no_such_plan(query, relations, found)
        best = named[0]
    if not promises(best, query.guarantee):
        raise _no_such_promise(query, relations, best, found)
    return best


def alternatives(query: Query, relations: Relations, counted: Counted | None = None) -> list[Plan]:
    """The plans of the other implemented algorithms that are correct for the query."""
    relations = query.defined(relations)
    if query.stretches is not None or query.united:
        return []
    if query.groups is not None:
        found, core = counting.make(query, relations), groups.core_of(query)
        if isinstance(found, str):
            return [groups.of_core(query, relations, one, found) for one in alternatives(core, relations, counted)]
        core = replace(core, algorithm="auto")
        chosen = plan(query, relations, counted)
        cores = [plan(core, relations, counted), *alternatives(core, relations, counted)]
        return [one for one in (found, *(groups.of_core(query, relations, one, "") for one in cores)) if one.algorithm != chosen.algorithm]
    best = _best(query, relations)
    others = [one for one in _plans(query, relations) if one.algorithm != best.algorithm]
    others = others if counted is None else [_by_counts(ProductFactor((), query, one), relations, counted) for one in others]
    return [groups.of_distinct(query, one) for one in others] if query.distinct else others


def _by_counts(part: ProductFactor, relations: Relations, counted: Counted) -> Plan:
    """The same plan, with the binding order of indexed joins chosen by counts."""
    if part.plan.shape == "product":
        return product.of_parts([replace(one, plan=_by_counts(one, relations, counted)) for one in part.plan.parts])
    if (joins := part.plan.outer) is not None:
        parts = [ProductFactor((), one.query, _chosen(one)) for one in joins.joins]
        plans = [of.plan if any(one.tests) else _by_counts(of, relations, counted) for one, of in zip(joins.joins, parts, strict=True)]
        chosen = tuple(replace(one, plan=plan) for one, plan in zip(joins.joins, plans, strict=True))
        return replace(part.plan, outer=joins._replace(joins=chosen))
    if part.plan.shape != "indexed":
        return part.plan
    made = indexed.make(part.query, relations, counted(part.query))
    assert made is not None
    return made


def _chosen(one: InnerJoin) -> Plan:
    assert one.plan is not None
    return one.plan


def _no_parts(query: Query) -> Problem:
    what = " and ".join(dict.fromkeys(words_of(part) for part in query.subqueries))
    return unsupported(f"a view with {what} of this form", outer.refusal(query))


def _plans(query: Query, relations: Relations) -> list[Plan]:
    """One per algorithm, the best first; none where NOT EXISTS, UNION or EXCEPT is not supported."""
    if query.latest is not None:
        return [latest.make(query, relations)]
    if query.as_of is not None:
        return [as_of.make(query, relations)]
    if query.absent or query.branches or query.subqueries:
        makers = [] if query.outer_filters else [match.make, tree.make_with_subqueries]
        of_parts = [] if query.branches else [*(make(query, relations) for make in makers), *outer.make(query, relations, _plans)]
        found = [one for one in (*of_parts, None if query.subqueries else lqdag.make(query, relations)) if one is not None]
    else:
        found = product.make(query, relations, _plans)
        found += [one for algorithm in BUILT.values() for make in algorithm.makers if (one := make(query, relations)) is not None]
    found.sort(key=lambda one: GUARANTEES.index(one.guarantee), reverse=True)
    unique: dict[str, Plan] = {}
    for one in found:
        unique.setdefault(one.algorithm, one)
    return list(unique.values())


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


def _operations(query: Query) -> str:
    """The operations of the view in addition to an inner join."""
    found = [*dict.fromkeys(words_of(part) for part in query.subqueries)]
    other = lqdag.operations(query)
    return " and ".join([*found, *([other] if other and other not in found else [])])


def _in_words(query: Query, relations: Relations) -> str:
    """Describes the view."""
    count = len(query.aliases)
    words = ["selects from one relation" if count == 1 else f"joins {count} relations"]
    if query.latest is not None:
        return "selects the first rows of each key of one relation"
    if query.as_of is not None:
        return f"joins two relations as of {query.as_of.point}"
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
    if operations := _operations(query):
        words.append(f"with {operations}")
    return " ".join(words)


def _no_such_promise(query: Query, relations: Relations, best: Plan, found: list[Plan]) -> Problem:
    others = [f'"algorithm": "{one.algorithm}"' for one in found if promises(one, query.guarantee)]
    instead = " or ".join([*others, f'"guarantee": "{best.guarantee}"'])
    by = f" by {best.algorithm}" if others else ""
    refused = f'the guarantee "{query.guarantee}" cannot be given{by}, only "{best.guarantee}"'
    reasons = "; ".join(_reasons(query, relations, best))
    theorem = reasons if others else _in_the_way(query, relations)
    return Problem("infeasible-view", f"{refused}: {reasons}; write {instead}", theorem=theorem)


def _reasons(query: Query, relations: Relations, best: Plan) -> tuple[str, ...]:
    if query.branches:
        return (_in_the_way(query, relations),)
    if best.shape == "outer":
        counted = "it visits the partners of a changed row to count them"
        return best.notes if best.guarantee == "best-effort" else (counted,)
    if best.shape == "join_tree" and (query.absent or query.subqueries):
        return (tree.VISITS,)
    if query.absent:
        return (_in_the_way(query, relations),)
    if is_natural(query, relations) and best.shape != "product":
        if not hypergraph(query).acyclic:
            return ("the equalities form a cycle, for which no algorithm bounds the delay between rows",)
        if best.guarantee == "best-effort":
            return (f"{best.algorithm} does not bound the delay between rows",)
    return best.notes


def _in_the_way(query: Query, relations: Relations) -> str:
    """The reason why the requested guarantee is impossible; for a product, that of the part with the weakest guarantee."""
    if query.latest is not None:
        return latest.TIES
    if query.as_of is not None:
        return as_of.EXCLUDED
    if query.subqueries or (query.absent and not query.branches and outer.make(query, relations, _plans)):  # counts of partners can keep it
        return f"no algorithm is implemented that keeps {_operations(query)} of this form in polylogarithmic time per change"
    if query.absent or query.branches:
        return f"no algorithm that supports {lqdag.operations(query)} bounds the cost of a change or the delay between rows"
    parts = product.make(query, relations, _plans)
    if parts:
        least = min(parts[0].parts, key=lambda part: GUARANTEES.index(part.plan.guarantee))
        return _in_the_way(least.query, relations)
    if is_natural(query, relations):
        relations_joined = [relation for _, relation in query.aliases]
        itself = len(set(relations_joined)) < len(relations_joined)
        return THEOREM_NATURAL + ("; it does not apply to self-joins, but no better algorithm is implemented for them" if itself else "")
    if len(query.aliases) > 2 and dimensions(query, relations) > 1:
        return THEOREM_3
    spans = {span for meet in overlaps_of(query, relations) for span in (meet.left, meet.right)}
    if len({span.alias for span in spans}) < len(spans):
        return LEMMA_9
    leaves_out = " AND ".join(map(str, query.compared))
    if len(query.aliases) == 2 and leaves_out:
        return f"{THEOREM_1}: two sets and one overlap; rows that {leaves_out} excludes are visited too"
    both = f"{THEOREM_1}: two sets and one overlap, and {THEOREM_4}: one interval per alias"
    return f"{both}; a join tree guarantees only the delay, and an indexed join guarantees nothing"
