"""Adds descriptions to JSON schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def describe(schemas: Mapping[str, dict[str, Any]], descriptions: Mapping[str, Mapping[str, str]]) -> None:
    """Add the descriptions to the schemas' properties, which schemas may share. KeyError for a property that does not exist."""
    for name, fields in descriptions.items():
        for path, text in fields.items():
            inner, places = schemas[name], list[dict[str, Any]]()
            for step in path.split("."):
                places = [found for found in _properties(inner) if step in found]
                if not places:
                    raise KeyError(f"{name}.{path}")
                inner = places[0][step]
            for found in places:
                found[step] = found[step] | {"description": text}


def _properties(schema: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the properties of an object, of the entries of a list or a map, and of each of several forms."""
    if "properties" in schema:
        yield schema["properties"]
    for part in ("items", "additionalProperties"):
        if isinstance(schema.get(part), dict):
            yield from _properties(schema[part])
    for form in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from _properties(form)
