"""Policies and clusters of other systems: stored as resources with a warning, refused by `--strict`."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.test import Client
from rest_framework.test import APIClient

from fleetui.apimachinery.kinds import no_effect_reason
from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Resource
from tests.rows import namespace, person
from tests.services.test_apply_and_export import run

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("collected_static")]
KINDS = {
    ("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy"): "Karmada",
    ("cluster.karmada.io/v1alpha1", "Cluster"): "Karmada",
    (
        "cluster.open-cluster-management.io/v1",
        "ManagedCluster",
    ): "Open Cluster Management",
    (
        "cluster.open-cluster-management.io/v1beta2",
        "ManagedClusterSet",
    ): "Open Cluster Management",
    ("apps.open-cluster-management.io/v1", "PlacementRule"): "Open Cluster Management",
    ("multicluster.x-k8s.io/v1alpha1", "ClusterProfile"): "SIG Multicluster",
    ("placement.kubefleet.dev/v1beta1", "ResourcePlacement"): "KubeFleet",
}
WITH_EFFECT = [
    ("v1", "Namespace"),
    ("cluster.open-cluster-management.io/v1beta1", "Placement"),
    ("multicluster.x-k8s.io/v1alpha1", "ServiceExport"),
    ("example.karmada.io.test/v1", "PropagationPolicy"),
]


def document_of(version: str, kind: str) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "web"},
        "spec": {},
    }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "others.yaml"
    documents = [namespace("shop"), *(document_of(*key) for key in KINDS)]
    path.write_text("---\n".join(map(dump_yaml, documents)))
    return path


def test_apply_warns_by_name_what_each_is(file: Path) -> None:
    out, err = run("apply", "-f", str(file))

    assert len(out.splitlines()) == 1 + len(KINDS)
    assert err.count("has no effect here") == len(KINDS)
    for (_, kind), system in KINDS.items():
        assert any(f"{kind} of" in line and system in line for line in err.splitlines())


def test_strict_refuses_each_and_stores_nothing(file: Path) -> None:
    with pytest.raises(CommandError) as refused:
        run("apply", "--strict", "-f", str(file))

    lines = str(refused.value).splitlines()
    assert (len(lines), refused.value.returncode) == (len(KINDS), 2)
    assert "kind (line " in lines[0]
    assert not Resource.objects.exists()


@pytest.mark.parametrize(("version", "kind"), WITH_EFFECT)
def test_other_objects_are_resources_like_any_other(version: str, kind: str) -> None:
    assert not no_effect_reason(document_of(version, kind))


def test_rest_warns_and_refuses_with_strict() -> None:
    api = APIClient()
    api.force_authenticate(person("olga", "operator"))
    document = document_of("policy.karmada.io/v1alpha1", "ClusterPropagationPolicy")

    refused = api.post("/api/v1/apply?strict=true", document, format="json")
    applied = api.post("/api/v1/apply", document, format="json")
    path = "/api/v1/resources/policy.karmada.io/ClusterPropagationPolicy/-/web"
    put = api.put(path, document, format="json")

    assert (refused.status_code, refused.json()["faults"][0]["code"]) == (
        422,
        "no-effect",
    )
    assert applied.json()["items"][0]["warnings"][0]["code"] == "no-effect"
    assert "of Karmada has no effect here" in put.headers["Warning"]


def test_the_page_shows_the_warning_and_can_refuse(client: Client) -> None:
    client.force_login(person("olga", "operator"))
    text = dump_yaml(
        document_of("cluster.open-cluster-management.io/v1", "ManagedCluster")
    )

    refused = client.post("/resources/apply/", {"manifest": text, "strict": "on"})
    applied = client.post("/resources/apply/", {"manifest": text})

    assert refused.status_code == 422
    for page in (refused, applied):
        assert (
            "ManagedCluster of Open Cluster Management has no effect here"
            in page.content.decode()
        )


@pytest.mark.parametrize(
    ("version", "kind", "current"),
    [
        ("extensions/v1beta1", "Ingress", "networking.k8s.io/v1"),
        ("extensions/v1beta1", "Deployment", "apps/v1"),
        ("policy/v1beta1", "PodDisruptionBudget", "policy/v1"),
        ("networking.k8s.io/v1", "Ingress", ""),
        ("example.com/v1beta1", "Ingress", ""),
    ],
)
def test_rest_names_the_version_that_replaced_a_removed_one(
    version: str, kind: str, current: str
) -> None:
    api = APIClient()
    api.force_authenticate(person("olga", "operator"))
    group = version.rpartition("/")[0]
    assert (
        api.post("/api/v1/apply", namespace("shop"), format="json").status_code == 200
    )
    document = document_of(version, kind)
    document["metadata"]["namespace"] = "shop"

    put = api.put(f"/api/v1/resources/{group}/{kind}/shop/web", document, format="json")

    assert put.status_code == 201, put.json()["errors"]
    words = f"{kind} in {version} is not served by current Kubernetes: use {current}"
    assert (words in put.headers.get("Warning", "")) is bool(current)
