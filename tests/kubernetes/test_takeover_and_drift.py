"""Takeover, conflicts and drift on a real API server (`rules/kubernetes-driver.md#one-object`)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from clusters.drivers.base import (
    Applied,
    Driver,
    DriverPending,
    DriverRejected,
    FieldDiff,
    ObjectRef,
    Refusal,
    Version,
)
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.readiness import Readiness
from tests.kubernetes.members import Hub, repeat


def rejected(call: Callable[[], object]) -> DriverRejected:
    with pytest.raises(DriverRejected) as caught:
        call()
    return caught.value


def only_refusal(call: Callable[[], object]) -> Refusal:
    (refusal,) = rejected(call).refusals
    return refusal


def foreign(
    hub: Hub, name: str = "a", *, owner: str = "", **data: str
) -> dict[str, Any]:
    """Create a ConfigMap that is not ours, in the namespace of the test."""
    if not hub.admin.has(hub.namespace_path):
        hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    manifest = hub.config_map(name, **data)
    if owner:
        manifest["metadata"]["annotations"] = {"fleetui.io/owner": owner}
    return hub.admin.create(hub.path("configmaps"), manifest)


def annotations(hub: Hub, name: str = "a") -> Mapping[str, str]:
    return (
        hub.admin.get(hub.path("configmaps", name))["metadata"].get("annotations") or {}
    )


def test_an_object_that_exists_is_taken_over_and_stays_marked(hub: Hub) -> None:
    foreign(hub, x="1")
    driver = hub.driver()

    assert driver.apply(hub.version("v1", hub.config_map("a", x="2"))).changed
    assert annotations(hub)["fleetui.io/taken-over"] == "true"
    driver.apply(hub.version("v2", hub.config_map("a", x="3")))
    assert annotations(hub)["fleetui.io/taken-over"] == "true"


@pytest.mark.parametrize(
    ("owner", "options", "code", "message"),
    [
        (
            "{hub}/other",
            {},
            "FailedToTakeOver",
            "belongs to placement other of this hub",
        ),
        (
            "{hub}/other",
            {"allow_co_ownership": True},
            "FailedToTakeOver",
            "belongs to placement other",
        ),
        (
            "ffff/web",
            {},
            "FailedToTakeOver",
            "belongs to hub ffff; remove the annotation fleetui.io/owner there first",
        ),
        (
            "/web",
            {},
            "FailedToTakeOver",
            "remove the annotation fleetui.io/owner there first",
        ),
        ("", {"when_to_take_over": "Never"}, "NotTakenOver", "whenToTakeOver is Never"),
        (
            "",
            {"when_to_take_over": "IfNoDiff"},
            "FailedToTakeOver",
            "whenToTakeOver is IfNoDiff",
        ),
    ],
)
def test_what_may_not_be_taken_over_is_refused(
    hub: Hub, owner: str, options: dict[str, Any], code: str, message: str
) -> None:
    foreign(hub, owner=owner.format(hub=hub.hub_id), x="1")

    error = rejected(
        lambda: hub.driver().apply(
            hub.version("v1", hub.config_map("a", x="2"), **options)
        )
    )

    (refusal,) = error.refusals
    assert refusal.code == code
    assert message in refusal.message
    assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {"x": "1"}
    fields = [field for diff in error.diffs for field in diff.fields]
    expected = [FieldDiff("/data/x", '"1"', '"2"')] if "IfNoDiff" in message else []
    assert fields == expected


@pytest.mark.parametrize("comparison", ["PartialComparison", "FullComparison"])
def test_without_differences_it_is_taken_over(hub: Hub, comparison: str) -> None:
    foreign(hub, x="1")
    version = hub.version(
        "v1",
        hub.config_map("a", x="1"),
        when_to_take_over="IfNoDiff",
        comparison=comparison,
    )

    assert hub.driver().apply(version) == Applied("v1", changed=True)


def test_full_comparison_finds_what_the_manifest_does_not_set(hub: Hub) -> None:
    foreign(hub, x="1", y="2")
    options: dict[str, Any] = {
        "when_to_take_over": "IfNoDiff",
        "comparison": "FullComparison",
    }

    error = rejected(
        lambda: hub.driver().apply(
            hub.version("v1", hub.config_map("a", x="1"), **options)
        )
    )

    assert error.diffs[0].fields == (FieldDiff("/data/y", '"2"', ""),)


def test_an_owner_reference_needs_co_ownership(hub: Hub) -> None:
    parent = foreign(hub, "parent")["metadata"]
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "parent",
        "uid": parent["uid"],
    }
    child = hub.config_map("a", x="1")
    child["metadata"]["ownerReferences"] = [reference]
    hub.admin.create(hub.path("configmaps"), child)
    driver = hub.driver()

    refusal = only_refusal(
        lambda: driver.apply(hub.version("v1", hub.config_map("a", x="1")))
    )
    assert "owned by ConfigMap parent" in refusal.message

    assert driver.apply(
        hub.version("v1", hub.config_map("a", x="1"), allow_co_ownership=True)
    ).changed


def test_an_unforced_conflict_names_fields_and_managers(hub: Hub) -> None:
    foreign(hub)
    hub.admin.apply(
        hub.path("configmaps", "a"),
        hub.config_map("a", x="1", y="1"),
        manager="kubectl",
    )
    driver = hub.driver()
    version = hub.version(
        "v1", hub.config_map("a", x="2", y="2"), type="ServerSideApply"
    )

    refusal = only_refusal(lambda: driver.apply(version))

    assert ".data.x" in refusal.message
    assert ".data.y" in refusal.message
    assert 'conflict with "kubectl"' in refusal.message
    forced = hub.version("v2", *version.manifests, type="ServerSideApply", force=True)
    assert driver.apply(forced).changed
    assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {"x": "2", "y": "2"}


def test_wiped_field_ownership_is_no_conflict(hub: Hub) -> None:
    driver = hub.driver()
    version = hub.version(
        "v1",
        hub.namespace_manifest(),
        hub.config_map("a", x="1"),
        type="ServerSideApply",
    )
    driver.apply(version)
    hub.admin.merge(hub.path("configmaps", "a"), {"metadata": {"managedFields": [{}]}})

    changed = hub.version(
        "v2",
        hub.namespace_manifest(),
        hub.config_map("a", x="2"),
        type="ServerSideApply",
    )
    assert driver.apply(changed).changed


def applied(
    hub: Hub, *manifests: Mapping[str, Any], **options: Any
) -> tuple[Driver, Version]:
    driver = hub.driver()
    version = hub.version("v1", hub.namespace_manifest(), *manifests, **options)
    driver.apply(version)
    return driver, version


def test_what_others_change_is_overwritten_and_what_they_add_stays(hub: Hub) -> None:
    driver, version = applied(hub, hub.config_map("a", x="1"))
    hub.admin.merge(hub.path("configmaps", "a"), {"data": {"x": "9", "theirs": "1"}})

    (drift,) = hub.seen(driver, version_of=lambda _: version).drifted
    assert drift.object == ObjectRef.of(hub.config_map("a"))
    assert (drift.version, drift.fields) == (
        "v1",
        (FieldDiff("/data/x", '"9"', '"1"'),),
    )
    assert driver.apply(version).changed

    assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {
        "x": "1",
        "theirs": "1",
    }
    assert hub.seen(driver, version_of=lambda _: version).drifted == ()


def test_if_not_drifted_leaves_a_drifted_object_until_the_manifest_changes(
    hub: Hub,
) -> None:
    driver, version = applied(
        hub, hub.config_map("a", x="1"), when_to_apply="IfNotDrifted"
    )
    hub.admin.merge(hub.path("configmaps", "a"), {"data": {"x": "9"}})

    error = rejected(lambda: driver.apply(version))

    assert [refusal.code for refusal in error.refusals] == ["FoundDrifts"]
    assert error.drifts[0].fields == (FieldDiff("/data/x", '"9"', '"1"'),)
    assert hub.admin.get(hub.path("configmaps", "a"))["data"]["x"] == "9"
    newer = hub.version(
        "v2",
        hub.namespace_manifest(),
        hub.config_map("a", x="2"),
        when_to_apply="IfNotDrifted",
    )
    assert driver.apply(newer).changed


def test_an_object_that_changes_after_the_comparison_is_left_to_the_next_call(
    hub: Hub,
) -> None:
    driver, _ = applied(hub, hub.config_map("a", x="1"))
    newer = hub.version(
        "v2",
        hub.namespace_manifest(),
        hub.config_map("a", x="2"),
        when_to_apply="IfNotDrifted",
    )
    is_changed = False

    def change_between(
        method: str, path: str, send: Callable[[], Response]
    ) -> Response:
        nonlocal is_changed
        if (method, path) == ("PATCH", hub.path("configmaps", "a")) and not is_changed:
            is_changed = True
            hub.admin.merge(path, {"data": {"theirs": "1"}})
        return send()

    hub.recorders[-1].hook = change_between

    with pytest.raises(DriverPending) as caught:
        driver.apply(newer)
    assert [reference.name for reference in caught.value.remaining] == ["a"]
    assert driver.apply(newer).changed


def test_two_hubs_keep_apart_on_one_cluster(hub: Hub) -> None:
    version = hub.version("v1", hub.namespace_manifest(), hub.config_map("a", x="1"))
    hub.driver().apply(version)
    other = hub.driver(hub_id="99999999-other")

    error = rejected(lambda: other.apply(version))
    assert {refusal.code for refusal in error.refusals} == {"FailedToTakeOver"}
    assert other.observe(inventory=True).fences == {"web": 0}
    assert other.remove("web").existed

    assert hub.objects() == {f"Namespace {hub.namespace}", "ConfigMap a"}
    assert hub.seen(hub.driver()).missing == ()


def test_under_full_comparison_drift_is_reported_although_it_is_applied(
    hub: Hub,
) -> None:
    driver, version = applied(
        hub, hub.config_map("a", x="1"), comparison="FullComparison"
    )
    hub.admin.merge(hub.path("configmaps", "a"), {"data": {"theirs": "1"}})

    result = driver.apply(version)

    by_object = {diff.object.kind: diff.fields for diff in result.drifts}
    assert by_object["ConfigMap"] == (FieldDiff("/data/theirs", '"1"', ""),)
    assert by_object["Namespace"][0].path == "/spec"  # what the server sets counts, too


def test_untouched_objects_cost_no_dry_run_and_a_false_suspicion_one(hub: Hub) -> None:
    driver, version = applied(
        hub, hub.config_map("a", x="1"), hub.deployment("web", replicas=None)
    )
    hub.seen(driver, version_of=lambda _: version)
    # Not one of our fields, but the generation shows it.
    hub.admin.merge(hub.deployments("web"), {"spec": {"replicas": 5}})
    hub.requests.clear()

    assert hub.seen(driver, version_of=lambda _: version).drifted == ()
    dry_runs = [request for request in hub.requests if request[0] == "PATCH+dry"]
    assert len(dry_runs) == 1
    assert hub.seen(driver, version_of=lambda _: version).drifted == ()
    assert [
        request for request in hub.requests if request[0] == "PATCH+dry"
    ] == dry_runs

    hub.requests.clear()
    assert (
        driver.apply(version).changed is False
    )  # and now the inventory has the new generation
    assert hub.seen(hub.driver(), version_of=lambda _: version).drifted == ()
    assert not [request for request in hub.requests if request[0] == "PATCH+dry"]


def test_scaling_is_seen_by_the_generation(hub: Hub) -> None:
    driver, version = applied(hub, hub.deployment("web", replicas=1))
    hub.admin.merge(f"{hub.deployments('web')}/scale", {"spec": {"replicas": 3}})

    (drift,) = hub.seen(driver, version_of=lambda _: version).drifted

    assert drift.fields == (FieldDiff("/spec/replicas", "3", "1"),)


def test_the_replicas_of_an_autoscaler_are_no_drift_and_stay(hub: Hub) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    scaler = hub.manifest(
        "autoscaling/v1",
        "HorizontalPodAutoscaler",
        "web",
        spec={"scaleTargetRef": target, "maxReplicas": 5},
    )
    driver, version = applied(hub, hub.deployment("web", replicas=1), scaler)
    hub.admin.merge(f"{hub.deployments('web')}/scale", {"spec": {"replicas": 3}})

    assert hub.seen(driver, version_of=lambda _: version).drifted == ()
    changed = replace(
        version, id="v2", manifests=(*version.manifests, hub.config_map("new"))
    )
    driver.apply(changed)
    assert hub.admin.get(hub.deployments("web"))["spec"]["replicas"] == 3


def test_a_missing_or_replaced_object_is_missing(hub: Hub) -> None:
    driver, version = applied(hub, hub.config_map("a"), hub.config_map("b"))
    hub.admin.delete(hub.path("configmaps", "a"))
    hub.admin.delete(hub.path("configmaps", "b"))
    foreign(hub, "b")

    seen = hub.seen(driver)

    assert [reference.name for reference in seen.missing] == ["a", "b"]
    assert driver.apply(version).changed
    assert hub.seen(driver).missing == ()


def test_an_edited_owner_is_drift_and_then_a_failed_takeover(hub: Hub) -> None:
    driver, version = applied(hub, hub.config_map("a"))
    hub.admin.merge(
        hub.path("configmaps", "a"),
        {"metadata": {"annotations": {"fleetui.io/owner": "another/web"}}},
    )

    (drift,) = hub.seen(driver).drifted
    assert drift.fields[0].path == "/metadata/annotations/fleetui.io~1owner"
    assert only_refusal(lambda: driver.apply(version)).code == "FailedToTakeOver"


def test_the_values_of_a_secret_are_redacted_in_drift(hub: Hub) -> None:
    secret = hub.manifest("v1", "Secret", "keys", data={"password": "aHVudGVyMg=="})
    driver, version = applied(hub, secret)
    hub.admin.merge(hub.path("secrets", "keys"), {"data": {"password": "c3RvbGVu"}})

    (drift,) = hub.seen(driver, version_of=lambda _: version).drifted

    redacted = "(redacted for security reasons)"
    assert drift.fields == (FieldDiff("/data/password", redacted, redacted),)


def test_without_the_manifests_a_suspicion_counts_as_drift(hub: Hub) -> None:
    driver, _ = applied(hub, hub.config_map("a", x="1"))
    hub.admin.merge(hub.path("configmaps", "a"), {"data": {"x": "9"}})

    (drift,) = hub.seen(driver).drifted

    assert drift.fields == ()


def test_readiness_comes_from_the_status_on_the_cluster(hub: Hub) -> None:
    driver, version = applied(
        hub, hub.deployment("web", replicas=0), hub.config_map("a")
    )

    repeat(lambda: driver.apply(version))
    seen = hub.seen(driver)
    for _ in range(100):
        if seen.readiness is Readiness.AVAILABLE:
            break
        seen = hub.seen(driver)
    assert seen.readiness is Readiness.AVAILABLE

    driver.apply(
        hub.version("v2", hub.namespace_manifest(), hub.deployment("web", replicas=2))
    )
    (unready,) = hub.seen(driver).unready
    assert unready.readiness is Readiness.NOT_YET


def test_health_names_the_failing_checks(hub: Hub) -> None:
    driver = hub.driver()
    text = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/x failed: ...\nreadyz check failed"
    hub.recorders[-1].hook = lambda _, path, send: (
        Response(500, {}, text) if path == "/readyz" else send()
    )

    seen = driver.observe()

    assert not seen.is_healthy
    assert seen.health_message == "failing checks: etcd, poststarthook/x"
