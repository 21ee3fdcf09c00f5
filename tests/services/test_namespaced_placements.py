"""Placements in namespaces on the local hub: names, selection, rollout, staged runs, overrides, evictions."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import IntegrityError, transaction

from clusters.models import MemberCluster
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.engine.overrides import OverrideFailed
from placements.engine.rollout.state import Phase
from placements.models import (
    Binding,
    Decision,
    DrainStep,
    Eviction,
    Placement,
    Rollout,
    StagedRun,
)
from placements.services.apply import apply_documents
from placements.services.disruption.drains import advance_drains, drain
from placements.services.disruption.evictions import evict
from placements.services.disruption.preview import drain_impact
from placements.services.fleet.forms import read_documents
from placements.services.placements import delete_placement, save_placement
from placements.services.rollouts.operations import pause
from placements.services.rollouts.queries import free_name
from placements.services.rollouts.staged_runs import start_run
from placements.services.rollouts.worker import ManifestCache
from placements.services.searching import find, pair_named
from tests.documents import OURS
from tests.rows import (
    NAMESPACE,
    NOW,
    all_joined,
    config_map,
    namespace,
    person,
    placed,
    placement_document,
    run_due,
    spec,
)
from tests.services.rollouts.staged import run_document, stage, strategy_document
from tests.services.rollouts.world import World
from tests.services.test_apply_and_export import documents_in, exported, run

pytestmark = pytest.mark.django_db
SETTINGS = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "settings"}
MISSING = "namespace shop is missing; place it with a ClusterResourcePlacement"
EXTERNAL: dict[str, Any] = {"strategy": {"type": "External"}}
BOTH = {
    "resourceSelectors": [
        {**NAMESPACE, "selectionScope": "NamespaceOnly", "name": name}
        for name in ("shop", "bank")
    ]
}


def inside(
    name: str, *selectors: dict[str, Any], in_: str = "shop", **more: Any
) -> dict[str, Any]:
    """Write a ResourcePlacement that selects the ConfigMap `settings`, or these."""
    document = placement_document(
        name, {"resourceSelectors": list(selectors or (SETTINGS,)), **more}
    )
    metadata = {"name": name, "namespace": in_}
    return {**document, "kind": "ResourcePlacement", "metadata": metadata}


def in_namespace(document: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a staged document as its kind inside the namespace `shop`."""
    return {
        **document,
        "kind": kind,
        "metadata": {**document["metadata"], "namespace": "shop"},
    }


def save(document: dict[str, Any]) -> Placement:
    """Save a placement."""
    return save_placement(document, by=None, now=NOW).object


def named(full_name: str) -> Placement:
    """Return a placement by its full name."""
    return Placement.objects.get(full_name=full_name)


@pytest.fixture
def world(db: None) -> World:  # noqa: ARG001
    """Return two clusters, and the namespaces shop and bank with a ConfigMap each."""
    made = World(2)
    made.apply(
        namespace("bank"), config_map("settings"), config_map("settings", in_="bank")
    )
    return made


@pytest.mark.nightly
def test_equal_names_are_different_placements_everywhere(world: World) -> None:
    documents = [
        placement_document("web", BOTH),
        inside("web"),
        inside("web", in_="bank"),
    ]
    for document in documents:
        save(document)
    world.work()
    world.run(until=world.is_settled)

    names = ["bank/web", "shop/web", "web"]
    assert sorted(Placement.objects.values_list("full_name", flat=True)) == names
    for model in (Decision, Rollout):
        assert (
            sorted(set(model.objects.values_list("placement_name", flat=True))) == names
        )
    created = Event.objects.filter(kind="placement", verb="created")
    assert sorted(created.values_list("name", flat=True)) == names
    pause("shop/web", by=None, now=world.now)
    assert [
        placement.full_name
        for placement in Placement.objects.exclude(paused_since=None)
    ] == ["shop/web"]
    delete_placement("bank/web", by=None, now=world.now)
    world.run(until=lambda: not Placement.objects.filter(full_name="bank/web").exists())
    assert sorted(Placement.objects.values_list("full_name", flat=True)) == names[1:]
    assert Binding.objects.filter(placement=named("web")).count() == 2

    assert find("web").placements == ("shop/web", "web")
    assert [rollout.placement_name for rollout in find("shop/web 1").runs] == [
        "shop/web"
    ]
    assert [rollout.placement_name for rollout in find("web 1").runs] == ["web"]
    pair = pair_named("c000 shop/web")
    assert pair is not None
    assert pair.placement == "shop/web"
    with pytest.raises(IntegrityError), transaction.atomic():
        Placement.objects.filter(full_name="web").update(namespace="shop")


