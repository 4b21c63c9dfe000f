"""Any two or more aliases: one alias after another is bound, by indexes (`binding`), in an order by counts if there are rows. Nothing is
guaranteed except correct answers."""

from __future__ import annotations

from service.planning.binding import Counts, bind
from service.planning.hypergraph import hypergraph
from service.planning.meets import Relations, is_natural
from service.planning.plans.plan import THEOREM_3, Plan, dimensions, first_notes, names
from service.query.model import Query


def make(query: Query, relations: Relations, counts: Counts | None = None) -> Plan | None:
    """`counts`: statistics of the rows; without them, the order is chosen by rules."""
    if len(query.aliases) < 2:
        return None
    count, most = len(query.aliases), dimensions(query, relations)
    binding = bind(query, relations, counts)
    order = tuple(names(query)[position] for position in binding.orders[binding.first])
    reason = "chosen by row counts when the view is built" if counts is not None else "chosen by rules, without row counts"
    found = f"rows are found by look-ups in {len(binding.indexes)} indexes, in the order {', '.join(order)} ({reason})"
    notes = [*first_notes(query, relations), f"{found}; a row that is found may have no partner in the next relation"]
    if count > 2 and most > 1:
        notes.append(THEOREM_3)
    bounds = {
        "space": f"O(n) per index; there are {len(binding.indexes)}",
        "update": "O(log n) per index, and the candidates",
        "delay": "O(log n) between candidates, no bound between rows",
    }
    cls = _kind(query, relations, most)
    return Plan(cls, "nested-loop", None, "best-effort", bounds, tuple(notes), "indexed", order, binding=binding)


def _kind(query: Query, relations: Relations, most: int) -> str:
    """`most`: dimensions."""
    keyed = ", keyed" if query.equal else ""
    if most:
        kind = f"interval join, {most}-D, {len(query.aliases)} relations{keyed}"
    elif not is_natural(query, relations):
        kind = f"join by comparisons, {len(query.aliases)} relations{keyed}"
    elif not query.equal:
        return f"product, {len(query.aliases)} relations"
    else:
        kind = f"natural join, {len(query.aliases)} relations, {hypergraph(query).words}"
    return kind + (", with a product" if query.cross else "")
