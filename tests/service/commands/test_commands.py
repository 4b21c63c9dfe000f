"""The commands against a scripted server: what they ask, print and return, and how they fail."""

from __future__ import annotations

import io
import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from livejoin.cli import OWN, SERVICE
from service.cli import main
from tests.service.scripted import Answer, problem, scripted

HOME = Path(__file__).resolve().parents[3]


def jsonl(*records: dict[str, object]) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def change(version: int, op: str, number: int) -> dict[str, object]:
    return {"version": version, "op": op, "key": {"a": {"id": number}}, "row": {"id": number}}


def progress(version: int) -> dict[str, object]:
    return {"version": version, "op": "progress", "token": f"t{version}"}


def livejoin(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", *arguments]
    return subprocess.run(command, cwd=HOME, env=os.environ | {"LIVEJOIN_URL": url}, text=True, capture_output=True, timeout=60)


def on_terminal(*arguments: str, url: str) -> str:
    """Standard output, as written to a terminal."""
    leader, follower = pty.openpty()
    environment = os.environ | {"LIVEJOIN_URL": url, "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", *arguments], cwd=HOME, env=environment, stdout=follower, stderr=subprocess.PIPE
    )
    os.close(follower)
    text = b""
    while True:
        try:
            block = os.read(leader, 65536)
        except OSError:  # Linux says so at the end
            break
        if not block:
            break
        text += block
    os.close(leader)
    process.communicate(timeout=60)
    return text.decode().replace("\r\n", "\n")


# -- how commands fail


@pytest.mark.parametrize("command", [*OWN, *SERVICE])
def test_every_command_has_its_module_and_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0 and command in capsys.readouterr().out
    if command != "bench":  # which passes --help on
        with pytest.raises(SystemExit) as caught:
            main([command, "--help"])
        assert caught.value.code == 0 and f"usage: livejoin {command}" in capsys.readouterr().out


def test_no_service_there(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        assert main(["rows", "v", "--url", url]) == 1
    emitted = capsys.readouterr().err
    assert emitted.count("\n") == 1 and "livejoin serve" in emitted and url in emitted


def test_an_address_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rows", "v", "--url", "nowhere"]) == 2
    assert "http://127.0.0.1:8080" in capsys.readouterr().err


def test_a_file_that_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "r", "/nowhere/x.csv"]) == 1
    assert capsys.readouterr().err == "livejoin: /nowhere/x.csv: No such file or directory\n"


def test_a_definition_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.sql").write_bytes(b"SELECT \xff")
    assert main(["view", "v", "--file", str(tmp_path / "a.sql")]) == 2
    assert capsys.readouterr().err == f"livejoin: {tmp_path}/a.sql is not valid UTF-8 at byte 8: convert it to UTF-8\n"
    assert main(["explain", "--sql", "SELECT \udcff"]) == 2
    assert capsys.readouterr().err == "livejoin: --sql is not valid UTF-8 at byte 8: convert it to UTF-8\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    assert main(["query", "-"]) == 2
    assert capsys.readouterr().err == "livejoin: standard input is not valid UTF-8 at byte 1: convert it to UTF-8\n"


def test_actions_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["token", "--help"])
    assert "revoke    Revoke a token." in capsys.readouterr().out


def test_a_refusal_is_told_with_its_detail() -> None:
    with scripted(problem("forbidden", 403), problem("not-found", 404)) as (url, _):
        done = livejoin("rows", "v", url=url)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "livejoin: forbidden: because\n")


def test_an_error_of_our_own_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(*_: object) -> int:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("service.commands.bench.main", broken)
    assert main(["bench"]) == 1
    assert capsys.readouterr().err == "livejoin: internal error, please report it: ZeroDivisionError: oh no\n"


