"""Evictions of a live hub: their target, and the result of the controller of the hub (10.1)."""

from collections.abc import Callable, Sequence

from fleetui.apimachinery.kinds import EVICTION_KIND
from placements.hubs.projection.documents import HubDocument, HubMoment
from placements.hubs.projection.events import HUB
from placements.hubs.projection.leniency import understood
from placements.hubs.projection.placements import placement_keys
from placements.hubs.projection.rows import RowKind
from placements.manifests.disruption import parse_eviction
from placements.models import Eviction

_COLUMNS = (
    "document",
    "placement_id",
    "placement_name",
    "cluster_name",
    "outcome",
    "hub_conditions",
    "at",
    "by",
)
_OUTCOMES = {"True": Eviction.Outcome.EXECUTED, "False": Eviction.Outcome.NOT_EXECUTED}


def _fill(row: Eviction, document: HubDocument) -> bool:
    pair = understood(document, parse_eviction)
    if pair is None:
        return False
    parsed, row.document = pair
    row.placement_name, row.cluster_name = (
        parsed.spec.placement_name,
        parsed.spec.cluster_name,
    )
    conditions = document.conditions("status", "conditions")
    row.hub_conditions = list(conditions.values())
    if conditions.get("Valid", {}).get("status") == "False":
        row.outcome = Eviction.Outcome.INVALID
    else:
        executed = str(conditions.get("Executed", {}).get("status"))
        row.outcome = _OUTCOMES.get(executed, Eviction.Outcome.PENDING)
    row.at, row.by = document.created_at, document.manager("spec") or HUB
    return True


def _references(
    documents: Sequence[HubDocument], _moment: HubMoment
) -> Callable[[Eviction, HubDocument], None]:
    """Set the placement, which may come later, or be deleted."""
    placements = placement_keys(documents)

    def refer(row: Eviction, document: HubDocument) -> None:
        row.placement_id = placements.get(document.row.owner)

    return refer


EVICTIONS = RowKind(
    Eviction,
    (EVICTION_KIND,),
    _fill,
    _COLUMNS,
    "eviction",
    references=_references,
    conditions=lambda row: row.hub_conditions,
)
