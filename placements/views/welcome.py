"""The front page, until the console takes its place."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def welcome(request: HttpRequest) -> HttpResponse:
    """Say what FleetUI is and what can be done with it today."""
    return render(request, "placements/welcome.html")
