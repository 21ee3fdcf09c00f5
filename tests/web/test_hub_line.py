"""The line of a live hub on its pages: state with age, and a banner while it is out of date."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from clusters.models import Hub, HubStream
from fleetui.hub_scope import in_hub
from placements.hubs.queries import summary_of
from tests.live_hubs import live_hub
from tests.rows import person
from tests.web.reading import page_text

pytestmark = pytest.mark.django_db
PAGES = (
    "",
    "clusters/",
    "placements/",
    "rollouts/",
    "what-if/",
    "resources/",
    "activity/",
    "search/",
)


@pytest.fixture
def viewer() -> Client:
    client = Client()
    client.force_login(person("vera", "viewer"))
    return client


def watched(name: str = "prod-eu", **columns: Any) -> Hub:
    """Make a hub that a watcher has, whose clusters were heard of three minutes ago."""
    now = datetime.now(UTC)
    values = {
        "state": "live",
        "state_since": now,
        "lease_expires_at": now + timedelta(minutes=5),
    }
    return live_hub(name, **(values | columns))


def stream(hub: Hub, kind: str, objects: int, **columns: Any) -> None:
    with in_hub(hub.pk):
        HubStream.objects.create(
            group="g",
            version="v1beta1",
            plural=f"{kind.lower()}s",
            kind=kind,
            form="full",
            object_count=objects,
            **columns,
        )


def page(client: Client, address: str) -> str:
    return page_text(client.get(address, follow=True))


@pytest.mark.nightly
def test_every_page_of_a_live_hub_shows_its_state_with_age(viewer: Client) -> None:
    hub = watched()
    stream(
        hub,
        "MemberCluster",
        12,
        is_required=True,
        heard_at=datetime.now(UTC) - timedelta(minutes=3),
    )

    for address in PAGES:
        text = page(viewer, f"/hubs/prod-eu/{address}")
        line = text[
            text.index('id="hub-line"') : text.index(
                "</p>", text.index('id="hub-line"')
            )
        ]
        assert '<a href="/hubs/prod-eu/about/">prod-eu</a> · KubeFleet' in line, address
        assert "Live" in line, address
        assert ">3m</time> ago" in line, address
        assert "Read only" in line, address
        assert 'id="hub-line"' not in page(viewer, f"/{address}"), address


@pytest.mark.nightly
def test_the_line_of_a_hub_takes_at_most_two_queries(viewer: Client) -> None:
    hub = watched()
    stream(hub, "MemberCluster", 1, is_required=True)

    for address in PAGES[1:]:
        counts = []
        for mount in ("", "/hubs/prod-eu"):
            viewer.get(f"{mount}/{address}")
            with CaptureQueriesContext(connection) as queries:
                viewer.get(f"{mount}/{address}")
            counts.append(len(queries))
        assert counts[1] - counts[0] <= 2, (address, counts)


def test_a_hub_that_is_out_of_date_has_a_banner_with_reason_time_and_next_attempt(
    viewer: Client,
) -> None:
    now = datetime.now(UTC)
    since, retry_at = now - timedelta(minutes=4), now + timedelta(minutes=10)
    hub = watched(
        state="stale",
        state_reason="memberclusters: connection refused",
        state_since=since,
    )
    stream(hub, "MemberCluster", 1, is_required=True, heard_at=since, retry_at=retry_at)

    text = re.sub("</?time[^>]*>", "", page(viewer, "/hubs/prod-eu/clusters/"))

    assert (
        f"Out of date: memberclusters: connection refused, since {since:%Y-%m-%d %H:%M} UTC."
        in text
    )
    assert f"Next attempt at {retry_at:%Y-%m-%d %H:%M:%S} UTC." in text
    assert f"The mirror is as of {since:%Y-%m-%d %H:%M:%S} UTC." in text
    assert "Live" not in text[text.index('id="hub-line"') :]


def test_a_hub_without_a_watcher_is_out_of_date(viewer: Client) -> None:
    long_ago = datetime.now(UTC) - timedelta(minutes=4)
    watched(lease_expires_at=long_ago, state_since=long_ago)

    text = page(viewer, "/hubs/prod-eu/")

    assert "the watcher is not running" in text
    assert "Start manage.py up" in text


@pytest.mark.nightly
@pytest.mark.parametrize("state", ["new", "connecting", "syncing", "live"])
def test_a_hub_that_is_being_read_has_no_banner(viewer: Client, state: str) -> None:
    watched(state=state)

    assert "The mirror is as of" not in page(viewer, "/hubs/prod-eu/clusters/")
    assert '<div class="note warning"' not in page(viewer, "/hubs/prod-eu/clusters/")


def test_pages_poll_the_line_of_their_hub_only(viewer: Client) -> None:
    watched()

    text = page(viewer, "/hubs/prod-eu/clusters/")
    assert 'hx-get="/hubs/prod-eu/hub-line/"' in text
    assert "KubeFleet" in page(viewer, "/hubs/prod-eu/hub-line/")
    assert viewer.get("/hub-line/").status_code == 404


def test_a_connection_without_tls_verification_is_a_warning_on_every_page(
    viewer: Client,
) -> None:
    watched(connection={"server": "https://192.0.2.1", "insecureTLS": True})

    text = page(viewer, "/hubs/prod-eu/placements/")

    assert "TLS verification off" in text
    assert '<div class="note error">' in text
    assert "192.0.2.1" not in text


def test_the_overview_of_a_live_hub_offers_no_demo_data(viewer: Client) -> None:
    watched()

    assert "demo" not in page(viewer, "/hubs/prod-eu/").lower()
    assert "Load demo data" in page(viewer, "/")


def test_placements_of_several_namespaces_are_counted_together() -> None:
    hub = watched()
    for namespace, objects in (("shop", 3), ("bank", 4)):
        stream(hub, "ResourcePlacement", objects, namespace=namespace)
    stream(hub, "ClusterResourcePlacement", 2)

    assert summary_of(hub, now=datetime.now(UTC)).placements == 9
