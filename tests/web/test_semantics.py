"""The page that puts the four sets of rules side by side, and its twin over REST."""

from collections.abc import Callable

import pytest
from django.test import Client

from fleetui.apimachinery.yaml import dump_yaml
from placements.manifests.ocm import SPREAD_OPTIONS_ANNOTATION
from placements.models import Decision, Placement
from tests.web.editing import draft_address, typed

pytestmark = pytest.mark.django_db

Fetch = Callable[[Client, str], str]


@pytest.fixture
def web(nine: None) -> str:  # noqa: ARG001 -- it has the placement
    """Return the id of the latest decision on the demo's placement web."""
    rows = Decision.objects.filter(placement_name="web").select_related("record")
    return rows.latest("number").record.decision_id


def test_shows_which_clusters_each_would_select_and_where_they_differ(
    viewer: Client, text_of: Fetch, web: str
) -> None:
    page = " ".join(text_of(viewer, f"/decisions/{web}/semantics/").split())

    assert "First difference at rank 1." in page
    assert (
        "<strong>fleet and kubefleet</strong> select quietheron rather than bravelion"
        in page
    )
    assert (
        "<strong>ocm</strong> selects the first name of equals where fleet selects the last"
        in page
    )
    assert page.count("First difference</span>") == 1
    assert "<strong>bravelion</strong>" in page
    assert "palemoth" in page


@pytest.mark.nightly
def test_the_others_are_followed_one_by_one(
    viewer: Client, text_of: Fetch, web: str
) -> None:
    page = " ".join(text_of(viewer, f"/decisions/{web}/semantics/").split())

    first, _, later = page.partition("Compared with fleet only:")
    assert "<strong>fleet and kubefleet</strong> select quietheron" in first
    assert (
        "<strong>kubefleet</strong> places the same clusters as fleet, in the same order"
        in later
    )


@pytest.mark.nightly
def test_the_decision_links_to_it(viewer: Client, text_of: Fetch, web: str) -> None:
    assert f"/decisions/{web}/semantics/" in text_of(
        viewer, f"/decisions/{web}/?view=compare"
    )


@pytest.mark.nightly
def test_the_own_column_is_the_decision_itself(viewer: Client, web: str) -> None:
    answer = viewer.get(f"/api/v1/decisions/{web}/semantics").json()

    assert sorted(answer["semantics"]) == ["fleet", "kubefleet", "kubernetes", "ocm"]
    assert answer["semantics"]["fleet"]["id"] == web
    assert answer["firstDifference"]["place"] == 1
    assert answer["refused"] == {}


@pytest.mark.nightly
def test_a_prefix_leads_to_the_decision_and_an_unknown_one_to_nothing(
    viewer: Client, web: str
) -> None:
    assert viewer.get(f"/decisions/{web[:12]}/semantics/").status_code == 302
    assert viewer.get("/decisions/d-ffffffff/semantics/").status_code == 404


def test_it_needs_a_role(stranger: Client, web: str) -> None:
    assert stranger.get(f"/decisions/{web}/semantics/").status_code == 403


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_a_text_that_is_not_saved_is_compared_beside_the_editor(
    operator: Client,
) -> None:
    text = "# a draft\n" + dump_yaml(Placement.objects.get(name="web").document)
    before = Decision.objects.count()
    typed(operator, "/placements/web/edit/", text)

    answer = operator.get(f"{draft_address()}review/?rules=all")
    page = " ".join(answer.content.decode().split())

    assert answer.status_code == 200
    assert "(this manifest)" in page
    assert page.count("First difference</span>") == 1
    assert "with the current fleet and bindings; nothing is saved" in page
    assert Decision.objects.count() == before


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_a_text_at_fault_is_not_compared(operator: Client) -> None:
    typed(operator, "/placements/web/edit/", "a: [")

    answer = operator.get(f"{draft_address()}review/?rules=all")

    assert "(this manifest)" not in answer.content.decode()
    assert "Invalid YAML" in answer.content.decode()


@pytest.mark.nightly
@pytest.mark.usefixtures("web")
def test_rules_that_cannot_be_evaluated_are_not_counted_as_agreeing(
    operator: Client,
) -> None:
    document = Placement.objects.get(name="web").document
    document["metadata"]["name"] = "named"
    document["spec"]["policy"] = {
        "placementType": "PickFixed",
        "clusterNames": ["smartfish"],
    }
    document["metadata"]["annotations"] = {
        SPREAD_OPTIONS_ANNOTATION: '{"mode": "sideways"}'
    }
    typed(operator, "/placements/new/", dump_yaml(document))

    page = operator.get(f"{draft_address()}review/?rules=all").content.decode()

    assert "Not applicable" in page
    assert "All rules" not in page
    assert "All applicable rules place the same clusters" in " ".join(page.split())
