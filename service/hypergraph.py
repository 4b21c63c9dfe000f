"""A natural join as a hypergraph: its variables, and which columns of each alias stand for them; what `qdag_join` goes by.

A variable is what conditions make equal. Classes of equal columns that exactly the same aliases have are one variable, with a composite
value: together they say what each says, in fewer dimensions. Source: GYO reduction, Graham; Yu and Ozsoyoglu.
"""

from __future__ import annotations

from typing import NamedTuple

from service.binding import equal_classes
from service.terms import Query


class Attribute(NamedTuple):
    """An alias's columns for a variable; `same`: further choices of columns, which have to give the same value."""

    variable: int
    columns: tuple[str, ...]
    same: tuple[tuple[str, ...], ...]


class Hypergraph(NamedTuple):
    """`atoms`: of each alias its attributes, in the order of their columns: those that aliases have in common stand in one order."""

    dimension: int
    atoms: tuple[tuple[Attribute, ...], ...]

    @property
    def arity(self) -> int:
        """Of the widest atom."""
        return max(map(len, self.atoms))

    @property
    def acyclic(self) -> bool:
        """Whether the GYO reduction empties it: a variable of one atom goes, and an atom within another."""
        edges = [frozenset(one.variable for one in atom) for atom in self.atoms]
        while True:
            lonely = {v for edge in edges for v in edge if sum(v in other for other in edges) == 1}
            reduced = [edge - lonely for edge in edges]
            kept = [edge for edge in dict.fromkeys(reduced) if not any(edge < other for other in reduced)]
            if kept == edges:
                return len(edges) <= 1
            edges = kept


def hypergraph(query: Query) -> Hypergraph:
    """Of the query's equalities; an alias without any has no attributes."""
    composites: dict[frozenset[str], list[dict[str, list[str]]]] = {}
    for one in equal_classes(query):
        columns: dict[str, list[str]] = {}
        for ref in one:
            columns.setdefault(ref.alias, []).append(ref.column)
        composites.setdefault(frozenset(columns), []).append(columns)
    atoms = []
    for alias, _ in query.aliases:
        found = []
        for variable, classes in enumerate(composites.values()):
            if alias in classes[0]:
                lists = [columns[alias] for columns in classes]
                choices = [tuple(names[min(i, len(names) - 1)] for names in lists) for i in range(max(map(len, lists)))]
                found.append(Attribute(variable, choices[0], tuple(choices[1:])))
        atoms.append(tuple(sorted(found, key=lambda one: one.columns)))
    return Hypergraph(len(composites), tuple(atoms))
