"""A hard topology limit that what a live hub has placed exceeds, as on the local hub."""

from datetime import UTC, datetime

import pytest
from django.test import Client

from placements.hubs.tasks import refresh_hubs
from tests.database import compare_all
from tests.hubs.hub_documents import binding, member, placement, snapshot
from tests.hubs.projecting import ProjectedHub

pytestmark = pytest.mark.django_db
SPREAD = {"topologyKey": "region", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def test_a_live_hub_that_is_out_of_balance_is_shown_so(admin_client: Client) -> None:
    live = ProjectedHub()
    now = datetime.now(UTC)
    regions = {"paris": "west", "lyon": "east", "nice": "east"}
    for name, region in regions.items():
        live.put(
            "MemberCluster",
            member(name, heartbeat=f"{now:%Y-%m-%dT%H:%M:%SZ}", region=region),
        )
    wanted = placement("web")
    wanted["spec"]["policy"]["topologySpreadConstraints"] = [SPREAD]
    live.put("ClusterResourcePlacement", wanted)
    decided = snapshot("web")
    decided["spec"]["policy"]["topologySpreadConstraints"] = [SPREAD]
    live.put("ClusterSchedulingPolicySnapshot", decided)
    live.put(
        "ClusterResourceBinding",
        binding("web", "lyon", state="Bound"),
        binding("web", "nice", state="Bound"),
    )
    live.project(now=now)

    refresh_hubs()

    page = admin_client.get("/hubs/prod-eu/placements/web/").content.decode()
    assert "Out of balance" in page
    assert "region skew 2 with east 2 and west 0, max skew 1" in page
    compare_all(now=now)
    listed = admin_client.get(
        "/hubs/prod-eu/placements/?state=degraded"
    ).content.decode()
    assert "Out of balance" in listed
