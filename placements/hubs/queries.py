"""Read hubs: their states with age, their streams, single objects of the mirror, and all hubs at once."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Case, Max, OuterRef, QuerySet, Subquery, When

from clusters.hub_queries import across_hubs
from clusters.hub_state import HubState
from clusters.models import Hub, HubStream, HubWrite, MemberCluster, MirroredObject
from fleetui.hub_scope import in_hub
from placements.hubs.trimming import unpack

NOT_RUNNING = timedelta(seconds=30)
MOST_WRITES = 20
HEALTHY_STATES = (
    HubState.LIVE,
    HubState.PAUSED,
    HubState.NEW,
    HubState.CONNECTING,
    HubState.SYNCING,
)
"""States of a hub that works, that begins to, or that a person has paused."""
NO_WATCHER = "the watcher is not running"
_WATCHED = frozenset(
    {HubState.LIVE, HubState.SYNCING, HubState.CONNECTING, HubState.STALE}
)


@dataclass(frozen=True, slots=True)
class HubSummary:
    """A hub with its state as readers take it; `heard_at` is when the oldest required stream was heard.

    `retry_at` is when the first of the required streams that fail tries again.
    """

    hub: Hub
    state: str
    reason: str
    since: datetime | None
    heard_at: datetime | None
    clusters: int = 0
    placements: int = 0
    retry_at: datetime | None = None
    silent_since: datetime | None = None
    """Since when the controllers of a live hub have written nothing, if that is long."""

    def age_seconds(self, now: datetime) -> float | None:
        """Return the seconds since the last event of the hub, None before the first."""
        if self.heard_at is None:
            return None
        return round((now - self.heard_at).total_seconds(), 1)


def state_of(hub: Hub, *, now: datetime) -> tuple[str, str, datetime | None]:
    """Return state, reason and since when; a hub without a watcher is out of date."""
    leased = hub.lease_expires_at or hub.created_at
    is_leased = leased + NOT_RUNNING >= now
    if (
        hub.state in _WATCHED
        and not is_leased
        and (hub.state_since or leased) + NOT_RUNNING < now
    ):
        return HubState.STALE.value, NO_WATCHER, hub.lease_expires_at
    return hub.state, hub.state_reason, hub.state_since


def summary_of(hub: Hub, *, now: datetime) -> HubSummary:
    return summaries_of([hub], now=now)[0]


def summaries_of(hubs: Iterable[Hub], *, now: datetime) -> list[HubSummary]:
    columns = ("hub", "kind", "is_required", "heard_at", "retry_at", "object_count")
    hubs, streams = list(hubs), defaultdict[int, list[HubStream]](list)
    heartbeats: dict[int, datetime] = {}
    with across_hubs():
        members = MemberCluster.objects.filter(hub=OuterRef("hub")).order_by()
        newest = members.values("hub").annotate(last=Max("heartbeat_at")).values("last")
        # On the stream of clusters alone: the clusters of a hub are aggregated once.
        heartbeat = Case(When(kind="MemberCluster", then=Subquery(newest)))
        rows = HubStream.objects.filter(hub__in=hubs).only(*columns)
        for stream in rows.annotate(heartbeat_at=heartbeat):
            hub_id = stream.hub_id or 0
            streams[hub_id].append(stream)
            if stream.heartbeat_at:
                heartbeats[hub_id] = stream.heartbeat_at
    live = [hub for hub in hubs if state_of(hub, now=now)[0] == HubState.LIVE]
    silences = _silences(live, heartbeats, now=now)
    summaries = []
    for hub in hubs:
        counts: Counter[str] = Counter()
        for hub_stream in streams[hub.pk]:  # a namespaced kind may have several
            counts[hub_stream.kind] += hub_stream.object_count
        required = [stream for stream in streams[hub.pk] if stream.is_required]
        state, reason, since = state_of(hub, now=now)
        summaries.append(
            HubSummary(
                hub,
                state,
                reason,
                since,
                heard_at=min(
                    (stream.heard_at for stream in required if stream.heard_at),
                    default=None,
                ),
                clusters=counts["MemberCluster"],
                placements=counts["ClusterResourcePlacement"]
                + counts["ResourcePlacement"],
                retry_at=min(
                    (stream.retry_at for stream in required if stream.retry_at),
                    default=None,
                ),
                silent_since=silences.get(hub.pk),
            )
        )
    return summaries


SILENT_AFTER = timedelta(minutes=5)
"""Members report each minute; the controllers may be busy for some of them."""
_WRITTEN_BY_CONTROLLERS = (
    "ClusterResourceBinding",
    "ResourceBinding",
    "ClusterSchedulingPolicySnapshot",
    "SchedulingPolicySnapshot",
    "ClusterResourceSnapshot",
    "ResourceSnapshot",
)


def _silences(
    hubs: Sequence[Hub], heartbeats: Mapping[int, datetime], *, now: datetime
) -> dict[int, datetime]:
    """Return since when the controllers of live hubs have written nothing, of those where that is long.

    They copy the heartbeats of the clusters; what else they write is read only where these are old.
    """
    late = [
        hub
        for hub in hubs
        if (last := heartbeats.get(hub.pk)) and last - _offset(hub) < now - SILENT_AFTER
    ]
    if not late:
        return {}
    with across_hubs():
        rows = MirroredObject.objects.filter(
            hub__in=late, kind__in=_WRITTEN_BY_CONTROLLERS
        ).order_by()
        written = dict(rows.values_list("hub").annotate(last=Max("changed_at")))
    found = {}
    for hub in late:
        last = max(
            filter(None, (heartbeats[hub.pk] - _offset(hub), written.get(hub.pk)))
        )
        if last < now - SILENT_AFTER:
            found[hub.pk] = last
    return found


def _offset(hub: Hub) -> timedelta:
    return timedelta(seconds=hub.clock_offset_seconds or 0.0)


def streams_of(hub: Hub) -> Sequence[HubStream]:
    with in_hub(hub.pk):
        order = ("-is_required", "group", "plural", "namespace")
        return list(HubStream.objects.order_by(*order))


def recent_writes(hub: Hub) -> Sequence[HubWrite]:
    with in_hub(hub.pk):
        return list(HubWrite.objects.order_by("-at", "-pk")[:MOST_WRITES])


def writes_of(
    hub: Hub,
    *,
    requested_by: str = "",
    object: str = "",  # noqa: A002
    **columns: object,
) -> QuerySet[HubWrite]:
    chosen = {"requested_by": requested_by, "name": object}
    columns |= {key: value for key, value in chosen.items() if value}
    with in_hub(hub.pk):
        return HubWrite.objects.filter(**columns)


def mirrored_object(
    hub: Hub,
    group: str,
    kind: str,
    namespace: str,
    name: str,
) -> dict[str, object] | None:
    with in_hub(hub.pk):
        row = MirroredObject.objects.filter(
            group=group, kind=kind, namespace=namespace, name=name
        ).first()
    return unpack(bytes(row.manifest)) if row else None


def mirrored_version(hub: Hub, write: HubWrite) -> str:
    """Return the resourceVersion that the mirror has of the object of a write; "" without the object."""
    with in_hub(hub.pk):
        rows = MirroredObject.objects.filter(
            group=write.group,
            kind=write.kind,
            namespace=write.namespace,
            name=write.name,
        )
        return rows.values_list("resource_version", flat=True).first() or ""


def mirrored_objects(hub: Hub, kind: str, **columns: object) -> list[dict[str, object]]:
    with in_hub(hub.pk):
        rows = MirroredObject.objects.filter(kind=kind, **columns).order_by(
            "namespace", "name"
        )
        return [unpack(bytes(row.manifest)) for row in rows]


def removed_hubs_with_rows() -> list[int]:
    removed = Hub.objects.exclude(removed_at=None).values_list("pk", flat=True)
    pks = []
    for pk in removed:
        with in_hub(pk):
            if HubStream.objects.exists() or MirroredObject.objects.exists():
                pks.append(pk)
    return pks
