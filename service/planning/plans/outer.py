"""Joins with subqueries (EXISTS, NOT EXISTS, LEFT and FULL JOIN): a disjoint union of inner joins, each kept by its own class.

    LEFT   the inner join, and the rows of the core without a partner, joined with nulls
    FULL   the same, and the rows of the other side without a partner
    EXISTS, NOT EXISTS   the core over those rows that have a partner, or none

Counts determine which rows these are: the delta of the inner join of a subquery with the alias that it is connected to says, row by row,
how many partners each row gains and loses. A row that gains its first partner or loses its last one moves from one of the joins to another,
as a changed row would. So LEFT and FULL of two relations keep the guarantee of the inner join, and reading keeps that of the core; a change
of a subquery of a larger view, or of EXISTS, visits the partners of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product as choices_of

from service.planning.meets import Relations
from service.planning.plans.plan import CountedJoin, InnerJoin, Outer, Plan, first_notes, names, outputs_on
from service.planning.plans.product import components
from service.query.filters import ordered
from service.query.model import GUARANTEES, MAX_ALIASES, PAIRS, AntiJoin, Query, Subquery
from service.query.subqueries import oriented

Plans = Callable[[Query, Relations], list[Plan]]
MOST_JOINS = 16
NULLS = "a null matches nothing: a row with a null in a compared column has no partner"
_KINDS = {"exists": "semi join", "absent": "anti join", "optional": "left outer join", "full": "full outer join"}
_OWN = ("list", "pair", "self_less", "self_not_equal", "clique_less", "clique_not_equal", "heap", "join_tree", "qdag", "indexed")
"""Shapes of structures that take all that they have from the rows that they are given, one by one."""


def make(query: Query, relations: Relations, plans: Plans) -> list[Plan]:
    """The best plan, then one for each other algorithm that can keep all of its joins; [] if there is none (`refusal`)."""
    emitted = joins_of(query)
    if isinstance(emitted, str):
        return []
    kept, counts = emitted
    offered = []
    for one in kept:
        known = {**relations, **{name: relations[name.partition("#")[0]] for _, name in one.query.aliases}}
        found = plans(one.query, known)
        offered.append([plan for plan in found if not any(one.tests) or plan.shape in _OWN])
    if not all(offered):
        return []
    picks = [[found[0] for found in offered]]
    for algorithm in dict.fromkeys(plan.algorithm for found in offered for plan in found if len(plan.order) > 1):
        chosen = [next((plan for plan in found if plan.algorithm == algorithm or len(plan.order) == 1), None) for found in offered]
        picks.append([plan for plan in chosen if plan is not None])
    made: dict[str, Plan] = {}
    for pick in picks:
        if len(pick) == len(kept):
            joins = tuple(replace(one, plan=plan) for one, plan in zip(kept, pick, strict=True))
            plan = _plan(query, relations, Outer(joins, counts))
            made.setdefault(plan.algorithm, plan)
    return list(made.values())


def refusal(query: Query) -> str:
    """Why there is no plan, in words."""
    emitted = joins_of(query)
    return emitted if isinstance(emitted, str) else "there is no algorithm that supports all the joins that it consists of"


def kind_of(subqueries: Sequence[Subquery]) -> str:
    """The name of joins with such subqueries."""
    return " and ".join(dict.fromkeys(_KINDS[subquery.kind] for subquery in subqueries))


def subqueries_of(query: Query) -> list[Subquery] | str:
    """Its subqueries, including NOT EXISTS groups; or the reason, in words, why one cannot be kept in this way."""
    core, found = query.core, list(query.subqueries)
    for group in query.absent:
        emitted = _as_subquery(query, core, group)
        if isinstance(emitted, str):
            return emitted
        found.append(emitted)
    return found


def _as_subquery(query: Query, core: Query, group: AntiJoin) -> Subquery | str:
    own = {alias for alias, _ in group.aliases}
    outside = {ref.alias for pair in group.equal for ref in pair} - own
    if len(outside) != 1:
        emitted = " and ".join(sorted(outside)) or "nothing outside of it"
        return f"NOT EXISTS is compared with {emitted}; it must be compared with exactly one alias"
    if len(group.aliases) >= MAX_ALIASES:
        return f"NOT EXISTS has {len(group.aliases)} relations; at most {MAX_ALIASES - 1} are possible"
    relation = dict(query.aliases)[on := next(iter(outside))]
    join = replace(
        core, aliases=((on, relation), *group.aliases), equal=group.equal, filters=group.filters, overlaps=(), less=(), at_most=(),
        not_equal=(), shifted=(), cross=(), outputs=(), never=False, retain=None, algorithm="auto", guarantee="best-effort", named=(),
    )  # fmt: skip
    return Subquery("absent", join) if len(components(join)) == 1 else "a relation in NOT EXISTS has no equality with the others"


def joins_of(query: Query) -> tuple[list[InnerJoin], tuple[CountedJoin, ...]] | str:
    """The joins to keep, first those by which others are tested, and what is counted in them; their plans are made later."""
    subqueries = subqueries_of(query)
    if isinstance(subqueries, str):
        return subqueries
    sets = list(_matched(subqueries))
    if len(sets) > MOST_JOINS:
        return f"it consists of {len(sets)} joins (each independent LEFT JOIN doubles the number); at most {MOST_JOINS} are possible"
    shown = [one for one in sets if not any(_tests(query, subqueries, one).values())]
    kept, counts = list[InnerJoin](), list[CountedJoin]()
    for matched in shown:
        kept.append(_kept(query, subqueries, matched, {}))
    positions: dict[tuple[int, str], int] = {}
    for index, subquery in enumerate(subqueries):
        at = next((at for at, one in enumerate(kept) if _is_join_of(one, subquery) and not query.outer_filters), None)
        if at is None:
            kept.append(_support(query, subqueries, subquery))
            at = len(kept) - 1
        aliases = [alias for alias, _ in kept[at].query.aliases]
        for alias in (subquery.on, subquery.own[0][0]) if subquery.kind == "full" else (subquery.on,):
            positions[index, alias] = len(counts)
            counts.append(CountedJoin(at, aliases.index(alias)))
    for matched in sets:
        if matched not in shown:
            tests = {
                alias: tuple((positions[index, alias], wanted) for index, wanted in some)
                for alias, some in _tests(query, subqueries, matched).items()
            }
            kept.append(_kept(query, subqueries, matched, tests))
    return kept, tuple(counts)


Matched = frozenset[int]
"""The subqueries whose aliases a row has, by index; -1: of FULL JOIN its own side alone."""


def _matched(subqueries: Sequence[Subquery]) -> Iterator[Matched]:
    if subqueries and subqueries[0].kind == "full":
        yield from (frozenset([0]), frozenset(), frozenset([-1]))
        return
    optional = [index for index, subquery in enumerate(subqueries) if subquery.kind == "optional"]
    of_alias = {alias: index for index in optional for alias, _ in subqueries[index].own}
    for choice in choices_of((True, False), repeat=len(optional)):
        matched = frozenset(index for index, there in zip(optional, choice, strict=True) if there)
        if all(of_alias.get(subqueries[index].on, index) in matched for index in matched):
            yield matched


def _aliases(query: Query, subqueries: Sequence[Subquery], matched: Matched) -> list[str]:
    """The aliases that a row then has, in the order of the view's."""
    if matched == {-1}:
        return [alias for alias, _ in subqueries[0].own]
    there = {alias for alias, _ in query.core.aliases} | {alias for index in matched for alias, _ in subqueries[index].own}
    return [alias for alias, _ in query.aliases if alias in there]


