"""A policy written back into a Placement of Open Cluster Management: what differs, and nothing else.

The document says a policy in another way (`ocm_placement`): constraints and predicates have places of their
own, and a limit of the proposal is hard by being there at all.
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from placements.scheduling.door.ocm_placement import parse_ocm_placement
from placements.scheduling.door.terms import ClusterSelectorTerm
from placements.scheduling.faults import Keys, split_path
from placements.scheduling.policy import PlacementPolicy, TopologySpreadConstraint, WhenUnsatisfiable

Document = dict[str, Any]
Entry = TypeVar("Entry")
_TERMS = "policy.affinity.clusterAffinity.requiredDuringSchedulingIgnoredDuringExecution.clusterSelectorTerms"
_CONSTRAINTS = "policy.topologySpreadConstraints"


def with_policy(document: Document, policy: PlacementPolicy) -> Document:
    """Give the document with what this policy has otherwise than its own: one step of advice away from it.

    Of constraints and predicates one may be gone, or some may differ; tolerations may have been added. What
    is further away is not written, so whoever asks has to look at what the result says. Raises Faults for a
    document that no door takes.
    """
    wish, changed = parse_ocm_placement(document), deepcopy(document)
    today, spec = wish.policy, changed["spec"]
    if policy.number_of_clusters != today.number_of_clusters:
        spec["numberOfClusters"] = policy.number_of_clusters
    for index, limit in _differing(today.topology_spread_constraints, policy.topology_spread_constraints):
        place = split_path(wish.places[f"{_CONSTRAINTS}[{index}]"])
        _remove(changed, place) if limit is None else _limit(_at(changed, place), limit)
    for index, term in _differing(today.required_terms, policy.required_terms):
        place = split_path(wish.places[f"{_TERMS}[{index}]"])
        _remove(changed, place[:-1]) if term is None else _select(_at(changed, place), term)
    added = policy.tolerations[len(today.tolerations) :]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or []), *(one.to_plain() for one in added)]
    return changed


def _differing(before: Sequence[Entry], after: Sequence[Entry]) -> Iterator[tuple[int, Entry | None]]:
    """Give the places of entries that differ, each with what it is to be; None for the one that is gone."""
    pairs = enumerate(zip(before, after, strict=False))
    differing = [(index, new) for index, (old, new) in pairs if old != new]
    if len(after) < len(before):
        yield (differing[0][0] if differing else len(after)), None
    else:
        yield from differing


def _at(document: Document, place: Keys) -> Any:
    found: Any = document
    for key in place:
        found = found[key]
    return found


def _remove(document: Document, place: Keys) -> None:
    """Take something out, and what held it as well when nothing else is in there; the spec stays."""
    holder = _at(document, place[:-1])
    del holder[place[-1]]
    if not holder and len(place) > 2:
        _remove(document, place[:-1])


def _limit(entry: Document, wanted: TopologySpreadConstraint) -> None:
    """Set how far apart groups may be, in the words of the entry: only the merged API says hard or soft."""
    is_soft = wanted.when_unsatisfiable is WhenUnsatisfiable.SCHEDULE_ANYWAY
    if "type" not in entry:
        entry.update(maxSkew=wanted.max_skew, whenUnsatisfiable=wanted.when_unsatisfiable.value)
    elif is_soft:
        entry.pop("maxSkew", None)
    else:
        entry["maxSkew"] = wanted.max_skew


def _select(selector: Document, wanted: ClusterSelectorTerm) -> None:
    plain = wanted.to_plain()
    for name in ("labelSelector", "claimSelector"):
        if name in plain:
            selector[name] = plain[name]
        else:
            selector.pop(name, None)
