"""EXISTS, NOT EXISTS, LEFT and FULL JOIN as subqueries of a query: which alias each is attached to, and the effect of WHERE on them.

A condition in WHERE that rejects null turns an optional subquery, and the subquery that it is attached to, into inner joins; IS NULL on a
column of it that is never null turns it into NOT EXISTS. NOT EXISTS with equalities only stays a group (`AntiJoin`), which quadtrees
support too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from service.errors import unsupported
from service.query.assembly import Draft, Options, SubqueryDraft, assemble, check_outputs, column_output, unused
from service.query.conditions import ColumnRef, Condition, Either, Filter, Holds, IntervalRef
from service.query.filters import on_nulls, ordered
from service.query.latest import settled
from service.query.model import MAX_ALIASES, PAIRS, Comparison, Query, Subquery, SubqueryKind
from service.query.scope import Scope
from service.query.stretches import finish, of_groups, take
from service.query.written import written

WORDS: Mapping[SubqueryKind, str] = {
    "exists": "EXISTS", "absent": "NOT EXISTS", "optional": "LEFT JOIN", "full": "FULL JOIN", "gaps": "gaps(…)", "coverage": "coverage(…)",
}  # fmt: skip
_PLAIN = Options("auto", "best-effort", None)
_EACH_CASE = "define a view for each case: one with JOIN instead, for the rows that have {0}, and one with NOT EXISTS for those without"


def words_of(subquery: Subquery) -> str:
    return WORDS[subquery.kind]


def assemble_view(draft: Draft, options: Options) -> Query:
    """Like `assemble`, with subqueries. Raises as it does, and `unsupported-query` for subqueries that are not available."""
    draft = settled(draft)
    full = draft.scope
    draft, stretches = take(draft)
    across = [one for each in (draft, *draft.absent, *(part.draft for part in draft.subqueries)) for one in each.across]
    if across and (draft.subqueries or draft.absent or draft.as_of is not None or stretches is not None):
        what = f"the condition {across[0]} over several aliases, with EXISTS, NOT EXISTS, gaps, coverage, an outer or an ASOF JOIN"
        raise unsupported(what, "such a condition is evaluated on the rows of an inner join: define a view for each")
    if not draft.subqueries and not any(map(_compares_otherwise, draft.absent)):
        if draft.groups is not None:
            draft.groups.identify(draft.scope.aliases)
        made = assemble(draft, options)
        return made if draft.groups is None or draft.groups.covered is None else of_groups(made, draft.groups)
    if len(full.aliases) > MAX_ALIASES:
        raise unsupported(f"a join of {len(full.aliases)} relations", f"a view joins at most {MAX_ALIASES}")
    draft = _settled(draft)
    shown = [alias for subquery in draft.subqueries if subquery.kind in ("optional", "full") for alias in subquery.draft.scope.aliases]
    rows = [alias for alias in full.aliases if alias in shown or alias in draft.scope.aliases]
    if draft.groups is not None:
        draft.groups.identify(rows)
    groups = [group for group in draft.absent if not _compares_otherwise(group)]
    core = replace(draft, scope=full.of([alias for alias in rows if alias not in shown]), absent=groups, outputs=[])
    query: Query | None = None
    with draft.judging():
        with draft.noting():
            query = assemble(core, options, shown)
        taken = {*rows, *(alias for group in (query.absent if query else ()) for alias, _ in group.aliases)}
        subqueries = _subqueries(draft, list(core.scope.aliases), taken)
    assert query is not None
    shown_overlaps = [pair for subquery in subqueries if subquery.is_shown for pair in subquery.join.overlaps]
    with draft.judging():
        check_outputs(draft, full, [*query.overlaps, *shown_overlaps])
    drafts = (draft, *draft.absent, *(subquery.draft for subquery in draft.subqueries))
    named = {name for one in drafts for name in one.scope.aliases.values()}
    made = replace(
        query, aliases=tuple((alias, full.aliases[alias]) for alias in rows), outputs=tuple(draft.reads), subqueries=subqueries,
        named=tuple(sorted({*query.named, *named, *full.aliases.values()})), computed=full.computed,
        outer_filters=ordered(draft.outer_filters),
    )  # fmt: skip
    if draft.groups is not None and draft.groups.covered is not None:
        return of_groups(made, draft.groups)
    return made if stretches is None else finish(made, stretches, full)


def _compares_otherwise(group: Draft) -> bool:
    """Return whether NOT EXISTS has conditions other than equalities."""
    return bool(group.overlaps or group.inequalities or group.not_equal or group.cross)


def oriented(query: Query) -> Query:
    """Return the query with symmetric pairs in the order of its aliases, as in every query."""
    order = [alias for alias, _ in query.aliases]

    def turned(pairs: tuple[tuple[ColumnRef, ColumnRef], ...] | tuple[tuple[IntervalRef, IntervalRef], ...]) -> tuple[object, ...]:
        return tuple(sorted((x, y) if order.index(x.alias) < order.index(y.alias) else (y, x) for x, y in pairs))

    return replace(query, equal=turned(query.equal), overlaps=turned(query.overlaps), not_equal=turned(query.not_equal))  # type: ignore[arg-type]


# --- the effect of WHERE


def _settled(draft: Draft) -> Draft:
    """Return the draft with the kinds of subqueries that result from the conditions outside of them; its scope has the aliases in rows."""
    draft = replace(
        draft, subqueries=list(draft.subqueries), equal=list(draft.equal), overlaps=list(draft.overlaps),
        inequalities=list(draft.inequalities), not_equal=list(draft.not_equal), filters=list(draft.filters),
        outer_filters=list(draft.outer_filters), cross=list(draft.cross),
    )  # fmt: skip
    for at, subquery in enumerate(draft.subqueries):
        if subquery.kind == "full":
            draft.subqueries[at] = _settled_full(draft, subquery)
    while (rejected := _rejected(draft)) is not None:
        _take_in(draft, draft.subqueries.pop(rejected).draft)
    optional = _optional(draft)
    for own, pairs in [((), _pairs(draft)), *((one.scope.aliases, _pairs(one)) for one in _parts(draft))]:
        _require_null_rejected([ref for pair in pairs for ref in pair if ref.alias in optional and ref.alias not in own], draft.scope)
    _make_absent(draft)
    alike = [subquery for subquery in draft.subqueries if subquery.kind == "absent" and not _compares_otherwise(subquery.draft)]
    draft.absent = [*draft.absent, *(subquery.draft for subquery in alike)]
    draft.subqueries = [subquery for subquery in draft.subqueries if subquery not in alike]
    _root_products(draft)
    full = any(subquery.kind == "full" for subquery in draft.subqueries)
    judged = [one for one in draft.outer_filters if one.alias in draft.scope.aliases]
    draft.outer_filters = [one for one in judged if full or one.alias in _optional(draft)]
    draft.filters += [one for one in judged if one not in draft.outer_filters]
    return draft


def _parts(draft: Draft) -> list[Draft]:
    return [*draft.absent, *(subquery.draft for subquery in draft.subqueries)]


def _require_null_rejected(refs: Iterable[ColumnRef | IntervalRef], scope: Scope) -> None:
    """Raise Problem `unsupported-query` for a computed column that is not null where its alias is missing."""
    for ref in refs:
        if not _is_null_if_missing(ref, scope):
            what = f"the comparison of {ref} after an outer join, which rows without {ref.alias} may meet,"
            raise unsupported(what, _EACH_CASE.format(ref.alias))


def _is_null_if_missing(ref: ColumnRef | IntervalRef, scope: Scope) -> bool:
    if not isinstance(ref, ColumnRef) or not ref.is_computed:
        return True
    known = on_nulls(scope.term_of(ref))
    return known is not None and known.value is None


def _pairs(draft: Draft) -> list[tuple[ColumnRef, ColumnRef] | tuple[IntervalRef, IntervalRef]]:
    """Return the pairs that the draft's conditions compare."""
    return [
        *draft.equal, *draft.overlaps, *draft.not_equal, *((one.low, one.high) for one in draft.inequalities),
    ]  # fmt: skip