def _tests(query: Query, subqueries: Sequence[Subquery], matched: Matched) -> dict[str, list[tuple[int, bool]]]:
    """By alias, the subqueries in which its rows must have a partner, or must not."""
    if matched == {-1}:
        return {subqueries[0].own[0][0]: [(0, False)]}
    found: dict[str, list[tuple[int, bool]]] = {}
    there = _aliases(query, subqueries, matched)
    for index, subquery in enumerate(subqueries):
        if subquery.on in there and index not in matched:
            found.setdefault(subquery.on, []).append((index, subquery.kind == "exists"))
    return found


def _kept(query: Query, subqueries: Sequence[Subquery], matched: Matched, tests: Mapping[str, tuple[tuple[int, bool], ...]]) -> InnerJoin:
    """The join of the rows that have these subqueries. A tested alias stands for a separate relation: the rows that pass."""
    there = _aliases(query, subqueries, matched)
    core = query.core
    joins = [] if matched == {-1} else [core, *(subqueries[index].join for index in sorted(matched))]
    by_alias = dict(query.aliases)
    filters = {one for join in joins for one in join.filters} | {one for one in query.outer_filters if one.alias in there}
    aliases = tuple((alias, f"{by_alias[alias]}#{alias}" if alias in tests else by_alias[alias]) for alias in there)
    made = replace(
        core, aliases=aliases, filters=ordered(filters),
        cross=tuple(sorted({one for join in joins for one in join.cross})),
        never=core.never or any(join.never for join in joins),
        outputs=outputs_on(query.outputs, there), algorithm="auto", guarantee="best-effort",
        **{field: tuple(sorted({pair for join in joins for pair in getattr(join, field)})) for field in PAIRS},  # type: ignore[arg-type]
    )  # fmt: skip
    made = oriented(made)
    positions = tuple(at for at, (alias, _) in enumerate(query.aliases) if alias in there)
    return InnerJoin(made, None, positions, tuple(tests.get(alias, ()) for alias in there))


