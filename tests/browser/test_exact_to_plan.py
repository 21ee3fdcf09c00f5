"""From the exact verdict on a decision to the plan that reaches it, and the verdict in the editor."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import Decision
from tests.rows import decided, joined, pick_n_spec

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]
LABELS = {"c0": "r0 e0", "c1": "r2 e0", "c2": "r2 e1", "c3": "r0 e1", "c4": "r0 e1"}


@pytest.fixture
def short() -> str:
    """Make a placement with 3 of 4 clusters, although a set of four exists; return its decision's address."""
    for name, labels in LABELS.items():
        joined(name, region=labels.split()[0], env=labels.split()[1])
    hard = [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
        for key in ("region", "env")
    ]
    decided("lab", pick_n_spec(4, topologySpreadConstraints=hard))
    return f"/decisions/{Decision.objects.get().record.decision_id}/"


def test_a_plan_reaches_the_set_of_the_verdict(enter: Enter, short: str) -> None:
    page = enter(short, "operator")

    expect(page.get_by_text("4 of 4 are possible without any change.")).to_be_visible()
    page.get_by_role("link", name="Show the set").click()
    expect(
        page.get_by_text("In an order in which every selection keeps the hard limits")
    ).to_be_in_viewport()
    page.get_by_role("link", name="Plan the moves").first.click()
    expect(
        page.get_by_text("With 1 move and 1 new cluster, 4 of 4 clusters are selected.")
    ).to_be_visible()
    page.get_by_role("button", name="Reschedule lab").click()
    expect(page.get_by_text("Placement lab rescheduled.")).to_be_visible()
    expect(page.get_by_role("link", name="Selected 4")).to_be_visible()


def test_the_editor_shows_the_verdict_while_one_types(enter: Enter, short: str) -> None:
    page = enter("/placements/lab/edit/", "operator")

    number = page.get_by_label("Number of clusters")
    number.fill("5")
    expect(
        page.locator("#preview").get_by_text("5 of 5 are possible without any change")
    ).to_be_visible()
    number.fill("4")
    expect(
        page.locator("#preview").get_by_text(
            "4 of 4 are possible if selected clusters may leave"
        )
    ).to_be_visible()
