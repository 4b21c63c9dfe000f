"""The settings of the service. Each is declared once, as a field of `Settings`, with its type, unit, range, default and purpose; its flag
of `livejoin serve`, its `LIVEJOIN_…` variable and the help text are generated from that declaration, and a test compares the table in
docs/operations.md with it."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from livejoin.wire.log_lines import Format, Level
from livejoin.wire.wording import wording

PREFIX = "LIVEJOIN_"
NONE = "none"  # how the absence of a value is written
_BYTES = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


class BadSetting(ValueError):
    """A setting has an invalid value; the text names the setting and the value, and says what is accepted."""


def _size(value: Any) -> Any:
    """Parse `256 MiB`, `1GB` or a plain number of bytes."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None or match[2].upper() not in _BYTES:
        raise ValueError("must be a number of bytes, such as 268435456 or 256MiB")
    return int(match[1]) * _BYTES[match[2].upper()]


def _size_text(size: int) -> str:
    """Format a size as users write it: `1GiB`."""
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size % _BYTES[unit.upper()] == 0)
    return f"{size // _BYTES[unit.upper()]}{unit}"


def _file(value: Any) -> Any:
    return None if value == NONE else value


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(text: str) -> tuple[Network, ...]:
    """Parse `127.0.0.1, 10.0.0.0/8`, or "none". Raises ValueError."""
    if text == NONE:
        return ()
    try:
        return tuple(ipaddress.ip_network(part.strip()) for part in text.split(","))
    except ValueError:
        raise ValueError(f"must be addresses or networks, separated by commas, such as 127.0.0.1,10.0.0.0/8, or {NONE}") from None


def _networks(text: str) -> str:
    networks(text)
    return text


Folder = Annotated[Path, Field(json_schema_extra={"metavar": "DIR"})]
File = Annotated[Path | None, BeforeValidator(_file), Field(json_schema_extra={"metavar": "FILE"})]
Networks = Annotated[str, AfterValidator(_networks), Field(json_schema_extra={"metavar": "ADDRESSES"})]
Address = Annotated[str, Field(json_schema_extra={"metavar": "ADDRESS"})]
Port = Annotated[int, Field(ge=0, le=65535, json_schema_extra={"metavar": "N"})]
Count = Annotated[int, Field(gt=0, json_schema_extra={"metavar": "N"})]
# The maximum that joins support: `MAX_ALIASES` in query/model.py.
Aliases = Annotated[int, Field(ge=1, le=8, json_schema_extra={"metavar": "N"})]
Seconds = Annotated[float, Field(gt=0, json_schema_extra={"metavar": "SECONDS"})]
Size = Annotated[int, BeforeValidator(_size), Field(gt=0, json_schema_extra={"metavar": "SIZE"})]