def _support(query: Query, subqueries: Sequence[Subquery], subquery: Subquery) -> InnerJoin:
    """The join of a subquery with the rows of the alias that it is connected to."""
    of_alias = [one for one in subqueries if one.is_shown and subquery.on in dict(one.own)]
    stated = [*query.filters, *(one for owner in of_alias for one in owner.filters)]
    filters = ordered((*subquery.join.filters, *(one for one in stated if one.alias == subquery.on)))
    made = replace(subquery.join, filters=filters, computed=query.computed)
    return InnerJoin(made, None, (), ((),) * len(made.aliases))


def _is_join_of(kept: InnerJoin, subquery: Subquery) -> bool:
    """Whether it suffices for counting the subquery: only the alias and the subquery's own aliases."""
    return {alias for alias, _ in kept.query.aliases} == {subquery.on, *(alias for alias, _ in subquery.own)}


def _plan(query: Query, relations: Relations, outer: Outer) -> Plan:
    subqueries = subqueries_of(query)
    assert not isinstance(subqueries, str)
    plans = [one.plan for one in outer.joins if one.plan is not None]
    joins = [one for one in plans if len(one.order) > 1]
    least = min(plans, key=lambda one: GUARANTEES.index(one.guarantee))
    named = min(joins, key=lambda one: GUARANTEES.index(one.guarantee))
    alone = len(query.core.aliases) == 1 and len(subqueries) == 1 and subqueries[0].is_shown and not query.outer_filters
    guarantee = least.guarantee if alone or least.guarantee == "best-effort" else "delay"
    tree = next((one for one in joins if one.algorithm == named.algorithm), named)
    each = "" if alone else " per partner of the changed row"
    bounds = {
        "space": f"{tree.bounds['space']} per join; there {'is 1' if len(plans) == 1 else f'are {len(plans)}'}, and a count per row",
        "update": f"{tree.bounds['update']}{each}, and O(log n) per row that gains its first or loses its last partner",
        "delay": max((one.bounds["delay"] for one in plans), key=len) if least.guarantee == "best-effort" else tree.bounds["delay"],
    }
    notes = [*first_notes(query, relations)]
    if not alone:
        notes.append("a change of a part visits the partners of its row, to count them")
    notes.append(NULLS)
    notes += dict.fromkeys(note for one in plans for note in one.notes if note not in notes)
    relations_read = len(query.aliases) + sum(len(subquery.own) for subquery in subqueries if not subquery.is_shown)
    kind = f"{kind_of(subqueries)}, {relations_read} relations: {tree.cls}"
    return Plan(
        kind, named.algorithm, named.theorem, guarantee, bounds, tuple(notes), "outer", names(query), outer=outer,
    )  # fmt: skip
