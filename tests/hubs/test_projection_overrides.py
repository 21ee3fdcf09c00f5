"""Overrides, disruption budgets and evictions of a live hub, from its mirror (10.1)."""

from typing import Any

import pytest
from django.test import Client

from placements.models import (
    Binding,
    DisruptionBudget,
    Eviction,
    Override,
    OverrideSnapshot,
    OverrideTarget,
    ResourceSnapshot,
)
from placements.services.overrides.queries import applying_to
from tests.database import database_dump
from tests.hubs.hub_documents import (
    budget,
    condition,
    eviction,
    override,
    override_snapshot,
)
from tests.hubs.projecting import ProjectedHub
from tests.hubs.test_projection_placements import bound, put_web

pytestmark = pytest.mark.django_db
CLUSTER_OVERRIDE, CLUSTER_SNAPSHOT = (
    "ClusterResourceOverride",
    "ClusterResourceOverrideSnapshot",
)
OVERRIDE, SNAPSHOT = "ResourceOverride", "ResourceOverrideSnapshot"
BUDGET, EVICTION = (
    "ClusterResourcePlacementDisruptionBudget",
    "ClusterResourcePlacementEviction",
)


@pytest.fixture
def live() -> ProjectedHub:
    return ProjectedHub()


def test_overrides_are_listed_with_their_placement(
    live: ProjectedHub, admin_client: Client
) -> None:
    live.put(CLUSTER_OVERRIDE, override("tier"))
    namespaced = override("tier", namespace="shop")
    namespaced["spec"]["placement"]["scope"] = "Namespaced"
    live.put(OVERRIDE, namespaced)
    live.project()

    items = admin_client.get("/hubs/prod-eu/api/v1/overrides").json()["items"]
    assert {
        (item["kind"], item["namespace"], item["name"], item["placement"])
        for item in items
    } == {
        (CLUSTER_OVERRIDE, "", "tier", "web"),
        (OVERRIDE, "shop", "tier", "shop/web"),
    }
    shown = admin_client.get(
        f"/hubs/prod-eu/api/v1/overrides/{OVERRIDE}/shop/tier"
    ).json()
    assert shown["spec"] == namespaced["spec"]

    live.remove(CLUSTER_OVERRIDE, "tier")
    live.project()
    with live.scope():
        assert [one.label for one in Override.objects.all()] == ["shop/tier"]


def test_values_of_secrets_stay_on_the_hub(
    live: ProjectedHub, admin_client: Client
) -> None:
    written = override("tier")
    shop = {"group": "", "version": "v1", "kind": "Namespace", "name": "shop"}
    written["spec"]["clusterResourceSelectors"] = [shop]
    [rule] = written["spec"]["policy"]["overrideRules"]
    rule["jsonPatchOverrides"] = [{"op": "add", "path": "/Data/a", "value": "planted"}]
    live.put(CLUSTER_OVERRIDE, written)
    live.project()
    live.put(
        CLUSTER_OVERRIDE,
        {**written, "metadata": {**written["metadata"], "labels": {"a": "b"}}},
    )
    live.project()

    shown = admin_client.get(
        f"/hubs/prod-eu/api/v1/overrides/{CLUSTER_OVERRIDE}/-/tier"
    ).json()
    [patch] = shown["spec"]["policy"]["overrideRules"][0]["jsonPatchOverrides"]
    assert (patch["value"], "planted" in database_dump()) == ("(hidden)", False)


def test_an_override_of_a_newer_version_is_shown_without_what_is_new(
    live: ProjectedHub,
) -> None:
    odd = override("tier")
    odd["spec"]["newField"] = 1
    live.put(CLUSTER_OVERRIDE, odd)
    broken = override("broken")
    del broken["spec"]["policy"]
    live.put(CLUSTER_OVERRIDE, broken)
    live.project()

    assert live.mark(CLUSTER_OVERRIDE, "tier")[1:] == (["spec.newField"], "")
    assert live.mark(CLUSTER_OVERRIDE, "broken")[2] == "the manifest is not understood"
    with live.scope():
        assert [one.name for one in Override.objects.all()] == ["tier"]


def snapshots(live: ProjectedHub) -> list[Any]:
    columns = ("namespace", "override_name", "number", "is_latest", "content_hash")
    with live.scope():
        return list(OverrideSnapshot.objects.order_by(*columns).values_list(*columns))


@pytest.mark.servers
def test_snapshots_have_number_hash_and_latest_mark(live: ProjectedHub) -> None:
    live.put(
        CLUSTER_SNAPSHOT, override_snapshot("tier", 0), override_snapshot("tier-2", 4)
    )
    live.put(SNAPSHOT, override_snapshot("tier", 0, namespace="shop"))
    live.project()
    live.put(CLUSTER_SNAPSHOT, override_snapshot("tier", 1))
    live.project()

    assert snapshots(live) == [
        ("", "tier", 0, False, "hash-0"),
        ("", "tier", 1, True, "hash-1"),
        ("", "tier-2", 4, True, "hash-4"),
        ("shop", "tier", 0, True, "hash-0"),
    ]
    assert "two snapshots" in live.mark(CLUSTER_SNAPSHOT, "tier-0")[2]

    live.remove(CLUSTER_SNAPSHOT, "tier-1")
    live.project()
    assert snapshots(live)[0] == ("", "tier", 0, True, "hash-0")
    assert live.mark(CLUSTER_SNAPSHOT, "tier-0")[2] == ""


