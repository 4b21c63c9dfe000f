"""Routes and what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path
from fastapi.routing import APIRoute
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response

from livejoin.wire.schema import NAME
from service.access import rights
from service.access.access_token import AccessToken
from service.api import problems
from service.api.context import Context
from service.api.http import parameters
from service.api.http.answers import missing
from service.engine.refusals import InUse
from service.errors import Problem
from service.views.live_view import LiveView

Handler = Callable[[Any], Coroutine[Any, Any, Response]]  # of a request


class _Text(PathConvertor):
    """Any text, slashes and line breaks included: the name of a source."""

    regex = "(?s:.*)"


register_url_convertor("text", _Text())


class ServiceRequest(Request):
    """A request, with what its handler needs of the service. A dependency for each would cost 15 µs."""

    @property
    def context(self) -> Context:
        context: Context = self.app.state.context
        return context

    @property
    def token(self) -> AccessToken:
        token: AccessToken = self.scope["token"]
        return token

    def view(self, name: str) -> LiveView:
        """Return the view of that name. Problem `not-found`."""
        self.require_view(name)
        return self.context.engine.views[name]

    def require_view(self, name: str) -> None:
        if name not in self.context.engine.views:
            raise missing(self.context.engine, self.token, "view", name)

    def require_relation(self, name: str) -> None:
        if name not in self.context.engine.relations:
            raise missing(self.context.engine, self.token, "relation", name)


class Route(APIRoute):
    """Checks the right to an operation before anything else. Every exception becomes a problem before the framework sees it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        models = [field.field_info.annotation for field in self.dependant.query_params]
        self.known = tuple([name for model in models for name in parameters.names_of(model)])  # type: ignore[arg-type]

    def get_route_handler(self) -> Handler:
        return self.guarded(super().get_route_handler())

    def guarded(self, handle: Handler) -> Handler:
        right = rights.RIGHTS[next(iter(self.methods or ())), self.path_format]

        async def handle_guarded(request: Request) -> Response:
            try:
                if right is not None:
                    rights.require(request.scope["token"], right, request.path_params.get("name"))
                return await handle(ServiceRequest(request.scope, request.receive))
            except Exception as error:
                return await problems.handle(request, error)

        return handle_guarded


class PlainRoute(Route):
    """A route for what is asked often, with one model of query parameters, which it reads as strictly. It is documented as the others are,
    but its handler is called without the framework, which takes 15 µs for each parameter and dependency, of the 250 µs of a small page."""

    def get_route_handler(self) -> Handler:
        (query_parameter,) = self.dependant.query_params
        model: type[parameters.Parameters] = query_parameter.field_info.annotation  # type: ignore[assignment]

        async def handle(request: ServiceRequest) -> Response:
            query = parameters.read(request.scope["query_string"], model)
            response: Response = await self.endpoint(request, query=query, **request.path_params)
            return response

        return self.guarded(handle)


async def require_known(request: Request) -> None:
    """Refuse unknown and repeated query parameters: the framework would ignore them, so that a misspelt one had no effect."""
    if query := request.scope["query_string"]:
        parameters.require_known(query, request.scope["route"].known)


def _operation_id(route: APIRoute) -> str:
    first, *words = route.name.split("_")
    return first + "".join([word.title() for word in words])


def router(tag: str, strict: bool = True, route: type[Route] = Route) -> APIRouter:
    """Return a router whose handlers return responses: models only document. A handler's name is the operationId, in camel case. `strict`:
    unknown query parameters are refused."""
    return APIRouter(
        tags=[tag],
        route_class=route,
        default_response_class=Response,
        dependencies=[Depends(require_known)] if strict else [],
        generate_unique_id_function=_operation_id,
    )


RelationName = Annotated[str, Path(description="the relation", examples=["bookings"])]
ViewName = Annotated[str, Path(description="the view", examples=["clashes"])]


def checked_name(name: str, what: str) -> str:
    """Return the name if a relation or view may have it; otherwise Problem `bad-definition`."""
    if not NAME.fullmatch(name):
        raise Problem("bad-definition", f"invalid {what} name {name!r}: names must match {NAME.pattern}")
    return name


@contextmanager
def hiding_views(token: AccessToken) -> Iterator[None]:
    """Take the names of views that the token does not cover out of the problem of a relation or a view in use."""
    try:
        yield
    except InUse as problem:
        views = problem.extensions["views"]
        shown = [view for view in views if token.covers_view(view)]
        if len(shown) < len(views):
            emitted = ", ".join([*shown, "views that the access token is not for"])
            problem.detail, problem.extensions["views"] = f"{problem.before}{emitted}{problem.after}", shown
        raise
