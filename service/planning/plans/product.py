"""The product of joins that no condition connects, each maintained by its own class.

A part has the guarantee of its class, the product the weakest of its parts. A change's delta is that of its part combined with the current
rows of the others: all rows of the product. A part without rows stops all others at once if it knows that it has none (all structures do;
look-ups through indexes, which guarantee nothing, may not).

The SELECTs of UNION ALL are such parts too, whose rows stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from service.errors import Problem
from service.planning.meets import Relations
from service.planning.plans.plan import Plan, PlanShape, ProductFactor, names, no_such_promise, outputs_on, promises
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import GUARANTEES, Query

Plans = Callable[[Query, Relations], list[Plan]]


def make(query: Query, relations: Relations, plans: Plans) -> list[Plan]:
    """The product of the best plans of its parts, then one for each algorithm that can keep all parts of two or more aliases. [] if
    conditions connect all aliases. `plans`: the plans of a query, the best first."""
    positions = components(query)
    if len(positions) < 2:
        return []
    queries = parts(query)
    found = [plans(one, relations) for one in queries]
    choices = [[offered[0] for offered in found]]
    for algorithm in dict.fromkeys(one.algorithm for offered in found for one in offered if one.shape != "indexed"):
        chosen = [_named(offered, algorithm) for offered in found]
        choices.append([one for one in chosen if one is not None])
    made: dict[str, Plan] = {}
    for choice in choices:
        if len(choice) == len(positions):
            one = of_parts([ProductFactor(*part) for part in zip(positions, queries, choice, strict=True)])
            made.setdefault(one.algorithm, one)
    return list(made.values())


def parts(query: Query) -> list[Query]:
    """The joins of which it is a product, in the order of `components`; only itself if conditions connect all aliases."""
    positions = components(query)
    return [_part(query, one) for one in positions] if len(positions) > 1 else [query]


def components(query: Query) -> list[tuple[int, ...]]:
    """The positions of the aliases that conditions connect, part by part."""
    refs: list[tuple[ColumnRef | IntervalRef, ...]] = [*query.equal, *query.overlaps, *(one.columns for one in query.compared)]
    part = {alias: {alias} for alias in names(query)}
    for condition in refs:
        one = set[str]().union(*(part[ref.alias] for ref in condition))
        part |= dict.fromkeys(one, one)
    positions = {alias: position for position, alias in enumerate(names(query))}
    return sorted({tuple(sorted(positions[alias] for alias in one)) for one in part.values()})


def _named(offered: list[Plan], algorithm: str) -> Plan | None:
    """A part of one alias is always maintained in the same way, whatever the others use."""
    if offered[0].shape == "list":
        return offered[0]
    return next((one for one in offered if one.algorithm == algorithm), None)


def _part(query: Query, positions: tuple[int, ...]) -> Query:
    """The query over some of its aliases, with the conditions between them."""
    aliases = {query.aliases[position][0] for position in positions}
    return replace(
        query,
        aliases=tuple(query.aliases[position] for position in positions),
        equal=tuple(pair for pair in query.equal if pair[0].alias in aliases),
        overlaps=tuple(pair for pair in query.overlaps if pair[0].alias in aliases),
        less=tuple(pair for pair in query.less if pair[0].alias in aliases),
        at_most=tuple(pair for pair in query.at_most if pair[0].alias in aliases),
        not_equal=tuple(pair for pair in query.not_equal if pair[0].alias in aliases),
        shifted=tuple(one for one in query.shifted if one.left.alias in aliases),
        across=tuple(one for one in query.across if one.columns[0].alias in aliases),
        cross=tuple(pair for pair in query.cross if set(pair) <= aliases),
        filters=tuple(one for one in query.filters if one.alias in aliases),
        outputs=outputs_on(query.outputs, aliases),
        algorithm="auto",
        guarantee="best-effort",
    )


def of_parts(parts: Sequence[ProductFactor]) -> Plan:
    kinds = " x ".join(part.plan.cls for part in parts)
    cls = f"product, {sum(len(part.positions) for part in parts)} relations: {kinds}"
    return _together(parts, "product", cls, f"the product of {len(parts)} separately maintained parts")


def union_all(query: Query, plan: Callable[[Query], Plan]) -> Plan:
    """The plan of a view with UNION ALL; `plan`: that of one of its SELECTs. Raises `infeasible-view`."""
    if query.algorithm != "auto":
        reason = "each SELECT of UNION ALL is kept by an algorithm of its own"
        raise Problem("infeasible-view", f'{reason}; write "algorithm": "auto"', theorem=reason)
    numbers, parts = iter(range(len(query.aliases))), list[ProductFactor]()
    for one in query.united:
        parts.append(ProductFactor(tuple(islice(numbers, len(one.aliases))), one, plan(one)))
    made = _together(parts, "union_all", " UNION ALL ".join(f"({part.plan.cls})" for part in parts), "the SELECTs are kept separately")
    if not promises(made, query.guarantee):
        weakest = next(part.plan for part in parts if part.plan.guarantee == made.guarantee)
        raise no_such_promise(query, "this UNION ALL", made, (*weakest.notes, weakest.cls)[0])
    return made


def _together(parts: Sequence[ProductFactor], shape: PlanShape, cls: str, words: str) -> Plan:
    plans = [part.plan for part in parts]
    joins = [one for one in plans if one.shape != "list"] or plans
    least = min(plans, key=lambda one: GUARANTEES.index(one.guarantee))
    # The algorithm with the weakest guarantee gives the name.
    named = min(joins, key=lambda one: GUARANTEES.index(one.guarantee))
    by = ", ".join(f"({', '.join(names(part.query))}) by {part.plan.algorithm}" for part in parts)
    return Plan(
        cls, named.algorithm, named.theorem, least.guarantee,
        {what: _of_each(parts, [one.bounds[what] for one in plans]) for what in plans[0].bounds},
        (f"{words}: {by}", *dict.fromkeys(note for one in plans for note in one.notes)),
        shape,
        tuple(alias for one in plans for alias in one.order),
        parts=tuple(parts),
    )  # fmt: skip


def _of_each(parts: Sequence[ProductFactor], bounds: Sequence[str]) -> str:
    """What holds for all of them, otherwise for each by its aliases."""
    if len(set(bounds)) == 1:
        return bounds[0]
    return "; ".join(f"({', '.join(names(part.query))}): {bound}" for part, bound in zip(parts, bounds, strict=True))
