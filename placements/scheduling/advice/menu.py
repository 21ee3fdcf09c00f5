"""The menu of changes that advice tries for one cluster (`design/ui.md` 6.2).

An axis holds changes of one kind in one direction, the nearest to today's value first, so that the first
that succeeds is the minimal one.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from placements.scheduling.advice.changes import (
    Change,
    ChangeKind,
    Edit,
    edited,
    with_eligible,
    with_label,
    with_option,
    without_cluster,
)
from placements.scheduling.decision import Decision
from placements.scheduling.filters.taints import untolerated
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.policy import (
    InclusionPolicy,
    PlacementType,
    TopologySpreadConstraint,
    WhenUnsatisfiable,
)
from placements.scheduling.profile import profile_of, without_failure
from placements.scheduling.reads import labels_read
from placements.scheduling.scheduler import schedule

Axis = Iterable[Change]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHTS = range(-100, 101)


def axes(decision: Decision, cluster: str) -> Iterator[Axis]:
    """Give every axis worth trying for a cluster that was not picked, the most telling first."""
    placement_type = decision.cycle.policy.placement_type
    if placement_type is PlacementType.PICK_FIXED:
        yield from _names(decision, cluster)
    else:
        yield from _reports(decision, cluster)
        yield from _tolerations(decision, cluster)
        yield from _terms(decision)
    if placement_type is PlacementType.PICK_N:
        yield from _numbers(decision, cluster)
        yield from _constraints(decision)
        yield from _options(decision)
        yield from _labels(decision, cluster)
        yield from _weights(decision)
        yield from _departures(decision, cluster)
    elif placement_type is PlacementType.PICK_ALL:
        yield from _labels(decision, cluster)


def fulfilment_axes(decision: Decision, pinned: Iterable[str]) -> Iterator[Axis]:
    """Give every axis worth trying for an unfulfilled placement, given the clusters of pinned groups."""
    yield from _constraints(decision)
    yield from _options(decision)
    yield from _terms(decision)
    keys = {one.topology_key for one in decision.cycle.policy.topology_spread_constraints}
    for cluster in pinned:
        yield from _reports(decision, cluster)
        yield from _tolerations(decision, cluster)
        yield [_departure(decision, cluster)]
        for key in sorted(keys):
            if decision.cycle.fleet.label(key).value_at(decision.cycle.fleet.positions[cluster]) is not None:
                yield [_label(decision, cluster, key, None)]


def _edit(decision: Decision, kind: ChangeKind, facts: dict[str, Any], edit: Edit) -> Change:
    return Change(kind, facts, partial(edited, decision.cycle, edit), edit)


def _names(decision: Decision, cluster: str) -> Iterator[Axis]:
    yield from _reports(decision, cluster)
    if cluster not in decision.cycle.policy.cluster_names:
        edit = partial(_append_name, name=cluster)
        yield [_edit(decision, ChangeKind.NAME, {"name": cluster}, edit)]


def _append_name(plain: dict[str, Any], *, name: str) -> None:
    plain["clusterNames"] = [*plain.get("clusterNames", []), name]


def _reports(decision: Decision, cluster: str) -> Iterator[Axis]:
    fleet = decision.cycle.fleet
    eligibility = fleet.clusters[fleet.positions[cluster]].eligibility
    if eligibility.kind not in (None, EligibilityKind.LEAVING):
        facts = {"cluster": cluster, "kind": str(eligibility.kind), "reason": eligibility.reason}
        yield [Change(ChangeKind.REPORT, facts, partial(with_eligible, decision.cycle, cluster))]


def _tolerations(decision: Decision, cluster: str) -> Iterator[Axis]:
    cycle = decision.cycle
    taints = cycle.fleet.clusters[cycle.fleet.positions[cluster]].taints
    for taint in untolerated(taints, cycle.policy.tolerations):
        toleration = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
        edit = partial(_append_toleration, toleration=toleration)
        facts = {"cluster": cluster, "key": taint.key, "value": taint.value}
        yield [_edit(decision, ChangeKind.TOLERATION, facts, edit)]


def _append_toleration(plain: dict[str, Any], *, toleration: dict[str, Any]) -> None:
    plain["tolerations"] = [*plain.get("tolerations", []), toleration]


def _terms(decision: Decision) -> Iterator[Axis]:
    for index, term in enumerate(decision.cycle.policy.required_terms):
        yield [_edit(decision, ChangeKind.DROP_TERM, {"term": index}, partial(_drop_term, index=index))]
        for path, name in _requirements(term.to_plain()):
            facts = {"term": index, "requirement": name}
            edit = partial(_drop_requirement, index=index, path=path)
            yield [_edit(decision, ChangeKind.DROP_REQUIREMENT, facts, edit)]


def _required_terms(plain: dict[str, Any]) -> list[dict[str, Any]]:
    terms: list[dict[str, Any]] = plain["affinity"]["clusterAffinity"][_REQUIRED]["clusterSelectorTerms"]
    return terms


def _drop_term(plain: dict[str, Any], *, index: int) -> None:
    """Leave one required term out; without the last one nothing is required any more."""
    terms = _required_terms(plain)
    del terms[index]
    if not terms:
        del plain["affinity"]["clusterAffinity"][_REQUIRED]


def _requirements(term: dict[str, Any]) -> list[tuple[tuple[str, str, Any], str]]:
    """Give where each requirement of a term stands, and its name; a lone one goes with its term."""
    labels = term.get("labelSelector", {})
    found: list[tuple[tuple[str, str, Any], str]] = [
        *((("labelSelector", "matchLabels", key), key) for key in labels.get("matchLabels", {})),
        *_listed("labelSelector", labels, "key"),
        *_listed("propertySelector", term.get("propertySelector", {}), "name"),
        *_listed("claimSelector", term.get("claimSelector", {}), "key"),
    ]
    return found if len(found) > 1 else []


def _listed(selector: str, plain: dict[str, Any], name: str) -> Iterator[tuple[tuple[str, str, Any], str]]:
    for place, requirement in enumerate(plain.get("matchExpressions", [])):
        yield (selector, "matchExpressions", place), requirement[name]


def _drop_requirement(plain: dict[str, Any], *, index: int, path: tuple[str, str, Any]) -> None:
    selector, collection, key = path
    del _required_terms(plain)[index][selector][collection][key]


def _numbers(decision: Decision, cluster: str) -> Iterator[Axis]:
    """Give the smallest number that would reach the cluster, and the one below it.

    Found by bisection: what is placed for N is placed for N + 1 as well, trimmed or picked.
    """
    today, most = decision.cycle.policy.number_of_clusters or 0, len(decision.cycle.fleet)
    larger = range(today + 1, most + 1)
    place = bisect_left(larger, True, key=lambda number: _reaches(decision, number, cluster))
    if place < len(larger):
        yield [_number(decision, number) for number in larger[max(0, place - 1) : place + 1]]
    elif larger:
        yield [_number(decision, most)]


def _reaches(decision: Decision, number: int, cluster: str) -> bool:
    # A cycle that fails as a whole reaches nobody on its way to more.
    changed = schedule(without_failure(_number(decision, number).changed()))
    return cluster in changed.picked_names or cluster in changed.kept


def _number(decision: Decision, number: int) -> Change:
    facts = {"number": number, "today": decision.cycle.policy.number_of_clusters}
    return _edit(decision, ChangeKind.NUMBER, facts, lambda plain: plain.update(numberOfClusters=number))


def _constraints(decision: Decision) -> Iterator[Axis]:
    strategy = profile_of(decision.cycle).strategy
    for index, constraint in enumerate(decision.cycle.policy.topology_spread_constraints):
        heeds, key = strategy.heeds(constraint), constraint.topology_key
        if "maxSkew" in heeds:
            yield from _max_skews(decision, index, constraint)
        yield [_other_hardness(decision, index, key, constraint.when_unsatisfiable)]
        facts = {"constraint": index, "topologyKey": key}
        yield [_edit(decision, ChangeKind.DROP_CONSTRAINT, facts, partial(_drop_constraint, index=index))]
        if "minDomains" in heeds and constraint.min_domains:
            fewer = range(constraint.min_domains - 1, 0, -1)
            yield map(partial(_min_domains, decision, index, constraint), fewer)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if name in heeds:
                yield [_other_counting(decision, index, constraint, name)]


def _max_skews(decision: Decision, index: int, constraint: TopologySpreadConstraint) -> Iterator[Axis]:
    most = max(decision.cycle.policy.number_of_clusters or 0, len(decision.kept))
    today, key = constraint.max_skew, constraint.topology_key
    for values in (range(today + 1, max(most, today + 1) + 1), range(today - 1, 0, -1)):
        yield map(partial(_max_skew, decision, index, key, today), values)


def _max_skew(decision: Decision, index: int, key: str, today: int, value: int) -> Change:
    facts = {"constraint": index, "topologyKey": key, "maxSkew": value, "today": today}
    return _edit(
        decision, ChangeKind.MAX_SKEW, facts, partial(_set_constraint, index=index, fields={"maxSkew": value})
    )


def _min_domains(decision: Decision, index: int, constraint: TopologySpreadConstraint, value: int) -> Change:
    facts = {
        "constraint": index,
        "topologyKey": constraint.topology_key,
        "minDomains": value,
        "today": constraint.min_domains,
    }
    edit = partial(_set_constraint, index=index, fields={"minDomains": value})
    return _edit(decision, ChangeKind.MIN_DOMAINS, facts, edit)


def _other_counting(
    decision: Decision, index: int, constraint: TopologySpreadConstraint, name: str
) -> Change:
    """Count those for the constraint whom the affinity or a taint rules out, or count them no longer."""
    plain = constraint.to_plain()
    default = InclusionPolicy.HONOR if name == "nodeAffinityPolicy" else InclusionPolicy.IGNORE
    honors = plain.get(name, default) == InclusionPolicy.HONOR
    value = str(InclusionPolicy.IGNORE if honors else InclusionPolicy.HONOR)
    facts = {"constraint": index, "topologyKey": constraint.topology_key, "field": name, "value": value}
    edit = partial(_set_constraint, index=index, fields={name: value})
    return _edit(decision, ChangeKind.COUNTED, facts, edit)


def _options(decision: Decision) -> Iterator[Axis]:
    """Try the other values of the options that go with the semantics, the nearest first."""
    cycle = decision.cycle
    for name, today, values in profile_of(cycle).options_to_try(cycle):
        yield [_option(decision, name, today, value) for value in values]


def _option(decision: Decision, name: str, today: object, value: object) -> Change:
    facts = {"option": name, "value": value, "today": today}
    changed = partial(with_option, decision.cycle, name, value)
    return Change(ChangeKind.OPTION, facts, changed, option=(name, value))


def _other_hardness(decision: Decision, index: int, key: str, today: WhenUnsatisfiable) -> Change:
    hard, soft = WhenUnsatisfiable.DO_NOT_SCHEDULE.value, WhenUnsatisfiable.SCHEDULE_ANYWAY.value
    other = soft if today == hard else hard
    facts = {"constraint": index, "topologyKey": key, "whenUnsatisfiable": other}
    edit = partial(_set_constraint, index=index, fields={"whenUnsatisfiable": other})
    return _edit(decision, ChangeKind.WHEN_UNSATISFIABLE, facts, edit)


def _set_constraint(plain: dict[str, Any], *, index: int, fields: Mapping[str, object]) -> None:
    plain["topologySpreadConstraints"][index].update(fields)


def _drop_constraint(plain: dict[str, Any], *, index: int) -> None:
    del plain["topologySpreadConstraints"][index]


def _labels(decision: Decision, cluster: str) -> Iterator[Axis]:
    fleet = decision.cycle.fleet
    position = fleet.positions[cluster]
    for key in labels_read(decision.cycle):
        column = fleet.label(key)
        today = column.value_at(position)
        values: list[str | None] = [value for value in column.values if value != today]
        for value in values + ([None] if today is not None else []):
            yield [_label(decision, cluster, key, value)]


def _label(decision: Decision, cluster: str, key: str, value: str | None) -> Change:
    fleet = decision.cycle.fleet
    today = fleet.clusters[fleet.positions[cluster]].labels.get(key)
    facts = {"cluster": cluster, "key": key, "value": value, "today": today}
    return Change(ChangeKind.LABEL, facts, partial(with_label, decision.cycle, cluster, key, value))


def _weights(decision: Decision) -> Iterator[Axis]:
    for index, term in enumerate(decision.cycle.policy.preferred_terms):
        for values in (range(term.weight + 1, _WEIGHTS.stop), range(term.weight - 1, _WEIGHTS.start - 1, -1)):
            yield map(partial(_weight, decision, index, term.weight), values)


def _weight(decision: Decision, index: int, today: int, value: int) -> Change:
    facts = {"term": index, "weight": value, "today": today}
    return _edit(decision, ChangeKind.WEIGHT, facts, partial(_set_weight, index=index, weight=value))


def _set_weight(plain: dict[str, Any], *, index: int, weight: int) -> None:
    plain["affinity"]["clusterAffinity"][_PREFERRED][index]["weight"] = weight


def _departures(decision: Decision, cluster: str) -> Iterator[Axis]:
    for name in _worth_leaving(decision):
        if name != cluster:
            yield [_departure(decision, name)]


def _departure(decision: Decision, name: str) -> Change:
    return Change(ChangeKind.LEAVE, {"cluster": name}, partial(without_cluster, decision.cycle, name))


def _worth_leaving(decision: Decision) -> list[str]:
    """Give the picked clusters, then those of the groups at the minimum: others change nothing."""
    names = dict.fromkeys(decision.picked_names + decision.kept)
    if decision.number_of_rounds and decision.candidates is not None:
        for bid in decision.round(decision.number_of_rounds).bids:
            at_minimum = set((bid.counts == bid.outlook.smallest).nonzero()[0].tolist())
            for name, code in zip(decision.cycle.fleet.names, bid.groups.codes.tolist(), strict=True):
                if code in at_minimum:
                    names.setdefault(name)
    return list(names)
