"""What an attacker with a read token might try with SQL: files, network, extensions, settings, memory, time, names. Each attempt is
refused."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.end_to_end import talk
from tests.server_process import ServerProcess

TABLE: dict[str, Any] = {"columns": [{"name": "id", "type": "int64"}, {"name": "note", "type": "string"}], "key": ["id"]}
SECRET = "sesame-4711"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """A service that has `mine`, and `theirs`, to which the token `guest` has no access; and a file beside its folder."""
    folder = tmp_path_factory.mktemp("attacked")
    secret = folder / "secret.csv"
    secret.write_text(f"a,b\n{SECRET},2\n")
    environment = {"LIVEJOIN_SYNCHRONOUS": "normal", "LIVEJOIN_SESAME": SECRET}
    arguments = ["--query-memory", "256MiB", "--query-time", "6"]
    with ServerProcess(folder / "data", environment=environment, arguments=arguments) as server:
        define(server)
        yield server, secret


def define(server: ServerProcess) -> None:
    client = server.client()
    for name in ("mine", "theirs"):
        talk.define(client, name, TABLE)
        rows = b"".join(b'{"id":%d,"note":"%b"}\n' % (number, SECRET.encode() if name == "theirs" else b"x") for number in range(2000))
        talk.ok(client.post(f"/v1/relations/{name}/changes", content=rows, headers={"Content-Type": talk.JSONL}))


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Path]]:
    """Another service, which limits queries to two seconds."""
    folder = tmp_path_factory.mktemp("impatient")
    with ServerProcess(folder / "data", arguments=["--query-time", "2"]) as server:
        define(server)
        yield server, folder


def ask(house: tuple[ServerProcess, Path], sql: str) -> httpx.Response:
    server, secret = house
    answer = server.client().post("/v1/query", json={"sql": sql.replace("SECRET", str(secret))})
    assert SECRET not in answer.text.replace(sql, "") and str(secret.parent) not in answer.text.replace(str(secret), "")
    return answer


FILES = [
    "SELECT * FROM 'SECRET'",
    'SELECT * FROM "SECRET"',
    "SELECT * FROM read_csv('SECRET')",
    "SELECT * FROM read_csv_auto('SECRET')",
    "SELECT * FROM read_text('SECRET')",
    "SELECT * FROM read_blob('/etc/passwd')",
    "SELECT * FROM read_parquet('SECRET')",
    "SELECT * FROM read_json('SECRET')",
    "SELECT * FROM parquet_scan('SECRET')",
    "SELECT * FROM glob('/*')",
    "SELECT * FROM sniff_csv('SECRET')",
    "SELECT * FROM parquet_metadata('SECRET')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT * FROM mine, LATERAL (SELECT * FROM read_csv('SECRET'))",
    "SELECT (SELECT count(*) FROM read_text('SECRET'))",
    "WITH f AS (SELECT * FROM 'SECRET') SELECT * FROM f",
    "SELECT * FROM (FROM 'SECRET')",
    "SELECT * FROM query('SELECT * FROM ''SECRET''')",
    "SELECT * FROM query_table('SECRET')",
    "COPY mine TO 'SECRET'",
    "COPY (SELECT 1) TO 'SECRET' (FORMAT csv)",
    "COPY mine FROM 'SECRET'",
    "EXPORT DATABASE 'SECRET'",
    "IMPORT DATABASE 'SECRET'",
    "ATTACH 'SECRET' AS other",
    "ATTACH ':memory:' AS other",
    "DETACH memory",
    "USE temp",
]
NETWORK = [
    "SELECT * FROM 'http://127.0.0.1:9/x.csv'",
    "SELECT * FROM read_csv('https://example.com/x.csv')",
    "SELECT * FROM 's3://bucket/x.parquet'",
    "ATTACH 'http://127.0.0.1:9/x.db' AS other",
    "SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')",
]
EXTENSIONS = ["INSTALL httpfs", "LOAD httpfs", "LOAD '/tmp/x.duckdb_extension'", "FORCE INSTALL spatial", "UPDATE EXTENSIONS"]
SETTINGS = [
    "SET threads = 8",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET GLOBAL memory_limit = '100GB'",
    "RESET memory_limit",
    "RESET ALL",
    "PRAGMA memory_limit = '100GB'",
    "PRAGMA database_list",
    "PRAGMA enable_logging",
    "CALL pragma_version()",
    "CHECKPOINT",
    "SET VARIABLE x = 1",
]
INSIDES = [
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM pg_catalog.pg_class",
    "SELECT * FROM pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM duckdb_functions()",
    "SELECT * FROM duckdb_extensions()",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM pragma_table_info('mine')",
    "SELECT * FROM which_secret('a', 'b')",
    "SELECT * FROM arrow_scan(1, 2, 3)",
    "SELECT * FROM arrow_scan_dumb(1, 2, 3)",
    "SELECT * FROM python_map_function(1)",
    'SELECT * FROM "relation mine"',
    "SELECT getenv('LIVEJOIN_SESAME')",
    "SELECT getenv('PATH')",
    "SHOW TABLES",
    "SHOW ALL TABLES",
    "DESCRIBE mine",
    "SUMMARIZE mine",
    "SELECT * FROM (DESCRIBE mine)",
    "SELECT * FROM (SHOW TABLES)",
    "FROM (SUMMARIZE mine)",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE SELECT * FROM mine",
]
WRITES = [
    "CREATE TABLE x (a INT)",
    "CREATE VIEW x AS SELECT 1",
    "CREATE MACRO x(a) AS a",
    "CREATE SECRET x (TYPE s3)",
    "INSERT INTO mine VALUES (1, 'x')",
    "DELETE FROM mine",
    "UPDATE mine SET id = 1",
    "DROP VIEW mine",
    "ALTER TABLE mine ADD COLUMN x INT",
    "VACUUM",
    "BEGIN",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "WITH d AS (DELETE FROM mine RETURNING id) SELECT * FROM d",
    "SELECT * FROM mine; DROP VIEW mine",
    "SELECT 1; SELECT 2",
    "SELECT nextval('s')",
]


@pytest.mark.parametrize("sql", [*FILES, *NETWORK, *EXTENSIONS, *SETTINGS, *INSIDES, *WRITES])
def test_refused(house: tuple[ServerProcess, Path], sql: str) -> None:
    answer = ask(house, sql)
    assert answer.status_code in (400, 422), answer.text
    assert answer.json()["type"].removeprefix("/problems/") in ("bad-query", "unsupported-query", "unknown-relation"), answer.text


def test_nothing_was_written(house: tuple[ServerProcess, Path]) -> None:
    server, secret = house
    assert secret.read_text() == f"a,b\n{SECRET},2\n"
    assert {path.name for path in secret.parent.iterdir() if not path.name.endswith(".log")} == {"secret.csv", "data"}
    assert ask(house, "SELECT count(*) AS n FROM mine").json() == {"n": 2000}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM/**/read_csv/**/('SECRET')",
        "SELECT * -- \n FROM\n read_text('SECRET')",
        "SELECT * FROM \"read_text\"('SECRET')",
        "SELECT * FROM main.read_text('SECRET')",
        "SELECT * FROM system.main.read_text('SECRET')",
        "SELECT $$ ' $$ FROM read_text('SECRET') WHERE '' <> $$ '$$",
        "SELECT E'\\'' FROM read_text('SECRET') -- '",
        "SELECT '\\' FROM read_text('SECRET') -- '",
        "SELECT /* /* */ 1 FROM read_text('SECRET') -- */",
        "SELECT 1 AS \"a\"\"b\" FROM read_text('SECRET')",
        "SELECT * FROM ｒｅａｄ＿ｔｅｘｔ('SECRET')",
        "SELECT * FROM\u00a0read_text('SECRET')",
        "SELECT * FROM\u2003'SECRET'",
        "SELECT * FROM mine\u0000; SELECT 2",
        "SELECT\ufeff * FROM 'SECRET'",
        "FROM read_text('SECRET')",
        "TABLE 'SECRET'",
        "SELECT * FROM mine UNION ALL SELECT 1, content FROM read_text('SECRET')",
        "SELECT * FROM mine WHERE note IN (FROM read_text('SECRET') SELECT content)",
        "SELECT [x FOR x IN (SELECT content FROM read_text('SECRET'))]",
        "SELECT id FROM mine ORDER BY (SELECT content FROM read_text('SECRET'))",
        "SELECT count(*) FILTER (WHERE (SELECT true FROM read_text('SECRET'))) FROM mine",
        "SELECT sum(id) OVER (ORDER BY (SELECT 1 FROM read_text('SECRET'))) FROM mine",
        "PIVOT read_text('SECRET') ON filename IN ('x') USING count(*)",
        "VALUES ((SELECT content FROM read_text('SECRET')))",
        "SELECT * FROM mine JOIN read_text('SECRET') ON true",
        "SELECT * FROM mine POSITIONAL JOIN read_text('SECRET')",
        "SELECT * FROM mine AT (VERSION => 1)",
    ],
)
def test_disguises(house: tuple[ServerProcess, Path], sql: str) -> None:
    assert ask(house, sql).status_code in (400, 422)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT repeat('x', 2000000000) AS a",
        "SELECT length(repeat('x', 2000000000)) AS a",
        "SELECT repeat(note, 50000000) AS a FROM mine",
        "SELECT list(a.id) AS l FROM mine a, mine b, mine c",
        "SELECT string_agg(repeat('x', 1000000), '') AS s FROM mine",
        "SELECT a.id AS a, b.id AS b FROM mine a, mine b, mine c ORDER BY 2, 1",
        "SELECT DISTINCT a.id * 4000000 + b.id * 2000 + c.id AS d FROM mine a, mine b, mine c",
        "WITH RECURSIVE r AS (SELECT 'x' AS a UNION ALL SELECT a || a FROM r) SELECT count(*) AS n FROM r",
        "SELECT range(1000000000) AS a",
        "SELECT list_resize([1], 1000000000) AS a",
        "SELECT lpad('x', 2000000000, 'y') AS a",
        "SELECT histogram(a.id * 2000 + b.id) AS h FROM mine a, mine b",
    ],
)
def test_memory(house: tuple[ServerProcess, Path], sql: str) -> None:
    """Refused because of the memory or, where DuckDB needs long to fill it, because of the time; the service continues."""
    answer = ask(house, sql)
    assert answer.status_code in (408, 413) or (answer.status_code == 400 and "too large" in answer.text.lower()), answer.text[:300]
    assert house[0].client().get("/livez").status_code == 200


@pytest.mark.parametrize("kind", ["LEFT JOIN", "FULL JOIN"])
def test_many_joins(house: tuple[ServerProcess, Path], kind: str) -> None:
    """Each join takes memory, although there are few rows: the message says what to do instead."""

    def joined(count: int) -> str:
        joins = (f"{kind} mine m{number} ON m{number}.id = m{number - 1}.id" for number in range(1, count))
        return f"SELECT count(*) AS n FROM mine m0 {' '.join(joins)}"

    answer = ask(house, joined(80))
    detail = talk.problem(answer, 413, "query-too-large")["detail"]
    assert "It names relations and views 80 times, and each join takes 4 MiB, however few rows it has: make several queries" in detail
    assert ask(house, joined(20)).json() == {"n": 2000}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM mine a, mine b, mine c, mine d",
        "WITH RECURSIVE r AS (SELECT 1 AS a UNION ALL SELECT a FROM r) SELECT count(*) AS n FROM r",
        "SELECT regexp_matches(repeat('a', 100000), '(a*)*b') AS a, count(*) AS n FROM mine a, mine b, mine c, mine d GROUP BY 1",
    ],
)
def test_time(impatient: tuple[ServerProcess, Path], sql: str) -> None:
    talk.problem(ask(impatient, sql), 408, "query-timeout")


def test_deep_queries(house: tuple[ServerProcess, Path]) -> None:
    for sql in (
        "SELECT " + "(" * 5000 + "1" + ")" * 5000,
        "SELECT " + "1+" * 20000 + "1",
        "SELECT " + "-" * 1 + "[" * 3000 + "]" * 3000,
        "SELECT * FROM " + "(SELECT * FROM " * 1000 + "mine" + ")" * 1000,
        "SELECT * FROM mine " + "JOIN mine " * 2000,
    ):
        answer = ask(house, sql)
        assert answer.status_code in (200, 400, 413, 422, 408), (sql[:40], answer.text[:200])


def test_no_child_outlives_its_query(house: tuple[ServerProcess, Path]) -> None:
    """Only the process from which it was forked remains, and neither inherits anything from the service."""
    server, _ = house
    assert ask(house, "SELECT 1 AS a").status_code == 200
    (nursery,) = (one for one in psutil.Process(server.process.pid).children() if "service.adhoc.nursery" in one.cmdline())
    while len(nursery.children()) > 0:
        time.sleep(0.01)  # the test's time limit ends this if one stays
    for process in (nursery, *nursery.children()):
        with contextlib.suppress(psutil.NoSuchProcess):  # the child of the last query is ending
            assert set(process.environ()) == {"ARROW_DEFAULT_MEMORY_POOL", "MALLOC_ARENA_MAX", "LC_ALL", "OPENBLAS_NUM_THREADS"}


def test_tokens(tmp_path: Path) -> None:
    """A token for named relations gets answers for these alone; it cannot even learn whether others exist."""
    from service.access.access_token import AccessToken, digest, new_text
    from service.access.store import add_token

    folder, texts = tmp_path / "data", {"ops": new_text(), "guest": new_text(), "viewer": new_text(), "writer": new_text()}
    folder.mkdir()
    granted = {
        "ops": ("admin", None, None), "guest": ("read", ["mine"], []), "viewer": ("read", [], ["v"]), "writer": ("write", ["mine"], ["v"]),
    }  # fmt: skip
    for name, (scope, relations, views) in granted.items():
        add_token(folder, AccessToken(name, scope, relations, views, float("inf"), 1000.0, digest(texts[name])), begin=True)  # type: ignore[arg-type]
    with ServerProcess(folder) as server:

        def ask(who: str, sql: str) -> httpx.Response:
            return server.client().post("/v1/query", json={"sql": sql}, headers={"Authorization": f"Bearer {texts[who]}"})

        ops = server.client()
        ops.headers["Authorization"] = f"Bearer {texts['ops']}"
        for name in ("mine", "theirs"):
            talk.define(ops, name, TABLE)
        talk.view(ops, "v", "SELECT id AS id FROM theirs WHERE id > 0")
        for sql in ("SELECT * FROM mine", "WITH theirs AS (SELECT * FROM mine) SELECT * FROM theirs", "SELECT 1 AS a"):
            assert ask("guest", sql).status_code == 200, sql
        assert ask("viewer", "SELECT * FROM v").status_code == 200 and ask("writer", "SELECT v.id FROM v, mine").status_code == 200
        for who, sql in (
            ("guest", "SELECT * FROM theirs"),
            ("guest", "SELECT * FROM v"),
            ("guest", "SELECT * FROM nix"),
            ("guest", "SELECT (SELECT count(*) FROM theirs) AS n FROM mine"),
            ("guest", "SELECT * FROM mine WHERE id IN (SELECT id FROM theirs)"),
            ("guest", "WITH a AS (SELECT * FROM theirs) SELECT 1 AS b"),
            ("guest", "WITH theirs AS (SELECT * FROM theirs) SELECT * FROM theirs"),
            ("viewer", "SELECT * FROM mine"),
            ("writer", "SELECT * FROM mine JOIN theirs USING (id)"),
        ):
            emitted = talk.problem(ask(who, sql), 403, "forbidden")
            assert who in emitted["detail"], (who, sql)
        assert server.client().post("/v1/query", json={"sql": "SELECT 1"}).status_code == 401
