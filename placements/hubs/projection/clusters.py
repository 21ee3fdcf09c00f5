"""Member clusters of a live hub, and their eligibility by the clock of the hub.

See `rules/live-hub.md#projection`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import OuterRef, Subquery

from clusters.fleet import NO_SCHEDULE
from clusters.models import (
    HubStream,
    MemberCluster,
    Membership,
    MirroredObject,
)
from clusters.operations.change_log import raise_counters
from clusters.operations.join import CLUSTER, readings, set_eligibility, write_index
from fleetui.apimachinery.kinds import MEMBER_KIND
from fleetui.apimachinery.model import items_at, mapping_at
from fleetui.bulk import BATCH_SIZE, batched
from placements.hubs.fleet_versions import properties_read, write_version
from placements.hubs.kinds.base import text_of
from placements.hubs.kinds.kubefleet import CLUSTER_GROUP, MEMBER_AGENT
from placements.hubs.projection.rows import (
    Conditions,
    HubDocument,
    HubMoment,
    RowKind,
    WrittenRow,
)

_READINGS = ("properties", "usage")
_SCHEDULING = (
    "document",
    "membership",
    "leaving_since",
    "verdict",
    "collects_namespaces",
    "namespaces_seen",
)


class ClusterRows(RowKind[MemberCluster]):
    """Member clusters; one with another UID left and joined again under its name."""

    model = MemberCluster
    mirrored = (MEMBER_KIND,)
    group = CLUSTER_GROUP
    noun = CLUSTER
    columns = (
        *_SCHEDULING,
        *_READINGS,
        "revision",
        "joined_at",
        "hub_created_at",
        "has_reported",
        "heartbeat_at",
        "agent_joined",
        "agent_healthy",
        "healthy_since",
        "health_message",
    )
    bookkeeping = ("hub_changes", "verdict_reason", "verdict_since")

    def fill(self, row: MemberCluster, document: HubDocument) -> bool:
        row.document = document.manifest(_spec(document))
        row.hub_created_at = document.created_at
        row.expects_report = True
        row.properties = _properties(document)
        row.usage = {
            sort: document.texts("status", "resourceUsage", sort)
            for sort in ("capacity", "allocatable", "available")
            if mapping_at(document.content, "status", "resourceUsage", sort)
        }
        _set_report(row, document)
        _set_namespaces(row, document)
        joined = document.conditions("status", "conditions").get("Joined", {})
        is_joined = (joined.get("status") or row.agent_joined) == "True"
        changed_at = document.moment_in(
            joined, "lastTransitionTime", path="status.conditions.Joined"
        )
        row.joined_at = (changed_at if is_joined else None) or document.created_at
        row.leaving_since = document.deleting_since
        if row.leaving_since:
            row.membership = Membership.LEAVING
        else:
            row.membership = Membership.JOINED if is_joined else Membership.JOINING
        # Without a live hub the eligibility of a cluster that is known stays as it is.
        if self.moment.is_live or not row.pk or row.leaving_since:
            set_eligibility(row, now=self.moment.hub_now, state=None)
        return True

    def change(self, before: MemberCluster, row: MemberCluster) -> None:
        row.hub_changes += _is_moved(before, row) or bool(readings(before, row))

    def conditions(self, row: MemberCluster) -> Conditions:
        values = {"Joined": row.agent_joined, "Healthy": row.agent_healthy}
        return [{"type": kind, "status": one} for kind, one in values.items() if one]

    def follow(self, written: Sequence[WrittenRow[MemberCluster]]) -> None:
        """Write the index and the counters of the fleet, and its version for replays.

        Nothing is enqueued, as for changes of the own fleet: the hub schedules its placements itself.
        """
        keys = set(properties_read())
        moves = reads = False
        concerned = []
        new = [row.row for row in written if row.before is None]
        reindexed = []
        for row in written:
            if row.before is None:
                moves = True
                concerned.append(row.document)
                continue
            is_moved = _is_moved(row.before, row.row)
            names = readings(row.before, row.row)
            moves |= is_moved
            reads |= bool(names)
            if is_moved or names & keys:
                concerned.append(row.document)
            if row.before.document != row.row.document:
                reindexed.append(row.row)
        write_index(new, reindexed)
        pks = [row.row.pk for row in written]
        raise_counters(moves=moves, reads=reads, changed=pks)
        if concerned:
            version = _highest(
                [document.row.resource_version for document in concerned]
            )
            write_version(resource_version=version, now=self.moment.now)

    @classmethod
    def remove(cls, moment: HubMoment) -> int:
        """Delete the clusters that the mirror has no more; return how many."""
        names = MirroredObject.objects.filter(
            group=CLUSTER_GROUP, kind=MEMBER_KIND
        ).values("name")
        gone = dict(
            MemberCluster.objects.exclude(name__in=names).values_list("pk", "name")
        )
        if gone:
            MemberCluster.objects.filter(pk__in=gone).delete()
            raise_counters(moves=True, reads=False, changed=(), removed=gone.values())
            stream = HubStream.objects.filter(
                group=CLUSTER_GROUP, kind=MEMBER_KIND
            ).first()
            version = _highest([stream.resource_version]) if stream else ""
            write_version(resource_version=version, now=moment.now)
        return len(gone)


def _is_moved(before: MemberCluster, row: MemberCluster) -> bool:
    return any(getattr(before, name) != getattr(row, name) for name in _SCHEDULING)


def _highest(versions: Sequence[str]) -> str:
    """Return the highest resourceVersion; "" unless all are numbers, which alone can be compared."""
    return (
        str(max(map(int, versions)))
        if versions and all(map(str.isdecimal, versions))
        else ""
    )


def _spec(document: HubDocument) -> dict[str, Any]:
    spec = dict(document.spec)
    taints = []
    for index, one in enumerate(items_at(spec, "taints")):
        taint = mapping_at(one)
        texts = [taint.get("key"), taint.get("value") or "", taint.get("effect")]
        if taint.get("key") and all(isinstance(text, str) for text in texts):
            taints.append(dict(taint))
            if taint["effect"] != NO_SCHEDULE:
                document.reject(f"spec.taints[{index}].effect")
        else:
            document.reject(f"spec.taints[{index}]")
    if "taints" in spec:
        spec["taints"] = taints
    return spec


def _properties(document: HubDocument) -> dict[str, str]:
    properties = {}
    for name, one in mapping_at(document.content, "status", "properties").items():
        value = mapping_at(one).get("value")
        if isinstance(value, str):
            properties[name] = value
        else:
            document.reject(f"status.properties.{name}")
    return properties


def _set_report(row: MemberCluster, document: HubDocument) -> None:
    """Set the last report of the member agent; a cluster without one has not reported."""
    agents = enumerate(items_at(document.content, "status", "agentStatus"))
    member_agents = (
        (index, one)
        for index, one in agents
        if mapping_at(one).get("type") == MEMBER_AGENT
    )
    index, agent = next(member_agents, (None, {}))
    row.has_reported = index is not None
    path = f"status.agentStatus[{index}]"
    conditions = document.conditions_in(agent, "conditions", path=f"{path}.conditions")
    joined = conditions.get("Joined", {})
    healthy = conditions.get("Healthy", {})
    row.agent_joined, row.agent_healthy = (
        one.get("status", "")[:20] for one in (joined, healthy)
    )
    row.health_message = text_of(healthy.get("message"), longest=200)
    row.healthy_since = document.moment_in(
        healthy,
        "lastTransitionTime",
        path=f"{path}.conditions.Healthy.lastTransitionTime",
    )
    key = "lastReceivedHeartbeat"
    row.heartbeat_at = document.moment_in(agent, key, path=f"{path}.{key}")


def _set_namespaces(row: MemberCluster, document: HubDocument) -> None:
    """Set which namespaces the cluster reports; a degraded collection counts too.

    See `rules/live-hub.md#projection`.
    """
    row.collects_namespaces = "NamespaceCollectionSucceeded" in document.conditions(
        "status", "conditions"
    )
    names = mapping_at(document.content, "status").get("namespaces")
    row.namespaces_seen = sorted(names) if isinstance(names, Mapping) else None
    if names is not None and not isinstance(names, Mapping):
        document.reject("status.namespaces")


def rejudge_clusters(*, moment: HubMoment) -> int:
    """Judge all clusters again by the heartbeats of the mirror; return how many changed their eligibility.

    Heartbeats make no object dirty, and a cluster stops being eligible without any event. While the hub is
    not live, its clusters keep their eligibility.
    """
    if not moment.is_live:
        return 0
    mirrored = MirroredObject.objects.filter(
        group=CLUSTER_GROUP, kind=MEMBER_KIND, name=OuterRef("name")
    )
    newest = Subquery(mirrored.values("heartbeat_at")[:1])
    rows = MemberCluster.objects.exclude(membership=Membership.LEAVING).filter(
        has_reported=True
    )
    rows = rows.defer("document", *_READINGS).annotate(newest=newest)
    late = []
    changed = []
    for row in rows:
        if row.newest and row.heartbeat_at != row.newest:
            row.heartbeat_at = row.newest
            late.append(row.pk)
        if set_eligibility(row, now=moment.hub_now, state=None):
            row.hub_changes += 1
            changed.append(row)
    for part in batched(late):
        MemberCluster.objects.filter(pk__in=part).update(heartbeat_at=newest)
    if changed:
        MemberCluster.objects.bulk_update(
            changed,
            ["verdict", "verdict_reason", "verdict_since", "hub_changes"],
            batch_size=BATCH_SIZE,
        )
        raise_counters(moves=True, reads=False, changed=[row.pk for row in changed])
        write_version(resource_version="", now=moment.now)
    return len(changed)
