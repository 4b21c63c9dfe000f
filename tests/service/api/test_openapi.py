"""The OpenAPI document: whole, and its examples fit its schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from service.planning.natural import natural_json
from service.planning.planner import alternatives
from tests.service.api.answered import DOCUMENT, SCHEMAS, fields, validate
from tests.service.definitions import RELATIONS, sql


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, media type object) of the request and of every response."""
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"request {kind}", content
    for status, response in operation["responses"].items():
        for kind, content in response.get("content", {}).items():
            yield f"{status} {kind}", content


def test_every_path_of_the_interface_is_there() -> None:
    named = {name for name, _ in operations()}
    for name in (
        "PUT /v1/relations/{name}",
        "GET /v1/relations",
        "GET /v1/relations/{name}",
        "DELETE /v1/relations/{name}",
        "GET /v1/relations/{name}/rows",
        "POST /v1/changes",
        "POST /v1/relations/{name}/changes",
        "PUT /v1/views/{name}",
        "GET /v1/views",
        "GET /v1/views/{name}",
        "DELETE /v1/views/{name}",
        "POST /v1/explain",
        "GET /v1/views/{name}/rows",
        "HEAD /v1/views/{name}/rows",
        "GET /v1/views/{name}/count",
        "GET /v1/views/{name}/changes",
        "GET /livez",
        "GET /readyz",
        "GET /metrics",
        "GET /v1/status",
        "GET /problems/{type}",
    ):
        assert name in named


def test_operation_ids_are_unique() -> None:
    names = [operation["operationId"] for _, operation in operations()]
    assert len(names) == len(set(names))


def test_an_error_in_a_query_that_is_the_request_is_400() -> None:
    responses = dict(operations())["POST /v1/query"]["responses"]
    problems = {status: responses[status]["content"]["application/problem+json"]["examples"] for status in ("400", "422")}
    assert problems["400"]["bad-query"]["value"]["status"] == 400 and "bad-query" not in problems["422"]


@pytest.mark.parametrize(("name", "operation"), list(operations()), ids=lambda value: value if isinstance(value, str) else "")
def test_examples_fit(name: str, operation: dict[str, Any]) -> None:
    assert operation["summary"]
    for parameter in operation.get("parameters", ()):
        assert parameter["description"]
        if "example" in parameter:
            validate(parameter["schema"], parameter["example"])
        if parameter["in"] == "path":
            assert "{" + parameter["name"] + "}" in name
    for where, content in contents(operation):
        examples = [example["value"] for example in content.get("examples", {}).values()] or [content["example"]]
        for example in examples:
            try:
                validate(content["schema"], example)
            except jsonschema_rs.ValidationError as error:
                pytest.fail(f"{name}, {where}: {error.message}")


def test_links_lead_somewhere() -> None:
    """To an operation, with parameters that it has."""
    known = {operation["operationId"]: {one["name"] for one in operation.get("parameters", ())} for _, operation in operations()}
    found = [
        (link["operationId"], set(link["parameters"]))
        for _, operation in operations()
        for response in operation["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert len(found) > 20 and [one for one in found if not one[1] <= known[one[0]]] == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT b.id FROM bookings b JOIN maintenance m ON b.room = m.room AND b.floor = m.floor",
        "SELECT a.id FROM maintenance a, maintenance b, maintenance c WHERE a.id = b.code AND b.id = c.code AND c.id = a.code",
        "SELECT b.id FROM bookings b JOIN maintenance m ON overlaps(b.stay, m.slot)",
    ],
)
def test_explanations_fit(text: str) -> None:
    view = sql(text)
    others = [one.to_json() for one in alternatives(view.query, RELATIONS)]
    emitted: dict[str, Any] = {"plan": view.plan.to_json(), "alternatives": others, "reads": [], "stored": []}
    natural = natural_json(view.query, RELATIONS, None)
    validate(SCHEMAS["Explanation"], emitted | ({} if natural is None else {"natural": natural}))


def test_every_field_is_described() -> None:
    """In a few words that begin in lower case, or with code. Seen: 233 were not."""
    found = [field for name, schema in SCHEMAS.items() for field in fields(schema, name)]
    assert len(found) > 250 and [path for path, field in found if not field.get("description")] == []
    texts = {path: field["description"] for path, field in found}
    assert [path for path, text in texts.items() if text.endswith(".") or text[0].isupper() and not text.startswith("SQL ")] == []


def test_every_schema_is_one_and_is_used() -> None:
    text = str(DOCUMENT["paths"]) + str(SCHEMAS)
    for name, schema in SCHEMAS.items():
        jsonschema_rs.meta.validate(schema)
        assert f"#/components/schemas/{name}'" in text
