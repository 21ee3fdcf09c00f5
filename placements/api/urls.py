"""Addresses of the API; none ends with a slash."""

from django.urls import URLPattern, URLResolver, include, path, re_path, register_converter
from drf_spectacular.views import SpectacularAPIView

from placements.api import (
    cluster_parts,
    clusters,
    decided_clusters,
    decisions,
    disruptions,
    drains,
    events,
    hands,
    looking_back,
    overrides,
    placements,
    planning,
    previewing,
    resources,
    rollouts,
    scenarios,
    simulating,
    snapshots,
    staged,
)
from placements.api.converters import DecisionConverter, NameConverter, NumberConverter
from placements.api.documentation import Nowhere, documentation
from placements.api.tokens import Token

register_converter(NameConverter, "named")
register_converter(NumberConverter, "number")
register_converter(DecisionConverter, "decision")

app_name = "api"

of_clusters = [
    path("<named:name>", clusters.Cluster.as_view(), name="cluster"),
    path("<named:name>/labels", cluster_parts.ClusterLabels.as_view(), name="cluster-labels"),
    path("<named:name>/taints", cluster_parts.ClusterTaints.as_view(), name="cluster-taints"),
    path("<named:name>/cordon", cluster_parts.Cordon.as_view(), name="cluster-cordon"),
    path("<named:name>/uncordon", cluster_parts.Uncordon.as_view(), name="cluster-uncordon"),
    path("<named:name>/heartbeat", cluster_parts.Heartbeat.as_view(), name="cluster-heartbeat"),
    path("<named:name>/bindings", cluster_parts.ClusterBindings.as_view(), name="cluster-bindings"),
    path("<named:name>/drain", drains.Drain.as_view(), name="cluster-drain"),
    path("<named:name>/bring-back", drains.BringBack.as_view(), name="cluster-bring-back"),
    path("<named:name>/faults", drains.ClusterFaults.as_view(), name="cluster-faults"),
]

of_placements = [
    path("preview", previewing.PreviewAndNamesake.as_view(), name="preview"),
    path("preview/semantics", previewing.PreviewSemantics.as_view(), name="preview-semantics"),
    path("<named:name>", placements.Placement.as_view(), name="placement"),
    path("<named:name>/bindings", placements.PlacementBindings.as_view(), name="placement-bindings"),
    path("<named:name>/decisions", placements.PlacementDecisions.as_view(), name="placement-decisions"),
    path("<named:name>/history", looking_back.History.as_view(), name="history"),
    path(
        "<named:name>/compare/<decision:before>..<decision:after>",
        looking_back.Compare.as_view(),
        name="compare",
    ),
    path("<named:name>/policy-snapshots", snapshots.PolicySnapshots.as_view(), name="policy-snapshots"),
    path(
        "<named:name>/policy-snapshots/<number:number>",
        snapshots.PolicySnapshot.as_view(),
        name="policy-snapshot",
    ),
    path("<named:name>/resource-snapshots", snapshots.ResourceSnapshots.as_view(), name="resource-snapshots"),
    path(
        "<named:name>/resource-snapshots/<number:number>",
        snapshots.ResourceSnapshot.as_view(),
        name="resource-snapshot",
    ),
    path("<named:name>/evict", disruptions.Evict.as_view(), name="placement-evict"),
    path("<named:name>/evictions", disruptions.Evictions.as_view(), name="placement-evictions"),
    path("<named:name>/budget", disruptions.Budget.as_view(), name="placement-budget"),
    path("<named:name>/forget", disruptions.Forget.as_view(), name="placement-forget"),
]

of_hands = [
    path("<named:name>/plan", planning.Plan.as_view(), name="plan"),
    path("<named:name>/pause", hands.Pause.as_view(), name="pause"),
    path("<named:name>/resume", hands.Resume.as_view(), name="resume"),
    path("<named:name>/stop", hands.Stop.as_view(), name="stop"),
    path("<named:name>/start", hands.Start.as_view(), name="start"),
    path("<named:name>/retry", hands.Retry.as_view(), name="retry"),
    path("<named:name>/rollback", hands.RollBack.as_view(), name="rollback"),
    path("<named:name>/release", hands.Release.as_view(), name="release"),
    path("<named:name>/reschedule", hands.Reschedule.as_view(), name="reschedule"),
]

