"""Addresses of the API; none ends with a slash."""

from django.urls import URLPattern, URLResolver, include, path, re_path

import fleetui.url_converters  # noqa: F401 -- registers the converter of full names
from fleetui.hub_backend import live_backend
from placements.api import (
    auth,
    bulk_changes,
    checks,
    clusters,
    connections,
    decisions,
    disruption,
    editor,
    events,
    history,
    notifications,
    overview,
    placements,
    resources,
    rollouts,
    simulate,
    what_if,
)
from placements.api.base import MayRead, Router
from placements.api.documentation import SchemaView, documentation
from placements.api.schema import NotFoundView

app_name = "api"

router = Router()
for prefix, viewset, name in (
    ("clusters", clusters.ClusterViewSet, "cluster"),
    ("clusters", disruption.ClusterDisruptionViewSet, "cluster-disruption"),
    ("clusters", connections.ConnectionViewSet, "cluster-connection"),
    ("clusters", clusters.RemovalViewSet, "cluster-removal"),
    ("cluster-changes", bulk_changes.BulkChangeViewSet, "cluster-change"),
    ("cluster-imports", bulk_changes.ClusterImportViewSet, "cluster-import"),
    ("placements", placements.PlacementViewSet, "placement"),
    ("placements", placements.SnapshotViewSet, "snapshot"),
    ("placements", disruption.PlacementDisruptionViewSet, "disruption"),
    ("placements", history.HistoryViewSet, "history"),
    ("placements", editor.PlanViewSet, "plan"),
    ("placements", rollouts.RolloutActionViewSet, "rollout-action"),
    ("rollouts", rollouts.RolloutViewSet, "rollout"),
    ("decisions", decisions.DecisionViewSet, "decision"),
    ("exact", decisions.ExactViewSet, "exact-search"),
    ("resources", resources.ResourceViewSet, "resource"),
    ("overrides", resources.OverrideViewSet, "override"),
    ("budgets", disruption.BudgetViewSet, "budget-state"),
    ("evictions", disruption.EvictionViewSet, "eviction"),
    ("staged-runs", rollouts.StagedRunViewSet, "staged-run"),
    ("approvals", rollouts.ApprovalViewSet, "approval"),
    ("events", events.EventViewSet, "event"),
    ("notifications/channels", notifications.ChannelViewSet, "notification-channel"),
    ("notifications/rules", notifications.RuleViewSet, "notification-rule"),
    ("notifications/messages", notifications.MessageViewSet, "notification-message"),
):
    router.register(prefix, viewset, name)

strategies = rollouts.StagedStrategyViewSet.as_view

first_version: list[URLPattern | URLResolver] = [
    path("token", auth.TokenViewSet.as_view({"post": "create"}), name="token"),
    path(
        "tokens",
        auth.ApiTokenViewSet.as_view(
            {"get": "list", "post": "create", "delete": "destroy_all"}
        ),
        name="tokens",
    ),
    path(
        "tokens/<number:number>",
        auth.ApiTokenViewSet.as_view({"delete": "destroy"}),
        name="api-token",
    ),
    path(
        "access-log",
        events.AccessLogViewSet.as_view({"get": "list"}),
        name="access-log",
    ),
    path(
        "overview",
        overview.OverviewViewSet.as_view({"get": "retrieve"}),
        name="overview",
    ),
    path("search", overview.OverviewViewSet.as_view({"get": "search"}), name="search"),
    path("inbox", overview.InboxViewSet.as_view({"get": "retrieve"}), name="inbox"),
    path(
        "fleet-snapshot",
        simulate.FleetSnapshotViewSet.as_view({"get": "retrieve"}),
        name="fleet-snapshot",
    ),
    path(
        "checks-file",
        checks.ChecksFileViewSet.as_view({"get": "retrieve", "put": "update"}),
        name="checks-file",
    ),
    path(
        "removals", clusters.RemovalViewSet.as_view({"get": "waiting"}), name="removals"
    ),
    path("checks", checks.ChecksViewSet.as_view({"get": "retrieve"}), name="checks"),
    path("what-if", what_if.WhatIfViewSet.as_view({"post": "create"}), name="what-if"),
    path(
        "what-if/resilience",
        what_if.ResilienceViewSet.as_view({"get": "latest", "post": "create"}),
        name="resilience",
    ),
    path(
        "what-if/resilience/placements/<full_name:name>",
        what_if.PlacementResilienceViewSet.as_view({"get": "retrieve"}),
        name="placement-resilience",
    ),
    path("apply", resources.ApplyViewSet.as_view({"post": "create"}), name="apply"),
    path(
        "simulate",
        simulate.SimulateViewSet.as_view({"post": "create"}),
        name="simulate",
    ),
    path(
        "placements/preview",
        editor.PreviewViewSet.as_view(
            {"post": "preview", "get": "retrieve", "put": "update", "delete": "destroy"}
        ),
        {"name": "preview"},
        name="preview",
    ),
    path(
        "placements/preview/semantics",
        editor.PreviewViewSet.as_view({"post": "preview_semantics"}),
        name="preview-semantics",
    ),
    path(
        "decisions/<decision:decision>.csv",
        decisions.DecisionViewSet.as_view({"get": "csv"}),
        name="decision-csv",
    ),
    path("staged-strategies", strategies({"get": "list"}), name="staged-strategies"),
    path(
        "staged-strategies/<full_name:name>",
        strategies(
            {
                "get": "retrieve",
                "put": "update",
                "patch": "partial_update",
                "delete": "destroy",
            }
        ),
        name="staged-strategy",
    ),
    path(
        "staged-strategies/<full_name:name>/preview",
        strategies({"post": "preview"}, permission_classes=[MayRead]),
        name="staged-preview",
    ),
    *live_backend().operations,
    *router.urls,
]

urlpatterns = [
    path("v1/", include(first_version)),
    path("schema", SchemaView.as_view(), name="schema"),
    path("docs", documentation, name="docs"),
    re_path("", NotFoundView.as_view(), name="nowhere"),
]
