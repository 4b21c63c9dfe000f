"""The OpenAPI document, built from the operations declared beside the handlers; every part has an example."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from service.access.rights import RIGHTS
from service.api.http import media
from service.api.http.parameters import Parameter
from service.api.schemas.bodies import schemas
from service.api.schemas.examples import PROBLEM_EXTENSIONS
from service.api.schemas.parts import ref
from service.errors import CATALOGUE, Problem

Handler = Callable[[Request], Awaitable[Response]]


class Endpoint(NamedTuple):
    """A method of a path: its handler (None: the gate in front of the router), and its part of the document."""

    method: str
    path: str
    handler: Handler | None
    operation: dict[str, Any]


def operation(
    name: str,
    summary: str,
    *,
    tag: str,
    responses: dict[str, Any],
    parameters: Sequence[dict[str, Any]] = (),
    body: dict[str, Any] | None = None,
    body_required: bool = True,
    description: str = "",
) -> dict[str, Any]:
    """Return one operation object; `name` is its operationId."""
    made: dict[str, Any] = {"operationId": name, "summary": summary, "tags": [tag], "responses": dict(sorted(responses.items()))}
    if description:
        made["description"] = description
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        made["requestBody"] = {"required": body_required, "content": body}
    return made


def path_parameter(name: str, description: str, example: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "description": description, "schema": {"type": "string"}, "example": example}


def query_parameters(parameters: Iterable[Parameter]) -> list[dict[str, Any]]:
    """Return the parameter objects. A family such as `where.*` becomes an object whose members are the parameters."""
    return [_family(p) if p.name.endswith(".*") else _single(p) for p in parameters]


def _single(parameter: Parameter) -> dict[str, Any]:
    made = {"name": parameter.name, "in": "query", "description": parameter.description, "schema": dict(parameter.schema)}
    return made if parameter.example is None else made | {"example": parameter.example}


def _family(parameter: Parameter) -> dict[str, Any]:
    names = {"pattern": f"^{re.escape(parameter.name[:-1])}"}
    return {
        "name": parameter.name,
        "in": "query",
        "style": "form",
        "explode": True,
        "description": parameter.description,
        "schema": {"type": "object", "propertyNames": names, "additionalProperties": dict(parameter.schema)},
        "example": parameter.example,
    }


def header_parameter(name: str, description: str, example: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}, "example": example}


def json_content(schema: str, *examples: Any) -> dict[str, Any]:
    """Return content of `application/json` with a named schema and examples, in order."""
    return {media.JSON: {"schema": ref(schema), "examples": {f"example-{i}": {"value": value} for i, value in enumerate(examples, 1)}}}


def text_content(kind: str, example: str) -> dict[str, Any]:
    return {kind: {"schema": {"type": "string"}, "example": example}}


def binary_content(kind: str, description: str) -> dict[str, Any]:
    return {kind: {"schema": {"type": "string", "format": "binary", "description": description}, "example": f"({description})"}}


def links(*operations: str, **parameters: str) -> dict[str, Any]:
    """Return links to what can be requested next about the relation or view in the path: operations by their operationId. `parameters` are
    those that the next request needs besides the name, and where in this exchange they are found."""
    found = {"name": "$request.path.name", **parameters}
    return {operation: {"operationId": operation, "parameters": found} for operation in operations}


def answer(
    status: int,
    description: str,
    content: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    following: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one response; `headers` maps a header's name to an example, `following` are `links`."""
    made: dict[str, Any] = {"description": description}
    if content is not None:
        made["content"] = content
    if headers:
        made["headers"] = {name: {"schema": {"type": "string"}, "example": example} for name, example in headers.items()}
    if following:
        made["links"] = following
    return {str(status): made}


def failures(*types: str, told: Callable[[Problem], Problem] = lambda problem: problem) -> dict[str, Any]:
    """Return the responses of these problems, as the endpoint tells them, and of those that any request can meet, by status."""
    by_status: dict[str, dict[str, Any]] = {}
    for kind in (*types, "unauthorized", "forbidden", "request-timeout", "headers-too-large", "too-busy", "internal", "recovering"):
        problem = told(Problem(kind, CATALOGUE[kind].meaning.split(". ")[0], **PROBLEM_EXTENSIONS.get(kind, {})))
        empty: dict[str, Any] = {"description": "", "content": {media.PROBLEM: {"schema": ref("Problem"), "examples": {}}}}
        found = by_status.setdefault(str(problem.status), empty)
        found["content"][media.PROBLEM]["examples"][kind] = {"value": problem.to_json()}
        found["description"] = ", ".join(found["content"][media.PROBLEM]["examples"])
    return by_status


TAGS = [
    {"name": "relations", "description": "typed tables with a key and named intervals"},
    {"name": "changes", "description": "batches of inserts, upserts and deletes; each accepted one is a version"},
    {"name": "views", "description": "queries whose results are maintained under changes"},
    {"name": "rows", "description": "the rows of a view or relation at one version"},
    {"name": "followers", "description": "the changes of a view, version by version"},
    {"name": "operations", "description": "health, metrics, status and problem types"},
]


_TOKEN = {"type": "http", "scheme": "bearer", "description": "an access token of the scope listed, required in token mode"}


def document(endpoints: Iterable[Endpoint], version: str) -> dict[str, Any]:
    """Return the whole OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        right = RIGHTS[endpoint.method, endpoint.path]
        security = [{}] if right is None else [{}, {"token": [right.scope]}]  # {}: outside token mode
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = endpoint.operation | {"security": security}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "livejoin",
            "version": version,
            "summary": "Maintains joins, above all interval joins, under changes",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "tags": TAGS,
        "paths": paths,
        "components": {"schemas": schemas(), "securitySchemes": {"token": _TOKEN}},
    }