of_rollouts = [
    path("<named:name>/<number:number>", rollouts.Rollout.as_view(), name="rollout"),
    path(
        "<named:name>/<number:number>/clusters", rollouts.RolloutClusters.as_view(), name="rollout-clusters"
    ),
    path("<named:name>/<number:number>/updates", rollouts.RolloutUpdates.as_view(), name="rollout-updates"),
]

of_decisions = [
    path("<decision:decision>.csv", decisions.DecisionCsv.as_view(), name="decision-csv"),
    path("<decision:decision>", decisions.Decision.as_view(), name="decision"),
    path("<decision:decision>/semantics", decisions.DecisionSemantics.as_view(), name="decision-semantics"),
    path("<decision:decision>/rounds", decisions.Rounds.as_view(), name="rounds"),
    path("<decision:decision>/rounds/<number:number>", decisions.Round.as_view(), name="round"),
    path("<decision:decision>/clusters", decisions.Outcomes.as_view(), name="outcomes"),
    path(
        "<decision:decision>/clusters/<named:name>",
        decided_clusters.DecidedCluster.as_view(),
        name="outcome",
    ),
    path(
        "<decision:decision>/clusters/<named:name>/advice",
        decided_clusters.Advice.as_view(),
        name="advice",
    ),
]

of_runs = [
    path("<named:name>", staged.StagedRun.as_view(), name="staged-run"),
    path("<named:name>/progress", staged.StagedProgress.as_view(), name="staged-progress"),
    path("<named:name>/state", staged.StagedState.as_view(), name="staged-state"),
    path("<named:name>/approve", staged.StagedApproval.as_view(), name="staged-approve"),
    path("<named:name>/skip-wait", staged.StagedSkip.as_view(), name="staged-skip-wait"),
    path("<named:name>/retry", staged.StagedRetry.as_view(), name="staged-retry"),
    path("<named:name>/abandon", staged.StagedAbandoning.as_view(), name="staged-abandon"),
]

first_version: list[URLPattern | URLResolver] = [
    path("token", Token.as_view(), name="token"),
    path("overview", looking_back.Overview.as_view(), name="overview"),
    path("search", looking_back.Search.as_view(), name="search"),
    path("clusters", clusters.Clusters.as_view(), name="clusters"),
    path("clusters/", include(of_clusters)),
    path("placements", placements.Placements.as_view(), name="placements"),
    path("placements/", include(of_placements)),
    path("placements/", include(of_hands)),
    path("rollouts", rollouts.Rollouts.as_view(), name="rollouts"),
    path("rollouts/", include(of_rollouts)),
    path("decisions", decisions.Decisions.as_view(), name="decisions"),
    path("decisions/", include(of_decisions)),
    path("resources", resources.Resources.as_view(), name="resources"),
    path(
        "resources/<named:group>/<named:kind>/<named:namespace>/<named:name>",
        resources.Resource.as_view(),
        name="resource",
    ),
    path("overrides", overrides.Overrides.as_view(), name="overrides"),
    path(
        "overrides/<named:kind>/<named:namespace>/<named:name>",
        overrides.Override.as_view(),
        name="override",
    ),
    path("staged-strategies", staged.StagedStrategies.as_view(), name="staged-strategies"),
    path("staged-strategies/<named:name>", staged.StagedStrategy.as_view(), name="staged-strategy"),
    path("staged-runs", staged.StagedRuns.as_view(), name="staged-runs"),
    path("staged-runs/", include(of_runs)),
    path("apply", resources.Apply.as_view(), name="apply"),
    path("simulate", simulating.Simulate.as_view(), name="simulate"),
    path("what-if", scenarios.WhatIf.as_view(), name="what-if"),
    path("what-if/<number:number>", scenarios.Scenarios.as_view(), name="scenario"),
    path(
        "what-if/<number:number>/placements",
        scenarios.ScenarioPlacements.as_view(),
        name="scenario-placements",
    ),
    path("events", events.Events.as_view(), name="events"),
    path("events/<number:number>", events.Event.as_view(), name="event"),
]

urlpatterns = [
    path("v1/", include(first_version)),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", documentation, name="docs"),
    re_path("", Nowhere.as_view(), name="nowhere"),
]
