"""The Python client of livejoin.

    lj = livejoin.connect("http://127.0.0.1:8080")
    bookings = lj.relation("bookings").create({"id": "int64", "s": "date", "e": "date"}, key="id", intervals={"stay": ("s", "e")})
    bookings.upsert([{"id": 1, "s": "2026-01-01", "e": "2026-01-05"}])
    clashes = lj.view("clashes", sql="SELECT …")
    for row in clashes.rows(limit=10): ...
    for version in clashes.follow(snapshot=True, store="clashes.token"): ...

With asyncio the same, by `livejoin.connect_async`, `await` and `async for`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"  # of the client and of the service

if TYPE_CHECKING:
    from livejoin.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import the client when a name of it is used: the wire format, which the service shares, and some commands do without HTTP."""
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    public = import_module("livejoin.public")
    return [one for one in vars(public) if not one.startswith("_")] if name == "__all__" else getattr(public, name)


def __dir__() -> list[str]:
    return ["__version__", *__getattr__("__all__")]
