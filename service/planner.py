"""From a query to its class, the algorithm that keeps it, and what is promised.

Classes, the best first
    list            one relation, filtered: a tree of one set
    pair            two sets and one overlap, distance or comparison (the same relation twice too: both orders and the diagonal)
    self_less       the aliases are interchangeable and `a.c < b.c`: one set, each unordered pair once, oriented by c
    self_not_equal  the aliases are interchangeable and `a.c <> b.c` tells any two rows of one key apart: one set, both orders
    boxes           two sets whose rows meet in two to eight dimensions: overlaps, distances, comparisons (shapes as of a pair)
    heap            two to six sets, each with one interval in all its overlaps, any connected topology, one common key or none
    join_tree       two and more that hang together as a tree, each edge by equalities and one condition of intervals at most (`join_tree`)
    indexed         everything else: alias after alias, by indexes (`binding`)

Aliases are interchangeable when swapping them changes nothing: one relation, the same interval, the
same key columns, the same filters. Comparisons outside these classes are checked row by row (the
plan's `residual`), which voids the promise on the delay.

Source: Tao and Yi, Intersection Joins under Updates, Theorems 1 (two sets, one dimension), 2 (boxes), 3 (what cannot be promised) and
4 (more sets).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from service.binding import Binding, bind, equal_classes
from service.errors import Problem
from service.join_tree import Edge, join_tree
from service.meets import Relations, meets_of, residual_of
from service.terms import ColumnRef, Comparison, Meet, Query, Span

GUARANTEES = ("best-effort", "delay", "strict")  # each implies those before it
THEOREM = "Tao and Yi, Theorem 1"
THEOREM_3 = (
    "Tao and Yi, Theorem 3: three or more relations whose rows meet in two or more dimensions admit no structure with polylogarithmic "
    "updates and delay (unless the OMv conjecture fails)"
)
THEOREM_2 = "Tao and Yi, Theorem 2"
THEOREM_4 = "Tao and Yi, Theorem 4"
MOST_DIMENSIONS = 8  # of a box tree
YANNAKAKIS = "Yannakakis' algorithm, kept live (Idris, Ugarte and Vansummeren, The Dynamic Yannakakis Algorithm)"
BUILT = ("interval-tree", "ij-heap", "box-tree", "join-tree", "nested-loop")
MOST_SETS = 6  # of an IJ-heap

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
    """How a view is kept.

    residual  comparisons between the aliases to be checked on every candidate row
    keys      of each alias, the columns that make the key of its entries
    spans     of each alias, what its entries are made of
    boxes     of a box tree: of each alias, a span a dimension
    edges     of an IJ-heap: the aliases, by number, whose entries have to meet
    tree      of a join tree: both directions of each edge, one after the other
    binding   of an indexed join
    """

    cls: str
    algorithm: str
    theorem: str | None
    guarantee: str
    bounds: Mapping[str, str]
    notes: tuple[str, ...]
    shape: str
    residual: tuple[Comparison, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()
    spans: tuple[Span | None, ...] = ()
    boxes: tuple[tuple[Span, ...], ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    tree: tuple[Edge, ...] = ()
    binding: Binding | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "class": self.cls,
            "algorithm": self.algorithm,
            "theorem": self.theorem,
            "guarantee": self.guarantee,
            "bounds": dict(self.bounds),
            "notes": list(self.notes),
        }


def plan(query: Query, relations: Relations) -> Plan:
    """The best plan. Raises `infeasible-view` where the query's algorithm or guarantee cannot be had, `not-yet` where only not yet."""
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


def alternatives(query: Query, relations: Relations) -> list[Plan]:
    """The plans of the other algorithms that are correct for the query and built."""
    best = plan(query, relations)
    return [one for one in _plans(query, relations) if one.algorithm != best.algorithm]


def _plans(query: Query, relations: Relations) -> list[Plan]:
    """All of them, the best first."""
    if len(query.aliases) == 1:
        return [_list_plan(query)]
    makers = (_pair_plan, _heap_plan, _box_plan, _join_tree_plan, _indexed_plan)
    found = [one for make in makers if (one := make(query, relations)) is not None]
    return sorted(found, key=lambda one: GUARANTEES.index(one.guarantee), reverse=True)


