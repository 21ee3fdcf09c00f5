"""Addresses: each app brings its own."""

from django.urls import include, path

urlpatterns = [
    path("", include("placements.urls")),
]
