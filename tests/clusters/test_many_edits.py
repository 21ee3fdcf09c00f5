"""Changes of many clusters: the number of statements does not grow with each cluster."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters.models import ClusterLabel, ClusterTaint, MemberCluster
from clusters.operations.edit import (
    change_labels,
    change_taints,
    cordon,
    leave,
    uncordon,
)
from fleetui.models import Event
from tests.rows import NOW, all_joined

pytestmark = pytest.mark.django_db
BY: dict[str, Any] = {"by": None, "now": NOW}
GPU = {"key": "gpu", "effect": "NoSchedule"}
CHANGES: list[Callable[[list[str]], object]] = [
    lambda names: change_labels(names, put={"tier": "1"}, **BY),
    lambda names: change_taints(names, add=[GPU], **BY),
    lambda names: cordon(names, **BY),
    lambda names: leave(names, **BY),
]


@pytest.mark.parametrize("change", CHANGES, ids=["labels", "taints", "cordon", "leave"])
def test_a_change_of_many_clusters_has_statements_by_batches(
    change: Callable[[list[str]], object],
) -> None:
    names = [f"c{number:03}" for number in range(600)]
    all_joined(*names)

    with CaptureQueriesContext(
        connection,
    ) as few:
        change(names[:50])
    with CaptureQueriesContext(connection) as many:
        change(names[50:])

    assert len(few) <= 25
    assert len(many) <= len(few) + 12


def test_a_change_of_many_clusters_writes_rows_labels_taints_and_an_event_each() -> (
    None
):
    names = [f"c{number:03}" for number in range(550)]
    all_joined(*names)
    cordon(names[:1], **BY)
    Event.objects.all().delete()

    change_labels(names, put={"tier": "1"}, **BY)
    cordon(names, **BY)
    uncordon(names[1:], **BY)

    labels = set(ClusterLabel.objects.values_list("cluster__name", "key", "value"))
    assert labels == {(name, "tier", "1") for name in names}
    assert list(ClusterTaint.objects.values_list("cluster__name", flat=True)) == [
        "c000"
    ]
    assert set(
        MemberCluster.objects.exclude(name="c000").values_list("revision", flat=True)
    ) == {4}
    assert Event.objects.count() == 550 + 549 + 549
    last = MemberCluster.objects.get(name="c549")
    assert last.document["metadata"]["labels"] == {"tier": "1"}
    assert not last.document["spec"].get("taints")
