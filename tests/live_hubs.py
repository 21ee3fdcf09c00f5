"""Live hubs for tests: rows as a projection would write them, without a server behind them."""

from typing import Any

from django.apps import apps
from django.db.models import F

from clusters.models import Hub, HubGrant, MemberCluster
from fleetui.hub_scope import LOCAL_HUB
from placements.models import Binding, Placement
from tests.rows import NOW


def live_hub(name: str, **columns: Any) -> Hub:
    """Make a live hub without rows."""
    return Hub.objects.create(name=name, created_at=NOW, created_by="tests", **columns)


_MIRRORED: dict[type[Any], dict[str, Any]] = {
    MemberCluster: {"driver": "", "observe_at": None},
    Placement: {
        "observed_generation": F("generation"),
        "selection_observed": F("selection_generation"),
        "rollout_observed": F("rollout_generation"),
        "rollout_requeue_at": None,
        "lease_expires_at": None,
        "rollout_lease_expires_at": None,
    },
    Binding: {"next_call_at": None, "call_lease_expires_at": None},
}
"""What no worker of this console has to do with any more."""


def move_rows_to(hub: Hub) -> None:
    """Move all rows of the local hub to a live hub, so that the same names are free again."""
    for model in apps.get_models():
        if model is not HubGrant and any(
            field.name == "hub" for field in model._meta.concrete_fields
        ):
            rows = model._base_manager.filter(hub=LOCAL_HUB)
            rows.update(hub=hub.pk, **_MIRRORED.get(model, {}))
