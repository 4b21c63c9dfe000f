"""Backups, for admins: starting one in a folder on the server, and its progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from service.api.context import Context
from service.api.http.answers import json_answer, no_parameters
from service.api.http.bodies import form
from service.api.openapi import Endpoint, answer, failures, json_content, operation
from service.api.schemas.examples import BACKUP, BACKUP_FORM
from service.errors import bad_parameter


async def post_backup(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    async with form(request.scope, request.receive, context.bodies, context.work) as data:
        target, since = _folders(data)
    state = await context.work(context.engine.backups.start, target, since)
    if context.guard.token_mode:
        context.audit.event(request.scope["token"], request.client, "backup", target=str(target))
    return json_answer(state, 202)


async def get_backup(request: Request) -> Response:
    context: Context = request.app.state.context
    no_parameters(request)
    return json_answer(context.engine.backups.state())


def _folders(data: dict[str, Any]) -> tuple[Path, Path | None]:
    """Return the target folder, and the folder of the previous backup, if given. Problem `bad-parameter`."""
    for name in data:
        if name not in ("target", "since"):
            raise bad_parameter(name[:40], "is not a field of a backup: it has target and since")
    if "target" not in data:
        raise bad_parameter("target", "is missing: name a new folder on the server, such as /backups/monday")
    found: list[Path] = []
    for name in ("target", "since"):
        value = data.get(name)
        if name == "since" and value is None:
            return found[0], None
        if not isinstance(value, str) or not value or "\0" in value or len(value) > 4096 or not _is_path(value):
            raise bad_parameter(name, "must be the path of a folder on the server")
        found.append(Path(value))
    return found[0], found[1]


def _is_path(text: str) -> bool:
    """Return whether the operating system allows this text as a path."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


ENDPOINTS = [
    Endpoint(
        "POST",
        "/v1/backup",
        post_backup,
        operation(
            "postBackup",
            "Begin a backup of the service's data in a folder on the server",
            tag="operations",
            description="The folder must be new, or empty, and outside the data folder. With `since`, the folder of an earlier backup of "
            "this service, only newer data is written. Batches are accepted meanwhile. GET /v1/backup shows the progress; only one backup "
            "can be made at a time.",
            body=json_content("BackupForm", BACKUP_FORM),
            responses={
                **answer(202, "begun", json_content("Backup", BACKUP)),
                **failures(
                    "bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "too-many", "disk-full"
                ),
            },
        ),
    ),
    Endpoint(
        "GET",
        "/v1/backup",
        get_backup,
        operation(
            "getBackup",
            "Get the state of the latest backup since the service was started",
            tag="operations",
            responses={
                **answer(200, "`state` is none, running, done or failed", json_content("Backup", BACKUP)),
                **failures("bad-parameter"),
            },
        ),
    ),
]