def _optional(draft: Draft) -> dict[str, int]:
    """Return the aliases that a row may lack, with the index of their subquery."""
    shown = enumerate(draft.subqueries)
    return {alias: at for at, subquery in shown if subquery.kind == "optional" for alias in subquery.draft.scope.aliases}


def _rejected(draft: Draft) -> int | None:
    """Return the index of an optional subquery whose absence some condition outside of it rejects."""
    optional = _optional(draft)
    for one in draft.inequalities:
        for ref, unbounded in ((one.low, one.low_unbounded), (one.high, one.high_unbounded)):
            if unbounded and ref.alias in optional:
                what = f"{one} with nulls as unbounded in WHERE, on an outer join"
                raise unsupported(what, _EACH_CASE.format(ref.alias))
    named = [ref.alias for pair in _pairs(draft) for ref in pair if _is_null_if_missing(ref, draft.scope)]
    named += [one.alias for one in draft.filters if one.rejects_null]
    for part in (subquery.draft for subquery in draft.subqueries if subquery.kind == "exists"):
        refs = [ref for pair in _pairs(part) for ref in pair if ref.alias not in part.scope.aliases]  # its own hide those outside
        named += [ref.alias for ref in refs if _is_null_if_missing(ref, draft.scope)]
        named += [alias for pair in part.cross for alias in pair if alias not in part.scope.aliases]
    return next((optional[alias] for alias in named if alias in optional), None)


