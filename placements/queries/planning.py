"""The waves of a rolling update before it starts: as things are, or under a draft."""

from dataclasses import replace
from datetime import datetime

from placements.models import Placement
from placements.queries.preview import Preview, preview
from placements.rollout.plan import Plan, plan
from placements.rollout.state import RolloutState
from placements.scheduling.fleet import collector_paused
from placements.scheduling.hub.parts import content_hash
from placements.scheduling.hub.sanitising import sanitised
from placements.scheduling.hub.selection import Selection
from placements.scheduling.spec import ClusterResourcePlacement, RollingUpdate
from placements.standing import standing_of, version_of, version_of_content


def plan_now(placement: Placement, *, now: datetime) -> Plan:
    """Plan the waves that a placement needs from where its clusters are."""
    with collector_paused():
        return plan(standing_of(placement, now=now).state)


def plan_of_draft(draft: ClusterResourcePlacement, *, now: datetime) -> Plan:
    """Plan the waves that saving a draft would need. Raises Faults when its selectors are at fault."""
    return plan_of_preview(draft, preview(draft), now=now)


def plan_of_preview(draft: ClusterResourcePlacement, found: Preview, *, now: datetime) -> Plan:
    """Plan the same waves for a draft that was previewed already."""
    after = [each.cluster for each in found.decision.bindings_after if each.is_active]
    strategy = draft.spec.strategy.rolling_update or RollingUpdate()
    with collector_paused():
        state, version = _start(draft, found.saved, found.selection, now=now)
        state = replace(state, strategy=strategy)
        return plan(state.wanting(dict.fromkeys(sorted(after), version), draft.spec.policy))


def _start(
    draft: ClusterResourcePlacement, saved: Placement | None, selection: Selection, *, now: datetime
) -> tuple[RolloutState, str]:
    """Give where the clusters are, and the version that the draft wants; a hold keeps what it holds."""
    version = version_of_content(content_hash(map(sanitised, selection.objects)), draft)
    if saved is None:
        return RolloutState((), draft.spec.policy, RollingUpdate(), now), version
    standing = standing_of(saved, now=now)
    if saved.held_number is not None and standing.target:
        version = version_of(standing.target, draft)
    return standing.state, version
