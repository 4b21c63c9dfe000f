"""The contents of relations and views after each batch, computed in the simplest way: rows in dicts, joins by nested loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any, NamedTuple

from tests.relations import declared

Row = tuple[Any, ...]
Rows = Mapping[str, Row]  # by identity: the JSON of a follower's `key`

_COLUMNS = ("id", "room", "a", "b", "tag")
DEFINITION = declared("id:int64, room:string, a:int64, b:int64, tag:string?", span="a b")
RELATIONS = ("stays", "jobs")
ADDED = tuple(f"n{number}" for number in range(3))  # columns by which a definition is extended
Relations = Mapping[str, Mapping[int, Row]]
Columns = Mapping[str, Iterable[str]]  # by relation, those of ADDED that are known to exist


class Change(NamedTuple):
    """`op` upsert, delete (`row` is the key alone) or truncate (no row); or a batch by itself: replace (the rows, and the keys of bad rows,
    which stay), delete-where (column, operator, value)."""

    op: str
    relation: str
    row: Row

    def body(self) -> dict[str, Any]:
        found: dict[str, Any] = {"relation": self.relation, "op": self.op}
        if self.op == "upsert":
            found["row"] = shown(self.row)
        elif self.op == "delete":
            found["key"] = {"id": self.row[0]}
        return found


def shown(row: Row) -> dict[str, Any]:
    """Return a row of a relation as it is sent."""
    return dict(zip(_COLUMNS, row, strict=False)) | dict(row[len(_COLUMNS)] if len(row) > len(_COLUMNS) else ())


def row_of(name: str, found: Mapping[str, Any]) -> Row:
    """Return a row of a relation or view as it was received. Values of columns of ADDED come after the others, if there are any."""
    row = tuple(found[column] for column in COLUMNS[name])
    added = tuple((column, found[column]) for column in ADDED if found.get(column) is not None) if name in RELATIONS else ()
    return (*row, added) if added else row


def _drawn_row(chance: Random, key: int, columns: Iterable[str]) -> Row:
    start = chance.randrange(100)
    tag = chance.choice(("u", "v", None, "x" * chance.randrange(300)))
    row = key, chance.choice("ABC"), start, start + chance.randrange(1, 12), tag
    added = tuple((column, chance.randrange(9)) for column in sorted(columns) if chance.random() < 0.5)
    return (*row, added) if added else row


_WHERE: tuple[tuple[str, str, Any], ...] = (
    ("a", "<", 30), ("b", ">=", 80), ("room", "=", "A"), ("tag", "is_null", None), ("id", "in", (1, 5, 9)), ("tag", "!=", "u"),
)  # fmt: skip


def _meets(row: Row, condition: Row) -> bool:
    """As in SQL: null meets nothing but is_null."""
    column, op, value = condition
    mine = row[_COLUMNS.index(column)]
    if op == "is_null" or mine is None:
        return op == "is_null" and mine is None
    return bool({"<": lambda: mine < value, ">=": lambda: mine >= value, "=": lambda: mine == value, "!=": lambda: mine != value,
                 "in": lambda: mine in value}[op]())  # fmt: skip


def drawn(chance: Random, ids: int = 24, columns: Columns | None = None) -> tuple[Change, ...]:
    """Return the changes of a random batch. `columns`: those that it may use."""
    changes = []
    of = {name: (columns or {}).get(name, ()) for name in RELATIONS}
    relation, kind = chance.choice(RELATIONS), chance.random()
    if kind < 0.06:
        keys = chance.sample(range(ids), chance.randrange(ids))
        rows = tuple(_drawn_row(chance, key, of[relation]) for key in keys)
        return (Change("replace", relation, (rows, tuple(chance.sample(range(ids), chance.randrange(3))))),)
    if kind < 0.12:
        return (Change("delete-where", relation, chance.choice(_WHERE)),)
    for _ in range(chance.randrange(1, 6)):
        relation, key, op = chance.choice(RELATIONS), chance.randrange(ids), chance.random()
        if op < 0.01:
            changes.append(Change("truncate", relation, ()))
        elif op < 0.3:
            changes.append(Change("delete", relation, (key,)))
        else:
            changes.append(Change("upsert", relation, _drawn_row(chance, key, of[relation])))
    return tuple(changes)


class State:
    """The relations at one version: rows by id. It is immutable; `after` returns the next state."""

    def __init__(self, relations: Relations | None = None) -> None:
        self.relations = relations or {name: {} for name in RELATIONS}
        self._views: dict[str, Rows] = {}

    def after(self, changes: Iterable[Change]) -> State:
        relations = {name: dict(rows) for name, rows in self.relations.items()}
        for op, name, row in changes:
            if op == "truncate":
                relations[name].clear()
            elif op == "delete":
                relations[name].pop(row[0], None)
            elif op == "replace":
                new, kept = row
                stay = {key: relations[name][key] for key in kept if key in relations[name]}
                relations[name] = stay | {one[0]: one for one in new}
            elif op == "delete-where":
                relations[name] = {key: one for key, one in relations[name].items() if not _meets(one, row)}
            else:
                relations[name][row[0]] = row
        return State(relations)

    def rows(self, name: str) -> Rows:
        """Return the rows of a relation or a view."""
        if name not in self._views:
            if name in self.relations:
                self._views[name] = {str(key): row for key, row in self.relations[name].items()}
            else:
                self._views[name] = VIEWS[name].rows(self.relations)
        return self._views[name]


class View(NamedTuple):
    sql: str
    columns: tuple[str, ...]
    rows: Callable[[Relations], Rows]


def _of_one(alias: str, relation: str, shown: Callable[[Row], Row | None]) -> Callable[[Relations], Rows]:
    """`shown` returns the row, or None."""
    return lambda relations: {
        f'{{"{alias}":{{"id":{row[0]}}}}}': made for row in relations[relation].values() if (made := shown(row)) is not None
    }


def _of_two(aliases: tuple[tuple[str, str], ...], joined: Callable[[Row, Row], Row | None]) -> Callable[[Relations], Rows]:
    """`aliases` in the order of the identity's JSON; `joined` returns the row, or None."""
    (x, first), (y, second) = aliases
    return lambda relations: {
        f'{{"{x}":{{"id":{one[0]}}},"{y}":{{"id":{other[0]}}}}}': made
        for one in relations[first].values() for other in relations[second].values() if (made := joined(one, other)) is not None
    }  # fmt: skip


