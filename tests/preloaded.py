"""What `tests/forked.py` has its commands forked from: it has imported what commands import, and loaded the compiled kernels."""

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
if kernel.is_cached():  # else a service compiles what it needs
    for _dispatcher, _signature in kernel._listed:
        kernel.load(_dispatcher, _signature)
gc.collect()
gc.freeze()  # a child that looks for circles copies the memory of all that it looks at: that took most of a start
