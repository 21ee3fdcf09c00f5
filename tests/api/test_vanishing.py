"""What REST reads may be deleted between any two queries: a list is without it, and its address not found."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from django.test import Client
from schemathesis.core.result import Ok

from fleetui.hub_scope import LOCAL_HUB, in_hub
from placements.models import ProblemBook
from tests.api.test_schema import filled_hub, on_what_is_there, read_schema
from tests.database import compare_for_long
from tests.effort import IS_FULL
from tests.hubs.test_live_pages import ROLES, busy_hub
from tests.rows import api_token, person
from tests.vanishing import cluster_is_deleted, faults, placement_is_deleted

pytestmark = pytest.mark.django_db
EVERY = 1 if IS_FULL else 9
"""The distance of the queries before which something is deleted; which ones differs by operation."""


def _reading_operations() -> Iterator[Any]:
    for found in read_schema().get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        if operation.method.upper() == "GET":
            yield operation


@pytest.mark.larger
def test_no_call_fails_for_what_is_deleted_meanwhile(subtests: pytest.Subtests) -> None:
    there = filled_hub()
    compare_for_long()
    client = Client(headers={"Authorization": f"Token {there['token']}"})
    deletions = {
        "placement": placement_is_deleted("web", hub=LOCAL_HUB),
        "cluster": cluster_is_deleted("a", hub=LOCAL_HUB),
    }
    for number, operation in enumerate(_reading_operations()):
        case = on_what_is_there(operation, there)
        read = partial(client.get, case.formatted_path, case.query or {})
        with subtests.test(case.formatted_path):
            assert faults(read, deletions, first=number % EVERY + 1, every=EVERY) == []
    ProblemBook.objects.all().delete()
    read = partial(client.get, "/api/v1/placements")
    with subtests.test("a list that compares problems and statuses first"):
        assert faults(read, deletions, every=1 if IS_FULL else 3) == []


@pytest.mark.larger
def test_no_list_of_a_live_hub_fails_for_what_is_deleted_meanwhile(
    subtests: pytest.Subtests,
) -> None:
    live = busy_hub()
    with in_hub(live.hub.pk):
        compare_for_long()
    client = Client(
        headers={"Authorization": f"Token {api_token(person('ann', *ROLES))}"}
    )
    deletions = {
        "placement": placement_is_deleted("web", hub=live.hub.pk),
        "cluster": cluster_is_deleted("paris", hub=live.hub.pk),
    }
    for number, name in enumerate(
        (
            "placements",
            "clusters",
            "rollouts",
            "placements/web",
            "placements/web/bindings",
            "events",
        )
    ):
        read = partial(client.get, f"/hubs/prod-eu/api/v1/{name}")
        assert read().status_code == 200, name
        with subtests.test(name):
            assert faults(read, deletions, first=number % EVERY + 1, every=EVERY) == []
