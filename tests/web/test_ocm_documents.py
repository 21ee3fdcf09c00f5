"""Placements of Open Cluster Management in the editor and on their page."""

import re
from collections.abc import Callable

import pytest
from django.test import Client

from placements.manifests import dump_yaml
from placements.models import Placement
from placements.operations.placements import save_placement
from tests.ocm_documents import (
    NAMESPACE,
    needs_proposal,
    ocm_document,
    proposed,
    proposed_document,
    with_resources,
)
from tests.rows import NOW, run_due

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

Fetch = Callable[[Client, str], str]
NEW = "/placements/new/"


def plain(page: str) -> str:
    """Give the words of a page."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@needs_proposal
@pytest.mark.parametrize("number", [1, 2])
def test_the_examples_of_the_proposal_pasted_as_they_stand(
    operator: Client, text_of: Fetch, number: int
) -> None:
    given = {"manifest": proposed(number), "revision": "0"}

    checked = operator.post(NEW, {**given, "do": "check"})
    compared = operator.post(NEW, {**given, "do": "semantics"})
    saved = operator.post(NEW, {**given, "do": "save"})
    run_due()
    page = plain(text_of(operator, "/placements/demo-placement/"))

    words = plain(checked.content.decode())
    assert checked.status_code == 200
    assert "Read as a Placement of Open Cluster Management" in words
    assert "3 join" in words
    assert "clusters are picked and nothing is placed on them" in words
    assert "this text" in plain(compared.content.decode())
    assert saved["Location"] == "/placements/demo-placement/"
    assert Placement.objects.get(name="demo-placement").document == proposed_document(number)
    assert "Came as a Placement of Open Cluster Management" in page
    assert "nothing is placed on them yet" in page
    assert "PlacementSatisfied: False (NotAllDecisionsScheduled) 7 cluster decisions unscheduled" in page


def test_the_page_of_one_with_resources_names_its_selectors(operator: Client, text_of: Fetch) -> None:
    save_placement(with_resources(ocm_document(), NAMESPACE), by=None, now=NOW)
    run_due()

    page = plain(text_of(operator, "/placements/shop/"))

    assert "namespace apps) and is kept as it was written" in page
    assert "nothing is placed on them yet" not in page
    assert "Namespace shop core/v1" in page


def test_it_is_edited_as_it_was_written(operator: Client, text_of: Fetch) -> None:
    save_placement(ocm_document(numberOfClusters=2), by=None, now=NOW)
    text = dump_yaml(ocm_document(numberOfClusters=1))

    form = text_of(operator, "/placements/shop/edit/")
    answer = operator.post("/placements/shop/edit/", {"manifest": text, "revision": "1", "do": "save"})

    assert "kind: Placement" in form
    assert answer.status_code == 302
    assert Placement.objects.get(name="shop").number_of_clusters == 1


@pytest.mark.parametrize("do", ["check", "save", "semantics"])
def test_a_fault_stands_beside_the_text_with_its_line(operator: Client, do: str) -> None:
    text = dump_yaml(ocm_document(numberOfClusters="two"))

    answer = operator.post(NEW, {"manifest": text, "revision": "0", "do": do})

    assert answer.status_code == 422
    assert "line 7 spec.numberOfClusters" in plain(answer.content.decode())
    assert not Placement.objects.filter(name="shop").exists()


def test_another_namespace_is_refused_beside_the_text(operator: Client) -> None:
    save_placement(ocm_document(), by=None, now=NOW)
    text = dump_yaml(ocm_document()).replace("namespace: apps", "namespace: ops")

    answer = operator.post("/placements/shop/edit/", {"manifest": text, "revision": "1", "do": "save"})

    assert answer.status_code == 422
    assert "names are unique across namespaces" in plain(answer.content.decode())
