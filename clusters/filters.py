"""Filters and states of clusters, and the domains of the fleet by one or two labels."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    F,
    Field,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
    Window,
)
from django.db.models.functions import RowNumber

from clusters.columns import domain_order
from clusters.drivers.base import SIMULATED
from clusters.fleet import CORDON_KEY, CORDON_VALUE, EligibilityKind
from clusters.models import ClusterLabel, ClusterTaint, MemberCluster, Membership
from clusters.observation import not_observed, unhealthy
from fleetui.apimachinery.grouping import grouped
from fleetui.hub_scope import LOCAL_HUB
from fleetui.prepared import PreparedQuery


class ClusterFilterState(StrEnum):
    """Filter values: the state of a cluster (`ClusterListState`), and whether it is eligible or simulated."""

    READY = "ready"
    ELIGIBLE = "eligible"
    NOT_ELIGIBLE = "not-eligible"
    HEARTBEAT_LATE = "heartbeat-late"
    NOT_OBSERVED = "not-observed"
    UNHEALTHY = "unhealthy"
    WORKLOADS_FAILING = "workloads-failing"
    CORDONED = "cordoned"
    JOINING = "joining"
    LEAVING = "leaving"
    SIMULATED = "simulated"
    NOT_MONITORED = "not-monitored"


class ClusterListState(StrEnum):
    """The state of a cluster; each is in exactly one. The best comes first."""

    READY = "ready"
    NOT_MONITORED = "not monitored"
    JOINING = "joining"
    CORDONED = "cordoned"
    WORKLOADS_FAILING = "workloads failing"
    UNHEALTHY = "unhealthy"
    HEARTBEAT_LATE = "heartbeat late"
    NOT_OBSERVED = "not observed"
    NOT_ELIGIBLE = "not eligible"
    LEAVING = "leaving"


@dataclass(frozen=True, slots=True)
class ClusterFilter:
    """The filter of a list of clusters.

    `labels` are `key:value`, `key` for any value, or `!key` for a missing label; all must match. `text` is
    part of a name.
    """

    text: str = ""
    labels: tuple[str, ...] = ()
    state: ClusterFilterState | None = None
    verdict: str = ""


CLOSED_FILTERS: dict[str, type[StrEnum]] = {
    "state": ClusterFilterState,
    "verdict": EligibilityKind,
}
# The words of pages for each filter value; these are typed, or the values.
_STATE_WORDS: Mapping[str, str] = {
    **{
        cluster_filter_state: cluster_filter_state.replace("-", " ").capitalize()
        for cluster_filter_state in ClusterFilterState
    },
    ClusterFilterState.ELIGIBLE: "Candidate",
    ClusterFilterState.NOT_ELIGIBLE: "Not ready",
}
_BY_WORDS = {words.lower(): state for state, words in _STATE_WORDS.items()}
TYPED_WORD = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
BESIDE_STATES: Mapping[ClusterFilterState, Q] = {
    ClusterFilterState.ELIGIBLE: Q(verdict=""),
    ClusterFilterState.SIMULATED: Q(driver=SIMULATED),
}
"""Filter values that are no states: a cluster has one of these and a state."""
_AWAITS_FIRST_HEARTBEAT = ~Q(driver="") & Q(has_reported=False, unanswered_since=None)
_NOT_MONITORED = Q(driver="", hub=LOCAL_HUB)  # the agents of a live hub report to it


def parse_filter_text(text: str) -> ClusterFilter:
    """Return a filter as typed: `key=value` and `!key` are labels, the rest is part of a name.

    `status="Not ready"` is a state, `verdict=NotJoined` a reason, and `key=*` a label
    with any value.
    """
    words = list[str]()
    labels = list[str]()
    chosen = dict[str, Any]()
    for word in TYPED_WORD.findall(text):
        key, is_pair, value = word.replace('"', "").partition("=")
        name = "state" if key == "status" else key
        if name == "state":
            value = _BY_WORDS.get(value.lower(), value)
        if value in list(CLOSED_FILTERS.get(name, ())):
            chosen[name] = CLOSED_FILTERS[name](value)
        elif is_pair and key:
            labels.append(key if value == "*" else f"{key}:{value}")
        elif word.startswith("!") or ":" in word:
            labels.append(word)
        else:
            words.append(word)
    return ClusterFilter(" ".join(words), tuple(labels), **chosen)


def closed_filters(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state and the verdict among parameters; an unsupported value filters nothing."""
    return {
        key: words(params[key])
        for key, words in CLOSED_FILTERS.items()
        if params.get(key) in list(words)
    }


def filter_params(wanted: ClusterFilter) -> dict[str, list[str]]:
    """Return a filter as the parameters of an address, without those that filter nothing."""
    params = {
        "q": [wanted.text],
        "label": list(wanted.labels),
        "state": [str(wanted.state or "")],
        "verdict": [wanted.verdict],
    }
    return {key: values for key, values in params.items() if any(values)}


