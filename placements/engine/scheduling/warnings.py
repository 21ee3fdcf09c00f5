"""Warnings about property values that are no quantities."""

from collections.abc import Iterable

from clusters.fleet import Fleet
from fleetui.apimachinery.errors import ManifestWarning, format_path
from fleetui.apimachinery.fields import has_second_dash
from fleetui.apimachinery.words import names_and_more
from placements.engine.scheduling.decision import Decision

_MOST_NAMES = 5


def property_warnings(fleet: Fleet) -> tuple[ManifestWarning, ...]:
    """Return the properties that some cluster reports with a value that no policy can compare."""
    # The claims of Open Cluster Management are texts.
    reporting = (cluster for cluster in fleet if cluster.managed is None)
    names = sorted({name for cluster in reporting for name in cluster.properties})
    warnings = []
    for name in names:
        malformed = fleet.property(name).is_malformed.nonzero()[0].tolist()
        if malformed:
            message = f"no quantity on {_some(fleet.names[position] for position in malformed)}"
            warnings.append(
                ManifestWarning(
                    "not-a-quantity", format_path(("properties", name)), message
                )
            )
    return tuple(warnings)


def decision_warnings(decision: Decision) -> tuple[ManifestWarning, ...]:
    """Return the property values that the cycle needed as numbers and that are none."""
    clusters: dict[str, list[str]] = {}
    for one in decision.malformed:
        clusters.setdefault(one.property, []).append(one.cluster)
    is_fatal = decision.is_failed and not decision.is_unsatisfiable
    warnings = []
    for name, names in clusters.items():
        message = f"no quantity on {_some(names)}: it counts as absent"
        if is_fatal and has_second_dash(name):
            message = (
                "a resource name with a second dash cannot be read: the cycle fails"
            )
        elif is_fatal:
            message = f"no quantity on {_some(names)}: the cycle fails"
        warnings.append(
            ManifestWarning(
                "malformed-property", format_path(("properties", name)), message
            )
        )
    return tuple(warnings)


def _some(names: Iterable[str]) -> str:
    names = list(names)
    word = "cluster" if len(names) == 1 else "clusters"
    return f"{len(names):,} {word} ({names_and_more(names, _MOST_NAMES)})"
