"""The problems of a hub as they are now, from what the overview lists as needing attention."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Exists, F, Min, OuterRef
from django.urls import reverse

from clusters.credentials import expiry_notice
from clusters.hub_state import HubState
from clusters.models import ClusterCredential, FleetState, Hub, HubCredential, MemberCluster, Membership
from clusters.observation import LONGEST_SILENCE, not_observed, unhealthy
from fleetui.apimachinery.words import names_and_more
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.engine.rollout.staged_run import RunStatus
from placements.engine.rollout.state import IN_FLIGHT
from placements.explain.inbox import removal_sentence
from placements.explain.vocabulary import ELIGIBILITY_WORDS
from placements.models import UNFULFILLED, Binding, Placement, ProblemKind, StagedRun
from placements.services.decisions.records import reachable_records
from placements.services.hubs.queries import disagreements
from placements.services.rollouts.approvals import approvals_waiting
from placements.services.rollouts.attention import stalled_rollouts
from placements.services.rollouts.removals import waiting_removals

MOST = 2_000
"""Of one kind; beyond, none of that kind counts as ended, since it may be among those that are not read."""
Labels = dict[str, str]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of an object: `message` has its cause, `since` is None where it is not known."""

    kind: ProblemKind
    name: str
    message: str
    path: str
    since: datetime | None = None
    labels: Labels = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.name}"


def problems_of_hub(*, now: datetime) -> dict[ProblemKind, list[Problem]]:
    """Return the problems of the hub in scope by kind, each kind with at most MOST; sixteen queries."""
    return {kind: list(read(now)) for kind, read in _READERS.items()}


def _labels(document: Any) -> Labels:
    return dict((document or {}).get("metadata", {}).get("labels") or {})


_SHORT_SILENCE = timedelta(minutes=2)


def stalled_rollout_problems(now: datetime) -> Iterator[Problem]:
    """Return the stalled rollouts; one is none while a cluster has not answered for a short time only."""
    silent = MemberCluster.objects.filter(unanswered_since__gt=now - _SHORT_SILENCE).values("name")
    in_flight = Binding.objects.filter(placement=OuterRef("placement"), phase__in=IN_FLIGHT)
    is_brief = Exists(in_flight.filter(cluster_name__in=silent))
    rows = stalled_rollouts().exclude(is_brief).select_related("placement")
    for row in rows.defer("sync_result", "waves").order_by("pk")[:MOST]:
        path = reverse("web:rollout", args=[row.placement_name, row.number])
        message = f"Rollout {row.number} of {row.placement_name} stalled: no cluster can be updated."
        labels = _labels(row.placement.document if row.placement else None)
        yield Problem(
            ProblemKind.ROLLOUT_STALLED, f"{row.placement_name}/{row.number}", message, path, labels=labels
        )
    stuck = StagedRun.objects.filter(ended_at=None, started_at__isnull=False, status=RunStatus.STUCK)
    for run in stuck.select_related("placement").defer("plan", "sync_result").order_by("pk")[:MOST]:
        path = reverse("web:staged-run", args=[run.full_name])
        message = f"Staged run {run.full_name} of {run.placement_name} is stuck: clusters are not updated."
        labels = _labels(run.placement.document if run.placement else None)
        yield Problem(ProblemKind.ROLLOUT_STALLED, f"staged {run.full_name}", message, path, labels=labels)


def approval_problems(_now: datetime) -> Iterator[Problem]:
    for row in approvals_waiting().order_by("pk")[:MOST]:
        path = reverse("web:staged-run", args=[row.run.full_name])
        message = f"Stage {row.stage} of {row.run.full_name} waits for approval ({row.side} its clusters)."
        labels = _labels(row.run.placement.document if row.run.placement else None)
        name = f"{row.run.full_name}/{row.stage}/{row.side}"
        yield Problem(ProblemKind.APPROVAL_PENDING, name, message, path, row.requested_at, labels)


def cluster_problems(now: datetime) -> Iterator[Problem]:
    """Return the clusters that are not ready, and those not observed while the console observes others."""
    rows = MemberCluster.objects.exclude(verdict="").exclude(membership=Membership.LEAVING)
    columns = ("name", "verdict", "verdict_reason", "verdict_since", "document")
    words = {str(kind): word for kind, word in ELIGIBILITY_WORDS.items()}
    for name, verdict, reason, since, document in rows.order_by("pk").values_list(*columns)[:MOST]:
        message = f"Cluster {name} is not ready: {words.get(verdict, verdict)}. {reason}".strip()
        path = reverse("web:cluster", args=[name])
        yield Problem(ProblemKind.CLUSTER_NOT_READY, name, message, path, since, _labels(document))
    # After a pause of the whole console each cluster gets two minutes to be observed again.
    observing = FleetState.objects.filter(observing_since__lt=now - LONGEST_SILENCE)
    silent = MemberCluster.objects.filter(not_observed(now=now), Exists(observing), verdict="")
    for name, since, document in silent.order_by("pk").values_list("name", "heartbeat_at", "document")[:MOST]:
        message = f"Cluster {name} is not observed: its status is that of the last observation."
        path = reverse("web:cluster", args=[name])
        yield Problem(ProblemKind.CLUSTER_NOT_READY, name, message, path, since, _labels(document))

    ill = MemberCluster.objects.filter(unhealthy(now=now)).order_by("pk")
    for name, why, since, document in ill.values_list("name", "health_message", "healthy_since", "document")[
        :MOST
    ]:
        message = f"Cluster {name} reports itself unhealthy{f': {why}' if why else ''}."
        path = reverse("web:cluster", args=[name])
        yield Problem(ProblemKind.CLUSTER_NOT_READY, name, message, path, since, _labels(document))


