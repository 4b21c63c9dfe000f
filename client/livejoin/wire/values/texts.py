"""Values with a textual form: UUIDs, which are stored as text, and bytes, which are text only when sent."""

from __future__ import annotations

import base64
import binascii
import re

import pyarrow as pa
import pyarrow.compute as pc

_UUID = re.compile(r"(\{?)[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(\2[0-9a-fA-F]{4}){2}\2[0-9a-fA-F]{12}(\}?)")
_CANONICAL = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_PARTS = (0, 8, 12, 16, 20, 32)  # positions of the hyphens, in hexadecimal digits
HEX = "\\x"  # precedes the hexadecimal digits of bytes, as in PostgreSQL


def canonical_uuid(text: str) -> str | None:
    """Return a UUID in lower case with hyphens; None if it is invalid. Like PostgreSQL, accepts upper case, braces and missing hyphens."""
    found = _UUID.fullmatch(text)
    if found is None or bool(found[1]) != bool(found[4]):
        return None
    return _hyphenated(text.strip("{}").replace("-", "").lower())


def _hyphenated(digits: str) -> str:
    return "-".join(digits[start:end] for start, end in zip(_PARTS, _PARTS[1:], strict=False))


def are_canonical(texts: pa.Array) -> bool:
    """Return whether all values of a column are UUIDs as `canonical_uuid` returns them, or null."""
    return bool(pc.all(pc.match_substring_regex(texts, _CANONICAL), min_count=0).as_py())


def uuids_of_bytes(array: pa.Array) -> pa.Array:
    """Convert a column fixed_size_binary[16] to text."""
    return pa.array([None if value is None else _hyphenated(value.hex()) for value in array.to_pylist()], pa.utf8())


def bytes_of(text: str) -> bytes | None:
    """Decode base64, or hexadecimal digits after `\\x`; None if it is neither."""
    try:
        if text.startswith(HEX):
            return binascii.unhexlify(text[len(HEX) :])
        return base64.b64decode(text, validate=True)
    except ValueError:
        return None


def base64_texts(array: pa.Array) -> pa.Array:
    """Encode a binary column in base64."""
    return pa.array([None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()], pa.utf8())


def without_extension(array: pa.Array) -> pa.Array:
    """Return the storage of a column of Arrow's extension types for UUIDs and JSON; other columns unchanged."""
    return array.storage if _is_ours(array.type) else array


def storage_of(kind: pa.DataType) -> pa.DataType:
    """Return the type of `without_extension`."""
    return kind.storage_type if _is_ours(kind) else kind


def _is_ours(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.UuidType | pa.JsonType)
