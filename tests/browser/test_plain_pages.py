"""Without JavaScript, on a phone: links and forms are enough to approve a stage, and to drain a cluster."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from placements.models import ApprovalRequest, Drain
from tests.services.rollouts.staged import StagedWorld, stage, staged_spec

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]


def test_a_stage_is_approved_from_the_list_of_what_waits(enter: Enter) -> None:
    world = StagedWorld(
        {"canary": ["c001"], "prod": ["c000"]},
        stage("canary", after=True),
        stage("prod"),
    )
    world.place("web", staged_spec())
    world.begin("one")
    world.go_on()
    page = enter("/rollouts/?waiting=approval", name="ann", javascript=False, width=390)

    page.get_by_role("link", name="Approve stage").click()
    expect(page).to_have_url(re.compile("/rollouts/staged/runs/one/approve/canary/$"))
    page.get_by_role("main").get_by_role("button").click()

    expect(page).to_have_url(re.compile("/rollouts/staged/runs/one/$"))
    assert ApprovalRequest.objects.get().approved_by == "ann"
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_a_cluster_is_drained_and_uncordoned(enter: Enter, nine: None) -> None:
    page = enter("/clusters/nimblefox/", "operator", javascript=False, width=390)

    page.get_by_role("main").get_by_role("link", name="Drain", exact=True).click()
    page.get_by_label("Some placements lose a cluster without a replacement").fill(
        "nimblefox"
    )
    page.get_by_role("button", name="Drain nimblefox").click()
    expect(page.get_by_role("progressbar", name="Placements evicted")).to_be_visible()
    page.get_by_role("button", name="Cancel drain").click()
    assert Drain.objects.get().state == Drain.State.CANCELLED

    page.get_by_role("link", name="Uncordon nimblefox").click()
    page.get_by_role("button", name="Uncordon").click()
    page.goto("/clusters/nimblefox/")
    expect(page.get_by_role("button", name="Cordon", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
