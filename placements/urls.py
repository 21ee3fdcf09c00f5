"""Addresses of the pages, by noun; the REST API and the admin have their own."""

from django.urls import path

from placements.views import (
    activity,
    cluster_changes,
    cluster_import,
    clusters,
    decisions,
    demo,
    draft_review,
    drains,
    editor,
    guidance,
    hands,
    history,
    namesakes,
    overview,
    placement_edit,
    placements,
    preferences,
    rehearsals,
    rescheduling,
    resources,
    rollouts,
    search,
    semantics,
    staged_hands,
    staged_runs,
    staged_strategies,
    topology,
    what_if,
)

app_name = "pages"
namesakes.register()

_OBJECT = "resources/<str:group>/<str:kind>/<str:namespace>/<str:name>/"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("search/", search.search, name="search"),
    path("activity/", activity.activity, name="activity"),
    path("activity/<int:number>/", activity.event, name="event"),
    *(
        path(f"{name}/", preferences.prefer, {"name": name}, name=f"prefer-{name}")
        for name in preferences.PREFERENCES
    ),
    *(path(f"help/{page}/", guidance.help_page, {"page": page}, name="help") for page in guidance.PAGES),
    # /demo/
    path("demo/load/", demo.load, name="load-demo"),
    path("demo/remove/", demo.remove, name="remove-demo"),
    # /clusters/
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/import/", cluster_import.import_clusters, name="import-clusters"),
    path("clusters/<str:name>/", clusters.cluster, name="cluster"),
    path("clusters/<str:name>/edit/", cluster_changes.edit_cluster, name="edit-cluster"),
    *(
        path(
            f"clusters/<str:name>/{step}/",
            cluster_changes.change_cluster,
            {"step": step},
            name=f"{step}-cluster",
        )
        for step in cluster_changes.STEPS
    ),
    path("clusters/<str:name>/rehearse/", rehearsals.rehearse, name="rehearse-cluster"),
    path("clusters/<str:name>/drain/", drains.drain_cluster, name="drain-cluster"),
    path("topology/", topology.topology, name="topology"),
    # /placements/
    path("placements/", placements.placements, name="placements"),
    path("placements/new/", editor.new_placement, name="new-placement"),
    path("placements/<str:name>/", placements.placement, name="placement"),
    path("placements/<str:name>/edit/", editor.edit_placement, name="edit-placement"),
    path("placements/<str:name>/delete/", placement_edit.delete, name="delete-placement"),
    path("placements/<str:name>/reschedule/", rescheduling.schedule_afresh, name="reschedule"),
    path("placements/<str:name>/yaml/", placements.placement_yaml, name="placement-yaml"),
    path("placements/<str:name>/history/", history.history, name="history"),
    path("placements/<str:name>/compare/", history.choose, name="choose-two"),
    path("placements/<str:name>/compare/<slug:before>..<slug:after>/", history.compare_two, name="compare"),
    path("placements/<str:name>/plan/", rollouts.plan, name="plan"),
    *(
        path(f"placements/<str:name>/{hand}/", hands.lay_hand, {"hand": hand}, name=f"{hand}-placement")
        for hand in hands.HANDS
    ),
    path("placements/<str:name>/roll-back/", hands.roll_back, name="roll-back"),
    path("placements/<str:name>/retry/<str:cluster>/", hands.retry, name="retry"),
    path("placements/<str:name>/staged-run/", staged_runs.start, name="start-staged"),
    # /drafts/
    path("drafts/<int:number>/", editor.draft, name="draft"),
    path("drafts/<int:number>/discard/", editor.discard, name="discard-draft"),
    path("drafts/<int:number>/review/", draft_review.review, name="review-draft"),
    path("drafts/<int:number>/rebase/", draft_review.rebase, name="rebase-draft"),
    # /rollouts/
    path("rollouts/", rollouts.rollouts, name="rollouts"),
    path("rollouts/<str:name>/", rollouts.newest, name="newest-rollout"),
    path("rollouts/<str:name>/<int:number>/", rollouts.rollout, name="rollout"),
    # /rollouts/staged/: two words after it, so that no placement and number is meant
    path("rollouts/staged/runs/<str:name>/", staged_runs.staged_run, name="staged-run"),
    *(
        path(
            f"rollouts/staged/runs/<str:name>/{hand}/",
            staged_hands.lay_hand,
            {"hand": hand},
            name=f"{hand}-staged-run",
        )
        for hand in staged_hands.HANDS
    ),
    path("rollouts/staged/runs/<str:name>/approve/<str:stage>/", staged_hands.approve, name="approve-stage"),
    path(
        "rollouts/staged/runs/<str:name>/skip-wait/<str:stage>/",
        staged_hands.skip_wait,
        name="skip-staged-wait",
    ),
    path("rollouts/staged/runs/<str:name>/retry/<str:cluster>/", staged_hands.retry, name="retry-staged"),
    path("rollouts/staged/strategies/", staged_strategies.strategies, name="staged-strategies"),
    path("rollouts/staged/new-strategy/", staged_strategies.new_strategy, name="new-staged-strategy"),
    path("rollouts/staged/strategies/<str:name>/", staged_strategies.strategy, name="staged-strategy"),
    path(
        "rollouts/staged/strategies/<str:name>/edit/",
        staged_strategies.edit_strategy,
        name="edit-staged-strategy",
    ),
    path(
        "rollouts/staged/strategies/<str:name>/delete/",
        staged_strategies.delete,
        name="delete-staged-strategy",
    ),
    # /decisions/
    path("decisions/<str:prefix>/", decisions.decision, name="decision"),
    path("decisions/<str:prefix>/clusters/<str:cluster>/", decisions.decided_cluster, name="decided-cluster"),
    path("decisions/<str:prefix>/semantics/", semantics.semantics, name="semantics"),
    # /what-if/
    path("what-if/", what_if.what_if, name="what-if"),
    path("what-if/<int:number>/", what_if.scenario, name="scenario"),
    # /resources/
    path("resources/", resources.resources, name="resources"),
    path("resources/apply/", resources.apply, name="apply"),
    path(_OBJECT, resources.resource, name="resource"),
    path(f"{_OBJECT}delete/", resources.delete, name="delete-resource"),
    # Last, so that links to these names lead here: their usual addresses are those of other pages.
    path("clusters/-/<hidden_cluster:name>/", clusters.cluster, name="cluster"),
    path("placements/-/<hidden_placement:name>/", placements.placement, name="placement"),
]
