"""Replicas are applied once; then they are left to an autoscaler, placed with the object or found."""

from typing import Any

import pytest

from clusters.drivers.base import ObjectRef
from clusters.drivers.kubernetes.autoscaling import (
    manifest_over,
    scaled_object,
    sent_over,
)

MANIFEST = {"kind": "Deployment", "spec": {"replicas": 1, "paused": False}}
OURS = "fleetui"


def live(replicas: int, *managers: str) -> dict[str, Any]:
    """Make a live object whose replicas are owned by these field managers."""
    fields: dict[str, Any] = {"f:spec": {"f:replicas": {}}}
    entries = [{"manager": manager, "fieldsV1": fields} for manager in managers]
    return {"metadata": {"managedFields": entries}, "spec": {"replicas": replicas}}


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        (
            {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "a", "namespace": "shop"},
                "spec": {
                    "scaleTargetRef": {
                        "apiVersion": "apps/v1",
                        "kind": "StatefulSet",
                        "name": "db",
                    }
                },
            },
            ObjectRef("apps", "StatefulSet", "shop", "db"),
        ),
        (
            {
                "apiVersion": "keda.sh/v1alpha1",
                "kind": "ScaledObject",
                "metadata": {"name": "a", "namespace": "shop"},
                "spec": {"scaleTargetRef": {"name": "web"}},
            },
            ObjectRef("apps", "Deployment", "shop", "web"),
        ),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, None),
    ],
)
def test_the_object_that_is_scaled_is_found(
    manifest: dict[str, Any], expected: ObjectRef | None
) -> None:
    assert scaled_object(manifest) == expected


def test_without_an_autoscaler_the_replicas_are_those_of_the_manifest() -> None:
    found = live(3, OURS, "kubectl")

    assert manifest_over(MANIFEST, found, is_autoscaled=False) == MANIFEST
    assert (
        sent_over(MANIFEST, found, is_autoscaled=False, field_manager=OURS) == MANIFEST
    )


def test_an_autoscaler_that_is_placed_with_the_object_keeps_its_replicas() -> None:
    before_it_scales = live(3, OURS)
    after_it_scaled = live(3, "kube-controller-manager")

    assert (
        manifest_over(MANIFEST, before_it_scales, is_autoscaled=True)["spec"][
            "replicas"
        ]
        == 3
    )
    sent_before = sent_over(
        MANIFEST, before_it_scales, is_autoscaled=True, field_manager=OURS
    )
    sent_after = sent_over(
        MANIFEST, after_it_scaled, is_autoscaled=True, field_manager=OURS
    )
    assert sent_before["spec"] == {"replicas": 3, "paused": False}
    assert sent_after["spec"] == {"paused": False}


def test_an_autoscaler_that_is_found_on_the_cluster_keeps_its_replicas() -> None:
    found = live(3, OURS, "kube-controller-manager")

    assert manifest_over(MANIFEST, found, is_autoscaled=False)["spec"]["replicas"] == 3
    assert (
        "replicas"
        not in sent_over(MANIFEST, found, is_autoscaled=False, field_manager=OURS)[
            "spec"
        ]
    )
