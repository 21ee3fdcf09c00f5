"""Addresses: each app brings its own."""

from django.contrib import admin
from django.urls import include, path

admin.autodiscover()

handler404 = "placements.web.errors.page_not_found"
handler429 = "fleetui.accounts.views.refuse_too_many"
handler500 = "placements.web.errors.server_error"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("placements.api.urls")),
    path("", include("fleetui.accounts.urls")),
    path("", include("placements.urls")),
]
