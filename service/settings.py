"""What `livejoin serve` can be told, by option or by `LIVEJOIN_…` variable."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from service.wire.wording import wording

_UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZE = re.compile(r"\s*(\d+)\s*([A-Za-z]*)\s*")


class BadSetting(ValueError):
    """A setting that cannot be; the text names it and says what it may be."""


def _size(value: Any) -> Any:
    """`256 MiB`, `1GB` or a plain number of bytes."""
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None or match[2].upper() not in _UNITS:
        raise ValueError("must be a number of bytes, such as 268435456 or 256MiB")
    return int(match[1]) * _UNITS[match[2].upper()]


def size_text(size: int) -> str:
    """A size as it would be written: `1GiB`."""
    unit = next(unit for unit in ("GiB", "MiB", "KiB", "B") if size % _UNITS[unit.upper()] == 0)
    return f"{size // _UNITS[unit.upper()]}{unit}"


Size = Annotated[int, BeforeValidator(_size), Field(gt=0)]


class Settings(BaseModel):
    """The settings of one service. Sizes in bytes, times in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: Path = Field(Path("livejoin-data"), description="the data folder")
    host: str = Field("127.0.0.1", description="the address to listen on; loopback only, as there are no tokens yet")
    port: int = Field(8080, ge=0, le=65535, description="the port to listen on; 0 lets the system choose")
    synchronous: Literal["full", "normal"] = Field("full", description="full: a batch survives a power cut; normal: a killed process")
    max_body: Size = Field(256 << 20, description="the largest body of a request")
    max_waiting: int = Field(1024, gt=0, description="batches that may wait for the writer; more are answered 429")
    pin_idle: float = Field(60.0, gt=0, description="seconds that a version is kept for a reader that takes nothing")
    pin_bytes: Size = Field(1 << 30, description="retired memory that the oldest pin may hold back")

    @classmethod
    def read(cls, options: Mapping[str, Any] | None = None, environment: Mapping[str, str] = os.environ) -> Settings:
        """Options that are not None, else `LIVEJOIN_…` variables, else the defaults.

        Raises BadSetting, naming the first setting that is wrong.
        """
        given = {name: environment[variable(name)] for name in cls.model_fields if environment.get(variable(name))}
        given |= {name: value for name, value in (options or {}).items() if value is not None}
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            raise BadSetting(f"--{name.replace('_', '-')} ({variable(name)}): {wording(first)}, not {first['input']!r}") from None


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"LIVEJOIN_{name.upper()}"


def is_loopback(host: str) -> bool:
    """Does this host name only this machine?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
