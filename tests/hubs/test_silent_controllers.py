"""A hub whose controllers are down: what is not decided is counted, and pages say since when."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from clusters.models import Hub
from placements.models import Placement
from placements.services.dashboard import queries
from placements.services.filters import (
    PlacementFilter,
    PlacementFilterState,
    placements_matching,
)
from placements.services.health import health_of
from tests.hubs.hub_documents import member, placement
from tests.hubs.projecting import ProjectedHub
from tests.rows import person

pytestmark = pytest.mark.django_db


def hub_heard(ago: timedelta) -> ProjectedHub:
    """Return a live hub with two placements that nothing was decided for, and a cluster heard so long ago."""
    now = datetime.now(UTC)
    live = ProjectedHub()
    live.mirror._clock = lambda: now - ago
    Hub.objects.filter(pk=live.hub.pk).update(
        lease_expires_at=now + timedelta(hours=1), state_since=now
    )
    paris: dict[str, Any] = member("paris")
    for agent in paris["status"]["agentStatus"]:
        agent["lastReceivedHeartbeat"] = f"{now - ago:%Y-%m-%dT%H:%M:%SZ}"
    undecided = [placement("web"), placement("api")]
    for document in undecided:
        document["status"] = {"conditions": []}
    live.put("MemberCluster", paris)
    live.put("ClusterResourcePlacement", *undecided)
    live.project(now=now)
    return live


def test_what_the_hub_has_not_decided_is_counted_and_shown() -> None:
    live = hub_heard(timedelta(seconds=30))

    with live.scope():
        counted = queries.counts()
        listed = placements_matching(
            PlacementFilter(state=PlacementFilterState.PENDING)
        )
        health = health_of(Placement.objects.get(name="web"), now=datetime.now(UTC))

        assert (counted.pending, counted.unfulfilled) == (2, 0)
        assert sorted(one.name for one in listed) == ["api", "web"]
        assert (health.level, health.summary) == ("progress", "Scheduling")


@pytest.mark.parametrize(("ago", "is_silent"), [(30, False), (20 * 60, True)])
def test_pages_say_since_when_the_controllers_have_written_nothing(
    client: Client, ago: int, is_silent: bool
) -> None:
    hub_heard(timedelta(seconds=ago))
    client.force_login(person("ann", "operator"))
    words = "The controllers of the hub have written nothing since"

    for address in (
        "/hubs/prod-eu/",
        "/hubs/prod-eu/placements/",
        "/hubs/prod-eu/about/",
    ):
        assert (words in client.get(address).content.decode()) is is_silent, address
