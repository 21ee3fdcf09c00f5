"""The pages of accounts in Chromium, with a security key that Chromium simulates."""

import re
from collections.abc import Callable

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect

from tests.accounts.conftest import PASSWORD
from tests.browser.test_accessibility import look
from tests.rows import person

Enter = Callable[..., Page]
FACTORS = "/account/second-factor/"
KEY = {
    "protocol": "ctap2",
    "transport": "usb",
    "hasResidentKey": False,
    "hasUserVerification": True,
    "isUserVerified": True,
}


@pytest.mark.nightly
def test_a_security_key_logs_in_and_axe_finds_nothing_serious(
    enter: Enter, complaints: list[str]
) -> None:
    person("ana", "operator")
    page = enter("/account/", name="ana")
    keys = page.context.new_cdp_session(page)
    keys.send("WebAuthn.enable")
    keys.send("WebAuthn.addVirtualAuthenticator", {"options": KEY})
    found = [
        look(page, address, dark=True)
        for address in ("/account/", "/account/password/")
    ]
    User.objects.filter(pk=person("root").pk).update(is_staff=True, is_superuser=True)
    found.append(look(enter("/", name="root"), "/admin/auth/group/add/"))

    page.goto(f"{FACTORS}keys/new/")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Confirm").click()
    page.get_by_role("button", name="Add security key").click()
    page.wait_for_url("**/codes/")
    found += [
        look(page, f"{FACTORS}{at}", dark=True)
        for at in ("", "app/", "keys/new/", "codes/new/")
    ]
    page.locator("#user-menu summary").click()
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Username").fill("ana")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    found.append(look(page, page.url, dark=True))
    page.set_viewport_size({"width": 390, "height": 844})
    width = page.evaluate("document.documentElement.scrollWidth")
    page.get_by_role("button", name="Use a security key").click()

    expect(page).to_have_url(re.compile(r"/$"))
    expect(page.locator("#user-menu summary")).to_contain_text("ana")
    assert (found, width) == ([[]] * len(found), 390)
    assert Authenticator.objects.filter(type="webauthn").count() == 1
    assert complaints == []
