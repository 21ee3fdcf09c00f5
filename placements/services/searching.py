"""Search for clusters, placements, decisions, rollouts and resources."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from clusters.filters import ClusterFilter, clusters_matching
from clusters.hub_queries import across_hubs
from clusters.models import MemberCluster
from placements.models import Decision, Placement, Resource, Rollout
from placements.services.decisions.records import decisions_named, id_prefix
from placements.services.filters import (
    PlacementFilter,
    latest_decisions,
    placements_matching,
    resources_matching,
)
from placements.services.rollouts.queries import IS_REPLACED

MOST = 20
_NAME = r"[a-z0-9][a-z0-9.-]*"
_RUN = re.compile(
    rf"(?:run )?(?:(?P<name>{_NAME}(?:/{_NAME})?)(?: |/))?(?:run )?(?P<number>\d{{1,6}})"
)
_COLUMNS = {
    "cluster": "name",
    "placement": "full_name",
    "decision": "record__decision_id",
}
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
        several = (
            self.clusters,
            self.placements,
            self.decisions,
            self.runs,
            self.resources,
        )
        return sum(map(len, several))


@dataclass(frozen=True, slots=True)
class HubResult:
    """A result on another hub, `noun` is that of its page; a rollout has a number."""

    hub: str
    noun: str
    name: str
    number: int | None = None


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
    clusters = (
        clusters_matching(ClusterFilter(text=text))
        .order_by("name")
        .values_list("name", flat=True)
    )
    placements = placements_matching(PlacementFilter(text=text)).order_by("full_name")
    of_a_kind = _OF_A_KIND.fullmatch(text)
    rows = resources_matching(text=of_a_kind["name"] if of_a_kind else text)
    if of_a_kind:
        rows = rows.filter(kind__iexact=of_a_kind["kind"])
    identity = rows.only("group", "kind", "namespace", "name")
    runs = rollouts_named(text).order_by("placement_name", "-id")
    return SearchResult(
        tuple(clusters[:MOST]),
        tuple(placements.values_list("full_name", flat=True)[:MOST]),
        tuple(decisions_named(text, most=MOST)),
        tuple(runs[:MOST]),
        tuple(identity.order_by("kind", "namespace", "name")[:MOST]),
    )


def completed(text: str) -> list[tuple[str, str]]:
    """Return the searches that a text can become, each with its noun."""
    first, space, word = text.lower().rpartition(" ")
    results = find(word)
    clusters = [(f"{first}{space}{cluster}", "Cluster") for cluster in results.clusters]
    placements = [
        (f"{first}{space}{placement}", "Placement") for placement in results.placements
    ]
    if first and not MemberCluster.objects.filter(name=first).exists():
        placements = []
    if first and not Placement.objects.filter(full_name=first).exists():
        clusters = []
    return clusters + placements


def rollouts_named(text: str) -> QuerySet[Rollout]:
    """Return the rollouts with the number in a text, of the placement that it names; unordered.

    Of two placements that had one name, those of the later: they have the addresses.
    """
    match = _RUN.fullmatch(text.lower())
    if not match:
        return Rollout.objects.none()
    rows = Rollout.objects.filter(~IS_REPLACED, number=int(match["number"]))
    return rows.filter(placement_name=match["name"]) if match["name"] else rows


def find_on_hubs(text: str, hubs: Mapping[int, str]) -> list[HubResult]:
    """Search the same on these hubs, named by their keys; four queries at most, however many there are."""
    if not text or not hubs:
        return []
    queries: list[tuple[str, QuerySet[Any, Any]]] = []
    with across_hubs():
        queries.append(
            (
                "cluster",
                clusters_matching(ClusterFilter(text=text)).values_list("name", "hub"),
            )
        )
        placements = placements_matching(PlacementFilter(text=text))
        queries.append(("placement", placements.values_list("full_name", "hub")))
        if start := id_prefix(text):
            decisions = Decision.objects.filter(record__decision_id__startswith=start)
            queries.append(
                (
                    "decision",
                    decisions.values_list("record__decision_id", "hub").distinct(),
                )
            )
        runs = rollouts_named(text)
    results = []
    for noun, rows in queries:
        first = rows.filter(hub__in=hubs).order_by(_COLUMNS[noun], "hub")[:MOST]
        results += [HubResult(hubs[hub], noun, name) for name, hub in first]
    if _RUN.fullmatch(text.lower()):
        first = runs.filter(hub__in=hubs).order_by("placement_name", "number", "hub")
        columns = first.values_list("placement_name", "number", "hub")[:MOST]
        results += [
            HubResult(hubs[hub], "rollout", name, number)
            for name, number, hub in columns
        ]
    return results


def pair_named(text: str) -> Pair | None:
    """Return the cluster and the placement named in a text, in any order; None before the first decision."""
    words = text.lower().split()
    if len(words) != 2:
        return None
    cluster = (
        MemberCluster.objects.filter(name__in=words)
        .values_list("name", flat=True)
        .first()
    )
    placement = Placement.objects.filter(full_name__in=words).first()
    if (
        cluster is None
        or placement is None
        or {cluster, placement.full_name} != set(words)
    ):
        return None
    decision = latest_decisions([placement]).get(placement.pk)
    return (
        Pair(cluster, placement.full_name, decision.record.decision_id)
        if decision
        else None
    )
