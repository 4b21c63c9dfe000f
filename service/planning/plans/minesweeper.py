"""Natural joins of two to eight aliases, by the gaps in shared ordered indexes: `minesweeper`, for all, and `elimination`, if there is a
nested elimination order, with a bound by the certificate.

Each class of equal columns is a separate variable, as in `view_tree`. Both names stand for the same algorithm, with the same order of the
variables if both are possible. Lemma D.12 of the second paper, which requires alpha-acyclic joins for `elimination`, is false: of AB, BC,
AC, ABC none of the six orders satisfies it. A nested order is what its proof needs, and exactly the beta-acyclic joins have one. The
triangle, which has no nested order, has a separate bound. Source: *Beyond Worst-case Analysis for Joins with Minesweeper*, Theorems 2.7,
5.1 and 5.4; *Towards Instance Optimal Join Algorithms for Data in Indexes*, Theorem 3.7; docs/design/natural-joins.md (*minesweeper*).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from service.planning.acyclicity import least_width_order, nested_elimination_order, nested_elimination_orders, treewidth
from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, columns_of, connected, first_notes, indexes_of, names, path_of
from service.query.conditions import ColumnRef
from service.query.model import Query
from structures.index.layout import MOST_ARITY
from structures.minesweeper.cds import MOST_LEVELS
from structures.minesweeper.shape import MOST_ATOMS, index_orders, is_triangle

THEOREM = "Beyond Worst-case Analysis for Joins with Minesweeper, Theorem 2.7"
THEOREM_WIDTH = "Beyond Worst-case Analysis for Joins with Minesweeper, Theorem 5.1"
THEOREM_TRIANGLE = "Beyond Worst-case Analysis for Joins with Minesweeper, Theorem 5.4"
THEOREM_NESTED = "Towards Instance Optimal Join Algorithms for Data in Indexes, Theorem 3.7"
_LIMITS = f"without comparisons, up to {MOST_ATOMS} relations and {MOST_LEVELS} classes of equal columns"
WORDS = f"natural joins {_LIMITS}"
NESTED_WORDS = f"beta-acyclic natural joins (with a nested elimination order) {_LIMITS}"
_MOST_ORDERS = 200  # that are compared


def make(query: Query, relations: Relations) -> Plan | None:
    return _make(query, relations, "minesweeper")


def make_nested(query: Query, relations: Relations) -> Plan | None:
    return _make(query, relations, "elimination")


def search_order(atoms: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The variables of these atoms in the order of the search: among the first nested elimination orders the one with the fewest indexes,
    otherwise one of least width."""
    edges = [frozenset(own) for own in atoms]
    nested = list(islice(nested_elimination_orders(edges), _MOST_ORDERS))
    return min(nested, key=lambda one: sum(map(len, index_orders(atoms, one)))) if nested else least_width_order(edges)


def _make(query: Query, relations: Relations, algorithm: str) -> Plan | None:
    count = len(query.aliases)
    if not 2 <= count <= MOST_ATOMS or query.cross or not is_natural(query, relations):
        return None
    columns = columns_of(query)
    edges = [frozenset(own) for own in columns]
    used = frozenset().union(*edges)
    meeting = [(x, y) for x in range(count) for y in range(x) if edges[x] & edges[y]]
    if not used or len(used) > MOST_LEVELS or max(map(len, columns)) > MOST_ARITY or not connected(count, meeting):
        return None
    atoms = [tuple(sorted(own, key=lambda v: own[v])) for own in columns]
    nested = nested_elimination_order(edges) is not None
    if algorithm == "elimination" and not nested:
        return None
    levels = search_order(atoms)
    tracks = tuple(tuple(path_of(order, own) for order in one) for one, own in zip(index_orders(atoms, levels), columns, strict=True))
    width, _ = treewidth(edges)
    triangle = is_triangle(edges)
    whole = "O((C + r) log n)" if nested else f"O((C^{width + 1} + r) log n)"
    emitted = "where C comparisons prove that there are no others"
    if triangle:
        whole = "O(((C + p) C^0.5 log U + r) log n)"
        emitted += ", and p pairs of values of the first two variables have rows, the second in a range of U values"
    bounds = {
        "space": f"O(n) per index; there are {sum(map(len, tracks))}; a cache of up to {'16 MiB per reading' if triangle else '64 MiB'}",
        "update": "O(log n) per index, and a search with the changed row's variables bound",
        "delay": f"no bound between rows; all r rows in {whole}, {emitted}",
    }
    by_alias = list(zip(names(query), columns, strict=True))
    order = ", ".join(next(str(ColumnRef(alias, own[v][0])) for alias, own in by_alias if v in own) for v in levels)
    kind = "the reverse of a nested elimination order" if nested else f"of width {width}"
    notes = (
        *first_notes(query, relations),
        f"variables are searched in this order, {kind}: {order}",
        f"indexes, shared with other views that use the same: {indexes_of(query, tracks)}",
    )
    theorem = THEOREM_NESTED if algorithm == "elimination" else THEOREM if nested else THEOREM_TRIANGLE if triangle else THEOREM_WIDTH
    cls = f"natural join, {count} relations, {hypergraph(query).words}"
    return Plan(cls, algorithm, theorem, "best-effort", bounds, notes, "minesweeper", names(query), tracks=tracks, levels=levels)
