"""REST of dry runs: the POST has the answers; for operators only."""

import pytest
from rest_framework.test import APIClient

from tests.rows import all_joined, config_map, decided, namespace, spec

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/placements/web/diffs"


@pytest.fixture(autouse=True)
def _web() -> None:
    all_joined("a", "b")
    decided("web", spec())


def test_a_dry_run_is_answered_at_once(api: APIClient) -> None:
    body = {"manifests": [namespace("shop"), config_map("settings")]}

    answer = api.post(ADDRESS, body, format="json")

    assert (answer.status_code, answer.json()) == (
        200,
        {
            "sentences": ["2 clusters without a connection: not checked."],
            "answers": [],
            "notChecked": {"reported": 2},
            "leftOut": 0,
        },
    )


def test_an_unknown_cluster_and_an_edit_that_cannot_be_saved_are_refused(
    api: APIClient,
) -> None:
    unknown = api.post(ADDRESS, {"clusters": ["nine"]}, format="json")
    invalid = api.post(
        ADDRESS, {"manifests": [config_map("lost", in_="nowhere")]}, format="json"
    )

    assert (unknown.status_code, unknown.json()["faults"][0]["path"]) == (
        422,
        "clusters[0]",
    )
    assert (
        invalid.status_code,
        "nowhere is not on the hub" in str(invalid.json()),
    ) == (422, True)


def test_a_viewer_starts_no_dry_run(reader: APIClient) -> None:
    assert reader.post(ADDRESS, {}, format="json").status_code == 403