def filter_text(wanted: ClusterFilter) -> str:
    labels = [
        label if label.startswith("!") or ":" in label else f"{label}=*"
        for label in wanted.labels
    ]
    typed = [
        label if label.startswith("!") else label.replace(":", "=", 1)
        for label in labels
    ]
    closed = {
        "status": _STATE_WORDS.get(wanted.state or "", ""),
        "verdict": wanted.verdict,
    }
    chosen = [typed_pair(key, value) for key, value in closed.items() if value]
    return " ".join([*chosen, *typed, wanted.text]).strip()


def typed_pair(name: str, value: str) -> str:
    return f'{name}="{value}"' if " " in value else f"{name}={value}"


def clusters_matching(wanted: ClusterFilter) -> QuerySet[MemberCluster]:
    rows = MemberCluster.objects.all()
    if wanted.text:
        rows = rows.filter(name__contains=wanted.text.lower())
    for label in wanted.labels:
        key, _, value = label.removeprefix("!").partition(":")
        named = ClusterLabel.objects.filter(key=key)
        if ":" in label:
            named = named.filter(value=value)
        chosen = Q(pk__in=named.values("cluster_id"))
        rows = rows.exclude(chosen) if label.startswith("!") else rows.filter(chosen)
    if wanted.verdict:
        rows = rows.filter(verdict=wanted.verdict)
    if wanted.state and wanted.state in BESIDE_STATES:
        rows = rows.filter(BESIDE_STATES[wanted.state])
    elif wanted.state:
        state = ClusterListState(wanted.state.replace("-", " "))
        rows = rows.annotate(how=list_state()).filter(how=state.value)
    return rows


def list_state(*, now: datetime | None = None) -> Case:
    """Return the expression of the state of a cluster, as it is now."""
    return _by_state(
        {state: state.value for state in ClusterListState}, CharField(), now
    )


def list_rank() -> Case:
    """Return the expression of the place of the state of a cluster: the best comes first."""
    return _by_state(
        {state: place for place, state in enumerate(ClusterListState)}, IntegerField()
    )


def _by_state(
    values: Mapping[ClusterListState, Any],
    field: "Field[Any, Any]",
    now: datetime | None = None,
) -> Case:
    """Return the expression of the value of the first state whose condition holds."""
    now = now or datetime.now(UTC)
    conditions = {
        ClusterListState.LEAVING: Q(membership=Membership.LEAVING),
        ClusterListState.NOT_ELIGIBLE: ~Q(verdict="") & ~_AWAITS_FIRST_HEARTBEAT,
        ClusterListState.HEARTBEAT_LATE: Q(verdict="", unanswered_since__isnull=False),
        ClusterListState.NOT_OBSERVED: Q(verdict="") & not_observed(now=now),
        ClusterListState.UNHEALTHY: unhealthy(now=now),
        ClusterListState.WORKLOADS_FAILING: Q(verdict="") & ~Q(workloads_problem=""),
        ClusterListState.CORDONED: Q(verdict="") & _is_cordoned(),
        ClusterListState.JOINING: Q(membership=Membership.JOINING)
        | _AWAITS_FIRST_HEARTBEAT,
        ClusterListState.NOT_MONITORED: _NOT_MONITORED,
    }
    return Case(
        *(When(one, then=Value(values[state])) for state, one in conditions.items()),
        default=Value(values[ClusterListState.READY]),
        output_field=field,
    )


def _is_cordoned() -> Q:
    # Evaluated once, but an `Exists` for each cluster.
    return Q(
        pk__in=ClusterTaint.objects.filter(key=CORDON_KEY, value=CORDON_VALUE).values(
            "cluster"
        )
    )


def cordoned_names() -> QuerySet[Any, Any]:
    """Return the names of the clusters that are cordoned and ready otherwise."""
    now = datetime.now(UTC)
    rows = MemberCluster.objects.filter(
        _is_cordoned(), verdict="", unanswered_since=None
    )
    return rows.exclude(not_observed(now=now) | unhealthy(now=now)).values("name")


def withdrawn_names() -> QuerySet[Any, Any]:
    """Return the names of the clusters that are cordoned or leave the fleet: advice names none of them."""
    return MemberCluster.objects.filter(
        _is_cordoned() | Q(membership=Membership.LEAVING)
    ).values_list("name", flat=True)


def label_of(key: str) -> Subquery:
    return Subquery(
        ClusterLabel.objects.filter(cluster=OuterRef("pk"), key=key).values("value")[:1]
    )


def counts_by_state() -> dict[ClusterFilterState, int]:
    """Count all clusters by filter value, in one query; those of the states sum to all clusters."""
    return _by_filter_value(_counts.rows(now=datetime.now(UTC)))


def _counted(rows: QuerySet[MemberCluster], now: datetime) -> QuerySet[Any, Any]:
    """Count clusters by their state, and how many of each match the other filter values."""
    others = {
        state.name: Count("pk", filter=condition)
        for state, condition in BESIDE_STATES.items()
    }
    by_state = rows.order_by().annotate(how=list_state(now=now)).values("how")
    return by_state.annotate(count=Count("*"), **others)


