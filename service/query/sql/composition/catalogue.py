"""What a definition is read with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from sqlglot import exp

from livejoin.wire.schema import Interval, RelationDefinition
from service.query.sql.composition.constant_tables import ConstantTable
from service.query.sql.names import Source

Trees = Mapping[str, Callable[[], exp.Expr]]
"""Views by name: each gives the result of `view_tree`."""


class Store(Protocol):
    """Has the rows of queries stored."""

    def __call__(self, query: exp.Query, intervals: Mapping[str, Interval], source: Source) -> str:
        """Return the name of the relation that has the rows of a query without subqueries in FROM; it is one of `Catalogue.relations` from
        then on. intervals: of its columns. Raises as `read_query`."""
        ...

    def add(self, table: ConstantTable) -> str:
        """Return the name of the relation that has these rows, from then on."""
        ...


class Catalogue(NamedTuple):
    """nameable: the relations that its text itself may name; views may read others."""

    relations: Mapping[str, RelationDefinition]
    views: Trees
    nameable: Mapping[str, RelationDefinition]
    store: Store
