"""`livejoin apply` and `livejoin dump` against a real service."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import livejoin
from service.cli import main
from tests.end_to_end.test_building import hold
from tests.relations import declared
from tests.server_process import ROOT, ServerProcess
from tests.waiting import until

Files = dict[str, Any]
STAYS = declared("id:int64, room:string, s:timestamp, e:timestamp?", stay="s e")
JOBS = declared("id:int64, room:string, s:timestamp, e:timestamp?", slot="s e []")
CLASHES = """-- rooms that are not free
SELECT s.id AS stay, j.id AS job, s.room
FROM stays s JOIN jobs j ON s.room = j.room AND overlaps(s.stay, j.slot);
"""
FOLDER: Files = {
    "relations/stays.json": STAYS,
    "relations/jobs.json": JOBS,
    "views/z_clashes.sql": CLASHES,
    "views/m_rooms.sql": "SELECT DISTINCT room FROM z_clashes",
    "views/a_named.json": {"sql": "SELECT room AS named FROM m_rooms WHERE room > 'A'", "changes": False},
    "views/b_long.json": {"from": {"s": "stays"}, "where": [{"column": "s.e", "op": "is_null"}], "select": ["s.id"]},
}
PLAN = [
    "+ relation jobs", "+ relation stays",
    "+ view b_long", "+ view z_clashes", "+ view m_rooms: reads z_clashes", "+ view a_named: reads m_rooms",
]  # fmt: skip
VIEWS = ["a_named", "b_long", "m_rooms", "z_clashes"]
DONE = [f"created the {line[2:].partition(':')[0]}" for line in PLAN]


def written(folder: Path, files: Files) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {f"{path.relative_to(folder)}": path.read_text() for path in sorted(folder.rglob("*.*"))}


class Commands:
    """The commands in this process: each returns its status, the lines of standard output, and standard error."""

    def __init__(self, server: ServerProcess, capfd: pytest.CaptureFixture[str]) -> None:
        self._url, self._capfd = ["--url", server.url], capfd

    def __call__(self, *arguments: str | Path) -> tuple[int, list[str], str]:
        status = main([*map(str, arguments), *self._url])
        emitted = self._capfd.readouterr()
        return status, emitted.out.splitlines(), emitted.err


@pytest.fixture
def command(server: ServerProcess, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(server, capfd)


def names(client: livejoin.Client) -> list[str]:
    return [one["name"] for one in [*client.relations(), *client.views()]]


def test_from_a_folder_and_back(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    folder = written(tmp_path / "defs", FOLDER)
    with livejoin.connect(server.url) as client:
        assert command("apply", folder, "--dry-run") == (3, PLAN, "") and names(client) == []
        assert command("apply", folder) == (0, [*PLAN, *DONE], "")
        assert {view["name"]: view["state"] for view in client.views()} == dict.fromkeys(VIEWS, "live")
        assert not client.view("a_named").get()["definition"]["changes"]
    for more in ([], ["--dry-run"], ["--prune"]):
        assert command("apply", folder, *more)[::2] == (0, "")
    assert command("apply", folder)[1] == [f"nothing to do: the service has what {folder} defines"]

    status, said, errors = command("dump", tmp_path / "dumped")
    assert (status, said, errors) == (0, [f"{tmp_path / 'dumped'}: 2 relations, 4 views"], "")
    dumped = texts(tmp_path / "dumped")
    assert dumped.keys() == FOLDER.keys() and dumped["views/z_clashes.sql"] == CLASHES.replace(";", "")
    first = ["{", '  "columns": [', '    {"name": "id", "type": "int64", "nullable": false},']
    assert dumped["relations/stays.json"].splitlines()[:3] == first
    assert command("apply", tmp_path / "dumped", "--dry-run")[0] == 0
    assert command("dump", tmp_path / "dumped")[0] == 0 and texts(tmp_path / "dumped") == dumped
    with ServerProcess(tmp_path / "other") as other:
        assert main(["apply", f"{tmp_path / 'dumped'}", "--url", other.url]) == 0
        assert main(["dump", f"{tmp_path / 'again'}", "--url", other.url]) == 0
    assert texts(tmp_path / "again") == dumped


def test_dump_over_other_files(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    folder = written(tmp_path / "defs", FOLDER)
    assert command("apply", folder)[0] == 0
    written(folder, {"views/b_long.sql": "SELECT 1", "views/own.sql": "SELECT id FROM stays", "relations/notes.txt": "mine"})
    status, _, errors = command("dump", folder)
    assert (status, errors) == (0, f"livejoin: {folder}/views/own.sql was kept: the service has no view of this name\n")
    assert not (folder / "views/b_long.sql").exists() and (folder / "relations/notes.txt").read_text() == "mine"


EXTENDED = declared("id:int64, room:string, s:timestamp, e:timestamp?, price:decimal(12,2)?, at:timestamp?", stay="s e", moment="at") | {
    "retain": {"column": "e", "for": "P90D"}
}


def test_relations_are_extended(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    """In the same run as views that need what is new; `*` keeps its meaning."""
    before = {"relations/stays.json": STAYS, "views/everything.sql": "SELECT * FROM stays"}
    folder = written(tmp_path, before)
    assert command("apply", folder)[0] == 0
    with livejoin.connect(server.url) as client:
        client.relation("stays").upsert([{"id": 1, "room": "A", "s": "2001-01-01T00:00:00Z", "e": "2001-01-02T00:00:00Z"}])
        views = {"views/prices.sql": "SELECT id, price\nFROM stays", "views/everything.sql": "select *\nfrom stays"}
        written(folder, {"relations/stays.json": EXTENDED, **views})
        plan = [
            "~ relation stays: add the column price (decimal(12,2)), add the column at (timestamp), add the interval moment, "
            "delete rows whose e is older than P90D, 1 rows have expired and will be deleted",
            "+ view prices: not checked before the relations are extended",
        ]
        assert command("apply", folder, "--dry-run") == (3, plan, "")
        assert len(client.relation("stays").get()["columns"]) == 4
        assert command("apply", folder) == (0, [*plan, "changed the relation stays", "created the view prices"], "")
        assert command("apply", folder, "--dry-run") == (0, [], "")
        written(folder, {"relations/stays.json": {part: value for part, value in EXTENDED.items() if part != "retain"}})
        assert command("apply", folder, "--dry-run")[0] == 0  # what a file does not mention
        written(folder, {"relations/stays.json": EXTENDED | {"retain": None}})
        assert command("apply", folder)[1] == ["~ relation stays: keep rows of any age", "changed the relation stays"]
        assert "retain" not in client.relation("stays").get()


def test_a_new_relation_with_a_retention(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    folder = written(tmp_path, {"relations/stays.json": EXTENDED})
    assert command("apply", folder)[0] == 0 and command("apply", folder, "--dry-run")[0] == 0
    with livejoin.connect(server.url) as client:
        assert client.relation("stays").get()["retain"] == EXTENDED["retain"]


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (declared("id:int64, room:string, s:timestamp, e:timestamp?", "id, room", stay="s e"), "has the key id; a relation can only"),
        (declared("id:int64, s:timestamp, e:timestamp?", stay="s e"), "has the column room, which the file does not"),
        (declared("room:string, id:int64, s:timestamp, e:timestamp?", stay="s e"), "in the order id, room, s, e; new ones come after"),
        (declared("id:int64, room:int64, s:timestamp, e:timestamp?", stay="s e"), "has the column room as string, not int64"),
        (declared("id:int64, room:string, s:timestamp, e:timestamp", stay="s e"), "has a column e that may be null"),
        (declared("id:int64, room:string, s:timestamp, e:timestamp?, n:int64", stay="s e"), "no column n, which must be nullable"),
        (declared("id:int64, room:string, s:timestamp, e:timestamp?"), 'has the interval stay as {"start": "s", "end": "e", "bound'),
        (declared("id:int64, room:string, s:timestamp, e:timestamp?", stay="s e []"), "has the interval stay as"),
        (declared("id:int64, room:string?, s:timestamp, e:timestamp?", stay="s e"), "'room' is a column by which self joins"),
    ],
)
def test_relations_that_cannot_be_extended(
    definition: Any, words: str, server: ServerProcess, command: Commands, tmp_path: Path
) -> None:
    self_join = "SELECT x.id AS x, y.id AS y FROM stays x JOIN stays y ON x.room = y.room AND overlaps(x.stay, y.stay)"
    folder = written(tmp_path / "defs", {"relations/stays.json": STAYS, "views/self.sql": self_join})
    assert command("apply", folder)[0] == 0
    written(folder, {"relations/stays.json": definition, "relations/jobs.json": JOBS})
    for more in ([], ["--dry-run"]):
        status, said, errors = command("apply", folder, *more)
        assert (status, said) == (1, ["+ relation jobs"]) and f"{folder}/relations/stays.json: " in errors and words in errors
        assert errors.endswith("livejoin: 1 definition cannot be applied; nothing was changed\n")
    with livejoin.connect(server.url) as client:
        assert names(client) == ["stays", "self"]


def test_a_view_that_differs(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    folder = written(tmp_path / "defs", FOLDER)
    assert command("apply", folder)[0] == 0
    same = {
        "views/z_clashes.sql": CLASHES.replace("SELECT", "select").replace("JOIN", "INNER JOIN"),
        "views/b_long.json": {"sql": "SELECT id FROM stays s WHERE e IS NULL"},
    }
    assert command("apply", written(folder, same), "--dry-run") == (0, [], "")
    written(folder, {"views/m_rooms.sql": "SELECT room FROM z_clashes GROUP BY room HAVING count(*) > 1"})
    plan = ["~ view m_rooms: replace it, and those that read it"]
    assert command("apply", folder, "--dry-run") == (3, plan, "")
    assert command("apply", folder) == (0, [*plan, "changed the view m_rooms"], "")
    assert command("apply", folder, "--dry-run") == (0, [], "")
    more = {
        "views/a_named.json": {"sql": "SELECT room, n FROM m_rooms"},
        "views/m_rooms.sql": "SELECT room, count(*) AS n FROM z_clashes GROUP BY room",
        "views/new.sql": "SELECT n FROM a_named",
    }
    plan = ["~ view m_rooms: replace it, and those that read it", "~ view a_named: not checked before m_rooms is replaced"]
    plan.append("+ view new: reads a_named")
    status, said, errors = command("apply", written(folder, more))
    assert (status, said[:3], errors) == (0, plan, "")
    (folder / "views/new.sql").unlink()
    with livejoin.connect(server.url) as client:
        assert client.view("new").get()["reads"] == ["a_named"]
        client.view("new").drop()
    written(folder, {"views/z_clashes.sql": "SELECT nothing FROM stays"})
    errors = command("apply", folder, "--dry-run")[2]
    assert "z_clashes.sql: line 1, column 8: " in errors
    (folder / "views/z_clashes.sql").unlink()
    written(folder, {"relations/z_clashes.json": JOBS, "views/jobs.sql": "SELECT id FROM stays"})
    (folder / "relations/jobs.json").unlink()
    status, _, errors = command("apply", folder)
    assert status == 1 and "jobs is a relation of the service; to drop it with its rows: `livejoin drop relation jobs`" in errors
    assert "z_clashes is a view of the service; to drop it: `livejoin drop view a_named`, " in errors


def test_pruning(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    folder = written(tmp_path / "defs", FOLDER)
    assert command("apply", folder)[0] == 0
    for name in ("views/z_clashes.sql", "views/m_rooms.sql", "views/a_named.json", "relations/jobs.json"):
        (folder / name).unlink()
    kept = "livejoin: only in the service, and kept: relation jobs, view a_named, view m_rooms, view z_clashes\n"
    assert command("apply", folder, "--dry-run") == (0, [], kept)
    written(folder, {"views/a_named.json": FOLDER["views/a_named.json"], "views/more.sql": "SELECT * FROM z_clashes"})
    status, _, errors = command("apply", folder, "--prune")
    assert status == 1 and "a_named reads m_rooms, which the folder does not define, so that --prune would drop it: add its file" in errors
    assert "more.sql: more reads z_clashes, which the folder does not define" in errors and "2 definitions cannot be applied" in errors
    (folder / "views/a_named.json").unlink()
    written(folder, {"views/more.sql": "SELECT room FROM stays"})
    kept = "livejoin: only in the service, and kept: relation jobs\n"
    plan = ["+ view more", "- view a_named", "- view m_rooms", "- view z_clashes"]
    done = ["created the view more", "dropped the view a_named", "dropped the view m_rooms", "dropped the view z_clashes"]
    assert command("apply", folder, "--prune", "--dry-run") == (3, plan, kept)
    assert command("apply", folder, "--prune") == (0, [*plan, *done], kept)
    for name in ("b_long.json", "more.sql"):
        (folder / "views" / name).unlink()
    status, said, errors = command("apply", folder, "--prune")
    assert (status, said) == (2, []) and "defines no views, so that --prune would drop all" in errors


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"relations/r.json": '{\n  "columns": [\n    {"name" "id"}\n]}'}, ["relations/r.json:3:13: not JSON: "]),
        ({"relations/r.json": "[]"}, ["relations/r.json: a definition is a JSON object"]),
        ({"relations/r.json": declared("id:int64", "no")}, ["relations/r.json: the key contains 'no', which is not a column"]),
        ({"relations/r.json": declared("id:int64") | {"colums": []}}, ["r.json: colums: is unknown; did you mean columns?"]),
        ({"relations/r.sql": "CREATE TABLE r"}, ["relations/r.sql: the files of relations end in .json"]),
        ({"views/v.txt": "SELECT 1", "views/w.SQL": "SELECT 1"}, ["v.txt: the files of views end in .sql or .json", "w.SQL: the files of"]),
        ({"views/V.sql": "SELECT 1"}, ["views/V.sql: the name 'V' does not match"]),
        ({"views/v.sql": " \n"}, ["views/v.sql is empty: write a SELECT"]),
        ({"views/v.sql": "SELECT 1", "views/v.json": {}}, ["v.sql: v is defined in ", "v.json too"]),
        ({"relations/v.json": JOBS, "views/v.json": {}}, ["views/v.json: v is defined in "]),
    ],
)
def test_files_that_are_wrong(files: Files, words: list[str], command: Commands, tmp_path: Path) -> None:
    written(tmp_path, {"relations/.hidden": "x", "relations/stays.json": STAYS, **files})
    status, said, errors = command("apply", tmp_path)
    assert (status, said) == (2, []) and errors.endswith(" wrong; nothing was changed\n")
    assert all(one in errors for one in words), errors


def test_no_folder(command: Commands, tmp_path: Path) -> None:
    status, said, errors = command("apply", tmp_path)
    assert (status, said) == (2, []) and errors.startswith(f"livejoin: {tmp_path} has neither a folder relations nor a folder views; ")


REFUSED = {
    "views/a.sql": ("\n\nSELECT s.id,\n  nothing FROM stays s", "a.sql: line 4, column 3: no relation of the view has a column nothing; "),
    "views/b.sql": ("SELECT FROM WHERE", "b.sql: expected table name"),
    "views/c.sql": (
        "SELECT id FROM stay",
        "c.sql: there is no relation or view stay, in the service or in the folder; did you mean stays?",
    ),
    "views/d.sql": ("SELECT e.n FROM e JOIN jobs j ON e.n = j.id", "d reads e reads d; a view cannot read itself"),
    "views/e.sql": ("SELECT d.n FROM d", None),
    "views/f.json": ({"from": {"s": "stays"}, "where": [{"column": "s.no", "op": "is_null"}]}, "f.json: where.0.column: stays has no col"),
    "views/g.sql": ("SELECT * FROM g", None),
    "views/h.sql": ("SELECT id FROM g UNION SELECT no FROM stays s", "h.sql: line 1, column 31: no relation of the view"),
}


def test_views_that_are_refused(command: Commands, tmp_path: Path) -> None:
    """All at once, and before anything is changed."""
    folder = written(tmp_path / "defs", {"relations/stays.json": STAYS})
    assert command("apply", folder)[0] == 0
    written(folder, {"relations/jobs.json": JOBS, **{name: definition for name, (definition, _) in REFUSED.items()}})
    status, said, errors = command("apply", folder)
    assert (status, said) == (1, ["+ relation jobs"])
    for _, words in REFUSED.values():
        assert words is None or words in errors, errors
    assert errors.endswith("livejoin: 6 definitions cannot be applied; nothing was changed\n")
    for name in ("d", "e"):
        (folder / f"views/{name}.sql").unlink()
    assert "g reads g; a view cannot read itself" in command("apply", folder)[2]


def test_a_failure_in_the_middle(command: Commands, tmp_path: Path) -> None:
    """What reads new views is judged only when they are there."""
    wrong = {"views/m_rooms.sql": "SELECT DISTINCT floor FROM z_clashes"}
    folder = written(tmp_path / "defs", FOLDER | wrong)
    status, said, errors = command("apply", folder)
    assert (status, said) == (1, [*PLAN, *DONE[:4]])
    first, second = errors.splitlines()
    assert first == (
        "livejoin: done: relation jobs, relation stays, view b_long, view z_clashes; stopped at: view m_rooms; not begun: view a_named"
    )
    assert second.startswith("livejoin: view m_rooms: line 1, column 17: ")
    assert second.endswith("; to continue, repeat the command")
    written(folder, {"views/m_rooms.sql": FOLDER["views/m_rooms.sql"]})
    assert command("apply", folder) == (0, [*PLAN[4:], *DONE[4:]], "")


def test_kills_in_the_middle(tmp_path: Path) -> None:
    """After each line that it prints, and then once more with a service that is killed: repeated, the command does the rest."""
    folder = written(tmp_path / "defs", FOLDER)
    with ServerProcess(tmp_path / "data") as server:
        begun = [sys.executable, "-m", "service.cli", "apply", f"{folder}", "--url", server.url]
        for killed, lines in [("command", len(PLAN) + done) for done in range(1, 5)] + [("service", len(PLAN) + 2)]:
            process = subprocess.Popen(begun, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert process.stdout is not None
            for _ in range(lines):
                process.stdout.readline()
            if killed == "command":
                process.send_signal(signal.SIGKILL)
            else:
                server.kill()
                server.start()
            process.communicate(timeout=60)
            assert main(["apply", f"{folder}", "--url", server.url]) == 0
            assert main(["apply", f"{folder}", "--url", server.url, "--dry-run"]) == 0
            with livejoin.connect(server.url) as client:
                assert names(client) == ["jobs", "stays", *VIEWS]
                for view in VIEWS:
                    client.view(view).drop()
                for relation in ("jobs", "stays"):
                    client.relation(relation).drop()


def test_an_interruption_during_a_build(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder, gate = written(tmp_path / "defs", {"relations/stays.json": STAYS, "views/long.sql": "SELECT id FROM stays"}), tmp_path / "go"
    with ServerProcess(tmp_path / "data", before=partial(hold, gate)) as server, livejoin.connect(server.url) as client:
        begun = [sys.executable, "-m", "service.cli", "apply", f"{folder}", "--url", server.url]
        process = subprocess.Popen(begun, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: [view["state"] for view in client.views()] == ["building"])
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert errors.endswith("livejoin: done: relation stays; stopped at: view long; not begun: nothing\n")
        command = Commands(server, capfd)
        assert command("apply", folder, "--dry-run")[0] == 0
        written(folder, {"views/long.sql": "SELECT id\nFROM stays"})
        assert "the view long is being built: repeat the command when it is live" in command("apply", folder)[2]
        written(folder, {"views/long.sql": "SELECT id FROM stays"})
        process = subprocess.Popen(begun, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None and "long is being built" in process.stderr.readline()
        gate.touch()
        assert process.wait(60) == 0 and client.view("long").get()["state"] == "live"
        process.communicate()


def test_a_view_that_has_failed(server: ServerProcess, command: Commands, tmp_path: Path) -> None:
    grouped = {"sql": "SELECT room, count(*) AS n FROM stays GROUP BY room", "groups": 1}
    folder = written(tmp_path / "defs", {"relations/stays.json": STAYS, "views/rooms.json": grouped})
    assert command("apply", folder)[0] == 0
    with livejoin.connect(server.url) as client:
        client.relation("stays").upsert([{"id": number, "room": room, "s": "2026-01-01T00:00:00Z"} for number, room in enumerate("AB")])
    status, said, errors = command("apply", folder)
    assert (status, said) == (1, []) and "rooms.json: the view rooms has failed (" in errors
    assert "drop it, and repeat the command: `livejoin drop view rooms`" in errors
    assert command("drop", "view", "rooms")[0] == 0
    status, said, errors = command("apply", folder)
    assert (status, said) == (1, ["+ view rooms"]) and "livejoin: view rooms: " in errors and "1 groups" in errors


def test_tokens(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, data = written(tmp_path / "defs", FOLDER), tmp_path / "data"
    tokens = {}
    for name, *more in (("ops", "admin"), ("ci", "read"), ("team", "admin", "--relations", "stays,jobs", "--views", "z_clashes,b_long")):
        assert main(["token", "create", name, "--scope", *more, "--data", f"{data}"]) == 0
        tokens[name] = capfd.readouterr().out.strip()
    with ServerProcess(data) as server:
        command = Commands(server, capfd)
        monkeypatch.setenv("LIVEJOIN_TOKEN", tokens["ci"])
        assert command("apply", folder, "--dry-run") == (3, PLAN, "")
        status, said, errors = command("apply", folder)
        assert (status, said) == (1, PLAN)
        assert errors.startswith("livejoin: done: nothing; stopped at: relation jobs; not begun: relation stays, ")
        assert "the access token 'ci' has the scope read; this operation requires admin" in errors
        monkeypatch.setenv("LIVEJOIN_TOKEN", tokens["team"])
        status, said, errors = command("apply", folder)
        assert status == 1 and "views/a_named.json: forbidden: the access token 'team' is not for the view 'a_named'" in errors
        for name in ("views/m_rooms.sql", "views/a_named.json"):
            (folder / name).unlink()
        assert command("apply", folder)[0] == 0
        monkeypatch.setenv("LIVEJOIN_TOKEN", tokens["ci"])
        more = declared("id:int64, room:string, s:timestamp, e:timestamp?, n:int64?", slot="s e []")
        written(folder, {"relations/jobs.json": more})
        assert command("apply", folder, "--dry-run") == (3, ["~ relation jobs: add the column n (int64)"], "")
        monkeypatch.delenv("LIVEJOIN_TOKEN")
        status, said, errors = command("apply", folder, "--dry-run")
        assert (status, said) == (1, []) and errors.startswith("livejoin: unauthorized: ")
