"""Watching a list by long polling: nothing is lost, and threads are not used up."""

from datetime import UTC, datetime, timedelta
from threading import BoundedSemaphore
from typing import Any

import pytest
from rest_framework.test import APIClient

from clusters.models import MemberCluster
from clusters.operations.edit import set_labels
from placements.models import CollectionChange, Placement, WatchedKind
from placements.services.placements import delete_placement
from placements.services.rollouts.controller import sync_due_rollouts
from placements.services.rollouts.staged_runs import save_run
from placements.services.rollouts.staged_strategies import save_strategy
from placements.services.watches import journal
from tests.rows import NOW, decided, joined, pick_n_spec, saved
from tests.services.rollouts.staged import run_document, stage, staged_spec, strategy_document


@pytest.fixture(autouse=True)
def _compared_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare with each request: tests do not wait a second."""
    monkeypatch.setattr(journal, "PERIOD", timedelta(0))
    monkeypatch.setattr(journal, "ALWAYS_AFTER", timedelta(0))


def listed(api: APIClient, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = api.get(f"/api/v1/{kind}", {"watchable": "true"}).json()
    return found


def watched(api: APIClient, kind: str, version: str, **query: Any) -> dict[str, Any]:
    query = {"timeoutSeconds": 0, **query}
    answer = api.get(f"/api/v1/{kind}", {"watch": "true", "resourceVersion": version, **query})
    assert answer.status_code == 200, answer.content
    found: dict[str, Any] = answer.json()
    return found


def events(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["type"], one["name"]) for one in found["events"]]


@pytest.mark.nightly
def test_clusters_are_added_changed_and_deleted(api: APIClient) -> None:
    joined("a")
    first = listed(api, "clusters")
    joined("b")
    added = watched(api, "clusters", first["resourceVersion"])
    set_labels("a", {"region": "east"}, by=None, now=NOW)
    changed = watched(api, "clusters", added["resourceVersion"])
    MemberCluster.objects.filter(name="b").delete()
    deleted = watched(api, "clusters", changed["resourceVersion"])

    assert [one["name"] for one in first["items"]] == ["a"]
    assert events(added) == [("ADDED", "b")]
    assert events(changed) == [("MODIFIED", "a")]
    assert changed["events"][0]["object"]["labels"] == {"region": "east"}
    assert events(deleted) == [("DELETED", "b")]
    assert events(watched(api, "clusters", first["resourceVersion"])) == [("MODIFIED", "a"), ("DELETED", "b")]


def test_an_object_that_is_listed_and_then_deleted_is_reported(api: APIClient) -> None:
    """It was there only between two comparisons."""
    listed(api, "clusters")
    joined("short")
    seen = listed(api, "clusters")
    MemberCluster.objects.filter(name="short").delete()

    assert events(watched(api, "clusters", seen["resourceVersion"])) == [("DELETED", "short")]


def test_a_filter_counts_what_leaves_it_as_deleted(api: APIClient) -> None:
    joined("a", region="east")
    version = listed(api, "clusters")["resourceVersion"]
    set_labels("a", {"region": "west"}, by=None, now=NOW)

    assert events(watched(api, "clusters", version, label="region:east")) == [("DELETED", "a")]
    assert events(watched(api, "clusters", version, label="region:west")) == [("MODIFIED", "a")]


def test_placements_and_rollouts_change_with_their_progress(api: APIClient) -> None:
    joined("a")
    placements, rollouts = listed(api, "placements"), listed(api, "rollouts")
    decided("web", pick_n_spec(1))
    sync_due_rollouts(now=NOW)
    found = watched(api, "placements", placements["resourceVersion"])
    started = watched(api, "rollouts", rollouts["resourceVersion"])
    Placement.objects.update(is_fulfilled=False)
    worse = watched(api, "placements", found["resourceVersion"])

    assert events(found) == [("ADDED", "web")]
    assert found["events"][0]["object"]["health"]["word"]
    assert events(worse) == [("MODIFIED", "web")]
    assert [one["type"] for one in started["events"]] in ([], ["ADDED"])
    delete_placement("web", by=None, now=NOW)
    assert events(watched(api, "placements", worse["resourceVersion"]))


def test_staged_runs_are_watched(api: APIClient) -> None:
    joined("a")
    version = listed(api, "staged-runs")["resourceVersion"]
    saved("slow", staged_spec())
    save_strategy(strategy_document(stage("prod", before=True)), by=None, now=NOW)
    save_run(run_document("one", placementName="slow"), by=None, now=NOW)

    found = watched(api, "staged-runs", version)

    assert events(found) == [("ADDED", "one")]
    assert found["events"][0]["object"]["placement"] == "slow"


def test_a_client_that_is_too_old_lists_again(api: APIClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MOST_KEPT", 2)
    version = listed(api, "clusters")["resourceVersion"]
    for name in "abc":
        joined(name)
    latest = listed(api, "clusters")["resourceVersion"]

    for old in (version, "7", str(int(latest) + 1)):
        answer = api.get("/api/v1/clusters", {"watch": "true", "resourceVersion": old})
        assert (answer.status_code, answer.json()["type"]) == (410, "urn:fleetui:problem:watch-expired")
    assert CollectionChange.objects.filter(kind=WatchedKind.CLUSTERS).count() == 2
    assert watched(api, "clusters", latest)["events"] == []


def test_a_watch_without_a_version_is_refused(api: APIClient) -> None:
    answer = api.get("/api/v1/clusters", {"watch": "true"})

    assert answer.status_code == 400
    assert answer.json()["faults"][0]["path"] == "resourceVersion"


def test_a_watch_without_a_free_thread_is_answered_at_once(
    api: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders = BoundedSemaphore(1)
    monkeypatch.setattr(journal, "_holders", holders)
    version = listed(api, "clusters")["resourceVersion"]
    holders.acquire()
    query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": 30}

    answer = api.get("/api/v1/clusters", query)

    assert (answer.status_code, answer.json()["events"]) == (200, [])
    assert answer.headers["Retry-After"] == str(journal.RETRY_AFTER)
    assert answer.json()["resourceVersion"] == version


def test_a_comparison_is_shared_and_a_quiet_hub_is_not_read(
    api: APIClient, monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    joined("a")
    version = int(listed(api, "clusters")["resourceVersion"])
    now = datetime.now(UTC)
    monkeypatch.setattr(journal, "ALWAYS_AFTER", timedelta(seconds=10))
    journal.changes_since(WatchedKind.CLUSTERS, version, now=now)
    with django_assert_max_num_queries(4):  # state, claim, pulse, and the state of that pulse
        journal.changes_since(WatchedKind.CLUSTERS, version, now=now + timedelta(seconds=1))
    monkeypatch.setattr(journal, "PERIOD", timedelta(seconds=1))
    with django_assert_max_num_queries(1):
        journal.changes_since(WatchedKind.CLUSTERS, version, now=now + timedelta(seconds=1))
