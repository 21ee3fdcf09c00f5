"""What a new placement may start from: a few wishes that people have, written out with what they mean."""

from collections.abc import Callable
from dataclasses import dataclass

from placements.scheduling.door.kinds import PLACEMENT_KIND, PLACEMENT_VERSIONS
from placements.scheduling.fleet import Fleet

_USUAL_KEYS = ("region", "topology.kubernetes.io/region", "zone", "topology.kubernetes.io/zone")
_FEWEST, _MOST = 2, 24
_HEAD = f"""\
apiVersion: {PLACEMENT_VERSIONS[0]}
kind: {PLACEMENT_KIND}
metadata:
  name: my-placement
spec:
  resourceSelectors:
    - group: ""
      version: v1
      kind: Namespace
      name: my-namespace
  policy:
"""
_SPREAD = """\
    placementType: PickN
    numberOfClusters: {number}  # {why}
    topologySpreadConstraints:
      - topologyKey: {key}
        maxSkew: 1
        whenUnsatisfiable: DoNotSchedule
"""


@dataclass(frozen=True, slots=True)
class Recipe:
    """A start: its name in addresses, what it is called and for, and its text on a fleet."""

    name: str
    title: str
    words: str
    policy: Callable[[Fleet], str]

    def text(self, fleet: Fleet) -> str:
        """Write the manifest."""
        return _HEAD + self.policy(fleet)


def topology_key(fleet: Fleet) -> str:
    """Choose the label to spread over: a usual one that is there, else the one that most clusters carry."""
    usual = next((key for key in _USUAL_KEYS if fleet.label(key).values), None)
    if usual:
        return usual
    keys = sorted({key for cluster in fleet for key in cluster.labels})
    fitting = [key for key in keys if _FEWEST <= len(fleet.label(key).values) <= _MOST]
    return max(fitting, key=lambda key: int(fleet.label(key).is_present.sum()), default=_USUAL_KEYS[0])


def _spread(fleet: Fleet, number: int, why: str) -> str:
    return _SPREAD.format(number=number, why=why, key=topology_key(fleet))


def _in_every_group(fleet: Fleet) -> str:
    key = topology_key(fleet)
    number = len(fleet.label(key).values) or 1
    return _spread(fleet, number, f"one for each {key} there is now")


RECIPES = (
    Recipe("several", "Several, spread", "a few clusters, evenly over the groups of a label",
           lambda fleet: _spread(fleet, 3, "as many as you need")),
    Recipe("ha-pair", "HA pair", "two clusters that do not share a group",
           lambda fleet: _spread(fleet, 2, "one to serve, one to take over")),
    Recipe("one-each", "One in each group", "as many clusters as the label has groups", _in_every_group),
    Recipe("everywhere", "Everywhere", "every cluster that is eligible, those that join later too",
           lambda _: "    placementType: PickAll\n"),
    Recipe("by-name", "By name", "exactly the clusters you name",
           lambda _: "    placementType: PickFixed\n    clusterNames: []\n"),
    Recipe("staged", "Staged", "spread likewise, but changes wait until somebody starts a run",
           lambda fleet: _spread(fleet, 3, "as many as you need") + "  strategy:\n    type: External\n"),
)  # fmt: skip


def recipe_named(name: str) -> Recipe:
    """Give the recipe of that name, the first one for any other."""
    return next((one for one in RECIPES if one.name == name), RECIPES[0])
