"""Importing clusters in the admin: what would be done, doing it, and doing it again."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from clusters.models import MemberCluster
from clusters.operations.editing import change_labels
from fleetui.models import Event
from placements.admin.display import NONE
from tests.admin.pages import IMPORT, fields_of, text_of
from tests.rows import NOW, joined, member_document

pytestmark = pytest.mark.django_db


def source(*names: str, **labels: str) -> str:
    """Write a list of clusters."""
    items = [member_document(name, labels) for name in names]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def test_shows_what_would_be_done_with_each_cluster(operator: Client) -> None:
    joined("old", region="east")
    joined("same", region="west")

    answer = operator.post(IMPORT, {"text": source("old", "same", "new", region="west"), "preview": "1"})

    steps = [(step.name, step.did, step.changes) for step in answer.context["steps"]]
    assert steps == [
        ("old", "changed", ("region: east → west",)),
        ("same", "unchanged", ()),
        ("new", "joined", ()),
    ]
    assert MemberCluster.objects.count() == 2
    assert Event.objects.count() == 2


def test_does_it_on_confirmation_and_nothing_the_second_time(operator: Client) -> None:
    file = SimpleUploadedFile("fleet.json", source("a", "b", region="east").encode())
    shown = operator.post(IMPORT, {"file": file, "preview": "1"})
    confirmed = {**fields_of(shown), "apply": "1"}

    first = operator.post(IMPORT, confirmed, follow=True)
    second = operator.post(IMPORT, confirmed, follow=True)

    assert "Imported fleet.json: 2 clusters joined." in text_of(first)
    assert "Imported fleet.json: 2 clusters unchanged." in text_of(second)
    assert list(Event.objects.values_list("actor_name", "verb", "name")) == [
        ("a-operator", "joined", "a"),
        ("a-operator", "joined", "b"),
    ]


def test_a_fault_is_told_and_nothing_is_written(operator: Client) -> None:
    answer = operator.post(IMPORT, {"text": source("a", "<Odd>"), "preview": "1"})

    assert answer.status_code == 422
    assert "&lt;Odd&gt;" in text_of(answer)
    assert "<Odd>" not in text_of(answer).split("<textarea")[0]
    assert not MemberCluster.objects.exists()


@pytest.mark.parametrize("sent", [{}, {"text": "  "}, {"source": "forged", "apply": "1"}])
def test_nothing_to_read_is_refused(operator: Client, sent: dict[str, str]) -> None:
    assert operator.post(IMPORT, {"preview": "1", **sent}).status_code == 422


def test_what_was_changed_here_meanwhile_shows_in_the_preview(operator: Client) -> None:
    joined("a", region="east")
    change_labels(["a"], put={"env": "prod"}, by=None, now=NOW)

    answer = operator.post(IMPORT, {"text": source("a", region="east"), "preview": "1"})

    assert answer.context["steps"][0].changes == (f"env: prod → {NONE}",)
