"""The guide on the real clock: ten clusters with what cannot be observed are updated 3, 3, 3 and 1."""

import sys
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.rows import member_document, namespace, placement_document, spec
from tests.runtime.consoles import kept_running
from tests.runtime.processes import eventually
from tests.runtime.test_rollout_survives import as_yaml, books_of, finished
from tests.runtime.test_survives import Stage, stage

__all__ = ["stage"]
CLUSTERS = 10
PERIOD = timedelta(seconds=2)
STRATEGY = {
    "type": "RollingUpdate",
    "rollingUpdate": {"unavailablePeriodSeconds": PERIOD.seconds},
}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ten_clusters_go_three_three_three_one_with_the_period_between(
    stage: Stage,
) -> None:
    members = [member_document(f"c{number}") for number in range(CLUSTERS)]
    stage.manage(
        "import_clusters", "-", "--driver", "simulated", text=as_yaml(*members)
    )
    placement = placement_document("web", spec(strategy=STRATEGY))
    stage.manage(
        "apply", "-f", "-", text=as_yaml(namespace("shop"), _database("m:1"), placement)
    )
    with kept_running(stage):
        eventually(lambda: finished(stage) == 1, seconds=120)
        stage.manage("apply", "-f", "-", text=as_yaml(_database("m:2")))
        eventually(lambda: finished(stage) == 2, seconds=120)

    (version,) = (
        row[0]
        for row in stage.query(
            "select version from placements_rollout where number = 2"
        )
    )
    moments = [
        datetime.fromisoformat(at)
        for book in books_of(stage)
        for at, what, applied in book["web"]["log"]
        if (what, applied) == ("applied", version)
    ]
    batches = _batches(sorted(moments))
    assert [len(batch) for batch in batches] == [3, 3, 3, 1]
    between = [later[0] - earlier[-1] for earlier, later in pairwise(batches)]
    sys.stdout.write(
        f"seconds between the batches: {[each.total_seconds() for each in between]}\n"
    )
    assert min(between) >= PERIOD


def _database(image: str) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Database",
        "metadata": {"name": "main", "namespace": "shop"},
        "spec": {"image": image},
    }


def _batches(moments: list[datetime]) -> list[list[datetime]]:
    """Put together what happened within half a period of the first."""
    batches: list[list[datetime]] = []
    for moment in moments:
        if batches and moment - batches[-1][0] < PERIOD / 2:
            batches[-1].append(moment)
        else:
            batches.append([moment])
    return batches
