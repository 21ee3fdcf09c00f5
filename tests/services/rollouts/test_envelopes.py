"""What is in an envelope is placed in its stead: on clusters, on pages and in the status of a hub."""

from typing import Any

import pytest
from django.test import Client

from clusters.models import MemberCluster, SimulatedPlacement
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.models import Event
from placements.engine.envelopes import (
    applied_identities,
    unwrapped,
    wrapped_identities,
)
from placements.engine.overrides import OverrideFailed
from placements.models import Binding, Placement
from placements.services.apply import apply_documents
from placements.services.filters import kinds_on
from placements.services.fleet.forms import read_documents
from placements.services.rollouts.cluster_objects import objects_on
from placements.services.rollouts.worker import ManifestCache
from placements.services.status import status_of
from tests.hub_objects import hub_object, manifest
from tests.rows import config_map, person, spec
from tests.services.rollouts.world import World

pytestmark = pytest.mark.django_db
VERSION = "placement.kubernetes-fleet.io/v1beta1"
SECRET = manifest("Secret", "token", "shop", stringData={"token": "do-not-show"})
WRAPPED = {
    "settings.yaml": config_map("inner", data={"size": "small"}),
    "token.yaml": SECRET,
}


def envelope(data: dict[str, Any], name: str = "box") -> dict[str, Any]:
    """Write an envelope in the namespace shop."""
    return manifest("ResourceEnvelope", name, "shop", version=VERSION, data=data)


@pytest.fixture
def world(db: None) -> World:  # noqa: ARG001
    """Return a cluster with a placement of the namespace shop, where an envelope is."""
    made = World(1)
    made.apply(envelope(WRAPPED))
    made.place("web", spec())
    made.run(until=made.is_settled)
    return made


def held(placement: str = "web") -> list[str]:
    """Return what the simulated cluster has of a placement."""
    content = SimulatedPlacement.objects.get(placement_name=placement).content
    return sorted(f"{one['kind']} {one['name']}" for one in content["held"]["objects"])


def binding() -> Binding:
    """Return the only binding, with its snapshot."""
    return Binding.objects.select_related("resource_snapshot", "placement").get()


@pytest.mark.nightly
def test_the_content_is_on_the_cluster_and_the_envelope_is_not(world: World) -> None:
    assert held() == [
        "ConfigMap inner",
        "Deployment web",
        "Namespace shop",
        "Secret token",
    ]
    [snapshot] = Placement.objects.get(name="web").resource_snapshots.all()
    assert [identity[1] for identity in snapshot.identities] == [
        "Namespace",
        "Deployment",
        "ResourceEnvelope",
    ]
    objects = {
        (cluster_object.kind, cluster_object.name): cluster_object.state
        for cluster_object in objects_on(binding())
    }
    assert set(objects) == {
        *(
            ("Namespace", "shop"),
            ("Deployment", "web"),
            ("ConfigMap", "inner"),
            ("Secret", "token"),
        ),
    }
    envelopes = {
        cluster_object.name: cluster_object.envelope
        for cluster_object in objects_on(binding())
    }
    assert envelopes == {
        "shop": "",
        "web": "",
        "inner": "ResourceEnvelope box",
        "token": "ResourceEnvelope box",
    }
    kinds = {kind for _, kind in kinds_on("c000")}
    assert kinds == {"ConfigMap", "Deployment", "Namespace", "Secret"}
    selected = status_of(binding().placement)["selectedResources"]
    assert {one["kind"] for one in selected} == {
        "Namespace",
        "Deployment",
        "ResourceEnvelope",
    }

    world.apply(envelope({"other.yaml": config_map("other")}))
    world.work()
    world.run(until=world.is_settled)
    assert held() == ["ConfigMap other", "Deployment web", "Namespace shop"]