@PreparedQuery
def _counts(*, now: datetime) -> QuerySet[Any, Any]:
    return _counted(MemberCluster.objects.all(), now)


def _by_filter_value(
    rows: Iterable[Mapping[str, Any]],
) -> dict[ClusterFilterState, int]:
    counts = dict.fromkeys(ClusterFilterState, 0)
    for row in rows:
        counts[ClusterFilterState(row["how"].replace(" ", "-"))] = row["count"]
        for state in BESIDE_STATES:
            counts[state] += row[state.name]
    return counts


def in_all(counts: Mapping[ClusterFilterState, int]) -> int:
    """Return the number of clusters: each is in one state."""
    return sum(counts[state] for state in counts if state not in BESIDE_STATES)


def counts_with(wanted: ClusterFilter) -> tuple[int, dict[ClusterFilterState, int]]:
    """Count the clusters that match, and those that match the rest of the filter by state, in one query."""
    rest = replace(wanted, state=None)
    if rest == ClusterFilter():
        states = counts_by_state()
    else:
        states = _by_filter_value(_counted(clusters_matching(rest), datetime.now(UTC)))
    return states[wanted.state] if wanted.state else in_all(states), states


def groups_of(
    keys: Iterable[str], *, most: int = 50, among: ClusterFilter = ClusterFilter()
) -> dict[str, list[tuple[str, int]]]:
    """Count the clusters by the values of these labels, the most frequent values first; one query."""
    groups: dict[str, list[tuple[str, int]]] = {key: [] for key in keys}
    labels = ClusterLabel.objects.filter(key__in=groups)
    if among != ClusterFilter():
        labels = labels.filter(cluster__in=clusters_matching(among).values("pk"))
    rows = labels.values("key", "value").annotate(count=Count("*"))
    largest_first = (F("count").desc(), F("value").asc())
    place = Window(RowNumber(), partition_by=F("key"), order_by=largest_first)
    largest = (
        rows.annotate(place=place).filter(place__lte=most).order_by("key", "place")
    )
    for key, value, count in largest.values_list("key", "value", "count"):
        groups[key].append((value, count))
    return groups


def label_keys() -> list[tuple[str, int]]:
    rows = ClusterLabel.objects.values_list("key").annotate(count=Count("*"))
    return list(rows.order_by("key"))


@dataclass(frozen=True, slots=True)
class Domain:
    """Clusters with the same values of one or two labels; None is a missing label."""

    values: tuple[str | None, ...]
    counts: dict[ClusterListState, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())


def groups_by(*keys: str) -> list[Domain]:
    """Return the domains of one or two labels, by value, those without a label last; one query."""
    names = [f"label_{place}" for place in range(len(keys))]
    labelled = {name: label_of(key) for name, key in zip(names, keys, strict=True)}
    rows = MemberCluster.objects.annotate(**labelled, list_state=list_state())
    counted = (
        rows.values_list(*names, "list_state").annotate(count=Count("*")).order_by()
    )
    domains: dict[tuple[str | None, ...], dict[ClusterListState, int]] = {}
    for *values, state, count in counted:
        domains.setdefault(tuple(values), {})[ClusterListState(state)] = count

    return [
        Domain(values, domains[values])
        for values in sorted(domains, key=lambda one: list(map(domain_order, one)))
    ]


Members = dict[str | None, list[tuple[str, ClusterListState]]]
_SAMPLE = 50


def members_by(key: str) -> tuple[Members, list[dict[str, str]]]:
    """Return every cluster with its state, by its value of one label; two queries.

    The largest domains come first, then by name, those without the label last; clusters by name.

    Beside them the properties of some clusters, as a sample of what all have. Sorted here: the database would
    fetch thousands of rows by name in random order.
    """
    # Apart, so that the other query needs no long row.
    sample = MemberCluster.objects.order_by("pk").values_list("properties", flat=True)[
        :_SAMPLE
    ]
    rows = MemberCluster.objects.annotate(label=label_of(key), list_state=list_state())
    states = {state.value: state for state in ClusterListState}
    facts = sorted(rows.order_by().values_list("name", "label", "list_state"))
    by_value = grouped((value, (name, states[state])) for name, value, state in facts)
    largest_first = sorted(
        by_value,
        key=lambda one: (one is None, -len(by_value[one]), domain_order(one)),
    )
    members = {value: by_value[value] for value in largest_first}
    return members, [one for one in sample if one]


def similar_keys(keys: Iterable[str]) -> list[tuple[str, str]]:
    """Return new label keys with the key of other clusters that each may be a misspelling of."""
    known = [key for key, _ in label_keys()]
    matches = [
        (key, get_close_matches(key, known, n=1, cutoff=0.8))
        for key in keys
        if key not in known
    ]
    return [(key, other) for key, [*close] in matches for other in close]


def near_duplicates(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Return groups of words that differ only in capitals, spaces and punctuation."""
    alike = grouped(
        ("".join(filter(str.isalnum, word.casefold())), word)
        for word in sorted(set(words))
    )
    return [tuple(several) for several in alike.values() if len(several) > 1]
