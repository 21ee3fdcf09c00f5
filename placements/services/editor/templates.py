"""Placement templates: prepared manifests for a new placement, adapted to the current fleet."""

from collections.abc import Callable
from dataclasses import dataclass

from clusters.fleet import Fleet
from fleetui.apimachinery.kinds import (
    NAMESPACED_PLACEMENT_KIND,
    PLACEMENT_KIND,
    PLACEMENT_VERSIONS,
)

_USUAL_KEYS = (
    "region",
    "topology.kubernetes.io/region",
    "zone",
    "topology.kubernetes.io/zone",
)
STARTING_NAME = "my-placement"
_FEWEST_DOMAINS, _MOST_DOMAINS = 2, 24
_HEAD = f"""\
apiVersion: {PLACEMENT_VERSIONS[0]}
kind: {PLACEMENT_KIND}
metadata:
  name: {STARTING_NAME}
"""
_NAMESPACED_HEAD = f"""\
apiVersion: {PLACEMENT_VERSIONS[0]}
kind: {NAMESPACED_PLACEMENT_KIND}
metadata:
  name: {STARTING_NAME}
  namespace: ""
"""
_SELECTORS = """\
spec:
  resourceSelectors:
    - group: ""
      version: v1
      kind: ""
      name: ""
  policy:
"""


@dataclass(frozen=True, slots=True)
class PlacementTemplate:
    """A start: its name in addresses, its title, what it is for, and the policy that it has on a fleet."""

    name: str
    title: str
    description: str
    policy: Callable[[Fleet], str]

    def text(self, fleet: Fleet, *, is_namespaced: bool = False) -> str:
        """Return the manifest of a placement of the cluster, or of a namespace that is still to be named."""
        return (
            (_NAMESPACED_HEAD if is_namespaced else _HEAD)
            + _SELECTORS
            + self.policy(fleet)
        )


def topology_key(fleet: Fleet) -> str:
    """Choose the label to spread over: a usual one that is there, else the one that most clusters have."""
    usual = next((key for key in _USUAL_KEYS if fleet.label(key).values), None)
    if usual:
        return usual
    keys = sorted({key for cluster in fleet for key in cluster.labels})
    fitting = [
        key
        for key in keys
        if _FEWEST_DOMAINS <= len(fleet.label(key).values) <= _MOST_DOMAINS
    ]
    return max(
        fitting,
        key=lambda key: int(fleet.label(key).is_present.sum()),
        default=_USUAL_KEYS[0],
    )


def _spread(fleet: Fleet, number: int | None, reason: str) -> str:
    """Return a policy that spreads over a label, by default one cluster for each domain."""
    key = topology_key(fleet)
    number = number or len(fleet.label(key).values) or 1
    return f"""\
    placementType: PickN
    numberOfClusters: {number}  # {reason}
    topologySpreadConstraints:
      - topologyKey: {key}
        maxSkew: 1
        whenUnsatisfiable: DoNotSchedule
"""


TEMPLATES = (
    PlacementTemplate(
        "several",
        "Spread across domains",
        "a few clusters, evenly over the domains of a label",
        lambda fleet: _spread(fleet, 3, "as many as you need"),
    ),
    PlacementTemplate(
        "ha-pair",
        "HA pair",
        "two clusters that do not share a domain",
        lambda fleet: _spread(fleet, 2, "one to serve, one to take over"),
    ),
    PlacementTemplate(
        "one-each",
        "One per domain",
        "as many clusters as the label has domains",
        lambda fleet: _spread(
            fleet, None, f"one for each {topology_key(fleet)} there is now"
        ),
    ),
    PlacementTemplate(
        "everywhere",
        "All clusters",
        "every ready cluster, also those that join later",
        lambda _: "    placementType: PickAll\n",
    ),
    PlacementTemplate(
        "by-name",
        "Named clusters",
        "exactly the clusters that you name",
        lambda _: "    placementType: PickFixed\n    clusterNames: []\n",
    ),
    PlacementTemplate(
        "staged",
        "Staged",
        "spread likewise; changes wait for a staged update run",
        lambda fleet: (
            _spread(fleet, 3, "as many as you need")
            + "  strategy:\n    type: External\n"
        ),
    ),
)


def template_named(name: str) -> PlacementTemplate:
    """Return the template of that name, the first one for any other."""
    return next((one for one in TEMPLATES if one.name == name), TEMPLATES[0])