def test_streams_that_are_closed() -> None:
    """What is written there is lost, and no file that the command opens stands in their place."""
    with scripted(Answer(jsonl({"id": 1}))) as (url, _):
        probe = "import os; from service.cli import main; main(['fly']); print(*(os.readlink(f'/proc/self/fd/{n}') for n in (0, 2)))"
        command = f'"{sys.executable}" -m service.cli rows v --url {url} <&- >&-; echo $?; "{sys.executable}" -c "{probe}" <&- 2>&-'
        done = subprocess.run(["bash", "-c", command], cwd=HOME, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n/dev/null /dev/null\n", "")


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    with scripted(Answer(jsonl(*({"id": number} for number in range(50_000))))) as (url, _):
        command = f'"{sys.executable}" -m service.cli rows v --url {url} | head -n 1; echo "${{PIPESTATUS[0]}}"'
        done = subprocess.run(["bash", "-c", command], cwd=HOME, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ('{"id":0}\n0\n', "")


# -- rows


def test_rows_in_a_pipe_are_the_service_s_lines() -> None:
    body = jsonl({"name": "a\u2028b"}, {"name": None})
    with scripted(Answer(body)) as (url, asked):
        done = livejoin("rows", "v", "--limit", "5", "--overlaps", "1,", "--where", "a.id=x=y", url=url)
    assert (done.returncode, done.stdout.encode(), done.stderr) == (0, body, "")
    assert asked[0].path == "/v1/views/v/rows"
    assert asked[0].params == {"limit": "5", "overlaps": "1,", "where.a.id": "x=y"}


def test_values_of_groups_are_fields_of_csv() -> None:
    given = ["group.a=", 'group.b=""', 'group.c="x""y"', "group.d=x", 'group.e="""']
    with scripted(Answer(jsonl({"id": 1}))) as (url, asked):
        done = livejoin("rows", "v", *(part for one in given for part in ("--where", one)), url=url)
    assert done.returncode == 0, done.stderr
    emitted = {"group.a": "", "group.b": '""', "group.c": 'x"y', "group.d": "x", "group.e": '""""'}
    assert asked[0].params == {f"where.{column}": value for column, value in emitted.items()}


def test_windows_of_several_dimensions() -> None:
    with scripted(Answer(jsonl({"id": 1}))) as (url, asked):
        done = livejoin("rows", "v", "--overlaps", "x=1,", "--overlaps", "a.y=,2", url=url)
    assert done.returncode == 0, done.stderr
    assert asked[0].params == {"overlaps.x": "1,", "overlaps.a.y": ",2"}


def test_rows_that_break_off_are_a_failure() -> None:
    with scripted(Answer(jsonl({"id": 1}), whole=False)) as (url, _):
        done = livejoin("rows", "v", url=url)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "not complete" in done.stderr


def test_rows_on_a_terminal_are_a_table() -> None:
    headers = (("Livejoin-Version", "7"), ("Link", "</v1/views/v/rows?cursor=x>; rel=next"))
    with scripted(Answer(jsonl({"id": 1, "name": None}, {"id": 22, "name": "x\ny"}), headers=headers)) as (url, asked):
        text = on_terminal("rows", "v", url=url)
    assert asked[0].params == {"limit": "50"}
    assert text == "\x1b[1mid  name\x1b[0m\n──  ────\n1   ·\n22  x y\n"


@pytest.mark.parametrize(("empty", "words"), [("true", "no rows at version 7"), ("false", "0 rows at version 7")])
def test_no_rows_on_a_terminal(empty: str, words: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with scripted(Answer(b"", headers=(("Livejoin-Version", "7"), ("Livejoin-Empty", empty)))) as (url, _):
        assert main(["rows", "v", "--limit", "0", "--url", url]) == 0
    assert words in capfd.readouterr().err


def test_a_temporary_refusal_is_waited_out(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(problem("view-building", 503, "0.01"), problem("too-busy", 429, "0"), Answer(jsonl({"id": 1}))) as (url, asked):
        assert main(["rows", "v", "--url", url]) == 0
    assert len(asked) == 3 and capsys.readouterr().err == "livejoin: waiting: because\n"


# -- watch


def test_watch_in_a_pipe_prints_each_version_whole() -> None:
    first = jsonl(change(3, "insert", 1), progress(3), change(4, "delete", 1))
    second = jsonl(change(4, "delete", 1), change(4, "insert", 9), progress(4), progress(5))
    with scripted(Answer(first, whole=False), Answer(second, whole=False)) as (url, asked):
        done = livejoin("watch", "v", "--snapshot", url=url)
    assert done.stdout.encode() == jsonl(change(3, "insert", 1), progress(3)) + second
    assert [request.params for request in asked] == [{"snapshot": "true"}, {"since": "t3"}, {"since": "t5"}]
    assert done.returncode == 1 and done.stderr.count("resuming from the last token") == 2 and done.stderr.count("reconnected") == 1
    assert "token-expired" in done.stderr.splitlines()[-1] and "--snapshot" in done.stderr.splitlines()[-1]


def test_watch_from_now_on_tells_the_token_at_once() -> None:
    with scripted(Answer(jsonl(progress(5))), Answer(jsonl(change(6, "insert", 1), progress(6)))) as (url, asked):
        done = livejoin("watch", "v", url=url)
    assert done.stdout.encode() == jsonl(progress(5), change(6, "insert", 1), progress(6))
    assert [request.params for request in asked] == [{"wait": "0"}, {"since": "t5"}, {"since": "t6"}]


def test_watch_on_a_terminal_colours_what_comes_and_goes() -> None:
    body = jsonl(change(3, "insert", 1), progress(3), change(4, "delete", 1), progress(4))
    with scripted(Answer(body)) as (url, _):
        text = on_terminal("watch", "v", "--snapshot", url=url)
    assert "\x1b[32m+ 3        1\x1b[0m\n" in text and "\x1b[31m− 4        1\x1b[0m\n" in text


# -- view, explain

PLAN = {
    "class": "interval join",
    "algorithm": "interval-tree",
    "theorem": "Theorem 1",
    "guarantee": "strict",
    "bounds": {"space": "O(n)"},
    "order": ["a", "b"],
    "notes": [],
}


def view_in(state: str, **more: object) -> Answer:
    return Answer(orjson.dumps({"name": "v", "state": state, "version": 4, "plan": PLAN} | more))


def test_view_waits_until_it_is_live(capsys: pytest.CaptureFixture[str]) -> None:
    building = [view_in("building", progress=progress) for progress in (0.0, 0.1, 0.5)]
    with scripted(*building, view_in("live")) as (url, asked):
        assert main(["view", "v", "--sql", "SELECT 1;", "--url", url]) == 0
    assert (asked[0].method, orjson.loads(asked[0].body)) == ("PUT", {"sql": "SELECT 1"})
    emitted = capsys.readouterr()
    assert emitted.out == "v is live at version 4: interval join, by interval-tree, strict\n"
    assert "10 %" in emitted.err and "50 %" in emitted.err


def test_view_that_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(view_in("building"), view_in("failed", problem={"detail": "no memory"})) as (url, _):
        assert main(["view", "v", "--sql", "SELECT 1", "--url", url]) == 1
    assert "no memory" in capsys.readouterr().err


def test_a_file_holds_sql_or_json(tmp_path: Path) -> None:
    answer = Answer(orjson.dumps({"plan": PLAN, "alternatives": []}))
    (tmp_path / "a").write_text(" SELECT 1\n;\n")
    (tmp_path / "b").write_text('\n{"from": {"a": "r"}}')
    with scripted(answer, answer) as (url, asked):
        assert main(["explain", "--file", str(tmp_path / "a"), "--url", url]) == 0
        assert main(["explain", "--file", str(tmp_path / "b"), "--url", url]) == 0
    assert [orjson.loads(request.body) for request in asked] == [{"sql": "SELECT 1\n"}, {"from": {"a": "r"}}]
    (tmp_path / "c").write_text("{no")
    assert main(["explain", "--file", str(tmp_path / "c")]) == 2


def test_explain_on_a_terminal_and_in_a_pipe() -> None:
    averages = {"steps_per_row": 1.4142, "steps_per_update": None, "flips_per_update": None, "bytes_per_row": 72.0, "bits_per_tuple": 18.25}
    measured = averages | {"dead_ends": None, "rows_read": 4000000, "counters": {"lookups": 1200, "no_goods": 3}}
    shown = {"clashes": measured | {"delay_steps": {"max": 21}}}
    answer = Answer(orjson.dumps({"plan": PLAN, "alternatives": []}))
    with scripted(Answer(orjson.dumps({"plan": PLAN, "alternatives": [], "measured": shown})), answer) as (url, _):
        text = on_terminal("explain", "--sql", "SELECT 1", url=url)
        done = livejoin("explain", "SELECT 1", url=url)
    assert "algorithm  interval-tree (Theorem 1)\nguarantee  strict\nspace      O(n)\norder      a, b\n" in text
    averages_emitted = "1.414 steps per row, 72 bytes per row, 18.25 bits per tuple (compact)"
    counted = "4,000,000 rows read, 1,200 look-ups, 3 no-goods, at most 21 steps between two rows"
    assert f"measured   clashes: {averages_emitted}, {counted}" in text
    assert orjson.loads(done.stdout) == {"plan": PLAN, "alternatives": []}


def test_explain_tells_of_a_natural_join() -> None:
    natural = {
        "class": "cyclic", "elimination_order": None,
        "variables": {"x.dst": ["x.dst", "y.src"], "x.src": ["x.src", "z.dst"]},
        "join_tree": [{"aliases": ["x", "y"], "by": ["x.dst"]}],
        "agm": {"exponent": 1.5, "cover": {"x": 0.5, "y": 0.5, "z": 0.0}, "rows": 1000.2},
    }  # fmt: skip
    with scripted(Answer(orjson.dumps({"plan": PLAN, "alternatives": [], "natural": natural}))) as (url, _):
        text = on_terminal("explain", "--sql", "SELECT 1", url=url)
    assert "variables  x.dst = y.src; x.src = z.dst\njoin tree  x - y by x.dst\n" in text
    assert "bound      |x|^0.5 |y|^0.5 = 1,000 rows (AGM; n^1.5 for n rows in each relation)" in text


# -- load

RELATION = {"name": "r", "rows": 0, "key": ["id"], "columns": [{"name": "id", "type": "int64"}, {"name": "x", "type": "string"}],
            "intervals": {}}  # fmt: skip


def receipt(applied: int, skipped: list[dict[str, object]] | None = None) -> Answer:
    bad = skipped or []
    return Answer(
        orjson.dumps({"version": 4, "applied": applied, "ignored": 0, "skipped_count": len(bad), "skipped": bad, "duplicate": False})
    )


def test_load_registers_a_new_relation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text("id,s,e,p,n\n1,2026-01-01,,1.5,x\n")
    with scripted(problem("not-found", 404), Answer(b"{}", 201), receipt(1)) as (url, asked):
        arguments = ["--key", "id", "--interval", "stay=s,e,(]", "--interval", "due=e,e,[]", "--interval", "at=s"]
        arguments += ["--type", "e=date", "--type", "p=decimal(12, 2)", "--not-null", "n,p"]
        assert main(["load", "r", str(tmp_path / "r.csv"), *arguments, "--url", url]) == 0
    assert orjson.loads(asked[1].body) == {
        "columns": [
            {"name": "id", "type": "int64", "nullable": False},
            {"name": "s", "type": "date", "nullable": False},
            {"name": "e", "type": "date", "nullable": True},
            {"name": "p", "type": "decimal", "precision": 12, "scale": 2, "nullable": False},
            {"name": "n", "type": "string", "nullable": False},
        ],
        "key": ["id"],
        "intervals": {
            "stay": {"start": "s", "end": "e", "bounds": "(]"},
            "due": {"at": "e"},
            "at": {"at": "s"},
        },
    }
    assert (asked[2].method, asked[2].path, asked[2].params) == ("POST", "/v1/relations/r/changes", {})
    emitted = capsys.readouterr()
    said = "livejoin: registered r (id int64, s date, e date or null, p decimal(12,2), n string)\n"
    assert (emitted.out, emitted.err) == ("r: 1 row loaded, version 4\n", said)


def test_load_shows_rejected_rows_by_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text('id,x\n1,"two\nlines"\n\nno,x\n')
    bad = [{"index": 1, "column": "id", "reason": "not an int64"}]
    with scripted(Answer(orjson.dumps(RELATION)), receipt(1, bad)) as (url, _):
        assert main(["load", "r", str(tmp_path / "r.csv"), "--on-error", "skip", "--url", url]) == 1
    emitted = capsys.readouterr().err.splitlines()
    assert [line.split() for line in emitted if "not an int64" in line] == [["r.csv", "5", "id", "not", "an", "int64"]]
    assert "1 row was rejected and the others were loaded" in emitted[-1]


def test_load_of_nothing_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.csv").write_text("id,x\nno,x\n")
    (tmp_path / "empty.csv").write_text("id,x\n")
    nothing = {"version": 5, "applied": 0, "ignored": 0, "skipped_count": 1, "skipped": [{"index": 0, "column": "id", "reason": "bad"}]}
    nothing["duplicate"] = False
    with scripted(Answer(orjson.dumps(RELATION)), Answer(orjson.dumps(nothing))) as (url, _):
        assert main(["load", "r", str(tmp_path / "bad.csv"), "--on-error", "skip", "--url", url]) == 1
    assert "1 row was rejected: fix" in capsys.readouterr().err
    with scripted(Answer(orjson.dumps(RELATION))) as (url, asked):
        assert main(["load", "r", str(tmp_path / "bad.csv"), "--url", url]) == 1
    assert len(asked) == 1 and "1 row was rejected and nothing was loaded" in capsys.readouterr().err
    with scripted(Answer(orjson.dumps(RELATION))) as (url, _):
        assert main(["load", "r", str(tmp_path / "empty.csv"), "--url", url]) == 0
    assert capsys.readouterr().out == "r: 0 rows loaded\n"


def test_load_that_ends_early_names_the_file_and_what_is_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("livejoin.files.BODY", 3)
    (tmp_path / "r.csv").write_text("id,x\n1,x\n2,x\n")
    arguments = ["load", "r", str(tmp_path / "r.csv"), "--url"]
    with scripted(Answer(orjson.dumps(RELATION)), problem("malformed-body", 400)) as (url, _):
        assert main([*arguments, url]) == 1
    assert "r.csv: malformed-body: because\n" in capsys.readouterr().err
    with scripted(Answer(orjson.dumps(RELATION)), receipt(1), problem("disk-full", 503)) as (url, _):
        assert main([*arguments, url]) == 1
    assert "r.csv, from line 3 on: disk-full: because; already loaded: 1 row\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--key", "x"], "key id"),
        (["--interval", "a=id"], "other intervals"),
        (["--type", "x=date"], "r exists, but its column x is string: omit --type"),
        (["--type", "y=date"], "r exists, but has no column y: omit --type"),
        (["--not-null", "z,x"], "r exists, but has no column z: omit --not-null"),
    ],
)
def test_load_leaves_a_relation_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    (tmp_path / "r.csv").write_text("id,x\n1,x\n")
    with scripted(Answer(orjson.dumps(RELATION))) as (url, asked):
        assert main(["load", "r", str(tmp_path / "r.csv"), *arguments, "--url", url]) == 2
    assert len(asked) == 1 and words in capsys.readouterr().err


