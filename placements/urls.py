"""Addresses of the pages, by noun; those without a name redirect from an address of an earlier release."""

from django.urls import URLPattern, path

import fleetui.url_converters  # noqa: F401 -- registers the converter of full names
from fleetui.hub_backend import live_backend
from placements.services.actions import ACTIONS, ActionKind
from placements.web import (
    activity,
    apply,
    bulk_changes,
    checks,
    cluster_edit,
    cluster_import,
    cluster_objects,
    clusters,
    connections,
    dashboard,
    decisions,
    disruptions,
    drains,
    editor,
    fault_injection,
    fleet_map,
    help,
    history,
    layout,
    metrics,
    notifications,
    placements,
    reschedule,
    resources,
    review,
    rollouts,
    search,
    semantics,
    staged_strategies,
    users,
    what_if,
)

app_name = "web"

_CONNECTION = "clusters/<str:name>/connection/"
_CLUSTER = "clusters/<str:name>/"
_CHANNEL = "notifications/channels/<slug:name>/"
_RULE = "notifications/rules/<slug:name>/"
_PLACEMENT = "placements/<full_name:name>/"
_STRATEGY = "rollouts/staged/strategies/<full_name:name>/"
_DECISION = "decisions/<str:prefix>/"
_OBJECT = "resources/<str:group>/<str:kind>/<str:namespace>/<str:name>/"


def rollout_actions(prefix: str, kind: ActionKind, noun: str) -> list[URLPattern]:
    """Return the page of each action; a rollback has one of its own."""
    return [
        path(
            f"{prefix}{action.name}/{'<str:value>/' if action.argument else ''}",
            rollouts.run_action,
            {"kind": kind, "action": action.name},
            name=f"{noun}-{action.name}",
        )
        for action in ACTIONS.values()
        if action.kind is kind and not action.has_form and action.name != "roll-back"
    ]


