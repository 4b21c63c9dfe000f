"""The commands against a real service: the tour of the README, files of every kind, a restart under `watch`, `check`."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

import livejoin
from livejoin import files
from livejoin.explanation import Explanation
from service.cli import main
from service.demo.history import FOLDER
from service.tables import inputs
from service.views.joins import overlap_join
from structures.core.encoding import NEG_INF
from tests.relations import declared
from tests.server_process import ROOT, ServerProcess
from tests.service.commands.tables import write

BOOKINGS: dict[str, Any] = declared("id:int64, s:int64, e:int64?", stay="s e")
CLASHES = "SELECT a.id AS a, b.id AS b FROM bookings a JOIN bookings b ON overlaps(a.stay, b.stay) AND a.id < b.id"


def row(number: int, start: int, end: int | None) -> dict[str, object]:
    return {"id": number, "s": start, "e": end}


@pytest.fixture
def client(server: ServerProcess) -> Iterator[livejoin.Client]:
    with livejoin.connect(server.url) as client:
        client.relation("bookings").create(**BOOKINGS)
        client.view("clashes", CLASHES)
        yield client


def test_explain_analyzes_the_view_that_has_the_definition(
    client: livejoin.Client, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:  # fmt: skip
    """The steps behind the last row are part of the delay, and those of a view without rows are one."""
    sql, url = "SELECT a.id FROM bookings a JOIN others b ON a.id = b.id", ["--url", client.url]
    client.relation("others").create(**declared("id:int64"))
    client.relation("bookings").upsert([row(number, 0, 1) for number in range(500)])
    client.relation("others").upsert([{"id": 1000 + number} for number in range(500)])
    assert main(["explain", "--analyze", sql, *url]) == 2
    assert "no live view has exactly this definition: register it" in capfd.readouterr().err
    definition = {"sql": sql, "algorithm": "intersect"}
    client.view("apart", definition=definition)
    assert client.view("apart").analyze()["row_count"] == 0
    client.relation("others").upsert([{"id": 0}])
    one = client.view("apart").analyze()
    assert one["row_count"] == 1 and one["counters"]["lookups"] >= 2 and one["steps"] > 0
    assert one["delay_steps"]["max"] >= one["delay_steps"]["mean"] == one["steps"] / 2
    many = client.view("clashes").analyze(overlaps=("0", "9"))
    assert many["row_count"] == client.view("clashes").count() == 500 * 499 // 2 and many["delay_steps"]["mean"] < 10
    assert client.view("apart").analyze() | {"seconds": 0} == one | {"seconds": 0}
    with pytest.raises(livejoin.BadParameter, match="leave out limit and order"):
        client._http.json("GET", "/v1/views/apart/rows", params={"analyze": "true", "limit": "3"})
    (file := tmp_path / "apart.json").write_bytes(orjson.dumps(definition))
    assert main(["explain", "--analyze", "--file", str(file), *url]) == 0
    answer = orjson.loads(capfd.readouterr().out)
    assert answer["analyzed"]["counters"] == one["counters"]
    assert re.search(r"\nanalyzed   1 rows, \d+ steps, .*delay .* steps on average, \d+ at most, .* s$", str(Explanation(answer)))


def test_the_tour(server: ServerProcess, capfd: pytest.CaptureFixture[str]) -> None:
    url = ["--url", server.url]
    for relation in ("senator_terms", "rep_terms"):
        file = str(FOLDER / f"{relation}.csv.gz")
        assert main(["load", relation, file, "--key", "id", "--interval", "term=start_date,end_date", *url]) == 0
    sql = "SELECT s.name AS senator, r.name AS rep, intersection(s.term, r.term) AS both FROM senator_terms s JOIN rep_terms r"
    sql += " ON s.state = r.state AND overlaps(s.term, r.term)"
    assert main(["view", "delegation", "--sql", sql, *url]) == 0
    emitted = capfd.readouterr()
    assert emitted.out.startswith("senator_terms: 267 rows loaded, version 1\nrep_terms: 2,525 rows loaded, version 2\ndelegation is live")
    assert "start_date date" in emitted.err
    assert main(["rows", "delegation", *url]) == 0
    rows = [orjson.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert len(rows) == 2879 and list(rows[0]) == ["senator", "rep", "both_start", "both_end"]
    assert main(["rows", "delegation", "--where", "s.state=WA", "--overlaps", "1993-06-01,1993-06-01", *url]) == 0
    assert [orjson.loads(line)["rep"] for line in capfd.readouterr().out.splitlines()] == ["Maria Cantwell"]
    assert main(["rows", "delegation", "--limit", "3", *url]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3
    assert main(["explain", "--sql", sql, *url]) == 0
    assert orjson.loads(capfd.readouterr().out)["plan"]["algorithm"] == "interval-tree"
    assert main(["rows", "delegatoin", *url]) == 1
    assert "there is no view or relation 'delegatoin'; did you mean delegation?" in capfd.readouterr().err
    assert main(["rows", "senator_terms", "--where", "id=1", *url]) == 0
    (senator,) = map(orjson.loads, capfd.readouterr().out.splitlines())
    assert senator["id"] == 1
    assert main(["view", "senator_terms", "--sql", "SELECT count(*) AS n FROM senator_terms", *url]) == 1
    assert "definition-differs" in capfd.readouterr().err
    assert main(["view", "other", "--sql", "SELECT * FROM senator_terms s LEFT JOIN rep_terms r ON s.id > 3", *url]) == 1
    assert capfd.readouterr().err.startswith("livejoin: unsupported-query: the filter on s.id in LEFT JOIN")


def test_dropping(server: ServerProcess, client: livejoin.Client, capfd: pytest.CaptureFixture[str]) -> None:
    def drop(*arguments: str) -> tuple[int, str, str]:
        status = main(["drop", *arguments, "--url", server.url])
        return status, *capfd.readouterr()

    said = "livejoin: relation-in-use: the relation bookings is used by clashes: drop this view first\n"
    assert drop("relation", "bookings") == (1, "", said)
    said = "livejoin: there is no view 'bookings', but there is a relation with this name; to drop it: `livejoin drop relation bookings`\n"
    assert drop("view", "bookings") == (1, "", said)
    said = "livejoin: there is no relation 'clashes', but there is a view with this name; to drop it: `livejoin drop view clashes`\n"
    assert drop("relation", "clashes") == (1, "", said)
    assert drop("view", "clashs") == (1, "", "livejoin: there is no view 'clashs'; did you mean clashes?\n")
    assert [view["name"] for view in client.views()] == ["clashes"]
    assert drop("view", "clashes") == (0, "dropped the view clashes\n", "")
    assert drop("view", "clashes") == (1, "", "livejoin: there is no view 'clashes'\n")
    assert [relation["name"] for relation in client.relations()] == ["bookings"]
    assert drop("relation", "bookings") == (0, "dropped the relation bookings\n", "")
    assert client.relations() == client.views() == []


@pytest.mark.parametrize("name", ["b.csv", "b.csv.gz", "b.jsonl", "b.parquet", "b.arrow", "b.arrows"])
def test_files_of_every_kind(shared_server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(files, "BODY", 4096)
    relation = "loaded_" + name.replace(".", "_")
    moments = [1_700_000_000_000_000 + n for n in range(2000)]
    table = pa.table(
        {
            "id": pa.array(range(2000), pa.int32()),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "note": pa.array([None if n % 3 else f"n,{n}" for n in range(2000)], pa.utf8()),
        }
    )
    path = tmp_path / name
    write(path, table)
    with livejoin.connect(shared_server.url) as client:
        columns = [
            {"name": "id", "type": "int64"},
            {"name": "at", "type": "timestamp"},
            {"name": "note", "type": "string", "nullable": True},
        ]
        client.relation(relation).create(columns, ["id"], {"moment": {"at": "at"}})
        assert main(["load", relation, str(path), "--key", "id", "--interval", "moment=at", "--url", shared_server.url]) == 0
        view = client.view(f"v_{relation}", f"SELECT a.id, a.at, a.note FROM {relation} a")
        assert view.count() == 2000
        (found,) = view.rows(where={"a.id": 999})
    assert found == {"id": 999, "at": "2023-11-14T22:13:20.000999Z", "note": "n,999"}


def test_rejected_rows_are_shown_by_their_lines(
    server: ServerProcess, client: livejoin.Client, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "b.csv").write_text("id,s,e\n1,1,5\n\ntwo,1,5\n3,7,7\n4,9,\n")
    assert main(["load", "bookings", str(tmp_path / "b.csv"), "--url", server.url]) == 1
    emitted = capfd.readouterr()
    assert emitted.out == "" and "2 rows were rejected and nothing was loaded" in emitted.err and "b.csv  4" in emitted.err
    assert not list(client.relation("bookings").rows())
    assert main(["load", "bookings", str(tmp_path / "b.csv"), "--on-error", "skip", "--url", server.url]) == 1
    emitted = capfd.readouterr()
    assert emitted.out == "bookings: 2 rows loaded, version 1\n"
    assert [
        line.split()[:3] for line in emitted.err.splitlines() if line.startswith("b.csv")
    ] == [["b.csv", "4", "id"], ["b.csv", "5", "e"]]


def test_a_number_beyond_float64_in_one_of_the_lines(
    shared_server: ServerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """After a byte order mark; loaded, and posted as it is."""
    (tmp_path / "m.jsonl").write_bytes(b'\xef\xbb\xbf{"id": 1, "x": 1}\n{"id": 2, "x": 1e999}\n{"id": 3, "x": 2}\n')
    load = ["load", "marked", str(tmp_path / "m.jsonl"), "--key", "id", "--url", shared_server.url]
    assert main(load) == 1 and "1 row was rejected and nothing was loaded" in capfd.readouterr().err
    assert main([*load, "--on-error", "skip"]) == 1
    emitted = capfd.readouterr()
    assert emitted.out.startswith("marked: 2 rows loaded")
    assert "m.jsonl  2     x       got 1e999, which float64 cannot hold" in emitted.err
    with livejoin.connect(shared_server.url) as client:
        relation = client.relation("marked")
        receipt = relation.post((tmp_path / "m.jsonl").read_bytes(), "application/jsonl", on_error="skip")
        assert (receipt.applied, receipt.skipped_count, receipt.skipped[0]["index"]) == (2, 1, 1)
        assert sorted(row["id"] for row in relation.rows()) == [1, 3]


def test_one_bad_row_at_the_end_and_nothing_is_loaded(
    shared_server: ServerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a leading truncate a skipped row would be a deleted one."""
    monkeypatch.setattr(files, "BODY", 100)
    good, bad, url = tmp_path / "good.csv", tmp_path / "bad.csv", ["--url", shared_server.url]
    good.write_text("_op,id,s,e\ntruncate,,,\n" + "".join(f",{n},{n},{n + 1}\n" for n in range(100)))
    bad.write_text(good.read_text() + ",100,7,5\n")
    arguments = ["--key", "id", "--interval", "stay=s,e", "--type", "s=int64", "--type", "e=int64"]
    assert main(["load", "whole", str(bad), *arguments, *url]) == 1
    assert "bad.csv  103   e       the interval stay is empty" in capfd.readouterr().err
    with livejoin.connect(shared_server.url) as client:
        with pytest.raises(livejoin.NotFound):
            client.relation("whole").get()
        assert main(["load", "whole", str(good), *arguments, *url]) == 0
        assert main(["load", "whole", str(bad), *url]) == 1
        assert len(list(client.relation("whole").rows())) == 100
        client.relation("whole").drop()


