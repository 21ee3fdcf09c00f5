"""The pages ask before a change unschedules everything, and keep what was typed."""

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from placements.manifests import dump_yaml
from placements.models import Placement
from tests.placements.test_emptying import PICK_ALL
from tests.rows import all_joined, decided, placement_document, spec

pytestmark = pytest.mark.django_db
TEXT = dump_yaml(placement_document("web", PICK_ALL))
CONFIRMED = {"confirm": "unschedule-everything"}


@pytest.fixture(autouse=True)
def _placed() -> None:
    """Put a PickAll placement on two clusters."""
    all_joined("a", "b")
    decided("web", spec({"placementType": "PickAll"}))


def test_the_editor_asks_and_saves_once_it_is_ticked(operator: Client) -> None:
    given = {"manifest": TEXT, "revision": "1", "do": "save"}

    asked = operator.post("/placements/web/edit/", given)

    assert asked.status_code == 409
    assert "web would leave all 2 clusters: a and b" in asked.content.decode()
    assert 'name="confirm"' in asked.content.decode()
    assert "region: moon" in asked.content.decode()
    assert Placement.objects.get().revision == 1
    saved = operator.post("/placements/web/edit/", {**given, **CONFIRMED})
    assert (saved.status_code, saved["Location"]) == (302, "/placements/web/")
    assert Placement.objects.get().revision == 2


def test_an_editor_that_has_nothing_to_ask_shows_no_box(operator: Client) -> None:
    assert 'name="confirm"' not in operator.get("/placements/web/edit/").content.decode()


def test_applying_asks_and_keeps_the_text_of_a_file(operator: Client) -> None:
    upload = SimpleUploadedFile("web.yaml", TEXT.encode())

    asked = operator.post("/resources/apply/", {"file": upload})

    assert asked.status_code == 409
    assert "region: moon" in asked.content.decode()
    assert Placement.objects.get().revision == 1
    done = operator.post("/resources/apply/", {"manifest": TEXT, **CONFIRMED})
    assert done.status_code == 200
    assert Placement.objects.get().revision == 2
