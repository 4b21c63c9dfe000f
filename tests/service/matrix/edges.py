"""The kinds of edges between two aliases: a condition as it is written, and what SQL's three-valued logic says of two rows.

Nothing here knows what the service makes of a condition: `a.s < b.e AND b.s < a.e` is two comparisons and an AND, whatever is declared.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.service.matrix.rows import Relation, Row

Truth = bool | None
Test = Callable[[Row, Row], Truth]
_OPS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


class Condition(NamedTuple):
    """`text` names the aliases {x} and {y}. `spans`: the intervals of x and of y to which a window of the view applies; None: in several
    dimensions. `equal`: the columns that are equal in both."""

    text: str
    test: Test
    spans: tuple[tuple[str, str], ...] | None = ()
    equal: tuple[str, ...] = ()


def both(*truths: Truth) -> Truth:
    """AND."""
    return False if False in truths else None if None in truths else True


def either(*truths: Truth) -> Truth:
    """OR."""
    return True if True in truths else None if None in truths else False


def compared(op: str, left: Any, right: Any) -> Truth:
    return None if left is None or right is None else _OPS[op](left, right)


def together(conditions: Sequence[Condition]) -> Condition:
    spans = tuple(pair for one in conditions for pair in one.spans or ())
    text, equal = " AND ".join(one.text for one in conditions), tuple(column for one in conditions for column in one.equal)
    return Condition(text, lambda x, y: both(*(one.test(x, y) for one in conditions)), spans, equal)


class Edges:
    """Conditions between rows of two relations, drawn."""

    def __init__(self, rng: random.Random, x: Relation, y: Relation) -> None:
        self.random, self.x, self.y = rng, x, y

    def drawn(self, kind: str) -> Condition:
        """Return a condition of a kind (`KINDS`); "keyed …": with an equality."""
        keyed, _, rest = kind.rpartition(" ")
        made: Condition = getattr(self, rest)()
        return together(self.random.sample([self.equal(), made], 2))._replace(spans=made.spans) if keyed else made

    def compare(self, mine: str, op: str, theirs: str) -> Condition:
        """`x.mine op y.theirs`, in one of the ways to write it."""
        left, right = f"{{x}}.{mine}", f"{{y}}.{theirs}"
        texts = [f"{left} {op} {right}", f"{right} {_MIRRORED[op]} {left}", f"NOT ({left} {_OPPOSITE[op]} {right})"]
        return Condition(self.random.choice(texts), lambda x, y: compared(op, x[mine], y[theirs]), equal=(mine,) if op == "=" else ())

    def equal(self) -> Condition:
        return self.compare("k", "=", "k")

    def equals(self) -> Condition:
        return together([self.equal(), self.compare("g", "=", "g")])

    def unequal(self) -> Condition:
        return together([self.equal(), self.compare("v", "<>", "v")])

    def words(self) -> Condition:
        return together([self.equal(), self.compare("g", self.random.choice(("<", "<=")), "g")])

    def before(self) -> Condition:
        return self.compare("s", self.random.choice(("<", "<=")), "e")

    def after(self) -> Condition:
        return self.compare("t", self.random.choice((">", ">=")), "t")

    def near(self) -> Condition:
        distance = self.random.choice((0, 1, 2))
        text = self.x.ends.distance(distance)
        written = self.random.choice((f"abs({{x}}.t - {{y}}.t) <= {text}", f"{{y}}.t BETWEEN {{x}}.t - {text} AND {{x}}.t + {text}"))
        return Condition(written, lambda x, y: None if x["t"] is None or y["t"] is None else abs(x["t"] - y["t"]) <= distance)

    def shifted(self, mine: str = "", theirs: str = "", op: str = "") -> Condition:
        """`x.mine + n op y.theirs`, in one of the ways to write it."""
        mine, theirs = mine or self.random.choice("setn"), theirs or self.random.choice("setn")
        op, n, type_ = op or self.random.choice(("<", "<=", ">", ">=", "=")), self.random.choice(self.x.ends.lengths), self.x.ends
        left, right, length = f"{{x}}.{mine}", f"{{y}}.{theirs}", type_.distance(abs(n))
        less, more = ("-", "+") if n < 0 else ("+", "-")
        texts = [f"{left} {less} {length} {op} {right}", f"{left} {op} {right} {more} {length}"]
        texts += [f"{more}{length} {_MIRRORED[op]} {left} - {right}", f"{right} - {left} {_MIRRORED[op]} {less}{length}"]
        texts += [f"NOT ({left} {_OPPOSITE[op]} {right} {more} {length})"] * (op != "=")

        def test(x: Row, y: Row) -> Truth:
            return compared(op, None if x[mine] is None else x[mine] + n, y[theirs])

        return Condition(self.random.choice(texts), test)

    def window(self) -> Condition:
        """A point between two sums, which may be empty."""
        ops, point = [self.random.choice(one) for one in (("<", "<="), (">", ">="))], self.random.choice("tn")
        ends = [self.random.choice("sen") for _ in ops]
        if point == "n" and self.random.random() < 0.2:
            return together([self.compare(end, op, point) for end, op in zip(ends, ops, strict=True)])
        if self.random.random() < 0.5:
            return together([self.shifted(end, point, op) for end, op in zip(ends, ops, strict=True)])
        return together([self.shifted(point, end, op) for end, op in zip(ends, ops, strict=True)])

    def slack(self) -> Condition:
        """An overlap of intervals that are longer, or shorter, than those of the rows."""
        ops = self.random.choice((("<", ">"), ("<=", ">="), ("<", ">=")))
        return together([self.shifted("s", "e", ops[0]), self.shifted("e", "s", ops[1])])

    def overlap(self, mine: str = "i", theirs: str = "i") -> Condition:
        def test(x: Row, y: Row) -> Truth:
            one, other = self.x.closed(x, mine), self.y.closed(y, theirs)
            return one is not None and other is not None and one[0] <= other[1] and other[0] <= one[1]

        texts = [f"overlaps({{x}}.{mine}, {{y}}.{theirs})", f"{{y}}.{theirs} OVERLAPS {{x}}.{mine}"]
        if (mine, theirs) == ("i", "i"):
            texts.append("({x}.s, {x}.e) OVERLAPS ({y}.s, {y}.e)")
        return Condition(self.random.choice(texts), test, ((mine, theirs),))

    def point(self) -> Condition:
        return self.overlap(*self.random.choice((("i", "p"), ("p", "i"), ("p", "p"))))

    def _ops(self, mine: str, theirs: str) -> tuple[str, str]:
        """Return the comparisons of x's start with y's end, and of y's start with x's end, that the bounds stand for."""
        (start, end), (other, last) = self.x.opens(mine), self.y.opens(theirs)
        return "<" if start or last else "<=", "<" if other or end else "<="

    def _is_overlap(self, mine: str, theirs: str) -> bool:
        """Whether comparisons can say that these intervals overlap: no open start meets an open end."""
        (start, end), (other, last) = self.x.opens(mine), self.y.opens(theirs)
        return not (start and last) and not (other and end)

    def plain(self) -> Condition:
        first, second = self._ops("i", "i")
        made = together(self.random.sample([self.compare("s", first, "e"), self.compare("e", _MIRRORED[second], "s")], 2))
        return made._replace(spans=(("i", "i"),) * self._is_overlap("i", "i"))

    def loose(self) -> Condition:
        """In any strictness."""
        ops = [self.random.choice(("<", "<=")) for _ in range(2)]
        return together([self.compare("s", ops[0], "e"), self.compare("e", _MIRRORED[ops[1]], "s")])._replace(spans=None)

    def within(self) -> Condition:
        """A point of y in an interval of x by comparisons, or the other way round."""
        if self.random.random() < 0.5:
            first, second = self._ops("i", "p")
            if (first, second) == ("<=", "<=") and self.random.random() < 0.5:
                text = "{y}.t BETWEEN {x}.s AND {x}.e"
                return Condition(text, lambda x, y: both(compared("<=", x["s"], y["t"]), compared("<=", y["t"], x["e"])), (("i", "p"),))
            return together([self.compare("s", first, "t"), self.compare("e", _MIRRORED[second], "t")])._replace(spans=(("i", "p"),))
        first, second = self._ops("p", "i")
        return together([self.compare("t", first, "e"), self.compare("t", _MIRRORED[second], "s")])._replace(spans=(("p", "i"),))

    def guarded(self) -> Condition:
        """Comparisons of the ends that take some nulls as unbounded: by OR, or by COALESCE, where that is possible."""
        if not self._is_overlap("i", "i"):
            return self.plain()
        first, second = self._ops("i", "i")
        made = together([self._guarded(("x", "s"), first, ("y", "e")), self._guarded(("y", "s"), second, ("x", "e"))])
        return made._replace(spans=(("i", "i"),))

    def _guarded(self, low: tuple[str, str], op: str, high: tuple[str, str]) -> Condition:
        guards = [input for input in (low, high) if self.random.random() < 0.6]
        texts = {input: f"{{{input[0]}}}.{input[1]}" for input in (low, high)}
        nullable = [input for input in (low, high) if input[1] in (self.x if input[0] == "x" else self.y).nulls]
        if self.random.random() < 0.5 or (guards and not {*nullable} <= {*guards}):
            infinite = {low: "-infinity", high: "infinity"}
            ends = {input: f"COALESCE({text}, '{infinite[input]}')" if input in guards else text for input, text in texts.items()}

            def value(input: tuple[str, str], rows: dict[str, Row], infinity: float) -> Any:
                found = rows[input[0]][input[1]]
                return infinity if found is None and input in guards else found

            def test(x: Row, y: Row) -> Truth:
                rows = {"x": x, "y": y}
                return compared(op, value(low, rows, -math.inf), value(high, rows, math.inf))

            return Condition(f"{ends[low]} {op} {ends[high]}", test)
        cases = [f"{texts[input]} IS NULL" for input in guards] + [f"{texts[low]} {op} {texts[high]}"]
        self.random.shuffle(cases)

        def one_of(x: Row, y: Row) -> Truth:
            rows = {"x": x, "y": y}
            missing = [rows[input[0]][input[1]] is None for input in guards]
            return either(*missing, compared(op, rows[low[0]][low[1]], rows[high[0]][high[1]]))

        return Condition(f"({' OR '.join(cases)})" if len(cases) > 1 else cases[0], one_of)

    def box(self) -> Condition:
        """Two conditions on intervals, or more."""
        first = self.random.choice((self.overlap, self.plain, self.before, self.guarded))()
        others = self.overlap("j", "j"), self.compare("v", "<=", "v"), self.near(), self.after()
        return together([first, self.random.choice(others)])._replace(spans=None)


OVERLAPPING = ("overlap", "plain", "guarded", "point", "within")
ALONE = ("equal", "equals", "before", "after", "near", "loose", "box", "unequal", "words", "shifted", "window", "slack", *OVERLAPPING)
KINDS = (*ALONE, *(f"keyed {kind}" for kind in ("before", "near", "loose", "box", "shifted", "window", "slack", *OVERLAPPING)))
