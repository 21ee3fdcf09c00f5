"""Connecting a cluster: a kubeconfig is pasted, checked and joined, by keyboard alone, and on a phone."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from clusters.models import MemberCluster
from tests.clusters.kubernetes.local_members import kubeconfig
from tests.clusters.kubernetes.servers import LocalServer, Member

pytestmark = pytest.mark.usefixtures("local_drivers")

Enter = Callable[..., Page]


@pytest.fixture
def member() -> Member:
    return Member(denied={"list nodes"})


@pytest.mark.parametrize("width", [1440, pytest.param(390, marks=pytest.mark.nightly)])
def test_a_kubeconfig_is_pasted_checked_and_joined(
    enter: Enter, server: LocalServer, member: Member, complaints: list[str], width: int
) -> None:
    page = enter("/clusters/", "cluster-administrator", width=width)
    page.get_by_role("link", name="Add member cluster").press("Enter")
    result = page.locator("#connection-result")
    area = page.get_by_label("Kubeconfig (required)")

    page.get_by_label("Name (required)").fill("alpha")
    page.keyboard.press("Enter")  # the first button is Check
    expect(page.locator("#errors-kubeconfig")).to_contain_text("Required value")
    area.fill(kubeconfig(server))
    page.get_by_role("button", name="Check").press("Enter")
    expect(result).to_contain_text("permissions missing on 1 kind")
    expect(page.locator("#errors-kubeconfig")).to_be_empty()
    assert "marker-token" in area.input_value()
    assert "marker-token" not in result.inner_html()
    assert page.evaluate("document.documentElement.scrollWidth") <= width

    page.get_by_role("button", name="Add member cluster").press("Enter")
    expect(result).to_contain_text("Not saved: the check failed")
    assert not MemberCluster.objects.exists()
    page.get_by_label("Save although the check failed").press("Space")
    page.get_by_role("button", name="Add member cluster").press("Enter")

    expect(page).to_have_url(re.compile("/clusters/alpha/connection/$"))
    assert "marker-token" not in page.content()
    member.denied = set()
    page.get_by_role("button", name="Test connection").press("Enter")
    expect(page.locator("#check")).to_contain_text("Check passed")
    complaints[:] = [
        complaint for complaint in complaints if "422" not in complaint
    ]  # Chromium reports every refusal


def test_fields_of_what_is_not_chosen_are_hidden(enter: Enter) -> None:
    page = enter("/clusters/new/", "operator", "cluster-administrator")
    area, token = (
        page.get_by_label("Kubeconfig (required)"),
        page.get_by_label("Token", exact=True),
    )

    expect(area).to_be_hidden()  # a simulated cluster is the default
    page.locator("#kind-kubernetes").check()
    expect(area).to_be_visible()
    expect(token).to_be_hidden()
    page.get_by_label("Separate fields").check()
    expect(area).to_be_hidden()
    expect(token).to_be_visible()
    page.get_by_label("Simulated").check()
    expect(token).to_be_hidden()
    expect(page.get_by_role("button", name="Check")).to_be_hidden()
