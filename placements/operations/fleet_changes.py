"""Asking the placements that a change of the fleet concerns (`spec/lifecycle.md` B.8.4)."""

from django.db import transaction

from clusters.models import FleetChange
from placements.operations.asking import ask
from placements.operations.overrides import labels_changed
from placements.queries.concerned import looking_placements, losing_placements


@transaction.atomic
def ask_those_concerned() -> int:
    """Ask every placement that the noted changes concern, and forget the notes; tell how many were asked."""
    changes = list(FleetChange.objects.select_for_update().order_by("pk"))
    if not changes:
        return 0
    looking = set(
        looking_placements(
            opens=any(change.opens or change.gone for change in changes),
            label_keys={key for change in changes for key in change.label_keys},
            property_names={name for change in changes for name in change.property_names},
        )
    )
    losing = set(losing_placements(name for change in changes for name in change.gone))
    if any(change.label_keys for change in changes):
        labels_changed()
    FleetChange.objects.filter(pk__in=[change.pk for change in changes]).delete()
    reasons = list(dict.fromkeys(change.reason for change in changes))
    because = reasons[0] if len(reasons) == 1 else f"{reasons[0]} and {len(reasons) - 1} more changes"
    return ask(sorted(looking | losing), because=because)
