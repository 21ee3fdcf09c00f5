"""Which cluster a member is: the UID of its namespace `kube-system`, compared with all other members.

One API server that is joined under two names would be changed by both, and what one applies would be an
orphan for the other.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, Q

from clusters.drivers.kubernetes.inventory import member_name
from clusters.kubernetes_drivers import member_id
from clusters.models import FormerMember, MemberCluster
from clusters.operations.change_log import lock_fleet
from clusters.operations.join import CLUSTER
from fleetui.apimachinery.grouping import grouped
from fleetui.audit import AuditEvent, record_all


class AlreadyJoined(Exception):
    """The cluster is in the fleet under another name, or has objects of a member of another name."""


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a cluster says about itself: its UID, and the members of this console with objects there.

    A holder "" is from before members had an identity. None: which have is not known.
    """

    cluster_uid: str = ""
    holders: frozenset[str] | None = None


def judge_identity(found: ServerIdentity, name: str) -> str:
    """Return what a user has to confirm before a member of this name has this cluster; "" for nothing.

    Raise AlreadyJoined where it may not have it.
    """
    if not found.cluster_uid:
        return ""
    same = (
        MemberCluster.objects.filter(cluster_uid=found.cluster_uid)
        .exclude(name=name)
        .order_by("name")
    )
    if other := same.values_list("name", flat=True).first():
        raise AlreadyJoined(
            f"this API server is that of member cluster {other} already (UID {found.cluster_uid}); a cluster"
            " is joined once"
        )
    holders = sorted(
        member_name(holder)
        for holder in (found.holders or frozenset()) - {"", member_id(name)}
    )
    if holders:
        raise AlreadyJoined(
            f"the cluster has objects that this console placed when it was member {', '.join(holders)}; join"
            f" it as {holders[0]}, or remove them first"
        )
    row = MemberCluster.objects.filter(name=name).first()
    if row is None:
        return judge_former(found, name)
    if row.cluster_uid in ("", found.cluster_uid):
        return ""
    return (
        f"another cluster than before: its UID is {found.cluster_uid}, and was {row.cluster_uid}; it was"
        " rebuilt, or this is the wrong cluster"
    )


def judge_former(found: ServerIdentity, name: str) -> str:
    """Return what has to be confirmed before a new member has a cluster that another one may have had.

    Raise AlreadyJoined where it may not have it.
    """
    is_other_name = Q(cluster_uid=found.cluster_uid) & ~Q(name=name)
    is_other_cluster = Q(name=name) & ~Q(cluster_uid=found.cluster_uid)
    former = (
        FormerMember.objects.filter(is_other_name | is_other_cluster)
        .order_by("-left_at")
        .first()
    )
    if former is not None:
        when = f"{former.left_at:%Y-%m-%d %H:%M} UTC"
        if former.name == name:
            return f"another cluster than the {name} that left the fleet at {when}"
        if found.holders is None:
            raise AlreadyJoined(
                f"the cluster was member {former.name} until {when}, and what of it is left there cannot be"
                f" read; join it as {former.name}"
            )
        return f"the cluster was member {former.name} until {when}; nothing of it is left there"
    if "" in (found.holders or ()):
        return f"the cluster has objects that this console placed earlier; they become those of {name}"
    return ""


def set_identity(
    name: str, cluster_uid: str, *, by: User | None, now: datetime
) -> None:
    """Save which cluster a member is; in the transaction of the operation that connects it."""
    if not cluster_uid:
        return
    row = MemberCluster.objects.get(name=name)
    FormerMember.objects.filter(Q(name=name) | Q(cluster_uid=cluster_uid)).delete()
    if row.cluster_uid not in ("", cluster_uid):
        _record_rebuilt(row, cluster_uid, by=by, now=now)
    MemberCluster.objects.filter(pk=row.pk).update(cluster_uid=cluster_uid)
    refresh_sharing(now=now)


@transaction.atomic
def record_identities(seen: Mapping[int, str], *, now: datetime) -> None:
    """Save the UIDs that clusters answered, by the keys of their rows, where they are not those stored."""
    rows = list(MemberCluster.objects.filter(pk__in=seen))
    if not any(row.cluster_uid != seen[row.pk] for row in rows):
        return
    lock_fleet()
    for row in MemberCluster.objects.filter(pk__in=seen):
        if row.cluster_uid == seen[row.pk]:
            continue
        if row.cluster_uid:
            _record_rebuilt(row, seen[row.pk], by=None, now=now)
        MemberCluster.objects.filter(pk=row.pk).update(cluster_uid=seen[row.pk])
    refresh_sharing(now=now)


def _record_rebuilt(
    row: MemberCluster, cluster_uid: str, *, by: User | None, now: datetime
) -> None:
    MemberCluster.objects.filter(pk=row.pk).update(rebuilt_at=now)
    before, after = {"clusterUid": row.cluster_uid}, {"clusterUid": cluster_uid}
    event = AuditEvent(
        "rebuilt", CLUSTER, row.name, row.revision, before, after, is_warning=True
    )
    record_all([event], by=by, now=now)


def refresh_sharing(*, now: datetime) -> None:
    """Name in every member another one with the same API server; under the lock of the fleet."""
    known = MemberCluster.objects.exclude(cluster_uid="")
    several = (
        known.values("cluster_uid").annotate(count=Count("pk")).filter(count__gt=1)
    )
    shared = list(several.values_list("cluster_uid", flat=True))
    rows = list(
        MemberCluster.objects.filter(
            Q(cluster_uid__in=shared) | ~Q(shares_server_with="")
        )
    )
    in_order = sorted(rows, key=lambda one: one.name)
    names = grouped((row.cluster_uid, row.name) for row in in_order)
    events = []
    for row in rows:
        other = next(
            (
                name
                for name in names[row.cluster_uid]
                if row.cluster_uid and name != row.name
            ),
            "",
        )
        if other == row.shares_server_with:
            continue
        MemberCluster.objects.filter(pk=row.pk).update(shares_server_with=other)
        verb = "shares an API server" if other else "shares no API server"
        after = {"sharesServerWith": other, "clusterUid": row.cluster_uid}
        event = AuditEvent(
            verb, CLUSTER, row.name, row.revision, after=after, is_warning=bool(other)
        )
        events.append(event)
    record_all(events, by=None, now=now)


def remember_former(rows: Collection[MemberCluster], *, now: datetime) -> None:
    """Keep which clusters left, in the transaction that deletes their rows.

    Where another name of the same API server stays, it inherits what the one that leaves has there.
    """
    for row in rows:
        if not row.cluster_uid:
            continue
        heirs = list(MemberCluster.objects.filter(cluster_uid=row.cluster_uid))
        if len(heirs) == 1:
            names = {
                *heirs[0].inherited_names.split(),
                *row.inherited_names.split(),
                row.name,
            }
            inherited = " ".join(sorted(names - {heirs[0].name}))
            MemberCluster.objects.filter(pk=heirs[0].pk).update(
                inherited_names=inherited
            )
        else:
            values = {"cluster_uid": row.cluster_uid, "left_at": now}
            FormerMember.objects.update_or_create(name=row.name, defaults=values)
    refresh_sharing(now=now)
