"""What a cluster is today, and a suggested change as a manifest: what the editor opens as a draft."""

import copy
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Value

from clusters.models import MemberCluster
from clusters.queries import clusters_named, current_fleet
from fleetui.apimachinery.errors import InvalidManifest
from placements.engine.advice.changes import Change
from placements.engine.advice.diagnosis import outdated
from placements.engine.scheduling.decision import CycleKind
from placements.engine.scheduling.outcome import Outcome, Outcomes
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.scheduler import schedule
from placements.explain.clusters import cluster_status
from placements.explain.staged_updates import duration_words
from placements.explain.vocabulary import outcome_sentences, reason_sentence
from placements.manifests import ocm_placement
from placements.manifests.ocm import SPREAD_OPTIONS_ANNOTATION
from placements.manifests.placement import is_ocm_placement, parse_placement
from placements.manifests.policy import (
    PlacementPolicy,
    TopologySpreadConstraint,
    parse_policy,
)
from placements.models import Binding, Decision, Placement
from placements.services.decisions.records import (
    DecisionView,
    decision_of,
    last_steps,
    readable_decisions,
)
from placements.services.snapshots import cycles_of

Document = dict[str, Any]
Heeds = Callable[[TopologySpreadConstraint], frozenset[str]]


NOT_IN_FLEET = "Today: not in the fleet"


class ExplainedCluster(NamedTuple):
    """A cluster as a decision explains it: its labels, its outcome, and why.

    Of one that joined after the decision, when that was, its outcome today, and what rules it out.
    """

    joined: str = ""
    labels: Mapping[str, str] = {}
    outcome: str = Outcome.NOT_REACHED
    why: str = ""


def state_today(
    name: str,
    *,
    was_in_fleet: bool,
    decided_at: datetime,
    now: datetime,
    placement: Placement | None,
) -> str:
    """Return whether a cluster is ready and would be selected today, which a decision does not know.

    `was_in_fleet`: the decision read the cluster.
    """
    cluster = MemberCluster.objects.filter(name=name).first()
    if cluster is None:
        return NOT_IN_FLEET
    words = "cordoned" if cluster.is_cordoned else "ready"
    if cluster.verdict or cluster.is_late:
        _, status = cluster_status(cluster, is_cordoned=False)
        since = age_words(cluster.away_since or now, now=now)
        words = f"{status[:1].lower()}{status[1:]} for {since}"
    if cluster.joined_at > decided_at or not was_in_fleet:
        joined = _joined_words(cluster.joined_at, decided_at, now=now)
        words += f"; {joined}after this decision"
    if was_in_fleet and placement is not None and not placement.deleting_since:
        words += _selection_today(placement, cluster)
    return f"Today: {words}"


def _selection_today(placement: Placement, cluster: MemberCluster) -> str:
    """Return whether a cluster is selected, and whether rescheduling would select it, and why not."""
    cycle = next(
        (one for _, one in cycles_of([placement], current_fleet().fleet)), None
    )
    if cycle is None:
        return ""
    fresh = schedule(cycle.rescheduled())
    is_placed = cluster.name in cycle.placed_before
    if is_placed and not outdated(cycle, fresh, [cluster.name]):
        return " and selected"
    if cluster.name in fresh.placed_after:
        return "; selected if rescheduled"
    why = "not a candidate"
    if cluster.is_eligible and not cluster.is_cordoned:
        reason = Outcomes(fresh).of(cluster.name).against
        why = f"not selected if rescheduled: {reason_sentence(reason)}"
    if is_placed:
        why = f"selected, and {why}"
    return f"; {why}"


def joined_after(
    decision: Decision, clusters: Collection[str], *, now: datetime
) -> dict[str, ExplainedCluster]:
    """Return by name the clusters that a decision did not read."""
    newer, moments = clusters_named(clusters)
    today = replace(decision_of(decision).cycle, fleet=newer, bindings=(), batch=None)
    outcomes = Outcomes(schedule(today))
    joined: dict[str, ExplainedCluster] = {}
    for name, joined_at in moments.items():
        words = _joined_words(joined_at, decision.created_at, now=now)
        outcome = outcomes.of(name)
        newcomer = ExplainedCluster(
            f"{words.capitalize()}after decision {decision.number}",
            newer.clusters[newer.positions[name]].labels,
        )
        if outcome.state in (Outcome.FILTERED, Outcome.NOT_ELIGIBLE):
            why = f"Filtered out today: {reason_sentence(outcome.reasons[0])}. "
            newcomer = newcomer._replace(outcome=outcome.state, why=why)
        joined[name] = newcomer
    return joined


