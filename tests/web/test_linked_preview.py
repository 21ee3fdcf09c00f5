"""The preview that a comment on a pull request links to: its content is in the address."""

from typing import Any

import pytest
from django.test import Client

from fleetui.apimachinery.links import LONGEST_LINK, linked_text, preview_link
from fleetui.apimachinery.yaml import dump_yaml
from placements.models import Draft, Placement
from tests.rows import pick_n_spec, placement_document

pytestmark = pytest.mark.django_db


def page_of(client: Client, document: Any) -> str:
    address = preview_link("", document)
    return client.get(address).content.decode()


def test_a_reviewer_sees_what_a_change_does_and_nothing_is_saved(
    viewer: Client, web: Placement
) -> None:
    page = page_of(viewer, placement_document("web", pick_n_spec(3)))

    assert "<h1>Preview of web</h1>" in page
    assert "numberOfClusters: 3" in page
    assert "3 of 3 clusters selected" in page
    assert not Draft.objects.exists()
    web.refresh_from_db()
    assert web.number_of_clusters != 3


def test_a_new_placement_and_an_invalid_one_have_a_page(viewer: Client) -> None:
    new = page_of(viewer, placement_document("new", pick_n_spec(1)))
    wrong = page_of(viewer, placement_document("new", pick_n_spec(-1)))

    assert "Preview of a new placement" in new
    assert "greater than or equal to 0" in wrong


@pytest.mark.parametrize("content", ["", "x", "%F0%9F%98%80", "eJw", "AAAA"])
def test_a_damaged_link_is_refused(viewer: Client, content: str) -> None:
    response = viewer.get(f"/previews/?content={content}")

    assert response.status_code == 400
    assert "Invalid link: the content of the link is incomplete" in (
        response.content.decode()
    )


def test_a_link_fits_the_request_line_or_there_is_none() -> None:
    document = placement_document("web", pick_n_spec(1))
    large = {**document, "note": [str(number**9) for number in range(3_000)]}

    link = preview_link("https://fleet.example.com/", document)

    assert linked_text(link.partition("content=")[2]) == dump_yaml(document)
    assert link.startswith("https://fleet.example.com/previews/?content=")
    assert len(link) < LONGEST_LINK
    assert preview_link("https://fleet.example.com", large) == ""


def test_a_small_link_with_a_large_text_is_refused() -> None:
    link = preview_link("", {"note": "a" * 1_100_000})

    with pytest.raises(ValueError, match="too large"):
        linked_text(link.partition("content=")[2])
