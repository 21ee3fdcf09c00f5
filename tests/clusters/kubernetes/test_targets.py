"""Apply waves, ownership metadata and refusal messages.

See `rules/kubernetes-driver.md#ownership-and-inventory`.
"""

import base64
from typing import Any

import pytest

from clusters.drivers.base import ObjectRef
from clusters.drivers.kubernetes.access import server_message
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.kubernetes.targets import (
    Target,
    applyset_id,
    inventory_name,
    manifest_hash,
    sent_manifest,
    wave_of,
    with_ownership,
)
from fleetui.apimachinery.fields import subdomain_problem

RBAC = "rbac.authorization.k8s.io"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("wave", "group", "kinds"),
    [
        (0, "", "Namespace"),
        (0, "scheduling.k8s.io", "PriorityClass"),
        (1, "networking.k8s.io", "NetworkPolicy IngressClass"),
        (
            1,
            "",
            "ResourceQuota LimitRange ServiceAccount Secret ConfigMap PersistentVolume PersistentVolumeClaim",
        ),
        (1, "policy", "PodDisruptionBudget"),
        (1, "storage.k8s.io", "StorageClass"),
        (1, "apiextensions.k8s.io", "CustomResourceDefinition"),
        (2, RBAC, "ClusterRole Role"),
        (3, RBAC, "ClusterRoleBinding RoleBinding"),
        (4, "", "Service Pod ReplicationController"),
        (4, "apps", "DaemonSet ReplicaSet Deployment StatefulSet"),
        (4, "autoscaling", "HorizontalPodAutoscaler"),
        (4, "batch", "Job CronJob"),
        (4, "networking.k8s.io", "Ingress"),
        (5, "apiregistration.k8s.io", "APIService"),
        (
            5,
            "admissionregistration.k8s.io",
            "ValidatingWebhookConfiguration MutatingWebhookConfiguration",
        ),
        (6, "example.com", "Namespace Deployment ConfigMap Tab"),
        (6, "serving.knative.dev", "Service"),
        (6, "extensions", "Ingress"),
        (6, "", "Endpoints Node"),
        (6, "storage.k8s.io", "CSIDriver"),
    ],
)
def test_the_apply_wave_of_a_kind(wave: int, group: str, kinds: str) -> None:
    assert {kind: wave_of(group, kind) for kind in kinds.split()} == dict.fromkeys(
        kinds.split(), wave
    )


def test_the_id_of_the_apply_set_follows_from_the_inventory() -> None:
    name = inventory_name("0123456789ab", "web")

    assert name == "fleetui-01234567-web"
    # base64url(sha256("fleetui-01234567-web.fleetui-system.ConfigMap.")), without padding
    assert applyset_id(name).startswith("applyset-")
    assert applyset_id(name).endswith("-v1")
    assert len(applyset_id(name)) == len("applyset-") + 43 + len("-v1")
    assert applyset_id(name) != applyset_id(inventory_name("0123456789ab", "web2"))


def test_no_two_placements_share_an_inventory() -> None:
    names = ["web", "shop/web", "shop.web", "shop-web", "a/b.c", "a.b.c", "a-b.c"]

    inventories = [inventory_name("0123456789ab", name) for name in names]

    assert len(set(inventories)) == len(names)
    assert not any(map(subdomain_problem, inventories))


def test_what_only_servers_write_is_not_sent() -> None:
    metadata = dict.fromkeys(
        [
            "managedFields",
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "ownerReferences",
            "selfLink",
        ],
        "x",
    )
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "name": "a", "finalizers": ["example.com/x"]},
        "data": {"z": "1", "a": 1.0, "unknown": None},
        "status": {"a": 1},
    }

    sent = sent_manifest(manifest)

    assert sent == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "data": {"z": "1", "a": 1.0, "unknown": None},
        "metadata": {"name": "a", "finalizers": ["example.com/x"]},
    }
    assert list(sent["data"]) == ["z", "a", "unknown"]


def test_ownership_metadata_is_added_and_not_hashed() -> None:
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a", "labels": {"x": "1"}},
    }
    target = Target(ObjectRef("", "ConfigMap", "shop", "a"), "v1", manifest)

    plain = with_ownership(
        target,
        None,
        part_of="set",
        owner="hub/web",
        member="0/one",
        is_taken_over=False,
    )
    taken = with_ownership(
        target,
        {},
        part_of="set",
        owner="hub/web",
        member="0/one",
        is_taken_over=True,
        resource_version="7",
    )

    assert plain["metadata"]["labels"] == {
        "x": "1",
        "applyset.kubernetes.io/part-of": "set",
    }
    assert plain["metadata"]["annotations"] == {
        "fleetui.io/owner": "hub/web",
        "fleetui.io/member": "0/one",
        "fleetui.io/manifest-hash": target.hash,
    }
    assert "resourceVersion" not in plain["metadata"]
    assert taken["metadata"]["annotations"]["fleetui.io/taken-over"] == "true"
    assert taken["metadata"]["resourceVersion"] == "7"
    assert manifest["metadata"] == {"name": "a", "labels": {"x": "1"}}
    assert target.hash == manifest_hash(
        {"metadata": manifest["metadata"], "kind": "ConfigMap", "apiVersion": "v1"}
    )
    assert len(target.hash) == 32


def message_of(text: str, manifest: dict[str, Any] | None = None) -> str:
    return server_message(Response(422, {"kind": "Status", "message": text}), manifest)


def test_a_message_is_cut_in_its_middle() -> None:
    message = message_of("begin " + "x" * 5_000 + " field is immutable")

    assert len(message) <= 500
    assert message.startswith("begin")
    assert message.endswith("field is immutable")


def test_no_value_of_a_secret_is_in_a_message() -> None:
    plain, encoded = "hunter2", base64.b64encode(b"correct horse").decode()
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "stringData": {"a": plain},
        "data": {"b": encoded},
    }
    text = f'invalid: "{plain}", {base64.b64encode(plain.encode()).decode()}, {encoded}, "correct horse"'

    message = message_of(text, manifest)

    assert message == 'invalid: "(redacted)", (redacted), (redacted), "(redacted)"'
    assert message_of(text, {**manifest, "apiVersion": "example.com/v1"}) == message
