"""`POST` of changes: the only hot path. Plain ASGI, in front of the framework's router.

A request with one small change costs a decode (5 µs), its application (100 µs), a hand-over to the writer's thread and a wake-up of the
loop; what a framework would add (routing, dependencies, exit stacks) costs 60 µs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from livejoin.wire.batch import Batch
from livejoin.wire.decode import CHANGES_TYPES, RELATION_CHANGES_TYPES, decode_changes, decode_relation_changes
from livejoin.wire.errors import UnknownRelation
from livejoin.wire.json import fields_ahead
from livejoin.wire.schema import RelationDefinition
from livejoin.wire.wording import instead
from service.access.access_token import AccessToken
from service.access.rights import require_relation
from service.api.context import Answer, Context
from service.api.http import media, parameters
from service.api.http.admission import BodyBudget
from service.api.http.answers import WHOLE, missing
from service.api.http.bodies import COMPLETE, Receive, Scope, Send, read_body
from service.api.http.parameters import Flag, Int64, Parameters, ShortText
from service.api.metrics import UNCLEAR_TIMES
from service.api.models import answers
from service.api.models.body import Absent
from service.api.models.examples import CHANGES, RECEIPT, RECEIPT_REPEATED, RECEIPT_SKIPPED
from service.api.models.requests import Changes
from service.api.openapi import answer, binary_content, body, failures, json_content, text_content
from service.api.routing import RelationName, router
from service.engine.outcomes import Receipt
from service.errors import Problem, bad_parameter
from service.instance import Instance

# Texts up to this size are decoded in the loop: a round trip to a thread costs about as much as 4 KiB, and 24 KiB take 0.7 ms. Binary
# formats always go to a thread: compressed, they may be much larger than they look.
SMALL = 24 * 1024
BINARY = (media.ARROW, media.PARQUET)

routes = router("changes")


class BatchParameters(Parameters):
    source: ShortText | Absent = Field(
        None, description="the sender; together with `epoch`, repeated batches are recognized as duplicates", examples=["pms"]
    )
    epoch: Int64 | Absent = Field(
        None, description="the number of this batch, which increases within its source; requires `source`", examples=[17]
    )
    run: ShortText | Absent = Field(
        None,
        description="the run that numbers the epochs; a different run of a known source is refused with `source-reset`",
        examples=["3f0c"],
    )
    reset: Flag = Field(False, description="allow a new `run` to take over the source", examples=[False])
    on_error: Literal["reject", "skip"] = Field(
        "reject", description="reject a batch with invalid rows, or skip these rows and return them", examples=["reject"]
    )

    @property
    def given(self) -> dict[str, Any]:
        """Those of a batch that the query string has, by name."""
        return {name: getattr(self, name) for name in BatchParameters.model_fields if name in self.model_fields_set}


def relation_of(path: str) -> str | None:
    """Return the relation in `/v1/relations/{name}/changes`; None for any other path."""
    if not (path.startswith("/v1/relations/") and path.endswith("/changes")):
        return None
    name = path[14:-8]
    return name if name and "/" not in name else None


def definition_of(engine: Instance, token: AccessToken, name: str) -> RelationDefinition:
    require_relation(token, name, "write")
    relation = engine.relations.get(name)
    if relation is None:
        raise UnknownRelation(name, instead(name, filter(token.covers_relation, engine.relations)))
    return relation.definition


async def post_changes(context: Context, relation: str | None, scope: Scope, receive: Receive, send: Send) -> None:
    """Apply a batch, to any relations or to the one in the path. Responds when it is on disk and published for all later requests."""
    engine = context.engine
    query = scope["query_string"]
    given = parameters.read(query, BatchParameters).given if query else None
    if relation is not None and relation not in engine.relations and not (given and "source" in given):
        raise missing(engine, scope["token"], "relation", relation)
    kind = media.content_type(scope["fields"], CHANGES_TYPES if relation is None else RELATION_CHANGES_TYPES)
    try:
        engine.admit()
    except Problem as problem:
        problem.headers["Connection"] = "close"  # the body is not read
        raise
    budget = BodyBudget(context.bodies, context.settings.max_body)
    try:
        is_small = int(scope["fields"].get(b"content-length", SMALL + 1)) <= SMALL and kind not in BINARY
        if is_small and (given is None or scope.get(COMPLETE)):
            body = await read_body(scope, receive, budget)
            receipt, turn = await _apply(context, scope["token"], relation, given, kind, body, budget)
        else:
            with engine.under_way.expecting(given or {}, scope["token"].relations):
                body = await read_body(scope, receive, budget)
                fields = (fields_ahead(body) if kind == media.JSON else {}) | (given or {})
                with engine.under_way.expecting(fields, scope["token"].relations):
                    receipt, turn = await _apply(context, scope["token"], relation, given, kind, body, budget)
    finally:
        budget.free()
    encoded = receipt.encoded()
    await send({"type": WHOLE, "status": 200, "head": _head(receipt, len(encoded), turn), "body": encoded})


async def _apply(
    context: Context, token: AccessToken, relation: str | None, given: dict[str, Any] | None, kind: str, body: bytes, budget: BodyBudget
) -> tuple[Receipt, float | None]:
    """Return the receipt of a batch that has been read, and the seconds that the writer took for it; None: it was applied before."""
    engine, named = context.engine, set[str]()

    def definitions(name: str) -> RelationDefinition:
        found = definition_of(engine, token, name)
        named.add(name)
        return found

    if relation is None:
        decode = partial(decode_changes, kind, body, definitions, budget)
    else:
        decode = partial(decode_relation_changes, kind, body, relation, definitions, budget)
    try:
        small = len(body) <= SMALL and kind not in BINARY
        batch = decode() if small else await context.work(decode_and_prepare, engine, decode, budget)
    except UnknownRelation as error:
        known = await repeated(context, token, given, error.fields)
        if known is None:
            raise error if relation is None else missing(engine, token, "relation", relation) from None
        return known, None
    settle(batch, given, token)
    batch.named = named if batch.sent else ()
    waiting: Answer = context.loop.create_future()
    engine.submit(batch, partial(context.mailbox.deliver, waiting))
    try:
        return await waiting, batch.turn
    except asyncio.CancelledError:
        if context.closing and batch.source is None:  # `recovering` would make the client send it again, but it may still be applied
            said = "the service is shutting down; the batch has no source, and may have been applied: look before you send it again"
            raise Problem("internal", said) from None
        raise


def decode_and_prepare(engine: Instance, decode: Callable[[], Batch], budget: BodyBudget) -> Batch:
    """Decode and prepare a batch. The prepared data counts as part of the body, and is dropped if there is no room for it."""
    batch = decode()
    engine.prepare(batch)
    if not budget.has_taken(batch.prepared_bytes):
        batch.drop_prepared()
    return batch


async def repeated(context: Context, token: AccessToken, given: dict[str, Any] | None, fields: Mapping[str, Any]) -> Receipt | None:
    """Return the receipt of a repeated batch even if its relation has been dropped since: otherwise its sender could never continue.
    `given`: the query parameters; `fields`: those of the body."""
    batch = Batch([], 0, 0, [], 0, **fields)
    settle(batch, given, token)
    return None if batch.source is None else await context.wait(context.engine.repeated, batch)


def _head(receipt: Receipt, length: int, turn: float | None) -> bytes:
    timing = b"" if turn is None else b"server-timing: turn;dur=%.3f\r\n" % (1e3 * turn)
    emitted = b"content-type: application/json\r\ncontent-length: %d\r\nlivejoin-timeline: %d\r\n%b"
    return emitted % (length, receipt.timeline, timing)


def settle(batch: Batch, given: dict[str, Any] | None, token: AccessToken) -> None:
    """Merge the query parameters and the fields of a JSON body into the batch, and note the rights of its sender. Problem `bad-parameter`
    if they differ.

    Counts the batch's ambiguous local times."""
    batch.writes = token.relations
    if batch.unclear:
        UNCLEAR_TIMES.inc(batch.unclear)
    for name, value in (given or {}).items():
        field = getattr(batch, name)
        if field not in (None, False, "reject") and field != value:
            raise bad_parameter(name, f"is {value!r} as a query parameter and {field!r} in the body")
        setattr(batch, name, value)


