"""The fleet and the bindings of all placements as data, for comparisons outside of the console."""

import hashlib
import json
from typing import Any

from clusters.case_manifest import case_of_cluster
from clusters.queries import current_fleet
from placements.manifests.binding import case_of_binding
from placements.models import Placement
from placements.services.snapshots import cycles_of


def fleet_snapshot() -> dict[str, Any]:
    """Return clusters and bindings as plain cases; the digest is the same while these are the same."""
    view = current_fleet()
    rows = Placement.objects.filter(deleting_since=None).order_by("full_name")
    bindings = {
        row.full_name: [
            case_of_binding(binding)
            for binding in cycle.bindings
            if not binding.is_deleting
        ]
        for row, cycle in cycles_of(list(rows), view.fleet)
    }
    content = {"clusters": list(map(case_of_cluster, view.fleet)), "bindings": bindings}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"fleetVersion": view.version, "digest": digest, **content}