urlpatterns = [
    path("", dashboard.overview, name="overview"),
    path("snooze/", dashboard.snooze, name="snooze"),
    path("metrics", metrics.metrics, name="metrics"),
    path("search/", search.search, name="search"),
    path("inbox/", dashboard.show_inbox, name="inbox"),
    path("activity/", activity.activity, name="activity"),
    path("activity/<int:number>/", activity.event, name="event"),
    *(
        path(f"{name}/", layout.set_preference, {"name": name}, name=f"{name}-set")
        for name in layout.PREFERENCES
    ),
    *(
        path(f"help/{page}/", help.help_page, {"page": page}, name="help")
        for page in help.PAGES
    ),
    path("help/documentation/", help.documentation, name="documentation"),
    path("help/documentation/<path:path>", help.documentation, name="documentation"),
    # /tokens/ and /access-log/
    path("tokens/", users.tokens, name="tokens"),
    path("tokens/revoke/", users.revoke, {"number": None}, name="tokens-revoke"),
    path("tokens/<int:number>/revoke/", users.revoke, name="token-revoke"),
    path("access-log/", activity.access_log, name="access-log"),
    path("access-log/export/", activity.export_access_log, name="access-log-export"),
    path("users/", users.users, name="users"),
    path("users/<int:number>/", users.user, name="user"),
    # /demo/
    path("demo/", help.demo, name="demo"),
    path("demo/load/", help.load, name="demo-load"),
    path("demo/remove/", help.remove, name="demo-remove"),
    # /clusters/
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/new/", connections.add_cluster, name="cluster-new"),
    path("clusters/new/prepare/", connections.prepare_cluster, name="cluster-prepare"),
    path("clusters/import/", cluster_import.import_clusters, name="cluster-import"),
    path(
        "clusters/bulk/undo/",
        bulk_changes.undo_cluster_change,
        name="undo-cluster-change",
    ),
    path("clusters/bulk/<str:action>/", bulk_changes.bulk_change, name="bulk-change"),
    path(_CLUSTER, clusters.cluster, name="cluster"),
    *(
        path(f"{_CLUSTER}{tab}/", clusters.cluster, {"tab": tab}, name=f"cluster-{tab}")
        for tab in clusters.TABS
        if tab != "placements"
    ),
    path(f"{_CLUSTER}edit/", cluster_edit.edit_cluster, name="cluster-edit"),
    *(
        path(
            f"{_CLUSTER}{step}/",
            cluster_edit.change_cluster,
            {"step": step},
            name=f"cluster-{step}",
        )
        for (kind, step), action in ACTIONS.items()
        if kind is ActionKind.CLUSTER and not action.has_form
    ),
    path(
        f"{_CLUSTER}inject-fault/",
        fault_injection.inject_fault,
        name="cluster-inject-fault",
    ),
    path(f"{_CLUSTER}drain/", drains.drain_cluster, name="cluster-drain"),
    path(f"{_CLUSTER}removals/", drains.cluster_removals, name="cluster-removals"),
    path(_CONNECTION, connections.connection, name="cluster-connection"),
    path(
        f"{_CONNECTION}edit/",
        connections.edit_connection,
        name="cluster-connection-edit",
    ),
    path(
        f"{_CONNECTION}check/",
        connections.check_cluster,
        name="cluster-connection-check",
    ),
    path(
        f"{_CONNECTION}renew/",
        connections.renew_connection,
        name="cluster-connection-renew",
    ),
    path(
        f"{_CONNECTION}remove/",
        connections.disconnect_cluster,
        name="cluster-connection-remove",
    ),
    path("topology/panel/", fleet_map.map_panel, name="map-panel"),
    path("topology/", clusters.topology, name="topology"),
    # /hubs/, and the actions and downloads of live hubs
    *live_backend().pages,
    # /placements/
    path("placements/", placements.placements, name="placements"),
    path("placements/new/", editor.new_placement, name="placement-new"),
    path(_PLACEMENT, placements.placement, name="placement"),
    *(
        path(
            f"{_PLACEMENT}{tab}/",
            placements.placement,
            {"tab": tab},
            name=f"placement-{tab}",
        )
        for tab in placements.TABS
    ),
    path(f"{_PLACEMENT}edit/", editor.edit_placement, name="placement-edit"),
    path(f"{_PLACEMENT}delete/", placements.delete, name="placement-delete"),
    path(
        f"{_PLACEMENT}reschedule/", reschedule.reschedule, name="placement-reschedule"
    ),
    path(f"{_PLACEMENT}yaml/", placements.placement_yaml, name="placement-yaml"),
    path(f"{_PLACEMENT}history/", history.history, name="placement-history"),
    path(f"{_PLACEMENT}compare/", history.choose, name="comparison-select"),
    path(
        f"{_PLACEMENT}compare/<slug:before>..<slug:after>/",
        history.compare_two,
        name="comparison",
    ),
    path(f"{_PLACEMENT}drift/", cluster_objects.drift, name="placement-drift"),
    path(
        f"{_PLACEMENT}clusters/<str:cluster>/",
        cluster_objects.placement_cluster,
        name="placement-cluster",
    ),
    path(
        f"{_PLACEMENT}clusters/<str:cluster>/read/",
        cluster_objects.read_cluster,
        name="placement-cluster-read",
    ),
    path(f"{_PLACEMENT}plan/", rollouts.plan, name="placement-plan"),
    path(f"{_PLACEMENT}roll-back/", history.roll_back, name="placement-roll-back"),
    *rollout_actions(_PLACEMENT, ActionKind.ROLLING, "placement"),
    path(f"{_PLACEMENT}staged-run/", staged_strategies.start, name="staged-run-create"),
    # /drafts/
    path("previews/", editor.linked_preview, name="linked-preview"),
    path("drafts/completions/", editor.complete, name="draft-completions"),
    path("drafts/<int:number>/", editor.draft, name="draft"),
    path("drafts/<int:number>/discard/", editor.discard, name="draft-discard"),
    path("drafts/<int:number>/review/", review.review, name="draft-review"),
    path("drafts/<int:number>/rebase/", editor.rebase, name="draft-rebase"),
    path("drafts/<int:number>/dry-run/", review.dry_run_draft, name="draft-dry-run"),
    # /notifications/
    path("notifications/", notifications.notifications, name="notifications"),
    path(
        "notifications/channels/new/",
        notifications.channel,
        name="notification-channel-new",
    ),
    path(f"{_CHANNEL}edit/", notifications.channel, name="notification-channel"),
    path(
        f"{_CHANNEL}test/", notifications.test_channel, name="notification-channel-test"
    ),
    path(
        f"{_CHANNEL}switch/",
        notifications.switch_channel,
        name="notification-channel-switch",
    ),
    path(
        f"{_CHANNEL}delete/",
        notifications.remove_channel,
        name="notification-channel-delete",
    ),
    path("notifications/rules/new/", notifications.rule, name="notification-rule-new"),
    path(f"{_RULE}edit/", notifications.rule, name="notification-rule"),
    path(f"{_RULE}delete/", notifications.remove_rule, name="notification-rule-delete"),
    # /rollouts/
    path("rollouts/", rollouts.rollouts, name="rollouts"),
    path("rollouts/<full_name:name>/", rollouts.newest, name="rollout-latest"),
    path("rollouts/<full_name:name>/<int:number>/", rollouts.rollout, name="rollout"),
    *(
        path(
            f"rollouts/<full_name:name>/<int:number>/{tab}/",
            rollouts.rollout_plan if tab == "plan" else rollouts.rollout,
            {"tab": tab},
            name=f"rollout-{tab}",
        )
        for tab in rollouts.TABS
    ),
    # /rollouts/staged/: two words after it, so that no placement and number is meant
    path(
        "rollouts/staged/runs/<full_name:name>/",
        rollouts.staged_run,
        name="staged-run",
    ),
    *rollout_actions(
        "rollouts/staged/runs/<full_name:name>/", ActionKind.STAGED, "staged-run"
    ),
    path(
        "rollouts/staged/strategies/",
        staged_strategies.strategies,
        name="staged-strategies",
    ),
    path(
        "rollouts/staged/new-run/",
        staged_strategies.choose_placement,
        name="staged-run-new",
    ),
    path(
        "rollouts/staged/new-strategy/",
        staged_strategies.new_strategy,
        name="staged-strategy-new",
    ),
    path(_STRATEGY, staged_strategies.strategy, name="staged-strategy"),
    path(
        f"{_STRATEGY}edit/",
        staged_strategies.edit_strategy,
        name="staged-strategy-edit",
    ),
    path(
        f"{_STRATEGY}delete/",
        staged_strategies.delete_strategy_page,
        name="staged-strategy-delete",
    ),
    # /decisions/
    path(_DECISION, decisions.decision, name="decision"),
    path(
        f"{_DECISION}clusters/<str:cluster>/",
        decisions.decided_cluster,
        name="decision-cluster",
    ),
    path(f"{_DECISION}semantics/", semantics.semantics, name="decision-semantics"),
    # /what-if/
    path("what-if/", what_if.what_if, name="what-if"),
    path("checks/", checks.checks, name="checks"),
    path("what-if/resilience/", what_if.resilience, name="resilience"),
    path("checks/file/", checks.checks_file, name="checks-file"),
    # /overrides/, /disruptions/
    path("overrides/", resources.overrides, name="overrides"),
    path(
        "overrides/<str:kind>/<str:namespace>/<str:name>/",
        resources.show_override,
        name="override",
    ),
    path("disruptions/", disruptions.disruptions, name="disruptions"),
    path("disruptions/budgets/<str:name>/", disruptions.budget, name="budget"),
    path("disruptions/evictions/<int:number>/", disruptions.eviction, name="eviction"),
    # /resources/
    path("resources/", resources.resources, name="resources"),
    path("resources/apply/", apply.apply, name="resource-apply"),
    path("resources/apply/dry-run/", apply.dry_run, name="resource-dry-run"),
    path(_OBJECT, resources.resource, name="resource"),
    path(f"{_OBJECT}delete/", resources.delete, name="resource-delete"),
]
