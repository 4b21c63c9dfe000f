"""Backups, for admins: starting one in a folder on the server, and its progress."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import Response

from service.api.http.answers import json_answer
from service.api.http.bodies import form
from service.api.http.parameters import checked
from service.api.models import answers
from service.api.models.examples import BACKUP, BACKUP_FORM
from service.api.models.requests import BackupForm
from service.api.openapi import answer, body, failures, json_content
from service.api.routing import ServiceRequest, router

routes = router("operations")
_BACKUP = json_content(answers.Backup, BACKUP)


@routes.post(
    "/v1/backup",
    summary="Begin a backup of the service's data in a folder on the server",
    description="The folder must be new, or empty, and outside the data folder. With `since`, the folder of an earlier backup of this "
    "service, only newer data is written. Batches are accepted meanwhile. GET /v1/backup shows the progress; only one backup can be made "
    "at a time.",
    openapi_extra=body(json_content(BackupForm, BACKUP_FORM)),
    responses={
        **answer(202, "begun", _BACKUP),
        **failures("bad-parameter", "malformed-body", "body-too-large", "unsupported-media-type", "too-many", "disk-full"),
    },
)
async def post_backup(request: ServiceRequest) -> Response:
    context = request.context
    async with form(request.scope, request.receive, context.bodies, context.work) as data:
        given = checked(BackupForm, data)
    since = None if given.since is None else Path(given.since)
    state = await context.work(context.engine.backups.start, Path(given.target), since)
    if context.guard.token_mode:
        context.audit.event(request.token, request.client, "backup", target=str(Path(given.target)))
    return json_answer(state, 202)


@routes.get(
    "/v1/backup",
    summary="Get the state of the latest backup since the service was started",
    responses={**answer(200, "`state` is none, running, done or failed", _BACKUP), **failures("bad-parameter")},
)
async def get_backup(request: ServiceRequest) -> Response:
    return json_answer(request.context.engine.backups.state())
