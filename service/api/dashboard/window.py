"""`GET /v1/views/{name}/window`: the data for drawing a view at one version: its rows in a window, each with its identity and the ends of
its joined intervals, for each key if the view has a join key.

The token must also cover the view's relations. The cost depends on the rows requested, not on the size of the view. Keys are taken from the
first rows of a relation, and the extent from a sample: neither reads a whole relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Annotated, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
from fastapi import Query
from pydantic import BeforeValidator, Field
from starlette.responses import Response

from livejoin.wire.kinds import SENT_TYPES, sent
from livejoin.wire.rows import encode_rows
from service.access.rights import require_relation
from service.api.dashboard.shape import dimensions_of, key_of
from service.api.http import media
from service.api.http.parameters import Flag, Natural, integer
from service.api.models.body import Absent
from service.api.models.dashboard import Window
from service.api.models.examples import WINDOW
from service.api.openapi import answer, failures, json_content
from service.api.records import key_lines
from service.api.routing import ServiceRequest, ViewName, router
from service.api.rows import FilterParameters, filters
from service.api.steps import Steps, finish
from service.errors import bad_parameter
from service.instance import Instance
from service.reading.cursors import RowReader, open_rows
from service.tables.inputs import Input
from service.views.live_view import LiveView

MOST_ROWS, ROWS = 10_000, 500
MOST_KEYS = 200
_LOOKED_AT, _SAMPLE = 1 << 16, 1 << 12  # rows of a relation: for keys, for the extent
_MOST = (0.01, 0.99)  # quantiles of all ends
_CHUNK = 1024

routes = router("rows")


class WindowParameters(FilterParameters):
    limit: Annotated[int, Field(ge=1, le=MOST_ROWS), BeforeValidator(integer)] = Field(
        ROWS, description="maximum number of rows, in all lanes together", examples=[500]
    )
    keys: Annotated[int, Field(ge=1, le=MOST_KEYS), BeforeValidator(integer)] | Absent = Field(
        None, description="maximum number of lanes, each of one value of the join key", examples=[20]
    )
    begin: Natural = Field(0, alias="from", description="the number of the first key", examples=[0])
    extent: Flag = Field(False, description="include the range of the intervals, from a sample", examples=[True])


@routes.get(
    "/v1/views/{name}/window",
    summary="Read the rows of a window with their identities and the ends of their intervals, by key",
    description="For drawing a view that joins on intervals. `lanes` has one lane with all rows, or with `keys` one for each value of the "
    "join key in the first 65,536 rows of a relation (`whole`: these are all its rows). The token must also cover the view's relations.",
    responses={
        **answer(200, "the rows", json_content(Window, WINDOW)),
        **failures("bad-parameter", "not-found", "snapshot-expired", "view-building", "view-failed"),
    },
)
async def view_window(request: ServiceRequest, name: ViewName, query: Annotated[WindowParameters, Query()]) -> Response:
    context = request.context
    view = request.view(name)
    token = request.token
    for relation in sorted(view.view.relations):  # ends and keys belong to the relations, whether the view shows them or not
        require_relation(token, relation, "read")
    if not dimensions_of(view):
        raise bad_parameter("overlaps", f"the view {view.name} does not join on intervals, so it has no windows; its rows are at …/rows")
    body = await finish(context, context.readers, request.receive, _window(context.engine, view, query))
    return Response(body, media_type=media.JSON, headers={"Cache-Control": "no-store"})


def _window(engine: Instance, view: LiveView, query: WindowParameters) -> Steps[bytes]:
    asked, limit = filters(query), query.limit
    count, input = query.keys, key_of(view)
    lanes: list[tuple[Any, dict[str, Any]]] = [(None, {})]
    if count is not None and input is None:
        raise bad_parameter("keys", f"the view {view.name} joins by no equality, so its rows are in one lane")
    if count is not None and asked["point"] is not None:
        raise bad_parameter("keys", "cannot be combined with a look-up (where)")
    with closing(open_rows(engine.readers, view.name, **asked)) as first:
        head: dict[str, Any] = {"version": first.version}
        if query.extent:
            head["extent"] = _extent(view, first.version)
        if count is not None and input is not None:
            keys, whole = _keys(input, first.version)
            head["keys"] = {"columns": input.equal, "from": query.begin, "of": len(keys), "whole": whole}
            chosen = keys[query.begin : query.begin + count]
            lanes = [(key, {"point": (input.alias, {name: _text(key[name]) for name in input.equal})}) for key in chosen]
        parts = []
        for index, (key, point) in enumerate(lanes):
            most = max(1, limit // max(1, len(lanes))) if key is not None else limit
            opened = partial(open_rows, engine.readers, view.name, **asked | point)
            parts.append((yield from _lane(first.twin() if key is None else opened(version=first.version), key, index, most)))
    return orjson.dumps(head)[:-1] + b',"lanes":[' + b",".join(parts) + b"]}"


def _lane(reader: RowReader, key: Any, number: int, most: int) -> Steps[bytes]:
    """Read one lane: `{"key", "more", "rows"}`."""
    rows: list[bytes] = []
    more = False
    try:
        while (found := reader.read_with_ends(min(most + 1 - len(rows), _CHUNK))) is not None:
            rows += _rows(*found)
            if len(rows) > most:
                more = True
                break
            yield
    finally:
        reader.close()
    return b'{"key":%b,"more":%b,"rows":[%b]}' % (orjson.dumps(key), b"true" if more else b"false", b",".join(rows[:most]))


def _rows(keys: pa.RecordBatch, rows: pa.RecordBatch, ends: pa.RecordBatch) -> Iterator[bytes]:
    """Yield `{"key", "ends": {alias: {interval: {"start", "end"}}}, "row"}` of each; `ends` has the columns alias.interval.start and
    …end."""
    aliases: dict[str, list[tuple[str, list[bytes]]]] = {}
    for name in dict.fromkeys(one.rpartition(".")[0] for one in ends.schema.names):
        alias, _, interval = name.partition(".")
        pair = pa.RecordBatch.from_arrays([ends.column(f"{name}.{end}") for end in ("start", "end")], ["start", "end"])
        aliases.setdefault(alias, []).append((interval, _lines(pair)))
    templates, texts = [], []
    for alias, intervals in aliases.items():
        templates.append(b'"%b":{%b}' % (alias.encode(), b",".join(b'"%b":%%b' % interval.encode() for interval, _ in intervals)))
        texts += [lines for _, lines in intervals]
    template = b'{"key":%%b,"ends":{%b},"row":%%b}' % b",".join(templates)
    return (template % (key, *found, row) for key, row, *found in zip(key_lines(keys), _lines(rows), *texts, strict=True))


def _lines(rows: pa.RecordBatch) -> list[bytes]:
    return encode_rows(media.JSONL, rows).split(b"\n")[:-1]


def _keys(input: Input, version: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the values of the join key among the first rows of its relation, sorted, and whether these are all rows."""
    table, definition, names = input.relation.table, input.relation.definition, input.equal
    slots, after = table.scan(version, 0, _LOOKED_AT)
    rows = pa.Table.from_batches([table.take(names, input.chosen(slots))]).drop_null().group_by(names).aggregate([])
    columns = [sent(rows.column(name).combine_chunks(), SENT_TYPES[definition.column(name).kind]) for name in names]
    keys = [orjson.loads(line) for line in _lines(pa.RecordBatch.from_arrays(columns, names))]
    return sorted(keys, key=lambda key: [(isinstance(value, str), value) for value in key.values()]), after < 0


