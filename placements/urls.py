"""Addresses of the pages, by noun; the REST API and the admin have their own."""

from django.urls import path

from placements.views import (
    activity,
    cluster_changes,
    cluster_import,
    clusters,
    decisions,
    demo,
    drains,
    hands,
    namesakes,
    overview,
    placement_edit,
    placements,
    resources,
    rollouts,
    search,
    semantics,
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
    path("clusters/<str:name>/drain/", drains.drain_cluster, name="drain-cluster"),
    path("topology/", topology.topology, name="topology"),
    # /placements/
    path("placements/", placements.placements, name="placements"),
    path("placements/new/", placement_edit.new_placement, name="new-placement"),
    path("placements/<str:name>/", placements.placement, name="placement"),
    path("placements/<str:name>/edit/", placement_edit.edit_placement, name="edit-placement"),
    path("placements/<str:name>/delete/", placement_edit.delete, name="delete-placement"),
    path("placements/<str:name>/yaml/", placements.placement_yaml, name="placement-yaml"),
    path("placements/<str:name>/plan/", rollouts.plan, name="plan"),
    *(
        path(f"placements/<str:name>/{hand}/", hands.lay_hand, {"hand": hand}, name=f"{hand}-placement")
        for hand in hands.HANDS
    ),
    path("placements/<str:name>/roll-back/", hands.roll_back, name="roll-back"),
    path("placements/<str:name>/retry/<str:cluster>/", hands.retry, name="retry"),
    # /rollouts/
    path("rollouts/", rollouts.rollouts, name="rollouts"),
    path("rollouts/<str:name>/<int:number>/", rollouts.rollout, name="rollout"),
    # /decisions/
    path("decisions/<str:prefix>/", decisions.decision, name="decision"),
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
