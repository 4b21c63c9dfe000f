"""The operators of *TreeTracker Join* (Algorithms 2.1, 4.1 and 5.1 to 5.6), line by line, and with the correction.

A left-deep plan of joins; each has the hash table of its inner relation. What fails is removed from the table of the parent of the
relation that has no partner, or put on the deny list of the root. As printed, LookUpH takes an iterator that has ended for a failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

Tuple = tuple[int, ...]
Joined = dict[str, Tuple]
"""The tuple of each relation."""


class Relation:
    """Its name, attributes, parent in the join tree, and tuples."""

    def __init__(self, name: str, attributes: str, parent: Relation | None, tuples: Sequence[Tuple]) -> None:
        self.name, self.attributes, self.parent, self.tuples = name, attributes, parent, tuples

    def jav(self, of: Relation, one: Tuple) -> Tuple:
        """The join attribute value: what a tuple of this relation, or its parent, has of the attributes that both have."""
        assert self.parent is not None
        return tuple(one[of.attributes.index(x)] for x in self.attributes if x in self.parent.attributes)


class Scan:
    def __init__(self, relation: Relation) -> None:
        self.relation = relation

    def open(self) -> None:
        self.no_good: set[Tuple] = set()
        self.left = iter(self.relation.tuples)

    def get_next(self) -> Joined | None:  # Algorithm 5.6
        self.last = next((one for one in self.left if one not in self.no_good), None)
        return None if self.last is None else {self.relation.name: self.last}

    def remove_dangling(self, relation: Relation) -> Joined | None:  # Algorithm 5.5
        assert self.last is not None
        self.no_good.add(self.last)
        return self.get_next()


class Join:
    def __init__(self, outer: Scan | Join, inner: Relation, corrected: bool) -> None:
        self.outer, self.inner, self.corrected = outer, inner, corrected

    def open(self) -> None:  # Algorithm 4.1
        self.list: list[Tuple] | None = None
        self.at, self.lived, self.outer_row = 0, False, None
        self.table: dict[Tuple, list[Tuple]] = {}
        for one in self.inner.tuples:
            self.table.setdefault(self.inner.jav(self.inner, one), []).append(one)
        self.outer.open()

    def get_next(self) -> Joined | None:  # Algorithm 5.1
        return self.get_outer(True)

    def look_up(self) -> Joined | None:  # Algorithm 5.2
        if self.list is None:
            parent, outer_row = self.inner.parent, self.outer_row
            assert parent is not None and outer_row is not None
            self.list, self.at = self.table.get(self.inner.jav(parent, outer_row[parent.name])) or None, 0
        else:
            self.at += 1
        return self._joined()

    def get_outer(self, new: bool) -> Joined | None:  # Algorithm 5.3
        if new:
            if self.list is not None:
                self.lived = True
                self.at += 1
                if (found := self._joined()) is not None:
                    return found
            self._take(self.outer.get_next())
        while self.outer_row is not None:
            if (found := self.look_up()) is not None:
                return found
            ended = self.corrected and self.lived
            self._take(self.outer.get_next() if ended else self.outer.remove_dangling(self.inner))
        return None

    def remove_dangling(self, relation: Relation) -> Joined | None:  # Algorithm 5.4
        if relation.parent is self.inner:
            assert self.list is not None
            del self.list[self.at]
            self.at -= 1
            if not any(self.table.values()):
                return None
        else:
            self._take(self.outer.remove_dangling(relation))
        return self.get_outer(False)

    def _take(self, row: Joined | None) -> None:
        self.outer_row, self.list, self.lived = row, None, False

    def _joined(self) -> Joined | None:
        if self.list is None or self.at >= len(self.list) or self.outer_row is None:
            return None
        return self.outer_row | {self.inner.name: self.list[self.at]}


def join(relations: Sequence[Relation], corrected: bool) -> list[Joined]:  # Algorithm 2.1
    """`relations`: in preorder of the join tree."""
    plan: Scan | Join = Scan(relations[0])
    for one in relations[1:]:
        plan = Join(plan, one, corrected)
    plan.open()
    found = []
    while (row := plan.get_next()) is not None:
        found.append(row)
    return found


def nested_loops(relations: Sequence[Relation]) -> list[Joined]:
    found = []
    for tuples in product(*(one.tuples for one in relations)):
        row = {one.name: each for one, each in zip(relations, tuples, strict=True)}
        if all(one.parent is None or one.jav(one, row[one.name]) == one.jav(one.parent, row[one.parent.name]) for one in relations):
            found.append(row)
    return found
