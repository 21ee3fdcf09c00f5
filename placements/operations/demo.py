"""Loading a demo, and removing it."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction

from clusters.models import MemberCluster
from clusters.operations.joining import Wanted, put_clusters
from clusters.operations.leaving import forget
from placements.demo import demo_of
from placements.models import Placement, Resource
from placements.operations.placements import delete_placement, save_placement
from placements.operations.resources import apply_resources, delete_resources


@transaction.atomic
def load_demo(size: int, *, by: User | None, now: datetime) -> None:
    """Load the demo of that many clusters in the place of the one that is there."""
    remove_demo(by=by, now=now)
    demo = demo_of(size, now=now)
    put_clusters([Wanted(one, is_demo=True) for one in demo.clusters], by=by, now=now)
    apply_resources(demo.resources, by=by, now=now, is_demo=True)
    for one in demo.placements:
        save_placement(one, by=by, now=now, is_demo=True)


@transaction.atomic
def remove_demo(*, by: User | None, now: datetime) -> None:
    """Remove everything that belongs to a demo."""
    for name in list(Placement.objects.filter(is_demo=True).values_list("name", flat=True)):
        delete_placement(name, by=by, now=now)
    delete_resources(list(Resource.objects.filter(is_demo=True)), by=by, now=now)
    clusters = list(MemberCluster.objects.filter(is_demo=True))
    if clusters:
        forget(clusters, verb="left", by=by, now=now)
