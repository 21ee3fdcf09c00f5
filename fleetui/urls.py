"""Addresses: each app brings its own."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("placements.api.urls")),
    path("", include("placements.urls")),
]
