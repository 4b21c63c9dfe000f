"""The possible coordinates for a view's layout, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from service.planning.classes import joined
from service.query.conditions import ColumnRef, IntervalRef
from service.query.model import Query
from streaming.cluster.layout import Coordinate, Layout, Member
from streaming.cluster.sampling import Samples, bounds_of, copies_of, largest_share

_MOST_OF_A_KEY = 0.25  # of the rows, above the part of a cell; below four times that
MUCH_COPIED = 0.1  # of the cost of a row in the fullest cell: that of a copy, which is routed and shuffled beside others


class NotDistributable(ValueError):
    """No layout finds each row of the view in one cell; the text says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not-distributable: {reason}")


class ChosenLayout(NamedTuple):
    """`copies`: per row, on average. `largest`: the approximate number of rows in the fullest cell. `hot`: columns of an alias, and the
    part of its rows that have one value, or one of a few values that meet."""

    layout: Layout
    copies: float
    largest: float
    hot: Sequence[tuple[str, float]]

    def require_few_copies(self, most: float) -> None:
        """Raises NotDistributable."""
        if self.copies > most:
            said = f"each row would go to {self.copies:.1f} of {self.layout.cells} cells on average"
            raise NotDistributable(f"{said}; to allow this, set max_copies={int(self.copies) + 1}")


def candidates(query: Query) -> list[Coordinate]:
    """The coordinates that a layout may consist of; sizes and bounds are chosen later. Raises NotDistributable."""
    if query.computed:
        raise NotDistributable("a condition between aliases compares expressions: compare columns, and store what is computed in one")
    if query.united:
        raise NotDistributable("UNION ALL is not distributed: join each SELECT alone, and combine the results with DataFrame.unionAll")
    if query.branches:
        return [_of_values(query)]
    whole = query.whole
    aliases = [alias for alias, _ in whole.aliases]
    equal = joining = [one for one in joined(whole.equal) if _is_true_of_rows(one, query)]
    if (needed := _needed(query)) is not None:
        if needed.columns is not None:
            equal = [one for one in equal if not set(one).isdisjoint(needed.columns)]
        if len(aliases) == 1:
            equal = [[column] for column in dict.fromkeys(needed.columns or ())]
        shared = [one for one in map(_columns_by_alias, equal) if len(one) == len(aliases)]
        if not shared:
            raise NotDistributable(f"{needed.words}; {_remedy(query, needed, joining)}")
        return [Coordinate("hash", {alias: Member(tuple(one[alias] for one in shared)) for alias in aliases})]
    classes = list(map(_columns_by_alias, equal))
    found = [*_hashes(classes), *_slabs(query, classes)]
    meeting = {alias for one in found for alias in one.members}
    return found + [Coordinate("hash", {alias: Member(())}) for alias in aliases if alias not in meeting]


def _of_values(query: Query) -> Coordinate:
    """For a view with UNION or EXCEPT: equal rows must be in one cell, whatever SELECT they come from, together with everything that
    excludes them."""
    for position in range(len(query.outputs)):
        members, first = dict[str, Member](), 0
        for branch in query.branches:
            column = branch.columns[position]
            classes = [(query.aliases[first : first + branch.aliases], query.equal)]
            first += branch.aliases
            for group in (query.absent[index] for index in branch.absent):
                same = ((column, group.columns[position]),) if group.columns else ()
                classes.append((group.aliases, (*query.equal, *group.equal, *same)))
            for aliases, equal in classes:
                own = _columns_by_alias(next((one for one in joined(equal) if column in one), [column]))
                members |= {alias: Member((own[alias],)) for alias, _ in aliases if alias in own}
        if len(members) == len(query.whole.aliases):
            return Coordinate("hash", members)
    said = "equal rows of UNION and EXCEPT must be in one cell, but no column of the view joins all aliases of each SELECT"
    raise NotDistributable(f"{said}: select such a column in the same position of each, or combine one view per SELECT in Spark")


