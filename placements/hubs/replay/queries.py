"""What is shown of decisions of live hubs: agreements of placements, and disagreements."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Count, QuerySet

from clusters.hub_queries import across_hubs
from placements.engine.scheduling.decision import Decision as Decided
from placements.explain.hub_status import condition_of
from placements.hubs.explain.agreements import (
    INPUTS,
    REPLAYS,
    DifferenceRow,
    ShownAgreement,
    difference_rows,
    shown_agreement,
)
from placements.hubs.replay.agreement import listed_counts
from placements.models import Agreement, Decision, HubDecision, Placement

LIGHT = ("content", "differences")
"""Columns that lists do not need, and that may be large."""


def hub_decisions() -> QuerySet[HubDecision]:
    return HubDecision.objects.select_related(
        "decision__record", "fleet_version"
    ).defer("decision__record__content")


def verdicts() -> QuerySet[HubDecision]:
    """Return the newest verdict about each placement that is there to stay."""
    return HubDecision.objects.filter(
        is_latest=True, placement__isnull=False, placement__deleting_since__isnull=True
    )


def hub_decision_of(decision: Decision) -> HubDecision | None:
    return hub_decisions().filter(decision=decision).first()


def latest_agreements(placements: Collection[Placement]) -> dict[int, HubDecision]:
    if not placements:
        return {}
    rows = hub_decisions().filter(
        placement__in=[one.pk for one in placements], is_latest=True
    )
    return {row.placement_id: row for row in rows.defer(*LIGHT) if row.placement_id}


def disagreements() -> QuerySet[HubDecision]:
    """Return the differences of the hub in scope that were confirmed and are still there."""
    rows = verdicts().filter(confirmed_at__isnull=False)
    return rows.select_related("decision__record").defer(
        *LIGHT, "decision__record__content"
    )


def agreements(*, agreement: str = "", placement: str = "") -> QuerySet[HubDecision]:
    rows = hub_decisions().filter(pk__in=verdicts().values("pk")).defer(*LIGHT)
    rows = rows.filter(agreement=agreement) if agreement else rows
    return rows.filter(placement_name=placement) if placement else rows


def agreement_of_row(row: HubDecision) -> ShownAgreement:
    is_confirmed = row.confirmed_at is not None
    return shown_agreement(
        row.agreement,
        note=row.note,
        is_confirmed=is_confirmed,
        is_behind=row.hub_behind,
    )


def hub_side_of(row: Any, decision: Decided) -> "HubSide | None":
    """Return the block of a decision that a live hub made; None for others."""
    found = hub_decision_of(row) if getattr(row, "hub_decision", None) else None
    if found is None:
        return None
    return HubSide(found, len(decision.cycle.fleet.clusters), condition_of(decision))


@dataclass(frozen=True)
class HubSide:
    """The block "Hub and replay" of a decision."""

    row: HubDecision
    clusters_count: int
    replay_condition: dict[str, str] | None

    @property
    def agreement(self) -> ShownAgreement:
        return agreement_of_row(self.row)

    @property
    def inputs(self) -> str:
        return INPUTS[self.row.inputs]

    @property
    def replay(self) -> str:
        return REPLAYS.get(self.row.replay, "")

    @property
    def is_different(self) -> bool:
        return self.row.agreement == Agreement.DIFFERS

    @cached_property
    def listed(self) -> int:
        return sum(listed_counts(self.row.current_decisions))

    @cached_property
    def listed_at_first(self) -> int:
        return sum(listed_counts(self.row.decisions))

    @cached_property
    def rows(self) -> list[DifferenceRow]:
        return difference_rows(self.row.differences)

    @property
    def more(self) -> int:
        return self.row.differences_count - len(self.row.differences)


def disagreements_by_hub() -> dict[int, int]:
    with across_hubs():
        counted = (
            disagreements().order_by().values_list("hub").annotate(count=Count("pk"))
        )
        return dict(counted.values_list("hub", "count"))
