"""The four clusters of the guide on topology spread, and the policies of the guides that say something there.

Left out are those that ask for labels which none of the four has.
"""

from datetime import datetime

from placements.demo.demo import Demo, Document
from placements.demo.members import member
from placements.demo.resources import application, cluster_role
from placements.demo.wishes import (
    expressions,
    labelled,
    pick_all,
    pick_fixed,
    pick_n,
    placement,
    prefer,
    selector,
    spread,
)

_LABELS = {
    "bravelion": {"region": "east", "system": "critical"},
    "smartfish": {"region": "east"},
    "jumpingcat": {"region": "west", "system": "critical"},
    "flyingpenguin": {"region": "west"},
}
_SYSTEM = ("system", "Exists")


def four(now: datetime) -> Demo:
    """Make the demo of four."""
    policies = _policies()
    applications = (application(name) for name in policies if name != "fixed")
    return Demo(
        "The guide's fleet of 4",
        tuple(member(name, labels, now=now) for name, labels in _LABELS.items()),
        (*(one for documents in applications for one in documents), cluster_role("secretReader", "secrets")),
        tuple(_placement(name, policy) for name, policy in policies.items()),
    )


def _placement(name: str, policy: Document) -> Document:
    """Write a placement of its own namespace; the fixed one takes the guide's cluster role instead."""
    role = selector("ClusterRole", "secretReader", group="rbac.authorization.k8s.io")
    return placement(name, policy, selectors=[role] if name == "fixed" else [])


def _policies() -> dict[str, Document]:
    west = prefer(20, labelled(region="west"))
    return {
        "fixed": pick_fixed("bravelion", "smartfish"),
        "critical": pick_all(required=[labelled(system="critical")]),
        "critical-or-standard": pick_all(required=[expressions(("system", "In", "critical", "standard"))]),
        "east-with-system": pick_all(required=[_both(labelled(region="east"), expressions(_SYSTEM))]),
        "west-or-without-system": pick_all(
            required=[labelled(region="west"), expressions(("system", "DoesNotExist"))]
        ),
        "rather-west": pick_n(2, prefer=[west]),
        "system-rather-west": pick_n(1, required=[expressions(_SYSTEM)], prefer=[west]),
        "even-by-region": pick_n(2, spread=[spread("region")]),
        "even-by-system": pick_n(3, spread=[spread("system", 2)]),
    }


def _both(*terms: Document) -> Document:
    """Write one term that asks what several do of labels."""
    parts = [term["labelSelector"] for term in terms]
    return {"labelSelector": {key: value for part in parts for key, value in part.items()}}
