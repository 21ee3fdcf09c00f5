"""Refusals by admission, quotas and immutable fields (`rules/kubernetes-driver.md#special-cases`)."""

from collections.abc import Iterator
from typing import Any

import pytest

from clusters.drivers.base import DriverRejected, Refusal
from tests.kubernetes.members import Hub, await_true

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def only_refusal(hub: Hub, *manifests: dict[str, Any], **options: Any) -> Refusal:
    with pytest.raises(DriverRejected) as caught:
        hub.driver().apply(
            hub.version("v2", hub.namespace_manifest(), *manifests, **options)
        )
    (refusal,) = caught.value.refusals
    return refusal


@pytest.fixture
def _dead_webhook(hub: Hub) -> Iterator[None]:
    """Register a webhook for Secrets of the test that never answers."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["*"],
        "resources": ["secrets"],
    }
    webhook = {
        "name": "dead.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"test": hub.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    hub.admin.create(
        WEBHOOKS, {"metadata": {"name": hub.namespace}, "webhooks": [webhook]}
    )
    yield
    hub.admin.delete(f"{WEBHOOKS}/{hub.namespace}")


@pytest.mark.usefixtures("_dead_webhook")
def test_a_webhook_that_is_down_refuses_its_objects_and_no_others(hub: Hub) -> None:
    hub.admin.create(
        "/api/v1/namespaces", hub.namespace_manifest(labels={"test": hub.namespace})
    )
    probe = hub.manifest("v1", "Secret", "probe")

    def is_active() -> bool:
        return (
            hub.admin.call(
                "POST", hub.path("secrets"), body=probe, query={"dryRun": "All"}
            ).status
            == 500
        )

    await_true(is_active)  # API servers notice a webhook within a second

    refusal = only_refusal(
        hub, hub.manifest("v1", "Secret", "keys"), hub.config_map("a")
    )

    assert (refusal.object.kind, refusal.code) == ("Secret", "ManifestApplyFailed")
    assert "failed calling webhook" in refusal.message
    assert "ConfigMap a" in hub.objects()
    result = hub.driver().diff(hub.version("d1", hub.manifest("v1", "Secret", "keys")))
    assert [diff.fields[0].path for diff in result.diffs] == ["/"]


def test_an_exceeded_quota_refuses_what_is_over_it(hub: Hub) -> None:
    quota = hub.manifest(
        "v1", "ResourceQuota", "few", spec={"hard": {"count/secrets": "0"}}
    )
    hub.driver().apply(hub.version("v1", hub.namespace_manifest(), quota))
    # As its controller would, which is not among those that run here.
    status = {"hard": {"count/secrets": "0"}, "used": {"count/secrets": "0"}}
    hub.admin.merge(f"{hub.path('resourcequotas', 'few')}/status", {"status": status})

    def is_active() -> bool:
        probe = hub.manifest("v1", "Secret", "probe")
        return (
            hub.admin.call(
                "POST", hub.path("secrets"), body=probe, query={"dryRun": "All"}
            ).status
            == 403
        )

    await_true(is_active)

    refusal = only_refusal(
        hub, quota, hub.manifest("v1", "Secret", "keys"), hub.config_map("a")
    )

    assert "exceeded quota" in refusal.message
    assert "ConfigMap a" in hub.objects()


def service(hub: Hub, **spec: Any) -> dict[str, Any]:
    port = {"port": 80, "protocol": "TCP"}
    return hub.manifest(
        "v1",
        "Service",
        "web",
        spec={"selector": {"app": "web"}, "ports": [port], **spec},
    )


def binding(hub: Hub, role: str) -> dict[str, Any]:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}
    return hub.manifest(
        "rbac.authorization.k8s.io/v1", "RoleBinding", "web", roleRef=reference
    )


def stateful_set(hub: Hub, name: str) -> dict[str, Any]:
    labels = {"app": "web"}
    pod = {"containers": [{"name": "main", "image": "a:1"}]}
    spec = {
        "serviceName": name,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    return hub.manifest("apps/v1", "StatefulSet", "web", spec=spec)


def other_selector(hub: Hub) -> dict[str, Any]:
    manifest = hub.deployment("web")
    manifest["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    manifest["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    return manifest


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("Service", "the clusterIP of a Service cannot be changed"),
        ("RoleBinding", "roleRef cannot be changed"),
        ("StatefulSet", "only replicas, template and updateStrategy"),
        ("Deployment", "the selector of a Deployment cannot be changed"),
        ("ConfigMap", "an immutable ConfigMap cannot be changed"),
    ],
)
def test_an_immutable_field_is_refused_with_a_hint(
    hub: Hub, kind: str, hint: str
) -> None:
    before, after = {
        "Service": lambda: (
            service(hub, clusterIP="10.96.0.77"),
            service(hub, clusterIP="10.96.0.78"),
        ),
        "RoleBinding": lambda: (binding(hub, "a"), binding(hub, "b")),
        "StatefulSet": lambda: (stateful_set(hub, "a"), stateful_set(hub, "b")),
        "Deployment": lambda: (hub.deployment("web"), other_selector(hub)),
        "ConfigMap": lambda: (
            {**hub.config_map("a", x="1"), "immutable": True},
            {**hub.config_map("a", x="2"), "immutable": True},
        ),
    }[kind]()
    hub.driver().apply(hub.version("v1", hub.namespace_manifest(), before))

    refusal = only_refusal(hub, after)

    assert refusal.code == "ManifestApplyFailed"
    assert hint in refusal.message
    hub.admin.purge_namespace(hub.namespace)


def test_what_others_set_in_a_list_by_keys_stays(hub: Hub) -> None:
    driver = hub.driver()
    version = hub.version(
        "v1", hub.namespace_manifest(), hub.deployment("web", replicas=0)
    )
    driver.apply(version)
    sidecar = {"name": "sidecar", "image": "mesh:1"}
    manifest = hub.deployment("web", replicas=0)
    manifest["spec"] = {
        "template": {"spec": {"containers": [sidecar]}},
        "selector": manifest["spec"]["selector"],
    }
    hub.admin.apply(hub.deployments("web"), manifest, manager="mesh")

    driver.apply(
        hub.version(
            "v2",
            hub.namespace_manifest(),
            hub.deployment("web", image="shop:2", replicas=0),
        )
    )

    containers = hub.admin.get(hub.deployments("web"))["spec"]["template"]["spec"][
        "containers"
    ]
    assert {container["name"]: container["image"] for container in containers} == {
        "main": "shop:2",
        "sidecar": "mesh:1",
    }
    assert hub.seen(driver, version_of=lambda _: None).missing == ()