def test_replace_that_skips_takes_the_zone_from_the_definition(
    shared_server: ServerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "local.csv").write_text("id,at\n1,2026-01-01 10:00:00\n")
    with livejoin.connect(shared_server.url) as client:
        relation = client.relation("local").create({"id": "int64", "at": "timestamp"}, "id")
        given = ["load", "local", str(tmp_path / "local.csv"), "--url", shared_server.url, "--replace", "--on-error", "skip"]
        assert main([*given, "--zone", "Europe/Berlin"]) == 2
        assert "set the zone in the relation's definition" in capfd.readouterr().err
        relation.drop()


@pytest.mark.parametrize("name", ["b.csv", "b.jsonl", "b.parquet", "b.arrow", "b.arrows"])
def test_an_unknown_column_is_one_error(shared_server: ServerProcess, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    write(
        tmp_path / name,
        pa.table({"id": range(50), "at": pa.array([n * 10**6 for n in range(50)], pa.timestamp("us", "UTC")), "x": range(50)}),
    )
    with livejoin.connect(shared_server.url) as client:
        relation = client.relation("narrow").create({"id": "int64", "at": "timestamp"}, "id")
        assert main(["load", "narrow", str(tmp_path / name), "--url", shared_server.url]) == 1
        emitted = capfd.readouterr().err
        assert emitted.count("narrow has no") == 1, emitted
        relation.drop()


def test_watch_over_a_restart_of_the_service(server: ServerProcess, client: livejoin.Client) -> None:
    client.relation("bookings").upsert([row(1, 0, 10), row(2, 5, None)])
    environment = os.environ | {"LIVEJOIN_URL": server.url, "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "service.cli", "watch", "clashes", "--snapshot"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        assert watch.stdout is not None and watch.stderr is not None
        try:
            emitted = [orjson.loads(watch.stdout.readline()) for _ in range(2)]
            assert [record["op"] for record in emitted] == ["insert", "progress"] and emitted[0]["row"] == {"a": 1, "b": 2}
            server.kill()
            assert b"resuming from the last token" in watch.stderr.readline()
            server.start()
            client.relation("bookings").upsert([row(3, 8, 9)])
            said = next(line for line in iter(watch.stderr.readline, b"") if b"waiting" not in line)  # it may still be compiling
            if b"reconnected" in said:
                while (record := orjson.loads(watch.stdout.readline()))["op"] == "progress":
                    pass
                rows = [record, orjson.loads(watch.stdout.readline())]
                assert sorted((row["op"], row["row"]["a"], row["row"]["b"]) for row in rows) == [("insert", 1, 3), ("insert", 2, 3)]
            else:  # tokens may expire over a restart, and say so
                assert b"--snapshot" in said and watch.wait(30) == 1
        finally:
            watch.kill()


# -- check


def stopped(server: ServerProcess, client: livejoin.Client) -> Path:
    client.relation("bookings").upsert([row(number, number, number + 3 if number % 5 else None) for number in range(200)])
    client.view("long", "SELECT a.id, a.s FROM bookings a WHERE a.e IS NULL")
    assert server.stop() == 0
    return server.data


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_check_of_a_sound_folder_changes_nothing(server: ServerProcess, client: livejoin.Client, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(server.data)]) == 1
    assert "is in use by" in capfd.readouterr().err
    folder = stopped(server, client)
    before = contents(folder)
    assert main(["check", str(folder)]) == 0
    emitted = capfd.readouterr().out
    assert "rows, confirmed by brute force" in emitted and "view       long: 40 rows" in emitted
    assert contents(folder) == before


@pytest.mark.parametrize("module", [inputs, overlap_join])
def test_check_finds_a_structure_that_is_wrong(
    server: ServerProcess, client: livejoin.Client, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, module: ModuleType
) -> None:
    """Of all algorithms, or of one alone: to register the view again is advised where another one is right."""
    folder = stopped(server, client)

    class Wrong(inputs.Source):
        def _ends(self, *arguments: Any) -> tuple[np.ndarray, np.ndarray]:
            left, right = super()._ends(*arguments)
            return np.where(left == 7, NEG_INF, left), right

    def wrong(*arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        left, right = endpoints(*arguments)
        return np.where(left == 7, NEG_INF, left), right

    endpoints = inputs.stored_endpoints
    monkeypatch.setattr(*((inputs, "stored_endpoints", wrong) if module is inputs else (overlap_join, "Source", Wrong)))
    assert main(["check", str(folder)]) == 1
    emitted = capfd.readouterr()
    assert "damage     view clashes" in emitted.out and "view       long: 40 rows" in emitted.out
    assert emitted.out.splitlines()[-1].startswith("verdict    not confirmed: clashes;") and emitted.err == ""
    advised = 'register it again with "algorithm": "'
    assert (advised in emitted.out) == ("register" in emitted.out) == (module is overlap_join), emitted.out


def test_check_names_damage(server: ServerProcess, client: livejoin.Client, capfd: pytest.CaptureFixture[str]) -> None:
    folder = stopped(server, client)
    table = next(path for path in folder.glob("snapshots/*/*.arrow") if "view-" not in path.name)
    content = bytearray(table.read_bytes())
    content[len(content) // 2] ^= 1
    table.write_bytes(content)
    assert main(["check", str(folder)]) == 1
    emitted = capfd.readouterr()
    assert f"wrong checksum in {table}" in emitted.out and emitted.err == "", emitted.out
    assert emitted.out.splitlines()[-1].startswith("verdict    damaged")
    assert main(["check", str(folder / "nowhere")]) == 1
    assert "not a data folder" in capfd.readouterr().err


def test_files_that_replace_a_relation(
    server: ServerProcess, client: livejoin.Client, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "ROWS", 100)
    relation = client.relation("bookings")
    before = relation.upsert([row(number, 0, 5) for number in range(1000, 1010)]).version
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text("id,s,e\n" + "".join(f"{number},{number},{number + 5}\n" for number in range(350)))
    second.write_text("id,s,e\n1000,0,5\n1001,0,x\n")
    load = ["load", "bookings", str(first), str(second), "--replace", "--url", server.url]
    assert main(load) == 1
    assert "nothing was loaded" in capfd.readouterr().err and relation.get()["rows"] == 10
    assert main([*load, "--on-error", "skip"]) == 1
    emitted = capfd.readouterr()
    assert f"bookings: 351 rows loaded, version {before + 1}\n" == emitted.out and "second.csv  3" in emitted.err
    assert sorted(one["id"] for one in relation.rows()) == [*range(350), 1000, 1001]
    assert main(["load", "rooms", str(first), "--key", "id", "--replace", "--url", server.url]) == 0
    assert client.relation("rooms").get()["rows"] == 350


def test_a_query(
    server: ServerProcess, client: livejoin.Client, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client.relation("bookings").upsert([row(1, 0, 5), row(2, 3, 9), row(3, 20, None)])
    sql, url = "SELECT a, b, e FROM clashes JOIN bookings ON id = b", ["--url", server.url]
    assert main(["query", sql, *url]) == 0
    assert capfd.readouterr().out == '{"a":1,"b":2,"e":9}\n'
    for text in (sql, "\ufeff" + sql):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["query", "-", *url]) == 0
        assert capfd.readouterr().out == '{"a":1,"b":2,"e":9}\n'
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["query", sql, *url]) == 0
    emitted = capfd.readouterr()
    assert [
        line.split() for line in emitted.out.splitlines() if "─" not in line
    ][1:] == [["1", "2", "9"]] and "1 row at version 1" in emitted.err
    assert main(["query", "SELECT id FROM bookings WHERE id < 0", *url]) == 0
    assert "no rows at version 1" in capfd.readouterr().err
    assert main(["query", "SELECT * FROM nix", *url]) == 1
    assert "there is no relation or view 'nix'" in capfd.readouterr().err
    assert main(["query", *url]) == 2
