"""Server-side apply on a real API server (`rules/kubernetes-driver.md#ownership-and-inventory`)."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.drivers.base import (
    Applied,
    DriverPending,
    DriverRejected,
    ObjectRef,
    Refusal,
)
from clusters.drivers.kubernetes.client import Response
from clusters.drivers.kubernetes.inventory import read_inventory
from clusters.drivers.kubernetes.targets import applyset_id, inventory_name
from clusters.drivers.readiness import Readiness
from tests.kubernetes.members import Hub, kube_version, policy_version, repeat
from tests.runtime.processes import eventually

NOT_SERVED = "v1beta1" if policy_version() == "v1" else "v1"


def refusals(call: Any) -> list[Refusal]:
    with pytest.raises(DriverRejected) as caught:
        call()
    return list(caught.value.refusals)


def test_objects_carry_label_and_annotations_and_the_inventory_records_them(
    hub: Hub,
) -> None:
    settings = hub.config_map("settings", a="1")
    driver = hub.driver()

    assert driver.apply(
        hub.version("v1", hub.namespace_manifest(), settings)
    ) == Applied("v1", changed=True)

    live = hub.admin.get(hub.path("configmaps", "settings"))
    part_of = applyset_id(inventory_name(hub.hub_id, "web"))
    assert live["metadata"]["labels"] == {"applyset.kubernetes.io/part-of": part_of}
    annotations = live["metadata"]["annotations"]
    assert annotations["fleetui.io/owner"] == f"{hub.hub_id}/web"
    assert "fleetui.io/taken-over" not in annotations
    assert len(annotations["fleetui.io/manifest-hash"]) == 32

    stored = hub.admin.get(hub.inventory_path)
    assert stored["metadata"]["labels"]["applyset.kubernetes.io/id"] == part_of
    assert (
        stored["metadata"]["annotations"]["applyset.kubernetes.io/tooling"]
        == "fleetui/v1"
    )
    assert (
        stored["metadata"]["annotations"]["applyset.kubernetes.io/contains-group-kinds"]
        == "ConfigMap,Namespace"
    )
    assert (
        stored["metadata"]["annotations"][
            "applyset.kubernetes.io/additional-namespaces"
        ]
        == hub.namespace
    )
    inventory = read_inventory(driver._access, "web", deadline=9e9)
    record = inventory.entries[ObjectRef.of(settings)]
    assert (inventory.version, inventory.whole, inventory.incomplete) == (
        "v1",
        "v1",
        (),
    )
    assert record.uid == live["metadata"]["uid"]
    assert record.hash == annotations["fleetui.io/manifest-hash"]
    assert len(record.fields) == 16
    assert record.generation == live["metadata"]["resourceVersion"]


def test_the_same_version_again_changes_nothing(hub: Hub) -> None:
    version = hub.version(
        "v1",
        hub.namespace_manifest(),
        hub.config_map("a", x="1"),
        hub.deployment("web"),
    )
    driver = hub.driver()
    driver.apply(version)
    hub.requests.clear()

    assert driver.apply(version) == Applied("v1", changed=False)
    assert hub.recorders[-1].writes == []
    assert len(hub.requests) == 4


def test_an_equal_value_in_another_spelling_is_no_change(hub: Hub) -> None:
    manifest = hub.deployment("web")
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1000m"}}
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), manifest))

    assert (
        driver.apply(hub.version("v1", hub.namespace_manifest(), manifest)).changed
        is False
    )


def test_what_a_new_version_no_longer_sets_or_selects_is_removed(hub: Hub) -> None:
    driver = hub.driver()
    first = (
        hub.namespace_manifest(),
        hub.config_map("a", x="1", y="2"),
        hub.config_map("b"),
    )
    driver.apply(hub.version("v1", *first))

    assert driver.apply(
        hub.version("v2", hub.namespace_manifest(), hub.config_map("a", x="1"))
    ).changed

    assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {"x": "1"}
    assert hub.objects() == {f"Namespace {hub.namespace}", "ConfigMap a"}


def test_a_refused_object_stops_no_other_and_pruning_waits(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(
        hub.version(
            "v1", hub.namespace_manifest(), hub.config_map("a"), hub.config_map("b")
        )
    )
    bad = hub.config_map("Bad_Name")

    (refusal,) = refusals(
        lambda: driver.apply(
            hub.version("v2", hub.namespace_manifest(), bad, hub.config_map("c"))
        )
    )

    assert (refusal.object, refusal.code) == (ObjectRef.of(bad), "ManifestApplyFailed")
    assert hub.objects() == {
        f"Namespace {hub.namespace}",
        "ConfigMap a",
        "ConfigMap b",
        "ConfigMap c",
    }
    seen = hub.seen(driver)
    assert (seen.version, seen.whole_version, seen.refusals) == ("v2", "v1", (refusal,))
    driver.apply(hub.version("v3", hub.namespace_manifest(), hub.config_map("c")))
    assert hub.objects() == {f"Namespace {hub.namespace}", "ConfigMap c"}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (
            {"metadata": {"generateName": "a-"}},
            "FoundGenerateName",
            "set metadata.name",
        ),
        ({"metadata": {}}, "DecodingErred", "metadata.name is missing"),
        (
            {"kind": "ConfigMapList", "items": []},
            "DecodingErred",
            "a list is not one object",
        ),
        ({"kind": "Namespace"}, "DecodingErred", "Namespace is cluster-scoped"),
        ({"kind": "Unicorn"}, "KindNotServed", "the cluster serves no Unicorn in v1"),
        (
            {"apiVersion": "no.example/v1"},
            "KindNotServed",
            "no ConfigMap in no.example/v1",
        ),
        (
            {"apiVersion": f"policy/{NOT_SERVED}", "kind": "PodDisruptionBudget"},
            "KindNotServed",
            f"serves no PodDisruptionBudget in policy/{NOT_SERVED}; it serves {policy_version()}",
        ),
        pytest.param(
            {"apiVersion": "extensions/v1beta1", "kind": "Ingress"},
            "KindNotServed",
            "serves no Ingress in extensions/v1beta1; it serves networking.k8s.io/v1",
            marks=pytest.mark.skipif(
                policy_version() != "v1", reason="it serves extensions/v1beta1"
            ),
        ),
        ({"kind": "ComponentStatus"}, "KindNotServed", "has no verb patch"),
        (
            {"metadata": {"name": "c", "namespace": "not-there"}},
            "ManifestApplyFailed",
            "select it too",
        ),
        ({"data": {"x": 5}}, "ManifestApplyFailed", ""),
        ({"data": {"x": "y" * 1_100_000}}, "ManifestApplyFailed", ""),
    ],
)
def test_what_cannot_be_applied_is_refused_by_code(
    hub: Hub, change: dict[str, Any], code: str, message: str
) -> None:
    manifest = hub.config_map("c") | change

    (refusal,) = refusals(
        lambda: hub.driver().apply(
            hub.version("v1", hub.namespace_manifest(), manifest)
        )
    )

    assert refusal.code == code
    assert message in refusal.message
    assert len(refusal.message) <= 500
    assert f"Namespace {hub.namespace}" in hub.objects()


def test_the_second_of_two_equal_objects_is_refused(hub: Hub) -> None:
    manifest = hub.config_map("same", x="1")
    same = {**manifest, "data": {"x": "2"}}

    (refusal,) = refusals(
        lambda: hub.driver().apply(
            hub.version("v1", hub.namespace_manifest(), manifest, same)
        )
    )

    assert refusal.code == "Duplicated"
    assert hub.admin.get(hub.path("configmaps", "same"))["data"] == {"x": "1"}


def test_a_namespaced_object_without_a_namespace_is_in_default(hub: Hub) -> None:
    name = f"d-{hub.hub_id[:8]}"
    written = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    twice = {**written, "metadata": {"name": name, "namespace": "default"}}

    (refusal,) = refusals(lambda: hub.driver().apply(hub.version("v1", written, twice)))

    assert refusal.code == "Duplicated"
    assert hub.admin.has(f"/api/v1/namespaces/default/configmaps/{name}")


def test_a_definition_is_established_before_its_resources(hub: Hub) -> None:
    group = f"g{hub.hub_id[:8]}.example"
    version = hub.version("v1", *custom(hub, group))
    driver = hub.driver()

    applied = repeat(lambda: driver.apply(version))
    again = driver.apply(version)

    assert (applied.changed, again.changed) == (True, False)
    live = hub.admin.get(hub.path("tabs", "one", root=f"/apis/{group}/v1"))
    assert live["spec"] == {"title": "", "rows": 3}


def test_a_kind_that_discovery_has_not_yet_is_waited_for(hub: Hub) -> None:
    group = f"l{hub.hub_id[:8]}.example"
    driver = hub.driver()
    late = iter([Response(404, {})] * 2)
    hub.recorders[-1].hook = lambda _, path, send: (
        next(late, None) or send() if path == f"/apis/{group}/v1" else send()
    )
    version = hub.version("v1", *custom(hub, group))

    with pytest.raises(DriverPending) as caught:
        driver.apply(version)

    assert [reference.kind for reference in caught.value.remaining] == ["Tab"]
    assert repeat(lambda: driver.apply(version)).changed


def test_without_its_definition_a_custom_resource_is_refused(hub: Hub) -> None:
    tab, namespace, definition = custom(hub, f"r{hub.hub_id[:8]}.example")
    definition["spec"]["scope"] = "Nowhere"

    found = refusals(
        lambda: hub.driver().apply(hub.version("v1", namespace, definition, tab))
    )

    assert {refusal.object.kind: refusal.code for refusal in found} == {
        "CustomResourceDefinition": "ManifestApplyFailed",
        "Tab": "KindNotServed",
    }


def custom(hub: Hub, group: str) -> tuple[dict[str, Any], ...]:
    fields = {"title": {"type": "string"}, "rows": {"type": "integer"}}
    schema = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": fields}},
    }
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"tabs.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": "tabs",
                "singular": "tab",
                "kind": "Tab",
                "listKind": "TabList",
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
    tab = hub.manifest(f"{group}/v1", "Tab", "one", spec={"title": "", "rows": 3})
    return tab, hub.namespace_manifest(), definition


def test_a_definition_that_goes_takes_its_kind_along(hub: Hub) -> None:
    group = f"h{hub.hub_id[:8]}.example"
    tab, namespace, definition = custom(hub, group)
    driver = hub.driver()
    repeat(lambda: driver.apply(hub.version("v1", tab, namespace, definition)))

    repeat(lambda: driver.apply(hub.version("v2", namespace)))
    (refusal,) = refusals(lambda: driver.apply(hub.version("v3", namespace, tab)))

    assert refusal.code == "KindNotServed"
    assert not hub.admin.has(
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tabs.{group}"
    )


JOB_SPEC: dict[str, Any] = {
    "template": {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "once:1"}],
        }
    }
}


def job(hub: Hub, image: str, **annotations: str) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}
    spec = {"template": {"spec": pod}}
    return hub.manifest(
        "batch/v1", "Job", "once", spec=spec, metadata={"annotations": annotations}
    )


def test_a_changed_job_is_refused_with_a_hint(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), job(hub, "once:1")))

    (refusal,) = refusals(
        lambda: driver.apply(
            hub.version("v2", hub.namespace_manifest(), job(hub, "once:2"))
        )
    )

    assert "immutable" in refusal.message
    assert refusal.message.endswith(
        "(a Job cannot be changed: use another name, or allow recreation)"
    )


def test_a_job_that_may_be_recreated_is_deleted_and_created(hub: Hub) -> None:
    driver = hub.driver()
    manifests = [
        job(hub, image, **{"fleetui.io/recreate": "allowed"})
        for image in ("once:1", "once:2")
    ]
    driver.apply(hub.version("v1", hub.namespace_manifest(), manifests[0]))

    with pytest.raises(DriverPending):
        driver.apply(hub.version("v2", hub.namespace_manifest(), manifests[1]))
    applied = repeat(
        lambda: driver.apply(hub.version("v2", hub.namespace_manifest(), manifests[1]))
    )

    assert applied.changed
    live = hub.admin.get(hub.path("jobs", "once", root="/apis/batch/v1"))
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "once:2"


def test_a_job_that_its_time_to_live_removed_is_not_run_again(hub: Hub) -> None:
    driver = hub.driver()
    path = hub.path("jobs", "once", root="/apis/batch/v1")
    manifest = job(hub, "once:1")
    manifest["spec"]["ttlSecondsAfterFinished"] = 5
    version = hub.version("v1", hub.namespace_manifest(), manifest)
    driver.apply(version)
    hub.admin.call("DELETE", path, body={"propagationPolicy": "Background"})
    eventually(lambda: not hub.admin.has(path))

    seen = hub.seen(driver)
    if kube_version() < (
        1,
        21,
    ):  # the server drops the field, and lets no Job end itself: this one was lost
        assert seen.missing == (ObjectRef.of(manifest),)
        assert driver.apply(version).changed
        assert "ttlSecondsAfterFinished" not in hub.admin.get(path)["spec"]
        return

    applied = driver.apply(version)

    assert seen.missing == ()
    assert [
        (object_seen.object.name, object_seen.readiness) for object_seen in seen.unready
    ] == [("once", Readiness.NOT_TRACKABLE)]
    assert not applied.changed
    assert not hub.admin.has(path)

    changed = job(hub, "once:2")
    changed["spec"]["ttlSecondsAfterFinished"] = 5
    driver.apply(hub.version("v2", hub.namespace_manifest(), changed))
    assert hub.admin.has(path)


def test_a_terminating_namespace_is_waited_for(hub: Hub) -> None:
    driver = hub.driver()
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    stuck = hub.config_map("stuck") | {
        "metadata": {"name": "stuck", "finalizers": ["example.com/keep"]}
    }
    hub.admin.create(hub.path("configmaps"), stuck)
    hub.admin.delete(hub.namespace_path)

    with pytest.raises(DriverPending) as caught:
        driver.apply(hub.version("v1", hub.config_map("a")))

    assert caught.value.remaining == (ObjectRef.of(hub.config_map("a")),)
    hub.admin.merge(hub.path("configmaps", "stuck"), {"metadata": {"finalizers": None}})


def test_an_object_that_is_being_deleted_is_refused_until_it_is_gone(hub: Hub) -> None:
    driver = hub.driver()
    manifests = hub.namespace_manifest(), hub.config_map("a")
    hub.admin.create("/api/v1/namespaces", hub.namespace_manifest())
    kept = {
        **manifests[1],
        "metadata": {"name": "a", "finalizers": ["example.com/keep"]},
    }
    hub.admin.create(hub.path("configmaps"), kept)
    hub.admin.delete(hub.path("configmaps", "a"))

    (refusal,) = refusals(lambda: driver.apply(hub.version("v1", *manifests)))
    assert refusal.message.endswith(
        "is being deleted; applied again once it is deleted"
    )

    hub.admin.merge(hub.path("configmaps", "a"), {"metadata": {"finalizers": None}})
    assert driver.apply(hub.version("v1", *manifests)).changed


def test_the_values_of_a_secret_are_in_no_message(hub: Hub) -> None:
    driver = hub.driver()
    first = hub.manifest(
        "v1",
        "Secret",
        "keys",
        immutable=True,
        stringData={"password": "hunter2-hunter2"},
    )
    driver.apply(hub.version("v1", hub.namespace_manifest(), first))
    second = {
        **first,
        "stringData": {"password": "correct-horse"},
        "type": "correct-horse",
    }

    (refusal,) = refusals(
        lambda: driver.apply(hub.version("v2", hub.namespace_manifest(), second))
    )

    assert "correct-horse" not in refusal.message
    assert "hunter2" not in refusal.message


def test_a_lost_inventory_is_rebuilt_and_leftovers_are_pruned(hub: Hub) -> None:
    driver = hub.driver()
    first = hub.version(
        "v1", hub.namespace_manifest(), hub.config_map("a"), hub.config_map("b")
    )
    driver.apply(first)
    hub.admin.delete(hub.inventory_path)

    assert driver.observe("web").of("web") is None
    lost = hub.version(
        "v2", hub.namespace_manifest(), hub.config_map("a"), was_applied=True
    )
    assert driver.apply(replace(lost, kinds=first.kinds)).changed

    assert hub.objects() == {f"Namespace {hub.namespace}", "ConfigMap a"}
    assert hub.seen(driver).notice == ""


def test_a_lost_inventory_is_noticed_by_the_owner_of_an_object(hub: Hub) -> None:
    driver = hub.driver()
    first = hub.version(
        "v1", hub.namespace_manifest(), hub.config_map("a"), hub.config_map("b")
    )
    driver.apply(first)
    hub.admin.delete(hub.inventory_path)

    driver.apply(
        replace(
            hub.version("v2", hub.namespace_manifest(), hub.config_map("a")),
            kinds=first.kinds,
        )
    )

    assert "ConfigMap b" not in hub.objects()


def test_without_permission_to_list_a_notice_says_that_leftovers_may_remain(
    hub: Hub,
) -> None:
    driver = hub.driver()
    first = hub.version(
        "v1", hub.namespace_manifest(), hub.config_map("a"), hub.config_map("b")
    )
    driver.apply(first)
    hub.admin.delete(hub.inventory_path)
    forbidden = Response(403, {"kind": "Status", "message": "configmaps is forbidden"})
    hub.recorders[-1].hook = lambda _, path, send: (
        forbidden if path == "/api/v1/configmaps" else send()
    )

    lost = replace(
        hub.version("v2", hub.namespace_manifest(), hub.config_map("a")),
        kinds=first.kinds,
    )
    driver.apply(lost)
    assert hub.seen(driver).notice == "leftovers of older versions may remain"
    assert "ConfigMap b" in hub.objects()

    hub.recorders[-1].hook = None
    driver.apply(lost)
    assert hub.seen(driver).notice == ""
    assert "ConfigMap b" not in hub.objects()


def test_an_inventory_of_another_hub_is_refused(hub: Hub) -> None:
    driver = hub.driver()
    version = hub.version("v1", hub.namespace_manifest())
    driver.apply(version)
    hub.admin.merge(
        hub.inventory_path,
        {"metadata": {"annotations": {"fleetui.io/owner": "another/web"}}},
    )

    for call in (
        lambda: driver.apply(version),
        lambda: driver.remove("web"),
        lambda: driver.observe("web"),
    ):
        with pytest.raises(DriverRejected) as caught:
            call()
        assert caught.value.code == "OwnedByAnotherHub"


def test_too_many_objects_are_refused_before_any_write(hub: Hub) -> None:
    driver = hub.driver()
    many = hub.version("v1", *(hub.config_map(f"c{i}") for i in range(4_001)))

    with pytest.raises(DriverRejected) as caught:
        driver.apply(many)

    assert caught.value.code == "TooManyObjects"
    assert hub.recorders[-1].writes == []


def test_without_permission_for_the_inventory_the_whole_call_is_rejected(
    hub: Hub,
) -> None:
    driver = hub.driver()
    forbidden = Response(403, {"kind": "Status", "message": "configmaps is forbidden"})
    hub.recorders[-1].hook = lambda _, path, send: (
        forbidden if "fleetui-system" in path else send()
    )

    with pytest.raises(DriverRejected) as caught:
        driver.apply(hub.version("v1", hub.namespace_manifest()))

    assert (caught.value.code, caught.value.refusals) == ("InventoryRefused", ())
    assert "the role has no permission for the inventory" in str(caught.value)


def test_refusals_are_limited_and_counted(hub: Hub) -> None:
    driver = hub.driver()
    bad = [hub.config_map(f"Bad_{i}") for i in range(105)]

    assert (
        len(
            refusals(
                lambda: driver.apply(hub.version("v1", hub.namespace_manifest(), *bad))
            )
        )
        == 105
    )

    inventory = read_inventory(driver._access, "web", deadline=9e9)
    assert (len(inventory.refusals), inventory.refusal_count) == (100, 105)


@pytest.mark.skipif(
    kube_version() < (1, 33), reason="Endpoints are deprecated since 1.33"
)
def test_the_warnings_of_the_server_are_kept_with_the_apply_and_the_dry_run(
    hub: Hub,
) -> None:
    outside = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": "outside", "namespace": hub.namespace},
        "subsets": [{"addresses": [{"ip": "10.9.9.9"}], "ports": [{"port": 80}]}],
    }
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest()))
    version = hub.version("v2", hub.namespace_manifest(), hub.config_map("a"), outside)

    def warned(result: Any) -> dict[str, tuple[str, ...]]:
        return {warning.object.name: warning.messages for warning in result.warnings}

    tried = warned(driver.diff(version, as_apply=True))
    applied = warned(driver.apply(version))

    for found in (tried, applied):
        assert found["a"] == ()
        assert "Endpoints is deprecated" in found["outside"][0]
    removed = warned(
        driver.apply(hub.version("v3", hub.namespace_manifest(), hub.config_map("a")))
    )
    assert removed.keys() == {"outside"}
