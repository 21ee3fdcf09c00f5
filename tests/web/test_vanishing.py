"""What a page reads may be deleted between any two queries: a list is without it, and its page not found."""

from functools import partial
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.urls import ResolverMatch

from fleetui.hub_scope import LOCAL_HUB, in_hub
from fleetui.middleware import ReadAgainMiddleware
from placements.models import Placement, ProblemBook
from tests.database import compare_for_long
from tests.effort import IS_FULL
from tests.hubs.test_live_pages import MOUNT, ROLES, busy_hub
from tests.rows import person
from tests.vanishing import cluster_is_deleted, faults, placement_is_deleted
from tests.web.test_every_page import (
    ASK,
    READ,
    READ_AND_WRITE,
    WRITE,
    address_of,
    begin_everything,
)

pytestmark = pytest.mark.django_db
EVERY = 1 if IS_FULL else 20
"""The distance of the queries before which something is deleted; which ones differs by page."""
LIVE = (
    *(
        "",
        "clusters/",
        "clusters/paris/",
        "placements/",
        "placements/web/",
        "placements/web/drift/",
    ),
    *(
        "placements/web/clusters/paris/",
        "rollouts/",
        "activity/",
        "topology/",
        "overrides/",
        "disruptions/",
    ),
)


@pytest.mark.larger
def test_no_page_fails_for_what_is_deleted_meanwhile(
    operator: Client, web: Placement, subtests: pytest.Subtests
) -> None:
    decision_id = begin_everything(web)
    compare_for_long()
    deletions = {
        "placement": placement_is_deleted("web", hub=LOCAL_HUB),
        "cluster": cluster_is_deleted("nimblefox", hub=LOCAL_HUB),
    }
    for number, address in enumerate([*READ, *READ_AND_WRITE, *ASK, *WRITE]):
        read = partial(operator.get, address_of(address, decision_id))
        with subtests.test(address):
            assert faults(read, deletions, first=number % EVERY + 1, every=EVERY) == []
    ProblemBook.objects.all().delete()
    with subtests.test("a page that compares problems and statuses first"):
        assert (
            faults(partial(operator.get, "/"), deletions, every=1 if IS_FULL else 3)
            == []
        )


@pytest.mark.larger
def test_no_page_of_a_live_hub_fails_for_what_is_deleted_meanwhile(
    client: Client, subtests: pytest.Subtests
) -> None:
    live = busy_hub()
    client.force_login(person("ann", *ROLES))
    with in_hub(live.hub.pk):
        compare_for_long()
    deletions = {
        "placement": placement_is_deleted("web", hub=live.hub.pk),
        "cluster": cluster_is_deleted("paris", hub=live.hub.pk),
    }
    for number, address in enumerate(
        [*(f"{MOUNT}/{one}" for one in LIVE), "/inbox/", "/hubs/"]
    ):
        read = partial(client.get, address)
        assert read().status_code == 200, address
        with subtests.test(address):
            assert faults(read, deletions, first=number % EVERY + 1, every=EVERY) == []


@pytest.mark.parametrize(("method", "count"), [("GET", 2), ("POST", 1)])
def test_what_fails_twice_is_a_fault(
    method: str, count: int, rf: RequestFactory
) -> None:
    calls = []

    def view(_request: object) -> Any:
        calls.append(1)
        raise AttributeError("broken")

    def responds(request: Any) -> Any:
        try:
            return view(request)
        except AttributeError as error:
            answer = middleware.process_exception(request, error)
            if answer is None:
                raise
            return answer

    middleware = ReadAgainMiddleware(responds)
    request: Any = rf.generic(method, "/")
    request.resolver_match = ResolverMatch(view, (), {})

    with pytest.raises(AttributeError):
        middleware(request)
    assert len(calls) == count
