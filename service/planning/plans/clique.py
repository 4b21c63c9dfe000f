"""Three to eight interchangeable aliases of one relation that all overlap, distinguished by one column: one set in a tree of cliques.

    clique_less       `a.c < b.c`, `b.c < d.c` …: each combination once, in the order of c; equal values are skipped
    clique_not_equal  `<>` between all, of a column that tells any two rows of one key apart: each combination in every order

Intervals of a line that overlap pairwise have a common point (Helly), so a combination is found where its last-starting interval begins:
there the others cover it. The tree knows where so many share a point. Source: docs/design/ij-heap.md (*Self-joins*), from Tao and Yi,
Theorem 4.
"""

from __future__ import annotations

from service.planning.binding import equal_classes
from service.planning.meets import Relations, overlaps_of
from service.planning.plans.plan import THEOREM_4, Plan, PlanShape, candidates, first_notes, interchangeable, names, suffix, tells_apart
from service.query.model import Query
from structures.multiway.clique_summary import MOST


def make(query: Query, relations: Relations) -> Plan | None:
    aliases, pairs = names(query), query.comparisons
    count = len(aliases)
    if not 3 <= count <= MOST or not pairs or not interchangeable(query):
        return None
    if len({x.interval for x, _ in query.overlaps}) != 1:
        return None
    classes = equal_classes(query)
    met = {frozenset((x.alias, y.alias)) for x, y in query.overlaps}
    if len(met) < count * (count - 1) // 2 or any(tuple(ref.alias for ref in one) != aliases for one in classes):
        return None
    first = pairs[0].left
    definition = relations[query.aliases[0][1]]
    if any(ref.column != first.column for one in pairs for ref in (one.left, one.right)):
        return None
    exact = tells_apart(query, first, relations)
    shape: PlanShape
    ops = {one.op for one in pairs}
    order = in_order(query)
    # NaN has an order of its own; of two values no three are in order, and only a join that asks on the way sees it soon.
    if ops == {"<"} and order is not None and definition.column(first.column).type not in ("float64", "bool"):
        shape, kind = "clique_less", "each combination once"
    elif ops == {"<>"} and len(pairs) == len(met) and exact:
        shape, kind = "clique_not_equal", "all orders"
    else:
        return None
    guarantee, bounds = "strict", {"space": "O(n)", "update": "O(log n)", "delay": "O(log n)"}
    notes = [*first_notes(query, relations)]
    if not exact:
        guarantee, bounds = "best-effort", candidates()
        column = first.column
        note = f"combinations with equal {column} are skipped"
        notes.append(f"{note}: {column} is not the key, and does not form one with the equality columns")
    if shape == "clique_less":
        notes.append("a look-up of a row as one alias also visits its combinations as another, and skips them")
    if classes:
        notes.append("a window without a key visits the keys one by one, so the guarantee does not hold for it")
    spans = {span.alias: span for meet in overlaps_of(query, relations) for span in (meet.left, meet.right)}
    return Plan(
        f"interval self-join, 1-D, {count} relations, clique, {kind}{suffix(query, ())}", "interval-tree", THEOREM_4, guarantee, bounds,
        tuple(notes), shape, aliases,
        keys=tuple(tuple(one[position].column for one in classes) for position in range(count)),
        spans=tuple(spans[alias] for alias in aliases),
    )  # fmt: skip


def in_order(query: Query) -> tuple[int, ...] | None:
    """The positions of the aliases from the least to the greatest, if `<` orders all of them; else None."""
    positions = {alias: position for position, (alias, _) in enumerate(query.aliases)}
    above = {(positions[x.alias], positions[y.alias]) for x, y in query.less}
    for middle in range(len(positions)):  # with what follows from it
        above |= {(x, z) for x, y in above if y == middle for w, z in above if w == middle}
    order = tuple(sorted(range(len(positions)), key=lambda position: sum(x == position for x, _ in above), reverse=True))
    chained = all(pair in above for pair in zip(order, order[1:], strict=False))
    return order if chained and all((y, x) not in above for x, y in above) else None
