"""Pages of dry runs: started from a review or from documents, polling until the clusters answered."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clusters.models import MemberCluster
from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.yaml import dump_yaml
from fleetui.changes import hub_version, noticed_changes
from placements.models import Draft, DryRun, Placement
from placements.services.dry_runs import run_due
from placements.services.editor.operations import start_draft
from tests.rows import NOW, config_map, pick_n_spec, placement_document

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]
HTMX = {"HX-Request": "true"}
ANSWER = {"message": "", "refusals": [], "changes": [], "removed": [], "unchecked": []}


def draft_of(operator: Client) -> Draft:
    web = Placement.objects.get(name="web")
    text = dump_yaml(placement_document("web", pick_n_spec(3)))
    by = User.objects.get(pk=operator.session["_auth_user_id"])
    return start_draft(text, placement=web, by=by, now=NOW)


def test_a_review_offers_a_dry_run_and_starts_none(operator: Client) -> None:
    draft = draft_of(operator)

    page = operator.get(f"/drafts/{draft.pk}/review/").content.decode()
    assert "Dry run on the clusters" in page
    assert not DryRun.objects.exists()

    answer = operator.post(f"/drafts/{draft.pk}/dry-run/")
    row = DryRun.objects.get()
    assert answer["Location"] == f"/dry-runs/{row.pk}/"
    assert plain_manifest(row.manifests) == plain_manifest(draft.text)


def test_the_fragment_polls_until_the_clusters_answered(operator: Client) -> None:
    operator.post(f"/drafts/{draft_of(operator).pk}/dry-run/")
    address = f"/dry-runs/{DryRun.objects.get().pk}/"

    waiting = operator.get(address, headers=HTMX).content.decode()
    version = hub_version()
    same = operator.get(f"{address}?v={version}", headers=HTMX)
    with noticed_changes():
        run_due(now=datetime.now(UTC), threads=0)
    ended = operator.get(f"{address}?v={version}", headers=HTMX).content.decode()

    assert waiting.startswith('<section id="dry-run"')
    assert "tick from:body" in waiting
    assert same.status_code == 204
    assert "tick from:body" not in ended
    assert "3 clusters without a connection: not checked." in ended


def test_simulated_clusters_are_counted_and_not_called(operator: Client) -> None:
    MemberCluster.objects.update(driver="simulated")
    operator.post(
        "/resources/apply/dry-run/", {"manifest": dump_yaml(config_map("settings", data={"color": "blue"}))}
    )
    run_due(now=datetime.now(UTC), threads=0)

    page = operator.get(f"/dry-runs/{DryRun.objects.get().pk}/").content.decode()
    assert "2 clusters simulated: not checked." in page


def test_refusals_and_changes_are_shown_by_cluster(operator: Client) -> None:
    refused = ["", "ConfigMap", "shop", "settings", "ManifestApplyFailed", "exceeded quota: small"]
    diff = {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "web"}
    times = {"observed": NOW.isoformat(), "since": NOW.isoformat(), "isDegraded": False, "isTruncated": False}
    change = {**diff, **times, "generation": 2, "fields": [["/spec/replicas", "1", "3"]]}
    row = DryRun.objects.create(
        created_at=NOW,
        created_by="ana",
        ended_at=NOW,
        results=[
            {
                **ANSWER,
                "placement": "web",
                "cluster": "nimblefox",
                "outcome": "Refused",
                "refusals": [refused],
            },
            {**ANSWER, "placement": "web", "cluster": "bravelion", "outcome": "Changed", "changes": [change]},
        ],
    )

    page = operator.get(f"/dry-runs/{row.pk}/").content.decode()

    assert "Would be refused on 1 cluster: nimblefox." in page
    assert "exceeded quota: small" in page
    assert "Would change 1 object on 1 cluster." in page
    assert "/spec/replicas" in page


def test_warnings_of_the_api_servers_are_counted_and_shown_by_cluster(operator: Client) -> None:
    answer = {**ANSWER, "placement": "web", "outcome": "Unchanged"}
    warned = ["ConfigMap shop/settings: <old>", "Namespace shop: no label"]
    rows = [
        {**answer, "cluster": "nimblefox", "warnings": warned},
        {**answer, "cluster": "bravelion", "warnings": []},
    ]
    run = DryRun.objects.create(created_at=NOW, created_by="ana", ended_at=NOW, results=rows)

    page = operator.get(f"/dry-runs/{run.pk}/").content.decode()

    assert "Warnings about 2 objects on 1 cluster: nimblefox." in page
    assert "<p>Warning: ConfigMap shop/settings: &lt;old&gt;</p>" in page
    assert "<p>Warning: Namespace shop: no label</p>" in page


def test_documents_that_are_no_yaml_are_refused_at_once(operator: Client) -> None:
    answer = operator.post("/resources/apply/dry-run/", {"manifest": "a: ["}, headers=HTMX)

    assert answer.status_code == 422
    assert answer.content.decode().startswith('<div id="dry-run">')
    assert not DryRun.objects.exists()


def test_viewers_start_no_dry_run_and_read_its_result(viewer: Client) -> None:
    row = DryRun.objects.create(created_at=NOW, created_by="ana", ended_at=NOW)

    assert viewer.post("/resources/apply/dry-run/", {"manifest": "a: 1"}).status_code == 403
    assert viewer.get(f"/dry-runs/{row.pk}/").status_code == 200
