"""The editor by keyboard: leaving a field is no press on the button that comes next."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from fleetui.access.secret_values import plain_manifest
from placements.models import Draft

pytestmark = pytest.mark.nightly

Enter = Callable[..., Page]
_PREFERENCES = "spec.policy.affinity.clusterAffinity.preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.usefixtures("nine")
def test_a_tab_from_a_field_onto_a_button_does_not_press_it(enter: Enter) -> None:
    page = enter("/placements/cache/edit/", "operator")
    page.locator(f'button[name="add"][value="{_PREFERENCES}"]').click()
    row = f"{_PREFERENCES}[0].preference.labelSelector.matchExpressions[0]"
    page.locator(f'[name="{row}.key"]').fill("system")

    page.locator(f'[name="{row}.values"]').fill("critical")
    page.keyboard.press("Tab")

    remove = page.locator(f'button[name="remove"][value="{_PREFERENCES}[0]"]')
    expect(remove).to_be_focused()
    expect(page.locator("#preview")).to_contain_text("prefer system=critical (+10)")
    expect(page).to_have_url(re.compile(r"/drafts/\d+/$"))
    expect(page.locator(f'[name="{row}.values"]')).to_have_value("critical")
    assert "system" in plain_manifest(Draft.objects.get().text)


@pytest.mark.usefixtures("nine")
def test_a_button_in_focus_is_still_pressed_with_enter(enter: Enter) -> None:
    page = enter("/placements/web/edit/", "operator")

    page.locator(f'button[name="remove"][value="{_PREFERENCES}[1]"]').press("Enter")

    expect(page.locator("#preview")).not_to_contain_text("env=canary")
    expect(page.locator(f'[name="{_PREFERENCES}[1].weight"]')).to_have_count(0)
