"""Addresses: each app brings its own."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

admin.autodiscover()

handler404 = "placements.web.errors.page_not_found"
handler500 = "placements.web.errors.server_error"

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("placements.api.urls")),
    path("login/", LoginView.as_view(redirect_authenticated_user=True), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("", include("placements.urls")),
]