def placement_problems(_now: datetime) -> Iterator[Problem]:
    rows = Placement.objects.filter(UNFULFILLED, selection_faults=[])
    columns = (
        "full_name",
        "number_of_clusters",
        "named_count",
        "placed_count",
        "document",
        "scheduled_since",
    )
    for name, number, named, placed, document, since in rows.order_by("pk").values_list(*columns)[:MOST]:
        wanted = number if number is not None else named
        of = "" if wanted is None else f" {placed} of {wanted} clusters are selected."
        path = reverse("web:placement", args=[name])
        message = f"Placement {name} is not fulfilled.{of}"
        yield Problem(ProblemKind.PLACEMENT_NOT_FULFILLED, name, message, path, since, _labels(document))


def drift_problems(_now: datetime) -> Iterator[Problem]:
    rows = Binding.objects.exclude(drifted_objects=[]).values("placement")
    counts = rows.annotate(count=Count("pk"), first=Min("cluster_name"), name=F("placement__full_name"))
    groups = list(counts.order_by("placement")[:MOST])
    documents = dict(
        Placement.objects.filter(pk__in=[one["placement"] for one in groups]).values_list("pk", "document")
    )
    for one in groups:
        names = names_and_more([one["first"]], 1, count=one["count"])
        message = f"Objects of placement {one['name']} were changed on {names}."
        path = reverse("web:placement-drift", args=[one["name"]])
        labels = _labels(documents.get(one["placement"]))
        yield Problem(ProblemKind.DRIFT, one["name"], message, path, labels=labels)


def decision_problems(_now: datetime) -> Iterator[Problem]:
    for record in reachable_records().filter(fault__gt="").only("decision_id", "fault").order_by("pk")[:MOST]:
        path = reverse("web:decision", args=[record.decision_id])
        message = f"Decision {record.decision_id[:10]} gave another result when repeated: {record.fault}"
        yield Problem(ProblemKind.DECISION_NOT_REPRODUCIBLE, record.decision_id, message, path)
    for row in disagreements().order_by("pk")[:MOST]:
        path = reverse("web:placement", args=[row.placement_name])
        message = f"The hub decided placement {row.placement_name} in another way than the replay."
        yield Problem(
            ProblemKind.DECISION_NOT_REPRODUCIBLE, row.placement_name, message, path, row.confirmed_at
        )


def credential_problems(now: datetime) -> Iterator[Problem]:
    rows = ClusterCredential.objects.filter(expires_at__isnull=False).select_related("cluster")
    for row in rows.order_by("expires_at")[:MOST]:
        if notice := expiry_notice(row, now=now):
            path = reverse("web:cluster-connection", args=[row.cluster.name])
            message = f"The credentials of cluster {row.cluster.name}: {notice}."
            labels = _labels(row.cluster.document)
            yield Problem(ProblemKind.CREDENTIAL_EXPIRES, row.cluster.name, message, path, labels=labels)
    if current_hub_id() == LOCAL_HUB:
        return
    for one in HubCredential.objects.filter(hub=current_hub_id(), expires_at__isnull=False).select_related(
        "hub"
    ):
        if notice := expiry_notice(one, now=now):
            path = reverse("web:hub-about", args=[one.hub.name])
            message = f"The credentials of hub {one.hub.name}: {notice}."
            yield Problem(ProblemKind.CREDENTIAL_EXPIRES, f"hub {one.hub.name}", message, path)


_FINE = (HubState.LIVE, HubState.PAUSED, HubState.NEW, HubState.CONNECTING, HubState.SYNCING)


def hub_problems(_now: datetime) -> Iterator[Problem]:
    if current_hub_id() == LOCAL_HUB:
        return
    hub = Hub.objects.get(pk=current_hub_id())
    if hub.is_paused or hub.state in list(map(str, _FINE)):
        return
    message = f"Hub {hub.name} is {hub.state}. {hub.state_reason}".strip()
    path = reverse("web:hub-about", args=[hub.name])
    yield Problem(ProblemKind.HUB_NOT_LIVE, hub.name, message, path, hub.state_since)


def removal_problems(_now: datetime) -> Iterator[Problem]:
    """Return the removals that wait for a person, with the labels of the placement, if there is one."""
    rows = waiting_removals(most=MOST)
    known = Placement.objects.filter(full_name__in={one.placement_name for one in rows})
    documents = dict(known.values_list("full_name", "document"))
    for one in rows:
        path = reverse("web:cluster-removals", args=[one.cluster_name])
        why = removal_sentence(one.placement_name, one.reason, is_orphan=one.is_orphan)
        message = f"Cluster {one.cluster_name}: {why}"
        labels = _labels(documents.get(one.placement_name))
        name = f"{one.cluster_name}/{one.placement_name}"
        yield Problem(ProblemKind.REMOVAL_WAITS, name, message, path, one.since, labels)


_READERS: dict[ProblemKind, Callable[[datetime], Iterator[Problem]]] = {
    ProblemKind.ROLLOUT_STALLED: stalled_rollout_problems,
    ProblemKind.APPROVAL_PENDING: approval_problems,
    ProblemKind.CLUSTER_NOT_READY: cluster_problems,
    ProblemKind.PLACEMENT_NOT_FULFILLED: placement_problems,
    ProblemKind.DRIFT: drift_problems,
    ProblemKind.DECISION_NOT_REPRODUCIBLE: decision_problems,
    ProblemKind.CREDENTIAL_EXPIRES: credential_problems,
    ProblemKind.HUB_NOT_LIVE: hub_problems,
    ProblemKind.REMOVAL_WAITS: removal_problems,
}
