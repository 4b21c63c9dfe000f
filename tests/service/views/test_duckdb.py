"""Set operations with ALL, comparisons with ALL and ANY, first values, and queries two levels deep: DuckDB has the same rows after each of
many random batches, as have followers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.service.engine.test_stored_views import compare
from tests.service.random_graphs import RELATIONS, Graph, Rows
from tests.service.running import opened
from tests.service.views.test_random_sql import Added

FORMS = {
    "sets": [
        "SELECT room FROM b EXCEPT ALL SELECT room FROM m",
        "SELECT room FROM r INTERSECT ALL SELECT price FROM b",
        "SELECT guest, room FROM r EXCEPT ALL SELECT guest, room FROM b ORDER BY 1",
        "SELECT x.room, y.guest FROM m x JOIN b y ON x.room = y.room INTERSECT ALL SELECT hotel, guest FROM r WHERE id > 2",
        "SELECT price FROM b EXCEPT ALL SELECT hotel FROM r EXCEPT ALL SELECT 1 FROM m",
        "SELECT count(*) AS n FROM (SELECT room FROM b EXCEPT ALL (SELECT room FROM m INTERSECT ALL SELECT room FROM r)) t",
        "SELECT room FROM m UNION ALL (SELECT room FROM b EXCEPT ALL SELECT room FROM r)",
        "SELECT id FROM b WHERE room IN (SELECT price FROM b EXCEPT ALL SELECT room FROM m)",
        "SELECT guest, count(*) AS n FROM b GROUP BY guest EXCEPT ALL SELECT guest, hotel FROM r",
    ],
    "compared": [
        *(f"SELECT id FROM b WHERE price {op} {word} (SELECT hotel FROM r WHERE r.room = b.room)"
          for op in ("<", "<=", ">", ">=") for word in ("ALL", "ANY")),
        *(f"SELECT id, room {op} (SELECT price FROM b c WHERE c.room = b.room AND price > 0) AS q FROM b"
          for op in ("< ALL", ">= ALL", "= ALL", "> ANY", "<= ANY", "<> ANY")),
        "SELECT id FROM b WHERE price >= ALL (SELECT price FROM b WHERE price IS NOT NULL)",
        "SELECT id FROM b WHERE price > ALL (SELECT price FROM b WHERE guest = 'c')",
        "SELECT id FROM b WHERE NOT price > ANY (SELECT hotel FROM r WHERE guest = 'a')",
        "SELECT id FROM b x WHERE price > ALL (SELECT price FROM b y WHERE y.room = x.room AND y.s < x.s)",
        "SELECT id FROM b WHERE price < ANY (SELECT max(hotel) FROM r GROUP BY room) OR guest > ALL (SELECT guest FROM r)",
        "SELECT room FROM b GROUP BY room HAVING count(*) >= ALL (SELECT count(*) FROM b GROUP BY room)",
        "SELECT id FROM b WHERE price > ALL (SELECT room FROM m UNION SELECT hotel FROM r WHERE hotel > 1)",
        "SELECT id FROM b WHERE price + 1 > ALL (SELECT b.hotel FROM r b WHERE b.id > 5)",
        "SELECT x.id, y.id AS other FROM b x LEFT JOIN m y ON x.room = y.room WHERE y.s > ALL (SELECT hotel FROM r WHERE r.room = y.room)",
    ],
    "first": [
        "SELECT id, first_value(price) OVER (PARTITION BY room ORDER BY s DESC, id) AS f FROM b",
        "SELECT id, price - first_value(price) OVER (PARTITION BY guest ORDER BY id) AS d, first_value(s) OVER (ORDER BY id) AS f FROM b",
        "SELECT id, last_value(guest || 'x') OVER (PARTITION BY room ORDER BY price, id DESC ROWS BETWEEN UNBOUNDED PRECEDING AND "
        "UNBOUNDED FOLLOWING) AS f FROM b WHERE price > 0",
        "SELECT t.room, first_value(t.n) OVER (ORDER BY t.room) AS f FROM (SELECT room, count(*) AS n FROM b GROUP BY room) t",
        "SELECT * FROM (SELECT id, s, first_value(s) OVER (PARTITION BY room ORDER BY id) AS f FROM m) t WHERE s > f",
        "SELECT id, first_value(price) OVER (PARTITION BY room ORDER BY s, id) AS f FROM b WHERE room IN (SELECT room FROM m)",
    ],
    "deep": [
        *(f"SELECT id FROM b WHERE {one} (SELECT 1 FROM m WHERE m.room = b.room AND {two} (SELECT 1 FROM r WHERE r.room = m.room "
          "AND r.hotel = b.price))" for one in ("EXISTS", "NOT EXISTS") for two in ("EXISTS", "NOT EXISTS")),
        "SELECT id, (SELECT count(*) FROM m WHERE m.room = b.room AND EXISTS (SELECT 1 FROM r WHERE r.hotel = b.price)) AS n FROM b",
        "SELECT id FROM b x WHERE x.room IN (SELECT y.room FROM m y WHERE y.s > (SELECT min(z.hotel) FROM r z WHERE z.room = x.room))",
        "SELECT id FROM b x WHERE x.room NOT IN (SELECT y.room FROM m y WHERE y.s IN (SELECT z.hotel + 1 FROM r z WHERE z.room = x.room))",
        "SELECT id FROM b WHERE EXISTS (SELECT m.room FROM m WHERE m.room = b.room UNION SELECT r.room FROM r WHERE r.hotel = b.price)",
        *(f"SELECT id FROM b WHERE EXISTS (SELECT m.room FROM m WHERE m.s < b.s {op} SELECT m.hotel FROM r m WHERE m.room = b.room)"
          for op in ("INTERSECT", "EXCEPT", "UNION ALL", "EXCEPT ALL")),
        "SELECT id FROM b x WHERE EXISTS (SELECT 1 FROM m x WHERE x.room IN (SELECT x.room FROM r x WHERE x.hotel = 1))",
        "SELECT id FROM b WHERE NOT EXISTS (SELECT 1 FROM r WHERE hotel = 2 AND guest = 'a')",
        "SELECT x.id FROM b x WHERE EXISTS (SELECT 1 FROM m y WHERE y.room = x.room AND EXISTS (SELECT 1 FROM r z WHERE z.room = y.room "
        "AND EXISTS (SELECT 1 FROM b w WHERE w.room = z.hotel AND w.price = x.price AND w.s < y.e)))",
        "SELECT t.room FROM (SELECT room, count(*) AS n FROM b GROUP BY room) t WHERE EXISTS (SELECT 1 FROM m WHERE m.room = t.room AND "
        "NOT EXISTS (SELECT 1 FROM r WHERE r.room = m.room AND r.hotel = t.n))",
        "SELECT t.guest FROM (SELECT guest, count(*) AS n FROM b GROUP BY guest) t WHERE EXISTS (SELECT 1 FROM m WHERE m.room > t.n AND "
        "NOT EXISTS (SELECT 1 FROM r WHERE r.room = m.room AND r.guest = t.guest))",
        "SELECT x.id FROM b x JOIN m y ON x.s < y.s WHERE NOT EXISTS (SELECT 1 FROM r z WHERE z.room = x.price AND z.hotel = y.room)",
        "SELECT x.id FROM b x JOIN m y ON x.room = y.room WHERE NOT EXISTS (SELECT 1 FROM r z WHERE z.room = x.price AND z.hotel > y.s)",
        "SELECT id, price IN (SELECT hotel FROM r WHERE r.room = b.room EXCEPT SELECT room FROM m WHERE m.s > b.s) AS q FROM b",
        "SELECT id, (SELECT max(price) + x.s FROM b y WHERE y.room = x.room) AS q FROM b x",
        "SELECT x.id FROM b x WHERE NOT EXISTS (SELECT y.k FROM (SELECT p.room, y.room AS k FROM b p JOIN m y ON p.e = y.s) y "
        "WHERE y.room = x.room AND NOT EXISTS (SELECT 1 FROM (SELECT w.s, w.id FROM b w WHERE EXISTS (SELECT 1 FROM m y "
        "WHERE w.price = y.e)) z WHERE z.s = y.k AND z.id = x.id))",
        "SELECT DISTINCT ON (room) room, id FROM b WHERE EXISTS (SELECT 1 FROM m WHERE m.room = b.room AND m.s > b.s) ORDER BY room, s, id",
        "SELECT * FROM (SELECT id, room FROM b EXCEPT ALL SELECT id, room FROM m) t ORDER BY room DESC, id LIMIT 3",
    ],
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_duckdb_has_the_same_rows(tmp_path: Path, form: str) -> None:
    engine, rows, texts = opened(tmp_path), Rows(random.Random(form)), {f"v{number}": text for number, text in enumerate(FORMS[form])}
    for name, definition in RELATIONS.items():
        engine.put_relation(name, definition)
    for _ in range(3):
        engine.apply(rows.batch(False))
    for name, text in texts.items():
        engine.put_view(name, {"sql": text}, wait=60)
    graph, added = Graph(rows.random), {name: Added(engine, name) for name in texts}
    graph.texts = texts
    for step in range(25):
        engine.apply(rows.batch(step % 2 == 0, truncates=step % 7 == 5))
        compare(engine, graph, rows, added)
    engine.close()