def test_load_needs_a_key_for_a_new_relation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text("id,x\n1,x\n")
    with scripted(problem("not-found", 404)) as (url, _):
        assert main(["load", "r", str(tmp_path / "r.csv"), "--url", url]) == 2
    assert "--key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--type", "z=date"], "--type names 'z', but the files have only the columns id, x"),
        (["--not-null", "z"], "--not-null names 'z'"),
        (["--type", "x=bool", "--interval", "at=x"], "'x' is bool; endpoints must be"),
        (["--type", "id=date"], "1 row was rejected and nothing was loaded"),
        (["--not-null", "x", "--type", "x=int64"], "1 row was rejected and nothing was loaded"),
    ],
)
def test_nothing_is_registered_for_what_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    (tmp_path / "r.csv").write_text("id,x\n1,\n")
    with scripted(problem("not-found", 404)) as (url, asked):
        assert main(["load", "r", str(tmp_path / "r.csv"), "--key", "id", *arguments, "--url", url]) != 0
    assert len(asked) == 1 and words in capsys.readouterr().err


def test_a_new_relation_of_fields_that_tabs_separate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.csv").write_text("id\tx\n1\t2\n")
    with scripted(problem("not-found", 404)) as (url, _):
        assert main(["load", "r", str(tmp_path / "a.csv"), "--key", "id", "--url", url]) == 1
    assert "a.csv: the header row is one field, 'id\\tx': separate fields by commas, not by '\\t'" in capsys.readouterr().err


