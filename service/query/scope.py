"""The names of a definition: its aliases, and the columns and intervals that their relations declare.

Every look-up raises `unknown-column` (or `unknown-relation`), naming what exists instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy

from livejoin.wire.kinds import MOST_DIGITS, digits_of
from livejoin.wire.schema import Column, Interval, RelationDefinition
from livejoin.wire.wording import instead
from service.errors import Problem, unsupported
from service.query.comparisons import common
from service.query.computed import ComputedColumn
from service.query.conditions import ColumnRef, IntervalRef, Term, columns_of, replaced


class Scope:
    """The aliases in order, each with its relation; raises `unknown-relation` for a relation that does not exist.

    `outer`: for a part, the enclosing scope, whose names are visible unless this one has the same name.
    """

    def __init__(self, aliases: Mapping[str, str], relations: Mapping[str, RelationDefinition], outer: Scope | None = None) -> None:
        for relation in aliases.values():
            check_relation(relation, relations)
        self.aliases, self._outer = dict(aliases), outer
        self._visible: dict[str, str] = {**(outer._visible if outer is not None else {}), **aliases}
        own = {alias: relations[relation] for alias, relation in aliases.items()}
        self._definitions: dict[str, RelationDefinition] = {**(outer._definitions if outer is not None else {}), **own}
        self._hidden: Mapping[str, str] = {}
        self._merged: list[list[ColumnRef]] = []  # columns that USING makes one: first the one that the name alone means
        self._computed: dict[str, ComputedColumn] = outer._computed if outer is not None else {}  # of the statement, by name

    def without(self, hidden: Mapping[str, str]) -> Scope:
        """Return this scope as it is seen where some of its aliases cannot be used, each for a reason."""
        made = copy(self)
        made._hidden = hidden
        made.aliases, made._visible = ({a: names[a] for a in names if a not in hidden} for names in (self.aliases, self._visible))
        return made

    def merge(self, left: ColumnRef, right: ColumnRef, is_right: bool) -> None:
        """Make two columns one, as USING does: the name then needs no alias, and means the right one or (not `is_right`) the left one."""
        known = next((one for one in self._merged if left in one), None)
        if known is None:
            known = [left]
            self._merged.append(known)
        known.insert(0 if is_right else len(known), right)

    def of(self, aliases: Iterable[str]) -> Scope:
        """Return a scope of these aliases, in this order, in which the other aliases of this scope are usable."""
        made = copy(self)
        made.aliases = {alias: self._visible[alias] for alias in aliases}
        return made

    def definition(self, alias: str, name: str = "") -> RelationDefinition:
        """`name`: what is looked for in it, for messages."""
        if alias not in self._visible:
            what = f"{alias}.{name}: " if name else ""
            if (why := self._hidden.get(alias) or (self._outer and self._outer._hidden.get(alias))) is not None:
                raise Problem("unknown-column", f"{what}{alias} cannot be used here: {why}")
            called = [one for one, relation in self._visible.items() if relation == alias]
            there = f"here {alias} is called {' or '.join(called)}" if called else f"the aliases are {', '.join(self._visible)}"
            raise Problem("unknown-column", f"{what}there is no alias {alias}; {there}")
        return self._definitions[alias]

    def columns(self, alias: str) -> list[ColumnRef]:
        """Return the columns of `alias.*`: not the key of a table of constants that has none of its own."""
        return [ColumnRef(alias, column.name) for column in self.definition(alias, "*").columns if "." not in column.name]

    def column(self, alias: str, name: str) -> ColumnRef:
        definition = self.definition(alias, name)
        if name in definition.intervals:
            raise Problem(
                "unknown-column", _is_interval(f"{alias}.{name}", definition.intervals[name])
            )
        if not any(column.name == name for column in definition.columns):
            relation, names = self._visible[alias], [ref.column for ref in self.columns(alias)]
            of = alias if relation.startswith("~") else relation
            raise Problem("unknown-column", f"{of} has no column {name}{_instead(name, names, definition.intervals)}")
        return ColumnRef(alias, name)

    def interval(self, alias: str, name: str) -> IntervalRef:
        definition = self.definition(alias, name)
        if name not in definition.intervals:
            declared = list(definition.intervals)
            detail = f"{self._visible[alias]} has no interval {name}" + (_instead(name, declared) if declared else "; it declares none")
            raise Problem("unknown-column", detail)
        return IntervalRef(alias, name)

    def find_column(self, name: str) -> list[ColumnRef]:
        """Return the columns that an unqualified name may mean: one, or several if it is ambiguous."""
        found = [ColumnRef(alias, name) for alias in self._find(name, lambda one: any(c.name == name for c in one.columns))]
        if not found:
            seen = [self._definitions[alias] for alias in self._visible]
            for one in seen:
                if name in one.intervals:
                    raise Problem("unknown-column", _is_interval(name, one.intervals[name]))
            names = [ref.column for alias in self._visible for ref in self.columns(alias)]
            intervals = [interval for one in seen for interval in one.intervals]
            raise Problem("unknown-column", f"no relation of the view has a column {name}{_instead(name, names, intervals)}")
        return found

    def find_interval(self, name: str) -> list[IntervalRef]:
        """Return the intervals that an unqualified name may mean."""
        found = [IntervalRef(alias, name) for alias in self._find(name, lambda one: name in one.intervals)]
        if not found:
            names = [interval for alias in self._visible for interval in self._definitions[alias].intervals]
            raise Problem("unknown-column", f"no relation of the view has an interval {name}{_instead(name, names)}")
        return found

    def _find(self, name: str, has: Callable[[RelationDefinition], bool]) -> list[str]:
        """Return the aliases whose relations have this name: one of those that USING makes one, those of the enclosing scope if there are
        none here. If only aliases have it that cannot be used here, the problem says so."""
        found = [alias for alias in self.aliases if has(self._definitions[alias])]
        for merged in self._merged if found else ():
            if set(merged).issuperset(ColumnRef(alias, name) for alias in found):
                return [next(one.alias for one in merged if one.alias in found)]
        if not found and self._outer is not None:
            found = self._outer._find(name, has)
            for alias in found:
                if alias not in self._visible or alias in self.aliases:
                    hidden = f"{name} is of {alias} outside of the subquery, which has an alias {alias} of its own"
                    raise Problem("unsupported-query", f"{hidden}: rename one of the two")
        for alias in self._hidden if not found else ():
            if has(self._definitions[alias]):
                self.definition(alias, name)
        return found

    def intervals_over(self, start: ColumnRef, end: ColumnRef) -> Iterator[IntervalRef]:
        """Yield the declared intervals of one alias that start in `start` and end in `end`."""
        if start.alias == end.alias:
            for name, interval in self.definition(start.alias).intervals.items():
                if (interval.start_column, interval.end_column) == (start.column, end.column):
                    yield IntervalRef(start.alias, name)

    def describe(self, ref: ColumnRef) -> Column:
        definition = self.definition(ref.alias)
        return self._computed[ref.column].within(definition) if ref.is_computed else definition.column(ref.column)

    def term_of(self, ref: ColumnRef) -> Term:
        """Return the expression that a column is."""
        if ref.is_computed:
            return replaced(self._computed[ref.column].term, lambda one: one._replace(alias=ref.alias))
        return Term("column", self.describe(ref).kind, (), ref)

    def equated(self, left: ColumnRef, right: ColumnRef) -> tuple[ColumnRef, ColumnRef]:
        """Return the columns of one type that are equal where the values of two columns are. Problem `unsupported-query`."""
        for ref in (left, right):
            self.require_comparable(ref)
        x, y = common("=", self.term_of(left), self.term_of(right))
        return self.compute(x), self.compute(y)

    @property
    def computed(self) -> tuple[ComputedColumn, ...]:
        """Those of the whole statement, as far as it is read."""
        return tuple(self._computed[name] for name in sorted(self._computed))

    def compute(self, term: Term) -> ColumnRef:
        """Return an expression over one alias as a column of it. Problem `unsupported-query`: its values cannot be compared."""
        if term.op == "column":
            found: ColumnRef = term.value
            return found
        digits = digits_of(term.kind)
        if digits is not None and digits[0] > MOST_DIGITS:
            said = f"aliases are compared by up to {MOST_DIGITS} digits, and it may have {digits[0]}: cast it to a decimal of fewer"
            raise unsupported(f"the comparison of {term} with another alias", said)
        one = ComputedColumn.of(term)
        self._computed[one.name] = one
        return ColumnRef(next(iter(columns_of(term))).alias, one.name)

    def require_comparable(self, ref: ColumnRef, what: str = "comparing") -> None:
        """Raise `unsupported-query` for a column of a type without comparisons."""
        if self.describe(ref).type == "json":
            instead = "json can be selected, counted, and tested with IS NULL; store values to be compared in a separate column"
            raise Problem("unsupported-query", f"{what} {ref}, which is json, is not supported: {instead}")

    def require_alike(self, left: ColumnRef, right: ColumnRef) -> None:
        """Raise `unsupported-query` for columns that cannot be compared with each other."""
        for ref in (left, right):
            self.require_comparable(ref)
        types = self.describe(left).comparable, self.describe(right).comparable
        if types[0] != types[1]:
            raise unsupported(f"comparing {left} with {right}", f"the types differ, {types[0]} and {types[1]}: use the same type for both")

    def require_to_meet(self, x: IntervalRef, y: IntervalRef) -> None:
        """Raise `unsupported-query` for intervals whose overlap is no condition of a join."""
        if x.alias == y.alias:
            raise unsupported(f"an overlap of intervals of one alias ({x} and {y})", "compare the columns of their ends")
        ends = self.endpoint_type(x), self.endpoint_type(y)
        if ends[0] != ends[1]:
            raise unsupported(f"overlaps({x}, {y})", f"the endpoints' types differ, {ends[0]} and {ends[1]}: use the same type for both")

    def declared(self, ref: IntervalRef) -> Interval:
        return self.definition(ref.alias).intervals[ref.interval]

    def strictness(self, x: IntervalRef, y: IntervalRef) -> tuple[bool, bool] | None:
        """Return whether `x.start ? y.end` and `y.start ? x.end` are strict in the overlap of x and y. None: an open start meets an open
        end, and the overlap requires a value between them, which no comparison can express."""
        one, other = self.declared(x), self.declared(y)
        pairs = (one.start_open, other.end_open), (other.start_open, one.end_open)
        return None if any(map(all, pairs)) else (any(pairs[0]), any(pairs[1]))

    def endpoint_type(self, ref: IntervalRef) -> str:
        return self.definition(ref.alias).column(self.declared(ref).start_column).comparable


def _is_interval(name: str, declared: Interval) -> str:
    ends = " and ".join(dict.fromkeys((declared.start_column, declared.end_column)))
    return f"{name} is an interval, not a column: use it in overlaps, intersection and duration, or name its ends, {ends}"


def check_relation(name: str, relations: Mapping[str, RelationDefinition], views: Iterable[str] = ()) -> None:
    if name not in relations:
        detail = f"there is no relation or view {name}{_instead(name, [*relations, *views])}"
        raise Problem("unknown-relation", detail, relation=name)


def _instead(name: str, names: Iterable[str], others: Iterable[str] = ()) -> str:
    names = list(dict.fromkeys(names))
    if name.lower() != name or any(other.lower() == name for other in names):
        same = [other for other in names if other.lower() == name.lower()]
        if same:
            return f', but {same[0]}: in SQL write "{same[0]}" in double quotes'
    return instead(name, names, others)
