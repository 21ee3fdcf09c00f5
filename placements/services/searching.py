"""Search for clusters, placements, decisions, rollouts and resources."""

import re
from dataclasses import dataclass

from clusters.filters import ClusterFilter, clusters_matching
from clusters.models import MemberCluster
from placements.models import Decision, Placement, Resource, Rollout
from placements.services.decisions.records import decisions_named
from placements.services.filters import (
    PlacementFilter,
    latest_decisions,
    placements_matching,
    resources_matching,
)

MOST = 20
_NAME = r"[a-z0-9][a-z0-9.-]*"
_RUN = re.compile(rf"(?:run )?(?:(?P<name>{_NAME}(?:/{_NAME})?)(?: |/))?(?:run )?(?P<number>\d{{1,6}})")
_OF_A_KIND = re.compile(r"(?P<kind>[a-z]+)[ /](?P<name>\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The first results of each kind, by name; a list with `MOST` results may be incomplete."""

    clusters: tuple[str, ...] = ()
    placements: tuple[str, ...] = ()
    decisions: tuple[Decision, ...] = ()
    runs: tuple[Rollout, ...] = ()
    resources: tuple[Resource, ...] = ()

    @property
    def count(self) -> int:
        several = (self.clusters, self.placements, self.decisions, self.runs, self.resources)
        return sum(map(len, several))


@dataclass(frozen=True, slots=True)
class Pair:
    """A cluster and a placement, and the decision that explains the outcome of the cluster."""

    cluster: str
    placement: str
    decision_id: str


def find(text: str) -> SearchResult:
    """Search by part of a name, start of a decision id, or rollout number."""
    if not text:
        return SearchResult()
    clusters = clusters_matching(ClusterFilter(text=text)).order_by("name").values_list("name", flat=True)
    placements = placements_matching(PlacementFilter(text=text)).order_by("full_name")
    of_a_kind = _OF_A_KIND.fullmatch(text)
    rows = resources_matching(text=of_a_kind["name"] if of_a_kind else text)
    if of_a_kind:
        rows = rows.filter(kind__iexact=of_a_kind["kind"])
    identity = rows.only("group", "kind", "namespace", "name")
    runs, named = Rollout.objects.none(), _RUN.fullmatch(text.lower())
    if named:
        runs = Rollout.objects.filter(number=int(named["number"])).order_by("placement_name", "-id")
        runs = runs.filter(placement_name=named["name"]) if named["name"] else runs
    return SearchResult(
        tuple(clusters[:MOST]),
        tuple(placements.values_list("full_name", flat=True)[:MOST]),
        tuple(decisions_named(text, most=MOST)),
        tuple(runs[:MOST]),
        tuple(identity.order_by("kind", "namespace", "name")[:MOST]),
    )


def pair_named(text: str) -> Pair | None:
    """Return the cluster and the placement named in a text, in any order; None before the first decision."""
    words = text.lower().split()
    if len(words) != 2:
        return None
    cluster = MemberCluster.objects.filter(name__in=words).values_list("name", flat=True).first()
    placement = Placement.objects.filter(full_name__in=words).first()
    if cluster is None or placement is None or {cluster, placement.full_name} != set(words):
        return None
    decision = latest_decisions([placement]).get(placement.pk)
    return Pair(cluster, placement.full_name, decision.record.decision_id) if decision else None
