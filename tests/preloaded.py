"""The module that `tests/forked.py` preloads: it imports what commands import, and loads the compiled kernels."""

from __future__ import annotations

import gc

import uvicorn.lifespan.off
import uvicorn.loops.uvloop  # noqa: F401

import service.commands.serve
import service.server  # noqa: F401
import streaming.cli  # noqa: F401
from service import settings
from structures.core import kernel

settings.settings()
settings.read_settings({})
if kernel.is_cached():  # otherwise, a service compiles what it needs
    for _dispatcher, _signature in kernel._listed:
        kernel.load(_dispatcher, _signature)
gc.collect()
gc.freeze()  # a garbage collection in a child copies the memory of all objects that it visits, which took most of a start
