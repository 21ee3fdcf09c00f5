"""Lists: what they may be asked, and one page of them with the address of the next."""

from collections.abc import Iterable
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from fleetui.paging import Page, page_of
from placements.api.shapes.queries import ConfirmQuery

Row = TypeVar("Row", bound=Model)
_ALWAYS = frozenset({"format"})


def asked(request: Request, query: type[Serializer[Any]]) -> dict[str, Any]:
    """Give the query parameters, checked and with their defaults. Raises ValidationError.

    One that the endpoint does not know is refused: a filter misspelt must not show everything.
    """
    reader = query(data=request.query_params)
    unknown = sorted(set(request.query_params) - set(reader.fields) - _ALWAYS)
    if unknown:
        known = ", ".join(reader.fields) or "none"
        message = f"is no parameter here (there are: {known})"
        raise ValidationError({name[:80]: [message] for name in unknown}, code="unknown-field")
    reader.is_valid(raise_exception=True)
    return dict(reader.validated_data)


def is_confirmed(request: Request) -> bool:
    """Tell whether the caller confirms that everything may be unscheduled. Raises ValidationError."""
    return "confirm" in asked(request, ConfirmQuery)


def page_asked(rows: QuerySet[Row], wanted: dict[str, Any], *, order: str, unique: str = "name") -> Page[Row]:
    """Give the page that was asked for. Raises BadCursorError."""
    return page_of(rows, order=order, size=wanted["limit"], after=wanted.get("after"), unique=unique)


def rows_as(shape: type[Serializer[Any]], rows: Iterable[Model], **known: Any) -> list[Any]:
    """Render rows; `known` is what was looked up for all of them at once."""
    return list(shape(list(rows), many=True, context=known).data)


def listed(request: Request, items: Iterable[Any], after: str | int | None) -> Response:
    """Answer one page."""
    return Response({"items": list(items), "next": None if after is None else next_page(request, after)})


def next_page(request: Request, after: str | int) -> str:
    """Give the address of the same list after this one."""
    parameters = request.query_params.copy()
    parameters["after"] = str(after)
    return request.build_absolute_uri(f"{request.path}?{parameters.urlencode()}")