class Settings(BaseModel):
    """The settings of one service. Sizes in bytes, times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Folder = Field(Path("livejoin-data"), description="the data folder; used by one service at a time")
    host: Address = Field("127.0.0.1", description="the address to listen on; any but loopback requires token mode")
    port: Port = Field(8080, description="the port to listen on; 0 lets the system choose")
    synchronous: Literal["full", "normal"] = Field(
        "full", description="whether an acknowledged batch survives a power failure (full) or only a crash of the process (normal)"
    )
    ready: Literal["views", "relations"] = Field(
        "views",
        description="whether `/readyz` reports a start as ready once all views are built, or as soon as relations can be read and written",
    )
    max_head: Size = Field(64 << 10, description="the maximum size of a request's head; a larger one is answered with 431")
    head_time: Seconds = Field(10.0, description="how long a request's head may take to arrive before it is answered with 408")
    max_body: Size = Field(256 << 20, description="the maximum size of a request body; a larger one is answered with 413")
    body_idle: Seconds = Field(60.0, description="how long a body may pause between two bytes before it is answered with 408")
    max_decoded: Size = Field(1 << 30, description="the maximum size of a decoded body; a larger one is answered with 413")
    max_body_memory: Size = Field(
        1 << 30,
        description="the memory for all bodies of more than 64 KiB, including decoded ones; when it is used up, further bodies are "
        "answered with 429 before they are read. One body may always take `--max-body` and `--max-decoded`",
    )
    max_batch_rows: Count = Field(1_000_000, description="the maximum number of rows in a batch; more are answered with 413")
    max_relation_rows: Count = Field(
        100_000_000, description="the maximum number of rows of a replacement, staged or not; more are answered with 413"
    )
    max_waiting: Count = Field(1024, description="the maximum number of batches waiting to be applied; further ones are answered with 429")
    max_connections: Count = Field(2000, description="the maximum number of connections; requests on further ones are answered with 429")
    max_followers: Count = Field(1000, description="the maximum number of followers; further ones are answered with 429")
    max_cursors: Count = Field(10_000, description="the maximum number of cursors; pages that need another one are answered with 429")
    max_client_cursors: Count = Field(
        1000, description="the maximum number of cursors of one access token or, without tokens, of one address"
    )
    pin_idle: Seconds = Field(
        60.0,
        description="how long a version is kept for an idle cursor or for a reader that has stopped reading, whose connection is then "
        "closed",
    )
    pin_bytes: Size = Field(1 << 30, description="how much memory the oldest reader may keep from being reused")
    spool_bytes: Size = Field(
        1 << 30,
        description="the disk space for files of rows (such as `rows.parquet`) that are read in parts; a larger file is only sent as a "
        "whole",
    )
    spool_idle: Seconds = Field(60.0, description="how long such a file is kept after its last use")
    max_relations: Count = Field(1000, description="the maximum number of relations; further ones are answered with 409")
    max_columns: Count = Field(
        1000, description="the maximum number of columns of a relation or view, and of intervals of a relation; more are answered with 422"
    )
    max_views: Count = Field(1000, description="the maximum number of views; further ones are answered with 409")
    max_aliases: Aliases = Field(8, description="the maximum number of relations that a view joins; more are answered with 422")
    max_conditions: Count = Field(64, description="the maximum number of conditions of a view; more are answered with 422")
    max_sql: Size = Field(64 << 10, description="the maximum length of SQL; a longer text is answered with 422, an ad hoc query with 400")
    max_queries: Count = Field(2, description="the maximum number of concurrent ad hoc queries; further ones are answered with 429")
    query_memory: Size = Field(1 << 30, description="the maximum memory of an ad hoc query; one that needs more is answered with 413")
    query_time: Seconds = Field(
        30.0, description="how long an ad hoc query may take, including its response, before it is answered with 408"
    )
    query_threads: Count = Field(1, description="the number of threads of an ad hoc query")
    tls_certificate: File = Field(None, description="serve HTTPS with this certificate, in PEM, followed by its chain; reloaded on SIGHUP")
    tls_key: File = Field(None, description="the key of the certificate, in PEM, without a password; reloaded on SIGHUP")
    forwarded_allow_ips: Networks = Field(
        NONE, description="the proxies whose X-Forwarded-For, -Proto, -Host and -Prefix headers are trusted"
    )
    log_format: Format = Field("text", description="whether the lines of the log are text or JSON objects")
    log_level: Level = Field("info", description="debug also logs the tracebacks of internal errors, which may hold rows of data")
    access_log: Literal["off", "on"] = Field("off", description="whether to log a line for each request once it has been answered")
    admin_token_file: File = Field(
        None, description="a file with the text of an admin token, `lj_` and at least 32 letters and digits; read at startup"
    )


class Setting(NamedTuple):
    """One setting, as the help text and docs/operations.md show it."""

    name: str
    flag: str
    variable: str
    default: str
    metavar: str
    purpose: str


@cache
def settings() -> tuple[Setting, ...]:
    """Return all settings in the order of their declaration."""
    found = []
    for name, schema in Settings.model_json_schema()["properties"].items():
        metavar = schema.get("metavar") or f"{{{','.join(schema['enum'])}}}"
        written = _written(schema["default"], metavar)
        found.append(Setting(name, _flag(name), _variable(name), written, metavar, schema["description"]))
    return tuple(found)


def read_settings(flags: Mapping[str, Any]) -> Settings:
    """Read settings from `flags` by name, otherwise from non-empty `LIVEJOIN_…` variables, otherwise use the defaults.

    Raises BadSetting for the first setting with an invalid value.
    """
    try:
        return _from_environment()(**flags)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise BadSetting(f"{_flag(name)} ({_variable(name)}): {wording(first)}, not {first['input']!r}") from None


@cache
def _from_environment() -> type[Settings]:
    """Return the class of settings that variables can set. pydantic-settings is imported here, because only `serve` needs it: 35 ms."""
    from pydantic_settings import BaseSettings, SettingsConfigDict

    class Given(Settings, BaseSettings):
        model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True)

    return Given


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _variable(name: str) -> str:
    return f"{PREFIX}{name.upper()}"


def _written(default: Any, metavar: str) -> str:
    if metavar == "SIZE":
        return _size_text(default)
    return NONE if default is None else f"{default:g}" if isinstance(default, float) else str(default)


def is_loopback(host: str) -> bool:
    """Return whether this host name denotes only this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
