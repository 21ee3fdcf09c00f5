"""Addresses of the pages about placements."""

from django.urls import path

from placements.views.welcome import welcome

app_name = "placements"

urlpatterns = [
    path("", welcome, name="welcome"),
]
