"""A suggested change as a manifest: what the editor opens as a draft."""

import copy
import json
from collections.abc import Callable
from typing import Any

from placements.queries.records import AnyDecision, decision_of
from placements.scheduling.advice.changes import Change
from placements.scheduling.cycle import Cycle
from placements.scheduling.door import ocm_edits
from placements.scheduling.door.ocm_placement import is_ocm_placement
from placements.scheduling.faults import Faults
from placements.scheduling.policy import PlacementPolicy, TopologySpreadConstraint, parse_policy
from placements.scheduling.profile import profile_of
from placements.scheduling.semantics import Semantics
from placements.scheduling.spec import (
    SPREAD_OPTIONS_ANNOTATION,
    ClusterResourcePlacement,
    parse_placement,
)

Document = dict[str, Any]
Heeds = Callable[[TopologySpreadConstraint], frozenset[str]]


def draft_with(row: AnyDecision, change: Change) -> Document | None:
    """Give the manifest of the decided placement with one change of its policy, everything else as written.

    None for a change of the fleet, when the placement is gone or its policy is no longer the decided one, as
    the advice was tried on that policy only, and where its kind of document cannot say the change.
    """
    if (change.edit is None and change.option is None) or row.placement is None:
        return None
    document, cycle = row.placement.document, decision_of(row).cycle
    if not _is_decided(parse_placement(document), cycle):
        return None
    changed = (
        with_change(document, change) if change.option is None else with_option(document, *change.option)
    )
    return changed if _asks_for(changed, change) else None


def _is_decided(now: ClusterResourcePlacement, cycle: Cycle) -> bool:
    """Tell whether a placement asks for what was decided; the balance is what others have, not asked for."""
    options, decided = ({**one, "balance": None} for one in (now.spread_options, cycle.options))
    has_rules = now.semantics is cycle.semantics and options == decided
    return has_rules and now.spec.policy.canonical() == cycle.policy.canonical()


def _asks_for(document: Document, change: Change) -> bool:
    try:
        asked = parse_placement(document)
    except Faults:
        return False
    name, value = change.option or ("", None)
    has_option = change.option is None or asked.spread_options.get(name) == value
    wanted = change.changed()
    heeds = profile_of(wanted).strategy.heeds
    return has_option and _heeded(asked.spec.policy, heeds) == _heeded(wanted.policy, heeds)


def _heeded(policy: PlacementPolicy, heeds: Heeds) -> PlacementPolicy:
    """Leave out of a policy the limits that nothing reads: not every kind of document can say them."""
    limits = tuple(
        one if "maxSkew" in heeds(one) else one.model_copy(update={"max_skew": 1})
        for one in policy.topology_spread_constraints
    )
    return policy.model_copy(update={"topology_spread_constraints": limits})


def with_option(document: Document, name: str, value: object) -> Document:
    """Give a manifest with one option of its semantics set, the others as they are written."""
    changed = copy.deepcopy(document)
    notes = changed["metadata"].get("annotations") or {}
    options = {**json.loads(notes.get(SPREAD_OPTIONS_ANNOTATION, "{}")), name: value}
    changed["metadata"]["annotations"] = {**notes, SPREAD_OPTIONS_ANNOTATION: json.dumps(options)}
    return changed


def with_change(document: Document, change: Change) -> Document:
    """Give a manifest with a change of its policy, touching nothing else of it.

    What the change would give is the measure: where the edit of the text as written comes to something else,
    the policy is written out in full.
    """
    wanted = change.changed()
    if is_ocm_placement(document):
        return ocm_edits.with_policy(document, wanted.policy)
    changed = copy.deepcopy(document)
    spec = changed["spec"]
    policy = _edited(spec.get("policy") or {}, change, wanted.semantics)
    if policy is None or _policy(policy, wanted.semantics) != wanted.policy:
        policy = wanted.policy.canonical()
    spec["policy"] = policy
    return changed


def _edited(policy: Document, change: Change, semantics: Semantics) -> Document | None:
    """Edit the policy as it is written; None where that is not how the edit expects it."""
    if change.edit is None:
        return None
    try:
        change.edit(policy)
    except (KeyError, IndexError, TypeError, AttributeError):
        return None
    return policy if _policy(policy, semantics) else None


def _policy(policy: Document, semantics: Semantics) -> PlacementPolicy | None:
    try:
        return parse_policy(policy, semantics=semantics)
    except Faults:
        return None