def _take_in(draft: Draft, subquery: Draft) -> None:
    """Turn an optional subquery into an inner join."""
    draft.equal += subquery.equal
    draft.overlaps += subquery.overlaps
    draft.inequalities += subquery.inequalities
    draft.not_equal += subquery.not_equal
    draft.cross += subquery.cross
    draft.filters += subquery.filters
    draft.never = draft.never or subquery.never


def _make_absent(draft: Draft) -> None:
    """Turn subqueries with IS NULL on a column that is never null into NOT EXISTS."""
    _set_apart(draft, _optional(draft))
    optional, missing = _optional(draft), dict[int, Filter]()
    for one in [one for one in draft.filters if isinstance(one, Filter) and one.alias in optional]:
        missing[optional[one.column.alias]] = one
        draft.filters.remove(one)
    for at, one in missing.items():
        deleted = draft.subqueries[at].draft.scope.aliases
        for output in draft.reads:
            for ref in output.refs:
                if ref.alias in deleted:
                    what = f"the column {output.name} of a view of rows without {ref.alias}"
                    raise unsupported(what, f"{ref} is null in each of them: leave it out")
        for other in draft.subqueries:
            if other.kind != "absent" and deleted.keys() & set(_outside(other.draft)):
                raise unsupported(f"a {WORDS[other.kind]} on {one.column.alias}, which is null,", "leave it out")
        draft.subqueries[at] = SubqueryDraft("absent", draft.subqueries[at].draft)
    deleted_now = {alias for at in missing for alias in draft.subqueries[at].draft.scope.aliases}
    draft.subqueries = [one for one in draft.subqueries if one.kind != "absent" or not deleted_now & set(_outside(one.draft))]
    if deleted_now:
        draft.scope = draft.scope.of([alias for alias in draft.scope.aliases if alias not in deleted_now])


def _root_products(draft: Draft) -> None:
    """Replace, in products, an alias that a row may lack by the alias that its subquery is attached to."""
    for at, pair in enumerate(draft.cross):
        for _ in draft.subqueries:
            optional = _optional(draft)
            pair = tuple(_attached(draft.subqueries[optional[one]]) if one in optional else one for one in pair)  # type: ignore[assignment]
        draft.cross[at] = pair


def _settled_full(draft: Draft, subquery: SubqueryDraft) -> SubqueryDraft:
    """Return FULL JOIN of two relations, or the LEFT JOIN to which conditions on one side reduce it."""
    own, others = list(subquery.draft.scope.aliases), _outside(subquery.draft)
    if len(draft.scope.aliases) != 2 or len(draft.subqueries) > 1 or draft.absent or len(own) != 1 or len(others) != 1:
        raise unsupported("FULL JOIN of more than two relations", "define a view with LEFT JOIN, and one with NOT EXISTS for the rest")
    (b,), (a,) = own, others
    _set_apart(draft, (a, b))
    named = {one.alias for one in draft.filters if one.rejects_null}
    tests = [one for one in draft.filters if isinstance(one, Filter)]
    compared = [ref for pair in _pairs(draft) for ref in pair]
    _require_null_rejected(compared, draft.scope)
    named |= {ref.alias for ref in compared}
    without = {one.alias for one in tests if one.op == "is_null"} - named
    if not named and not without:
        return subquery
    if a in named or b in without:
        return SubqueryDraft("optional", subquery.draft)  # b stays optional unless it is rejected too
    return SubqueryDraft("optional", replace(subquery.draft, scope=draft.scope.of([a])))


def _set_apart(draft: Draft, optional: Collection[str]) -> None:
    """Set apart the conditions that rows without their alias meet, and perhaps those with it. Problem `unsupported-query` for one of which
    it is not known whether they do."""
    for one in [one for one in draft.filters if one.alias in optional and not one.rejects_null]:
        if isinstance(one, Filter) and not draft.scope.describe(one.column).nullable:
            continue
        if not _is_met_by_nulls(one):
            what = f"the condition {written(one, draft.scope.describe)} after an outer join, which rows without {one.alias} may meet,"
            raise unsupported(what, _EACH_CASE.format(one.alias))
        draft.filters.remove(one)
        draft.outer_filters.append(one)


def _is_met_by_nulls(one: Condition) -> bool:
    """Return whether a row of nulls surely meets a condition."""
    if isinstance(one, Either):
        return any(all(map(_is_met_by_nulls, case)) for case in one.cases)
    if isinstance(one, Holds):
        known = on_nulls(one.term)
        return known is not None and known.value is True
    return one.op == "is_null"


