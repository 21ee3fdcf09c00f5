"""The search for changes after which a cluster would be selected or a placement fulfilled.

Each answer is verified by a run of `schedule()` as if the change were saved. *Minimal* means that no
value of the same kind nearer to the current one, in the same direction, succeeds.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from typing import Any

from clusters.fleet import EligibilityKind
from fleetui.apimachinery.errors import InvalidManifest, Keys
from placements.engine.advice.changes import (
    Change,
    ChangeKind,
    Edit,
    edited,
    with_eligible,
    with_label,
    with_option,
)
from placements.engine.advice.diagnosis import pinned_groups
from placements.engine.loss import CORDON
from placements.engine.scheduling.decision import (
    WITHOUT_EVALUATION,
    Decision,
    labels_read,
)
from placements.engine.scheduling.filters.taint_toleration import untolerated
from placements.engine.scheduling.outcome import ClusterOutcome, Outcomes
from placements.engine.scheduling.profile import profile_of, without_failure
from placements.engine.scheduling.scheduler import schedule
from placements.manifests.policy import (
    InclusionPolicy,
    PlacementType,
    TopologySpreadConstraint,
    WhenUnsatisfiable,
)

Axis = Iterable[Change]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_AFFINITY = ("affinity", "clusterAffinity")
_TERMS = (*_AFFINITY, _REQUIRED, "clusterSelectorTerms")
_PREFERENCES = (*_AFFINITY, _PREFERRED)
_WEIGHTS = range(-100, 101)
_LABELS_TRIED = 5


def candidate_changes(decision: Decision, cluster: str) -> Iterator[Axis]:
    """Yield every axis worth trying for a cluster that was not picked, the most likely first."""
    placement_type = decision.cycle.policy.placement_type
    if placement_type is PlacementType.PICK_FIXED:
        yield from _reports(decision, cluster)
        if cluster not in decision.cycle.policy.cluster_names:
            edit = partial(_append, field="clusterNames", item=cluster)
            yield [_edit(decision, ChangeKind.NAME, {"name": cluster}, edit)]
    else:
        yield from _reports(decision, cluster)
        yield from _tolerations(decision, cluster)
        if profile_of(decision.cycle).has_new_terms:
            yield from _new_terms(decision, cluster)
        yield from _terms(decision)
    if placement_type is PlacementType.PICK_N:
        yield from _numbers(decision, cluster)
        yield from _constraints(decision)
        yield from _options(decision)
        yield from _labels(decision, cluster)
        for index, term in enumerate(decision.cycle.policy.preferred_terms):
            facts = {
                "term": index,
                "selector": term.preference.to_plain(),
                "today": term.weight,
            }
            path = (*_AFFINITY, _PREFERRED, index, "weight")
            change = partial(_set_field, decision, ChangeKind.WEIGHT, facts, path)
            yield map(change, range(term.weight + 1, _WEIGHTS.stop))
            yield map(change, range(term.weight - 1, _WEIGHTS.start - 1, -1))
    elif placement_type is PlacementType.PICK_ALL:
        yield from _labels(decision, cluster)


def fulfilment_axes(decision: Decision, pinned: Sequence[str]) -> Iterator[Axis]:
    """Yield every axis worth trying for an unfulfilled placement, given the clusters of pinned domains."""
    selectors = [term.to_plain() for term in decision.cycle.policy.required_terms]
    can_prefer = profile_of(decision.cycle).has_new_terms and bool(selectors)
    if can_prefer:
        facts = {"selectors": selectors}
        yield [_edit(decision, ChangeKind.PREFER_TERMS, facts, prefer_terms)]
    if reached := len(_placed_names(decision)):
        yield [_number(decision, reached, ChangeKind.FEWER)]
    yield from _constraints(decision)
    yield from _options(decision)
    for axis in _terms(decision):
        # To prefer a term gives up less than to drop it.
        if not (can_prefer and axis[0].kind is ChangeKind.DROP_TERM):
            yield axis
    for cluster in pinned:
        yield from _reports(decision, cluster)
        yield from _tolerations(decision, cluster)
    some = islice(pinned, _LABELS_TRIED)
    # One cluster for each label that is missing there.
    lacking = {
        (change.facts["key"], change.facts["value"]): [change]
        for [change] in chain(*map(partial(_labels, decision), some))
        if change.facts["today"] is None
    }
    yield from lacking.values()


def _edit(
    decision: Decision, kind: ChangeKind, facts: dict[str, Any], edit: Edit
) -> Change:
    return Change(kind, facts, partial(edited, decision.cycle, edit), edit)


def _set_field(
    decision: Decision,
    kind: ChangeKind,
    facts: dict[str, Any],
    path: Keys,
    value: object,
) -> Change:
    """Return the change that sets one field of the policy; its facts include the field and the value."""
    edit = partial(_set, path=path, value=value)
    return _edit(decision, kind, {**facts, str(path[-1]): value}, edit)


def _append(plain: dict[str, Any], *, field: str, item: object) -> None:
    plain[field] = [*plain.get(field, []), item]


def _append_at(plain: dict[str, Any], *, path: tuple[str, ...], item: object) -> None:
    """Append to the list at a path of fields, which are made where they are missing."""
    holder = plain
    for key in path[:-1]:
        holder = holder.setdefault(key, {})
    _append(holder, field=path[-1], item=item)


def prefer_terms(plain: dict[str, Any]) -> None:
    """Make the required terms of a policy preferred ones, with the most weight."""
    for term in _value_at(plain, _AFFINITY).pop(_REQUIRED)["clusterSelectorTerms"]:
        _append_at(
            plain,
            path=_PREFERENCES,
            item={"weight": _WEIGHTS[-1], "preference": term},
        )


def _value_at(plain: Any, path: Keys) -> Any:
    for key in path:
        plain = plain[key]
    return plain


def _set(plain: dict[str, Any], *, path: Keys, value: object) -> None:
    _value_at(plain, path[:-1])[path[-1]] = value


def _remove(plain: dict[str, Any], *, path: Keys, holder: Keys = ()) -> None:
    """Remove what is at a path, and also its `holder` when nothing else is left beside it."""
    inside = _value_at(plain, path[:-1])
    del inside[path[-1]]
    if holder and not inside:
        del _value_at(plain, holder[:-1])[holder[-1]]


def _reports(decision: Decision, cluster: str) -> Iterator[Axis]:
    fleet = decision.cycle.fleet
    eligibility = fleet.clusters[fleet.positions[cluster]].eligibility
    if eligibility.kind not in (None, EligibilityKind.LEAVING):
        facts = {
            "cluster": cluster,
            "kind": str(eligibility.kind),
            "reason": eligibility.reason,
        }
        yield [
            Change(
                ChangeKind.REPORT,
                facts,
                partial(with_eligible, decision.cycle, cluster),
            )
        ]


def _tolerations(decision: Decision, cluster: str) -> Iterator[Axis]:
    cycle = decision.cycle
    position = cycle.fleet.positions[cluster]
    for taint in untolerated(
        # No advice is to tolerate a cordon.
        tuple(
            taint for taint in cycle.fleet.clusters[position].taints if taint != CORDON
        ),
        cycle.policy.tolerations,
        now=cycle.moment,
        is_selected=bool(cycle.is_active[position]),
    ):
        toleration = {
            "key": taint.key,
            "operator": "Equal",
            "value": taint.value,
            "effect": taint.effect,
        }
        edit = partial(_append, field="tolerations", item=toleration)
        facts = {"cluster": cluster, "key": taint.key, "value": taint.value}
        yield [_edit(decision, ChangeKind.TOLERATION, facts, edit)]


def _new_terms(decision: Decision, cluster: str) -> Iterator[Axis]:
    """Prefer the labels of a cluster, the rarest first; accept them where the affinity rules it out."""
    cycle, fleet = decision.cycle, decision.cycle.fleet
    labels = fleet.clusters[fleet.positions[cluster]].labels
    columns = {key: fleet.label(key) for key in labels}
    share = {
        key: int((column.codes == column.codes[fleet.positions[cluster]]).sum())
        for key, column in columns.items()
    }
    rarest = sorted((count, key) for key, count in share.items() if count < len(fleet))[
        :_LABELS_TRIED
    ]
    terms = [
        (
            {"key": key, "value": labels[key]},
            {"labelSelector": {"matchLabels": {key: labels[key]}}},
        )
        for _, key in rarest
    ]
    if cycle.policy.placement_type is PlacementType.PICK_N:
        # What a term weighs already has its weight changed.
        weighed = [term.preference.to_plain() for term in cycle.policy.preferred_terms]
        yield [
            _edit(
                decision,
                ChangeKind.PREFERENCE,
                {**facts, "weight": _WEIGHTS[-1]},
                partial(
                    _append_at,
                    path=_PREFERENCES,
                    item={"weight": _WEIGHTS[-1], "preference": term},
                ),
            )
            for facts, term in terms
            if term not in weighed
        ]
    if cycle.policy.required_terms:
        yield [
            _edit(
                decision,
                ChangeKind.TERM,
                facts,
                partial(_append_at, path=_TERMS, item=term),
            )
            for facts, term in terms
        ]


def _terms(decision: Decision) -> Iterator[Sequence[Change]]:
    for index, term in enumerate(decision.cycle.policy.required_terms):
        drop = partial(_remove, path=(*_TERMS, index), holder=(*_AFFINITY, _REQUIRED))
        plain = term.to_plain()
        term_facts = {
            "term": index,
            "selector": plain,
        }
        yield [_edit(decision, ChangeKind.DROP_TERM, term_facts, drop)]
        labels = plain.get("labelSelector", {}).get("matchLabels", {})
        requirements: list[tuple[Keys, str]] = [
            (("labelSelector", "matchLabels", key), key) for key in labels
        ]
        for selector, name_key in (
            ("labelSelector", "key"),
            ("propertySelector", "name"),
            ("claimSelector", "key"),
        ):
            for at, requirement in enumerate(
                plain.get(selector, {}).get("matchExpressions", [])
            ):
                requirements.append(
                    ((selector, "matchExpressions", at), requirement[name_key])
                )
        # A lone requirement is removed with its term.
        for path, name in requirements if len(requirements) > 1 else ():
            facts = {**term_facts, "requirement": name}
            edit = partial(_remove, path=(*_TERMS, index, *path))
            yield [_edit(decision, ChangeKind.DROP_REQUIREMENT, facts, edit)]


def _numbers(decision: Decision, cluster: str) -> Iterator[Axis]:
    """Return the smallest number that would reach the cluster, and the one below it.

    By bisection: what is placed for N is placed for N + 1 as well, trimmed or picked.
    """
    today, most = (
        decision.cycle.policy.number_of_clusters or 0,
        len(decision.cycle.fleet),
    )
    larger = range(today + 1, most + 1)

    def reaches(number: int) -> bool:
        # A cycle that fails as a whole reaches no cluster in a step towards more.
        changed = schedule(without_failure(_number(decision, number).changed()))
        return cluster in changed.picked_names or cluster in changed.kept

    place = bisect_left(larger, True, key=reaches)
    if place < len(larger):
        yield [
            _number(decision, number)
            for number in larger[max(0, place - 1) : place + 1]
        ]
    elif larger:
        yield [_number(decision, most)]


def _number(
    decision: Decision, number: int, kind: ChangeKind = ChangeKind.NUMBER
) -> Change:
    return _edit(
        decision,
        kind,
        {"number": number, "today": decision.cycle.policy.number_of_clusters},
        lambda plain: plain.update(numberOfClusters=number),
    )


def _constraints(decision: Decision) -> Iterator[Axis]:
    strategy = profile_of(decision.cycle).strategy
    for index, constraint in enumerate(
        decision.cycle.policy.topology_spread_constraints
    ):
        relevant_fields, place = (
            strategy.relevant_fields(constraint),
            ("topologySpreadConstraints", index),
        )
        facts = {"constraint": index, "topologyKey": constraint.topology_key}
        if "maxSkew" in relevant_fields:
            today = constraint.max_skew
            most = max(
                decision.cycle.policy.number_of_clusters or 0,
                len(decision.kept),
                today + 1,
            )
            known = {**facts, "today": today}
            change = partial(
                _set_field, decision, ChangeKind.MAX_SKEW, known, (*place, "maxSkew")
            )
            yield map(change, range(today + 1, most + 1))
            yield map(change, range(today - 1, 0, -1))

        hard, soft = (
            WhenUnsatisfiable.DO_NOT_SCHEDULE,
            WhenUnsatisfiable.SCHEDULE_ANYWAY,
        )
        other = soft if constraint.when_unsatisfiable is hard else hard
        yield [
            _set_field(
                decision,
                ChangeKind.WHEN_UNSATISFIABLE,
                {**facts, "today": constraint.when_unsatisfiable.value},
                (*place, "whenUnsatisfiable"),
                other.value,
            )
        ]

        yield [
            _edit(
                decision,
                ChangeKind.DROP_CONSTRAINT,
                facts,
                partial(_remove, path=place),
            )
        ]
        if "minDomains" in relevant_fields and constraint.min_domains:
            known = {**facts, "today": constraint.min_domains}
            change = partial(
                _set_field,
                decision,
                ChangeKind.MIN_DOMAINS,
                known,
                (*place, "minDomains"),
            )
            yield map(change, range(constraint.min_domains - 1, 0, -1))
        yield from (
            [_other_counting(decision, index, constraint, name)]
            for name in ("nodeAffinityPolicy", "nodeTaintsPolicy")
            if name in relevant_fields
        )


def _other_counting(
    decision: Decision, index: int, constraint: TopologySpreadConstraint, name: str
) -> Change:
    """Count the clusters that the affinity or a taint rules out for the constraint, or stop counting them."""
    plain = constraint.to_plain()
    default = (
        InclusionPolicy.HONOR
        if name == "nodeAffinityPolicy"
        else InclusionPolicy.IGNORE
    )
    honors = plain.get(name, default) == InclusionPolicy.HONOR
    value = str(InclusionPolicy.IGNORE if honors else InclusionPolicy.HONOR)
    facts = {
        "constraint": index,
        "topologyKey": constraint.topology_key,
        "field": name,
        "value": value,
    }
    edit = partial(_set, path=("topologySpreadConstraints", index, name), value=value)
    return _edit(decision, ChangeKind.COUNTED, facts, edit)


def _options(decision: Decision) -> Iterator[Axis]:
    """Try the other values of the options of the semantics, the nearest first."""
    cycle = decision.cycle
    for name, today, values in profile_of(cycle).options_to_try(cycle):
        yield [
            Change(
                ChangeKind.OPTION,
                {"option": name, "value": value, "today": today},
                partial(with_option, cycle, name, value),
                option=(name, value),
            )
            for value in values
        ]


def _labels(decision: Decision, cluster: str) -> Iterator[Axis]:
    fleet = decision.cycle.fleet
    position = fleet.positions[cluster]
    for key in labels_read(decision.cycle):
        column = fleet.label(key)
        today = column.value_at(position)
        for value in column.values:
            if value != today:
                facts = {"cluster": cluster, "key": key, "value": value, "today": today}
                changed = partial(with_label, decision.cycle, cluster, key, value)
                yield [Change(ChangeKind.LABEL, facts, changed)]


_ADVICE_EVALUATIONS = (
    1_000_000  # clusters evaluated by all runs together: some seconds at most
)
_FULFILMENT_EVALUATIONS = (
    200_000  # runs with every unfulfilled decision, so it must be fast
)
_FEWEST_RUNS = 4
_MOST_RUNS = 5_000


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A change that was tried; `gains` and `losses` compare its picks with today's.

    `furthest` is the last of the same kind and direction that was tried, where none helped.
    """

    change: Change
    helps: bool
    gains: tuple[str, ...]
    losses: tuple[str, ...]
    furthest: Change | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes that would select a cluster, that would not, and those not tried within the time limit.

    `is_rescheduled`: the decision evaluated no cluster, so that `outcome` is the one of rescheduling.
    """

    outcome: ClusterOutcome
    helps: tuple[Suggestion, ...] = ()
    fails: tuple[Suggestion, ...] = ()
    not_tried: tuple[Change, ...] = ()
    is_rescheduled: bool = False


@dataclass
class _Budget:
    runs: int
    helps: list[Suggestion] = field(default_factory=list)
    fails: list[Suggestion] = field(default_factory=list)
    not_tried: list[Change] = field(default_factory=list)


def why_not(decision: Decision, cluster: str, *, runs: int | None = None) -> Advice:
    """Return the outcome of a cluster and what would change it; `runs` bounds the scheduler runs.

    For a cluster that is placed there is no advice. Raise KeyError when it is not in the fleet.
    """
    if decision.cycle.batch is not None and cluster not in (
        *decision.picked_names,
        *decision.unscheduled,
    ):
        # Beside the clusters that the batch moved, the state after it is explained.
        decision = schedule(
            replace(decision.cycle, batch=None, bindings=decision.bindings_after)
        )
    evaluated = evaluated_decision(decision, cluster)
    outcome = Outcomes(evaluated).of(cluster)
    if cluster in decision.picked_names or cluster in decision.kept:
        return Advice(outcome)
    budget = _Budget(
        _affordable_runs(decision, _ADVICE_EVALUATIONS) if runs is None else runs
    )
    for axis in candidate_changes(decision, cluster):
        _try_axis(
            decision,
            axis,
            budget,
            lambda each: not each.is_failed and cluster in _placed_names(each),
        )
    suggestions = (
        _in_order(budget.helps),
        tuple(budget.fails),
        tuple(budget.not_tried),
    )
    return Advice(outcome, *suggestions, is_rescheduled=evaluated is not decision)


def evaluated_decision(decision: Decision, cluster: str) -> Decision:
    """Return what explains a cluster: a decision that evaluated no cluster is rescheduled for that."""
    is_evaluated = decision.kind not in WITHOUT_EVALUATION
    if is_evaluated or cluster in decision.kept or cluster in decision.unscheduled:
        return decision
    return schedule(decision.cycle.rescheduled())


def how_to_fulfil(decision: Decision) -> tuple[Suggestion, ...]:
    """Return the single changes, each minimal and verified, that would fulfil a PickN placement."""
    if decision.is_fulfilled or not decision.number_of_rounds:
        return ()
    budget = _Budget(_affordable_runs(decision, _FULFILMENT_EVALUATIONS))

    fleet = decision.cycle.fleet
    pinned = {(group.topology_key, group.group) for group in pinned_groups(decision)}
    in_pinned_domains = [
        cluster.name
        for cluster in fleet
        if any(cluster.labels.get(key) == group for key, group in pinned)
    ]
    for axis in fulfilment_axes(decision, in_pinned_domains):
        _try_axis(decision, axis, budget, lambda changed: changed.is_fulfilled)

    return _in_order(budget.helps)


def _in_order(suggestions: Iterable[Suggestion]) -> tuple[Suggestion, ...]:
    """Return the changes that an operator would accept first, of one kind those that move the fewest."""
    return tuple(
        sorted(
            suggestions,
            key=lambda one: (one.change.acceptance, len(one.gains) + len(one.losses)),
        )
    )


def _affordable_runs(decision: Decision, evaluations: int) -> int:
    affordable = evaluations // max(1, len(decision.cycle.fleet))
    return min(_MOST_RUNS, max(_FEWEST_RUNS, affordable))


def _try_axis(
    decision: Decision,
    axis: Axis,
    budget: _Budget,
    succeeds: Callable[[Decision], bool],
) -> None:
    """Try the changes of one axis, nearest first, until one succeeds; keep the nearest failure too."""
    nearest, last = None, None
    for change in axis:
        if budget.runs <= 0:
            budget.not_tried.append(change)
            break
        budget.runs -= 1
        try:
            changed = schedule(change.changed())
        except InvalidManifest:
            continue
        before, after = _placed_names(decision), _placed_names(changed)
        suggestion = Suggestion(
            change,
            helps=succeeds(changed),
            gains=tuple(name for name in after if name not in before),
            losses=tuple(name for name in before if name not in after),
        )
        if suggestion.helps:
            budget.helps.append(suggestion)
            last = None
            break
        nearest, last = nearest or suggestion, change
    if nearest is not None:
        furthest = last if last is not nearest.change else None
        budget.fails.append(replace(nearest, furthest=furthest))


def _placed_names(decision: Decision) -> dict[str, None]:
    return dict.fromkeys(decision.kept + decision.picked_names)
