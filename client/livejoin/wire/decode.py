"""Decodes the body of a request to a `Batch`, by media type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from livejoin.wire.arrow import decode_arrow, decode_relation_arrow
from livejoin.wire.batch import Batch
from livejoin.wire.budget import UNBOUNDED, Budget
from livejoin.wire.csv import decode_csv
from livejoin.wire.debezium import decode_debezium
from livejoin.wire.errors import UnsupportedMediaType
from livejoin.wire.json import Definitions, decode_json, decode_jsonl, decode_relation_jsonl
from livejoin.wire.parquet.decode import decode_parquet

_CHANGES: dict[str, Callable[[bytes, Definitions, Budget], Batch]] = {
    "application/json": decode_json,
    "application/jsonl": decode_jsonl,
    "application/x-ndjson": decode_jsonl,
    "application/vnd.apache.arrow.stream": decode_arrow,
}
_ROWS: dict[str, Callable[..., Batch]] = {
    "application/jsonl": decode_relation_jsonl,
    "application/x-ndjson": decode_relation_jsonl,
    "text/csv": decode_csv,
    "application/vnd.apache.arrow.stream": decode_relation_arrow,
    "application/vnd.apache.parquet": decode_parquet,
}
_RELATION_CHANGES = {**_ROWS, "application/vnd.debezium+jsonl": decode_debezium}
_Decoder = TypeVar("_Decoder")

CHANGES_TYPES = tuple(_CHANGES)
RELATION_CHANGES_TYPES = tuple(_RELATION_CHANGES)
ROWS_TYPES = tuple(_ROWS)


def decode_changes(media_type: str, body: bytes, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode a body of `POST /v1/changes`.

    `definitions(name)` returns a relation's definition or raises UnknownRelation. Raises MalformedBody, UnknownRelation, BadParameter
    (fields of a JSON body), UnsupportedMediaType, TooLarge (for the room); bad rows are in the batch.
    """
    return _pick(_CHANGES, media_type)(body, definitions, room)


def decode_relation_changes(media_type: str, body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode a body of `POST /v1/relations/{relation}/changes`; raises as `decode_changes` does."""
    return _pick(_RELATION_CHANGES, media_type)(body, relation, definitions, room)


def decode_rows(media_type: str, body: bytes, relation: str, definitions: Definitions, room: Budget = UNBOUNDED) -> Batch:
    """Decode a body of `POST /v1/relations/{relation}/replace`, as upserts; raises as `decode_changes` does."""
    return _pick(_ROWS, media_type)(body, relation, definitions, room, True)


def _pick(decoders: dict[str, _Decoder], media_type: str) -> _Decoder:
    """Return the decoder. Parameters of a media type (a charset) are ignored: all bodies are UTF-8 or binary."""
    decoder = decoders.get(media_type) or decoders.get(media_type.partition(";")[0].strip().lower())
    if decoder is None:
        raise UnsupportedMediaType(f"{media_type or 'a body without a media type'} is not supported; use one of {', '.join(decoders)}")
    return decoder