def _no_such_plan(query: Query, relations: Relations, found: list[Plan]) -> Problem:
    algorithm, better = query.algorithm, " or ".join(f'"{one.algorithm}"' for one in found)
    kind = "s" if len(query.aliases) == 1 else "o" if meets_of(query, relations) else "n"
    instead = f'write "algorithm": {better} or "auto"'
    if kind in ALGORITHMS[algorithm] and algorithm not in BUILT:
        return Problem("not-yet", f"the algorithm {algorithm} comes with a later version; {instead}")
    keeps = "natural joins" if "n" in ALGORITHMS[algorithm] else "overlaps"
    if algorithm == "interval-tree":
        keeps = "joins of two relations by one overlap"
    if algorithm == "ij-heap":
        keeps = f"joins of two to {MOST_SETS} relations, each by one interval, with a key common to all or none"
    if algorithm == "box-tree":
        keeps = "joins of two relations by two conditions of intervals and more"
    if algorithm == "join-tree":
        keeps = "joins in the shape of a tree, each edge by equalities and at most one condition of intervals"
    if algorithm == "nested-loop":
        keeps = "joins of two relations and more"
    has = {"s": "selects from one relation", "n": "joins by equality alone", "o": f"joins {len(query.aliases)} relations by "}[kind]
    if kind == "o":
        has += ", ".join(meet.words for meet in meets_of(query, relations))
    reason = f"{algorithm} keeps {keeps}, and this view {has}"
    return Problem("infeasible-view", f"{reason}; {instead}", theorem=reason)


def _in_the_way(query: Query, relations: Relations) -> str:
    """What forbids the promise that was asked for."""
    if len(query.aliases) > 2 and _dimensions(query, relations) > 1:
        return THEOREM_3
    leaves_out = _condition(query)
    if len(query.aliases) == 2 and leaves_out:
        return f"{THEOREM}: two sets and one overlap; the rows that {leaves_out} leaves out are met on the way"
    both = f"{THEOREM}: two sets and one overlap, and {THEOREM_4}: one interval an alias"
    return f"{both}; a join tree promises the delay, an indexed join nothing"


def _list_plan(query: Query) -> Plan:
    bounds = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    return Plan("selection, 1 relation", "interval-tree", None, "strict", bounds, _never(query), "list", keys=((),), spans=(None,))


