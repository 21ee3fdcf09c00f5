"""Replays of the cycles in which a live hub selected clusters (`rules/live-hub.md#replays`)."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from clusters.fleet import EligibilityKind
from clusters.models import BindingChange, Hub, MirroredObject
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import (
    Decision,
    fleet_digest,
    properties_read,
)
from placements.hubs.fleet_versions import (
    CLOCK_TOLERANCE,
    fleet_at,
    is_at_or_before,
    latest_version,
    neighbours,
    version_at,
)
from placements.hubs.kinds.kubefleet import PLACEMENT_GROUP
from placements.hubs.projection.documents import HubDocument
from placements.hubs.projection.kinds import BINDING_KINDS
from placements.hubs.replay.replay import (
    Bindings,
    Course,
    HubObservation,
    NotReplayable,
    ReplayResult,
    binding_after,
    cycle_on,
    scheduled,
)
from placements.hubs.watching.mirror import moment_of
from placements.manifests.policy import PlacementPolicy
from placements.models import FleetVersion, ReplayInputs

_JUDGING = timedelta(seconds=20)
"""Eligibility by heartbeats is judged so often: a change this long after a cycle may have been before it."""
_BY_TIME = frozenset({EligibilityKind.STALE_HEARTBEAT, EligibilityKind.UNHEALTHY})
MOST_STEPS = 50
"""Versions of the fleet between the first and the last selection that are replayed."""


def pick_replays(
    observed: HubObservation,
    policy: PlacementPolicy,
    course: Course,
    first: BindingChange,
    hub: Hub,
) -> Sequence[ReplayResult]:
    """Run the cycle that started with a change, on the fleet before it; then on those right before and after.

    The next ones matter only where the cycle and a change of the fleet are too close for their order to be
    known. Where the fleet changed before the last selection, the hub needed several cycles: they are run one
    after another, and that the first alone selects otherwise says nothing. Raise NotReplayable.
    """
    since = observed.steady_since
    is_watched = since is not None and first.seen_at > since
    if is_watched:
        version_then = version_at(first.resource_version, first.seen_at)
    else:
        at = _created_at(observed, course, hub) or first.seen_at
        version_then = version_at("", at + CLOCK_TOLERANCE)
    version = version_then or latest_version()
    if version is None:
        raise NotReplayable("no clusters of the hub are known")

    cycle = cycle_on(observed, policy, fleet_at(version), course.before)
    others = [
        (one, replace(cycle, fleet=fleet_at(one)))
        for one in neighbours(version)
        if may_be_seen(one, version, first)
    ]
    near = [
        (one, other)
        for one, other in others
        if fleet_digest(other) != fleet_digest(cycle)
    ]
    is_tracked = set(properties_read(cycle)) <= set(
        version.changes.get("properties", ())
    )
    is_observed = (
        version_then is not None and is_watched and is_tracked and not course.is_mixed
    )
    if is_observed and any(
        _changed_during(cycle, other, one, first) for one, other in near
    ):
        is_observed = False
    fleets = _fleets_between(course, cycle, version) if is_observed else ()
    is_one_cycle = is_observed and len(fleets) == 1
    inputs = str(ReplayInputs.OBSERVED) if is_one_cycle else _unobserved(cycle)
    runs = [(version, cycle), *near]
    results = [ReplayResult(scheduled(each), inputs, one) for one, each in runs]
    if is_observed and not is_one_cycle:
        results += _stepped_replays(observed, policy, course, fleets)
    return results


def _created_at(observed: HubObservation, course: Course, hub: Hub) -> datetime | None:
    """Return when the first of the new bindings was made, by our clock, or when the condition changed."""
    uids = {uid for uid in course.after if uid not in course.before}
    rows = MirroredObject.objects.filter(
        group=PLACEMENT_GROUP,
        kind__in=BINDING_KINDS,
        owner=observed.key,
        uid__in=sorted(uids),
    )
    created = [HubDocument.of(row).created_at for row in rows]
    at = min(created, default=observed.written_at)
    return at - timedelta(seconds=hub.clock_offset_seconds or 0.0) if at else None


def may_be_seen(one: FleetVersion, version: FleetVersion, first: BindingChange) -> bool:
    """Return whether a version before or after the one in force could be the one that a cycle saw."""
    if one.number < version.number:
        return first.seen_at - version.seen_at <= CLOCK_TOLERANCE
    return one.seen_at - first.seen_at <= _JUDGING


def _changed_during(
    cycle: Cycle,
    other: Cycle,
    one: FleetVersion,
    first: BindingChange,
) -> bool:
    """Return whether what another version changed may have changed before the cycle."""
    if is_at_or_before(one, first.resource_version, first.seen_at):
        return False  # it is the one before
    since = one.changes["since_version"]
    began = FleetVersion(
        from_resource_version=since,
        seen_at=moment_of(one.changes["since"]) or one.seen_at,
    )
    if is_at_or_before(began, first.resource_version, first.seen_at):
        return True
    before, after = (
        {each.name: each.eligibility.kind for each in fleet}
        for fleet in (cycle.fleet, other.fleet)
    )
    return any(
        before.get(name) != kind and _BY_TIME & {before.get(name), kind}
        for name, kind in after.items()
    )


def _unobserved(cycle: Cycle) -> str:
    """Return whether what the policy reads is still as it was then, as far as that is known."""
    latest = latest_version()
    is_changed = latest is not None and (
        fleet_digest(replace(cycle, fleet=fleet_at(latest))) != fleet_digest(cycle)
    )
    return str(ReplayInputs.ASSUMED if is_changed else ReplayInputs.PRESENT)


def _fleets_between(
    course: Course, cycle: Cycle, first: FleetVersion
) -> tuple[tuple[FleetVersion, Cycle], ...]:
    """Return the versions of the fleet from that of the first selection to the last one.

    Those that the policy reads no change of are left out; the first one remains.
    """
    found = [(first, cycle)]
    last = course.selections[-1]
    digest = fleet_digest(cycle)
    for one in FleetVersion.objects.filter(number__gt=first.number).order_by("number")[
        : MOST_STEPS + 1
    ]:
        if not is_at_or_before(one, last.resource_version, last.seen_at):
            break
        other = replace(cycle, fleet=fleet_at(one))
        if fleet_digest(other) != digest:
            digest = fleet_digest(other)
            found.append((one, other))
    return tuple(found)


def _stepped_replays(
    observed: HubObservation,
    policy: PlacementPolicy,
    course: Course,
    fleets: Sequence[tuple[FleetVersion, Cycle]],
) -> Iterator[ReplayResult]:
    """Yield the last of the cycles that selected, on each fleet that it may have seen, the newest first.

    Nothing where an earlier one selected otherwise than its replay. A scheduler may see a change of the fleet
    later than the mirror, and no fleet that is older than one that it saw before.
    """
    bindings = dict(course.before)
    seen = 0
    steps = _steps(course.selections, [version for version, _ in fleets])
    for number, (newest, changes) in enumerate(steps):
        candidates = [
            (
                position,
                scheduled(
                    cycle_on(observed, policy, fleet_at(fleets[position][0]), bindings)
                ),
            )
            for position in range(newest, seen - 1, -1)
        ]
        if number == len(steps) - 1:
            for position, decision in candidates:
                yield ReplayResult(
                    decision, str(ReplayInputs.OBSERVED), fleets[position][0]
                )
            return
        after = _apply(changes, bindings, observed.documents)
        same = [
            one
            for one, decision in candidates
            if _has_selected(decision, bindings, after)
        ]
        if not same:
            return
        seen = same[0]
        bindings = after


def _steps(
    selections: Sequence[BindingChange], versions: Sequence[FleetVersion]
) -> list[tuple[int, list[BindingChange]]]:
    """Group selections by the position of the newest version of the fleet before them."""
    steps: list[tuple[int, list[BindingChange]]] = []
    newest = 0
    for change in selections:
        while newest + 1 < len(versions) and is_at_or_before(
            versions[newest + 1], change.resource_version, change.seen_at
        ):
            newest += 1
        if not steps or steps[-1][0] != newest:
            steps.append((newest, []))
        steps[-1][1].append(change)
    return steps


def _apply(
    changes: Sequence[BindingChange], before: Bindings, documents: Bindings
) -> Bindings:
    after = dict(before)
    for change in changes:
        after[change.uid] = binding_after(after.get(change.uid), change, documents)
    return after


def _has_selected(decision: Decision, before: Bindings, after: Bindings) -> bool:
    """Return whether bindings changed as a replay decides, or as far as it selects first."""
    changed = [one for uid, one in after.items() if before.get(uid) != one]
    chosen = {
        one.cluster: (one.affinity, one.spread) for one in changed if one.is_active
    }
    removed = {one.cluster for one in changed if not one.is_active}
    picks = decision.picked[: len(chosen)]
    expected = {
        one.cluster: (one.affinity_score, one.topology_spread_score) for one in picks
    }
    return chosen == expected and removed <= set(decision.unscheduled)