# --- the subqueries


def _outside(subquery: Draft) -> list[str]:
    """Return the aliases outside of the subquery that its conditions name."""
    named = dict.fromkeys([*(ref.alias for pair in _pairs(subquery) for ref in pair), *chain(*subquery.cross)])
    return [alias for alias in named if alias not in subquery.scope.aliases]


def _subqueries(draft: Draft, known: list[str], taken: set[str]) -> tuple[Subquery, ...]:
    """Return the subqueries of LEFT and FULL JOIN in their order, then the others in an order that does not depend on the text."""
    shown, others = list[Subquery](), set[Subquery]()
    absent = [SubqueryDraft("absent", group) for group in draft.absent if _compares_otherwise(group)]
    for subquery in [*(one for one in draft.subqueries if one.kind in ("optional", "full")), *draft.subqueries, *absent]:
        is_shown = subquery.kind in ("optional", "full")
        if is_shown and any(set(subquery.draft.scope.aliases) <= set(dict(one.own)) for one in shown):
            continue
        if not is_shown and subquery.kind == "absent" and subquery.draft.never:
            continue
        made: Subquery | None = None
        with subquery.draft.noting(next(iter(subquery.draft.scope.aliases))):
            made = Subquery(subquery.kind, _join(subquery, known))
        if is_shown:
            known += subquery.draft.scope.aliases
        if made is not None:
            shown.append(made) if is_shown else others.add(made)
    named = list[Subquery]()
    for made in sorted(others, key=repr):
        names = {alias: unused(alias, taken) for alias, _ in made.own}
        named.append(replace(made, join=_renamed(made.join, names)))
    return (*shown, *named)


def _attached(subquery: SubqueryDraft) -> str:
    """Return the alias outside of the subquery that it is compared with. Problem `unsupported-query` unless there is exactly one."""
    outside = _outside(subquery.draft)
    if len(outside) != 1:
        words, emitted = WORDS[subquery.kind], ", ".join(subquery.draft.scope.aliases)
        what = "nothing outside of it" if not outside else f"{' and '.join(outside)}"
        raise unsupported(
            f"{words} of {emitted} that is compared with {what}",
            "it must be compared with exactly one alias: define a view for each",
        )
    return outside[0]


def _join(subquery: SubqueryDraft, known: Sequence[str]) -> Query:
    """Return the inner join of the subquery with the alias that it is attached to."""
    draft, words = subquery.draft, WORDS[subquery.kind]
    own = list(draft.scope.aliases)
    emitted = ", ".join(own)
    for one in draft.filters:
        if one.alias not in own:
            where = "belongs in WHERE" if subquery.kind == "exists" else f"in WHERE also removes rows that {words} keeps"
            instead = f"write a filter on {emitted} there; one on {one.alias} alone {where}"
            raise unsupported(f"the filter on {one.columns[0]} in {words}", instead)
    on = _attached(subquery)
    if on not in known:
        raise unsupported(f"{words} of {emitted} that is compared with {on}", f"it can be compared with {', '.join(known)}")
    if _apart(draft, own):
        raise unsupported(f"a condition of {words} between aliases outside of it", "write it in WHERE")
    for pair in draft.cross:
        if not set(pair) <= {*own, on}:
            raise unsupported(f"a product (CROSS JOIN) with {pair[0]} in {words}", f"name aliases of {words} only")
    scope = draft.scope.of([on, *own])
    output = column_output(ColumnRef(on, scope.definition(on).columns[0].name))
    joined = replace(draft, scope=scope, absent=[], subqueries=[], outputs=[output])
    return replace(assemble(joined, _PLAIN), outputs=(), named=(), computed=())


def _apart(draft: Draft, own: Sequence[str]) -> bool:
    """Return whether a condition names no alias of the subquery."""
    return any(x.alias not in own and y.alias not in own for x, y in _pairs(draft))


def _renamed(join: Query, names: Mapping[str, str]) -> Query:
    """Return the join with other aliases."""

    def named(value: Any) -> Any:
        if isinstance(value, ColumnRef | IntervalRef):
            return value._replace(alias=names.get(value.alias, value.alias))
        if isinstance(value, Comparison):
            return value._replace(left=named(value.left), right=named(value.right))
        if isinstance(value, Filter | Either | Holds):
            return value.of(names.get(value.alias, value.alias))
        return tuple(map(named, value)) if isinstance(value, tuple) else names.get(value, value)

    renamed = {field: named(getattr(join, field)) for field in (*PAIRS, "cross", "filters")}
    aliases = tuple((names.get(alias, alias), relation) for alias, relation in join.aliases)
    return replace(join, aliases=aliases, **renamed)
