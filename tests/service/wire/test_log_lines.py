"""The log: one form for all components and libraries, lines of several threads whole."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from livejoin.wire.log_lines import message_of
from tests.server_process import ROOT

LINE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3})Z ([A-Z]+) ([\w.]+): (.*)")


def logged(code: str, form: str = "text", level: str = "info") -> list[str]:
    """The lines that a process writes on standard error, in a time zone far from UTC."""
    source = f"import logging\nfrom livejoin.wire.log_lines import start_log\nstart_log({form!r}, {level!r})\n{code}"
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, check=True, env={"TZ": "Asia/Tokyo"})
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_time_level_component_message() -> None:
    before = datetime.now(UTC)
    (line,) = logged('logging.getLogger("livejoin.writer").info("batch %d", 3)')
    found = LINE.fullmatch(line)
    assert found is not None and found.groups()[1:] == ("INFO", "livejoin.writer", "batch 3") and message_of(line) == "batch 3"
    emitted = datetime.fromisoformat(f"{found[1]}+00:00")
    assert before.replace(microsecond=0) <= emitted <= datetime.now(UTC)


def test_libraries_say_only_what_is_wrong() -> None:
    levels = "log.debug('d'); log.info('i'); log.warning('w')"
    lines = logged(f"for name in ('livejoin.api', 'uvicorn.error', 'py4j.clientserver'):\n log = logging.getLogger(name); {levels}")
    emitted = [LINE.fullmatch(line) for line in lines]
    assert [(each[2], each[3], each[4]) for each in emitted if each] == [
        ("INFO", "livejoin.api", "i"), ("WARNING", "livejoin.api", "w"),
        ("WARNING", "uvicorn.error", "w"), ("WARNING", "py4j.clientserver", "w"),
    ]  # fmt: skip


REQUEST = "from livejoin.wire.log_lines import REQUEST_ID\nREQUEST_ID.set('ab12-7')\n"


def test_the_request() -> None:
    before, during = logged(f"log = logging.getLogger('livejoin.api')\nlog.info('early')\n{REQUEST}log.info('it failed')")
    assert " livejoin.api: early" in before and " INFO livejoin.api [ab12-7]: it failed" in during
    assert message_of(during) == "it failed"


def test_json() -> None:
    """An object a line, whatever the message is; libraries alike."""
    code = "try: 1 / 0\nexcept ZeroDivisionError: log.exception('broken %s', 'off\\n\\u2028\\udc80 \"x\"')"
    fields = "log.info('asked', extra={'fields': {'status': 200}})"
    source = f"log = logging.getLogger('livejoin.api')\n{REQUEST}{code}\n{fields}\nlogging.getLogger('uvicorn').warning('w')"
    lines = logged(source, "json", "debug")
    first, traced, second, third = map(json.loads, lines)
    assert list(first) == ["time", "level", "component", "message", "request_id"] and traced["level"] == "DEBUG"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert (first["level"], first["component"], first["request_id"]) == ("ERROR", "livejoin.api", "ab12-7")
    assert first["message"] == message_of(lines[0]) == 'broken off\n\u2028\udc80 "x": ZeroDivisionError (<string>:7 <module>)'
    assert "by zero" in traced["traceback"]
    assert second["status"] == 200 and second["message"] == "asked"
    assert third["component"] == "uvicorn" and third["level"] == "WARNING"


def test_no_message_looks_like_a_line_of_its_own() -> None:
    (line,) = logged("logging.getLogger('livejoin.api').info('%s', '1\\n2026-01-01T00:00:00.000Z INFO x: 2\\r\\x1b[31m\\u2028')")
    assert message_of(line) == "1\\n2026-01-01T00:00:00.000Z INFO x: 2\\r\\x1b[31m\\u2028"


def test_a_second_start_doubles_nothing() -> None:
    assert len(logged("start_log()\nlogging.getLogger('livejoin').warning('once')")) == 1


def test_lines_of_threads_are_whole() -> None:
    code = """
import threading
def talk(name):
    for number in range(500): logging.getLogger("livejoin." + name).info("%s %d %s", name, number, name * 40)
threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
    lines = logged(code)
    assert sorted(map(message_of, lines)) == sorted(f"{name} {number} {name * 40}" for name in "abcd" for number in range(500))


BROKEN = "try: int('a row')\nexcept ValueError: logging.getLogger({name!r}).exception('broken %s', 'off')"


@pytest.mark.parametrize("name", ["livejoin.api", "asyncio"])
def test_an_error_is_named_by_its_type_and_place_only(name: str) -> None:
    (line,) = logged(BROKEN.format(name=name))
    assert f" ERROR {name}: " in line and re.fullmatch(r"broken off: ValueError \(<string>:\d <module>\)", message_of(line))


def test_a_traceback_follows_at_debug() -> None:
    first, second, *rest, last = logged(BROKEN.format(name="livejoin.api"), level="debug")
    assert message_of(first).startswith("broken off: ValueError (") and " DEBUG livejoin.api: " in second
    assert rest[0].startswith("Traceback") and last.endswith("'a row'")


def test_what_is_no_line_of_the_log_is_left_as_it_is() -> None:
    assert message_of("livejoin: --port 8080 is taken") == "livejoin: --port 8080 is taken"


def test_every_component_has_a_name_of_its_own() -> None:
    """No logger is called plainly `livejoin`, and none is outside of it."""
    named = {
        name
        for package in ("service", "streaming", "structures")
        for path in (ROOT / package).rglob("*.py")
        for name in re.findall(r"^\w+ = logging\.getLogger\((.*)\)", path.read_text(), re.MULTILINE)
    }
    assert len(named) >= 8 and all(re.fullmatch(r'"livejoin\.[a-z.]+"', name) for name in named), named