def _of_parts(query: Query) -> set[str]:
    """The aliases of parts, which a row of the view may be without."""
    parts = [group.aliases for group in query.absent] + [part.own for part in query.subqueries]
    return {alias for aliases in parts for alias, _ in aliases}


def _is_true_of_rows(equal: Sequence[ColumnRef], query: Query) -> bool:
    """Whether the columns of the aliases outside of parts are equal by themselves: what the conditions of a part make equal is equal only
    in rows that have the part."""
    parts = _of_parts(query)
    own = {one for one in equal if one.alias not in parts}
    return len({one.alias for one in own}) < 2 or any(own <= set(one) for one in joined(query.equal))


def _remedy(query: Query, needed: _NeededColumns, joining: Sequence[Sequence[ColumnRef]]) -> str:
    aliases = [alias for alias, _ in query.whole.aliases]
    equality = f"an equality that joins {', '.join(aliases)}"
    if needed.columns is None:
        return f"add {equality}"
    if _is_full(query):
        return "in a FULL JOIN each of them may be null: group the rows of the join in Spark"
    if len(aliases) == 1:
        return f"add a column of {aliases[0]} to the key"
    common = [one for one in joining if {ref.alias for ref in one} == set(aliases)]
    columns = [str(ref) for one in common for ref in one if ref.alias not in _of_parts(query)]
    return f"add {' or '.join(columns)} to the key" if columns else f"add {equality}, and one of its columns to the key"


def _is_full(query: Query) -> bool:
    return any(part.kind == "full" for part in query.subqueries)


class _NeededColumns(NamedTuple):
    """The columns that the hash coordinate must be among; None: any columns that all aliases have in common. `words`: why there may be
    none."""

    columns: tuple[ColumnRef, ...] | None
    words: str


def _needed(query: Query) -> _NeededColumns | None:
    """None for an inner join, for which any layout will do."""
    if query.groups is not None:
        outputs = [query.outputs[column.of] for column in query.groups.columns if column.trunc is None]
        missing = {alias for alias, _ in query.aliases} if _is_full(query) else _of_parts(query)
        found = [output.column for output in outputs if output.kind == "column" and output.column is not None]
        columns = tuple(column for column in found if column.alias not in missing)  # those are null together, in whatever cell
        return _NeededColumns(columns, "the rows of a group must be in one cell, but no column of its key joins all aliases")
    if query.latest is not None:
        by = tuple(value for value in query.latest.by if isinstance(value, ColumnRef))
        return _NeededColumns(by, "the rows of a key must be in one cell, but the view has no key of columns")
    if query.as_of is not None:
        return _NeededColumns(None, "the rows before a point must be in its cell, but the as-of join has no equality")
    if query.subqueries or query.absent or query.stretches is not None:
        words = "all partners of a row must be in its cell (LEFT JOIN, EXISTS, gaps), but no equality joins all aliases"
        return _NeededColumns(None, words)
    return None


def _columns_by_alias(refs: Sequence[ColumnRef]) -> dict[str, str]:
    """One column of each alias of a class."""
    return {ref.alias: ref.column for ref in reversed(refs)}


def _hashes(classes: Sequence[dict[str, str]]) -> Iterator[Coordinate]:
    """Classes with the same aliases form one coordinate."""
    by_aliases: dict[frozenset[str], list[dict[str, str]]] = {}
    for one in classes:
        by_aliases.setdefault(frozenset(one), []).append(one)
    for own in by_aliases.values():
        yield Coordinate("hash", {alias: Member(tuple(one[alias] for one in own)) for alias in own[0]})


