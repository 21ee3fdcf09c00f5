"""The page of a decision on 5,000 clusters: at most 300 kB and 6,000 elements, figures included."""

import re
from functools import cache

import pytest
from django.test import Client

from placements.engine.scheduling.decision import ENGINE_VERSION
from placements.engine.scheduling.decision import Decision as Value
from placements.engine.scheduling.record import pack, pack_fleet
from placements.models import Decision, DecisionRecord, FleetRecord
from tests.builders import cluster, decide, fleet, labelled, pick_n, prefer, spread
from tests.caches import forget_cached_records
from tests.rows import NOW

pytestmark = pytest.mark.django_db

KILOBYTE = 1024
_CLUSTERS = 5000


@cache
def large() -> Value:
    """Decide 600 picks on 5,000 clusters in 40 zones and 4 environments, some without the label."""
    clusters = [
        cluster(
            f"cluster-{number:04}",
            {"zone": f"zone-{number % 40}"} if number % 97 else {},
            env=("prod", "canary", "test", "lab")[number % 4],
            tier="edge" if number % 7 else "core",
        )
        for number in range(_CLUSTERS)
    ]
    preferred = [prefer(20, labelled(env="prod")), prefer(-10, labelled(env="lab"))]
    limits = [spread("zone", 2), spread("env", 40, hard=False)]
    return decide(
        fleet(*clusters),
        pick_n(600, required=[labelled(tier="edge")], spread=limits, prefer=preferred),
    )


@pytest.fixture
def address() -> str:
    """Store the decision; return its address."""
    forget_cached_records()
    value = large()
    stored = FleetRecord.objects.create(
        digest="f" * 64, content=pack_fleet(value.cycle.fleet), clusters_count=_CLUSTERS
    )
    record = DecisionRecord.objects.create(
        decision_id=value.id, content=pack(value), engine=ENGINE_VERSION, fleet=stored
    )
    Decision.objects.create(
        placement_name="web", number=1, record=record, policy_number=1, fleet_digest="f" * 64,
        kind=value.kind, is_fulfilled=value.is_fulfilled, picked_count=600, kept_count=0,
        unscheduled_count=0, milliseconds=1, trigger="a test", triggered_by="a test", created_at=NOW,
    )  # fmt: skip
    return f"/decisions/{value.id}/"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "query",
    [
        "",
        "?step=300&cluster=cluster-0001",
        *(f"?view={one}" for one in ("funnel", "affinity", "clusters")),
    ],
)
def test_stays_small(viewer: Client, address: str, query: str) -> None:
    answer = viewer.get(address + query)
    text = answer.content.decode()

    assert answer.status_code == 200
    assert len(answer.content) <= 300 * KILOBYTE
    assert len(re.findall(r"<[a-zA-Z]", text)) <= 6000


@pytest.mark.nightly
def test_alike_candidates_share_a_row(viewer: Client, address: str) -> None:
    text = viewer.get(f"{address}?step=1").content.decode()

    assert re.search(r"and [\d,]+ more</summary>", text)
    assert text.count("<tr") < 150


@pytest.mark.nightly
def test_a_large_fleet_is_searched_by_name(viewer: Client, address: str) -> None:
    text = viewer.get(f"{address}?cluster=cluster-12").content.decode()

    assert '<option value="cluster-' not in text
    matches = text.partition('<ul class="matches">')[2].partition("</ul>")[0]
    assert re.findall(r'\?cluster=(cluster-\d+)#why"', matches) == [
        f"cluster-{number}" for number in range(1200, 1220)
    ]
    assert "and 80 more: enter more of the name" in text
