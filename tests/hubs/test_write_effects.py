"""What a write to a live hub would cause: confirmation of a deselection, stages of a run, runs that fail."""

from collections.abc import Iterator

import pytest
from django.test import Client

from placements.hubs.writing.planning import (
    ConfirmationNeededError,
    failing_runs,
    stage_notes,
)
from tests.hubs.hub_documents import (
    binding,
    member,
    run_status,
    snapshot,
    stage,
    staged_run,
    strategy,
)
from tests.hubs.writable import WritableHub, operator, writable_hub

pytestmark = pytest.mark.django_db
VERSION = {"apiVersion": "placement.kubernetes-fleet.io/v1beta1"}
FORCE = {"overwrite": ["spec.policy.numberOfClusters"]}


@pytest.fixture
def hub() -> Iterator[WritableHub]:
    """Serve `web` on two clusters, `east` and `west`, as the hub decided it."""
    with writable_hub() as found:
        found.projected.put("ClusterSchedulingPolicySnapshot", snapshot("web"))
        found.projected.project()
        yield found


@pytest.mark.nightly
@pytest.mark.parametrize(("number", "words"), [(0, "2 of 2"), (1, "")])
def test_an_edit_that_deselects_all_clusters_is_sent_once_confirmed(
    hub: WritableHub, number: int, words: str
) -> None:
    fields = {"name": "web", "numberOfClusters": number}

    preview = hub.preview("scale", fields, **FORCE)
    assert preview.plan.needs_confirmation is bool(words)
    if words:
        with pytest.raises(
            ConfirmationNeededError, match=f"would leave {words} clusters: east, west"
        ):
            hub.apply("scale", fields, **FORCE)
        assert hub.sent() == []
    done = hub.apply("scale", fields, confirmed=bool(words), **FORCE)

    assert done is not None
    assert (
        hub.fake.get("clusterresourceplacements", "web")["spec"]["policy"][
            "numberOfClusters"
        ]
        == number
    )


def test_the_page_asks_for_the_confirmation(hub: WritableHub, client: Client) -> None:
    client.force_login(operator())
    form = {
        "name": "web",
        "numberOfClusters": "0",
        "overwrite": "spec.policy.numberOfClusters",
    }
    address = "/hubs/prod-eu/hub-write/scale/"

    page = client.post(address, {**form, "do": "preview"})
    token = page.content.decode().partition('name="token" value="')[2].partition('"')[0]
    fields = '{"name": "web", "numberOfClusters": 0}'
    apply = {
        "do": "apply",
        "fields": fields,
        "token": token,
        "overwrite": form["overwrite"],
    }
    refused = client.post(address, apply)

    assert (
        'name="confirm" value="unschedule-everything" required' in page.content.decode()
    )
    assert refused.status_code == 409
    assert "would leave 2 of 2 clusters" in refused.content.decode()
    entered = 'name="numberOfClusters" type="number" value="0"'
    assert entered in refused.content.decode()
    assert hub.sent() == []
    assert (
        client.post(address, {**apply, "confirm": "unschedule-everything"}).status_code
        == 302
    )
    assert len(hub.sent()) == 1


@pytest.mark.nightly
def test_the_stages_of_a_run_name_their_clusters_and_what_is_missing(
    hub: WritableHub,
) -> None:
    hub.put("MemberCluster", member("north", region="us"))
    hub.projected.put("ClusterResourceBinding", binding("web", "north", state="Bound"))
    hub.projected.project()
    by_region = {
        "labelSelector": {"matchLabels": {"region": "eu"}},
        "sortingLabelKey": "order",
    }
    empty = stage("empty", labelSelector={"matchLabels": {"a": "b"}})
    stages = {
        **VERSION,
        "kind": "ClusterStagedUpdateStrategy",
        **strategy("stages"),
        "spec": {"stages": [stage("eu", **by_region), empty]},
    }

    with hub.projected.scope():
        notes = stage_notes(stages, "web")

    assert notes == (
        "Stage eu: east, west.",
        "Stage empty: no clusters.",
        "Clusters in no stage; the run would fail: north.",
        "Clusters without a whole number in the sorting label; the run would fail: "
        "east in stage eu, west in stage eu.",
    )


def test_other_labels_name_the_active_runs_that_would_fail(hub: WritableHub) -> None:
    eu = stage("eu", labelSelector={"matchLabels": {"region": "eu"}})
    status = run_status(
        stages=[{"stageName": "eu", "clusters": [{"clusterName": "east"}]}]
    )
    status["stagedUpdateStrategySnapshot"] = {"stages": [eu]}
    hub.projected.put("ClusterStagedUpdateRun", {**staged_run("run"), "status": status})
    hub.projected.project()

    moved = hub.preview("labels", {"name": "east", "labels": {"region": "us"}}).plan
    other = hub.preview("labels", {"name": "east", "labels": {"team": "a"}}).plan

    assert moved.notes == (
        "Run run of web would fail: east goes from eu to no stage, or changes its place there.",
    )
    assert other.notes == ()
    with hub.projected.scope():
        assert failing_runs(moved.live or {}, moved.live or {}) == ()
