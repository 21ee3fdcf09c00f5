"""How much code a review and a confirmation enter: the draft is parsed once and scheduled once."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Draft, Placement
from placements.services.editor.operations import start_draft
from tests.load.entered_code import EnteredCode, record_entered_code
from tests.rows import NOW, pick_n_spec, placed, placement_document

pytestmark = pytest.mark.django_db
MOST_MODULES, MOST_FUNCTIONS = 54, 346
"""Of a review; lower them, never raise them."""


@pytest.fixture
def draft(operator: Client, web: Placement) -> Draft:
    """Start a draft of another policy, so that the bindings of the old one become obsolete."""
    ana = User.objects.get(pk=operator.session["_auth_user_id"])
    spec = pick_n_spec(
        3, topologySpreadConstraints=[{"topologyKey": "region", "maxSkew": 2}]
    )
    return start_draft(
        dump_yaml(placement_document("web", spec)), placement=web, by=ana, now=NOW
    )


@pytest.fixture
def review(operator: Client, draft: Draft) -> tuple[EnteredCode, str]:
    """Return what a review entered, and its page; the first request fills caches."""
    operator.get(f"/drafts/{draft.pk}/review/")
    with record_entered_code() as profile:
        page = operator.get(f"/drafts/{draft.pk}/review/").content.decode()
    return profile, page


def _parsed_drafts(profile: EnteredCode) -> int:
    return profile.count("PlacementDraft._manifest_and_errors")


def test_a_review_parses_and_schedules_the_draft_once(
    review: tuple[EnteredCode, str],
) -> None:
    profile, page = review

    assert 'name="digest"' in page
    assert profile.count("PlacementDraft.parse") == 1
    assert _parsed_drafts(profile) == 1
    assert profile.count("parse_placement") == 1
    assert profile.count("schedule") == 1
    assert profile.count("PlacementForm.of") == 0


def test_a_review_enters_few_modules_and_functions(
    review: tuple[EnteredCode, str],
) -> None:
    profile, _ = review

    assert len(profile.modules) <= MOST_MODULES
    assert len(profile.functions) <= MOST_FUNCTIONS


@pytest.mark.nightly
def test_a_confirmation_parses_and_schedules_the_draft_once(
    operator: Client, draft: Draft, web: Placement, review: tuple[EnteredCode, str]
) -> None:
    given: dict[str, Any] = dict(
        re.findall(
            r'name="([^"]*)" value="([^"]*)"', review[1].partition('class="bar"')[2]
        )
    )

    with record_entered_code() as profile:
        answer = operator.post(f"/drafts/{draft.pk}/review/", given)

    assert answer.status_code == 302
    assert len(placed(web)) == 3
    assert _parsed_drafts(profile) == 1
    assert profile.count("schedule") == 1
    assert profile.count("parse_placement") == 1
