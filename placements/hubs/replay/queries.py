"""What a live hub decided, replayed when it is asked for: the agreement, and what differs."""

from dataclasses import dataclass
from functools import cached_property

from django.db.models import QuerySet

from clusters.hub_queries import live_hubs
from fleetui.hub_scope import current_hub_id
from placements.engine.scheduling.record import UnreadableRecordError
from placements.engine.scheduling.scheduler import schedule
from placements.explain.hub_status import HubStatus, Plain, hub_status
from placements.hubs.explain.agreements import (
    INPUTS,
    Agreement,
    DifferenceRow,
    ShownAgreement,
    difference_rows,
    shown_agreement,
)
from placements.hubs.replay.agreement import (
    compare,
    selected_in,
    with_causes,
)
from placements.hubs.replay.replay import observe
from placements.models import Decision, HubDecision, Placement, ReplayInputs
from placements.services.decisions.records import decision_of


@dataclass(frozen=True)
class HubSide:
    """What a live hub decided, beside the replay of it; `differences` are the first of them."""

    row: HubDecision
    agreement: ShownAgreement
    clusters_count: int = 0
    replay_condition: Plain | None = None
    differences: tuple[Plain, ...] = ()
    differences_count: int = 0

    @property
    def inputs(self) -> str:
        return INPUTS[self.row.inputs]

    @property
    def is_different(self) -> bool:
        return self.agreement.value == Agreement.DIFFERS

    @cached_property
    def rows(self) -> list[DifferenceRow]:
        return difference_rows(self.differences)

    @property
    def more(self) -> int:
        return self.differences_count - len(self.differences)


def _hub_decisions() -> QuerySet[HubDecision]:
    """Return decisions with what their replays need, which reads the records itself."""
    rows = HubDecision.objects.select_related("decision__record", "fleet_version")
    return rows.defer("decision__record__content")


def hub_side_of(decision: Decision) -> HubSide | None:
    """Replay a decision that a live hub made; return None for others."""
    row = getattr(decision, "hub_decision", None)
    return replayed(row) if row else None


def replayed(row: HubDecision) -> HubSide:
    """Run the engine on the recorded inputs of a hub's decision, and compare what both decide."""
    if row.decision is None:
        return _not_replayable(row, row.note)
    try:
        cycle = decision_of(row.decision).cycle
    except UnreadableRecordError as error:
        return _not_replayable(row, str(error))
    decision = schedule(cycle)
    status = hub_status(decision)
    if status is None:
        return _not_replayable(row, "the replay failed as a whole")

    words = HubStatus(row.condition or {}, tuple(row.decisions))
    lists = [status.decisions]
    placed = {one.cluster for one in cycle.live_bindings if one.is_active}
    if placed.issuperset(decision.picked_names):
        # It selects nothing new: the hub may list what an earlier cycle did not select.
        before = HubDecision.objects.filter(placement=row.placement_id, pk__lt=row.pk)
        earlier = before.exclude(placement=None).order_by("-pk").first()
        if earlier is not None:
            lists.append(tuple(earlier.decisions))
        elif row.inputs != ReplayInputs.OBSERVED:
            lists = []
    comparison = compare(
        words,
        status,
        lists=lists,
        is_any_unselected=len(selected_in(words)) < len(cycle.fleet),
    )
    return HubSide(
        row,
        shown_agreement(comparison.agreement(row.inputs)),
        len(cycle.fleet),
        status.condition,
        tuple(with_causes(comparison.differences, decision, words)),
        len(comparison.differences),
    )


def _not_replayable(row: HubDecision, note: str) -> HubSide:
    return HubSide(row, shown_agreement(Agreement.NOT_REPLAYABLE, note=note))


def agreement_of_placement(placement: Placement) -> ShownAgreement | None:
    """Replay the latest decision of a live hub about a placement; None where nothing is recorded yet."""
    row = _hub_decisions().filter(placement=placement, is_latest=True).first()
    hub = live_hubs().filter(pk=current_hub_id()).first()
    observed = observe(placement, hub) if hub else None
    if observed is not None and observed.is_pending:
        return shown_agreement(Agreement.PENDING)
    return replayed(row).agreement if row else None
