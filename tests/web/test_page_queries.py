"""Every page runs few queries, on a small fleet; `tests/load/test_page_budgets.py` looks at a large one."""

from datetime import UTC, datetime
from http import HTTPStatus

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import ChannelKind
from fleetui.broker import UPDATES
from fleetui.task_queue import record_heartbeat
from placements.models import ProblemKind
from placements.services.notifications.operations import (
    RuleInput,
    save_channel,
    save_rule,
)
from tests.database import compare_for_long
from tests.live_hubs import live_hub
from tests.page_samples import (
    HUB_PAGES,
    MOST_QUERIES,
    NOTIFICATION_PAGES,
    USER_PAGES,
    sample_pages,
)
from tests.rows import NOW, load_nine, person, run_due

pytestmark = pytest.mark.django_db
MORE_PAGES = {
    "a staged placement": "/placements/shelf/",
    "runs of a staged placement": "/placements/shelf/rollouts/",
    "history of a staged placement": "/placements/shelf/history/",
    "funnel": "{decision}?view=funnel",
    "affinity": "{decision}?view=affinity",
}


@pytest.fixture
def pages() -> dict[str, str]:
    """Load the demo of nine with a sample of every page, and log `ana` in, who may open all of them."""
    load_nine()
    run_due()
    ana = person("ana", "operator", "approver", "cluster-administrator")
    found = sample_pages(cluster="bravelion", placement="web", by=ana, now=NOW)
    live_hub("prod-eu", state="live", connection={"server": "https://10.0.0.1:6443"})
    save_channel(
        "chat",
        ChannelKind.WEBHOOK,
        {"address": "https://hooks.invalid/fleet", "key": "a long random text"},
        by=None,
        now=NOW,
    )
    rule = RuleInput("payments", "chat", (ProblemKind.DRIFT,))
    save_rule(rule, by=None, now=NOW)
    decision = found["decision"].partition("?")[0]
    values = {"hub": "prod-eu", "user": ana.pk, "decision": decision}
    others = {**HUB_PAGES, **USER_PAGES, **NOTIFICATION_PAGES, **MORE_PAGES}
    record_heartbeat([UPDATES], now=datetime.now(UTC))
    compare_for_long()
    return found | {name: where.format(**values) for name, where in others.items()}


def test_every_page_runs_few_queries(pages: dict[str, str]) -> None:
    ana, root = Client(), Client()
    ana.force_login(User.objects.get(username="ana"))
    root.force_login(User.objects.create_superuser("root"))
    found = {}
    for name, address in pages.items():
        client = root if name in {**USER_PAGES, **NOTIFICATION_PAGES} else ana
        client.get(address)
        with CaptureQueriesContext(connection) as queries:
            answer = client.get(address)
        if len(queries) > MOST_QUERIES or answer.status_code != HTTPStatus.OK:
            found[name] = len(queries), answer.status_code

    assert found == {}