def _pair_plan(query: Query, relations: Relations) -> Plan | None:
    """Of two aliases with one overlap or distance, or else with one comparison as two rays."""
    meets = meets_of(query, relations)
    told = len(query.overlaps) + len(query.within)
    if len(query.aliases) != 2 or told > 1 or not meets:
        return None
    meet = meets[0]
    comparisons = [one for one in query.comparisons if str(one) != meet.words]
    bounds: Mapping[str, str] = {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    notes = _never(query) + _open_ends(query, relations)
    kind, shape, guarantee = "interval join, 1-D, 2 relations", "pair", "strict"
    if len(comparisons) == 1 and _interchangeable(query) and comparisons[0].left.column == comparisons[0].right.column:
        one = comparisons[0]
        exact = _tells_apart(query, one.left, relations)
        if one.op == "<>" and exact:
            kind, shape = "interval self-join, 1-D, both orders", "self_not_equal"
        if one.op == "<":
            kind, shape = "interval self-join, 1-D, each pair once", "self_less"
            if not exact:
                guarantee, bounds = "best-effort", _candidates()
                note = f"pairs that are equal in {one.left.column} are passed over"
                notes += (f"{note}: {one.left.column} is not the key, nor do it and the equality columns make one",)
    residual = tuple(comparisons) if shape == "pair" else ()
    if residual:
        guarantee, bounds = "best-effort", _candidates()
        notes += (f"{', '.join(map(str, residual))} is checked row by row: rows that {_without(meet)} are passed over",)
    keyed, filtered = ", keyed" if query.equal else "", ", filtered" if residual else ""
    return Plan(
        f"{kind}{keyed}{filtered}", "interval-tree", THEOREM, guarantee, bounds, notes, shape, residual,
        keys=tuple(tuple(pair[place].column for pair in query.equal) for place in range(2)),
        spans=tuple(meet.of(alias) for alias, _ in query.aliases),
    )  # fmt: skip


def _heap_plan(query: Query, relations: Relations) -> Plan | None:
    """Of two to six aliases that hang together by overlaps of one interval each, with one common key or none."""
    meets = meets_of(query, relations)[: len(query.overlaps) + len(query.within)]  # comparisons are checked row by row
    aliases = [alias for alias, _ in query.aliases]
    spans: dict[str, Span] = {}
    for meet in meets:
        for span in (meet.left, meet.right):
            if spans.setdefault(span.alias, span) != span:
                return None
    classes = equal_classes(query)
    common = all([ref.alias for ref in one] == aliases for one in classes)
    edges = tuple(sorted({(aliases.index(meet.left.alias), aliases.index(meet.right.alias)) for meet in meets}))
    if not (common and 2 <= len(aliases) <= MOST_SETS and connected(len(aliases), edges)):
        return None
    residual = query.comparisons
    guarantee, notes = "strict", _never(query) + _open_ends(query, relations)
    bounds: Mapping[str, str] = {"space": "O(n)", "update": "O(polylog n)", "delay": "O(polylog n)"}
    if residual:
        guarantee = "best-effort"
        bounds = {key: value.replace("log n", "polylog n") for key, value in _candidates().items()}
        notes += (f"{', '.join(map(str, residual))} is checked row by row: rows that overlap without it are passed over",)
    if len(aliases) > 2 and _dimensions(query, relations) > 1:
        notes += (THEOREM_3,)
    keyed, filtered = ", keyed" if query.equal else "", ", filtered" if residual else ""
    return Plan(
        f"interval join, 1-D, {len(aliases)} relations, {_topology(len(aliases), edges)}{keyed}{filtered}", "ij-heap", THEOREM_4,
        guarantee, bounds, notes, "heap", residual,
        keys=tuple(tuple(one[place].column for one in classes) for place in range(len(aliases))),
        spans=tuple(spans[alias] for alias in aliases),
        edges=edges,
    )  # fmt: skip


def _join_tree_plan(query: Query, relations: Relations) -> Plan | None:
    """Of two to eight aliases that hang together as a tree, each edge by what one index answers."""
    tree = join_tree(query, relations)
    if tree is None:
        return None
    count, dimensions = len(query.aliases), _dimensions(query, relations)
    shape = "" if count == 2 else f", {_topology(count, [(edge.near, edge.far) for edge in tree[::2]])}"
    keyed = ", keyed" if query.equal else ""
    cls = f"interval join, {dimensions}-D, {count} relations{shape}{keyed}" if dimensions else f"natural join, {count} relations, acyclic"
    notes = _never(query) + _open_ends(query, relations)
    guarantee, of = "strict", "row of the delta"  # of two aliases: a changed row's partners are its delta
    if count > 2:
        guarantee, of = "delay", "partner of the changed row"
        notes += ("a change looks at its row's partners, and at those of the rows that it brings to life or kills",)
    if query.overlaps:
        notes += ("a window is checked alias by alias, on the way",)
    bounds = {"space": "O(n)", "update": f"O(log n) a {of}", "delay": "O(log n)"}
    return Plan(cls, "join-tree", None if dimensions else YANNAKAKIS, guarantee, bounds, notes, "join_tree", tree=tree)


def _box_plan(query: Query, relations: Relations) -> Plan | None:
    """Of two aliases whose rows meet in two dimensions and more."""
    if len(query.aliases) != 2:
        return None
    told, comparisons = len(query.overlaps) + len(query.within), query.comparisons
    one = comparisons[0] if len(comparisons) == 1 else None
    same = one is not None and told > 1 and one.left.column == one.right.column and _interchangeable(query)
    if same and one is not None and one.op in ("<", "<>") and _tells_apart(query, one.left, relations):
        meets = meets_of(query, relations)[:told]
        residual: tuple[Comparison, ...] = ()
        shape = "self_less" if one.op == "<" else "self_not_equal"
        kind = "box self-join, each pair once" if one.op == "<" else "box self-join, both orders"
    else:
        meets, residual, shape, kind = meets_of(query, relations), residual_of(query, relations), "pair", "box join"
    if not 2 <= len(meets) <= MOST_DIMENSIONS:
        return None
    power, less = f"log^{len(meets)} n", "log n" if len(meets) == 2 else f"log^{len(meets) - 1} n"
    guarantee, notes = "strict", _never(query) + _open_ends(query, relations)
    bounds: Mapping[str, str] = {"space": f"O(n {less})", "update": f"O({power}), amortised", "delay": f"O({power})"}
    if residual:
        guarantee = "best-effort"
        bounds = {key: value.replace("log n", power) for key, value in _candidates().items()} | {"space": bounds["space"]}
        notes += (f"{', '.join(map(str, residual))} is checked row by row: rows that meet without it are passed over",)
    keyed, filtered = ", keyed" if query.equal else "", ", filtered" if residual else ""
    return Plan(
        f"{kind}, {len(meets)}-D, 2 relations{keyed}{filtered}", "box-tree", THEOREM_2, guarantee, bounds, notes, shape, residual,
        keys=tuple(tuple(pair[place].column for pair in query.equal) for place in range(2)),
        boxes=tuple(tuple(meet.of(alias) for meet in meets) for alias, _ in query.aliases),
    )  # fmt: skip


def connected(count: int, edges: Sequence[tuple[int, int]]) -> bool:
    """Whether these edges join the aliases 0..count-1 into one."""
    reached = {0}
    for _ in range(count):
        reached |= {place for edge in edges if not reached.isdisjoint(edge) for place in edge}
    return len(reached) == count


def _topology(count: int, edges: Sequence[tuple[int, int]]) -> str:
    """The shape of a connected graph, in a word."""
    degrees = sorted(sum(place in edge for edge in edges) for place in range(count))
    if len(edges) == count - 1:
        return "path" if degrees[-1] <= 2 else "star" if degrees[-1] == count - 1 else "tree"
    if degrees[0] == count - 1:
        return "clique"
    return "cycle" if degrees == [2] * count else "graph"


def _without(meet: Meet) -> str:
    return "overlap without it" if meet.words.startswith("overlaps") else f"meet {meet.words} without it"


def _indexed_plan(query: Query, relations: Relations) -> Plan:
    count, dimensions = len(query.aliases), _dimensions(query, relations)
    binding = bind(query, relations)
    order = ", ".join(query.aliases[place][0] for place in binding.orders[binding.first])
    found = f"rows are found by look-ups in {len(binding.indexes)} indexes, bound in the order {order}"
    notes = [f"{found}: a bound row may find no partner further on"]
    if count > 2 and dimensions > 1:
        notes.append(THEOREM_3)
    bounds = {
        "space": f"O(n) an index, {len(binding.indexes)} indexes",
        "update": "O(log n) an index, and the candidates",
        "delay": "O(log n) between candidates, no bound between rows",
    }
    kind = f"interval join, {dimensions}-D" if dimensions else "natural join"
    keyed = ", keyed" if query.equal and dimensions else ""
    product = ", with a product" if query.cross else ""
    cls = f"{kind}, {count} relations{keyed}{product}"
    never = _never(query) + _open_ends(query, relations)
    return Plan(cls, "nested-loop", None, "best-effort", bounds, (*never, *notes), "indexed", binding=binding)


def _dimensions(query: Query, relations: Relations) -> int:
    """The most conditions of intervals that one pair of aliases has."""
    pairs = [frozenset((meet.left.alias, meet.right.alias)) for meet in meets_of(query, relations)]
    return max((pairs.count(pair) for pair in pairs), default=0)


def _candidates() -> dict[str, str]:
    """What holds when candidates are passed over."""
    return {"space": "O(n)", "update": "O(log n) and a step per candidate", "delay": "O(log n) between candidates, no bound between rows"}


def _interchangeable(query: Query) -> bool:
    (a, left), (b, right) = query.aliases
    filters = {alias: {(f.column.column, f.op, f.value) for f in query.filters if f.column.alias == alias} for alias in (a, b)}
    return (
        left == right
        and len(query.overlaps) > 0
        and not query.within
        and all(x.interval == y.interval for x, y in query.overlaps)
        and all(x.column == y.column for x, y in query.equal)
        and filters[a] == filters[b]
    )


def _tells_apart(query: Query, ref: ColumnRef, relations: Relations) -> bool:
    """Whether two different rows that agree in the equality columns always differ in this column."""
    relation = dict(query.aliases)[ref.alias]
    return set(relations[relation].key) <= {ref.column} | {x.column for x, _ in query.equal}


def _condition(query: Query) -> str:
    return " AND ".join(map(str, query.comparisons))


def _never(query: Query) -> tuple[str, ...]:
    return ("a condition can match nothing (a comparison with NULL, or FALSE): the view is empty",) if query.never else ()


def _open_ends(query: Query, relations: Relations) -> tuple[str, ...]:
    """An open start against an open end: where inequalities and a shared value of a discrete type part."""
    by_alias = dict(query.aliases)
    for pair in query.overlaps:
        x, y = (relations[by_alias[ref.alias]].intervals[ref.interval] for ref in pair)
        if (x.start_open and y.end_open) or (y.start_open and x.end_open):
            return ("an open start against an open end: the intervals overlap when a value of their type lies in both",)
    return ()