def explained_clusters(
    placement: Placement,
    decision: Decision,
    names: Collection[str],
    *,
    now: datetime,
) -> dict[str, ExplainedCluster]:
    """Return by name how a decision explains clusters of a placement; of a step, its sentence is why.

    Where it only removes clusters, it evaluates no other one: the decision that selected last did.
    """
    outcomes = Outcomes(decision_of(decision))
    fleet = outcomes.cycle.fleet
    strip = last_steps(decision)
    steps = {chip.cluster: chip.why for chip in strip.chips} if strip else {}
    before: list[Outcomes] = []
    if outcomes.decision.kind is CycleKind.SCALE_DOWN:
        earlier = readable_decisions(placement).filter(number__lt=decision.number)
        selections = earlier.filter(joins_count__gt=0)[:1]
        before = [Outcomes(decision_of(selection)) for selection in selections]

    newer = set(names) - fleet.positions.keys()
    explained = joined_after(decision, newer, now=now) if newer else {}
    for name in set(names) - newer:
        outcome = outcomes.of(name)
        why = outcome_sentences(outcome)[0]
        is_left_out = outcome.state == Outcome.NOT_REACHED
        for one in before:
            if is_left_out and name in one.cycle.fleet.positions:
                why += f". When clusters were last selected: {outcome_sentences(one.of(name))[0]}"
        explained[name] = ExplainedCluster(
            "",
            fleet.clusters[fleet.positions[name]].labels,
            outcome.state,
            steps.get(name, why),
        )
    return explained


def _joined_words(joined_at: datetime, decided_at: datetime, *, now: datetime) -> str:
    # A demo dates its clusters back: one that the decision lacks joined later.
    if joined_at <= decided_at:
        return "joined "
    return f"joined {age_words(joined_at, now=now)} ago, "


def bound_and_members(placement: Placement) -> tuple[dict[str, str], set[str]]:
    """Return the states of the bindings of a placement by cluster, and the names in the fleet; one query."""
    rows = Binding.objects.filter(placement=placement).order_by()
    members = MemberCluster.objects.order_by().values_list("name", Value(""))
    both = list(rows.values_list("cluster_name", "state").union(members, all=True))
    bound = {name: state for name, state in both if state}
    return bound, {name for name, state in both if not state}


def age_words(moment: datetime, *, now: datetime) -> str:
    """Return an age without its seconds, once it has minutes."""
    age = now - moment
    return duration_words(
        age - age % timedelta(minutes=1) if age >= timedelta(minutes=1) else age
    )


def decided_document(view: DecisionView) -> Document | None:
    """Return the manifest of the decided placement while its policy is the decided one.

    None when the placement was deleted or its policy was changed: advice was tried on that policy only.
    """
    # It may have been deleted since the row was read.
    rows = Placement.objects.filter(decisions=view.row)
    document: Document | None = rows.values_list("document", flat=True).first()
    if document is None:
        return None
    cycle = view.value.cycle
    now = parse_placement(document)
    options, decided = (
        {**one, "balance": None} for one in (now.spread_options, cycle.options)
    )
    has_rules = now.semantics is cycle.semantics and options == decided
    is_same = has_rules and now.spec.policy.to_plain() == cycle.policy.to_plain()
    return document if is_same else None


def draft_with(document: Document, change: Change) -> Document | None:
    """Return a manifest with one change of its policy, everything else as written.

    None for a change of the fleet, and where this kind of document cannot express it.
    """
    if change.edit is None and change.option is None:
        return None
    changed = (
        with_option(document, *change.option)
        if change.option
        else with_change(document, change)
    )
    try:
        parsed = parse_placement(changed)
    except InvalidManifest:
        return None
    name, value = change.option or ("", None)
    has_option = change.option is None or parsed.spread_options.get(name) == value
    target = change.changed()
    heeds = profile_of(target).strategy.relevant_fields
    has_policy = _relevant(parsed.spec.policy, heeds) == _relevant(target.policy, heeds)
    return changed if has_option and has_policy else None


def _relevant(policy: PlacementPolicy, relevant_fields: Heeds) -> PlacementPolicy:
    """Leave out of a policy the limits that nothing reads: not every kind of document can express them."""
    limits = tuple(
        constraint
        if "maxSkew" in relevant_fields(constraint)
        else constraint.model_copy(update={"max_skew": 1})
        for constraint in policy.topology_spread_constraints
    )
    return policy.model_copy(update={"topology_spread_constraints": limits})


def with_option(document: Document, name: str, value: object) -> Document:
    """Return a manifest with one option of its semantics set, the others as they are written."""
    changed = copy.deepcopy(document)
    notes = changed["metadata"].get("annotations") or {}
    changed["metadata"]["annotations"] = {
        **notes,
        SPREAD_OPTIONS_ANNOTATION: json.dumps(
            {**json.loads(notes.get(SPREAD_OPTIONS_ANNOTATION, "{}")), name: value}
        ),
    }
    return changed


def with_change(document: Document, change: Change) -> Document:
    """Return a manifest with a change of its policy, touching nothing else of it.

    The result of the change is the measure: where the edit of the text as written has another result,
    the policy is written out in full.
    """
    target = change.changed()
    if is_ocm_placement(document):
        return ocm_placement.with_policy(document, target.policy)
    changed = copy.deepcopy(document)
    spec = changed["spec"]
    policy, parsed = spec.get("policy") or {}, None
    with suppress(KeyError, IndexError, TypeError, AttributeError, InvalidManifest):
        if change.edit is not None:
            change.edit(policy)
            parsed = parse_policy(policy, semantics=target.semantics)
    spec["policy"] = policy if parsed == target.policy else target.policy.to_plain()
    return changed
