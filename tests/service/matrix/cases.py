"""A case of the matrix: a form of view over a kind of edge, over relations of certain nulls, bounds and type; and which cases are taken.

Cases are taken so that each pair of values of two factors occurs, or anywhere from the product of all.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any

from tests.service.matrix.edges import KINDS, OVERLAPPING, Edges
from tests.service.matrix.forms import AsOf, Covered, Distinct, Edge, Grouped, Part, Stretched, View
from tests.service.matrix.rows import BOUNDS, NULLS, TYPES, Relation

Choice = tuple[Any, ...]
_OTHERS = ("equal", "overlap", "plain", "guarded", "before", "near", "point", "window", "keyed overlap", "keyed plain")


class Maker:
    """Draws the view of a case. Aliases x, y and z are of three relations; `first` is the kind of the edge that the case is about."""

    def __init__(self, rng: random.Random, relations: Sequence[Relation], first: str) -> None:
        self.random, self.first = rng, first
        self.of = dict(zip("xyz", relations, strict=True))

    def edge(self, x: str, y: str) -> Edge:
        return Edge(x, y, Edges(self.random, self.of[x], self.of[y]).drawn(self.first))

    def other(self, x: str, y: str) -> Edge:
        return Edge(x, y, Edges(self.random, self.of[x], self.of[y]).drawn(self.random.choice(_OTHERS)))

    def least(self) -> int | None:
        return self.random.choice((1, 2)) if self.random.random() < 0.2 else None

    def pair(self, kind: str) -> View:
        return View(self.of, "x", (), [Part(kind, "x", "y", [self.edge("x", "y")], self.least())], self.least() if kind != "full" else None)

    def core(self, made: type[View] = View) -> View:
        return made(self.of, "xy", [self.edge("x", "y")], (), self.least())

    def itself(self, kind: str, more: str = "") -> View:
        """A join of a relation with itself."""
        self.of["y"] = self.of["x"]
        edge = self.edge("x", "y")
        if more:
            ids = Edges(self.random, self.of["x"], self.of["y"]).compare("id", more, "id")
            return View(self.of, "xy", [edge, Edge("x", "y", ids)])
        return View(self.of, "x", (), [Part(kind, "x", "y", [edge])]) if kind else View(self.of, "xy", [edge])

    def path(self) -> View:
        return View(self.of, self.random.choice(("xyz", "yxz", "zyx")), [self.edge("x", "y"), self.other("y", "z")], (), self.least())

    def cycle(self) -> View:
        return View(self.of, "xyz", [self.edge("x", "y"), self.other("y", "z"), self.random.choice((self.edge, self.other))("x", "z")])

    def clique(self) -> View:
        """Of one relation, with the same condition between all."""
        self.of |= {"y": self.of["x"], "z": self.of["x"]}
        condition = self.edge("x", "y").condition
        ids = Edges(self.random, self.of["x"], self.of["y"]).compare("id", self.random.choice(("<", "<>")), "id")
        return View(self.of, "xyz", [Edge(x, y, one) for x, y in combinations("xyz", 2) for one in (condition, ids)])

    def parts(self, *kinds: str) -> View:
        """Two parts on x."""
        edges = self.edge("x", "y"), self.other("x", "z")
        parts = [Part(kind, "x", own, [edge], self.least()) for kind, own, edge in zip(kinds, "yz", edges, strict=True)]
        return View(self.of, "x", (), parts)

    def chain(self) -> View:
        """LEFT JOIN on what another one adds."""
        first, second = self.edge("x", "y"), self.other("y", "z")
        return View(self.of, "x", (), [Part("optional", "x", "y", [first]), Part("optional", "y", "z", [second])])

    def of_two(self, kind: str) -> View:
        """A part of two relations."""
        return View(self.of, "x", (), [Part(kind, "x", "yz", [self.edge("x", "y"), self.other("y", "z")], self.least())], self.least())

    def over_two(self, kind: str) -> View:
        """A core of two relations with a part."""
        return View(self.of, "xz", [self.other("x", "z")], [Part(kind, "x", "y", [self.edge("x", "y")], self.least())])

    def product(self) -> View:
        return View(self.of, "xyz", [self.edge("x", "y")])

    def groups(self, by: Sequence[str], has_max: bool = False, is_left: bool = False) -> View:
        made = self.core(Grouped)
        if is_left:
            made = Grouped(self.of, "x", (), [Part("optional", "x", "y", made.edges)], made.least)
        assert isinstance(made, Grouped)
        made.by, made.has_max = by, has_max
        return made

    def distinct(self, column: str) -> View:
        made = self.core(Distinct)
        assert isinstance(made, Distinct)
        made.column = column
        return made

    def as_of(self, is_left: bool) -> View:
        made = AsOf(self.of, "xy", [self.edge("x", "y")] if self.first != "after" else [])
        made.op, made.is_left = self.random.choice(("<", "<=", ">", ">=")), is_left
        return made

    def stretches(self, covers: bool) -> View:
        edge = self.edge("x", "y")
        while not edge.condition.spans:  # two comparisons, which are no overlap
            self.first = self.first.replace("plain", "overlap").replace("guarded", "overlap")
            edge = self.edge("x", "y")
        (pair,) = edge.condition.spans
        made = Stretched(self.of, "x", [edge], (), self.least())
        made.covers, made.intervals = covers, pair
        return made

    def covered(self) -> View:
        made = Covered(self.of, "x", ())
        made.by = self.random.choice("kg")
        return made


FORMS: Mapping[str, Callable[[Maker], View]] = {
    "inner": Maker.core,
    "left": lambda make: make.pair("optional"),
    "full": lambda make: make.pair("full"),
    "exists": lambda make: make.pair("exists"),
    "absent": lambda make: make.pair("absent"),
    "as of": lambda make: make.as_of(False),
    "as of, left": lambda make: make.as_of(True),
    "gaps": lambda make: make.stretches(False),
    "coverage": lambda make: make.stretches(True),
    "covered": Maker.covered,
    "count": lambda make: make.groups(()),
    "groups by key": lambda make: make.groups("k"),
    "groups by text": lambda make: make.groups("g", has_max=True),
    "groups of left": lambda make: make.groups("k", is_left=True),
    "distinct keys": lambda make: make.distinct("id"),
    "distinct": lambda make: make.distinct("g"),
    "itself, once": lambda make: make.itself("", "<"),
    "itself, others": lambda make: make.itself("", "<>"),
    "itself": lambda make: make.itself(""),
    "itself, absent": lambda make: make.itself("absent"),
    "itself, left": lambda make: make.itself("optional"),
    "path": Maker.path,
    "cycle": Maker.cycle,
    "clique": Maker.clique,
    "product": Maker.product,
    "two absent": lambda make: make.parts("absent", "absent"),
    "exists and absent": lambda make: make.parts("exists", "absent"),
    "two left": lambda make: make.parts("optional", "optional"),
    "left and absent": lambda make: make.parts("optional", "absent"),
    "chain": Maker.chain,
    "left of two": lambda make: make.of_two("optional"),
    "exists of two": lambda make: make.of_two("exists"),
    "absent of two": lambda make: make.of_two("absent"),
    "left over two": lambda make: make.over_two("optional"),
    "exists over two": lambda make: make.over_two("exists"),
    "absent over two": lambda make: make.over_two("absent"),
}
_STRETCHED = {*OVERLAPPING, *(f"keyed {kind}" for kind in OVERLAPPING)}
_EDGES = {"as of": {"equal", "equals", "after"}, "gaps": _STRETCHED, "coverage": _STRETCHED, "covered": {"overlap"}}
FACTORS: Sequence[Sequence[str]] = (tuple(FORMS), KINDS, tuple(NULLS), tuple(NULLS), BOUNDS, BOUNDS, tuple(TYPES))


def is_possible(choice: Choice) -> bool:
    form, kind, *_, type_ = choice
    form = form.partition(",")[0]
    if form in ("gaps", "coverage", "covered") and type_ in ("float64", "decimal"):
        return False  # the twin of stretches counts by whole numbers
    return form not in _EDGES or kind in _EDGES[form]


def made(choice: Choice, number: int) -> tuple[View, list[Relation]]:
    """Return the view of a case, and its relations, whose names have the number."""
    form, kind, nulls, others, bounds, its_bounds, type_ = choice
    relations = [
        Relation(f"{name}{number}", some, these, type_)
        for name, some, these in (("a", nulls, bounds), ("b", others, its_bounds), ("c", others, bounds))
    ]
    return FORMS[form](Maker(random.Random(f"{number} {choice}"), relations, kind)), relations


def anywhere(seed: int) -> Iterator[Choice]:
    """Yield choices from the whole product, at random."""
    rng = random.Random(seed)
    while True:
        choice = tuple(rng.choice(values) for values in FACTORS)
        if is_possible(choice):
            yield choice


def compared_parts() -> Iterator[Choice]:
    """Yield parts of each form that compare the ends of an interval of the row, which may be null."""
    for form in FORMS:
        if any(word in form for word in ("absent", "exists", "left", "chain")) and form not in _EDGES and "as of" not in form:
            yield form, "plain", "both", "none", "[)", "[]", "int64"


def sums_at_the_extremes() -> Iterator[Choice]:
    """Yield sums beyond the range of their type, in the forms that read their spans in different ways."""
    for form in ("inner", "left", "full", "exists", "absent", "count", "path", "cycle"):
        for kind in ("shifted", "window", "slack"):
            yield form, kind, "none", "none", "[)", "[]", "extremes"


def pairwise(seed: int, forms_by_edges: bool = True, tries: int = 40) -> Iterator[Choice]:
    """Yield choices until each possible pair of values of two factors has occurred, each time the one of some random ones that has the most
    new pairs. `forms_by_edges`: also each form with each kind of edge, and with nulls of the other side."""
    rng, left = random.Random(seed), set[tuple[int, str, int, str]]()
    for (p, some), (q, others) in combinations(enumerate(FACTORS), 2):
        if forms_by_edges or (p, q) not in ((0, 1), (0, 3)):
            left |= {(p, x, q, y) for x, y in product(some, others)}
    left = {one for one in left if _can(one)}
    while left:
        p, x, q, y = min(left)
        best, found = None, -1
        for _ in range(tries):
            drawn = [rng.choice(values) for values in FACTORS]
            drawn[p], drawn[q] = x, y
            choice = tuple(drawn)
            if is_possible(choice) and (new := sum(pair in left for pair in _pairs(choice))) > found:
                best, found = choice, new
        if best is None:
            continue
        left -= {*_pairs(best)}
        yield best


def _can(pair: tuple[int, str, int, str]) -> bool:
    """Whether both can occur together."""
    known = {pair[0]: pair[1], pair[2]: pair[3]}
    form = known.get(0, "inner").partition(",")[0]
    if form in ("gaps", "coverage", "covered") and known.get(6) in ("float64", "decimal"):
        return False
    return form not in _EDGES or 1 not in known or known[1] in _EDGES[form]


def _pairs(choice: Choice) -> Iterator[tuple[int, str, int, str]]:
    for (p, x), (q, y) in combinations(enumerate(choice), 2):
        yield p, x, q, y
