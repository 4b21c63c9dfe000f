"""The rival for single changes: an empty FastAPI handler with the settings of `livejoin serve`. `python -m … PORT`."""

from __future__ import annotations

import sys

import uvicorn
from fastapi import FastAPI

from service.server import BACKLOG, KEEP_ALIVE

app = FastAPI()


@app.post("/v1/changes")
async def nothing() -> dict[str, int]:
    return {}


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop" if sys.platform != "win32" else "asyncio",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE,
    )
