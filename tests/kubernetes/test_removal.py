"""Remove, release and leave on a real API server (`rules/kubernetes-driver.md#removal`)."""

from dataclasses import replace
from typing import Any

import pytest

from clusters.drivers.base import (
    Applied,
    ApplyOptions,
    Driver,
    DriverPending,
    DriverRejected,
    ObjectRef,
    Version,
)
from clusters.drivers.kubernetes.client import Response
from tests.kubernetes.members import Hub, await_true, repeat


def test_a_removed_placement_leaves_nothing(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(
        hub.version(
            "v1", hub.namespace_manifest(), hub.config_map("a"), hub.deployment("web")
        )
    )

    assert repeat(lambda: driver.remove("web")).existed

    assert not hub.admin.has(hub.namespace_path)
    assert not hub.admin.has(hub.inventory_path)
    assert not driver.remove("web").existed


def test_objects_go_in_reverse_wave_order(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(
        hub.version(
            "v1", hub.namespace_manifest(), hub.config_map("a"), hub.deployment("web")
        )
    )
    hub.requests.clear()

    with pytest.raises(DriverPending):
        driver.remove("web")

    deleted = [
        path.rsplit("/", 2)[1] for method, path, _ in hub.requests if method == "DELETE"
    ]
    assert deleted == ["deployments", "configmaps", "namespaces"]


def test_a_namespace_that_was_taken_over_is_released(hub: Hub) -> None:
    hub.admin.create(
        "/api/v1/namespaces", hub.namespace_manifest(labels={"theirs": "1"})
    )
    driver = hub.driver()
    driver.apply(
        hub.version(
            "v1", hub.namespace_manifest(labels={"ours": "1"}), hub.config_map("a")
        )
    )

    assert driver.remove("web").existed

    left = hub.admin.get(hub.namespace_path)["metadata"]
    assert "annotations" not in left
    assert "applyset.kubernetes.io/part-of" not in left["labels"]
    assert left["labels"]["theirs"] == "1"
    assert not hub.admin.has(hub.path("configmaps", "a"))


def test_a_namespace_with_objects_of_another_placement_stays(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.config_map("a")))
    other = Version("x1", "other", (hub.config_map("b"),))
    driver.apply(other)

    with pytest.raises(DriverRejected) as caught:
        driver.remove("web")

    (refusal,) = caught.value.refusals
    assert (
        refusal.message == f"Namespace {hub.namespace} is still used by placement other"
    )
    assert not hub.admin.has(hub.path("configmaps", "a"))
    driver.remove("other")
    assert repeat(lambda: driver.remove("web")).existed


def test_a_namespace_that_another_placement_waits_for_is_released_to_it(
    hub: Hub,
) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.config_map("a")))
    other = Version("x1", "other", (hub.namespace_manifest(), hub.config_map("b")))
    with pytest.raises(DriverRejected):
        driver.apply(other)

    assert repeat(lambda: driver.remove("web")).existed

    assert driver.apply(other).changed
    assert not hub.admin.has(hub.path("configmaps", "a"))
    assert hub.admin.has(hub.path("configmaps", "b"))


def test_a_finalizer_keeps_the_removal_pending_and_names_what_remains(hub: Hub) -> None:
    driver = hub.driver()
    kept = hub.config_map("kept")
    driver.apply(
        hub.version("v1", hub.namespace_manifest(), kept, hub.config_map("gone"))
    )
    hub.admin.merge(
        hub.path("configmaps", "kept"),
        {"metadata": {"finalizers": ["example.com/keep"]}},
    )

    def message() -> str:
        with pytest.raises(DriverPending) as caught:
            driver.remove("web")
        assert ObjectRef.of(kept) in caught.value.remaining
        return str(caught.value)

    assert "example.com/keep" in message()
    await_true(lambda: "and 1 more" in message())

    def namespace_conditions() -> bool:
        conditions = hub.admin.get(hub.namespace_path)["status"].get("conditions") or ()
        return any(
            condition["type"] == "NamespaceFinalizersRemaining"
            for condition in conditions
        )

    await_true(namespace_conditions)
    hub.admin.merge(hub.path("configmaps", "kept"), {"metadata": {"finalizers": None}})
    assert repeat(lambda: driver.remove("web")).existed


