"""Rollouts of a live hub as they are observed: made from the conditions of bindings.

See `rules/live-hub.md#projection`.

The hub has no object for a rolling update. One starts when a new latest resource or policy snapshot appears
or a binding changes its target, and ends when all selected bindings are available at the latest snapshot.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest

from clusters.operations.change_log import lock_fleet
from placements.engine.rollout.state import Phase
from placements.hubs.kinds.base import moment_of
from placements.hubs.projection.rows import FAULTS, HUB, HubMoment
from placements.manifests.binding import BindingState
from placements.manifests.strategy import StrategyType
from placements.models import (
    Binding,
    ClusterUpdate,
    Placement,
    PolicySnapshot,
    ResourceSnapshot,
    Rollout,
    StagedRun,
)

log = logging.getLogger(__name__)

MOST = 100
COMPLETED = ""
SUPERSEDED = "superseded by the next rollout"
_COLUMNS = (
    "cluster_name",
    "phase",
    "phase_changed_at",
    "resource_snapshot_id",
    "applied_version",
    "conditions",
    "message",
)
"""What is read of bindings, which are large."""


@dataclass(frozen=True, slots=True)
class ObservedTarget:
    """What the hub rolls out of a placement, and to which clusters."""

    placement: Placement
    resources: ResourceSnapshot
    policy: PolicySnapshot | None
    bindings: Sequence[Binding]

    @property
    def version(self) -> str:
        """Return what differs between one rollout and the next; the number of the policy is part of it."""
        policy = "" if self.policy is None else self.policy.number
        return f"r{self.resources.number}.p{policy}"

    def is_done(self, binding: Binding) -> bool:
        return (
            binding.resource_snapshot_id == self.resources.pk
            and binding.phase == Phase.AVAILABLE
        )


def observe_rollouts(moment: HubMoment) -> int:
    """Bring the rollouts of some placements up to date with their bindings; return how many placements.

    Only while the hub is live: before, bindings and snapshots are not complete.
    """
    if not moment.is_live:
        return 0
    due = Placement.objects.filter(observe_rollout=True).defer("document")
    keys = list(due.order_by("pk").values_list("pk", flat=True)[:MOST])
    for pk in keys:
        try:
            with transaction.atomic():
                lock_fleet()  # one projection of a hub at a time
                placement = due.filter(pk=pk).first()
                if placement is not None:
                    Placement.objects.filter(pk=pk).update(observe_rollout=False)
                    _observe(placement, moment)
        except (
            FAULTS
        ) as error:  # the others continue; this one waits for its next change
            log.warning(
                "rollout not observed: placement=%s error=%s: %s",
                pk,
                type(error).__name__,
                error,
            )
            Placement.objects.filter(pk=pk).update(observe_rollout=False)
    return len(keys)


def _observe(placement: Placement, moment: HubMoment) -> None:
    snapshots = ResourceSnapshot.objects.filter(placement=placement, is_latest=True)
    resources = snapshots.defer("identities").first()
    if resources is not None and resources.revision_number is None:
        # Also for the runs that were projected before: without it, a run or a snapshot that was deleted and
        # created again would show no revision, or the one of its history.
        revision = resources.roll_out_with(placement)
        StagedRun.objects.filter(resource_snapshot=resources).update(
            revision_number=revision
        )
    last = Rollout.objects.filter(placement=placement).order_by("-number").first()
    running = last if last is not None and last.state == Rollout.State.RUNNING else None
    if placement.strategy_type == StrategyType.EXTERNAL:
        if running:
            _end(
                running,
                Rollout.State.STOPPED,
                "the strategy is External now",
                at=moment.hub_now,
            )
        return
    selected = Binding.objects.filter(placement=placement).exclude(
        state=BindingState.UNSCHEDULED
    )
    bindings = list(
        selected.exclude(phase=Phase.REMOVING).only(*_COLUMNS).order_by("cluster_name")
    )
    if resources is None or not bindings:
        return
    policy = (
        PolicySnapshot.objects.filter(placement=placement, is_latest=True)
        .defer("policy")
        .first()
    )
    target = ObservedTarget(placement, resources, policy, bindings)
    updates = ClusterUpdate.objects.filter(rollout=last).order_by("pk") if last else ()
    latest = {update.cluster_name: update for update in updates}
    trigger, since = _trigger(target, last, latest)
    if last is None or trigger:
        started_at = max(
            since or moment.hub_now,
            last.started_at if last else since or moment.hub_now,
        )
        if running:
            _end(running, Rollout.State.SUPERSEDED, SUPERSEDED, at=started_at)
        last = running = Rollout.objects.create(
            placement=placement,
            placement_name=placement.full_name,
            number=last.number + 1 if last else 1,
            resource_snapshot=resources,
            resource_number=resources.number,
            revision_number=resources.roll_out_with(placement),
            version=target.version,
            trigger=trigger,
            started_at=started_at,
            started_by=HUB,
        )
        Placement.objects.filter(pk=placement.pk).update(
            runs_made=running.number, hub_changes=F("hub_changes") + 1
        )
        latest = {}
    if running:
        _write_updates(running, target, latest, moment)


def _trigger(
    target: ObservedTarget, last: Rollout | None, latest: Mapping[str, ClusterUpdate]
) -> tuple[str, datetime | None]:
    """Return why a rollout starts, and since when; "" if none does."""
    resources = target.resources
    policy = target.policy
    if last is None or last.resource_number != resources.number:
        revision = target.placement.revision_with(resources.number)
        return f"resources of revision {revision}", resources.created_at
    if policy is not None and last.version != target.version:
        return "new policy", policy.created_at
    if last.state == Rollout.State.RUNNING:
        return "", None
    moved = [
        binding.cluster_name
        for binding in target.bindings
        if binding.cluster_name not in latest
        or latest[binding.cluster_name].version != binding.applied_version
    ]
    if not moved:
        return "", None
    names = ", ".join(moved[:3])
    if len(moved) > 3:
        names += " …"
    return f"target changed on {names}"[:200], None


def _write_updates(
    run: Rollout,
    target: ObservedTarget,
    latest: Mapping[str, ClusterUpdate],
    moment: HubMoment,
) -> None:
    """Write what happened on the clusters, and the end of the rollout once nothing is left of it."""
    new = []
    changed = []
    for binding in target.bindings:
        name = binding.cluster_name
        update = latest.get(binding.cluster_name)
        started_at = _since(binding, "RolloutStarted", run, moment)
        if binding.resource_snapshot_id != target.resources.pk or started_at is None:
            continue
        if update is None or update.version != binding.applied_version:
            if update is not None and not update.outcome:
                _supersede(update, at=started_at)
                changed.append(update)
            update = ClusterUpdate(
                rollout=run,
                cluster_name=name,
                what="update",
                version=binding.applied_version,
                started_at=started_at,
            )
            new.append(update)
        elif update.outcome:
            continue
        else:
            changed.append(update)
        update.applied_at = update.applied_at or _since(binding, "Applied", run, moment)
        update.message = binding.message
        if target.is_done(binding):
            ended_at = binding.phase_changed_at or moment.hub_now
            update.outcome = ClusterUpdate.Outcome.AVAILABLE.value
            update.ended_at = max(ended_at, update.started_at)
    selected = {binding.cluster_name for binding in target.bindings}
    for name, update in latest.items():
        if name not in selected and not update.outcome:
            _supersede(update, at=moment.hub_now)
            changed.append(update)
    columns = ["applied_at", "ended_at", "outcome", "message"]
    ClusterUpdate.objects.bulk_update(changed, columns, batch_size=200)
    ClusterUpdate.objects.bulk_create(new, batch_size=500)
    is_decided = target.placement.scheduled in ("True", "False")
    if is_decided and all(map(target.is_done, target.bindings)):
        at = max(
            (
                binding.phase_changed_at
                for binding in target.bindings
                if binding.phase_changed_at
            ),
            default=None,
        )
        _end(
            run,
            Rollout.State.FINISHED,
            COMPLETED,
            at=max(at or moment.hub_now, run.started_at),
        )
    else:
        Rollout.objects.filter(pk=run.pk).update(
            progress_version=F("progress_version") + 1
        )


def _supersede(update: ClusterUpdate, *, at: datetime) -> None:
    update.outcome = ClusterUpdate.Outcome.SUPERSEDED.value
    update.ended_at = max(at, update.started_at)


def _since(
    binding: Binding,
    kind: str,
    run: Rollout,
    moment: HubMoment,
) -> datetime | None:
    """Return since when a condition is True, within this rollout; None if it is not.

    A condition that was True before, for the earlier target, keeps its time: what is known then is that it
    is True now.
    """
    status, time = binding.conditions.get(kind, ("", ""))
    if status != "True":
        return None
    at = moment_of(time)
    is_first = run.number == 1
    if at is None or (at < run.started_at and not is_first):
        at = moment.hub_now
    return max(at, run.started_at)


def _end(
    run: Rollout,
    state: Rollout.State,
    reason: str,
    *,
    at: datetime,
) -> None:
    """End a rollout; what is in progress on clusters is superseded."""
    ClusterUpdate.objects.filter(rollout=run, outcome="").update(
        outcome=ClusterUpdate.Outcome.SUPERSEDED,
        ended_at=Greatest(F("started_at"), Value(at)),
    )
    Rollout.objects.filter(pk=run.pk).update(
        state=state,
        ended_at=max(at, run.started_at),
        ended_reason=reason,
        progress_version=F("progress_version") + 1,
    )