def test_a_relation_is_removed_if_the_service_refuses_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.csv").write_text("id,_op\n1,insert\n1,insert\n")
    with scripted(problem("not-found", 404), Answer(b"{}", 201), problem("bad-rows", 422), Answer(b"", 204)) as (url, asked):
        assert main(["load", "r", str(tmp_path / "r.csv"), "--key", "id", "--url", url]) == 1
    assert asked[3].method == "DELETE" and "removed r again" in capsys.readouterr().err


def test_a_token_that_cannot_be_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LIVEJOIN_TOKEN", "lj_two words")
    assert main(["rows", "v", "--url", "http://127.0.0.1:1"]) == 2
    assert capsys.readouterr().err.startswith("livejoin: LIVEJOIN_TOKEN: the token is not a valid one: ")


def test_a_bad_address_is_not_blamed_on_the_token(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LIVEJOIN_TOKEN", "lj_x")
    assert main(["query", "SELECT 1 AS a", "--url", "foo"]) == 2
    assert capsys.readouterr().err.startswith("livejoin: 'foo' is not the address of a service: ")


def test_the_demo_has_a_service_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--url", "http://127.0.0.1:1"]) == 2
    assert "--url needs --brokers" in capsys.readouterr().err


def test_benchmarks_without_their_packages(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.commands.bench.find_spec", lambda _: None)  # as after `make demo`
    assert main(["bench", "--help"]) == 1 and "run `make setup`" in capsys.readouterr().err


def test_an_unknown_benchmark(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "nope"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("livejoin bench: no subject begins with 'nope'")
