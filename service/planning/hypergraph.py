"""A natural join as a hypergraph: its variables, and the columns of each alias for them; `acyclicity` determines the class.

A variable is a class of columns that conditions make equal. Classes that exactly the same aliases have are one variable, with a composite
value: the meaning is the same, with fewer dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from service.planning.acyclicity import Edge, is_acyclic, is_hierarchical, nested_elimination_order, treewidth
from service.planning.binding import equal_classes
from service.query.conditions import ColumnRef
from service.query.model import AntiJoin, Query


class Attribute(NamedTuple):
    """An alias's columns for a variable; `same`: alternative columns, which must have the same value."""

    variable: int
    columns: tuple[str, ...]
    same: tuple[tuple[str, ...], ...]


class Hypergraph(NamedTuple):
    """atoms   of each alias its attributes, in the order of their columns: those that aliases have in common stand in one order
    absent  the positions of the atoms of each group (`query.model.Absent`); these stand behind the others
    nulls   the atoms, by position, and their variables for which null is a value: one that no other atom has (but those of groups)
    families  of a view with UNION or EXCEPT, of each branch the positions of its atoms, and of its groups
    shown   of such a view the columns of each variable, by index
    """

    dimension: int
    atoms: tuple[tuple[Attribute, ...], ...]
    absent: tuple[tuple[int, ...], ...] = ()
    nulls: frozenset[tuple[int, int]] = frozenset()
    families: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    shown: tuple[tuple[int, ...], ...] = ()

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
    """That of the query's equalities; an alias without any has no attributes."""
    return _composed([alias for alias, _ in query.aliases], [_by_alias(one) for one in equal_classes(query)])


def graph_with_absent(query: Query) -> Hypergraph | str:
    """With the NOT EXISTS groups as well; or the reason, in words, why there is none. A variable is a class of the query's columns, or a
    column of it that only groups compare. What a group sets equal holds only there: an atom of it may have one column for several
    variables."""
    own = {alias for alias, _ in query.aliases}
    variables = equal_classes(query)
    compared = {ref for group in query.absent for pair in group.equal for ref in pair if ref.alias in own}
    lonely = compared - {ref for one in variables for ref in one}
    variables += [[ref] for ref in sorted(lonely)]
    columns = [_by_alias(one) for one in variables]
    for group in query.absent:
        why = _position_group(query, group, variables, columns, "a column of the outer query")
        if why is not None:
            return why
    graph = _composed([alias for alias, _ in query.whole.aliases], columns)
    positions = iter(range(len(query.aliases), len(graph.atoms)))
    attributes = [(position, alias, one) for position, (alias, _) in enumerate(query.aliases) for one in graph.atoms[position]]
    nulls = frozenset((position, one.variable) for position, alias, one in attributes if ColumnRef(alias, one.columns[0]) in lonely)
    return graph._replace(absent=tuple(tuple(next(positions) for _ in group.aliases) for group in query.absent), nulls=nulls)


def graph_of_branches(query: Query) -> Hypergraph | str:
    """For a view with UNION or EXCEPT, including right sides and NOT EXISTS groups; or the reason, in words, why there is none. A variable
    is a column of the view: in each SELECT the columns that equal the one that it selects."""
    columns: list[dict[str, list[str]]] = [{} for _ in query.outputs]
    lone = set[tuple[str, int]]()  # aliases, and columns of the view that nothing is equal to
    inputs = [index for index, group in enumerate(query.absent) if group.columns]
    selects = [query.of_branch(index) for index in range(len(query.branches))] + [query.of_right_side(index) for index in inputs]
    for one in selects:
        classes = [*equal_classes(one)]
        classes += [[ref] for ref in dict.fromkeys(_selected(one)) if not any(ref in known for known in classes)]
        for known in classes:
            shown = [at for at, ref in enumerate(_selected(one)) if ref in known]
            if not shown:
                by_alias = dict(one.aliases)  # relations' names: an alias may not be what its author wrote
                equal = " = ".join(str(ref._replace(alias=by_alias[ref.alias])) for ref in known)
                return f"{equal} is joined on, but not selected; add it to the SELECT"
            for at in shown:
                columns[at] |= _by_alias(known)
                if len(known) == 1:
                    lone.add((known[0].alias, at))
        for group in one.absent:
            why = _position_group(one, group, [[ref] for ref in _selected(one)], columns, "a selected one")
            if why is not None:
                return why
    aliases = [alias for alias, _ in query.whole.aliases]
    graph = _composed(aliases, columns)
    composites = list(dict.fromkeys(map(frozenset, columns)))
    variables = [composites.index(frozenset(known)) for known in columns]
    positions = iter(range(len(aliases)))
    own = [tuple(next(positions) for _ in range(branch.aliases)) for branch in query.branches]
    return graph._replace(
        absent=tuple(tuple(next(positions) for _ in group.aliases) for group in query.absent),
        nulls=frozenset((aliases.index(alias), variables[at]) for alias, at in lone),
        families=tuple((mine, branch.absent) for mine, branch in zip(own, query.branches, strict=True)),
        shown=tuple(tuple(at for at, v in enumerate(variables) if v == variable) for variable in range(graph.dimension)),
    )


def _selected(query: Query) -> list[ColumnRef]:
    return [output.column for output in query.outputs if output.column is not None]


def _position_group(
    query: Query, group: AntiJoin, variables: Sequence[Sequence[ColumnRef]], columns: list[dict[str, list[str]]], these: str
) -> str | None:
    """Adds the columns of a NOT EXISTS group to the variables that they equal; returns why this is impossible. `these`: the variables in
    words."""
    own = {alias for alias, _ in query.aliases}
    alike = {ref: known for known in equal_classes(query) for ref in known}
    joined = equal_classes(replace(query, aliases=query.aliases + group.aliases, equal=query.equal + group.equal))
    for one in joined:
        theirs = _by_alias([ref for ref in one if ref.alias not in own])
        if theirs:
            mine = [at for at, known in enumerate(variables) if not set(known).isdisjoint(one)]
            if not mine:
                return f"every column compared in NOT EXISTS must equal {these}; {' = '.join(map(str, one))} does not"
            for ref in one:
                if ref.alias in own and all(set(known).isdisjoint(alike.get(ref, [ref])) for known in variables):
                    return f"every column compared in NOT EXISTS must equal {these}; {ref} does not"
            for at in mine:
                columns[at] |= theirs
    for alias, relation in group.aliases:
        if not any(alias in one for one in columns):
            return f"no column of {relation} in NOT EXISTS equals a column outside of it"
    return None


def _by_alias(refs: Iterable[ColumnRef]) -> dict[str, list[str]]:
    columns: dict[str, list[str]] = {}
    for ref in refs:
        columns.setdefault(ref.alias, []).append(ref.column)
    return columns


def _composed(aliases: Sequence[str], variables: Sequence[dict[str, list[str]]]) -> Hypergraph:
    """`variables`: of each its columns by alias."""
    composites: dict[frozenset[str], list[dict[str, list[str]]]] = {}
    for columns in variables:
        composites.setdefault(frozenset(columns), []).append(columns)
    atoms = []
    for alias in aliases:
        found = []
        for variable, classes in enumerate(composites.values()):
            if alias in classes[0]:
                lists = [columns[alias] for columns in classes]
                choices = [tuple(names[min(i, len(names) - 1)] for names in lists) for i in range(max(map(len, lists)))]
                found.append(Attribute(variable, choices[0], tuple(choices[1:])))
        atoms.append(tuple(sorted(found, key=lambda one: one.columns)))
    return Hypergraph(len(composites), tuple(atoms))
