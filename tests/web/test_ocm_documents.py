"""Placements of Open Cluster Management in the editor and on their page."""

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Placement
from placements.services.placements import save_placement
from tests.ocm_documents import (
    NAMESPACE,
    needs_proposal,
    ocm_document,
    proposed,
    proposed_document,
    with_resources,
)
from tests.rows import NOW, placed, run_due
from tests.web.editing import confirmed, draft_address, reviewed, typed

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("web")]

Fetch = Callable[[Client, str], str]
NEW = "/placements/new/"


def plain(page: str) -> str:
    """Return the words of a page."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


@needs_proposal
@pytest.mark.parametrize("number", [1, 2])
def test_the_examples_of_the_proposal_pasted_as_they_stand(
    operator: Client, text_of: Fetch, number: int
) -> None:
    checked = typed(operator, NEW, proposed(number))
    compared = operator.get(f"{draft_address()}review/?rules=all")
    saved = confirmed(operator, reviewed(operator))
    run_due()
    page = plain(text_of(operator, "/placements/demo-placement/"))

    words = plain(checked)
    assert "OCM Placement: OCM scheduling rules." in words
    assert "3 selected" in words
    assert "clusters are selected but no resources are placed" in words
    assert "this manifest" in plain(compared.content.decode())
    assert saved["Location"] == "/placements/demo-placement/"
    assert Placement.objects.get(name="demo-placement").document == proposed_document(
        number
    )
    assert "Imported from an OCM Placement" in page
    assert "so no resources are placed" in plain(
        text_of(operator, "/placements/demo-placement/resources/")
    )
    page = plain(text_of(operator, "/placements/demo-placement/decision/"))
    assert (
        "PlacementSatisfied: False (NotAllDecisionsScheduled) 7 cluster decisions unscheduled"
        in page
    )


def test_the_page_of_one_with_resources_names_its_selectors(
    operator: Client, text_of: Fetch
) -> None:
    save_placement(
        with_resources(ocm_document(namespace="apps"), NAMESPACE), by=None, now=NOW
    )
    run_due()

    page = plain(text_of(operator, "/placements/apps:shop/"))

    assert "Placement in namespace apps" in page
    assert (
        "(cluster.open-cluster-management.io/v1beta1). The original manifest is kept."
        in page
    )
    page = plain(text_of(operator, "/placements/apps:shop/resources/"))
    assert "so no resources are placed" not in page
    assert "Namespace shop core/v1" in page


@pytest.mark.nightly
def test_it_is_edited_as_it_was_written(operator: Client, text_of: Fetch) -> None:
    save_placement(ocm_document(numberOfClusters=2), by=None, now=NOW)
    text = dump_yaml(ocm_document(numberOfClusters=1))

    form = text_of(operator, "/placements/shop/edit/?as=yaml")
    typed(operator, "/placements/shop/edit/", text)
    answer = confirmed(operator, reviewed(operator))

    assert "kind: Placement" in form
    assert answer.status_code == 302
    assert Placement.objects.get(name="shop").number_of_clusters == 1


def test_a_fault_stands_beside_the_text_with_its_line(operator: Client) -> None:
    page = typed(operator, NEW, dump_yaml(ocm_document(numberOfClusters="two")))

    assert "line 6 spec.numberOfClusters" in plain(page)
    assert "line 6 spec.numberOfClusters" in plain(reviewed(operator))
    assert not Placement.objects.filter(name="shop").exists()


def test_what_the_preview_leaves_out_is_named_by_its_path(operator: Client) -> None:
    rows = [
        {"weight": 20, "operator": one, "values": ["east"]} for one in ("In", "Inn")
    ]
    affinity = {"type": "Affinity", "topologyKey": "region", "topologyWeights": rows}
    wrong = {"type": "Even", "topologyKey": "region", "maxSkew": 0}

    page = typed(
        operator,
        NEW,
        dump_yaml(
            ocm_document(
                version="v1alpha1",
                numberOfClusters=2,
                spreadConstraints=[wrong, affinity],
            )
        ),
    )

    paths = "spec.spreadConstraints[0], spec.spreadConstraints[1].topologyWeights[1]"
    assert f"Ignored in preview (invalid): {paths}" in plain(page)


def test_another_namespace_is_refused_beside_the_text(operator: Client) -> None:
    save_placement(ocm_document(namespace="apps"), by=None, now=NOW)
    text = dump_yaml(ocm_document(namespace="ops"))

    answer = typed(operator, "/placements/apps:shop/edit/", text)

    assert "the namespace of the placement apps/shop cannot be changed" in plain(answer)


@pytest.mark.nightly
def test_advice_on_it_opens_as_a_draft_in_its_own_words(
    operator: Client, text_of: Fetch
) -> None:
    soft = {"topologyKey": "region", "whenUnsatisfiable": "ScheduleAnyway"}
    written = ocm_document(
        numberOfClusters=1, spreadPolicy={"spreadConstraints": [soft]}
    )
    save_placement(with_resources(written, NAMESPACE), by=None, now=NOW)
    run_due()
    decision = Placement.objects.get(name="shop").decisions.get().record.decision_id
    page = text_of(operator, f"/decisions/{decision}/?cluster=nimblefox")
    [fields] = re.findall(
        r"numberOfClusters 3 .*?<form[^>]*>(.*?)</form>", page, re.DOTALL
    )
    given = {
        name: unescape(value)
        for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', fields)
    }

    operator.post("/placements/shop/edit/", {**given, "do": "draft"})
    confirmed(operator, reviewed(operator))
    run_due()

    assert Placement.objects.get(name="shop").document["spec"] == {
        **written["spec"],
        "numberOfClusters": 3,
    }
    assert "nimblefox" in placed(Placement.objects.get(name="shop"))
