"""Deleting placements; writing them is `test_editor.py`."""

import re

import pytest
from django.test import Client

from placements.models import Binding, Placement

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]


def test_deleting_says_what_would_happen(operator: Client) -> None:
    page = operator.get("/placements/web/delete/").content.decode()

    assert "Deleted immediately" in page
    assert re.findall(r'class="label leaves">(\w+)<', page) == [
        "jumpingcat",
        "nimblefox",
    ]


@pytest.mark.nightly
def test_deletes_what_was_not_carried_out_at_once(operator: Client) -> None:
    answer = operator.post("/placements/web/delete/")

    assert answer["Location"] == "/placements/"
    assert not Placement.objects.exists()


@pytest.mark.nightly
def test_deleting_waits_for_what_was_carried_out(operator: Client) -> None:
    Binding.objects.filter(cluster_name="nimblefox").update(
        state="Bound", phase="available"
    )

    page = operator.get("/placements/web/delete/").content.decode()
    answer = operator.post("/placements/web/delete/")
    Binding.objects.exclude(cluster_name="nimblefox").delete()
    deleting_page = operator.get("/placements/web/").content.decode()

    assert "removed from 1 cluster;" in page
    assert answer["Location"] == "/placements/web/"
    assert "Deleting" in deleting_page
    assert sorted(re.findall(r"</svg>(Remov\w+|Selected)<", deleting_page)) == [
        "Removed",
        "Removing",
    ]
