"""Reviewing a draft: what it would do, saving just that, and what another user did meanwhile."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleetui.access.secret_values import plain_manifest
from fleetui.apimachinery.yaml import dump_yaml, load_documents
from placements.models import Decision, Draft, Placement
from placements.services.editor.operations import start_draft
from placements.services.placements import save_placement
from tests.rows import NOW, joined, person, pick_n_spec, placed, placement_document
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db
CONSTRAINT = {"topologyKey": "region", "maxSkew": 1}


@pytest.fixture
def draft(operator: Client, web: Placement) -> Draft:
    """Start a draft of the operator that wants three clusters."""
    return _begun(operator, web, placement_document("web", pick_n_spec(3)))


def _begun(operator: Client, web: Placement | None, document: Any) -> Draft:
    ana = User.objects.get(pk=operator.session["_auth_user_id"])
    return start_draft(dump_yaml(document), placement=web, by=ana, now=NOW)


def _review(operator: Client, draft: Draft) -> str:
    return page_text(operator.get(f"/drafts/{draft.pk}/review/"))


def _confirm(operator: Client, draft: Draft, page: str) -> Any:
    form = page.partition('class="bar"')[2]
    given = dict(re.findall(r'name="([^"]*)" value="([^"]*)"', form))
    return operator.post(f"/drafts/{draft.pk}/review/", given)


@pytest.mark.nightly
def test_shows_who_moves_the_policy_in_words_and_the_manifest(
    operator: Client, draft: Draft
) -> None:
    page = _review(operator, draft)

    assert re.findall(r"<dt>(\d \w+)</dt>", page) == [
        "1 selected",
        "2 kept",
    ]
    assert "before: </span>Select 2 clusters.</del>" in page
    assert "now: </span>Select 3 clusters.</ins>" in page
    assert "numberOfClusters: <del>2</del>" in page
    assert "numberOfClusters: <ins>3</ins>" in page
    assert "Incremental" in page
    assert "Rolls out in" in page_text(
        operator.get(f"/drafts/{draft.pk}/review/?panel=rollout")
    )
    assert Placement.objects.get().revision == 1


def test_fetches_the_rollout_plan_by_itself(operator: Client, draft: Draft) -> None:
    address = f"/drafts/{draft.pk}/review/?panel=rollout"

    page = _review(operator, draft)
    assert re.search(
        r"<dt>(\d) resources? selected</dt><dd><span class=\"label\">(\w+) (\w+)</span>",
        page,
    )
    assert f'href="/drafts/{draft.pk}/?as=yaml">Cancel<' in page_text(
        operator.get(f"/drafts/{draft.pk}/review/?as=yaml")
    )
    panel = page_text(operator.get(address, headers={"HX-Request": "true"}))

    assert 'hx-get="?panel=rollout" hx-trigger="load"' in page
    assert panel.startswith('<section id="rollout"')
    assert "Rolls out in" in panel


def test_says_that_another_policy_reschedules_from_scratch(
    operator: Client, web: Placement
) -> None:
    spec = pick_n_spec(2, topologySpreadConstraints=[CONSTRAINT])

    page = _review(operator, _begun(operator, web, placement_document("web", spec)))

    assert "Reschedules" in page
    assert 'class="label leaves" href="/clusters/jumpingcat/"' in page


def test_confirming_saves_and_goes_to_the_placement(
    operator: Client, draft: Draft, web: Placement
) -> None:
    answer = _confirm(operator, draft, _review(operator, draft))

    assert (answer.status_code, answer["Location"]) == (302, "/placements/web/")
    assert placed(web) == ["bravelion", "jumpingcat", "nimblefox"]
    assert Decision.objects.count() == 2
    assert not Draft.objects.exists()


@pytest.mark.nightly
def test_says_what_changed_when_the_fleet_did(operator: Client, draft: Draft) -> None:
    page = _review(operator, draft)
    joined("zebra", region="east")
    answer = _confirm(operator, draft, page)
    again = page_text(answer)

    assert answer.status_code == 409
    assert "The fleet changed since your preview" in again
    assert (
        '<span class="label joins">zebra</span><span class="label leaves">bravelion</span>'
        in re.sub(r"\s+(?=<span)", "", again)
    )
    assert Placement.objects.get().revision == 1
    assert _confirm(operator, draft, again).status_code == 302


def test_a_draft_at_fault_has_no_button_to_save(
    operator: Client, web: Placement
) -> None:
    draft = _begun(operator, web, placement_document("web", pick_n_spec(-1)))
    page = _review(operator, draft)
    answer = operator.post(
        f"/drafts/{draft.pk}/review/", {"digest": "x", "decision": "y"}
    )

    assert '<h2 id="errors">Errors</h2>' in page
    assert 'name="digest"' not in page
    assert answer.status_code == 409
    assert Placement.objects.get().revision == 1


def test_a_spread_over_an_unknown_label_is_saved_only_with_a_confirmation(
    operator: Client, web: Placement
) -> None:
    spec = pick_n_spec(2, topologySpreadConstraints=[{"topologyKey": "regoin"}])
    draft = _begun(operator, web, placement_document("web", spec))
    page = _review(operator, draft)
    sent = dict(
        re.findall(r'name="([^"]*)" value="([^"]*)"', page.partition('class="bar"')[2])
    )
    assert sent.pop("accept") == "yes"

    refused = operator.post(f"/drafts/{draft.pk}/review/", sent)
    assert (refused.status_code, Placement.objects.get().revision) == (422, 1)
    assert (
        operator.post(
            f"/drafts/{draft.pk}/review/", {**sent, "accept": "yes"}
        ).status_code
        == 302
    )

    warning = "No cluster has the label regoin: the constraint has no effect. Did you mean region?"
    draft = _begun(operator, web, placement_document("web", spec))
    assert warning in page_text(operator.get(f"/drafts/{draft.pk}/?as=yaml"))


def test_shows_what_was_saved_meanwhile_and_rebases_the_draft(
    operator: Client, draft: Draft
) -> None:
    page = _review(operator, draft)
    theirs = placement_document("web", pick_n_spec(2), note="theirs")
    save_placement(theirs, by=person("li", "operator"), now=NOW)

    refused = _confirm(operator, draft, page)
    rebased = operator.post(f"/drafts/{draft.pk}/rebase/")
    draft.refresh_from_db()

    assert refused.status_code == 409
    assert "web was changed while you edited it" in page_text(refused)
    assert 'name="digest"' not in page_text(refused)
    assert rebased["Location"] == f"/drafts/{draft.pk}/"
    assert (
        "annotations"
        not in load_documents(plain_manifest(draft.text))[0].data["metadata"]
    )
    assert _confirm(operator, draft, _review(operator, draft)).status_code == 302


def test_theirs_replaces_the_text_of_the_draft(operator: Client, draft: Draft) -> None:
    save_placement(
        placement_document("web", pick_n_spec(1)), by=person("li", "operator"), now=NOW
    )

    operator.post(f"/drafts/{draft.pk}/rebase/", {"keep": "theirs"})
    draft.refresh_from_db()

    assert (
        load_documents(plain_manifest(draft.text))[0].data["spec"]["policy"][
            "numberOfClusters"
        ]
        == 1
    )
