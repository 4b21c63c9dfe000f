"""What the schemas of the bodies are made of."""

from __future__ import annotations

from typing import Any

from livejoin.wire.schema import NAME as _PATTERN

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
NAME: Schema = {"type": "string", "pattern": f"^{_PATTERN.pattern}$"}
FLAG: Schema = {"type": "boolean"}
COUNT: Schema = {"type": "integer", "minimum": 0}
MEASURE: Schema = {"type": ["number", "null"], "minimum": 0}
MOMENT: Schema = {"type": "string", "format": "date-time"}
ROW: Schema = {"type": "object", "description": "a row: column → value"}


def object_of(properties: dict[str, Any], *optional: str, closed: bool = True) -> Schema:
    """Return an object with these properties, all required except the optional ones."""
    required = [name for name in properties if name not in optional]
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": not closed}
    return made | {"required": required} if required else made


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def map_of(values: Schema) -> Schema:
    return {"type": "object", "additionalProperties": values}


def or_null(schema: Schema) -> Schema:
    return {"oneOf": [schema, {"type": "null"}]}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
