"""Pages and REST where a stored decision does not replay, or cannot be read by this engine."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.services.verification import verify_due
from tests.database import compare_all
from tests.records import OLD_ID, outdate, tamper
from tests.rows import NOW, all_joined, decided, pick_n_spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def outdated() -> None:
    """Have a placement that is not fulfilled, decided by an engine that was removed."""
    all_joined("a", "b")
    decided("web", pick_n_spec(3))
    outdate()


def test_the_page_of_a_faulty_record_says_so(viewer: Client) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(2))
    row = tamper()
    verify_due(now=NOW)

    page = viewer.get(f"/decisions/{row.decision_id}/?view=inputs").content.decode()

    assert "Verification failed" in page
    assert page.count("step 1 selected b, and would select c") == 2


@pytest.mark.nightly
@pytest.mark.usefixtures("outdated")
@pytest.mark.parametrize(
    "address", ["/", "/placements/", "/placements/web/", "/placements/web/history/"]
)
def test_pages_live_with_a_record_of_another_engine(
    viewer: Client, address: str
) -> None:
    assert viewer.get(address).status_code == 200


@pytest.mark.usefixtures("outdated")
@pytest.mark.parametrize("rest", ["", "clusters/a/", "semantics/"])
def test_its_own_page_says_why_it_is_not_shown(viewer: Client, rest: str) -> None:
    page = viewer.get(f"/decisions/{OLD_ID}/{rest}")

    assert page.status_code == 410
    assert f"Record of engine 0, this one is {ENGINE_VERSION}." in page.content.decode()


@pytest.mark.usefixtures("outdated")
def test_rest_says_so_with_a_code(viewer: Client) -> None:
    answer = viewer.get(f"/api/v1/decisions/{OLD_ID}")

    assert (answer.status_code, answer.json()["type"]) == (
        410,
        "urn:fleetui:problem:unreadable-record",
    )


@pytest.mark.usefixtures("outdated")
def test_the_manifest_with_status_waits_for_the_new_decision(viewer: Client) -> None:
    conditions = viewer.get("/api/v1/placements/web").json()["status"]["conditions"]

    assert (conditions[0]["type"], conditions[0]["status"]) == (
        "ClusterResourcePlacementScheduled",
        "Unknown",
    )


def test_the_overview_names_a_record_that_does_not_replay(viewer: Client) -> None:
    all_joined("a", "b", "c")
    decided("web", pick_n_spec(2))
    row = tamper()
    assert "Verification failed" not in viewer.get("/").content.decode()

    verify_due(now=NOW)
    compare_all(now=datetime.now(UTC))

    page = viewer.get("/").content.decode()
    assert "gives a different result (step 1 selected b, and would select c)." in page
    assert (
        f'href="/decisions/{row.decision_id}/"'
        in page.partition('id="attention"')[2].partition("</section>")[0]
    )
