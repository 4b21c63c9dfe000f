"""Changes to a whole relation: replacing its rows, at once or in parts, and deleting rows by condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from livejoin.wire.batch import Batch
from livejoin.wire.decode import ROWS_TYPES, decode_rows
from service.api import changes
from service.api.changes import BINARY, RECEIPT_HEAD, SMALL, BatchParameters, definition_of, settle
from service.api.context import Context
from service.api.http import media, parameters
from service.api.http.admission import BodyBudget
from service.api.http.answers import json_answer, missing
from service.api.http.bodies import definition, parse_json, read_body
from service.api.http.parameters import TEXT_LIMIT, Flag, Natural
from service.api.models import answers
from service.api.models.body import Absent
from service.api.models.examples import DELETION, RECEIPT, RECEIPT_SKIPPED, STAGED
from service.api.models.requests import Deletion, StageCommit
from service.api.openapi import answer, binary_content, body, failures, json_content, text_content
from service.api.routing import RelationName, ServiceRequest, router
from service.engine.outcomes import Receipt
from service.errors import Problem, bad_parameter
from service.query.definition import read_where
from service.query.form_checks import checked
from service.tables.relations import Relation

routes = router("changes")


class ReplaceParameters(BatchParameters):
    stage: Annotated[str, Field(min_length=1, max_length=TEXT_LIMIT)] | Absent = Field(
        None,
        description="the body is a part of a replacement of this name, which `commit=true` applies; it is dropped an hour after its last "
        "part",
        examples=["nightly"],
    )
    part: Natural | Absent = Field(
        None,
        description="the number of the part; a part with the same number is replaced; by default, the next number",
        examples=[0],
    )
    commit: Flag = Field(
        False,
        description="replace the relation by the rows of all parts, in the order of their numbers, or of those that the body names",
        examples=[False],
    )
    keep: Flag = Field(
        False,
        description="with `commit=true`: keep the rows with other keys, so that the rows of the parts are upserts, in one version",
        examples=[False],
    )


_ROWS = '{"id":1,"room":"A","starts":"2026-01-01T12:00:00Z","ends":null}\n'
_CSV = "id,room,starts,ends\n1,A,2026-01-01T12:00:00Z,\n"
_REFUSALS = ("bad-parameter", "source-reset", "too-busy", "disk-full", "no-room", "not-found", "body-too-large", "unsupported-media-type")
_REPLACED = json_content(answers.ReplacementAnswer, RECEIPT, RECEIPT_SKIPPED, STAGED)


@routes.post(
    "/v1/relations/{name}/replace",
    summary="Replace the rows of a relation, in one version",
    description="The rows replace all rows of the relation; followers of views get only the differences. Rows have no `_op`; if several "
    "have the same key, the last one counts. With `on_error=skip`, if a row is bad but its key can be read, the relation keeps its old row "
    "with that key. If there are too many rows for one body, send parts with `stage`, and then a request with `stage` and `commit`, whose "
    "body is empty, or names the parts to commit: `{\"parts\": [0, 2]}`. Other parts are kept.",
    openapi_extra=body(
        {
            **text_content(media.JSONL, _ROWS),
            **text_content(media.NDJSON, _ROWS),
            **text_content(media.CSV, _CSV),
            **binary_content(media.ARROW, "Arrow IPC streams of rows"),
            **binary_content(media.PARQUET, "a Parquet file of rows"),
        },
        required=False,
    ),
    responses={
        **answer(200, "replaced, on disk and published; or the part is kept", _REPLACED, RECEIPT_HEAD),
        **failures(*_REFUSALS, "malformed-body", "bad-rows", "too-many"),
    },
)
async def replace_relation(request: ServiceRequest, name: RelationName, query: Annotated[ReplaceParameters, Query()]) -> Response:
    context = request.context
    engine, given, stage = context.engine, query.given, query.stage
    _check_stage(query)
    if name not in engine.relations:
        return await _of_none(context, request, name, given)
    engine.admit()
    budget = BodyBudget.of_replacement(context.bodies)
    try:
        if query.commit and stage is not None:
            return await _commit(context, request, budget, name, stage, query.keep, given)
        kind = media.content_type(request.scope["fields"], ROWS_TYPES)
        with engine.under_way.expecting(given, request.token.relations):
            sent = await read_body(request.scope, request.receive, budget)
            decode = partial(decode_rows, kind, sent, name, partial(definition_of, engine, request.token), budget)
            batch = decode() if len(sent) <= SMALL and kind not in BINARY else await context.work(decode)
            settle(batch, given, request.token)
            if stage is None:
                engine.under_way.begin(batch)
        if stage is None:
            return await _rewritten(context, batch, partial(engine.replace, name, batch))
        number, held = await context.rewrite(engine.stage, name, stage, query.part, batch)
    finally:
        budget.free()
    emitted = {"stage": stage, "part": number, "part_rows": batch.sent, "parts": len(held.parts), "rows": held.rows}
    skipped = [error._asdict() for error in batch.errors]
    return json_answer(emitted | {"skipped_count": batch.error_count, "skipped": skipped})


async def _commit(
    context: Context, request: ServiceRequest, budget: BodyBudget, name: str, stage: str, keep: bool, given: dict[str, Any]
) -> Response:
    with context.engine.under_way.expecting(given, request.token.relations):
        sent = await read_body(request.scope, request.receive, budget)
        if sent and not request.headers.get("content-type", "").startswith(media.JSON):
            raise Problem("malformed-body", 'a commit has no rows: send them as a part before it; its body may only be {"parts": […]}')
        parts = parameters.checked(StageCommit, parse_json(sent, "malformed-body")).parts if sent else None
        batch = Batch([], 0, 0, [], 0)
        settle(batch, given, request.token)
        context.engine.under_way.begin(batch)
    return await _rewritten(context, batch, partial(context.engine.commit_stage, name, stage, batch, parts, keep))


def _check_stage(query: ReplaceParameters) -> None:
    for name, there in (("part", query.part is not None), ("commit", query.commit)):
        if there and query.stage is None:
            raise bad_parameter(name, "requires stage")
    if query.keep and not query.commit:
        raise bad_parameter("keep", "requires commit=true: the rows of one body are upserts by POST /v1/relations/{name}/changes")
    if query.commit and query.part is not None:
        raise bad_parameter("part", "cannot be combined with commit: send the part before")
    if query.stage is not None and not query.commit:
        for name in ("source", "epoch", "run", "reset"):
            if name in query.given:
                raise bad_parameter(name, "requires commit=true: parts do not make a version")


async def _rewritten(context: Context, batch: Batch, work: Callable[[], Receipt]) -> Response:
    """Call `work`, which applies the batch, and return the response. From now on later batches of its source wait; it takes a thread only
    when it need not wait for earlier ones."""
    under_way = context.engine.under_way
    try:
        await asyncio.shield(asyncio.wrap_future(under_way.begun(batch)))
        job = context.rewriters.submit(work)
    except BaseException:  # its client may have gone
        under_way.end(batch)
        raise
    job.add_done_callback(lambda _: under_way.end(batch))
    return _answer(await asyncio.wrap_future(job), batch.turn)


async def _of_none(context: Context, request: ServiceRequest, name: str, given: dict[str, Any]) -> Response:
    """Answer a request whose relation does not exist, as `changes.repeated` says. Otherwise Problem `not-found`."""
    receipt = await changes.repeated(context, request.token, given, {}) if "source" in given else None
    if receipt is None:
        raise missing(context.engine, request.token, "relation", name)
    return _answer(receipt, None)


def _answer(receipt: Receipt, turn: float | None) -> Response:
    headers = {"Livejoin-Timeline": str(receipt.timeline)}
    if turn is not None:
        headers["Server-Timing"] = f"turn;dur={1e3 * turn:.3f}"
    return Response(receipt.encoded(), 200, headers, media.JSON)


@routes.post(
    "/v1/relations/{name}/delete",
    summary="Delete the rows of a relation that meet conditions",
    description="All conditions must hold; operators and expressions are those of the `where` of a view. Columns are written without an "
    "alias. `applied` is the number of deleted rows.",
    openapi_extra=body(json_content(Deletion, DELETION)),
    responses={
        **answer(200, "deleted, on disk and published", json_content(answers.Receipt, RECEIPT), RECEIPT_HEAD),
        **failures(*_REFUSALS, "malformed-body", "bad-definition", "unknown-column", "unsupported-query"),
    },
)
async def delete_rows(request: ServiceRequest, name: RelationName, query: Annotated[BatchParameters, Query()]) -> Response:
    context = request.context
    engine, given = context.engine, query.given
    if name not in engine.relations:
        async with definition(request.scope, request.receive, context.bodies, context.work) as data:
            fields = _fields(checked(Deletion, data))
        return await _of_none(context, request, name, {field: value for field, value in fields.items() if value is not None} | given)
    engine.admit()
    with engine.under_way.expecting(given, request.token.relations):
        async with definition(request.scope, request.receive, context.bodies, context.work) as data:
            form = checked(Deletion, data)
        _require_where(form)
        batch = Batch([], 0, 0, [], 0, **_fields(form))
        settle(batch, given, request.token)
        engine.under_way.begin(batch)

    def filters(relation: Relation) -> Any:
        return read_where(relation.name, relation.definition, data["where"], context.settings.max_conditions)

    return await _rewritten(context, batch, partial(engine.delete, name, batch, filters))


def _require_where(form: Deletion) -> None:
    """Problem `bad-definition` if there are no conditions."""
    if not form.where:
        said = '"where" is empty, which would delete all rows: to do that, send the change {"relation": …, "op": "truncate"} to /v1/changes'
        raise Problem("bad-definition", said)


def _fields(form: Deletion) -> dict[str, Any]:
    """Return the fields besides `where`. Problem `bad-parameter`."""
    for name, text in (("source", form.source), ("run", form.run)):
        if text is not None and len(text) > TEXT_LIMIT:
            raise bad_parameter(name, f"must be at most {TEXT_LIMIT} characters")
    if form.epoch is not None and not parameters.INT64_MIN <= form.epoch <= parameters.INT64_MAX:
        raise bad_parameter("epoch", "must be a 64-bit integer")
    return form.model_dump(exclude={"where"})