def test_selects_what_is_in_its_namespace_and_nothing_else(world: World) -> None:
    every = [{"group": "", "version": "v1", "kind": "ConfigMap"}]
    save(inside("all", *every))
    save(inside("none", {**SETTINGS, "name": "absent"}))
    world.work()

    [snapshot] = named("shop/all").resource_snapshots.all()
    assert snapshot.identities == [["v1", "ConfigMap", "shop", "settings"]]
    assert named("shop/none").selected_count == 0
    world.apply(
        config_map("more", in_="bank"), config_map("more", in_="shop", data={"a": "1"})
    )
    world.work()
    latest = named("shop/all").resource_snapshots.get(is_latest=True)
    assert [identity[3] for identity in latest.identities] == ["more", "settings"]
    outside = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
    with pytest.raises(InvalidManifest) as refused:
        save(inside("outside", outside))
    [error] = refused.value.errors
    assert (error.path, error.code) == (
        "spec.resourceSelectors[0].kind",
        "cluster-scoped-kind",
    )


@pytest.mark.nightly
def test_waits_for_its_namespace_on_each_cluster(world: World) -> None:
    save(inside("web"))
    world.work()
    row = Binding.objects.filter(placement=named("shop/web")).first()
    assert row is not None
    assert row.phase == "failed"
    assert [failed_object["message"] for failed_object in row.failed_objects] == [
        MISSING
    ]

    save(placement_document("spaces", BOTH))
    world.run(
        until=lambda: (
            world.phases("web") == dict.fromkeys(["c000", "c001"], "available")
        )
    )


def test_a_custom_kind_that_is_not_namespaced_is_found_on_the_hub(world: World) -> None:
    custom = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
    }
    world.apply(custom)

    with pytest.raises(InvalidManifest, match="Widget is cluster-scoped"):
        save(
            inside(
                "custom", {"group": "example.com", "version": "v1", "kind": "Widget"}
            )
        )


def test_what_may_change_is_what_kubefleet_allows() -> None:
    save(inside("web"))
    save(inside("web", statusReportingScope="NamespaceAccessible"))
    with pytest.raises(InvalidManifest, match="cannot change from PickAll to PickN"):
        save(inside("web", policy={"placementType": "PickN", "numberOfClusters": 1}))
    assert named("shop/web").revision == 2


@pytest.mark.nightly
def test_a_staged_run_is_of_its_namespace(world: World) -> None:
    save(placement_document("spaces", BOTH))
    save(inside("web", **EXTERNAL))
    save(placement_document("web", spec(**EXTERNAL)))
    everything = {**stage("all", after=True), "labelSelector": {}}
    strategy = in_namespace(strategy_document(everything), "StagedUpdateStrategy")
    world.work()
    apply = [strategy, in_namespace(run_document("one"), "StagedUpdateRun")]
    with pytest.raises(InvalidManifest) as refused:
        apply_documents(
            read_documents(_text(run_document("one"))), by=None, now=world.now
        )
    assert [error.path for error in refused.value.errors] == [
        "spec.stagedRolloutStrategyName"
    ]

    apply_documents(read_documents(_text(*apply)), by=None, now=world.now)
    world.work()
    world.pass_time(10)

    made = StagedRun.objects.get()
    assert (made.full_name, made.placement_name, made.status) == (
        "shop/one",
        "shop/web",
        "waiting",
    )
    assert (
        not Binding.objects.filter(placement=named("web"))
        .exclude(phase=Phase.NOT_STARTED)
        .exists()
    )
    [request] = made.approvals.all()
    manifest = request.to_manifest()
    assert (manifest["kind"], str(request)) == ("ApprovalRequest", "shop/one-after-all")
    approver = person("ann", "approver")
    approval = {
        **manifest,
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    }
    [result] = apply_documents(
        read_documents(_text(approval)), by=approver, now=world.now
    )
    assert (result.name, result.did) == ("shop/one-after-all", "changed")
    world.run(until=lambda: StagedRun.objects.get().status == "succeeded")
    assert free_name("shop/web") == "web-2"
    started = start_run(
        "two", placement="shop/web", strategy="careful", by=None, now=world.now
    )
    assert (started.full_name, started.document["kind"]) == (
        "shop/two",
        "StagedUpdateRun",
    )


