"""Pages of dry runs: the answers of the clusters to a draft or to documents, within the request."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clusters.models import MemberCluster
from fleetui.apimachinery.yaml import dump_yaml
from placements.explain.cluster_objects import Difference, DifferenceType
from placements.explain.dry_runs import (
    DryRunAnswer,
    DryRunOutcome,
    DryRunResult,
    RefusedObject,
)
from placements.models import Draft, Placement
from placements.services.dry_runs import _place
from placements.services.editor.operations import start_draft
from placements.web import dry_runs
from tests.rows import NOW, config_map, pick_n_spec, placement_document

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]
HTMX = {"HX-Request": "true"}
ADDRESS = "/resources/apply/dry-run/"
EDIT = dump_yaml(config_map("settings", data={"color": "blue"}))


def draft_of(operator: Client) -> Draft:
    web = Placement.objects.get(name="web")
    text = dump_yaml(placement_document("web", pick_n_spec(3)))
    by = User.objects.get(pk=operator.session["_auth_user_id"])
    return start_draft(text, placement=web, by=by, now=NOW)


def test_a_review_offers_a_dry_run_and_shows_its_answers(operator: Client) -> None:
    draft = draft_of(operator)

    page = operator.get(f"/drafts/{draft.pk}/review/").content.decode()
    part = operator.post(f"/drafts/{draft.pk}/dry-run/", headers=HTMX).content.decode()
    whole = operator.post(f"/drafts/{draft.pk}/dry-run/").content.decode()

    assert "Dry run on the clusters" in page
    assert "Answers of the clusters" not in page
    assert part.startswith('<section id="dry-run"')
    assert part in whole
    assert "3 clusters without a connection: not checked." in part


def test_simulated_clusters_are_counted_and_not_called(operator: Client) -> None:
    MemberCluster.objects.update(driver="simulated")

    page = operator.post(ADDRESS, {"manifest": EDIT}).content.decode()

    assert "2 clusters simulated: not checked." in page


def test_refusals_and_changes_are_shown_by_cluster(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = RefusedObject(
        "",
        "ConfigMap",
        "shop",
        "settings",
        "ManifestApplyFailed",
        "exceeded quota: small",
    )
    row = {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
    }
    times = {
        "observed": NOW.isoformat(),
        "since": NOW.isoformat(),
        "isDegraded": False,
        "isTruncated": False,
    }
    changed = row | times | {"generation": 2, "fields": [["/spec/replicas", "1", "3"]]}
    change = Difference.of("bravelion", DifferenceType.DIFF, changed)
    answers = (
        DryRunAnswer("web", "nimblefox", DryRunOutcome.REFUSED, refusals=(refused,)),
        DryRunAnswer("web", "bravelion", DryRunOutcome.CHANGED, changes=(change,)),
    )
    monkeypatch.setattr(
        dry_runs, "dry_run_on_clusters", lambda **_: DryRunResult(answers)
    )

    page = operator.post(ADDRESS, {"manifest": EDIT}).content.decode()

    assert "Would be refused on 1 cluster: nimblefox." in page
    assert "exceeded quota: small" in page
    assert "Would change 1 object on 1 cluster." in page
    assert "/spec/replicas" in page


def test_warnings_of_the_api_servers_are_counted_and_shown_by_cluster(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    warned = ("ConfigMap shop/settings: <old>", "Namespace shop: no label")
    answers = (
        DryRunAnswer("web", "nimblefox", DryRunOutcome.UNCHANGED, warnings=warned),
        DryRunAnswer("web", "bravelion", DryRunOutcome.UNCHANGED),
    )
    monkeypatch.setattr(
        dry_runs, "dry_run_on_clusters", lambda **_: DryRunResult(answers)
    )

    page = operator.post(ADDRESS, {"manifest": EDIT}).content.decode()

    assert "Warnings about 2 objects on 1 cluster: nimblefox." in page
    assert "<p>Warning: ConfigMap shop/settings: &lt;old&gt;</p>" in page
    assert "<p>Warning: Namespace shop: no label</p>" in page


@pytest.mark.parametrize(
    "manifest", ["a: [", dump_yaml(config_map("lost", in_="nowhere"))]
)
def test_documents_that_cannot_be_saved_are_refused(
    operator: Client, manifest: str
) -> None:
    answer = operator.post(ADDRESS, {"manifest": manifest}, headers=HTMX)

    assert answer.status_code == 422
    assert answer.content.decode().startswith('<section id="dry-run"')
    assert 'id="dry-run-errors"' in answer.content.decode()


def test_a_dry_run_that_waits_for_others_is_refused_for_a_while(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("placements.services.dry_runs._PATIENCE", 0.01)

    with _place:
        answer = operator.post(ADDRESS, {"manifest": EDIT})

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert "Another dry run is waiting" in answer.content.decode()


def test_viewers_start_no_dry_run(viewer: Client) -> None:
    assert viewer.post(ADDRESS, {"manifest": "a: 1"}).status_code == 403
