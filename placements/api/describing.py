"""What the schema says of an operation: its name, what goes in, every answer it may give."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar

from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from placements.api.problems import PROBLEM_TYPE
from placements.api.shapes.problems import Problem

View = TypeVar("View", bound=Callable[..., Any])
_WORDS = {
    400: "The request cannot be read.",
    401: "Who calls is not known.",
    403: "Who calls may not do this.",
    404: "There is no such object.",
    406: "There is no answer in the asked form.",
    409: "It collides with something else.",
    410: "Another engine wrote the record; this one cannot replay it.",
    412: "The object is another one by now; `changes` say who saved what in between.",
    413: "The body is too large.",
    415: "The body is of a type that is not read here.",
    422: "The document has faults; each has its path, its line and what is allowed.",
    429: "Too many attempts.",
}
OF_A_RECORD = (409, 410)
"""What may go wrong where the id of a decision is given: it is ambiguous, or its record is not readable."""
_ALWAYS = (400, 401, 403, 404, 406)
_WITH_BODY = (413, 415, 422)
_CONDITIONS = [
    OpenApiParameter(
        "If-Match", str, OpenApiParameter.HEADER, description="The ETag that the edit started from."
    ),
]
_ETAG = OpenApiParameter(
    "ETag", str, OpenApiParameter.HEADER, response=(200, 201), description="The revision of the object."
)
_HAS_ALREADY = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, description="The ETag of what the reader has already."
)
_MUST_BE_NEW = OpenApiParameter(
    "If-None-Match", str, OpenApiParameter.HEADER, enum=["*"], description="`*`: the object has to be new."
)


def described(
    name: str,
    answers: Mapping[Any, Any],
    *,
    body: Any = None,
    media_types: Iterable[str] = ("application/json", "application/yaml"),
    query: type[serializers.Serializer[Any]] | None = None,
    problems: Iterable[int] = (),
    is_edit: bool = False,
    has_tag: bool = False,
    **more: Any,
) -> Callable[[View], View]:
    """Describe an operation; `is_edit`: it honours If-Match, `has_tag`: it answers with an ETag."""
    codes = {*_ALWAYS, *(_WITH_BODY if body is not None else ()), *((412,) if is_edit else ()), *problems}
    refusals = {(code, PROBLEM_TYPE): OpenApiResponse(Problem, _WORDS[code]) for code in sorted(codes)}
    reads = has_tag and not is_edit
    parameters: list[Any] = [
        *([query] if query else ()),
        *(_CONDITIONS if is_edit else ()),
        *([_MUST_BE_NEW] if is_edit and 201 in answers else ()),
        *([_HAS_ALREADY] if reads else ()),
        *([_ETAG] if has_tag else ()),
    ]
    unchanged = {304: OpenApiResponse(description="The reader has it already.")} if reads else {}
    request = None if body is None else dict.fromkeys(media_types, body)
    return extend_schema(
        operation_id=name,
        request=request,
        parameters=parameters,
        responses={**answers, **unchanged, **refusals},
        **more,
    )


@cache
def page_shape(row: type[serializers.Serializer[Any]]) -> Any:
    """Describe one page of such rows."""
    name = row.__name__.removesuffix("Row")
    fields: dict[str, serializers.Field[Any, Any, Any, Any]] = {
        "items": row(many=True),
        "next": serializers.URLField(allow_null=True, help_text="Where the list goes on."),
    }
    return inline_serializer(f"{name}Page", fields)
