"""Resources on the hub: applied, deleted, selected, frozen in snapshots."""

from typing import Any

import pytest

from fleetui.apimachinery.errors import InvalidManifest
from fleetui.models import Event
from placements.models import Placement, Resource, ResourceSnapshot
from placements.services.placements import save_placement
from placements.services.resources.operations import (
    UnknownResourceError,
    apply_resource,
    apply_resources,
    delete_resource,
)
from placements.services.results import OperationResult
from tests.rows import (
    NOW,
    all_joined,
    config_map,
    decided,
    namespace,
    placement_document,
    run_due,
    saved,
    spec,
)

pytestmark = [pytest.mark.django_db, pytest.mark.servers]

SHOP = ("", "Namespace", "", "shop")


def applied(*documents: dict[str, Any]) -> list[OperationResult]:
    """Apply documents and return the result of each."""
    return [
        resource.result for resource in apply_resources(documents, by=None, now=NOW)
    ]


def latest_snapshot() -> ResourceSnapshot:
    """Return the newest resource snapshot."""
    return ResourceSnapshot.objects.get(is_latest=True)


def names_in(snapshot: ResourceSnapshot) -> list[str]:
    """Return the names of the objects in a snapshot, in order."""
    return [
        manifest["metadata"]["name"]
        for part in snapshot.parts.order_by("position")
        for manifest in part.manifests
    ]


def test_applying_twice_does_nothing_twice() -> None:
    assert applied(namespace("shop"), config_map("web")) == [
        OperationResult.CREATED,
        OperationResult.CREATED,
    ]
    assert applied(namespace("shop"), config_map("web")) == [
        OperationResult.UNCHANGED,
        OperationResult.UNCHANGED,
    ]
    assert applied(config_map("web", data={"a": "b"})) == [OperationResult.CHANGED]
    assert Resource.objects.get(kind="ConfigMap").revision == 2


def test_an_object_needs_its_namespace() -> None:
    with pytest.raises(InvalidManifest) as caught:
        apply_resource(config_map("web"), by=None, now=NOW)

    assert [(error.path, error.code) for error in caught.value.errors] == [
        ("metadata.namespace", "not-on-the-hub")
    ]
    assert not Resource.objects.exists()


def test_an_object_above_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(InvalidManifest, match="MiB"):
        applied(namespace("shop"), config_map("web", data={"a": "x" * 1_600_000}))


def test_a_namespace_goes_with_everything_in_it() -> None:
    applied(namespace("shop"), config_map("web"), namespace("other"))

    gone = delete_resource(SHOP, by=None, now=NOW)

    assert [row.name for row in gone] == ["web", "shop"]
    assert [row.name for row in Resource.objects.all()] == ["other"]
    assert Event.objects.filter(verb="deleted").count() == 2


def test_deleting_what_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownResourceError, match="Namespace shop"):
        delete_resource(SHOP, by=None, now=NOW)


def test_a_placement_freezes_what_it_selects() -> None:
    applied(namespace("shop"), config_map("web"))

    decided("web", spec())

    assert names_in(latest_snapshot()) == ["shop", "web"]


def test_a_new_object_in_a_selected_namespace_makes_a_new_snapshot() -> None:
    applied(namespace("shop"))
    decided("web", spec())

    applied(config_map("web"))
    run_due()

    assert (latest_snapshot().number, names_in(latest_snapshot())) == (
        1,
        ["shop", "web"],
    )


def test_several_objects_in_one_request_make_one_snapshot() -> None:
    applied(namespace("shop"))
    decided("web", spec())

    applied(config_map("a"), config_map("b"), config_map("c"))
    run_due()

    assert latest_snapshot().number == 1


def test_one_object_that_changes_is_called_by_its_name() -> None:
    applied(namespace("shop"), config_map("web"))
    decided("web", spec())

    applied(config_map("web", data={"colour": "blue"}))

    assert Placement.objects.get().trigger == "v1 ConfigMap shop/web changed"


def test_objects_elsewhere_concern_no_placement() -> None:
    applied(namespace("shop"))
    decided("web", spec())

    applied(namespace("other"), config_map("x", in_="other"))

    assert not Placement.objects.get().is_due


def test_a_staged_placement_has_no_snapshot_before_its_run() -> None:
    applied(namespace("shop"))

    decided("web", spec(strategy={"type": "External"}))

    assert not ResourceSnapshot.objects.exists()


def test_a_snapshot_is_split_at_800_kib() -> None:
    large = "x" * 500_000
    applied(
        namespace("shop"),
        config_map("a", data={"a": large}),
        config_map("b", data={"a": large}),
    )

    decided("web", spec())

    assert latest_snapshot().parts.count() == 2
    assert names_in(latest_snapshot()) == ["shop", "a", "b"]


def test_an_object_selected_twice_is_a_fault_of_parsing() -> None:
    applied(namespace("shop"))
    selectors = spec()["resourceSelectors"] * 2

    with pytest.raises(InvalidManifest) as caught:
        save_placement(
            placement_document("web", {"resourceSelectors": selectors}),
            by=None,
            now=NOW,
        )

    assert caught.value.errors[0].path == "spec.resourceSelectors[1]"
    assert not Placement.objects.exists()


def test_an_object_selected_twice_later_holds_the_placement_and_says_so() -> None:
    by_label = {
        "group": "",
        "version": "v1",
        "kind": "Namespace",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    applied(namespace("shop"))
    all_joined("a")
    placement = decided(
        "web", {"resourceSelectors": [*spec()["resourceSelectors"], by_label]}
    )
    assert placement.placed_count == 1

    applied(namespace("shop", a="b"))
    run_due()

    held = Placement.objects.get()
    assert [error["path"] for error in held.selection_faults] == [
        "spec.resourceSelectors[1]"
    ]
    assert (held.placed_count, held.is_due) == (1, False)
    applied(namespace("shop"))
    run_due()
    assert Placement.objects.get().selection_faults == []


def test_a_reserved_namespace_named_is_an_error_and_matched_is_left_out() -> None:
    applied(namespace("shop"), namespace("kube-public"))
    every = {"group": "", "version": "v1", "kind": "Namespace"}

    with pytest.raises(InvalidManifest, match="belongs to the hub"):
        saved("bad", {"resourceSelectors": [{**every, "name": "kube-public"}]})
    done = save_placement(
        placement_document("web", {"resourceSelectors": [every]}), by=None, now=NOW
    )
    run_due()

    assert ["kube-public" in warning.message for warning in done.warnings] == [True]
    assert names_in(latest_snapshot()) == ["shop"]
