"""Pages require confirmation before a change unschedules everything, and keep what was typed."""

import pytest
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement
from tests.rows import all_joined, decided, placement_document, spec
from tests.services.test_unscheduling_everything import PICK_ALL
from tests.web.editing import confirmed, reviewed, typed

pytestmark = pytest.mark.django_db
TEXT = dump_yaml(placement_document("web", PICK_ALL))
CONFIRMED = {"confirm": "unschedule-everything"}


@pytest.fixture(autouse=True)
def _placed() -> None:
    """Put a PickAll placement on two clusters."""
    all_joined("a", "b")
    decided("web", spec({"placementType": "PickAll"}))


@pytest.mark.nightly
def test_the_editor_requires_confirmation_and_saves_once_it_is_ticked(
    operator: Client,
) -> None:
    typed(operator, "/placements/web/edit/", TEXT)

    response = confirmed(operator, reviewed(operator))

    assert response.status_code == 409
    assert "web would leave all 2 clusters: a and b" in response.content.decode()
    assert 'name="confirm"' in response.content.decode()
    assert "region: moon" in response.content.decode()
    assert Placement.objects.get().revision == 1
    saved = confirmed(operator, response.content.decode(), **CONFIRMED)
    assert (saved.status_code, saved["Location"]) == (302, "/placements/web/")
    assert Placement.objects.get().revision == 2


@pytest.mark.nightly
def test_an_editor_that_needs_no_confirmation_shows_no_box(operator: Client) -> None:
    typed(operator, "/placements/web/edit/", TEXT.replace("moon", "east"))

    assert 'name="confirm"' not in reviewed(operator)
