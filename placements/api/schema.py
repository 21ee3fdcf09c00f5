"""The OpenAPI document: names, inputs and responses of every operation."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_serializer,
    inline_serializer,
)
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView

from placements.api.authentication import OPERATING
from placements.api.filters import DryRunQuery, NoQuery
from placements.api.problems import PROBLEM_TYPE, ProblemSerializer
from placements.api.serializers import ANY_OBJECT

_DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "The caller is not authenticated.",
    403: "The caller does not have the required role.",
    404: "The object does not exist.",
    406: "The requested format is not available.",
    409: "The request conflicts with the state of the object.",
    410: "The record was written by another version of the engine and cannot be replayed.",
    412: "The object has changed; `changes` lists who saved what.",
    413: "The body is too large.",
    415: "The type of the body is not supported.",
    422: "The document is invalid; each error has its path, its line and what is allowed.",
    429: "Too many attempts, or too much was computed for the user; see `Retry-After`.",
    503: "The database, the disk or the live hub is not available; retry after the seconds in `Retry-After`.",
}
COMMANDS = "x-fleetui-commands"
"""The extension of OpenAPI from which the commands of actions are made."""
RECORD_PROBLEMS = (409, 410)
"""Where a path has the id of a decision: it is ambiguous, or its record cannot be read."""
_ALWAYS = (400, 401, 403, 404, 406, 503)
_WITH_BODY = (413, 415, 422)


def _header(name: str, description: str, **options: Any) -> OpenApiParameter:
    return OpenApiParameter(
        name, str, OpenApiParameter.HEADER, description=description, **options
    )


_CONDITION = _header("If-Match", "The ETag of the revision that the edit is based on.")
_ETAG = _header("ETag", "The revision of the object.", response=(200, 201))
_NOT_MODIFIED = _header(
    "If-None-Match", "The ETag of the revision that the client has."
)
_CREATE_ONLY = _header(
    "If-None-Match", "`*`: create only; fails if the object exists.", enum=["*"]
)


class Schema(AutoSchema):
    """Operations have the id that `documented` gives."""

    def is_excluded(self) -> bool:
        # A placement may be named `preview`: only POST to that path is a preview.
        return self.path.endswith("/placements/preview") and self.method != "POST"

    def get_summary(self) -> str:
        return re.split(r"[.;:,(]", self.get_description(), maxsplit=1)[0].strip()

    def get_operation_id(self) -> str:
        view: Any = self.view
        return str(getattr(view, view.action).operation_id)


def documented(
    name: str,
    response: Any,
    *,
    status: int | tuple[int, str] = 200,
    also: Mapping[Any, Any] | None = None,
    body: Any = None,
    media_types: Iterable[str] = ("application/json", "application/yaml"),
    query: type[serializers.Serializer[Any]] | None = None,
    problems: Iterable[int] = (),
    is_edit: bool = False,
    has_tag: bool = False,
    is_costly: bool = False,
    scopes: Collection[str] = OPERATING,
    commands: Sequence[Mapping[str, Any]] = (),
    **more: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Describe an operation; `is_edit`: it honors If-Match, `has_tag`: it responds with an ETag.

    With `query=NoQuery` a parameter is refused before the view is called, with `is_costly` the operation
    uses the seconds of its user. `also` has the responses beside the usual one, by status. `scopes` are
    those of which a token needs one, if the method may change something. `commands` are the commands of
    `fleetui` that send it.
    """
    responses = {status: response, **(also or {})}
    is_read = has_tag and not is_edit
    possible = {
        **dict.fromkeys(_WITH_BODY, body is not None),
        412: is_edit,
        429: is_costly,
        **dict.fromkeys((*_ALWAYS, *problems), True),
    }
    responses |= {304: OpenApiResponse(description="Not modified.")} if is_read else {}
    responses |= {
        (code, PROBLEM_TYPE): OpenApiResponse(ProblemSerializer, _DESCRIPTIONS[code])
        for code, is_possible in sorted(possible.items())
        if is_possible
    }
    parameters: dict[Any, bool] = {
        query: query not in (None, NoQuery),
        _CONDITION: is_edit,
        _CREATE_ONLY: is_edit and 201 in responses,
        _NOT_MODIFIED: is_read,
        _ETAG: has_tag,
    }
    described = extend_schema(
        request=None if body is None else dict.fromkeys(media_types, body),
        parameters=[one for one, is_used in parameters.items() if is_used],
        responses=responses,
        extensions={COMMANDS: list(commands)} if commands else None,
        **more,
    )

    def decorate(view: Any) -> Any:
        view.operation_id, view.is_costly, view.query = name, is_costly, query
        view.scopes = frozenset(scopes)
        view.kwargs = {**getattr(view, "kwargs", {}), "schema": Schema}
        return described(view)

    return decorate


def documented_put(
    name: str,
    manifest: type[serializers.Serializer[Any]],
    *,
    query: type[serializers.Serializer[Any]] = DryRunQuery,
    **more: Any,
) -> Any:
    """Describe an operation that creates or updates an object by its manifest."""
    return documented(
        name,
        manifest,
        query=query,
        also={201: manifest},
        body=manifest,
        is_edit=True,
        has_tag=True,
        problems=(409,),
        **more,
    )


def documented_patch(
    name: str,
    manifest: type[serializers.Serializer[Any]],
    *,
    query: type[serializers.Serializer[Any]] = DryRunQuery,
) -> Any:
    """Describe an operation that changes an object by a JSON merge patch."""
    return documented(
        name,
        manifest,
        query=query,
        media_types=("application/merge-patch+json", "application/json"),
        body=ANY_OBJECT,
        is_edit=True,
        has_tag=True,
        problems=(409,),
    )


def operation(
    name: str,
    response: Any,
    *,
    method: Any = "get",
    path: str | None = None,
    route: Mapping[str, Any] | None = None,
    **documentation: Any,
) -> Callable[[Callable[..., Any]], Any]:
    """Add an action of an object, described as by `documented`; `path` is by default its name."""
    described = documented(name, response, **documentation)
    routed = action(detail=True, methods=[method], url_path=path, **(route or {}))
    return lambda view: described(routed(view))


@cache
def page_serializer(row: type[serializers.Serializer[Any]]) -> Any:
    name = row.__name__.removesuffix("Serializer").removesuffix("Row")
    fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {
        "items": row(many=True),
        "next": serializers.URLField(
            allow_null=True, help_text="The address of the next page."
        ),
    }
    page: Any = inline_serializer(f"{name}Page", fields)
    return extend_schema_serializer(many=False)(
        page
    )  # the action `list` responds with an object


class NotFoundView(APIView):
    """Every other address of the API."""

    permission_classes = (AllowAny,)
    authentication_classes = ()

    @extend_schema(exclude=True)
    def initial(self, request: Request, *_args: Any, **_kwargs: Any) -> None:
        raise NotFound(
            f"Nothing found at {request.path[:200]}; addresses have no slash at their end."
        )
