"""The OpenAPI document, and the page that shows it: for users with a role."""

from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from fleetui.permissions import for_readers
from placements.api.base import MayRead

_writing = Lock()


@cache
def _document() -> Any:
    return SchemaGenerator().get_schema(request=None, public=True)


@cache
def _written(renderer: type[BaseRenderer]) -> Any:
    return renderer().render(_document(), renderer_context={})


class SchemaView(SpectacularAPIView):
    """Responds with the document, which a process builds once: it takes seconds of a processor."""

    permission_classes = (MayRead,)

    @extend_schema(exclude=True)
    def get(self, request: Request, *_args: Any, **_kwargs: Any) -> HttpResponse:
        renderer: Any = request.accepted_renderer
        with _writing:
            content = _written(type(renderer))  # type: ignore[arg-type]  # a class is hashable
        return HttpResponse(
            content,
            content_type=f"{renderer.media_type}; charset=utf-8",
            headers={
                "Content-Disposition": f'inline; filename="FleetUI.{renderer.format}"'
            },
        )


@require_safe
@for_readers
def documentation(request: HttpRequest) -> HttpResponse:
    """Show the document with Swagger UI; all its scripts are served by this console."""
    return render(request, "placements/api.html")
