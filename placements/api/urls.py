"""Addresses of the API; none ends with a slash."""

from django.urls import URLPattern, URLResolver, include, path, re_path

import fleetui.url_converters  # noqa: F401 -- registers the converter of full names
from fleetui.hub_backend import live_backend
from placements.api import (
    access_log,
    auth,
    bulk_changes,
    checks,
    cluster_imports,
    clusters,
    connections,
    decisions,
    disruption,
    editor,
    events,
    fleet_snapshot,
    history,
    inbox,
    notifications,
    overrides,
    overview,
    placements,
    removals,
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
router.register("clusters", clusters.ClusterViewSet, "cluster")
router.register("clusters", disruption.ClusterDisruptionViewSet, "cluster-disruption")
router.register("clusters", connections.ConnectionViewSet, "cluster-connection")
router.register("clusters", removals.RemovalViewSet, "cluster-removal")
router.register("cluster-changes", bulk_changes.BulkChangeViewSet, "cluster-change")
router.register(
    "cluster-imports", cluster_imports.ClusterImportViewSet, "cluster-import"
)
router.register("placements", placements.PlacementViewSet, "placement")
router.register("placements", placements.SnapshotViewSet, "snapshot")
router.register("placements", disruption.PlacementDisruptionViewSet, "disruption")
router.register("placements", history.HistoryViewSet, "history")
router.register("placements", editor.PlanViewSet, "plan")
router.register("placements", rollouts.RolloutActionViewSet, "rollout-action")
router.register("rollouts", rollouts.RolloutViewSet, "rollout")
router.register("decisions", decisions.DecisionViewSet, "decision")
router.register("exact", decisions.ExactViewSet, "exact-search")
router.register("resources", resources.ResourceViewSet, "resource")
router.register("overrides", overrides.OverrideViewSet, "override")
router.register("budgets", disruption.BudgetViewSet, "budget-state")
router.register("evictions", disruption.EvictionViewSet, "eviction")
router.register("staged-runs", rollouts.StagedRunViewSet, "staged-run")
router.register("approvals", rollouts.ApprovalViewSet, "approval")
router.register("events", events.EventViewSet, "event")

router.register(
    "notifications/channels", notifications.ChannelViewSet, "notification-channel"
)
router.register("notifications/rules", notifications.RuleViewSet, "notification-rule")
router.register(
    "notifications/messages", notifications.MessageViewSet, "notification-message"
)

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
        access_log.AccessLogViewSet.as_view({"get": "list"}),
        name="access-log",
    ),
    path(
        "overview",
        overview.OverviewViewSet.as_view({"get": "retrieve"}),
        name="overview",
    ),
    path("search", overview.OverviewViewSet.as_view({"get": "search"}), name="search"),
    path("inbox", inbox.InboxViewSet.as_view({"get": "retrieve"}), name="inbox"),
    path(
        "fleet-snapshot",
        fleet_snapshot.FleetSnapshotViewSet.as_view({"get": "retrieve"}),
        name="fleet-snapshot",
    ),
    path(
        "checks-file",
        checks.ChecksFileViewSet.as_view({"get": "retrieve", "put": "update"}),
        name="checks-file",
    ),
    path(
        "removals", removals.RemovalViewSet.as_view({"get": "waiting"}), name="removals"
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
