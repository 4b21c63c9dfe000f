"""Natural joins less what NOT EXISTS groups exclude, and their UNION and EXCEPT: quadtrees, read as lazy qdags.

Source: Navarro, Reutter and Rojas-Ledesma, section 4; docs/design/natural-joins.md (*lqdag*).
"""

from __future__ import annotations

from service.errors import Problem, unsupported
from service.planning.hypergraph import Hypergraph, graph_of_branches, graph_with_absent, hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import Plan, first_notes, names
from service.planning.plans.qdag import AGM
from service.planning.quadtree_shapes import tree_shapes
from service.query.model import Query
from structures.qdag.layout import MOST_ATOMS, MOST_VARIABLES
from structures.quadtree.layout import MOST_ARITY

THEOREM = "Navarro, Reutter and Rojas-Ledesma, Optimal Joins using Compact Data Structures, Theorem 4.4"
_LIMITS = f"{MOST_ATOMS} relations, {MOST_VARIABLES} variables, {MOST_ARITY} per relation"
_SEE = " (columns that are equal are one variable, as is each selected column of UNION and EXCEPT)"
WORDS = f"natural joins with NOT EXISTS, UNION or EXCEPT, up to {_LIMITS}, without products or comparisons"


def make(query: Query, relations: Relations) -> Plan | None:
    if not query.absent and not query.branches:
        return None
    graph = _graph(query, relations)
    if isinstance(graph, str):
        return None
    if query.branches:
        return _of_branches(query, relations, graph)
    count, trees = len(graph.atoms), len(tree_shapes(query, graph).orders)
    bounds = {
        "space": f"O(n) per quadtree; there {'are' if trees > 1 else 'is'} {trees}",
        "update": "O(log n) per quadtree, and O~(AGM) of the join with one alias reduced to the changed row",
        "delay": f"no bound between rows; all in O(AGM · 2^{graph.dimension} · {count} · log n), AGM of the join without NOT EXISTS",
    }
    notes = (
        *first_notes(query, relations),
        *_groups(query),
        "a change in NOT EXISTS searches for the rows that it removes or brings back, unless another row has the same values",
        *_named_twice(query),
        AGM,
    )
    return Plan(_class(query), "lqdag", _theorem(query), "best-effort", bounds, notes, "qdag", names(query), graph=graph)


def _of_branches(query: Query, relations: Relations, graph: Hypergraph) -> Plan:
    selects = [query.of_branch(index) for index in range(len(query.branches))]
    inputs = [query.of_right_side(index) for index, group in enumerate(query.absent) if group.columns]
    trees, count = len(tree_shapes(query, graph).orders), len(graph.atoms)
    several = len(selects) > 1
    bounds = {
        "space": f"O(n) per quadtree; there {'are' if trees > 1 else 'is'} {trees}",
        "update": "O(log n) per quadtree, and O~(AGM) of the SELECTs with one alias reduced to the values of the changed row",
        "delay": f"no bound between rows; all in O(AGM · 2^{graph.dimension} · {count} · log n), "
        + ("the sum of the AGM of each SELECT" if several else "AGM of the SELECT before EXCEPT"),
    }
    notes = [
        *first_notes(query, relations),
        "each row is distinct, however many rows of the relations it comes from; null equals null",
        "a change of a row matters only if no other row of its relation has the same values in the columns that the view uses",
        *(note for one in selects for note in _groups(one)),
    ]
    if several:
        notes.append("a row of a later SELECT costs up to one look-up per relation of the SELECTs before it")
    if inputs:
        notes.append(
            "EXCEPT excludes rows, at the cost of up to one look-up per row and relation; excluded rows are searched too: for a view "
            "that is read once, hashing both sides is faster"
        )
    notes += [*_named_twice(query), AGM]
    cls = _class_of_branches(query)
    return Plan(cls, "lqdag", _theorem(query), "best-effort", bounds, tuple(notes), "union", names(query), graph=graph)


def _theorem(query: Query) -> str | None:
    return None if _named_twice(query) else THEOREM


def _named_twice(query: Query) -> list[str]:
    names_ = [relation for _, relation in query.whole.aliases]
    twice = sorted({name for name in names_ if names_.count(name) > 1})
    if not twice:
        return []
    return [f"{', '.join(twice)}: used more than once, so Theorem 4.4 of lazy qdags does not apply; the stated bound does not need it"]


def _class_of_branches(query: Query) -> str:
    """Each SELECT with what EXCEPT excludes from it."""
    emitted = []
    for index, branch in enumerate(query.branches):
        cls = f"({_class(query.of_branch(index))})"
        rights = [f"({_class(query.of_right_side(at))})" for at in branch.absent if query.absent[at].columns]
        if rights:
            right = " UNION ".join(rights)
            cls += f" EXCEPT {right if len(rights) == 1 else f'({right})'}"
        emitted.append(f"({cls})" if rights and len(query.branches) > 1 else cls)
    return " UNION ".join(emitted)


def _class(query: Query) -> str:
    cls = f"natural join, {len(query.aliases)} relations, {hypergraph(query).words}" if len(query.aliases) > 1 else "selection, 1 relation"
    return f"{cls}, with NOT EXISTS" if query.absent else cls


def _groups(query: Query) -> list[str]:
    if not query.absent:
        return []
    emitted = ", ".join(f"NOT EXISTS ({', '.join(map(_from_item, group.aliases))})" for group in query.absent)
    return [f"{emitted}: excludes rows, at the cost of up to one look-up per row and relation, without any further search"]


def _from_item(aliased: tuple[str, str]) -> str:
    alias, relation = aliased
    return relation if relation == alias else f"{relation} AS {alias}"


def refusal(query: Query, relations: Relations) -> Problem:
    """Why a view with NOT EXISTS, UNION or EXCEPT has no plan."""
    why = _graph(query, relations)
    assert isinstance(why, str)
    return unsupported(f"a view with {operations(query)} of this form", why)


def operations(query: Query) -> str:
    """Which of NOT EXISTS, UNION and EXCEPT the view has."""
    found = ["UNION"] if len(query.branches) > 1 else []
    found += ["EXCEPT"] if any(group.columns for group in query.absent) else []
    found += ["NOT EXISTS"] if any(not group.columns for group in query.absent) else []
    return " and ".join(found)


def _graph(query: Query, relations: Relations) -> Hypergraph | str:
    """Its graph, or the reason, in words, why it has none that can be kept."""
    if query.cross:
        return "it has a product (CROSS JOIN); join the relations on equal columns"
    if len(query.aliases) > 1 and not is_natural(query, relations):
        return "it joins by more than equality; compare the columns of different aliases with = only"
    graph = graph_of_branches(query) if query.branches else graph_with_absent(query)
    if isinstance(graph, str):
        return graph
    for what, found, most in (("relations", len(graph.atoms), MOST_ATOMS), ("variables", graph.dimension, MOST_VARIABLES)):
        if found > most:
            return f"it has {found} {what}; at most {most} are possible{_SEE}"
    if graph.arity > MOST_ARITY:
        return f"one of its relations is compared in {graph.arity} variables; at most {MOST_ARITY} are possible{_SEE}"
    return graph
