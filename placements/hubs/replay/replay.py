"""The inputs of a cycle of a live hub, from its mirror, and our replays on them.

See `rules/live-hub.md#replays`.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from clusters.fleet import EligibilityKind, Fleet
from clusters.hub_state import HubState
from clusters.models import BindingChange, Hub, HubStream, MirroredObject
from fleetui.apimachinery.errors import InvalidManifest
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.model import HUB_SEMANTICS, items_at, mapping_at
from placements.engine.scheduling.cycle import Cycle
from placements.engine.scheduling.decision import (
    CycleKind,
    Decision,
    fleet_digest,
    properties_read,
)
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import HubStatus
from placements.hubs.fleet_versions import (
    CLOCK_TOLERANCE,
    fleet_at,
    is_at_or_before,
    latest_version,
    neighbours,
    version_at,
)
from placements.hubs.kinds.base import moment_of
from placements.hubs.kinds.kubefleet import CLUSTER_GROUP, PLACEMENT_GROUP
from placements.hubs.projection.bindings import previous_state
from placements.hubs.projection.kinds import (
    BINDING_KINDS,
    PLACEMENT_KINDS,
    POLICY_KINDS,
)
from placements.hubs.projection.placements import NUMBER_OF_CLUSTERS, policy_of
from placements.hubs.projection.rows import HubDocument
from placements.hubs.replay.agreement import plain_decisions
from placements.hubs.watching.mirror import GONE
from placements.manifests.binding import BindingState, PlacedBinding
from placements.manifests.policy import PlacementPolicy, parse_policy
from placements.models import FleetVersion, HubDecision, Placement, ReplayInputs

SCHEDULED = "Scheduled"
_STATES = frozenset(BindingState)


class NotReplayable(Exception):
    """Nothing can be replayed; the message is the reason."""


@dataclass(frozen=True, slots=True)
class BindingFacts:
    """What a cycle reads of a binding of the hub."""

    uid: str
    cluster: str
    state: str
    policy: str
    previous: str = BindingState.SCHEDULED
    affinity: float | None = None
    spread: float | None = None

    @property
    def is_active(self) -> bool:
        return self.state != BindingState.UNSCHEDULED

    def placed(self, snapshot: str) -> PlacedBinding:
        return PlacedBinding(
            self.cluster,
            BindingState(self.state),
            is_current=self.policy == snapshot,
            topology_spread_score=self.spread,
            affinity_score=self.affinity,
            previous_state=BindingState(self.previous),
        )

    def to_plain(self) -> list[Any]:
        return [
            self.uid,
            self.cluster,
            self.state,
            self.policy,
            self.previous,
            self.affinity,
            self.spread,
        ]


Bindings = dict[str, BindingFacts]
"""Bindings by UID."""


@dataclass(frozen=True)
class HubObservation:
    """A placement of a live hub as its mirror has it now: policy snapshot, status, bindings.

    `generation` is that of the placement. `changes` are those of its bindings, oldest first; `deleting` are
    the UIDs of bindings that are being deleted. `is_new`: it was created while the mirror was up to date.
    `last_change` is the key of the newest change of a binding, known before or not.
    """

    placement: Placement
    key: str
    generation: int
    snapshot: HubDocument | None
    changes: tuple[BindingChange, ...]
    steady_since: datetime | None
    deleting: frozenset[str]
    is_new: bool
    last_change: int

    @cached_property
    def documents(self) -> Bindings:
        rows = MirroredObject.objects.filter(
            group=PLACEMENT_GROUP, owner=self.key, kind__in=BINDING_KINDS
        )
        facts = (_facts_of(HubDocument.of(row)) for row in rows)
        return {fact.uid: fact for fact in facts if fact}

    @property
    def name(self) -> str:
        return self.snapshot.row.name if self.snapshot else ""

    @property
    def content(self) -> Mapping[str, Any]:
        return self.snapshot.content if self.snapshot else {}

    @property
    def status(self) -> Mapping[str, Any]:
        return mapping_at(self.content, "status")

    @property
    def condition(self) -> Mapping[str, Any]:
        conditions = map(mapping_at, items_at(self.status, "conditions"))
        return next(
            (
                condition
                for condition in conditions
                if condition.get("type") == SCHEDULED
            ),
            {},
        )

    @property
    def observed_generation(self) -> int | None:
        value = self.status.get("observedCRPGeneration")
        return value if isinstance(value, int) else None

    @property
    def is_pending(self) -> bool:
        """Return whether the hub has not decided on what the placement is now."""
        is_behind = (
            self.observed_generation is None
            or self.observed_generation < self.generation
        )
        return is_behind or self.condition.get("status") not in ("True", "False")

    @property
    def words(self) -> HubStatus:
        condition = {
            key: str(self.condition.get(key, ""))
            for key in ("status", "reason", "message")
        }
        return HubStatus(
            condition, plain_decisions(items_at(self.status, "targetClusters"))
        )

    @property
    def written_at(self) -> datetime | None:
        return moment_of(self.condition.get("lastTransitionTime"))

    def policy(self) -> PlacementPolicy:
        """Return the policy that the hub acts on. Raise NotReplayable."""
        if self.snapshot is None:
            raise NotReplayable("no policy snapshot found")
        try:
            return parse_policy(
                policy_of(self.snapshot), semantics=HUB_SEMANTICS, path="spec.policy"
            )
        except InvalidManifest as invalid:
            raise NotReplayable(
                f"not understood: {invalid.errors[0].path}"
            ) from invalid

    def digest(self, bindings: Iterable[BindingFacts]) -> str:
        """Return the hash of what makes this another decision than the one before."""
        words = self.words
        annotations = mapping_at(self.content, "metadata", "annotations")
        content = [
            self.name,
            annotations.get(NUMBER_OF_CLUSTERS),
            words.condition,
            sorted(
                json.dumps(decision, sort_keys=True)
                for decision in words.decisions
                if decision["selected"]
            ),
            sorted(
                (binding.cluster, binding.policy)
                for binding in bindings
                if binding.is_active
            ),
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def observe(placement: Placement, hub: Hub, *, since: int = 0) -> HubObservation | None:
    """Read what the mirror has of a placement; None if it has the placement itself no more.

    `since` is the key of the last change of a binding that is known. Changes are read first: what is written
    meanwhile is then in the objects and not in the changes, and is judged again for it.
    """
    key = placement.full_name
    changes = BindingChange.objects.filter(owner=key, pk__gt=since).order_by("pk")
    new_changes = tuple(changes)
    rows = MirroredObject.objects.filter(group=PLACEMENT_GROUP, owner=key)
    own = rows.filter(kind__in=PLACEMENT_KINDS).only("generation").first()
    if own is None:
        return None
    latest = (
        rows.filter(kind__in=POLICY_KINDS, is_latest=True).order_by("-number").first()
    )
    deleting = rows.filter(kind__in=BINDING_KINDS, is_deleting=True).values_list(
        "uid", flat=True
    )
    steady = steady_since(hub)
    offset = timedelta(seconds=hub.clock_offset_seconds or 0.0)
    return HubObservation(
        placement,
        key,
        own.generation,
        HubDocument.of(latest) if latest else None,
        new_changes,
        steady,
        frozenset(deleting),
        steady is not None and placement.created_at - offset > steady,
        new_changes[-1].pk if new_changes else since,
    )


def steady_since(hub: Hub) -> datetime | None:
    """Return since when the mirror of a hub has missed nothing; None if it is out of date now."""
    if hub.state != HubState.LIVE:
        return None
    groups = (CLUSTER_GROUP, PLACEMENT_GROUP)
    streams = HubStream.objects.filter(group__in=groups, is_required=True)
    list_times = [
        stream for stream in streams.values_list("listed_at", flat=True) if stream
    ]
    return max(
        [*list_times, *([hub.state_since] if hub.state_since else [])],
        default=hub.created_at,
    )


def _facts_of(document: HubDocument) -> BindingFacts | None:
    spec = document.spec
    if spec.get("state") not in _STATES or not document.row.cluster:
        return None
    scores = mapping_at(spec, "clusterDecision", "clusterScore")
    return BindingFacts(
        document.row.uid,
        document.row.cluster,
        spec["state"],
        str(spec.get("schedulingPolicySnapshotName", "")),
        previous_state(document),
        *(
            one if isinstance(one, (int, float)) else None
            for one in map(scores.get, ("affinityScore", "priorityScore"))
        ),
    )


def stored_bindings(row: HubDecision) -> Bindings:
    """Return the bindings after a decision that was judged."""
    facts = (BindingFacts(*binding) for binding in row.unpacked["bindings"])
    return {fact.uid: fact for fact in facts}


@dataclass
class Course:
    """The bindings before the cycle to be replayed, the change it started with, and the bindings now.

    `selections` are the changes that selected or deselected clusters since then: of this cycle or of several
    of the same policy snapshot. `is_mixed`: something else changed bindings after it started.
    """

    before: Bindings
    after: Bindings
    first: BindingChange | None = None
    is_mixed: bool = False
    selections: list[BindingChange] = field(default_factory=list)

    def start(self, change: BindingChange, old: BindingFacts | None) -> None:
        """Start the cycle with a change of one of the present bindings."""
        self.is_mixed = self.first is not None
        self.first = change
        self.before = dict(self.after)
        self.selections.clear()
        del self.before[change.uid]
        if old is not None:
            self.before[change.uid] = old

    def drop(self, uid: str) -> None:
        """Delete a binding; once the cycle has started, that is the work of something else."""
        gone = self.after.pop(uid, None)
        if self.first is not None and gone is not None and gone.is_active:
            self.before.pop(uid, None)
            self.is_mixed = True

    def is_started_by(self, change: BindingChange, snapshot: str) -> bool:
        """Return whether a selection starts the cycle of a snapshot; those before may be of another one."""
        first = self.first
        if first is None:
            return True
        is_other = (
            first.state != BindingState.UNSCHEDULED
            and first.policy_snapshot != snapshot
        )
        return is_other and change.policy_snapshot == snapshot


def course_of(observed: HubObservation, before: Bindings) -> Course:
    """Divide the changes of the bindings into those before the cycle of the present policy and its own.

    A binding that is new, is about another policy snapshot than before, or is unscheduled or restored is a
    selection; that it is bound is the work of a rollout, and that it is deleted of a rollout or an eviction.
    """
    course = Course({}, dict(before))
    for change in observed.changes:
        if change.state == GONE:
            course.drop(change.uid)
            continue
        if change.state not in _STATES:
            continue  # of a newer API: not understood
        old = course.after.get(change.uid)
        new = course.after[change.uid] = binding_after(old, change, observed.documents)
        if is_selection(old, new):
            if course.is_started_by(change, observed.name):
                course.start(change, old)
            course.selections.append(change)
    if course.first is None:
        course.before = dict(course.after)
    # A cycle sees nothing that is being deleted. Since when is not known, but what it deselected was there.
    for uid in observed.deleting:
        gone = course.after.pop(uid, None)
        left = course.before.get(uid)
        if gone and gone.is_active and left and left.is_active:
            del course.before[uid]
            course.is_mixed = True
    return course


def binding_after(
    old: BindingFacts | None, change: BindingChange, now: Bindings
) -> BindingFacts:
    previous = old.previous if old else BindingState.SCHEDULED
    if old and old.is_active and change.state == BindingState.UNSCHEDULED:
        previous = BindingState(old.state)
    is_rescored = (
        old is None or old.policy != change.policy_snapshot or not old.is_active
    )
    source = now.get(change.uid) if is_rescored else old
    return BindingFacts(
        change.uid,
        change.cluster,
        change.state,
        change.policy_snapshot,
        previous,
        source.affinity if source else None,
        source.spread if source else None,
    )


def is_selection(old: BindingFacts | None, new: BindingFacts) -> bool:
    if old is None:
        return new.is_active
    return old.policy != new.policy or old.is_active != new.is_active


@dataclass(frozen=True)
class ReplayResult:
    """A replay, what it was made on, and how far that is what the hub had."""

    decision: Decision
    inputs: str
    version: FleetVersion


def one_per_cluster(bindings: Collection[BindingFacts]) -> list[BindingFacts]:
    """Return one binding for each cluster: an active one rather than one that was unscheduled."""
    by_cluster: dict[str, BindingFacts] = {}
    for binding in bindings:
        other = by_cluster.get(binding.cluster)
        if other is None or (binding.is_active and not other.is_active):
            by_cluster[binding.cluster] = binding
    return list(by_cluster.values())


def cycle_on(
    observed: HubObservation,
    policy: PlacementPolicy,
    fleet: Fleet,
    bindings: Bindings,
) -> Cycle:
    placed = tuple(
        facts.placed(observed.name) for facts in one_per_cluster(bindings.values())
    )
    return Cycle(
        fleet, policy, placed, HUB_SEMANTICS, namespace=observed.placement.namespace
    )


def steady_replay(
    observed: HubObservation,
    policy: PlacementPolicy,
    bindings: Bindings,
    *,
    is_observed: bool,
) -> ReplayResult:
    """Run a cycle on the present fleet with all bindings. Raise NotReplayable."""
    version = latest_version()
    if version is None:
        raise NotReplayable("no clusters of the hub are known")
    decision = scheduled(cycle_on(observed, policy, fleet_at(version), bindings))
    inputs = ReplayInputs.OBSERVED if is_observed else ReplayInputs.PRESENT
    return ReplayResult(decision, inputs, version)


def scheduled(cycle: Cycle) -> Decision:
    decision = schedule(cycle)
    if decision.malformed and decision.is_failed:
        one = decision.malformed[0]
        if has_second_dash(one.property):
            raise NotReplayable(
                f"a hub cannot read {one.property}, a name with a second dash"
            )
        raise NotReplayable(
            f"{one.property} of {one.cluster} is no quantity: {one.text[:60]}"
        )
    if decision.is_failed:
        raise NotReplayable("the replay failed as a whole")
    if decision.kind is CycleKind.NO_NAMES:
        raise NotReplayable("the policy names no cluster")
    return decision


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
        (neighbour, replace(cycle, fleet=fleet_at(neighbour)))
        for neighbour in neighbours(version)
        if may_be_seen(neighbour, version, first)
    ]
    near = [
        (fleet_version, other)
        for fleet_version, other in others
        if fleet_digest(other) != fleet_digest(cycle)
    ]
    is_tracked = set(properties_read(cycle)) <= set(
        version.changes.get("properties", ())
    )
    is_observed = (
        version_then is not None and is_watched and is_tracked and not course.is_mixed
    )
    if is_observed and any(
        _changed_during(cycle, other, fleet_version, first)
        for fleet_version, other in near
    ):
        is_observed = False
    fleets = _fleets_between(course, cycle, version) if is_observed else ()
    is_one_cycle = is_observed and len(fleets) == 1
    inputs = str(ReplayInputs.OBSERVED) if is_one_cycle else _unobserved(cycle)
    runs = [(version, cycle), *near]
    results = [
        ReplayResult(scheduled(each), inputs, fleet_version)
        for fleet_version, each in runs
    ]
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
    began = FleetVersion(
        from_resource_version=one.changes["since_version"],
        seen_at=moment_of(one.changes["since"]) or one.seen_at,
    )
    if is_at_or_before(began, first.resource_version, first.seen_at):
        return True
    before, after = (
        {cluster.name: cluster.eligibility.kind for cluster in fleet}
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
    for fleet_version in FleetVersion.objects.filter(number__gt=first.number).order_by(
        "number"
    )[: MOST_STEPS + 1]:
        if not is_at_or_before(fleet_version, last.resource_version, last.seen_at):
            break
        other = replace(cycle, fleet=fleet_at(fleet_version))
        if fleet_digest(other) != digest:
            digest = fleet_digest(other)
            found.append((fleet_version, other))
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
            yield from (
                ReplayResult(decision, str(ReplayInputs.OBSERVED), fleets[position][0])
                for position, decision in candidates
            )
            return
        after = dict(bindings)
        for change in changes:
            facts = binding_after(after.get(change.uid), change, observed.documents)
            after[change.uid] = facts
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


def _has_selected(decision: Decision, before: Bindings, after: Bindings) -> bool:
    """Return whether bindings changed as a replay decides, or as far as it selects first."""
    changed = [facts for uid, facts in after.items() if before.get(uid) != facts]
    chosen = {
        facts.cluster: (facts.affinity, facts.spread)
        for facts in changed
        if facts.is_active
    }
    removed = {facts.cluster for facts in changed if not facts.is_active}
    picks = decision.picked[: len(chosen)]
    expected = {
        pick.cluster: (pick.affinity_score, pick.topology_spread_score)
        for pick in picks
    }
    return chosen == expected and removed <= set(decision.unscheduled)