@pytest.mark.nightly
@pytest.mark.servers
def test_a_budget_is_shown_and_one_without_a_limit_is_unresolved(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    live.put(BUDGET, budget("web", minAvailable=1), budget("empty"))
    live.project()

    shown = admin_client.get("/hubs/prod-eu/api/v1/placements/web/budget").json()
    assert shown["spec"] == {"minAvailable": 1}
    assert live.mark(BUDGET, "empty")[2] == "the manifest is not understood"

    live.remove(BUDGET, "web")
    live.project()
    with live.scope():
        assert not DisruptionBudget.objects.exists()


VALID = condition("Valid")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("conditions", "outcome", "message"),
    [
        ((), "pending", "The hub has not decided yet."),
        ((VALID,), "pending", "Valid: Valid is True."),
        (
            (condition("Valid", "False", reason="Missing"),),
            "invalid",
            "Missing: Valid is False",
        ),
        (
            (VALID, condition("Executed", reason="Deleted")),
            "executed",
            "Deleted: Executed is True",
        ),
        (
            (VALID, condition("Executed", "False", reason="Blocked")),
            "not-executed",
            "Blocked: Executed",
        ),
    ],
)
def test_an_eviction_shows_what_the_hub_made_of_it(
    live: ProjectedHub,
    admin_client: Client,
    conditions: Any,
    outcome: str,
    message: str,
) -> None:
    live.put(EVICTION, eviction("evict-1", "web", "paris", *conditions))
    live.project()
    put_web(live)
    live.project()

    (one,) = admin_client.get("/hubs/prod-eu/api/v1/placements/web/evictions").json()[
        "items"
    ]
    assert (one["cluster"], one["outcome"]) == ("paris", outcome)
    assert one["message"].startswith(message)
    with live.scope():
        assert (
            str(Eviction.objects.select_related("placement").get().placement) == "web"
        )


@pytest.mark.nightly
def test_the_impact_of_a_drain_counts_what_the_hub_reports_as_available(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    live.put("ClusterResourceBinding", bound("web", "rome"))
    live.put(BUDGET, budget("web", minAvailable=2))
    live.project()

    page = admin_client.get("/hubs/prod-eu/clusters/paris/drain/").content.decode()

    assert "2 of 2 available, 0 may go" in page


@pytest.mark.nightly
def test_what_an_override_selects_is_found_for_the_placements_of_the_hub(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    live.put(
        CLUSTER_OVERRIDE, override("tier"), override("other")
    )  # the mirror may have both for a while
    live.project()
    changed, snapshot = override("tier"), override_snapshot("tier", 0)
    for spec in (changed["spec"], snapshot["spec"]["overrideSpec"]):
        spec["clusterResourceSelectors"][0]["name"] = "writer"
    live.put(CLUSTER_OVERRIDE, changed)
    live.put(CLUSTER_SNAPSHOT, snapshot)
    live.project()

    with live.scope():
        found = OverrideTarget.objects.order_by("override__name").values_list(
            "override__name", "name"
        )
        assert list(found) == [("other", "reader"), ("tier", "writer")]
        target = ResourceSnapshot(
            identities=[["rbac.authorization.k8s.io/v1", "ClusterRole", "", "writer"]]
        )
        [applying] = set(applying_to("web", target).values())
        assert [str(one) for one in applying] == ["tier-0"]
    page = admin_client.get(
        f"/hubs/prod-eu/overrides/{CLUSTER_OVERRIDE}/_/tier/"
    ).content.decode()
    assert "All clusters" in page
    assert "ClusterRole writer" in page


@pytest.mark.nightly
def test_budgets_and_evictions_have_pages_with_their_arithmetic(
    live: ProjectedHub, admin_client: Client
) -> None:
    put_web(live)
    live.put(BUDGET, budget("web", minAvailable=1))
    blocked = condition(
        "Executed", "False", reason="EvictionNotExecuted", message="no room left"
    )
    live.put(EVICTION, eviction("gone", "web", "rome", condition("Valid"), blocked))
    live.project()
    with live.scope():
        number = Eviction.objects.get().pk
        Binding.objects.update(state="Bound", phase="available")
        count = Binding.objects.count()

    page = admin_client.get("/hubs/prod-eu/disruptions/").content.decode()
    assert f"{count} of {count} clusters available" in page
    assert (
        "no room left"
        in admin_client.get(
            f"/hubs/prod-eu/disruptions/evictions/{number}/"
        ).content.decode()
    )
    [shown] = admin_client.get("/hubs/prod-eu/api/v1/budgets").json()["items"]
    assert (shown["limit"], shown["numbers"]["allowed"]) == (
        "minAvailable 1",
        count - 1,
    )
    with live.scope():
        Binding.objects.update(phase="applying")
    assert (
        "No evictions"
        in admin_client.get("/hubs/prod-eu/disruptions/budgets/web/").content.decode()
    )
    listed = admin_client.get(
        "/hubs/prod-eu/api/v1/evictions?outcome=not-executed"
    ).json()["items"]
    assert [one["cluster"] for one in listed] == ["rome"]
