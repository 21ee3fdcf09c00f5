"""What the search box finds: clusters, placements, decisions, runs and resources, the first few of each."""

import re
from dataclasses import dataclass

from clusters.listing import ClusterFilter, clusters_matching
from clusters.models import MemberCluster
from placements.models import Decision, Placement, Resource, Rollout
from placements.queries.lists import (
    PlacementFilter,
    latest_decisions,
    placements_matching,
    resources_matching,
)
from placements.queries.records import decisions_named

MOST = 20
_RUN = re.compile(r"(?:run )?(?:(?P<name>[a-z0-9][a-z0-9.-]*)(?: |/))?(?:run )?(?P<number>\d{1,6})")
_OF_A_KIND = re.compile(r"(?P<kind>[a-z]+)[ /](?P<name>\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """The first few of each kind, by name; a list as long as `MOST` may go on."""

    clusters: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    runs: tuple[Rollout, ...] = ()
    resources: tuple[Resource, ...] = ()

    @property
    def count(self) -> int:
        """Count all that is shown."""
        several = (self.clusters, self.placements, self.decisions, self.runs, self.resources)
        return sum(map(len, several))


@dataclass(frozen=True, slots=True)
class Pair:
    """A cluster and a placement named together, and the decision that says why it is there or not."""

    cluster: str
    placement: str
    decision_id: str


def find(text: str) -> Found:
    """Find by part of a name, by the beginning of a decision's id, by the number of a run."""
    if not text:
        return Found()
    clusters = clusters_matching(ClusterFilter(text=text)).order_by("name").values_list("name", flat=True)
    placements = placements_matching(PlacementFilter(text=text)).order_by("name")
    return Found(
        tuple(clusters[:MOST]),
        tuple(placements.values_list("name", flat=True)[:MOST]),
        tuple(decisions_named(text, most=MOST)),
        _runs(text.lower()),
        _resources(text),
    )


def _runs(text: str) -> tuple[Rollout, ...]:
    """Find runs by number: "12", "run 12", "web 12", "web/12"."""
    named = _RUN.fullmatch(text)
    if named is None:
        return ()
    rows = Rollout.objects.filter(number=int(named["number"]))
    if named["name"]:
        rows = rows.filter(placement_name=named["name"])
    return tuple(rows.order_by("placement_name", "-id")[:MOST])


def _resources(text: str) -> tuple[Resource, ...]:
    """Find objects on the hub by part of their name, or of one kind: "configmap settings"."""
    of_a_kind = _OF_A_KIND.fullmatch(text)
    rows = resources_matching(text=of_a_kind["name"] if of_a_kind else text)
    if of_a_kind:
        rows = rows.filter(kind__iexact=of_a_kind["kind"])
    identity = rows.only("group", "kind", "namespace", "name")
    return tuple(identity.order_by("kind", "namespace", "name")[:MOST])


def pair_named(text: str) -> Pair | None:
    """Find a cluster and a placement named together, in either order, if the placement has been decided."""
    words = text.lower().split()
    if len(words) != 2:
        return None
    cluster = MemberCluster.objects.filter(name__in=words).values_list("name", flat=True).first()
    placement = Placement.objects.filter(name__in=words).first()
    if cluster is None or placement is None or {cluster, placement.name} != set(words):
        return None
    decision = latest_decisions([placement]).get(placement.pk)
    return Pair(cluster, placement.name, decision.record.decision_id) if decision else None