def _newest(relations: Relations) -> Rows:
    found = dict[str, Row]()
    for row in sorted(relations["stays"].values(), key=lambda row: (row[2], row[0])):
        found[row[1]] = row
    return {f'{{"s":{{"id":{row[0]}}}}}': (row[1], row[0], row[4]) for row in found.values()}


def _begun(relations: Relations) -> Rows:
    found = dict[str, Row]()
    for stay in relations["stays"].values():
        jobs = [job for job in relations["jobs"].values() if job[1] == stay[1] and job[2] <= stay[2]]
        job = max(jobs, key=lambda job: (job[2], job[0]), default=None)
        key = "null" if job is None else f'{{"id":{job[0]}}}'
        found[f'{{"j":{key},"s":{{"id":{stay[0]}}}}}'] = (stay[0], *((None, None) if job is None else (job[0], job[3])))
    return found


def _meet(x: Row, y: Row) -> bool:
    return bool(x[2] < y[3] and y[2] < x[3])


VIEWS = {
    "clashes": View(
        "SELECT s.id AS stay, j.id AS job, s.tag AS tag FROM stays s JOIN jobs j ON s.room = j.room AND overlaps(s.span, j.span)",
        ("stay", "job", "tag"),
        _of_two((("j", "jobs"), ("s", "stays")), lambda j, s: (s[0], j[0], s[4]) if s[1] == j[1] and _meet(s, j) else None),
    ),
    "pairs": View(
        "SELECT x.id AS x, y.id AS y FROM stays x JOIN stays y ON overlaps(x.span, y.span) AND x.id < y.id",
        ("x", "y"),
        _of_two((("x", "stays"), ("y", "stays")), lambda x, y: (x[0], y[0]) if _meet(x, y) and x[0] < y[0] else None),
    ),
    "rooms": View(
        "SELECT s.id AS stay, j.id AS job, j.a AS a FROM stays s JOIN jobs j ON s.room = j.room",
        ("stay", "job", "a"),
        _of_two((("j", "jobs"), ("s", "stays")), lambda j, s: (s[0], j[0], j[2]) if s[1] == j[1] else None),
    ),
    "tagged": View(
        "SELECT s.id AS id, s.b AS b FROM stays s WHERE s.tag = 'u'",
        ("id", "b"),
        _of_one("s", "stays", lambda s: (s[0], s[3]) if s[4] == "u" else None),
    ),
    "newest": View(
        "SELECT DISTINCT ON (s.room) s.room AS room, s.id AS id, s.tag AS tag FROM stays s ORDER BY s.room, s.a DESC",
        ("room", "id", "tag"),
        _newest,
    ),
    "begun": View(
        "SELECT s.id AS stay, j.id AS job, j.b AS b FROM stays s ASOF LEFT JOIN jobs j ON s.room = j.room AND j.a <= s.a",
        ("stay", "job", "b"),
        _begun,
    ),
}
COLUMNS = {**dict.fromkeys(RELATIONS, _COLUMNS), **{name: view.columns for name, view in VIEWS.items()}}