@pytest.mark.nightly
def test_an_override_is_for_a_placement_of_its_scope(world: World) -> None:
    save(inside("web"))
    save(placement_document("web", spec()))
    world.apply(config_map("settings", data={"size": "small"}))
    apply_documents(
        read_documents(_text(override(name="web", scope="Namespaced"))),
        by=None,
        now=world.now,
    )
    # An object of a cluster has one owner, so that only one of them is applied.
    world.work()

    assert [sizes(one) for one in ("shop/web", "web")] == [{"large"}, {"small"}]
    for reference in ({"name": "web"}, None):
        document = override(**reference) if reference else override()
        document["metadata"]["name"] = "other"
        with pytest.raises(InvalidManifest, match="is selected by"):
            apply_documents(read_documents(_text(document)), by=None, now=world.now)


def override(**reference: str) -> dict[str, Any]:
    """Write a ResourceOverride that makes the settings of the shop large."""
    rule = {
        "clusterSelector": {"clusterSelectorTerms": []},
        "jsonPatchOverrides": [
            {"op": "replace", "path": "/data/size", "value": "large"}
        ],
    }
    return {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ResourceOverride",
        "metadata": {"name": "large", "namespace": "shop"},
        "spec": {
            **({"placement": reference} if reference else {}),
            "resourceSelectors": [SETTINGS],
            "policy": {"overrideRules": [rule]},
        },
    }


def sizes(full_name: str) -> set[str]:
    """Return the sizes of the settings that the clusters of a placement are to have."""
    rows = Binding.objects.filter(placement=named(full_name)).select_related(
        "resource_snapshot"
    )
    cache, clusters = (
        ManifestCache(),
        {cluster.name: cluster for cluster in MemberCluster.objects.all()},
    )
    values = set()
    for row in rows:
        manifests = cache.of(row, clusters[row.cluster_name])
        assert not isinstance(manifests, OverrideFailed)
        values |= {
            manifest["data"]["size"]
            for manifest in manifests
            if manifest["kind"] == "ConfigMap"
        }
    assert rows
    return values


@pytest.mark.nightly
def test_evictions_and_drains_leave_it_where_it_is(world: World) -> None:
    save(placement_document("spaces", BOTH))
    save(inside("web"))
    world.run(
        until=lambda: (
            world.phases("web") == dict.fromkeys(["c000", "c001"], "available")
        )
    )

    outcome = evict("shop/web", "c000", by=None, now=world.now)
    assert (outcome.outcome, outcome.why) == (Eviction.Outcome.INVALID, "namespaced")
    impacts = {
        row.placement: row.impact for row in drain_impact("c000", now=world.now).rows
    }
    assert impacts == {"shop/web": "cannot", "spaces": "shrinks"}
    drain(["c000"], by=None, now=world.now)
    advance_drains(now=world.now)
    step = DrainStep.objects.get(placement_name="shop/web")
    assert (step.state, step.why) == ("stays", "namespaced")
    assert placed(named("shop/web")) == ["c000", "c001"]
    document = {
        "apiVersion": "placement.kubernetes-fleet.io/v1beta1",
        "kind": "ClusterResourcePlacementEviction",
        "metadata": {"name": "one"},
        "spec": {"placementName": "web", "clusterName": "c000"},
    }
    [result] = apply_documents(read_documents(_text(document)), by=None, now=world.now)
    assert result.did == Eviction.Outcome.INVALID


def test_an_export_applied_again_changes_nothing(tmp_path: Path) -> None:
    all_joined("a")
    written = [
        document
        for document in documents_in((OURS / "namespaced.yaml").read_bytes())
        if document["kind"]
        != "ApprovalRequest"  # which there is only while a run waits for it
    ]
    apply_documents(
        read_documents(_text(namespace("team"), *written)), by=None, now=NOW
    )
    run_due()

    kinds = {
        "placements": "ResourcePlacement",
        "strategies": "StagedUpdateStrategy",
        "runs": "StagedUpdateRun",
    }
    for noun, kind in kinds.items():
        assert exported(noun, "--no-status") == [
            document for document in written if document["kind"] == kind
        ]
        (tmp_path / noun).write_text(run("export", noun)[0])
    out, _ = run(
        "apply", *(part for noun in kinds for part in ("-f", str(tmp_path / noun)))
    )
    assert {line.rpartition(" ")[2] for line in out.splitlines()} == {"unchanged"}
    assert [
        document["metadata"]["namespace"]
        for document in documents_in(run("export", "placements", "team/web")[0])
    ]
    with pytest.raises(CommandError, match="no placement is named 'web'"):
        run("export", "placements", "web")
    [conditions] = [
        document["status"]["conditions"] for document in exported("placements")
    ]
    assert conditions[0]["type"] == "ResourcePlacementScheduled"


def _text(*documents: dict[str, Any]) -> str:
    return "---\n".join(map(dump_yaml, documents))
