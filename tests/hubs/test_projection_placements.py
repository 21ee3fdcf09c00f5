"""Placements of a live hub with snapshots and bindings, from its mirror (10.1, 10.2)."""

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from clusters.queries import load_fleet
from placements.manifests.placement import parse_placement
from placements.models import Binding, Placement, PolicySnapshot, ResourceSnapshot
from placements.services import rescheduling, scheduling
from placements.services.rollouts import controller, worker
from placements.services.snapshots import draft_cycle
from placements.services.status import manifest_of
from tests.hubs.hub_documents import PREFIX, binding, member, placement, snapshot
from tests.hubs.projecting import NOW, ProjectedHub
from tests.rows import all_joined, person, pick_n_spec, run_due, saved

pytestmark = pytest.mark.django_db
CRP, POLICY = "ClusterResourcePlacement", "ClusterSchedulingPolicySnapshot"
RESOURCES, BINDING = "ClusterResourceSnapshot", "ClusterResourceBinding"


@pytest.fixture
def live() -> ProjectedHub:
    return ProjectedHub()


def changed(content: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a document with other values in metadata, spec or status."""
    return {
        **content,
        **{key: {**content.get(key, {}), **values} for key, values in parts.items()},
    }


def condition(
    kind: str, status: str = "True", *, generation: int = 1, reason: str = ""
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "observedGeneration": generation,
        "reason": reason or kind,
        "message": f"{kind} is {status}",
        "lastTransitionTime": "2026-11-01T09:30:00Z",
    }


def scheduled(status: str = "True", *, generation: int = 1) -> dict[str, Any]:
    kind = "ClusterResourcePlacementScheduled"
    selected = [{"version": "v1", "kind": "Namespace", "name": "web"}]
    return {
        "conditions": [condition(kind, status, generation=generation)],
        "selectedResources": selected,
        "observedResourceIndex": "0",
    }


def resource_snapshot(
    owner: str, number: int = 0, *, is_latest: bool = True
) -> dict[str, Any]:
    labels = {
        f"{PREFIX}parent-CRP": owner,
        f"{PREFIX}resource-index": str(number),
        f"{PREFIX}is-latest-snapshot": str(is_latest).lower(),
    }
    annotations = {f"{PREFIX}resource-hash": f"hash-{number}"}
    return {
        "metadata": {
            "name": f"{owner}-{number}-snapshot",
            "labels": labels,
            "annotations": annotations,
        }
    }


def bound(owner: str, cluster: str, **parts: Any) -> dict[str, Any]:
    """Return a Bound binding of the present generation, available."""
    found = binding(owner, cluster, state="Bound")
    found["metadata"]["generation"] = 3
    return changed(found, **parts)


def put_web(live: ProjectedHub) -> None:
    live.put("MemberCluster", member("paris"), member("rome"))
    live.put(CRP, changed(placement("web"), status=scheduled()))
    live.put(POLICY, snapshot("web"))
    live.put(RESOURCES, resource_snapshot("web"))
    live.put(BINDING, bound("web", "paris"), binding("web", "rome"))


def web(live: ProjectedHub) -> Placement:
    with live.scope():
        return Placement.objects.get(name="web")


def bindings(live: ProjectedHub, *columns: str) -> list[Any]:
    with live.scope():
        return list(Binding.objects.order_by("cluster_name").values_list(*columns))


@pytest.mark.nightly
@pytest.mark.servers
def test_a_placement_has_snapshots_bindings_and_the_conditions_of_the_hub(
    live: ProjectedHub,
) -> None:
    put_web(live)

    live.project()

    found = web(live)
    assert (found.placement_type, found.number_of_clusters, found.placed_count) == (
        "PickN",
        2,
        2,
    )
    assert (found.scheduled, found.is_fulfilled, found.selected_count) == (
        "True",
        True,
        1,
    )
    assert [hub_condition["type"] for hub_condition in found.hub_conditions] == [
        "ClusterResourcePlacementScheduled"
    ]
    with live.scope():
        policy, resources = PolicySnapshot.objects.get(), ResourceSnapshot.objects.get()
    assert (policy.number, policy.is_latest, policy.policy["placementType"]) == (
        0,
        True,
        "PickN",
    )
    assert resources.identities == [["v1", "Namespace", "", "web"]]
    assert bindings(
        live, "cluster_name", "state", "phase", "policy_snapshot", "resource_snapshot"
    ) == [
        ("paris", "Bound", "available", policy.pk, resources.pk),
        ("rome", "Scheduled", "nothing", policy.pk, resources.pk),
    ]
    assert bindings(live, "affinity_score", "topology_spread_score")[0] == (0.0, 10.0)


def test_a_condition_of_an_older_generation_leaves_the_placement_pending(
    live: ProjectedHub,
) -> None:
    content = changed(
        placement("web"), metadata={"generation": 2}, status=scheduled(generation=1)
    )
    live.put(CRP, content)
    live.project()

    assert (web(live).scheduled, web(live).is_fulfilled) == ("Unknown", None)
    assert len(web(live).hub_conditions) == 1


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("conditions", "phase", "failure"),
    [
        ([], "nothing", ""),
        ([condition("RolloutStarted", "False")], "nothing", ""),
        ([condition("RolloutStarted")], "applying", ""),
        (
            [
                condition("RolloutStarted"),
                condition("Overridden", "False", reason="OverriddenFailed"),
            ],
            "failed",
            "override",
        ),
        (
            [
                condition(one)
                for one in ("RolloutStarted", "Overridden", "WorkSynchronized")
            ],
            "applying",
            "",
        ),
        (
            [
                condition(one)
                for one in (
                    "RolloutStarted",
                    "Overridden",
                    "WorkSynchronized",
                    "Applied",
                )
            ],
            "settling",
            "",
        ),
        ([condition("RolloutStarted", generation=7)], "nothing", ""),
    ],
)
def test_the_phase_follows_from_the_first_condition_that_is_not_true(
    live: ProjectedHub, conditions: list[Any], phase: str, failure: str
) -> None:
    put_web(live)
    current = [
        {**one, "observedGeneration": 3 if one["observedGeneration"] == 1 else 2}
        for one in conditions
    ]
    live.put(BINDING, bound("web", "paris", status={"conditions": current}))
    live.project()

    assert bindings(live, "phase", "failure")[0] == (phase, failure)


@pytest.mark.nightly
def test_objects_that_failed_make_a_binding_failed(live: ProjectedHub) -> None:
    put_web(live)
    steps = [
        condition(one, generation=3)
        for one in ("RolloutStarted", "Overridden", "WorkSynchronized")
    ]
    steps.append(
        condition("Applied", "False", generation=3, reason="NotAllWorkHaveBeenApplied")
    )
    failed = {
        "version": "v1",
        "kind": "Namespace",
        "name": "web",
        "condition": {"reason": "ApplyFailed"},
    }
    live.put(
        BINDING,
        bound(
            "web", "paris", status={"conditions": steps, "failedPlacements": [failed]}
        ),
    )
    live.project()

    assert bindings(live, "phase", "failure", "message")[0] == (
        "failed",
        "refused",
        "Namespace web: ApplyFailed",
    )


def test_a_binding_waits_for_no_resources_that_were_deleted(live: ProjectedHub) -> None:
    put_web(live)
    live.put(
        RESOURCES,
        resource_snapshot("web", is_latest=False),
        resource_snapshot("web", 1),
    )
    live.project()
    assert bindings(live, "started_status")[0] == ("Unknown",)

    live.remove(RESOURCES, "web-1-snapshot")
    live.project()

    assert bindings(live, "started_status")[0] == ("True",)


def test_a_cluster_fails_or_differs_since_its_objects_do(live: ProjectedHub) -> None:
    """A hub gives all conditions of a binding a new time when a cluster reports the same once more."""
    put_web(live)
    kinds = ("RolloutStarted", "Overridden", "WorkSynchronized")
    steps = [condition(kind, generation=3) for kind in kinds]
    refused = condition(
        "Applied", "False", generation=3, reason="NotAllWorkHaveBeenApplied"
    )
    first = {"reason": "FoundDrifts", "lastTransitionTime": "2026-11-01T08:15:00Z"}
    failed = {"version": "v1", "kind": "Namespace", "name": "web", "condition": first}
    live.put(
        BINDING,
        bound(
            "web",
            "paris",
            status={"conditions": [*steps, refused], "failedPlacements": [failed]},
        ),
    )
    live.project()

    assert bindings(live, "phase", "phase_changed_at")[0] == (
        "failed",
        datetime(2026, 11, 1, 8, 15, tzinfo=UTC),
    )

    seen = {
        "firstDiffedObservedTime": "2026-11-01T08:20:00Z",
        "observationTime": "2026-11-01T09:30:00Z",
    }
    diffed = {"version": "v1", "kind": "Namespace", "name": "web", **seen}
    status = {
        "conditions": [*steps, condition("DiffReported", generation=3)],
        "diffedPlacements": [diffed],
        "failedPlacements": [],
    }
    live.put(
        BINDING,
        bound(
            "web",
            "paris",
            spec={"applyStrategy": {"type": "ReportDiff"}},
            status=status,
        ),
    )
    live.project()

    assert bindings(live, "failure", "phase_changed_at")[0] == (
        "differs",
        datetime(2026, 11, 1, 8, 20, tzinfo=UTC),
    )


@pytest.mark.nightly
def test_a_cluster_has_one_binding_the_one_that_is_not_being_deleted(
    live: ProjectedHub,
) -> None:
    put_web(live)
    old = bound("web", "paris", metadata={"deletionTimestamp": "2026-11-01T09:59:00Z"})
    other = binding("web", "paris")
    other["metadata"]["name"] = "web-paris-ffffffff"
    live.put(BINDING, old)
    live.project()
    assert bindings(live, "cluster_name", "phase")[0] == ("paris", "removing")

    live.put(BINDING, other)
    live.project()
    assert bindings(live, "cluster_name", "state", "hub_name")[0] == (
        "paris",
        "Scheduled",
        "web-paris-ffffffff",
    )

    live.remove(BINDING, "web-paris-ffffffff")
    live.project()
    assert bindings(live, "cluster_name", "phase")[0] == ("paris", "removing")


@pytest.mark.servers
def test_what_comes_before_its_placement_waits_for_it(live: ProjectedHub) -> None:
    live.put(BINDING, bound("web", "paris"))
    live.put(POLICY, snapshot("web"))
    live.project()
    assert live.mark(POLICY, "web-0") == (
        False,
        [],
        "its placement is not in the mirror",
    )

    live.put(CRP, placement("web"))
    live.project()

    assert bindings(live, "cluster_name") == [("paris",)]
    assert live.mark(POLICY, "web-0") == (False, [], "")
    assert bindings(live, "policy_snapshot__number") == [(0,)]


@pytest.mark.nightly
def test_a_new_latest_snapshot_replaces_the_former_one(live: ProjectedHub) -> None:
    put_web(live)
    live.project()
    live.put(POLICY, snapshot("web", 1), snapshot("web", 0, is_latest=False))
    live.project()

    with live.scope():
        found = list(
            PolicySnapshot.objects.order_by("number").values_list("number", "is_latest")
        )
    assert found == [(0, False), (1, True)]


@pytest.mark.nightly
def test_two_latest_snapshots_are_a_warning(live: ProjectedHub) -> None:
    put_web(live)
    live.project()
    live.put(POLICY, snapshot("web", 1))
    live.project()

    assert "two snapshots" in live.mark(POLICY, "web-0")[2]
    assert "two snapshots" in live.mark(POLICY, "web-1")[2]

    live.put(POLICY, snapshot("web", 0, is_latest=False))
    live.project()
    assert [live.mark(POLICY, name)[2] for name in ("web-0", "web-1")] == ["", ""]


@pytest.mark.nightly
def test_snapshots_that_the_hub_pruned_leave_their_bindings(live: ProjectedHub) -> None:
    put_web(live)
    live.project()
    live.remove(POLICY, "web-0")
    live.project()

    assert bindings(live, "policy_snapshot") == [(None,), (None,)]


def test_what_a_newer_api_allows_is_left_out_and_listed(live: ProjectedHub) -> None:
    spec = {
        "policy": {
            "placementType": "PickN",
            "numberOfClusters": 2,
            "newField": {"a": 1},
        },
        "strategy": {"type": "Telepathy"},
        "resourceSelectors": [
            {"group": "", "version": "v1", "kind": "Namespace", "name": "web"},
            {
                "group": "",
                "version": "v1",
                "kind": "Namespace",
                "name": "shop",
                "selectionScope": "Newest",
            },
        ],
    }
    live.put(CRP, changed(placement("web"), spec=spec), placement("api"))
    live.project()

    assert web(live).number_of_clusters == 2
    _, paths, error = live.mark(CRP, "web")
    assert (sorted(paths), error) == (
        [
            "spec.policy.newField",
            "spec.resourceSelectors[1].selectionScope",
            "spec.strategy.type",
        ],
        "",
    )
    with live.scope():
        assert Placement.objects.count() == 2


def test_odd_bindings_are_marked_and_the_others_are_shown(live: ProjectedHub) -> None:
    put_web(live)
    scores = {"clusterScore": {"affinityScore": "high"}}
    live.put(
        BINDING,
        bound("web", "paris", spec={"state": "Teleported"}),
        changed(binding("web", "rome"), spec={"clusterDecision": scores}),
    )
    live.project()

    assert bindings(live, "cluster_name", "affinity_score") == [("rome", None)]
    assert live.mark(BINDING, "web-paris-0a1b2c3d")[1:] == (
        ["spec.state"],
        "the binding is not understood",
    )
    assert live.mark(BINDING, "web-rome-0a1b2c3d")[1] == [
        "spec.clusterDecision.clusterScore.affinityScore"
    ]
    assert web(live).placed_count == 1


@pytest.mark.nightly
@pytest.mark.servers
def test_a_placement_that_the_hub_deleted_is_gone_with_all_that_belongs_to_it(
    live: ProjectedHub,
) -> None:
    put_web(live)
    live.project()
    live.remove(CRP, "web")
    live.project()

    with live.scope():
        counts = [
            one.objects.count()
            for one in (Placement, Binding, PolicySnapshot, ResourceSnapshot)
        ]
    assert counts == [0, 0, 0, 0]


@pytest.mark.nightly
def test_no_worker_of_the_console_acts_on_the_placements_of_a_hub(
    live: ProjectedHub,
) -> None:
    put_web(live)
    live.project()

    with live.scope():  # even where the hub itself is in scope
        assert not scheduling.is_due(now=NOW)
        assert not controller.is_due(now=NOW)
        assert not worker.is_due(now=NOW)


@pytest.mark.nightly
@pytest.mark.servers
def test_a_second_projection_of_placements_changes_nothing(live: ProjectedHub) -> None:
    put_web(live)
    live.project()
    before, rows = web(live).revision, bindings(live)

    live.reproject()

    assert (web(live).revision, bindings(live)) == (before, rows)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "path",
    [
        "",
        "placements/",
        "placements/web/",
        "placements/web/yaml/",
        "placements/web/clusters/paris/",
        "clusters/paris/",
        "clusters/",
        "topology/",
        "rollouts/",
        "resources/",
        "api/v1/placements",
        "api/v1/placements/web",
        "api/v1/placements/web/bindings",
        "api/v1/placements/web/policy-snapshots/0",
        "api/v1/clusters",
    ],
)
def test_the_pages_of_the_hub_show_its_placements(
    live: ProjectedHub, path: str
) -> None:
    put_web(live)
    live.project()
    client = Client()
    client.force_login(person("boss", "operator"))

    response = client.get(f"/hubs/prod-eu/{path}", follow=True)

    assert response.status_code == 200, response.content[:2000]


@pytest.mark.nightly
def test_the_page_of_a_placement_states_the_conditions_of_the_hub(
    live: ProjectedHub,
) -> None:
    put_web(live)
    live.project()
    client = Client()
    client.force_login(person("boss", "operator"))

    page = client.get("/hubs/prod-eu/placements/web/").content.decode()
    decision = client.get("/hubs/prod-eu/placements/web/decision/").content.decode()

    assert "ClusterResourcePlacementScheduled is True" in decision
    assert "Available" in page
    assert "on the hub" in page


@pytest.mark.nightly
def test_a_placement_in_a_namespace_is_apart_from_that_of_the_cluster(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    status = scheduled()
    status["conditions"][0]["type"] = "ResourcePlacementScheduled"
    here = {"namespace": "shop"}
    live.put("ResourceBinding", changed(bound("web", "paris"), metadata=here))
    live.put("ResourceSnapshot", changed(resource_snapshot("web"), metadata=here))
    live.put("SchedulingPolicySnapshot", changed(snapshot("web"), metadata=here))
    live.put(
        "ResourcePlacement", changed(placement("web", namespace="shop"), status=status)
    )
    live.project()

    with live.scope():
        found = {one.full_name: one for one in Placement.objects.all()}
        rows = Binding.objects.filter(placement=found["shop/web"])
        (row,) = rows.select_related(
            "policy_snapshot__placement", "resource_snapshot__placement"
        )
    assert sorted(found) == ["shop/web", "web"]
    assert (found["shop/web"].scheduled, found["shop/web"].placed_count) == ("True", 1)
    assert list(found["shop/web"].conditions) == list(found["web"].conditions)
    assert row.policy_snapshot is not None
    assert row.resource_snapshot is not None
    assert {
        row.policy_snapshot.placement.full_name,
        row.resource_snapshot.placement.full_name,
    } == {"shop/web"}
    assert admin_client.get("/hubs/prod-eu/placements/shop:web/").status_code == 200

    live.remove("ResourcePlacement", "shop/web")
    live.project()
    with live.scope():
        assert [one.full_name for one in Placement.objects.all()] == ["web"]
        assert Binding.objects.count() == 2
    assert (
        live.mark("ResourceBinding", "shop/web-paris-0a1b2c3d")[2]
        == "its placement is not in the mirror"
    )


def test_a_draft_that_is_what_the_hub_has_keeps_the_bindings(
    live: ProjectedHub,
) -> None:
    put_web(live)
    live.project()

    row = web(live)
    with live.scope():
        cycle = draft_cycle(
            parse_placement(row.document), saved=row, fleet=load_fleet()
        )

    assert (row.semantics, cycle.semantics) == ("kubefleet", "kubefleet")
    assert [placed_binding.is_current for placed_binding in cycle.bindings] == [
        True
    ] * len(cycle.bindings)
    assert cycle.bindings


def test_a_namespaced_placement_of_cluster_scoped_kinds_shows_what_the_hub_reports(
    live: ProjectedHub, admin_client: Client
) -> None:
    content = placement("roles", namespace="shop")
    content["spec"]["resourceSelectors"] = [
        {
            "group": "rbac.authorization.k8s.io",
            "version": "v1",
            "kind": "ClusterRole",
            "name": "reader",
        }
    ]
    refused = condition(
        "ResourcePlacementScheduled", "False", reason="InvalidResourceSelectors"
    )
    live.put("ResourcePlacement", {**content, "status": {"conditions": [refused]}})
    live.project()

    assert live.mark("ResourcePlacement", "shop/roles") == (False, [], "")
    page = admin_client.get(
        "/hubs/prod-eu/placements/shop:roles/decision/"
    ).content.decode()
    assert "InvalidResourceSelectors" in page


def test_few_moves_of_a_live_hub_say_whether_the_hub_would_follow_them(
    live: ProjectedHub, admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    regions = {"paris": "east", "rome": "east", "oslo": "west"}
    spread = {
        "topologyKey": "region",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
    }
    content = placement("web")
    content["spec"]["policy"]["topologySpreadConstraints"] = [spread]
    own = snapshot("web")
    own["spec"]["policy"] = content["spec"]["policy"]
    put_web(live)
    live.put(
        "MemberCluster",
        *[member(name, region=region) for name, region in regions.items()],
    )
    live.put(CRP, changed(content, status=scheduled()))
    live.put(POLICY, own)
    live.project()

    page = admin_client.get("/hubs/prod-eu/placements/web/reschedule/").content.decode()

    assert "Hard spread limits exceeded by 1." in page
    assert "The hub follows these moves: evict the clusters" in page
    assert ("Evict on the hub" in page, 'name="revision"' in page) == (True, False)

    monkeypatch.setattr(rescheduling, "hub_difference", lambda *_: (1, ()))
    page = admin_client.get("/hubs/prod-eu/placements/web/reschedule/").content.decode()
    assert "The hub does not follow these moves" in page
    assert "Evict on the hub" not in page


def test_the_status_of_an_export_is_the_same_on_a_hub(live: ProjectedHub) -> None:
    all_joined("paris", "rome")
    local = saved("web", pick_n_spec(2))
    run_due()
    local.refresh_from_db()
    exported = manifest_of(local)

    live.put(CRP, exported)
    live.project()

    mirrored = web(live)
    with live.scope():
        status = manifest_of(mirrored)["status"]
    assert status["conditions"] == exported["status"]["conditions"]
    assert mirrored.is_fulfilled is True
    assert local.scheduled_since is not None
    assert mirrored.scheduled_since == local.scheduled_since.replace(microsecond=0)
    assert mirrored.conditions.keys() == {"RolloutStarted"}


def test_the_status_of_a_hub_has_no_clusters_while_its_scheduler_has_not_decided(
    live: ProjectedHub,
) -> None:
    put_web(live)
    pending = condition("ClusterResourcePlacementScheduled", "Unknown")
    live.put(CRP, changed(placement("web"), status={"conditions": [pending]}))
    live.project()

    with live.scope():
        status = manifest_of(web(live))["status"]

    assert [one["status"] for one in status["conditions"]] == ["Unknown"]
    assert status["placementStatuses"] == []


def test_the_status_of_a_hub_has_each_cluster_with_its_scores(
    live: ProjectedHub,
) -> None:
    decision = {"clusterScore": {"affinityScore": 40, "priorityScore": -2}}
    failed = condition("Applied", "False", generation=3, reason="ApplyInProgress")
    conditions = [
        failed,
        condition("RolloutStarted", generation=3),
        condition("Available", generation=2),
    ]
    put_web(live)
    live.put(
        BINDING,
        bound(
            "web",
            "paris",
            spec={"clusterDecision": decision},
            status={"conditions": conditions},
        ),
    )
    live.project()

    with live.scope():
        [paris, _] = manifest_of(web(live))["status"]["placementStatuses"]

    assert [
        (one["type"], one["status"], one["reason"]) for one in paris["conditions"]
    ] == [
        ("Scheduled", "True", "Scheduled"),
        ("RolloutStarted", "True", "RolloutStarted"),
        ("Applied", "False", "ApplyInProgress"),
    ]
    assert paris["conditions"][0]["message"] == (
        'Successfully scheduled resources for placement in "paris" '
        "(affinity score: 40, topology spread score: -2): picked by scheduling policy"
    )
