"""Objects that are called like a page stay reachable, and links lead to them."""

import pytest
from django.test import Client
from django.urls import reverse
from rest_framework.test import APIClient

from tests.rows import all_joined, decided, person, pick_n_spec, placement_document

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _namesakes() -> None:
    """Make a cluster and placements that are called like pages."""
    all_joined("import", "a")
    decided("new", pick_n_spec(2))
    decided("preview", pick_n_spec(1))


@pytest.mark.parametrize(
    ("page", "name", "address", "heading"),
    [
        ("cluster", "import", "/clusters/-/import/", "import"),
        ("cluster", "a", "/clusters/a/", "a"),
        ("placement", "new", "/placements/-/new/", "new"),
        ("placement", "preview", "/placements/preview/", "preview"),
    ],
)
def test_each_has_a_page_and_links_lead_there(
    operator: Client, page: str, name: str, address: str, heading: str
) -> None:
    assert reverse(f"pages:{page}", args=[name]) == address

    found = operator.get(address)

    assert found.status_code == 200
    assert found.context[page].name == heading


def test_the_lists_link_to_them_and_the_pages_that_hide_them_stay(operator: Client) -> None:
    assert 'href="/clusters/-/import/"' in operator.get("/clusters/").content.decode()
    assert 'href="/placements/-/new/"' in operator.get("/placements/").content.decode()
    assert "<h1>New placement</h1>" in operator.get("/placements/new/").content.decode()
    assert operator.get("/clusters/import/").status_code == 200
    assert operator.get("/placements/new/edit/").context["editor"].placement.name == "new"


def test_no_other_name_has_such_an_address(operator: Client) -> None:
    assert operator.get("/clusters/-/a/").status_code == 404
    assert operator.get("/placements/-/preview/").status_code == 404


def test_a_placement_named_preview_is_read_and_written_at_its_address() -> None:
    api = APIClient()
    api.force_authenticate(person("ann", "operator"))
    address, document = "/api/v1/placements/preview", placement_document("preview", pick_n_spec(2))

    assert api.get(address).json()["metadata"]["name"] == "preview"
    assert api.post(address, document, format="json").status_code == 200
    assert api.put(address, document, format="json").status_code == 200
    assert api.get(address).json()["spec"]["policy"]["numberOfClusters"] == 2
    assert api.delete(address).status_code == 204


def test_a_viewer_previews_there_and_writes_nothing() -> None:
    api = APIClient()
    api.force_authenticate(person("vic", "viewer"))
    address, document = "/api/v1/placements/preview", placement_document("preview", pick_n_spec(2))

    answers = [api.get(address), api.post(address, document, format="json")]
    refused = [api.put(address, document, format="json"), api.delete(address)]

    assert [one.status_code for one in answers] == [200, 200]
    assert [one.status_code for one in refused] == [403, 403]
    assert api.get(address).json()["spec"]["policy"]["numberOfClusters"] == 1
