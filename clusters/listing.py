"""Which clusters a list shows: filters that page, REST and admin share, all answered by the database."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber

from clusters.drivers.registry import SIMULATED
from clusters.models import (
    CORDON_KEY,
    CORDON_VALUE,
    ClusterLabel,
    ClusterTaint,
    MemberCluster,
    Membership,
)


class State(StrEnum):
    """What to filter clusters by; a cluster can be in several."""

    ELIGIBLE = "eligible"
    NOT_ELIGIBLE = "not-eligible"
    CORDONED = "cordoned"
    JOINING = "joining"
    LEAVING = "leaving"
    SIMULATED = "simulated"


class Standing(StrEnum):
    """How a cluster stands, in one word; a cluster is in exactly one, the best first."""

    ELIGIBLE = "eligible"
    JOINING = "joining"
    CORDONED = "cordoned"
    NOT_ELIGIBLE = "not eligible"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class ClusterFilter:
    """What a list of clusters is narrowed down to.

    `labels` are `key:value`, `key` for any value, or `!key` for none; all of them must hold. `text` is part
    of a name.
    """

    text: str = ""
    labels: tuple[str, ...] = ()
    state: State | None = None
    verdict: str = ""


ORDERS = ("name", "-name", "joined_at", "-joined_at", "verdict_since", "-verdict_since")


def clusters_matching(wanted: ClusterFilter) -> QuerySet[MemberCluster]:
    """Give the clusters that match; unordered."""
    rows = MemberCluster.objects.all()
    if wanted.text:
        rows = rows.filter(name__contains=wanted.text.lower())
    for label in wanted.labels:
        rows = _labelled(rows, label)
    if wanted.verdict:
        rows = rows.filter(verdict=wanted.verdict)
    return _in_state(rows, wanted.state)


def _labelled(rows: QuerySet[MemberCluster], label: str) -> QuerySet[MemberCluster]:
    key, _, value = label.removeprefix("!").partition(":")
    named = ClusterLabel.objects.filter(key=key)
    named = named.filter(value=value) if ":" in label else named
    if label.startswith("!"):
        return rows.exclude(pk__in=named.values("cluster_id"))
    return rows.filter(pk__in=named.values("cluster_id"))


def _in_state(rows: QuerySet[MemberCluster], state: State | None) -> QuerySet[MemberCluster]:
    match state:
        case State.ELIGIBLE:
            return rows.filter(verdict="")
        case State.NOT_ELIGIBLE:
            return rows.exclude(verdict="")
        case State.CORDONED:
            return rows.filter(taints__key=CORDON_KEY, taints__value=CORDON_VALUE)
        case State.JOINING:
            return rows.filter(membership=Membership.JOINING)
        case State.LEAVING:
            return rows.filter(membership=Membership.LEAVING)
        case State.SIMULATED:
            return rows.filter(driver=SIMULATED)
    return rows


def standing() -> Case:
    """Give the expression for how a cluster stands."""
    return Case(
        When(membership=Membership.LEAVING, then=Value(Standing.LEAVING.value)),
        When(~Q(verdict=""), then=Value(Standing.NOT_ELIGIBLE.value)),
        When(Exists(_cordons()), then=Value(Standing.CORDONED.value)),
        When(membership=Membership.JOINING, then=Value(Standing.JOINING.value)),
        default=Value(Standing.ELIGIBLE.value),
        output_field=CharField(),
    )


def _cordons() -> QuerySet[ClusterTaint]:
    return ClusterTaint.objects.filter(cluster=OuterRef("pk"), key=CORDON_KEY, value=CORDON_VALUE)


def label_of(key: str) -> Subquery:
    """Give the expression for the value that a cluster has under a label key, NULL where it has none."""
    return Subquery(ClusterLabel.objects.filter(cluster=OuterRef("pk"), key=key).values("value")[:1])


def counts_by_state() -> dict[State, int]:
    """Count the clusters in each state, in one query; a cluster can count in several."""
    is_cordoned = Exists(_cordons())
    conditions = {
        State.ELIGIBLE: Q(verdict=""),
        State.NOT_ELIGIBLE: ~Q(verdict=""),
        State.CORDONED: Q(is_cordoned),
        State.JOINING: Q(membership=Membership.JOINING),
        State.LEAVING: Q(membership=Membership.LEAVING),
        State.SIMULATED: Q(driver=SIMULATED),
    }
    counted = {state.name: Count("pk", filter=condition) for state, condition in conditions.items()}
    found = MemberCluster.objects.aggregate(**counted)
    return {state: found[state.name] for state in State}


def groups_of(keys: Iterable[str], *, most: int = 50) -> dict[str, list[tuple[str, int]]]:
    """Count the clusters by the value of each of these labels, the largest groups first; one query."""
    found: dict[str, list[tuple[str, int]]] = {key: [] for key in keys}
    rows = ClusterLabel.objects.filter(key__in=found).values("key", "value").annotate(count=Count("pk"))
    largest_first = (F("count").desc(), F("value").asc())
    place = Window(RowNumber(), partition_by=F("key"), order_by=largest_first)
    shown = rows.annotate(place=place).filter(place__lte=most).order_by("key", "place")
    for key, value, count in shown.values_list("key", "value", "count"):
        found[key].append((value, count))
    return found


def label_keys() -> list[tuple[str, int]]:
    """Give every label key of the fleet with the number of clusters that carry it, by key."""
    rows = ClusterLabel.objects.values_list("key").annotate(count=Count("pk"))
    return list(rows.order_by("key"))


def cordoned_among(clusters: Iterable[MemberCluster]) -> set[int]:
    """Give the primary keys of those clusters that are cordoned."""
    ids = [cluster.pk for cluster in clusters]
    rows = MemberCluster.objects.filter(pk__in=ids, taints__key=CORDON_KEY, taints__value=CORDON_VALUE)
    return set(rows.values_list("pk", flat=True))
