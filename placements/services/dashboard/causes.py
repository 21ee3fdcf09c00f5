"""What needs attention on the overview: each root cause once, with what follows from it, the worst first."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

from django.contrib.auth.models import User
from django.core.cache import caches
from django.db.models import (
    Case,
    CharField,
    Count,
    DateTimeField,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.urls import reverse

from clusters.fleet import EligibilityKind
from clusters.models import MemberCluster, Membership
from clusters.observation import not_observed, unhealthy
from fleetui.apimachinery.words import counted
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from fleetui.permissions import may_manage_notifications
from placements.explain.connections import unreachable_reason
from placements.explain.vocabulary import ELIGIBILITY_WORDS, first_names
from placements.manifests.binding import BindingState
from placements.models import Binding
from placements.services.dashboard import queries
from placements.services.dashboard.queries import MANY_CLUSTERS, MOST, Counts
from placements.services.filters import PlacementFilterState
from placements.services.fleet.queries import stale_on_cordoned, stale_placements
from placements.services.hubs.queries import disagreements
from placements.services.rollouts.approvals import first_waiting, waiting_for
from placements.services.rollouts.attention import AttentionItem, needs_attention
from placements.services.rollouts.removals import waiting_removals
from placements.services.workqueue import FAILING_AFTER, channels_with_failures

MOST_CAUSES = 10
_LEVELS = ("failed", "attention", "unknown", "progress", "outdated", "suspended")
SILENT_CHANNELS, _KEPT_SECONDS = "silent-channels", 60.0
_LATE, _LEAVING, _NOT_OBSERVED, _UNHEALTHY = "late", "leaving", "not-observed", "reports-unhealthy"
_CAN_BE_SELECTED = (_LATE, _NOT_OBSERVED, _UNHEALTHY)
_MOST_BINDINGS = 2_000
_IN_NEED = Q(membership=Membership.LEAVING) | ~Q(verdict="") | Q(unanswered_since__isnull=False)


class Effect(NamedTuple):
    """What follows from a cause: a sentence or a name, and the page to open."""

    words: str
    path: str


@dataclass(frozen=True, slots=True)
class Cause:
    """An object that needs attention: why, since when, what follows from it, and the page to open.

    `summary` counts what follows. `mark` changes when the cause does; a time does not change it.
    """

    key: str
    level: str
    name: str
    message: str
    path: str
    action: str
    since: datetime | None = None
    effects: tuple[Effect, ...] = ()
    summary: str = ""

    @property
    def mark(self) -> str:
        words = (self.level, self.message, self.summary, *(one.words for one in self.effects))
        return sha256("\0".join(words).encode()).hexdigest()[:12]


@dataclass(frozen=True, slots=True)
class Attention:
    """Causes to show, lists with more, snoozed ones, how many approvals are pending, if placements failed."""

    causes: list[Cause]
    more: list[Effect]
    snoozed: list[Cause]
    approvals: int
    has_failed: bool


@dataclass(frozen=True, slots=True)
class Snooze:
    """Until when a cause is hidden, or, without a time, until it changes."""

    until: float | None
    mark: str

    def hides(self, cause: Cause, *, now: datetime) -> bool:
        return cause.mark == self.mark if self.until is None else now.timestamp() < self.until


@dataclass(slots=True)
class _Away:
    """Clusters that are not available, one, or as a group those of one reason, and the placements on them."""

    cause: Cause
    is_group: bool = False
    placements: set[str] = field(default_factory=set)
    stalled: dict[str, Effect] = field(default_factory=dict)
    outdated: set[str] = field(default_factory=set)

    def grouped(self) -> Cause:
        stalled, outdated, others = list(self.stalled), sorted(self.outdated), sorted(self.placements)
        parts = [
            f"{words} ({first_names(names)})"
            for words, names in (
                (f"{counted(len(stalled), 'rollout')} waiting", stalled),
                (f"{counted(len(others), 'placement')} affected", others),
                (f"{counted(len(outdated), 'placement')} outdated", outdated),
            )
            if names
        ]
        effects = [Effect(one, reverse("web:placement", args=[one])) for one in others[:MOST_CAUSES]]
        return replace(self.cause, effects=(*self.stalled.values(), *effects), summary=" · ".join(parts))


def attention(
    counts: Counts, user: User | None, *, snoozes: Mapping[str, Snooze], now: datetime
) -> Attention:
    """Return what needs attention, without what this person has snoozed."""
    away = _away(is_large=counts.clusters > MANY_CLUSTERS, now=now)
    approvals, approvals_count = _approvals(user) if counts.of_placements.approvals else ([], 0)
    on_placements = _of_placements(counts, away)
    differences, differences_count = _differences()
    causes = [*approvals, *(one.grouped() for one in away.values())]
    causes += [*_merge_causes(on_placements), *differences]
    causes += _faulty() if counts.of_placements.errors else []
    causes += _silent_channels(user, now=now)
    causes.sort(key=lambda one: _LEVELS.index(one.level))
    hidden = [one for one in causes if (snooze := snoozes.get(one.key)) and snooze.hides(one, now=now)]
    visible = [one for one in causes if one not in hidden]
    levels = {one.key.partition("/")[2]: one.level for one in causes if one.key.startswith("placement/")}
    stale_count = counts.of_placements.by_state[PlacementFilterState.STALE]
    degraded = set(levels).union(*(one.placements for one in away.values()))
    lists = (
        ("not ready clusters", counts.not_eligible, MOST_CAUSES, "clusters", "?state=not-eligible"),
        ("not observed clusters", counts.not_observed, MOST_CAUSES, "clusters", "?state=not-observed"),
        ("unhealthy clusters", counts.unhealthy, MOST_CAUSES, "clusters", "?state=unhealthy"),
        ("leaving clusters", counts.leaving, MOST_CAUSES, "clusters", "?state=leaving"),
        ("not fulfilled placements", counts.unfulfilled, MOST, "placements", "?state=unfulfilled"),
        ("invalid resource selectors", counts.invalid, MOST, "placements", "?state=invalid"),
        ("degraded or failed placements", counts.degraded, len(degraded), "placements", "?state=degraded"),
        ("pending approvals", approvals_count, MOST, "rollouts", "?waiting=approval"),
        ("outdated placements", stale_count, MOST, "placements", "?state=stale"),
        ("disagreements", differences_count, MOST, "placements", ""),
    )
    is_cut = len(visible) > MOST_CAUSES
    more = [
        Effect(f"{number:,} {words}", reverse(f"web:{page}") + query)
        for words, number, most, page, query in lists
        if number > most or (is_cut and number > 1)
    ]
    return Attention(visible[:MOST_CAUSES], more, hidden, approvals_count, "failed" in levels.values())


def _away(*, is_large: bool, now: datetime) -> dict[str, _Away]:
    """Return the first clusters that are not available by name, or those of a large fleet by reason.

    The worst come first. Two queries, of a large fleet one.
    """
    reason = Case(
        When(membership=Membership.LEAVING, then=Value(_LEAVING)),
        When(not_observed(now=now) & Q(verdict=""), then=Value(_NOT_OBSERVED)),
        When(unhealthy(now=now), then=Value(_UNHEALTHY)),
        When(verdict="", then=Value(_LATE)),
        default=F("verdict"),
        output_field=CharField(),
    )
    is_away = _IN_NEED | not_observed(now=now) | unhealthy(now=now)
    rows = MemberCluster.objects.filter(is_away).annotate(reason=reason)
    members = rows.filter(name=OuterRef("cluster_name"))
    group = Subquery(members.values("reason" if is_large else "name")[:1])
    bindings = Binding.objects.exclude(state=BindingState.UNSCHEDULED).annotate(group=group).order_by()
    away: dict[str, _Away] = {}
    if is_large:
        return _away_by_reason(rows, bindings.filter(group__isnull=False))
    rank = Case(When(reason=_LEAVING, then=2), When(reason__in=_CAN_BE_SELECTED, then=1), default=0)
    rows = rows.select_related("credential")
    for row in rows.defer("document", "properties", "usage").order_by(rank, "name")[:MOST_CAUSES]:
        away[row.name] = _Away(_cause_of_cluster(row))
    if away:
        pairs = bindings.filter(group__in=list(away)).values_list("group", "placement__full_name")
        for key, placement in pairs.distinct()[:_MOST_BINDINGS]:
            away[key].placements.add(placement)
    return away


def _away_by_reason(rows: QuerySet[Any], bindings: QuerySet[Any]) -> dict[str, _Away]:
    """Return the clusters by reason, most first, and the placements on them; one query."""
    never = Value(None, output_field=DateTimeField())
    facts = ("group", "number", "since", "late", "seen", "placed")
    groups = rows.order_by().annotate(group=F("reason")).values("group")
    groups = groups.annotate(
        number=Count("pk"),
        since=Min("verdict_since"),
        late=Min("unanswered_since"),
        seen=Min(Case(When(reason=_UNHEALTHY, then=F("healthy_since")), default=F("heartbeat_at"))),
        placed=Value(""),
    )
    placed = bindings.annotate(
        number=Value(0), since=never, late=never, seen=never, placed=F("placement__full_name")
    )
    both = groups.values_list(*facts).union(placed.values_list(*facts))
    away: dict[str, _Away] = {}
    for reason, number, since, late, seen, placement in both.order_by("-number")[:_MOST_BINDINGS]:
        if number:
            away[reason] = _Away(_cause_of_reason(reason, number, since, late, seen), is_group=True)
        elif reason in away:
            away[reason].placements.add(placement)
    return away


def _cause_of_cluster(row: Any) -> Cause:
    reason = unreachable_reason(row)[0]
    if row.reason == _LEAVING:
        level, message, since = "progress", "Being removed from the fleet.", row.leaving_since
    elif row.reason == _LATE:
        words = reason or "does not answer"
        message = f"Unreachable: {words[:1].lower()}{words[1:]}. Not ready after 5m without a heartbeat."
        level, since = "attention", row.unanswered_since
    elif row.reason == _NOT_OBSERVED:
        message, level, since = (
            "Not observed: the status is that of the last observation.",
            "unknown",
            row.heartbeat_at,
        )
    elif row.reason == _UNHEALTHY:
        why = f": {row.health_message}" if row.health_message else ""
        message = f"Reports itself unhealthy{why}. Not selected after 5m of it."
        level, since = "attention", row.healthy_since
    else:
        words = ELIGIBILITY_WORDS[EligibilityKind(row.verdict)]
        message = f"Not ready: {row.verdict_reason or words}".rstrip(".") + (
            f". {reason}." if reason else "."
        )
        level, since = "failed", row.verdict_since
    path = reverse("web:cluster", args=[row.name])
    return Cause(f"cluster/{row.name}", level, row.name, message, path, f"Open {row.name}", since)


def _cause_of_reason(
    reason: str, count: int, since: datetime | None, late: datetime | None, seen: datetime | None
) -> Cause:
    clusters, path = counted(count, "cluster"), reverse("web:clusters")
    if reason == _LEAVING:
        message, path = f"{clusters} being removed from the fleet.", f"{path}?state=leaving"
        return Cause("clusters/leaving", "progress", "Leaving", message, path, "Leaving clusters")
    if reason == _LATE:
        message = f"{clusters} not answering; not ready after 5m without a heartbeat."
        path = f"{path}?state=heartbeat-late"
        return Cause("clusters/late", "attention", "Heartbeat late", message, path, "Late clusters", late)
    if reason == _NOT_OBSERVED:
        message = f"{clusters} not observed: the statuses are those of the last observation."
        path = f"{path}?state=not-observed"
        key, action = "clusters/not-observed", "Clusters that are not observed"
        return Cause(key, "unknown", "Not observed", message, path, action, seen)
    if reason == _UNHEALTHY:
        message = f"{clusters} unhealthy by own report; not selected after 5m of it."
        key, path, action = f"clusters/{reason}", f"{path}?state=unhealthy", "Unhealthy clusters"
        return Cause(key, "attention", "Unhealthy", message, path, action, seen)
    words = ELIGIBILITY_WORDS[EligibilityKind(reason)]
    path = f"{path}?state=not-eligible&sort=-verdict_since"
    key, message = f"clusters/{reason}", f"{clusters}: {words}."
    return Cause(key, "failed", "Not ready", message, path, f"Clusters: {words}", since)


def _of_placements(counts: Counts, away: dict[str, _Away]) -> list[Cause]:
    """Return a cause for each fact about placements, apart from what follows from clusters."""
    causes = []
    has_any = counts.unfulfilled or counts.invalid
    shorts, invalids = queries.troubled_placements() if has_any else ((), ())
    for short in shorts:
        one, decision = short.placement, short.decision
        wanted = (decision.wanted if decision else one.number_of_clusters) or one.named_count
        total = "" if wanted is None else f" of {wanted:,}"
        level = "attention" if one.placed_count else "failed"
        reason = short.reason[:1].upper() + short.reason[1:]
        message = f"{one.placed_count:,}{total} clusters selected. {reason.rstrip('.')}."
        path = reverse("web:decision", args=[decision.record.decision_id]) if decision else ""
        causes.append(_of_placement(one.full_name, level, message, path, "Explain" if path else "Open"))
    for invalid in invalids:
        fault = invalid.selection_faults[0]["message"]
        message = f"Invalid resource selector; not scheduled: {fault}."
        causes.append(_of_placement(invalid.full_name, "failed", message))
    for item in needs_attention(has_runs=bool(counts.rolling), has_staged=bool(counts.of_placements.staged)):
        causes += _unless_absorbed(item, away)
    causes += _removals()
    has_stale = counts.of_placements.by_state[PlacementFilterState.STALE]
    causes += _on_cordoned() if has_stale and counts.cordoned else []
    for entry in stale_placements(most=MOST) if has_stale else ():
        names = [name for name in entry.names if name not in away]
        for name in entry.names:
            if name in away:
                away[name].outdated.add(entry.placement)
        hidden = entry.count - len(entry.names)
        if names or hidden:
            more = f"{hidden:,} more" if names else counted(hidden, "cluster")
            clusters = " and ".join([*([", ".join(names)] if names else []), *([more] if hidden else [])])
            when = f"as of {entry.checked_at:%H:%M:%S} UTC"
            message = f"{clusters} would not be selected if rescheduled ({when})."
            causes.append(_of_placement(entry.placement, "outdated", message))
    return causes


def _removals() -> list[Cause]:
    """Return a cause for each cluster from which something would be removed without a request."""
    by_cluster: dict[str, list[str]] = defaultdict(list)
    for one in waiting_removals(most=MOST):
        by_cluster[one.cluster_name].append(one.placement_name)
    causes = []
    for cluster, placements in by_cluster.items():
        message = f"The removal of {first_names(placements)} waits for a confirmation."
        path = reverse("web:cluster-removals", args=[cluster])
        causes.append(
            Cause(f"removals/{cluster}", "attention", cluster, message, path, f"Removals from {cluster}")
        )
    return causes


def _on_cordoned() -> list[Cause]:
    """Return one cause for all placements that are outdated because clusters are cordoned."""
    picks = stale_on_cordoned()
    if not picks:
        return []
    placements, clusters = list(dict.fromkeys(one for one, *_ in picks)), {one for _, one, _ in picks}
    outdated, when = counted(len(placements), "placement"), min(at for *_, at in picks)
    message = f"{counted(len(clusters), 'cordoned cluster')} would not be selected again by {outdated} "
    message += f"(as of {when:%H:%M:%S} UTC)."
    path = reverse("web:clusters") + "?state=cordoned"
    effects = tuple(Effect(one, reverse("web:placement", args=[one])) for one in placements[:MOST_CAUSES])
    cause = Cause("clusters/cordoned", "outdated", "Cordoned", message, path, "Cordoned clusters")
    return [replace(cause, effects=effects, summary=f"{outdated} outdated ({first_names(placements)})")]


def _of_placement(name: str, level: str, message: str, path: str = "", verb: str = "Open") -> Cause:
    path = path or reverse("web:placement", args=[name])
    return Cause(f"placement/{name}", level, name, message, path, f"{verb} {name}")


def _unless_absorbed(item: AttentionItem, away: dict[str, _Away]) -> Iterator[Cause]:
    """Yield the cause of a rollout, or nothing where it only waits for clusters that are not available.

    Placements that wait for an answer of one cluster are a cause of this cluster.
    """
    path, action = "", "Open"
    if item.staged:
        path, action = reverse("web:staged-run", args=[item.staged]), f"Run {item.staged}"
    elif item.run is not None:
        path = reverse("web:rollout", args=[item.placement, item.run])
        action = f"Rollout {item.placement}/{item.run}"
    blamed = [
        one
        for key, one in away.items()
        if item.clusters and item.placement in one.placements and (one.is_group or key in item.clusters)
    ]
    if item.sort == "no-response" and not blamed:
        name = item.clusters[0]
        cluster, page = f"cluster/{name}", reverse("web:cluster", args=[name])
        cause = Cause(cluster, item.kind, name, item.words, page, f"Open {name}")
        blamed = [away.setdefault(name, _Away(cause))]
        blamed[0].placements.add(item.placement)
    for one in blamed:
        if path:
            one.stalled[action.removeprefix("Rollout ").removeprefix("Run ")] = Effect(action, path)
    if not blamed:
        cause = _of_placement(item.placement, item.kind, item.words, path)
        yield replace(cause, action=action) if path else cause


def _merge_causes(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Yield one cause for each placement: the worst, which the others follow."""
    by_key: dict[str, list[Cause]] = defaultdict(list)
    for one in causes:
        by_key[one.key].append(one)
    for several in by_key.values():
        first, *others = sorted(several, key=lambda one: _LEVELS.index(one.level))
        following = (Effect(one.message, one.path) for one in others)
        yield replace(first, effects=(*first.effects, *following))


