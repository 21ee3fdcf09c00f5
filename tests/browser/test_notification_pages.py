"""The pages of notifications and users, for superusers, in a browser, in light and dark and on a phone."""

from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page

from clusters.models import ChannelKind
from placements.models.problems import NOTIFIED
from placements.services.notifications.operations import (
    RuleInput,
    save_channel,
    save_rule,
    send_test,
)
from tests.browser.test_accessibility import look
from tests.page_samples import NOTIFICATION_PAGES, USER_PAGES

Enter = Callable[..., Page]


@pytest.mark.nightly
@pytest.mark.usefixtures("console")
@pytest.mark.parametrize("width", [1440, 390])
def test_nothing_sticks_out_and_axe_finds_nothing_serious(
    enter: Enter, width: int
) -> None:
    now = datetime.now(UTC)
    webhook = {"address": "https://hooks.invalid/fleet", "key": "a long random text"}
    save_channel("chat", ChannelKind.WEBHOOK, webhook, by=None, now=now)
    save_rule(
        RuleInput("payments", "chat", tuple(map(str, NOTIFIED))), by=None, now=now
    )
    page = enter("/", "operator", width=width)
    User.objects.update(is_superuser=True)
    send_test("chat", by=User.objects.all()[0], now=now)
    found = {}
    user = User.objects.earliest("pk").pk
    for name, where in {**NOTIFICATION_PAGES, **USER_PAGES}.items():
        faults = look(page, where.format(user=user), dark=True)
        wide = page.evaluate("document.documentElement.scrollWidth")
        if faults or wide > width:
            found[name] = [*faults, f"{wide} pixels wide"]

    assert found == {}
