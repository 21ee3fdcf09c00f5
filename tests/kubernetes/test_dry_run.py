"""Dry runs of an apply on a real API server: what it would refuse, change and remove, without doing it."""

from typing import Any

import pytest

from clusters.drivers.base import DiffResult, ObjectRef
from tests.kubernetes.members import Hub, await_true


def tried(hub: Hub, *manifests: dict[str, Any], **options: Any) -> DiffResult:
    return hub.driver().diff(hub.version("next", *manifests, **options), as_apply=True)


def changed_fields(found: DiffResult) -> dict[str, list[str]]:
    return {
        diff.object.name: [field.path for field in diff.fields] for diff in found.diffs
    }


def test_a_dry_run_names_changes_removals_and_refusals_and_writes_nothing(
    hub: Hub,
) -> None:
    namespace, web = hub.namespace_manifest(), hub.deployment("web")
    hub.driver().apply(
        hub.version(
            "v1", namespace, web, hub.config_map("a", x="1"), hub.config_map("b")
        )
    )
    before = (
        hub.admin.get(hub.inventory_path),
        hub.admin.get(hub.deployments("web"))["spec"],
    )

    found = tried(
        hub, namespace, hub.deployment("web", replicas=3), hub.config_map("a", x="2")
    )

    assert changed_fields(found) == {"web": ["/spec/replicas"], "a": ["/data/x"]}
    assert (found.failures, found.unchecked) == ((), ())
    assert found.removed == (ObjectRef("", "ConfigMap", hub.namespace, "b"),)
    # Not the whole object: its controller writes the status.
    assert (
        hub.admin.get(hub.inventory_path),
        hub.admin.get(hub.deployments("web"))["spec"],
    ) == before
    assert hub.recorders[-1].writes == []  # apart from dry runs


def test_a_refusal_has_the_message_of_the_server(hub: Hub) -> None:
    namespace, web = hub.namespace_manifest(), hub.deployment("web")
    hub.driver().apply(hub.version("v1", namespace, web))
    other: dict[str, Any] = hub.deployment("web")
    labels = {"app": "other"}
    other["spec"]["selector"]["matchLabels"] = labels
    other["spec"]["template"]["metadata"]["labels"] = labels

    found = tried(hub, namespace, other, hub.config_map("a"))

    (refusal,) = found.failures
    assert (refusal.object.name, refusal.code) == ("web", "ManifestApplyFailed")
    assert "field is immutable" in refusal.message
    assert changed_fields(found) == {"a": ["/"]}


def test_a_quota_refuses_what_would_exceed_it(hub: Hub) -> None:
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    status = {"hard": {"count/configmaps": "0"}, "used": {"count/configmaps": "0"}}
    quota = hub.manifest("v1", "ResourceQuota", "few", spec={"hard": status["hard"]})
    hub.admin.create(hub.path("resourcequotas"), quota)
    # As its controller would, which is not among those that run here.
    hub.admin.merge(f"{hub.path('resourcequotas')}/few/status", {"status": status})

    def is_refused() -> bool:
        return bool(tried(hub, hub.namespace_manifest(), hub.config_map("a")).failures)

    await_true(is_refused, seconds=20)  # the admission of quotas watches them
    found = tried(hub, hub.namespace_manifest(), hub.config_map("a"))
    assert [failure.object.name for failure in found.failures] == ["a"]
    assert "exceeded quota: few" in found.failures[0].message


def test_what_needs_a_namespace_or_a_definition_of_the_version_is_not_tried(
    hub: Hub,
) -> None:
    namespace = hub.namespace_manifest()
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "crontabs.dry.example.com"},
        "spec": {
            "group": "dry.example.com",
            "names": {"plural": "crontabs", "kind": "CronTab"},
            "scope": "Cluster",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    }
    tab = {
        "apiVersion": "dry.example.com/v1",
        "kind": "CronTab",
        "metadata": {"name": "nightly"},
    }

    found = tried(hub, namespace, definition, hub.config_map("a"), tab)

    assert {diff.object.kind for diff in found.diffs} == {
        "Namespace",
        "CustomResourceDefinition",
    }
    assert {reference.kind for reference in found.unchecked} == {"ConfigMap", "CronTab"}
    assert found.failures == ()
    assert not hub.admin.has(hub.namespace_path)


@pytest.mark.parametrize("takeover", ["Always", "Never"])
def test_the_rules_of_the_apply_strategy_hold(hub: Hub, takeover: str) -> None:
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    hub.admin.create(hub.path("configmaps"), hub.config_map("a", x="1"))

    found = tried(hub, hub.config_map("a", x="2"), when_to_take_over=takeover)

    if takeover == "Never":
        assert [failure.code for failure in found.failures] == ["NotTakenOver"]
    else:
        assert changed_fields(found) == {"a": ["/data/x"]}


def test_values_of_secrets_are_in_no_answer(hub: Hub) -> None:
    secret = hub.manifest("v1", "Secret", "pass", stringData={"word": "marker-old"})
    hub.driver().apply(hub.version("v1", hub.namespace_manifest(), secret))

    found = tried(
        hub, hub.namespace_manifest(), {**secret, "stringData": {"word": "marker-new"}}
    )

    assert changed_fields(found) == {"pass": ["/data/word"]}
    assert "marker" not in str(found)


def test_a_version_that_is_there_already_changes_nothing_and_sends_no_dry_run(
    hub: Hub,
) -> None:
    manifests = hub.namespace_manifest(), hub.config_map("a", x="1")
    hub.driver().apply(hub.version("v1", *manifests))

    found = tried(hub, *manifests)

    assert (found.diffs, found.failures, found.removed) == ((), (), ())
    assert hub.recorders[-1].writes == []