def _approvals(user: User | None) -> tuple[list[Cause], int]:
    requests, count = first_waiting(most=MOST)
    causes = []
    for one in (waiting_for(request, user) for request in requests):
        run, stage = one.request.run, one.request.stage
        who = f"Approvers: {one.who}." if one.why_not else "You may approve this stage."
        message = f"Pending approval of stage {stage} of {run.full_name}, {one.side}. {who}"
        key, path = f"approval/{one.request.pk}", reverse("web:staged-run", args=[run.full_name])
        action, since = f"Run {run.full_name}", one.request.requested_at
        causes.append(Cause(key, "attention", run.placement_name, message, path, action, since))
    return causes, count


def _faulty() -> list[Cause]:
    causes = []
    for one in queries.faulty_records():
        name, path = one.decision_id[:10], reverse("web:decision", args=[one.decision_id])
        message = f"Verification failed: replaying decision {name} gives a different result ({one.fault})."
        causes.append(Cause(f"decision/{name}", "failed", name, message, path, f"Open decision {name}"))
    return causes


def _silent_channels(user: User | None, *, now: datetime) -> list[Cause]:
    """Return the channels without their messages for some minutes, for the users that manage them.

    This process keeps them for a minute.
    """
    if current_hub_id() != LOCAL_HUB or user is None:
        return []

    def read() -> list[Any]:
        return list(channels_with_failures().filter(failing_since__lte=now - FAILING_AFTER)[:MOST])

    rows: list[Any] = caches["process"].get_or_set(SILENT_CHANNELS, read, _KEPT_SECONDS) or []
    path, causes = reverse("web:notifications"), []
    for one in rows if rows and may_manage_notifications(user) else ():
        message = f"Notifications to this channel fail: {one.last_error}."
        key, since = f"channel/{one.name}", one.failing_since
        causes.append(Cause(key, "failed", one.name, message, path, "Notifications", since))
    return causes


def _differences() -> tuple[list[Cause], int]:
    """Return the placements on whose decisions the replay and the live hub disagree."""
    if current_hub_id() == LOCAL_HUB:
        return [], 0
    rows = disagreements()
    first_rows: list[Any] = list(rows.order_by("placement_name")[:MOST])
    causes = []
    for one in first_rows:
        places, name = counted(one.differences_count, "place"), one.placement_name
        message = f"Disagreement: the replay of what the hub decided differs in {places}."
        path = reverse("web:decision", args=[one.decision.record.decision_id]) + "#hub"
        causes.append(Cause(f"hub/{name}", "attention", name, message, path, f"Compare {name}"))
    return causes, rows.count() if len(first_rows) == MOST else len(first_rows)


def snoozes_from(stored: Any) -> dict[str, Snooze]:
    """Return the snoozes that a session keeps; what is not one of them is ignored."""
    entries: Collection[tuple[str, Any]] = stored.items() if isinstance(stored, dict) else ()
    return {key: Snooze(*value) for key, value in entries if isinstance(value, list) and len(value) == 2}