def _slabs(query: Query, classes: Sequence[dict[str, str]]) -> Iterator[Coordinate]:
    """For a clique of overlaps, otherwise for each overlap."""
    for component in joined(query.overlaps):
        edges = {frozenset(pair) for pair in query.overlaps if pair[0] in component}
        is_clique = len(edges) == len(component) * (len(component) - 1) // 2 and len({ref.alias for ref in component}) == len(component)
        groups: list[Sequence[IntervalRef]] = [component] if is_clique else [pair for pair in query.overlaps if pair[0] in component]
        for group in groups:
            keys = [one for one in classes if all(ref.alias in one for ref in group)]
            yield Coordinate("slabs", {ref.alias: Member(tuple(one[ref.alias] for one in keys), ref.interval) for ref in group})


def choose(aliases: tuple[tuple[str, str], ...], possible: Sequence[Coordinate], samples: Samples, cells: int) -> ChosenLayout:
    """The sizes, powers of two with the product `cells`, that leave the fewest rows in the fullest cell. Cost: routing the samples for each
    size of each coordinate."""
    exponents = cells.bit_length() - 1
    sized = [[_sized(index, one, samples, 1 << power) for power in range(exponents + 1)] for index, one in enumerate(possible)]
    shares = [[_shares(index, one, samples) for one in sizes] for index, sizes in enumerate(sized)]

    def cost(powers: Sequence[int]) -> tuple[float, float, float]:
        largest = total = 0.0
        for alias, _ in aliases:
            share, copies = 1.0, 1.0
            for index, power in enumerate(powers):
                own = shares[index][power].get(alias)
                share *= 1.0 if own is None else own[0]
                copies *= (1 << power) if own is None else own[1]
            largest += share * samples[alias].rows
            total += copies * samples[alias].rows
        return largest + MUCH_COPIED * total / cells, total, largest

    best = min((one for one in _compositions(exponents, len(possible)) if _is_sound(one, possible)), key=lambda powers: cost(powers)[0])
    _, total, largest = cost(best)
    layout = Layout(aliases, tuple(sized[index][power] for index, power in enumerate(best) if power))
    hot = [
        (f"{alias}.{'+'.join(one.members[alias].columns)}", share)
        for one, powers, power in zip(possible, shares, best, strict=True)
        if one.kind == "hash"
        for alias, (share, _) in powers[power].items()
        if one.members[alias].columns and share > 2.0**-power + min(_MOST_OF_A_KEY, 3 * 2.0**-power)
    ]
    return ChosenLayout(layout, total / max(1, sum(samples[alias].rows for alias, _ in aliases)), largest, hot)


def _is_sound(powers: Sequence[int], possible: Sequence[Coordinate]) -> bool:
    """Whether no column is hashed in two coordinates: the second would not divide anything."""
    chosen = [one for one, power in zip(possible, powers, strict=True) if power]
    used = [(alias, column) for one in chosen for alias, member in one.members.items() for column in member.columns]
    return len(used) == len(set(used))


def _sized(index: int, coordinate: Coordinate, samples: Samples, size: int) -> Coordinate:
    bounds = bounds_of(index, coordinate, samples, size) if coordinate.kind == "slabs" and size > 1 else ()
    return coordinate._replace(size=len(bounds) + 1 if coordinate.kind == "slabs" else size, bounds=bounds)


def _shares(index: int, coordinate: Coordinate, samples: Samples) -> dict[str, tuple[float, float]]:
    """By member: the part of its rows with the most frequent value, and how many values a row has."""
    found = {}
    for alias in coordinate.members:
        sample = samples[alias]
        if coordinate.kind == "hash":
            found[alias] = largest_share(coordinate, sample, index, alias), 1.0
        else:
            alone = Layout(((alias, ""),), (coordinate,))
            copies = copies_of(alone, alone.roles[0], sample, [sample.given[index]])
            found[alias] = copies / coordinate.size, copies
    return found


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as an ordered sum of so many non-negative integers."""
    for cuts in combinations(range(total + parts - 1), parts - 1):
        edges = (-1, *cuts, total + parts - 1)
        yield tuple(right - left - 1 for left, right in zip(edges, edges[1:], strict=False))
