"""Bodies against the schemas of the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from service.api.app import ROUTES
from service.api.openapi import document

DOCUMENT = document(ROUTES)
SCHEMAS = DOCUMENT["components"]["schemas"]


def validate(schema: dict[str, Any], value: Any) -> None:
    jsonschema_rs.Draft202012Validator({**schema, "components": {"schemas": SCHEMAS}}).validate(value)


def inlined(schema: Any) -> Any:
    """The schema with those that it refers to in their places."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return inlined(SCHEMAS[schema["$ref"].rpartition("/")[2]]) | {name: part for name, part in schema.items() if name != "$ref"}
        return {name: inlined(part) for name, part in schema.items()}
    return list(map(inlined, schema)) if isinstance(schema, list) else schema


def fields(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    """(path, schema) of each property, in whatever part of the schema. What conditions only restrict is no property of its own."""
    if isinstance(schema, dict):
        for name, field in schema.get("properties", {}).items():
            yield f"{path}.{name}", field
            yield from fields(field, f"{path}.{name}")
        for keyword, part in schema.items():
            if keyword not in ("properties", "if", "then", "else", "dependentSchemas", "not"):
                yield from fields(part, path)
    elif isinstance(schema, list):
        for part in schema:
            yield from fields(part, path)


def met(schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """The paths of the properties that the value has, as `fields` has them."""
    for form in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        yield from met(form, value, path)
    if isinstance(value, list):
        for one in value:
            yield from met(schema.get("items", {}), one, path)
    elif isinstance(value, dict):
        for name, one in value.items():
            if name in schema.get("properties", {}):
                yield f"{path}.{name}"
                yield from met(schema["properties"][name], one, f"{path}.{name}")
            elif isinstance(schema.get("additionalProperties"), dict):
                yield from met(schema["additionalProperties"], one, path)


def require_answered(name: str, *answers: Any) -> None:
    """The answers fit the schema of this name, which lists what they have, and each of its properties is in one of them."""
    for answer in answers:
        validate(SCHEMAS[name], answer)
        assert not answer.keys() - SCHEMAS[name].get("properties", {}).keys()
    whole = inlined(SCHEMAS[name])
    found = {path for answer in answers for path in met(whole, answer, name)}
    assert [path for path, _ in fields(whole, name) if path not in found] == []
