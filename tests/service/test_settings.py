"""Settings: flags override variables, which override defaults; every invalid value is reported with its setting and the accepted values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from service.query.model import MAX_ALIASES
from service.settings import BadSetting, Settings, read_settings, settings
from tests.server_process import ROOT


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in settings():
        monkeypatch.delenv(one.variable, raising=False)


def test_defaults() -> None:
    assert read_settings({}).model_dump() == {
        "data": Path("livejoin-data"), "host": "127.0.0.1", "port": 8080, "synchronous": "full", "ready": "views",
        "max_head": 64 << 10, "head_time": 10.0, "max_body": 256 << 20, "body_idle": 60.0, "max_decoded": 1 << 30,
        "max_body_memory": 1 << 30, "max_batch_rows": 1_000_000, "max_relation_rows": 100_000_000,
            "max_waiting": 1024, "max_connections": 2000, "max_followers": 1000,
        "max_cursors": 10_000, "max_client_cursors": 1000, "pin_idle": 60.0, "pin_bytes": 1 << 30, "max_relations": 1000,
        "max_columns": 1000, "max_views": 1000, "max_aliases": 8, "max_conditions": 64, "max_sql": 64 << 10,
        "spool_bytes": 1 << 30, "spool_idle": 60.0, "max_queries": 2, "query_memory": 1 << 30, "query_time": 30.0, "query_threads": 1,
        "tls_certificate": None, "tls_key": None, "forwarded_allow_ips": "none",
        "log_format": "text", "access_log": "off", "log_level": "info", "admin_token_file": None,
    }  # fmt: skip


def test_no_more_aliases_than_joins_can_have() -> None:
    assert Settings(max_aliases=MAX_ALIASES).max_aliases == MAX_ALIASES
    with pytest.raises(ValueError):
        Settings(max_aliases=MAX_ALIASES + 1)


def test_flags_before_variables_before_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEJOIN_PORT", "9000")
    monkeypatch.setenv("LIVEJOIN_MAX_BODY", "2 KiB")
    monkeypatch.setenv("LIVEJOIN_SYNCHRONOUS", "")
    monkeypatch.setenv("LIVEJOIN_CACHE", "no setting of this table")
    given = read_settings({"port": "9001"})
    assert (given.port, given.max_body, given.synchronous) == (9001, 2048, "full")


def test_none() -> None:
    """The word for a setting without a value, which a command uses to override a variable."""
    given = read_settings({"tls_certificate": "none", "tls_key": "key.pem", "forwarded_allow_ips": "none"})
    assert (given.tls_certificate, given.tls_key, given.forwarded_allow_ips) == (None, Path("key.pem"), "none")


@pytest.mark.parametrize(("written", "size"), [("7", 7), ("7B", 7), ("3 KiB", 3072), ("3kb", 3000), ("2GiB", 2 << 30), (" 1 MB ", 10**6)])
def test_sizes(written: str, size: int) -> None:
    assert read_settings({"max_body": written}).max_body == size


BAD = [
    ("port", "x", "must be an integer"),
    ("port", "", "must be an integer"),
    ("port", "65536", "must be at most 65535"),
    ("port", "-1", "must be at least 0"),
    ("synchronous", "sometimes", 'must be "full" or "normal"'),
    ("max_body", "much", "must be a number of bytes, such as 268435456 or 256MiB"),
    ("max_body", "0", "must be more than 0"),
    ("max_waiting", "1.5", "must be an integer"),
    ("pin_idle", "soon", "must be a number"),
    ("pin_idle", "nan", "must be more than 0"),
    ("pin_bytes", "-1", "must be a number of bytes"),
    ("forwarded_allow_ips", "*", "must be addresses or networks, separated by commas, such as 127.0.0.1,10.0.0.0/8, or none"),
    ("forwarded_allow_ips", "10.0.0.1/8", "must be addresses or networks"),
    ("forwarded_allow_ips", "127.0.0.1,,::1", "must be addresses or networks"),
    ("log_format", "xml", 'must be "text" or "json"'),
    ("access_log", "yes", 'must be "off" or "on"'),
]


@pytest.mark.parametrize(("name", "value", "accepted"), BAD)
def test_a_bad_flag(name: str, value: str, accepted: str) -> None:
    with pytest.raises(BadSetting) as caught:
        read_settings({name: value})
    one = next(one for one in settings() if one.name == name)
    assert str(caught.value).startswith(f"{one.flag} ({one.variable}): {accepted}") and str(caught.value).endswith(f", not {value!r}")


@pytest.mark.parametrize(("name", "value", "accepted"), [case for case in BAD if case[1]])
def test_a_bad_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str, accepted: str) -> None:
    one = next(one for one in settings() if one.name == name)
    monkeypatch.setenv(one.variable, value)
    with pytest.raises(BadSetting) as caught:
        read_settings({})
    assert one.variable in str(caught.value) and accepted in str(caught.value) and repr(value) in str(caught.value)


def test_variables_do_not_reach_settings_that_code_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIVEJOIN_PORT", "9000")
    assert Settings().port == 8080


def test_every_setting_is_declared_whole() -> None:
    for one in settings():
        assert one.purpose and one.default and one.metavar
        assert getattr(read_settings({one.name: one.default}), one.name) == Settings.model_fields[one.name].default


def test_help_tells_all_of_it() -> None:
    done = subprocess.run([sys.executable, "-m", "service.cli", "serve", "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    emitted = " ".join(done.stdout.split())
    for one in settings():
        assert f"{one.flag} {one.metavar} {one.purpose} ({one.variable}; default: {one.default})" in emitted
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_other_commands_do_without_the_library() -> None:
    """pydantic-settings adds 35 ms to a start; only `serve` needs it."""
    code = "import sys, service.cli, service.engine.engine, service.commands.check\nassert 'pydantic_settings' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
