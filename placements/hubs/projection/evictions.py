"""Evictions of a live hub: their target, and the result of the controller of the hub (10.1)."""

from collections.abc import Sequence

from fleetui.apimachinery.kinds import EVICTION_KIND
from placements.hubs.projection.documents import HubDocument, HubMoment
from placements.hubs.projection.events import HUB
from placements.hubs.projection.leniency import understood
from placements.hubs.projection.placements import placement_keys
from placements.hubs.projection.rows import Conditions, RowKind
from placements.manifests.disruption import parse_eviction
from placements.models import Eviction

_OUTCOMES = {"True": Eviction.Outcome.EXECUTED, "False": Eviction.Outcome.NOT_EXECUTED}


class EvictionRows(RowKind[Eviction]):
    """Evictions; the placement of one may come later, or be deleted."""

    model = Eviction
    mirrored = (EVICTION_KIND,)
    noun = "eviction"
    columns = (
        "document",
        "placement_id",
        "placement_name",
        "cluster_name",
        "outcome",
        "hub_conditions",
        "at",
        "by",
    )
    has_uid = False

    def __init__(self, documents: Sequence[HubDocument], moment: HubMoment) -> None:
        super().__init__(documents, moment)
        self.placements = placement_keys(documents)

    def fill(self, row: Eviction, document: HubDocument) -> bool:
        pair = understood(document, parse_eviction)
        if pair is None:
            return False
        parsed, row.document = pair
        row.placement_name = parsed.spec.placement_name
        row.cluster_name = parsed.spec.cluster_name
        conditions = document.conditions("status", "conditions")
        row.hub_conditions = list(conditions.values())
        if conditions.get("Valid", {}).get("status") == "False":
            row.outcome = Eviction.Outcome.INVALID
        else:
            executed = str(conditions.get("Executed", {}).get("status"))
            row.outcome = _OUTCOMES.get(executed, Eviction.Outcome.PENDING)
        row.at = document.created_at
        row.by = document.manager("spec") or HUB
        row.placement_id = self.placements.get(document.row.owner)
        return True

    def conditions(self, row: Eviction) -> Conditions:
        return row.hub_conditions
