"""A plan, and what the modules of the classes share: theorems, notes, shapes of graphs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from livejoin.wire.schema import Column
from service.errors import Problem
from service.planning.binding import Binding, equal_classes
from service.planning.hypergraph import Hypergraph
from service.planning.meets import Relations, meets_of
from service.planning.tree_shape import Edge
from service.query.conditions import ColumnRef, Either, Filter
from service.query.model import AGGREGATE, GROUP, GUARANTEES, Grouping, Output, Query, Residual, Span
from service.query.written import possible, written

THEOREM_1 = "Tao and Yi, Theorem 1"
THEOREM_2 = "Tao and Yi, Theorem 2"
THEOREM_3 = (
    "Tao and Yi, Theorem 3: three or more relations whose rows meet in two or more dimensions admit no structure with polylogarithmic "
    "updates and delay (unless the OMv conjecture fails)"
)
THEOREM_4 = "Tao and Yi, Theorem 4"
LEMMA_9 = (
    "Tao and Yi, Lemma 9: a relation in the middle that meets its neighbours by two different intervals admits no structure with "
    "polylogarithmic updates and delay (unless the OMv conjecture fails)"
)
THEOREM_NATURAL = (
    "Berkholz, Keppeler and Schweikardt, Answering Conjunctive Queries under Updates: a natural join that is not hierarchical, of "
    "different relations, admits no structure with updates and delay below the square root of n (unless the OMv conjecture fails)"
)


PlanShape = Literal[
    "list", "pair", "self_less", "self_not_equal", "clique_less", "clique_not_equal", "heap",  # `views/shapes.py`
    "join_tree", "qdag", "union", "indexed", "view_tree", "tree_tracker", "minesweeper", "intersect", "bow_tie", "elimination", "product",
    "union_all", "outer", "match", "groups", "counted", "products", "visits", "gaps", "coverage", "latest", "as_of",
]  # fmt: skip


class Path(NamedTuple):
    """The columns of an ordered index: an alias's variables in its order (for a view tree, from the root on), its column for each, and
    further columns that must equal the one at that position."""

    variables: tuple[int, ...]
    columns: tuple[str, ...]
    same: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Plan:
    """How a view is kept.

    shape     what keeps its rows (`views/joins/making.py`), and the form in which that has them; says which of the other fields are filled
    order     the aliases as a row finds them; a structure of all aliases finds them together
    residual  conditions between the aliases to be checked on every candidate row
    keys      of each alias, the columns that make the key of its entries
    spans     of each alias, what its entries are made of
    boxes     of a box tree: of each alias, a span a dimension
    edges     of an IJ-heap: the aliases, by position, whose entries have to meet; of a tree-tracker: those of its join tree
    tree      of a join tree: both directions of each edge, one after the other
    binding   of an indexed join
    graph     of a natural join over quadtrees
    tracks    of a view tree, a tree-tracker, Minesweeper and the adaptive joins: of each alias, what its indexes go by
    levels    of Minesweeper: the variables in the order of its search
    parts     of a product, or of UNION ALL
    outer     of a join with parts
    core      of groups: the plan of the join whose rows are grouped; of counted groups it is not kept
    ties      of joins as of a time: the columns of the primary key that tell apart rows at one time; None: they are read
    """

    cls: str
    algorithm: str
    theorem: str | None
    guarantee: str
    bounds: Mapping[str, str]
    notes: tuple[str, ...]
    shape: PlanShape
    order: tuple[str, ...]
    residual: tuple[Residual, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    spans: tuple[Span | None, ...] = ()
    boxes: tuple[tuple[Span, ...], ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    tree: tuple[Edge, ...] = ()
    binding: Binding | None = None
    graph: Hypergraph | None = None
    tracks: tuple[tuple[Path, ...], ...] = ()
    levels: tuple[int, ...] = ()
    parts: tuple[ProductFactor, ...] = ()
    outer: Outer | None = None
    core: Plan | None = None
    ties: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "class": self.cls,
            "algorithm": self.algorithm,
            "theorem": self.theorem,
            "guarantee": self.guarantee,
            "bounds": dict(self.bounds),
            "order": list(self.order),
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class ProductFactor:
    """Of a product or of UNION ALL: a separate join over the aliases at these positions, ascending."""

    positions: tuple[int, ...]
    query: Query
    plan: Plan


class CountedJoin(NamedTuple):
    """The rows of join `join` are counted by those of its alias `position`: the partners of each."""

    join: int
    position: int


@dataclass(frozen=True)
class InnerJoin:
    """One of the inner joins that make a join with parts.

    plan    None while it is not chosen
    places  of its aliases among those of the view, ascending; (): none of its rows is one of the view, it is only counted in
    tests   of each of its aliases, the indices of counts, and whether they are to be above zero or zero: only such rows are given to it, as
            those of a relation of its own
    """

    query: Query
    plan: Plan | None
    positions: tuple[int, ...]
    tests: tuple[tuple[tuple[int, bool], ...], ...]


class Outer(NamedTuple):
    """joins   those without tests first
    counts  all in joins without tests
    """

    joins: tuple[InnerJoin, ...]
    counts: tuple[CountedJoin, ...]


def promises(one: Plan, guarantee: str) -> bool:
    return GUARANTEES.index(one.guarantee) >= GUARANTEES.index(guarantee)


def no_such_promise(query: Query, what: str, made: Plan, reason: str) -> Problem:
    """The requested guarantee is more than the only plan gives. `what`: a description of the view."""
    refused = f'the guarantee "{query.guarantee}" cannot be given to {what}, only "{made.guarantee}"'
    return Problem("infeasible-view", f'{refused}: {reason}; write "guarantee": "{made.guarantee}"', theorem=reason)


def names(query: Query) -> tuple[str, ...]:
    return tuple(alias for alias, _ in query.aliases)


def outputs_on(outputs: Iterable[Output], aliases: Collection[str]) -> tuple[Output, ...]:
    """The outputs that a join of some of the aliases must know: those that read only these aliases, and for a term that reads others too,
    the columns of these that it reads."""
    found = list[Output]()
    for one in outputs:
        mine = [ref for ref in one.refs if ref.alias in aliases]
        if len(mine) == len(one.refs):
            found.append(one)
        elif one.term is not None:
            found += [Output(f"{one.name} of {ref}", "column", ref, ()) for ref in mine if isinstance(ref, ColumnRef)]
    return tuple(found)


def columns_of(query: Query) -> list[dict[int, list[str]]]:
    """For each alias of a natural join its columns for each variable: a class of equal columns."""
    found: list[dict[int, list[str]]] = []
    for alias, _ in query.aliases:
        own: dict[int, list[str]] = {}
        for variable, one in enumerate(equal_classes(query)):
            if mine := [ref.column for ref in one if ref.alias == alias]:
                own[variable] = mine
        found.append(own)
    return found


def path_of(order: tuple[int, ...], columns: Mapping[int, list[str]]) -> Path:
    """The columns of an index with the variables in this order."""
    same = tuple((position, name) for position, variable in enumerate(order) for name in columns[variable][1:])
    return Path(order, tuple(columns[variable][0] for variable in order), same)


def indexes_of(query: Query, tracks: Sequence[Sequence[Path]]) -> str:
    """The indexes of a plan, in words."""
    every = [(alias, path) for alias, paths in zip(names(query), tracks, strict=True) for path in paths]
    return ", ".join(f"{alias} ({', '.join(ColumnRef(alias, name).words for name in path.columns)})" for alias, path in every)


def suffix(query: Query, residual: Sequence[Residual]) -> str:
    """Additions to the name of a class."""
    return (", keyed" if query.equal else "") + (", filtered" if residual else "")


def keys_of_two(query: Query) -> tuple[tuple[str, ...], ...]:
    """The columns in which two aliases must agree."""
    return tuple(tuple(pair[position].column for pair in query.equal) for position in range(2))


def checked_row_by_row(residual: Sequence[Residual], otherwise: str) -> str:
    return f"{', '.join(map(str, residual))} is checked row by row; rows that only {otherwise} are skipped"


def candidates(power: str = "log n") -> dict[str, str]:
    """The bounds if candidates are skipped."""
    delay = f"O({power}) between candidates, no bound between rows"
    return {"space": "O(n)", "update": f"O({power}) and a step per candidate", "delay": delay}


def dimensions(query: Query, relations: Relations) -> int:
    """The largest number of interval conditions of one pair of aliases."""
    pairs = [frozenset((meet.left.alias, meet.right.alias)) for meet in meets_of(query, relations)]
    return max((pairs.count(pair) for pair in pairs), default=0)


def connected(count: int, edges: Sequence[tuple[int, int]]) -> bool:
    """Whether these edges join the aliases 0..count-1 into one."""
    reached = {0}
    for _ in range(count):
        reached |= {position for edge in edges if not reached.isdisjoint(edge) for position in edge}
    return len(reached) == count


def topology(count: int, edges: Sequence[tuple[int, int]]) -> str:
    """The shape of a connected graph, as a word."""
    degrees = sorted(sum(position in edge for edge in edges) for position in range(count))
    if len(edges) == count - 1:
        return "path" if degrees[-1] <= 2 else "star" if degrees[-1] == count - 1 else "tree"
    if degrees[0] == count - 1:
        return "clique"
    return "cycle" if degrees == [2] * count else "graph"


def interchangeable(query: Query) -> bool:
    """Whether swapping two aliases changes nothing: one relation, the same interval, the same key columns, the same filters."""
    filters = [{f.of("") for f in query.filters if f.alias == alias} for alias, _ in query.aliases]
    return (
        len({relation for _, relation in query.aliases}) == 1
        and len(query.overlaps) > 0
        and not query.shifted
        and not query.across
        and all(x.interval == y.interval for x, y in query.overlaps)
        and all(x.column == y.column for x, y in query.equal)
        and all(one == filters[0] for one in filters)
    )


def tells_apart(query: Query, ref: ColumnRef, relations: Relations) -> bool:
    """Whether two different rows that agree in the equality columns always differ in this column."""
    relation = dict(query.aliases)[ref.alias]
    return set(relations[relation].key) <= {ref.column} | {x.column for x, _ in query.equal}


def first_notes(query: Query, relations: Relations) -> tuple[str, ...]:
    """The notes of every plan of the query."""
    lengths, choices = lengths_of(query, relations), _choices(query, relations)
    return _never(query) + _open_ends(query, relations) + _null_ends(query, relations) + lengths + choices


def _choices(query: Query, relations: Relations) -> tuple[str, ...]:
    """How OR was interpreted: NOT is pushed inwards."""
    by_alias = dict(query.aliases)

    def describe(ref: ColumnRef) -> Column:
        return relations[by_alias[ref.alias]].column(ref.column)

    choices = [one for one in query.filters if isinstance(one, Either) and len(possible(one, describe)) > 1]
    return tuple(f"rows of {one.alias} satisfy {written(one, describe)}" for one in choices)


def _null_ends(query: Query, relations: Relations) -> tuple[str, ...]:
    """Comparisons with an end that may be null: in `overlaps` it would be unbounded."""
    by_alias = dict(query.aliases)
    compared = {ref for pair in (*query.less, *query.at_most) for ref in pair}
    dropped = {one.column for one in query.filters if isinstance(one, Filter) and one.op == "not_null"}
    ends = dict[ColumnRef, str]()
    for pair in query.overlaps:
        for ref in pair:
            interval = relations[by_alias[ref.alias]].intervals[ref.interval]
            for column in {interval.start_column, interval.end_column} if interval.start_column != interval.end_column else ():
                if (end := ColumnRef(ref.alias, column)) in dropped:
                    ends[end] = f"overlaps({', '.join(map(str, pair))})"
    for end in sorted(compared & dropped):
        for name, interval in relations[by_alias[end.alias]].intervals.items():
            if end.column in (interval.start_column, interval.end_column) and interval.start_column != interval.end_column:
                ends.setdefault(end, f"overlaps(…, {end.alias}.{name})")
    return tuple(
        f"rows whose {end} is null are excluded, as by SQL's comparisons; {spelling} treats a null end as unbounded"
        for end, spelling in sorted(ends.items())
    )


def lengths_of(query: Query, relations: Relations) -> tuple[str, ...]:
    """The effect of a length that is too long."""
    by_alias, notes = dict(query.aliases), list[str]()
    for position, output in enumerate(query.outputs):
        if output.kind == "duration":
            definition = relations[by_alias[output.intervals[0].alias]]
            ends = definition.column(definition.intervals[output.intervals[0].interval].start_column).type
            if ends in ("int64", "timestamp"):
                notes += [f"{said} not fit into 64 bits" for said in _length_notes(query.groups, position, output)]
    return tuple(notes)


def _length_notes(groups: Grouping | None, position: int, output: Output) -> list[str]:
    """Return what a length that is too long does to each column of the view that depends on it. `position`: of the output."""
    null, passed = "{} is null where a length does", "{} ignores lengths that do"
    if groups is None:
        return [null.format(output.name)]
    names = {(one.kind, one.position): one.name for one in groups.outputs}
    said = [null.format(names.get((GROUP, at), "GROUP BY")) for at, one in enumerate(groups.columns) if one.of == position]
    return said + [passed.format(names.get((AGGREGATE, at), "HAVING")) for at, one in enumerate(groups.aggregates) if one.of == position]


def _never(query: Query) -> tuple[str, ...]:
    return ("a condition is never true (a comparison with NULL, or FALSE)",) if query.never else ()


def _open_ends(query: Query, relations: Relations) -> tuple[str, ...]:
    """An open start against an open end: there, inequalities differ from a shared value of a discrete type."""
    by_alias = dict(query.aliases)
    for pair in query.overlaps:
        x, y = (relations[by_alias[ref.alias]].intervals[ref.interval] for ref in pair)
        if (x.start_open and y.end_open) or (y.start_open and x.end_open):
            return ("an open start meets an open end: the intervals overlap if some value of their type is in both",)
    return ()
