"""Evictions of a live hub: their target, and the result of the controller of the hub (10.1)."""

from collections.abc import Sequence

from placements.hubs.projection.documents import HubDocument, HubMoment
from placements.hubs.projection.events import HUB, HubEvents
from placements.hubs.projection.leniency import understood
from placements.hubs.projection.rows import RowKind, write_rows
from placements.manifests.disruption import parse_eviction
from placements.models import Eviction, Placement

_COLUMNS = (
    *(
        "document",
        "placement_id",
        "placement_name",
        "cluster_name",
        "outcome",
        "hub_conditions",
        "at",
        "by",
    ),
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


EVICTIONS = RowKind(Eviction, _fill, _COLUMNS)


def project_evictions(documents: Sequence[HubDocument], moment: HubMoment) -> None:
    """Write evictions; the placement of one may come later, or be deleted."""
    names = {one.row.owner for one in documents}
    placements = dict(
        Placement.objects.filter(full_name__in=names).values_list("full_name", "pk")
    )

    def fill(row: Eviction, document: HubDocument) -> bool:
        row.placement_id = placements.get(document.row.owner)
        return _fill(row, document)

    rows = write_rows(RowKind(Eviction, fill, _COLUMNS), documents, now=moment.now)
    events = HubEvents(moment)
    for one in rows:
        if one.before is not None and one.row.placement_name:
            before, after = one.before.hub_conditions, one.row.hub_conditions
            events.reported("eviction", one.document, before, after)
    events.record()
