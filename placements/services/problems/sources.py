"""The problems of the hub in scope as its rows are now; each kind of object is read at one place."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.db.models import (
    Case,
    CharField,
    Count,
    Exists,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
)

from clusters.credentials import expiry_notice
from clusters.filters import cordoned_names
from clusters.fleet import EligibilityKind
from clusters.models import ClusterCredential, Hub, MemberCluster, Membership
from clusters.observation import not_observed, unhealthy
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted, first_names, names_and_more
from fleetui.hub_backend import current_backend
from fleetui.hub_scope import LOCAL_HUB, current_hub_id
from placements.engine.disruption import EvictionReason, Invalid, NotExecuted
from placements.engine.problems import Noun, ProblemFacts, ProblemLevel
from placements.engine.rollout.actions import (
    BlockReason,
    RunPhase,
)
from placements.engine.rollout.staged_run import ApprovalPoint, RunStatus, WaitReason
from placements.engine.rollout.state import FailureKind, Phase
from placements.explain.connections import unreachable_reason
from placements.explain.rollouts import (
    away_sentence,
    blocked_removals_sentence,
    result_from_document,
)
from placements.explain.staged_updates import eviction_sentence, hub_eviction_sentence
from placements.explain.vocabulary import ELIGIBILITY_WORDS
from placements.manifests.binding import BindingState
from placements.models import (
    ApprovalRequest,
    Binding,
    DecisionRecord,
    Eviction,
    Placement,
    ProblemKind,
    Rollout,
    StagedRun,
    StalePick,
)
from placements.services.decisions.records import reachable_records
from placements.services.problems.parts import MOST, page
from placements.services.rollouts.queries import approvals_waiting
from placements.services.rollouts.removals import waiting_removals
from placements.services.teams import (
    labels_in,
    labels_of_run,
)
from placements.services.workqueue import FAILING_AFTER, channels_with_failures

EVICTIONS_LISTED = timedelta(days=7)
"""A live hub never deletes one."""
_MOST_RESULTS = 200
"""Results of rollouts are large; of more that wait, some are problems once others proceed."""
LATE, LEAVING, NOT_OBSERVED, UNHEALTHY, NO_RESPONSE = (
    "late",
    "leaving",
    "not-observed",
    "reports-unhealthy",
    "no-response",
)
_IN_NEED = (
    Q(membership=Membership.LEAVING)
    | ~Q(verdict="")
    | Q(unanswered_since__isnull=False)
)


def of_clusters(now: datetime) -> Iterator[ProblemFacts]:
    """Yield the clusters that leave, are not ready, not observed or unhealthy, or do not answer."""
    reason = Case(
        When(membership=Membership.LEAVING, then=Value(LEAVING)),
        When(not_observed(now=now) & Q(verdict=""), then=Value(NOT_OBSERVED)),
        When(unhealthy(now=now), then=Value(UNHEALTHY)),
        When(verdict="", then=Value(LATE)),
        default=F("verdict"),
        output_field=CharField(),
    )
    is_away = _IN_NEED | not_observed(now=now) | unhealthy(now=now)
    rows = (
        MemberCluster.objects.filter(is_away)
        .annotate(reason=reason)
        .select_related("credential")
    )
    away = list(rows.defer("properties", "usage").order_by("name")[:MOST])
    names = {row.name for row in away}
    placed = Binding.objects.filter(cluster_name__in=names).exclude(
        state=BindingState.UNSCHEDULED
    )
    pairs = placed.values_list("cluster_name", "placement__full_name")
    there = grouped(pairs.order_by("cluster_name", "placement__full_name")[:MOST])
    for row in away:
        facts = _of_cluster(row)
        if row.name in there:
            words = names_and_more(there[row.name], 5)
            facts = replace(facts, message=f"{facts.message} Placed there: {words}.")
        yield facts

    # Its heartbeats arrive, and calls of placements do not. What is available there has no problem.
    is_available = Q(phase=Phase.AVAILABLE) | Q(
        phase=Phase.APPLIED, available_status="True"
    )
    silent = (
        Binding.objects.filter(failure=FailureKind.UNREACHABLE)
        .exclude(is_available)
        .order_by()
    )
    counts = silent.values("cluster_name").annotate(
        count=Count("pk"), since=Min("phase_changed_at")
    )
    for count in counts.order_by("cluster_name")[:MOST]:
        name = count["cluster_name"]
        if name not in names:
            yield ProblemFacts(
                ProblemKind.CLUSTER_NOT_READY,
                f"{ProblemKind.CLUSTER_NOT_READY}/{name}",
                Noun.CLUSTER,
                name,
                ProblemLevel.ATTENTION,
                f"Not responding to the calls of {counted(count['count'], 'placement')}. Retrying.",
                page("cluster", name),
                count["since"],
                NO_RESPONSE,
            )


def _of_cluster(row: Any) -> ProblemFacts:
    why = unreachable_reason(row)[0]
    kind, level, since = (
        ProblemKind.CLUSTER_NOT_READY,
        ProblemLevel.ATTENTION,
        row.away_since,
    )
    if row.reason == LEAVING:
        kind, level, since = (
            ProblemKind.CLUSTER_LEAVING,
            ProblemLevel.PROGRESS,
            row.leaving_since,
        )
        message = "Being removed from the fleet."
    elif row.reason == LATE:
        words = why or "does not answer"
        message = f"Heartbeat late: {words[:1].lower()}{words[1:]}. Not ready after 5m without a heartbeat."
    elif row.reason == NOT_OBSERVED:
        level, since = ProblemLevel.UNKNOWN, row.heartbeat_at
        message = "Not observed: the status is that of the last observation."
    elif row.reason == UNHEALTHY:
        reported = f": {row.health_message}" if row.health_message else ""
        message, since = (
            f"Reports itself unhealthy{reported}. Not selected after 5m of it.",
            row.healthy_since,
        )
    else:
        words = row.verdict_reason or ELIGIBILITY_WORDS[EligibilityKind(row.verdict)]
        message = f"Not ready: {words}".rstrip(".") + (f". {why}." if why else ".")
        level = ProblemLevel.FAILED
    return ProblemFacts(
        kind,
        f"{kind}/{row.name}",
        Noun.CLUSTER,
        row.name,
        level,
        message,
        page("cluster", row.name),
        since,
        row.reason,
        labels=labels_in(row.document),
    )


def of_approvals(rows: QuerySet[ApprovalRequest]) -> Iterator[ProblemFacts]:
    for row in rows.order_by("pk")[:MOST]:
        run, side = row.run, "before" if row.side == ApprovalPoint.BEFORE else "after"
        name = f"{run.full_name}/{row.stage}/{row.side}"
        yield ProblemFacts(
            ProblemKind.APPROVAL_PENDING,
            f"{ProblemKind.APPROVAL_PENDING}/{name}",
            Noun.STAGED_RUN,
            run.full_name,
            ProblemLevel.ATTENTION,
            f"Stage {row.stage} of {run.placement_name} waits for approval, {side} the stage.",
            page("staged-run", run.full_name),
            row.requested_at,
            placement=run.placement_name,
            labels=labels_of_run(run),
        )


_NO_STALL = (BlockReason.PAUSED, BlockReason.NOT_MONITORED, BlockReason.RETRY_LATER)
"""What a user wants; what is never applied; and failures, which are problems of the placement."""


def of_rollouts(_now: datetime) -> Iterator[ProblemFacts]:
    """Yield the rollouts that stalled, that wait for unreachable clusters, and with blocked removals."""
    is_stalled = Q(verdict=RunPhase.HALTED)
    is_cut_off = Q(sync_result__waitingCounts__unreachable__isnull=False)
    has_blocked = Q(sync_result__heldBack__staying__isnull=False)
    rows = Rollout.objects.filter(
        is_stalled | is_cut_off | has_blocked, state=Rollout.State.RUNNING
    )
    rows = rows.order_by("placement_name").select_related("placement").defer("waves")
    for run in rows[:_MOST_RESULTS]:
        result, sentences = result_from_document(run.sync_result), []
        away = away_sentence(result)
        may_be_causes = (BlockReason.UNREACHABLE, BlockReason.NOT_AVAILABLE)
        clusters = [
            cluster.cluster
            for cluster in result.blocked
            if cluster.reason in may_be_causes
        ]
        if result.phase is RunPhase.HALTED:
            stalled = [
                cluster for cluster in result.blocked if cluster.reason not in _NO_STALL
            ]
            if not stalled:
                continue
            late = away_sentence(result, BlockReason.NOT_AVAILABLE)
            blocked = counted(len(stalled), "cluster")
            sentences = [
                f"Rollout {run.number} stalled: {blocked} blocked.",
                away,
                late,
            ]
        elif away:
            sentences = [f"Rollout {run.number}: {away}"]
        if result.blocked_removals:
            sentences.append(blocked_removals_sentence(result.blocked_removals))
            if not away:
                clusters = []
        name = f"{run.placement_name}/{run.number}"
        yield ProblemFacts(
            ProblemKind.ROLLOUT_STALLED,
            f"{ProblemKind.ROLLOUT_STALLED}/{name}",
            Noun.ROLLOUT,
            name,
            ProblemLevel.ATTENTION,
            " ".join(sentence for sentence in sentences if sentence),
            page("rollout", run.placement_name, run.number),
            placement=run.placement_name,
            clusters=tuple(clusters),
            labels=labels_of_run(run),
        )


def of_staged_runs(rows: QuerySet[StagedRun]) -> Iterator[ProblemFacts]:
    """Yield the staged runs that failed, are stuck or paused, or wait for unreachable clusters."""
    rows = rows.select_related("placement").defer("plan")
    for run in rows.order_by("placement_name", "pk")[:MOST]:
        waits, late = run.sync_result.get("waits", ()), run.sync_result.get("stuck")
        names = [
            name
            for wait in waits
            if wait["reason"] == WaitReason.UNREACHABLE
            for name in wait["names"]
        ]
        kind, level = ProblemKind.ROLLOUT_STALLED, ProblemLevel.ATTENTION
        if run.status == RunStatus.FAILED:
            kind, level = ProblemKind.ROLLOUT_FAILED, ProblemLevel.FAILED
            words, names = "failed. Clusters keep their current revision.", []
        elif run.status == RunStatus.STOPPED:
            kind, level = ProblemKind.ROLLOUT_HELD, ProblemLevel.SUSPENDED
            words, names = "is paused; no new updates start.", []
        elif late:
            words, names = (
                f"is stuck: {counted(len(late), 'cluster')} not updated within 5m.",
                [],
            )
        elif names:
            words = f"waits for unreachable clusters: {first_names(names)}."
        elif run.status == RunStatus.STUCK:
            words = "is stuck."
        else:
            continue
        yield ProblemFacts(
            kind,
            f"{kind}/staged {run.full_name}",
            Noun.STAGED_RUN,
            run.full_name,
            level,
            f"Staged run {run.full_name} {words}",
            page("staged-run", run.full_name),
            placement=run.placement_name,
            clusters=tuple(names),
            labels=labels_of_run(run),
        )


def of_pauses(rows: QuerySet[Placement]) -> Iterator[ProblemFacts]:
    for row in rows.order_by("full_name")[:MOST]:
        words = f"Paused by {row.paused_by}" if row.paused_since else "Stopped"
        yield ProblemFacts(
            ProblemKind.ROLLOUT_HELD,
            f"{ProblemKind.ROLLOUT_HELD}/{row.full_name}",
            Noun.PLACEMENT,
            row.full_name,
            ProblemLevel.SUSPENDED,
            f"{words}; no new updates start.",
            page("placement", row.full_name),
            row.paused_since,
            placement=row.full_name,
            labels=labels_in(row.document),
        )


def of_removals(_now: datetime) -> Iterator[ProblemFacts]:
    """Yield the removals that wait for a person, with the labels of the placement, if there is one."""
    rows = waiting_removals(most=MOST)
    known = (
        Placement.objects.filter(full_name__in={row.placement_name for row in rows})
        if rows
        else ()
    )
    labels = {placement.full_name: labels_in(placement.document) for placement in known}
    for row in rows:
        message = f"Removal of {row.placement_name} waits: {row.reason}"
        if row.is_orphan:
            message = f"The removal of {row.placement_name} waits for a confirmation: {row.reason}"
        yield ProblemFacts(
            ProblemKind.REMOVAL_WAITS,
            f"{ProblemKind.REMOVAL_WAITS}/{row.cluster_name}/{row.placement_name}",
            Noun.REMOVALS,
            row.cluster_name,
            ProblemLevel.ATTENTION,
            message,
            page("cluster-removals", row.cluster_name),
            row.since,
            placement=row.placement_name,
            labels=labels.get(row.placement_name, {}),
        )


def of_evictions(rows: QuerySet[Eviction]) -> Iterator[ProblemFacts]:
    """Yield the evictions that were not executed, unless a later one was requested."""
    later = Eviction.objects.filter(
        placement_name=OuterRef("placement_name"),
        cluster_name=OuterRef("cluster_name"),
        pk__gt=OuterRef("pk"),
    )
    for row in rows.filter(~Exists(later)).order_by("at", "pk")[:MOST]:
        words = hub_eviction_sentence(
            row.hub_conditions
        )  # a live hub has conditions instead
        if row.why:
            reason = EvictionReason(row.why)
            is_invalid = row.outcome == Eviction.Outcome.INVALID
            words = eviction_sentence(
                Invalid(reason) if is_invalid else NotExecuted(reason)
            )
        yield ProblemFacts(
            ProblemKind.EVICTION_NOT_EXECUTED,
            f"{ProblemKind.EVICTION_NOT_EXECUTED}/{row.placement_name}/{row.cluster_name}",
            Noun.PLACEMENT,
            row.placement_name,
            ProblemLevel.FAILED,
            f"Eviction from {row.cluster_name}: {words}",
            page("placement", row.placement_name),
            row.at,
            placement=row.placement_name,
        )


def of_drift(_now: datetime) -> Iterator[ProblemFacts]:
    """Yield the placements with drifted or differing objects, and on how many clusters."""
    has_drift, has_diff = ~Q(drifted_objects=[]), ~Q(diffed_objects=[])
    groups = list(
        Binding.objects.filter(has_drift | has_diff)
        .order_by()
        .values("placement")
        .annotate(
            name=F("placement__full_name"),
            drifted=Count("pk", filter=has_drift),
            diffed=Count("pk", filter=has_diff),
            first=Min("cluster_name"),
            clusters=Count("pk"),
        )
        .order_by("name")[:MOST]
    )
    found = (
        Placement.objects.filter(pk__in=[group["placement"] for group in groups])
        if groups
        else ()
    )
    labels = {placement.pk: labels_in(placement.document) for placement in found}
    for group in groups:
        numbers = {"drift": group["drifted"], "differences": group["diffed"]}
        parts = [
            f"{noun} on {counted(count, 'cluster')}"
            for noun, count in numbers.items()
            if count
        ]
        where = names_and_more([group["first"]], 1, count=group["clusters"])
        yield ProblemFacts(
            ProblemKind.DRIFT,
            f"{ProblemKind.DRIFT}/{group['name']}",
            Noun.DRIFT,
            group["name"],
            ProblemLevel.ATTENTION,
            f"{', '.join(parts).capitalize()}: {where}.",
            page("placement-drift", group["name"]),
            placement=group["name"],
            labels=labels.get(group["placement"], {}),
        )


def of_records(rows: QuerySet[DecisionRecord]) -> Iterator[ProblemFacts]:
    """Yield the decisions with another result when decided again."""
    for record in rows.only("decision_id", "fault").order_by("pk")[:MOST]:
        name = record.decision_id[:10]
        yield ProblemFacts(
            ProblemKind.DECISION_NOT_REPRODUCIBLE,
            f"{ProblemKind.DECISION_NOT_REPRODUCIBLE}/{record.decision_id}",
            Noun.DECISION,
            name,
            ProblemLevel.FAILED,
            f"Verification failed: replaying decision {name} gives a different result ({record.fault}).",
            page("decision", record.decision_id),
        )


def of_cluster_credentials(
    rows: QuerySet[ClusterCredential], now: datetime
) -> Iterator[ProblemFacts]:
    rows = rows.select_related("cluster").defer(
        "ciphertext", "cluster__properties", "cluster__usage"
    )
    for row in rows.order_by("expires_at", "pk")[:MOST]:
        if notice := expiry_notice(row, now=now):
            name = row.cluster.name
            address, labels = (
                page("cluster-connection", name),
                labels_in(row.cluster.document),
            )
            yield of_credential(Noun.CONNECTION, name, row, notice, address, labels)


def of_credential(
    noun: Noun,
    name: str,
    row: Any,
    notice: str,
    path: str,
    labels: Mapping[str, str],
) -> ProblemFacts:
    return ProblemFacts(
        ProblemKind.CREDENTIAL_EXPIRES,
        f"{ProblemKind.CREDENTIAL_EXPIRES}/{noun}/{name}",
        noun,
        name,
        ProblemLevel.ATTENTION,
        f"{row.kind.capitalize()} {notice}.",
        path,
        labels=labels,
    )


def of_hub(now: datetime) -> Iterator[ProblemFacts]:
    yield from current_backend().problems(now)


def of_channels(rows: QuerySet[Any]) -> Iterator[ProblemFacts]:
    for row in rows[:MOST]:
        yield ProblemFacts(
            ProblemKind.CHANNEL_SILENT,
            f"{ProblemKind.CHANNEL_SILENT}/{row.name}",
            Noun.CHANNEL,
            row.name,
            ProblemLevel.FAILED,
            f"Notifications to this channel fail: {row.last_error}.",
            page("notifications"),
            row.failing_since,
        )


def of_outdated(rows: QuerySet[StalePick]) -> Iterator[ProblemFacts]:
    """Yield the placements that would not select some of their clusters again."""
    owner = "staleness_check__placement__full_name"
    is_cordoned = Case(
        When(cluster_name__in=cordoned_names(), then=True), default=False
    )
    rows = rows.annotate(is_cordoned=is_cordoned).order_by(owner, "cluster_name")
    columns = rows.values_list(owner, "is_cordoned", "cluster_name", "reason")
    found = grouped(
        ((name, cordoned), (cluster, reason))
        for name, cordoned, cluster, reason in columns[:MOST]
    )
    for (name, cordoned), picks in found.items():
        clusters = [cluster for cluster, _ in picks]
        first, reason = picks[0]
        if reason and any(other != reason for _, other in picks):
            reason = f"{first}: {reason}"
        sentences = [
            f"{names_and_more(clusters, 3)} would not be selected if rescheduled"
        ]
        if reason:
            sentences.append(reason)
        why = "cordoned" if cordoned else ""
        kind = ProblemKind.PLACEMENT_OUTDATED
        yield ProblemFacts(
            kind,
            f"{kind}/{name}/{why}" if cordoned else f"{kind}/{name}",
            Noun.PLACEMENT,
            name,
            ProblemLevel.OUTDATED,
            f"{'. '.join(sentences)}.",
            page("placement", name),
            reason=why,
            placement=name,
            clusters=tuple(clusters),
        )


def of_what_is_rare(now: datetime) -> Iterator[ProblemFacts]:
    """Yield the problems of which most hubs have none: one query finds out which kinds there are."""
    newer = StagedRun.objects.filter(
        placement=OuterRef("placement"), pk__gt=OuterRef("pk")
    )
    has_failed = Q(~Exists(newer), status=RunStatus.FAILED, placement__isnull=False)
    is_open = Q(
        ended_at=None,
        started_at__isnull=False,
        status__in=(
            RunStatus.STUCK,
            RunStatus.WAITING,
            RunStatus.PROGRESSING,
            RunStatus.STOPPED,
        ),
    )
    failed = (Eviction.Outcome.NOT_EXECUTED, Eviction.Outcome.INVALID)
    recent = Eviction.objects.filter(
        at__gte=now - EVICTIONS_LISTED, placement__isnull=False
    )
    expiring = ClusterCredential.objects.filter(expires_at__isnull=False)
    kinds: list[
        tuple[QuerySet[Any], Callable[[QuerySet[Any]], Iterator[ProblemFacts]]]
    ] = [
        (approvals_waiting(), of_approvals),
        (StagedRun.objects.filter(has_failed | is_open), of_staged_runs),
        (
            Placement.objects.filter(
                Q(paused_since__isnull=False) | Q(is_stopped=True)
            ),
            of_pauses,
        ),
        (recent.filter(outcome__in=failed), of_evictions),
        (reachable_records().filter(fault__gt=""), of_records),
        (expiring, partial(of_cluster_credentials, now=now)),
        (StalePick.objects.all(), of_outdated),
    ]
    hub = current_hub_id()
    if hub == LOCAL_HUB:  # channels belong to it
        channels = channels_with_failures().filter(
            failing_since__lte=now - FAILING_AFTER
        )
        kinds.append((channels, of_channels))
    exist = {f"kind_{number}": Exists(rows) for number, (rows, _) in enumerate(kinds)}
    is_there = Hub.objects.annotate(**exist).values_list(*exist).get(pk=hub)
    for (rows, source), is_any in zip(kinds, is_there, strict=True):
        if is_any:
            yield from source(rows)


SOURCES: tuple[Callable[[datetime], Iterator[ProblemFacts]], ...] = (
    of_clusters,
    of_rollouts,
    of_removals,
    of_drift,
    of_hub,
    of_what_is_rare,
)
