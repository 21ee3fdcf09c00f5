"""REST of dry runs: accepted at once, answered later, for operators only."""

from datetime import UTC, datetime

import pytest
from rest_framework.test import APIClient

from placements.models import DryRun
from placements.services.dry_runs import run_due
from tests.rows import NOW, all_joined, config_map, decided, namespace, spec

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/placements/web/diffs"


@pytest.fixture(autouse=True)
def _web() -> None:
    all_joined("a", "b")
    decided("web", spec())


def test_a_dry_run_is_accepted_and_answered_later(api: APIClient) -> None:
    body = {"manifests": [namespace("shop"), config_map("settings")]}
    accepted = api.post(ADDRESS, body, format="json")
    assert (accepted.status_code, accepted.json()["endedAt"]) == (202, None)

    run_due(now=datetime.now(UTC), threads=0)

    found = api.get(accepted["Location"]).json()
    assert found["endedAt"] is not None
    assert (found["answers"], found["notChecked"]) == ([], {"reported": 2})
    assert found["sentences"] == ["2 clusters without a connection: not checked."]


def test_an_unknown_cluster_and_another_placement_are_refused(api: APIClient) -> None:
    unknown = api.post(ADDRESS, {"clusters": ["nine"]}, format="json")
    row = DryRun.objects.create(placement_name="api", created_at=NOW, created_by="ana", ended_at=NOW)

    assert (unknown.status_code, unknown.json()["faults"][0]["path"]) == (422, "clusters[0]")
    assert api.get(f"{ADDRESS}/{row.pk}").status_code == 404


def test_a_viewer_starts_no_dry_run(reader: APIClient) -> None:
    assert reader.post(ADDRESS, {}, format="json").status_code == 403
    assert not DryRun.objects.exists()
