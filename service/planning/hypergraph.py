"""A natural join as a hypergraph: its variables, and the columns of each alias for them; `acyclicity` determines the class.

A variable is a class of columns that conditions make equal. Classes that exactly the same aliases have are one variable, with a composite
value: the meaning is the same, with fewer dimensions.
"""

from __future__ import annotations

from typing import NamedTuple

from service.planning.acyclicity import Edge, is_acyclic, is_hierarchical, nested_elimination_order, treewidth
from service.planning.binding import equal_classes
from service.query.model import Query


class Attribute(NamedTuple):
    """An alias's columns for a variable; `same`: alternative columns, which must have the same value."""

    variable: int
    columns: tuple[str, ...]
    same: tuple[tuple[str, ...], ...]


class Hypergraph(NamedTuple):
    """`atoms`: of each alias its attributes, in the order of their columns: those that aliases have in common stand in one order."""

    dimension: int
    atoms: tuple[tuple[Attribute, ...], ...]

    @property
    def arity(self) -> int:
        """The number of attributes of the widest atom."""
        return max(map(len, self.atoms))

    @property
    def edges(self) -> list[Edge]:
        """The variables of each alias."""
        return [frozenset(one.variable for one in atom) for atom in self.atoms]

    @property
    def acyclic(self) -> bool:
        return is_acyclic(self.edges)

    @property
    def hierarchical(self) -> bool:
        return is_hierarchical(self.edges)

    @property
    def words(self) -> str:
        """The smallest class that it belongs to, and its treewidth."""
        kind = "cyclic"
        if self.acyclic:
            beta = nested_elimination_order(self.edges) is not None
            kind = "acyclic, hierarchical" if self.hierarchical else "acyclic, beta-acyclic" if beta else "acyclic"
        width, exact = treewidth(self.edges)
        variables = f"{self.dimension} variable{'s' if self.dimension > 1 else ''}"
        return f"{kind}, {variables}, treewidth {'' if exact else 'at most '}{width}"


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
