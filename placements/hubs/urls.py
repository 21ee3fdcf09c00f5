"""Addresses of live hubs: of pages and of operations of REST."""

from django.urls import URLPattern, URLResolver, path

import fleetui.url_converters  # noqa: F401 -- registers the converter of full names
from placements.api.base import Router
from placements.hubs.api.hubs import DecisionOnHubViewSet, HubViewSet, HubWriteViewSet
from placements.hubs.web import hubs, writes

PAGES: tuple[URLPattern, ...] = (
    path("hubs/", hubs.hubs, name="hubs"),
    path("hubs/new/", hubs.new_hub, name="hub-new"),
    path("hub-line/", hubs.line, name="hub-line"),
    path("hub-write/<slug:name>/", writes.write, name="hub-write"),
    path("hubs/<str:name>/about/", hubs.about, name="hub-about"),
    path("hubs/<str:name>/about/check/", hubs.check, name="hub-check"),
    path("hubs/<str:name>/about/pause/", hubs.pause, name="hub-pause"),
    path(
        "hubs/<str:name>/about/credentials/", hubs.credentials, name="hub-credentials"
    ),
    path("hubs/<str:name>/about/remove/", hubs.remove, name="hub-remove"),
    path("drafts/<int:number>/hub-write/", writes.write_draft, name="draft-hub-write"),
    path(
        "decisions/<str:prefix>/hub/<str:form>/",
        hubs.decision_on_hub,
        name="decision-hub",
    ),
)
_router = Router()
_router.register("hubs", HubViewSet, "hub")
_router.register("hubs/<named:name>/writes", HubWriteViewSet, "hub-write")
OPERATIONS: tuple[URLPattern | URLResolver, ...] = (
    path(
        "decisions/<decision:decision>/hub",
        DecisionOnHubViewSet.as_view({"get": "retrieve"}),
        name="decision-on-hub",
    ),
    *_router.urls,
)