@pytest.mark.nightly
def test_what_fails_inside_is_reported_with_its_envelope(world: World) -> None:
    world.inject(
        "c000", {"kind": "refuse", "objectKind": "ConfigMap", "objectName": "inner"}
    )
    world.apply(
        envelope(
            {**WRAPPED, "settings.yaml": config_map("inner", data={"size": "big"})}
        )
    )
    world.work()
    world.pass_time(2)

    [cluster] = status_of(binding().placement)["placementStatuses"]
    [failed] = cluster["failedPlacements"]
    assert (failed["kind"], failed["name"]) == ("ConfigMap", "inner")
    assert failed["envelope"] == {
        "type": "ResourceEnvelope",
        "name": "box",
        "namespace": "shop",
    }


def test_the_same_object_in_two_envelopes_is_applied_once_and_reported(
    world: World,
) -> None:
    world.apply(
        envelope(
            {"other.yaml": config_map("inner", data={"size": "big"})}, name="second"
        )
    )
    world.work()
    world.pass_time(2)

    assert held().count("ConfigMap inner") == 1
    [cluster] = status_of(binding().placement)["placementStatuses"]
    assert [
        placement["condition"]["reason"] for placement in cluster["failedPlacements"]
    ] == ["Duplicated"]


@pytest.mark.nightly
def test_an_override_changes_content_by_the_envelope_only(world: World) -> None:
    def override(name: str, kind: str, target: str, path: str) -> dict[str, Any]:
        patch = {"op": "replace", "path": path, "value": "large"}
        rule = {
            "clusterSelector": {"clusterSelectorTerms": []},
            "jsonPatchOverrides": [patch],
        }
        group, version = (
            (VERSION.split("/")) if kind == "ResourceEnvelope" else ("", "v1")
        )
        selector = {"group": group, "version": version, "kind": kind, "name": target}
        rules = {"resourceSelectors": [selector], "policy": {"overrideRules": [rule]}}
        return manifest("ResourceOverride", name, "shop", version=VERSION, spec=rules)

    documents = [
        override("inside", "ConfigMap", "inner", "/data/unknown"),
        override("box", "ResourceEnvelope", "box", "/data/settings.yaml/data/size"),
    ]
    apply_documents(
        read_documents("---\n".join(map(dump_yaml, documents))), by=None, now=world.now
    )
    world.work()
    world.run(until=world.is_settled)

    manifests = ManifestCache().of(binding(), MemberCluster.objects.get())
    assert not isinstance(manifests, OverrideFailed)
    assert [one["data"] for one in manifests if one["kind"] == "ConfigMap"] == [
        {"size": "large"}
    ]


@pytest.mark.nightly
def test_no_page_or_event_shows_a_secret_inside(
    world: World,
    collected_static: object,  # noqa: ARG001
) -> None:
    world.apply(
        envelope(
            {
                **WRAPPED,
                "token.yaml": {**SECRET, "stringData": {"token": "do-not-show-2"}},
            }
        )
    )
    browser = Client()
    browser.force_login(person("vera", "viewer"))

    events = [
        str(event.before) + str(event.after)
        for event in Event.objects.filter(name__contains="box")
    ]
    assert len(events) == 2
    page = browser.get(
        "/resources/placement.kubernetes-fleet.io/ResourceEnvelope/shop/box/"
    ).content.decode()
    assert "inner" in page
    assert "do-not-show" not in "".join([page, *events])


def test_identities_of_a_snapshot() -> None:
    box = hub_object("ResourceEnvelope", "box", "shop", version=VERSION, data=WRAPPED)
    objects = [hub_object("Namespace", "shop"), box]
    wrapped = wrapped_identities(objects)

    assert wrapped == [
        ["v1", "ConfigMap", "shop", "inner", "ResourceEnvelope", "box"],
        ["v1", "Secret", "shop", "token", "ResourceEnvelope", "box"],
    ]
    identities = [
        [one.api_version, one.kind, one.namespace, one.name] for one in objects
    ]
    manifests = unwrapped(one.content for one in objects)
    assert [one["metadata"]["name"] for one in manifests] == ["shop", "inner", "token"]
    applied = applied_identities(identities, wrapped)
    assert [sequence[3] for sequence in applied] == ["shop", "inner", "token"]