def test_a_pruned_object_with_a_finalizer_is_waited_for(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.config_map("a")))
    hub.admin.merge(
        hub.path("configmaps", "a"), {"metadata": {"finalizers": ["example.com/keep"]}}
    )
    second = hub.version("v2", hub.namespace_manifest())

    with pytest.raises(DriverPending, match="waiting until ConfigMap"):
        driver.apply(second)
    assert (hub.seen(driver).version, hub.seen(driver).whole_version) == ("v2", "v1")

    hub.admin.merge(hub.path("configmaps", "a"), {"metadata": {"finalizers": None}})
    assert driver.apply(second).version == "v2"
    assert hub.seen(driver).whole_version == "v2"


def test_an_object_that_is_no_longer_ours_stays(hub: Hub) -> None:
    driver = hub.driver()
    driver.apply(hub.version("v1", hub.namespace_manifest(), hub.config_map("a")))
    hub.admin.delete(hub.path("configmaps", "a"))
    hub.admin.create(hub.path("configmaps"), hub.config_map("a"))

    driver.apply(hub.version("v2", hub.namespace_manifest()))

    assert hub.admin.has(hub.path("configmaps", "a"))


def forbidding(*parts: str) -> Any:
    forbidden = Response(403, {"kind": "Status", "message": "forbidden"})
    return lambda _, path, send: forbidden if path.endswith(parts) else send()


def test_a_refusal_of_one_object_stops_no_other(hub: Hub) -> None:
    driver = hub.driver()
    names = ("a", "b", "c")
    driver.apply(
        hub.version(
            "v1", hub.namespace_manifest(), *(hub.config_map(name) for name in names)
        )
    )
    hub.recorders[-1].hook = forbidding(
        "configmaps/a", "configmaps/b", hub.namespace_path
    )

    with pytest.raises(DriverRejected) as caught:
        driver.remove("web")

    assert not hub.admin.has(hub.path("configmaps", "c"))
    assert {refusal.object.name for refusal in caught.value.refusals} >= {"a", "b"}
    hub.recorders[-1].hook = None
    assert repeat(lambda: driver.remove("web")).existed


def test_what_was_never_applied_does_not_stop_the_removal(hub: Hub) -> None:
    driver = hub.driver()
    hub.recorders[-1].hook = forbidding("secrets/keys")
    secret = hub.manifest("v1", "Secret", "keys", data={})
    tab = hub.manifest("no.example/v1", "Tab", "one")
    with pytest.raises(DriverRejected):
        driver.apply(hub.version("v1", hub.config_map("x"), secret, tab))

    assert driver.remove("web").existed


@pytest.mark.parametrize(
    "options", [{}, {"comparison": "FullComparison"}, {"type": "ServerSideApply"}]
)
def test_released_objects_stay_without_our_metadata_and_can_be_taken_over(
    hub: Hub, options: dict[str, Any]
) -> None:
    driver = hub.driver()
    driver.apply(
        hub.version(
            "v1",
            hub.namespace_manifest(),
            hub.config_map("a", x="1"),
            hub.deployment("web"),
        )
    )

    assert repeat(
        lambda: driver.release("web")
    ).existed  # the controller may change the Deployment meanwhile
    assert not driver.release("web").existed

    left = hub.admin.get(hub.path("configmaps", "a"))
    assert left["data"] == {"x": "1"}
    assert "annotations" not in left["metadata"]
    assert "labels" not in left["metadata"]
    assert not hub.admin.has(hub.inventory_path)
    # A later takeover that does not set the field leaves it.
    other = Version("x1", "other", (hub.config_map("a", y="2"),))
    assert driver.apply(replace(other, options=ApplyOptions(**options))).changed
    assert hub.admin.get(hub.path("configmaps", "a"))["data"] == {"x": "1", "y": "2"}


def test_a_cluster_that_left_joins_again_without_a_takeover(hub: Hub) -> None:
    driver = hub.driver()
    version = hub.version(
        "v1", hub.namespace_manifest(), hub.config_map("a"), when_to_take_over="Never"
    )
    driver.apply(version)
    hub.requests.clear()

    driver.leave()

    assert hub.requests == []
    assert hub.driver().apply(version) == Applied("v1", changed=False)


def test_during_a_removal_no_version_is_there(hub: Hub) -> None:
    driver = hub.driver()
    version = hub.version("v1", hub.namespace_manifest(), hub.config_map("a"))
    driver.apply(version)
    with pytest.raises(DriverPending):
        driver.remove("web")

    seen = driver.observe("web").of("web")
    assert seen is None or (seen.version, seen.whole_version) == ("", "")
    assert repeat(lambda: _applied(driver, version)).changed


def _applied(driver: Driver, version: Version) -> Applied:
    """Apply, and treat what is refused because it is being deleted as pending, as a rollout does."""
    try:
        return driver.apply(version)
    except DriverRejected as error:
        raise DriverPending(str(error)) from error
