"""Random graphs of views: each a random query over relations and earlier views, with the same text for livejoin and for DuckDB."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from livejoin.wire.batch import DELETE, TRUNCATE, UPSERT, Batch, Changes, RowBlock
from livejoin.wire.schema import RelationDefinition, parse_relation
from tests.relations import declared

RELATIONS: dict[str, RelationDefinition] = {
    "b": parse_relation(declared("id:int64, room:int64, guest:string?, price:int64?, s:int64, e:int64", stay="s e [)")),
    "m": parse_relation(declared("id:int64, room:int64, s:int64, e:int64", slot="s e [)")),
    "r": parse_relation(declared("id:int64, room:int64?, hotel:int64, guest:string?")),
}
_KEYS = 14
Row = dict[str, Any]


class Node(NamedTuple):
    """A relation or a view: its integers and its texts; perhaps with a time, from column s to column e."""

    name: str
    numbers: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def has_time(self) -> bool:
        return {"s", "e"} <= {*self.numbers}


def _node_of(name: str, columns: dict[str, bool]) -> Node:
    """`columns`: whether each is a text."""
    numbers = tuple(one for one, is_text in columns.items() if not is_text)
    return Node(name, numbers, tuple(one for one, is_text in columns.items() if is_text))


NODES = [
    Node("b", ("id", "room", "price", "s", "e"), ("guest",)),
    Node("m", ("id", "room", "s", "e"), ()),
    Node("r", ("id", "room", "hotel"), ("guest",)),
]


class Graph:
    """Draws views; `add` those that were accepted."""

    def __init__(self, rng: random.Random) -> None:
        self.random, self.nodes, self.texts = rng, list(NODES), dict[str, str]()

    def draw(self) -> tuple[str, Node]:
        """Return the text of a view, and what it is as a node."""
        rng, name = self.random, f"v{len(self.texts)}"
        forms = (
            self._filtered, self._joined, self._joined, self._grouped, self._grouped, self._distinct, self._outer, self._united,
            self._existing, self._latest, self._grouped_join, self._nested, self._scalar, self._inside,
            self._three, self._first, self._either, self._deep, self._window,
        )  # fmt: skip
        while True:
            columns, text = rng.choice(forms)()
            if (node := _node_of(name, columns)).numbers:
                return text, node

    def add(self, text: str, node: Node) -> None:
        self.nodes.append(node)
        self.texts[node.name] = text

    def _node(self) -> Node:
        return self.random.choice(self.nodes if self.random.random() < 0.5 else self.nodes[-4:])

    def _columns(self, node: Node, alias: str, prefix: str = "") -> tuple[dict[str, bool], list[str]]:
        """Some columns of a node, whether each is a text, and how they are selected."""
        rng = self.random
        some = [one for one in (*node.numbers, *node.texts) if rng.random() < 0.7]
        some += [node.numbers[0]] if {*some} <= {*node.texts} else []
        computed = {one for one in some if one in node.numbers and rng.random() < 0.1}
        selected = [f"{alias}.{one}{' + 1' if one in computed else ''} AS {prefix}{one}" for one in some]
        return {f"{prefix}{one}": one in node.texts for one in some}, selected

    def _condition(self, node: Node, alias: str) -> str:
        rng = self.random
        number = f"{alias}.{rng.choice(node.numbers)}"
        return rng.choice((f"{number} > {rng.randrange(4)}", f"{number} % 2 = 0", f"{number} IS NOT NULL", f"{number} BETWEEN 1 AND 9"))

    def _on(self, x: Node, y: Node) -> str:
        rng = self.random
        if x.has_time and y.has_time and rng.random() < 0.4:
            return "x.s < y.e AND y.s < x.e"
        if x.texts and y.texts and rng.random() < 0.3:
            return f"x.{rng.choice(x.texts)} = y.{rng.choice(y.texts)}"
        return f"x.{rng.choice(x.numbers)} = y.{rng.choice(y.numbers)}"

    def _filtered(self) -> tuple[dict[str, bool], str]:
        node = self._node()
        columns, selected = self._columns(node, "x")
        return columns, f"SELECT {', '.join(selected)} FROM {node.name} x WHERE {self._condition(node, 'x')}"

    def _joined(self) -> tuple[dict[str, bool], str]:
        x, y = self._node(), self._node()
        (columns, selected), (more, others) = self._columns(x, "x"), self._columns(y, "y", "y")
        where = f" WHERE {self._condition(y, 'y')}" if self.random.random() < 0.3 else ""
        return columns | more, f"SELECT {', '.join([*selected, *others])} FROM {x.name} x JOIN {y.name} y ON {self._on(x, y)}{where}"

    def _grouped(self) -> tuple[dict[str, bool], str]:
        node = self._node()
        aggregates = ["count(*) AS n", f"sum(x.{self.random.choice(node.numbers)}) AS t", f"max(x.{self.random.choice(node.numbers)}) AS z"]
        some = self.random.sample(aggregates, self.random.randrange(1, 4))
        columns_of = (*node.numbers, *node.texts)
        keys = self.random.sample(columns_of, min(len(columns_of), self.random.choice((0, 1, 1, 1, 2))))
        columns = {f"k{one}": one in node.texts for one in keys} | {one.split()[-1]: False for one in some}
        selected = ", ".join([*(f"x.{one} AS k{one}" for one in keys), *some])
        by = f" GROUP BY {', '.join(f'x.{one}' for one in keys)}" if keys else ""
        return columns, f"SELECT {selected} FROM {node.name} x{by}"

    def _grouped_join(self) -> tuple[dict[str, bool], str]:
        x, y = self._node(), self._node()
        key = self.random.choice(x.numbers)
        of = self.random.choice(y.numbers)
        text = f"SELECT x.{key} AS g, count(*) AS n, min(y.{of}) AS z FROM {x.name} x JOIN {y.name} y ON {self._on(x, y)} GROUP BY x.{key}"
        return {"g": False, "n": False, "z": False}, text

    def _distinct(self) -> tuple[dict[str, bool], str]:
        node = self._node()
        columns, selected = self._columns(node, "x")
        return columns, f"SELECT DISTINCT {', '.join(selected)} FROM {node.name} x"

    def _outer(self) -> tuple[dict[str, bool], str]:
        x, y = self._node(), self._node()
        (columns, selected), (more, others) = self._columns(x, "x"), self._columns(y, "y", "y")
        kind = self.random.choice(("LEFT", "LEFT", "RIGHT", "FULL"))
        return columns | more, f"SELECT {', '.join([*selected, *others])} FROM {x.name} x {kind} JOIN {y.name} y ON {self._on(x, y)}"

    def _united(self) -> tuple[dict[str, bool], str]:
        x, y = self._node(), self._node()
        word = self.random.choice(("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"))
        first = f"SELECT x.{self.random.choice(x.numbers)} AS u FROM {x.name} x"
        return {"u": False}, f"{first} {word} SELECT y.{self.random.choice(y.numbers)} AS u FROM {y.name} y"

    def _existing(self) -> tuple[dict[str, bool], str]:
        x, y = self._node(), self._node()
        columns, selected = self._columns(x, "x")
        word = self.random.choice(("EXISTS", "NOT EXISTS"))
        return columns, f"SELECT {', '.join(selected)} FROM {x.name} x WHERE {word} (SELECT 1 FROM {y.name} y WHERE {self._on(x, y)})"

    def _latest(self) -> tuple[dict[str, bool], str]:
        node = self.random.choice(NODES)
        columns, selected = self._columns(node, "x")
        by, *others = self.random.sample((*node.numbers, *node.texts), self.random.choice((1, 2, 3)))
        order = "".join(f"x.{one} {self.random.choice(('', 'DESC'))} NULLS {self.random.choice(('FIRST', 'LAST'))}, " for one in others)
        ranked = f"row_number() OVER (PARTITION BY x.{by} ORDER BY {order}x.id DESC) <= {self.random.randrange(1, 3)}"
        return columns, f"SELECT {', '.join(selected)} FROM {node.name} x QUALIFY {ranked}"

    def _nested(self) -> tuple[dict[str, bool], str]:
        x, (columns, inner) = self._node(), self.random.choice((self._grouped, self._distinct, self._joined, self._united))()
        y = _node_of("", columns)
        if not y.numbers:
            return self._filtered()
        (own, selected), (more, others) = self._columns(x, "x"), self._columns(y, "y", "y")
        kind = self.random.choice(("JOIN", "LEFT JOIN"))
        return own | more, f"SELECT {', '.join([*selected, *others])} FROM {x.name} x {kind} ({inner}) y ON {self._on(x, y)}"


    def _scalar(self) -> tuple[dict[str, bool], str]:
        x, y, rng = self._node(), self._node(), self.random
        columns, selected = self._columns(x, "x")
        number = f"y.{rng.choice(y.numbers)}"
        aggregate = rng.choice((f"max({number})", f"min({number}) + 1", "count(*)", f"sum({number})", f"count({number}) - max({number})"))
        where = f" WHERE y.{rng.choice(y.numbers)} = x.{rng.choice(x.numbers)}" if rng.random() < 0.6 else ""
        query = f"(SELECT {aggregate} FROM {y.name} y{where})"
        if rng.random() < 0.4:
            return columns | {"q": False}, f"SELECT {', '.join(selected)}, {query} AS q FROM {x.name} x"
        condition = f"x.{rng.choice(x.numbers)} {rng.choice(('=', '<', '>='))} {query}"
        if rng.random() < 0.2:
            return {"n": False}, f"SELECT count(*) AS n FROM {x.name} x WHERE {condition}"
        return columns, f"SELECT {', '.join(selected)} FROM {x.name} x WHERE {condition}"

    def _inside(self) -> tuple[dict[str, bool], str]:
        x, y, z, rng = self._node(), self._node(), self._node(), self.random
        columns, selected = self._columns(x, "x")
        number, key = f"x.{rng.choice(x.numbers)}", f"y.{rng.choice(y.numbers)}"
        condition = rng.choice(
            (
                f"{number} IN (SELECT {key} FROM {y.name} y GROUP BY {key} HAVING count(*) > 1)",
                f"{number} IN (SELECT max({key}) FROM {y.name} y)",
                f"{number} IN (SELECT {key} FROM {y.name} y UNION SELECT z.{rng.choice(z.numbers)} FROM {z.name} z)",
                f"{rng.choice(('EXISTS', 'NOT EXISTS'))} (SELECT 1 FROM {y.name} y WHERE {key} = {number} AND y.{rng.choice(y.numbers)} "
                f"{rng.choice(('IN', 'NOT IN'))} (SELECT z.{z.numbers[0]} FROM {z.name} z))",
                f"{number} IN (SELECT {key} FROM {y.name} y WHERE y.{y.numbers[-1]} < (SELECT max(z.{z.numbers[0]}) FROM {z.name} z))",
            )
        )
        return columns, f"SELECT {', '.join(selected)} FROM {x.name} x WHERE {condition}"


    def _either(self) -> tuple[dict[str, bool], str]:
        """EXISTS and IN as expressions, and NOT IN with nulls."""
        x, y, z, rng = self._node(), self._node(), self._node(), self.random
        columns, selected = self._columns(x, "x")
        number, key, other = f"x.{rng.choice(x.numbers)}", f"y.{rng.choice(y.numbers)}", f"z.{rng.choice(z.numbers)}"
        exists = f"EXISTS (SELECT 1 FROM {y.name} y WHERE {key} = {number})"
        within = f"{number} {rng.choice(('IN', 'NOT IN'))} (SELECT {other} FROM {z.name} z WHERE {self._condition(z, 'z')})"
        less = f"EXISTS (SELECT 1 FROM b c WHERE c.room = {number} AND c.price < x.{rng.choice(x.numbers)})"
        compared = f"{number} {rng.choice(('<', '<=', '>', '>='))} {rng.choice(('ALL', 'ANY'))} (SELECT {other} FROM {z.name} z"
        compared += rng.choice(("", f" WHERE z.{rng.choice(z.numbers)} = x.{rng.choice(x.numbers)}")) + ")"
        value = rng.choice((exists, f"NOT {exists}", within, less if x in NODES else exists, compared))
        if rng.random() < 0.4:
            return columns | {"q": False}, f"SELECT {', '.join(selected)}, CASE WHEN {value} THEN 1 ELSE 0 END AS q FROM {x.name} x"
        either = (f"{value} OR {self._condition(x, 'x')}", f"{value} OR {within}", f"NOT ({value} AND {within})")
        condition = rng.choice((within, compared, *either))
        if rng.random() < 0.3 and y.numbers:
            (more, others), on = self._columns(y, "w", "w"), f"w.{rng.choice(y.numbers)} = {number}"
            kind = rng.choice(("JOIN", "LEFT JOIN"))
            shown = ", ".join([*selected, *others])
            return columns | more, f"SELECT {shown} FROM {x.name} x {kind} {y.name} w ON {on} WHERE {condition}"
        return columns, f"SELECT {', '.join(selected)} FROM {x.name} x WHERE {condition}"

    def _deep(self) -> tuple[dict[str, bool], str]:
        """An alias that is read two levels out."""
        x, y, z, rng = self._node(), self._node(), self._node(), self.random
        columns, selected = self._columns(x, "x")
        number, key, other = f"x.{rng.choice(x.numbers)}", f"y.{rng.choice(y.numbers)}", f"z.{rng.choice(z.numbers)}"
        one, two = (rng.choice(("EXISTS", "NOT EXISTS")) for _ in range(2))
        inner = f"{two} (SELECT 1 FROM {z.name} z WHERE {other} = {key} AND z.{z.numbers[0]} {rng.choice(('=', '<'))} {number})"
        inside = f"SELECT {key} AS k FROM {y.name} y WHERE y.{y.numbers[0]} = x.{rng.choice(x.numbers)}"
        united = f"{inside} {rng.choice(('UNION', 'EXCEPT', 'INTERSECT'))} SELECT {other} FROM {z.name} z WHERE {other} <= {number}"
        query = rng.choice((f"{inside} AND {inner}", f"{inside} AND {inner}", united))
        return columns, f"SELECT {', '.join(selected)} FROM {x.name} x WHERE {one} ({query})"

    def _window(self) -> tuple[dict[str, bool], str]:
        node, rng = self.random.choice(NODES), self.random
        columns, selected = self._columns(node, "x")
        by, order = rng.choice(("", f"PARTITION BY x.{rng.choice((*node.numbers, *node.texts))} ")), rng.choice(node.numbers)
        over = f"{by}ORDER BY x.{order} {rng.choice(('', 'DESC'))} NULLS {rng.choice(('FIRST', 'LAST'))}, x.id"
        first = f"first_value(x.{rng.choice(node.numbers)}) OVER ({over}) AS f"
        return columns | {"f": False}, f"SELECT {', '.join(selected)}, {first} FROM {node.name} x"

    def _three(self) -> tuple[dict[str, bool], str]:
        x, y, z, rng = self._node(), self._node(), self._node(), self.random
        (columns, selected), (more, others) = self._columns(x, "x"), self._columns(y, "y", "y")
        on = f"z.{rng.choice(z.numbers)} = y.{rng.choice(y.numbers)}"
        both = f"{on} AND z.{rng.choice(z.numbers)} = x.{rng.choice(x.numbers)}"
        text = f"SELECT {', '.join([*selected, *others])} FROM {x.name} x "
        if rng.random() < 0.3:
            where = f"WHERE {self._condition(x, 'x')} AND EXISTS (SELECT 1 FROM {z.name} z WHERE {both})"
            return columns | more, f"{text}JOIN {y.name} y ON {self._on(x, y)} {where}"
        kinds = rng.choice((("FULL", "FULL"), ("FULL", ""), ("", "FULL"), ("LEFT", "RIGHT"), ("", "LEFT"), ("LEFT", "LEFT")))
        last = both if kinds[1] == "LEFT" else on
        return columns | more, f"{text}{kinds[0]} JOIN {y.name} y ON {self._on(x, y)} {kinds[1]} JOIN {z.name} z ON {last}"

    def _first(self) -> tuple[dict[str, bool], str]:
        x, y, rng = self._node(), self._node(), self.random
        key = rng.choice((*x.numbers, *x.texts))
        groups = f"SELECT x.{key} AS k, count(*) AS n FROM {x.name} x JOIN {y.name} y ON {self._on(x, y)} GROUP BY x.{key}"
        ranked = f"QUALIFY row_number() OVER (PARTITION BY count(*) ORDER BY x.{key} NULLS FIRST) <= 2"
        chosen = rng.choice(("ORDER BY k DESC NULLS LAST LIMIT 3", "ORDER BY n DESC, k NULLS LAST LIMIT 3", ranked))
        return {"k": key in x.texts, "n": False}, f"{groups} {chosen}"


class Rows:
    """The rows of the relations, and random changes of them."""

    def __init__(self, rng: random.Random) -> None:
        self.random = rng
        self.relations: dict[str, dict[int, Row]] = {name: {} for name in RELATIONS}

    def _row(self, name: str, key: int) -> Row:
        rng = self.random
        start = rng.randrange(20)
        row: Row = {
            "id": key, "room": rng.randrange(5), "hotel": rng.randrange(3), "guest": rng.choice((None, "a", "b", "c")),
            "price": rng.choice((None, 0, 1, 2, 5)), "s": start, "e": start + rng.randrange(1, 6),
        }  # fmt: skip
        return {column.name: row[column.name] for column in RELATIONS[name].columns}

    def batch(self, is_single: bool, truncates: bool = False) -> Batch:
        """Changes of one row, or of several relations; the rows are those after it."""
        rng, parts, sent = self.random, list[Changes](), 0
        for name in rng.sample(list(RELATIONS), 1 if is_single else rng.randrange(1, 4)):
            rows, ops = list[Row](), list[int]()
            if truncates and not is_single:
                self.relations[name].clear()
                rows, ops = [{}], [TRUNCATE]
            for key in rng.sample(range(_KEYS), 1 if is_single else rng.randrange(1, 6)):
                if rng.random() < 0.65:
                    self.relations[name][key] = row = self._row(name, key)
                    rows, ops = [*rows, row], [*ops, UPSERT]
                else:
                    self.relations[name].pop(key, None)
                    rows, ops = [*rows, {"id": key}], [*ops, DELETE]
            schema = RELATIONS[name].arrow_schema()
            block = RowBlock(pa.RecordBatch.from_pylist([{one: row.get(one) for one in schema.names} for row in rows], schema=schema))
            parts.append(Changes(name, RELATIONS[name], np.array(ops, np.uint8), block, np.arange(sent, sent + len(ops))))
            sent += len(ops)
        return Batch(parts, sent, 0, [], 0)

    def in_duckdb(self, views: dict[str, str]) -> duckdb.DuckDBPyConnection:
        """Return a database with the relations and the views, as tables: DuckDB 2.0.0 joins a view over LEFT JOIN with itself wrongly."""
        other = duckdb.connect()
        for name, rows in self.relations.items():
            table = pa.Table.from_pylist(list(rows.values()), schema=RELATIONS[name].arrow_schema())
            other.register(f"rows_of_{name}", table)
            other.execute(f"CREATE TABLE {name} AS SELECT * FROM rows_of_{name}")
        for name, text in views.items():
            other.execute(f"CREATE TABLE {name} AS {text}")
        return other
