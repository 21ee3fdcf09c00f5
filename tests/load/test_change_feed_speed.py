"""A change of one cluster costs a process one change, not the whole fleet.

See `rules/foresight.md#feed-of-changes`.
"""

from time import process_time

import pytest
from django.db import transaction

from clusters.models import MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.edit import change_labels
from clusters.queries import NO_FLEET
from tests.rows import NOW, member_document

CLUSTERS = 100_000
MOST = 0.01


@pytest.mark.timing
@pytest.mark.django_db
def test_one_change_costs_one_percent_of_a_full_load() -> None:
    with transaction.atomic():
        lock_fleet()
    members = (
        member_document(
            f"c{number:06}", {"region": f"r{number % 7}", "zone": f"z{number % 30}"}
        )
        for number in range(CLUSTERS)
    )
    MemberCluster.objects.bulk_create(
        [
            MemberCluster(
                name=member["metadata"]["name"],
                document=member,
                joined_at=NOW,
                verdict_since=NOW,
                properties={"cpu": str(number % 50)},
            )
            for number, member in enumerate(members)
        ],
        batch_size=500,
    )
    started = process_time()
    held = NO_FLEET.advance()
    full = process_time() - started
    for column in (
        held.fleet.label("region"),
        held.fleet.label("zone"),
        held.fleet.property("cpu").ranks,
    ):
        assert column is not None
    held.fleet.digest(("region", "zone"), ())

    times = []
    for number in range(5):
        change_labels(
            [f"c{number:06}"],
            put={"region": f"new-{number}"},
            remove=(),
            by=None,
            now=NOW,
        )
        started = process_time()
        held = held.advance()
        times.append(process_time() - started)

    assert held.fleet.label("region").value_at(4) == "new-4"
    print(
        f"\n{CLUSTERS:,} clusters: loaded in {full:.2f} s, one change {100 * min(times) / full:.2f} % of it"
    )
    assert min(times) <= MOST * full
