"""The schema, and a page to read it with: all scripts are files of our own, none stands in the page."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.views import APIView


@require_safe
def documentation(request: HttpRequest) -> HttpResponse:
    """Show the schema with Swagger UI."""
    return render(request, "placements/api.html")


class Nowhere(APIView):
    """Whatever else begins with the address of the API."""

    permission_classes = (AllowAny,)
    authentication_classes = ()

    @extend_schema(exclude=True)
    def initial(self, request: Request, *_args: Any, **_kwargs: Any) -> None:
        """Say that there is nothing, or where it is."""
        raise NotFound(f"There is nothing at {request.path[:200]}; addresses have no slash at their end.")
