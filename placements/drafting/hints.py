"""What the editor says beside its fields: how many match, what a percentage comes to, what is on offer."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np

from placements.drafting.fields import Field, Suggests, at
from placements.drafting.form import PREFERRED, REQUIRED, STRATEGY, Form, Row
from placements.scheduling.advice.feasibility import Bound
from placements.scheduling.cycle import Cycle
from placements.scheduling.door.parsing import parse_model
from placements.scheduling.faults import Faults, Keys
from placements.scheduling.fleet import Fleet
from placements.scheduling.policy import (
    ClusterSelectorTerm,
    PlacementType,
    TopologySpreadConstraint,
)
from placements.scheduling.profile import profile_of
from placements.scheduling.selectors import match_labels, meets_property, property_requirements
from placements.scheduling.semantics import DEFAULT_SEMANTICS, Semantics
from placements.scheduling.spec import ClusterResourcePlacement
from placements.scheduling.spread.base import Keyless, prefers_keyless

MOST_OFFERED = 50
_KEYLESS = {
    Keyless.UNLIMITED: "and will be preferred",
    Keyless.EXCLUDED: "and are never picked",
    Keyless.LAST: "and are picked last",
    Keyless.OWN_GROUP: "and form a group of their own",
}

Offers = tuple[tuple[str, int | None], ...]
"""What is offered, with the number of clusters that carry it; None where it is nothing of clusters."""


@lru_cache(maxsize=2)
def label_keys(fleet: Fleet) -> Offers:
    """Give the label keys of a fleet with the number of clusters that carry each, the most usual first."""
    return _most(Counter(key for cluster in fleet for key in cluster.labels))


@lru_cache(maxsize=2)
def property_names(fleet: Fleet) -> Offers:
    """Give the properties that clusters report, likewise."""
    return _most(Counter(name for cluster in fleet for name in cluster.properties))


def label_values(fleet: Fleet, key: str) -> Offers:
    """Give the values of a label key with the number of clusters that carry each."""
    column = fleet.label(key)
    counts = np.bincount(column.codes[column.is_present], minlength=len(column.values))
    return _most(Counter(dict(zip(column.values, counts.tolist(), strict=True))))


def _most(counts: Counter[str]) -> Offers:
    return tuple(sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:MOST_OFFERED])


def hints(
    form: Form,
    data: object,
    *,
    cycle: Cycle | None,
    draft: ClusterResourcePlacement | None,
    fleet: Fleet,
    bound: Bound | None = None,
) -> dict[str, str]:
    """Say something beside fields and rows, by their names."""
    semantics = cycle.semantics if cycle else DEFAULT_SEMANTICS
    said = {}
    for row in (*form.required.rows, *form.preferred.rows):
        said[row.name] = _matches(row, data, fleet, semantics)
    for row in form.spread.rows:
        said[row.name] = _groups(row, data, fleet, semantics, cycle)
    if bound is not None:
        said["spec.policy.numberOfClusters"] = f"{bound.most + 1:,} or more cannot be reached today"
    if draft is not None:
        said |= dict(_amounts(form, draft))
        said |= dict(_names(form, draft, fleet))
    return {name: words for name, words in said.items() if words}


def _matches(row: Row, data: object, fleet: Fleet, semantics: Semantics) -> str:
    raw = at(data, row.keys)
    if row.keys[:-1] == PREFERRED:
        raw = raw.get("preference")
    try:
        term = parse_model(ClusterSelectorTerm, raw, semantics=semantics, path="")
    except Faults:
        return ""
    if term.asks_nothing or term.claim_selector is not None:
        return ""
    matches = match_labels(term.label_selector, fleet)
    for requirement in property_requirements(term):
        matches &= meets_property(requirement, fleet)
    count = int(np.count_nonzero(matches))
    is_required = row.keys[:-1] == REQUIRED
    return f"{count:,} of {len(fleet):,} match" if is_required else f"{count:,} match"


def _groups(row: Row, data: object, fleet: Fleet, semantics: Semantics, cycle: Cycle | None) -> str:
    try:
        constraint = parse_model(TopologySpreadConstraint, at(data, row.keys), semantics=semantics, path="")
    except Faults:
        return ""
    column = fleet.topology(constraint.topology_key, constraint.topology_key_type)
    groups = len(column.values)
    lacking = int(np.count_nonzero(~column.is_present))
    if not groups:
        return f"no cluster carries {constraint.topology_key}"
    words = f"{groups:,} groups" if groups > 1 else _one_group(constraint, cycle)
    if not lacking:
        return f"{words}; all {len(fleet):,} clusters carry it"
    effect = _KEYLESS[profile_of(cycle).strategy.keyless(constraint)] if cycle else ""
    clusters = "1 cluster lacks it" if lacking == 1 else f"{lacking:,} clusters lack it"
    if lacking == 1:
        effect = effect.replace("are ", "is ").replace("form ", "forms ").replace("their", "its")
    return f"{words}; {clusters} {effect}".rstrip()


def _one_group(constraint: TopologySpreadConstraint, cycle: Cycle | None) -> str:
    if cycle and prefers_keyless(profile_of(cycle).strategy, constraint):
        return "1 group: no spreading; clusters without the label are preferred"
    return "1 group: no spreading"


def _amounts(form: Form, draft: ClusterResourcePlacement) -> Iterator[tuple[str, str]]:
    """Resolve the budgets against the number of clusters that the draft asks for."""
    rolling, number = draft.spec.strategy.rolling_update, asked_for(draft)
    if rolling is None or number is None:
        return
    amounts = {"maxUnavailable": rolling.max_unavailable, "maxSurge": rolling.max_surge}
    for field in form.strategy:
        key = str(field.keys[-1])
        if field.keys[:-1] == (*STRATEGY, "rollingUpdate") and key in amounts:
            amount = amounts[key]
            if amount.is_percent:
                said = "" if field.value else ", the usual"
                yield field.name, f"{amount} of {number} → {amount.of(number)}{said}"


def asked_for(draft: ClusterResourcePlacement) -> int | None:
    """Give how many clusters the draft asks for, None for all that there are."""
    policy = draft.spec.policy
    if policy.placement_type is PlacementType.PICK_N:
        return policy.number_of_clusters
    return len(policy.cluster_names) if policy.placement_type is PlacementType.PICK_FIXED else None


def _names(form: Form, draft: ClusterResourcePlacement, fleet: Fleet) -> Iterator[tuple[str, str]]:
    names = draft.spec.policy.cluster_names
    field = form.named("spec.policy.clusterNames")
    if not names or field is None:
        return
    missing = [name for name in names if name not in fleet.positions]
    words = f"{len(names) - len(missing)} of {len(names)} are in the fleet"
    yield field.name, words + (f"; not there: {', '.join(missing[:5])}" if missing else "")


def offers(form: Form, fleet: Fleet, names: Mapping[Keys, Sequence[str]]) -> dict[str, Offers]:
    """Give what every list of suggestions holds, by its id: keys, properties, values of the labels in use.

    `names` are those of objects on the hub, by the place of the selector that may name one.
    """
    found: dict[str, Offers] = {}
    for field in form.fields:
        if field.suggests is Suggests.OBJECTS:
            found[field.list_id] = tuple((name, None) for name in names.get(field.keys[:-1], ()))
        elif field.list_id and field.list_id not in found:
            found[field.list_id] = _offered(field, fleet)
    return found


def _offered(field: Field, fleet: Fleet) -> Offers:
    match field.suggests:
        case "label-keys":
            return label_keys(fleet)
        case "properties":
            return property_names(fleet)
        case "label-values" if field.of_key:
            return label_values(fleet, field.of_key)
    return ()