_ROW = {"id": 1, "room": "A", "starts": "2026-01-01T12:00:00Z", "ends": None}
_LINES = [
    orjson.dumps({"relation": "bookings", "op": "upsert", "row": _ROW}).decode(),
    orjson.dumps({"relation": "bookings", "op": "delete", "key": {"id": 9}}).decode(),
]
_BATCH = "\n".join(_LINES) + "\n"
_ROWS = orjson.dumps(_ROW).decode() + "\n" + '{"_op":"delete","id":9}\n'
_CSV = "_op,id,room,starts,ends\nupsert,1,A,2026-01-01T12:00:00Z,\ndelete,9,,,\n"
_ENVELOPES = orjson.dumps({"op": "c", "before": None, "after": _ROW | {"starts": 1767268800000000}}).decode() + "\nnull\n"
_REFUSALS = (
    "malformed-body",
    "bad-parameter",
    "unsupported-media-type",
    "source-reset",
    "body-too-large",
    "too-busy",
    "disk-full",
    "no-room",
    "bad-rows",
    "unknown-relation",
)
RECEIPT_HEAD = {"Server-Timing": "turn;dur=0.312", "Livejoin-Timeline": "1"}
_RECEIPTS = json_content(answers.Receipt, RECEIPT, RECEIPT_SKIPPED, RECEIPT_REPEATED)
_RECEIPT = answer(200, "the batch is applied, on disk and published", _RECEIPTS, RECEIPT_HEAD)


@routes.post(
    "/v1/changes",
    operation_id="postChanges",
    summary="Apply a batch of changes to any relations",
    description="The batch is applied atomically and makes one version, which is on disk and published when the response arrives.",
    openapi_extra=body(
        {
            **json_content(Changes, CHANGES),
            **text_content(media.JSONL, _BATCH),
            **text_content(media.NDJSON, _BATCH),
            **binary_content(media.ARROW, "Arrow IPC streams, each with its relation in the schema metadata `livejoin.relation`"),
        }
    ),
    responses={**_RECEIPT, **failures(*_REFUSALS)},
)
async def documented(query: Annotated[BatchParameters, Query()]) -> Response:
    raise AssertionError("the gate answers this path")  # the route exists for the document, and for status 405


@routes.post(
    "/v1/relations/{name}/changes",
    operation_id="postRelationChanges",
    summary="Apply a batch of changes to one relation",
    description="Each row is a change. The text column `_op` contains insert, upsert, delete or truncate; the default is `upsert`.",
    openapi_extra=body(
        {
            **text_content(media.JSONL, _ROWS),
            **text_content(media.NDJSON, _ROWS),
            **text_content(media.CSV, _CSV),
            **binary_content(media.ARROW, "Arrow IPC streams of rows"),
            **binary_content(media.PARQUET, "a Parquet file of rows"),
            **text_content(media.DEBEZIUM, _ENVELOPES),
        }
    ),
    responses={**_RECEIPT, **failures(*_REFUSALS, "not-found")},
)
async def documented_of_relation(name: RelationName, query: Annotated[BatchParameters, Query()]) -> Response:
    raise AssertionError("the gate answers this path")