def _text(value: Any) -> str:
    """Return a JSON value as the text of a parameter."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _extent(view: LiveView, version: int) -> list[dict[str, Any]]:
    """Return, for each dimension, the least and the largest end in a sample of its relations' rows, and the range of most ends; null
    without rows."""
    found: list[dict[str, Any]] = []
    for dimension in dimensions_of(view):
        ends: list[pa.Array] = []
        for input, interval in dimension:
            span = input.relation.definition.intervals[interval]
            slots = input.chosen(input.relation.table.sample(version, _SAMPLE))
            ends += input.relation.table.take(list(dict.fromkeys((span.start_column, span.end_column))), slots).columns
        input, interval = dimension[0]
        kind = input.relation.definition.column(input.relation.definition.intervals[interval].start_column).kind
        every = pc.drop_null(pa.chunked_array(ends)).combine_chunks()
        if not len(every):
            found.append({"start": None, "end": None, "most": None})
            continue
        ranked = every.take(pc.sort_indices(every))
        positions = [0, len(ranked) - 1, *(round(part * (len(ranked) - 1)) for part in _MOST)]
        shown = sent(ranked.take(pa.array(positions)), SENT_TYPES[kind])
        start, end, low, high = (orjson.loads(line)["end"] for line in _lines(pa.RecordBatch.from_arrays([shown], ["end"])))
        found.append({"start": start, "end": end, "most": {"start": low, "end": high}})
    return found
