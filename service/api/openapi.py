"""The OpenAPI document: FastAPI makes it from the routes; responses and bodies are added as they are declared, with their examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel

from livejoin.wire.version import VERSION
from service.access.rights import RIGHTS
from service.api.http import media
from service.api.models import answers
from service.api.models.body import ref, schemas
from service.api.models.examples import PROBLEM_EXTENSIONS
from service.errors import CATALOGUE, Problem

Content = dict[str, dict[str, Any]]  # by media type
Responses = dict[int | str, dict[str, Any]]

_models: dict[type[BaseModel], None] = {answers.Problem: None}  # of all contents


def json_content(model: type[BaseModel], *examples: Any, other: type[BaseModel] | None = None) -> Content:
    """Return content of `application/json`, of one model or another, with examples in order."""
    _models.update(dict.fromkeys((model,) if other is None else (model, other)))
    schema = ref(model) if other is None else {"oneOf": [ref(model), ref(other)]}
    return {media.JSON: {"schema": schema, "examples": {f"example-{i}": {"value": value} for i, value in enumerate(examples, 1)}}}


def text_content(kind: str, example: str) -> Content:
    return {kind: {"schema": {"type": "string"}, "example": example}}


def binary_content(kind: str, description: str) -> Content:
    return {kind: {"schema": {"type": "string", "format": "binary", "description": description}, "example": f"({description})"}}


def body(content: Content, required: bool = True) -> dict[str, Any]:
    """Return the part of an operation that documents its body, which the handler reads itself."""
    return {"requestBody": {"required": required, "content": content}}


def header_parameter(name: str, description: str, example: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}, "example": example}


def links(*operations: str, **parameters: str) -> dict[str, Any]:
    """Return links to what can be requested next about the relation or view in the path: operations by their operationId. `parameters` are
    those that the next request needs besides the name, and where in this exchange they are found."""
    found = {"name": "$request.path.name", **parameters}
    return {operation: {"operationId": operation, "parameters": found} for operation in operations}


def answer(
    status: int,
    description: str,
    content: Content | None = None,
    headers: Mapping[str, str] | None = None,
    following: dict[str, Any] | None = None,
) -> Responses:
    """Return one response; `headers` maps a header's name to an example, `following` are `links`."""
    made: dict[str, Any] = {"description": description}
    if content is not None:
        made["content"] = content
    if headers:
        made["headers"] = {name: {"schema": {"type": "string"}, "example": example} for name, example in headers.items()}
    if following:
        made["links"] = following
    return {status: made}


def failures(*types: str, shown: Callable[[Problem], Problem] = lambda problem: problem) -> Responses:
    """Return the responses of these problems, as the endpoint shows them, and of those that any request can meet, by status."""
    by_status: Responses = {}
    for kind in (*types, "unauthorized", "forbidden", "request-timeout", "headers-too-large", "too-busy", "internal", "recovering"):
        problem = shown(Problem(kind, CATALOGUE[kind].meaning.split(". ")[0], **PROBLEM_EXTENSIONS.get(kind, {})))
        empty: dict[str, Any] = {"content": {media.PROBLEM: {"schema": ref(answers.Problem), "examples": {}}}}
        found = by_status.setdefault(problem.status, empty)
        found["content"][media.PROBLEM]["examples"][kind] = {"value": problem.to_json()}
        found["description"] = ", ".join(found["content"][media.PROBLEM]["examples"])
    return by_status


_TAGS = {
    "relations": "typed tables with a key and named intervals",
    "changes": "batches of inserts, upserts and deletes; each accepted one is a version",
    "views": "queries whose results are maintained under changes",
    "rows": "the rows of a view or relation at one version",
    "followers": "the changes of a view, version by version",
    "operations": "health, metrics, status and problem types",
}
_TOKEN = {"type": "http", "scheme": "bearer", "description": "an access token of the scope listed, required in token mode"}


def document(routes: Sequence[APIRoute]) -> dict[str, Any]:
    """Return the whole OpenAPI 3.1 document."""
    made = get_openapi(
        title="livejoin",
        version=VERSION,
        summary="Maintains joins, above all interval joins, under changes",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        routes=routes,
    )
    for route in routes:
        for method in route.methods or ():
            _complete(made["paths"][route.path_format][method.lower()], method, route)
    made["components"] = {"schemas": schemas(_models), "securitySchemes": {"token": _TOKEN}}
    return made


def _complete(operation: dict[str, Any], method: str, route: APIRoute) -> None:
    """Replace the responses and the body by those declared: the framework leaves out nulls in examples, and adds an answer to errors of
    parameters, which here are problems. Describe each parameter once."""
    operation["responses"] = {str(status): route.responses[status] for status in sorted(route.responses, key=str)}
    if "requestBody" in operation:
        operation["requestBody"] = (route.openapi_extra or {})["requestBody"]
    for parameter in operation.get("parameters", ()):
        schema = parameter["schema"]
        schema.pop("title", None)
        schema.pop("description", None)
        if "examples" in schema:
            (parameter["example"],) = schema.pop("examples")
    right = RIGHTS[method, route.path_format]
    operation["security"] = [{}] if right is None else [{}, {"token": [right.scope]}]  # {}: outside token mode
