"""A plain evaluation of the scheduling rules, written for the tests and as the benchmark's baseline.

It follows `rules/scheduler.md` to the letter on dictionaries: every pick looks at every cluster again,
nothing is kept from pick to pick but who was picked. Filters and affinity, which no pick changes, are
evaluated once, in favour of the baseline. It shares no code with the product but the parsing of quantities.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from fleetui.apimachinery.quantity import QuantityError, parse_quantity

Case = Mapping[str, Any]
Rank: TypeAlias = tuple[int, int, int, str]
Judged: TypeAlias = dict[str, tuple[int, bool]]
Labels: TypeAlias = Mapping[str, str]


@dataclass(frozen=True)
class PlainRound:
    """One round: who could have been picked, best first, and what a hard constraint kept out.

    `ranked` has (topology spread, affinity, was here, name); `counts` and `judged` have an entry per
    constraint, the latter with each group's score and whether a pick there breaks the limit.
    """

    ranked: list[Rank]
    forbidden: list[str]
    counts: list[dict[str, int]]
    judged: list[Judged]

    @property
    def winner(self) -> Rank | None:
        """The pick of this round."""
        return self.ranked[0] if self.ranked else None


def passes_filters(cluster: Case, policy: Case) -> bool:
    """Required terms, eligibility, taints."""
    terms = _required(policy)
    if terms and not any(_matches_term(cluster, term) for term in terms):
        return False
    if not cluster.get("eligible", {"value": True})["value"]:
        return False
    return not any(
        _is_untolerated(taint, policy) for taint in cluster.get("taints", ())
    )


def _required(policy: Case) -> list[Case]:
    affinity = policy.get("affinity", {}).get("clusterAffinity", {})
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get(
        "clusterSelectorTerms", []
    )


def _preferred(policy: Case) -> list[Case]:
    affinity = policy.get("affinity", {}).get("clusterAffinity", {})
    return affinity.get("preferredDuringSchedulingIgnoredDuringExecution", [])


def _matches_term(cluster: Case, term: Case) -> bool:
    if not _matches_labels(cluster.get("labels", {}), term.get("labelSelector")):
        return False
    if not _matches_labels(cluster.get("properties", {}), term.get("claimSelector")):
        return False
    requirements = term.get("propertySelector", {}).get("matchExpressions", [])
    return all(_compares(cluster, requirement) for requirement in requirements)


def _matches_labels(labels: Mapping[str, str], selector: Case | None) -> bool:
    if selector is None:
        return True
    if any(
        labels.get(key) != value
        for key, value in selector.get("matchLabels", {}).items()
    ):
        return False
    return all(
        _meets(labels, requirement)
        for requirement in selector.get("matchExpressions", [])
    )


def _meets(labels: Mapping[str, str], requirement: Case) -> bool:
    key, operator, values = (
        requirement["key"],
        requirement["operator"],
        requirement.get("values", []),
    )
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator == "In":
        return key in labels and labels[key] in values
    return key not in labels or labels[key] not in values


def _property(cluster: Case, name: str) -> str | None:
    prefix = "resources.kubernetes-fleet.io/"
    if not name.startswith(prefix):
        return cluster.get("properties", {}).get(name)
    sort, _, resource = name[len(prefix) :].partition("-")
    column = {
        "total": "capacity",
        "allocatable": "allocatable",
        "available": "available",
    }[sort]
    return cluster.get("resourceUsage", {}).get(column, {}).get(resource)


def _compares(cluster: Case, requirement: Case) -> bool:
    text = _property(cluster, requirement["name"])
    if text is None:
        return False
    try:
        have = parse_quantity(text).nano
    except QuantityError:
        return False
    want = parse_quantity(requirement["values"][0]).nano
    return {
        "Gt": have > want,
        "Ge": have >= want,
        "Eq": have == want,
        "Ne": have != want,
        "Lt": have < want,
        "Le": have <= want,
    }[requirement["operator"]]


def _is_untolerated(taint: Case, policy: Case) -> bool:
    return not any(
        _tolerates(toleration, taint) for toleration in policy.get("tolerations", ())
    )


def _tolerates(toleration: Case, taint: Case) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key", "") in ("", taint["key"])
    same_value = toleration.get("value", "") == taint.get("value", "")
    return toleration.get("key") == taint["key"] and same_value


def affinity_scores(clusters: Iterable[Case], policy: Case) -> dict[str, int]:
    """The affinity score of every cluster, by name."""
    clusters = list(clusters)
    scores = dict.fromkeys((cluster["name"] for cluster in clusters), 0)
    for term in _preferred(policy):
        for name, score in _term_scores(clusters, term).items():
            scores[name] += score
    return scores


def _term_scores(clusters: list[Case], term: Case) -> dict[str, int]:
    weight, preference = term["weight"], term["preference"]
    matching = [
        cluster
        for cluster in clusters
        if _matches_labels(cluster.get("labels", {}), preference.get("labelSelector"))
    ]
    sorter = preference.get("propertySorter")
    if sorter is None or weight == 0:
        return {cluster["name"]: weight for cluster in matching}
    values = {
        cluster["name"]: _double(_property(cluster, sorter["name"]))
        for cluster in clusters
    }
    known = [value for value in values.values() if value is not None]
    if not known or min(known) == max(known):
        return {}
    low, high = min(known), max(known)
    scores = {}
    for cluster in matching:
        value = values[cluster["name"]]
        if value is not None:
            share = (value - low) / (high - low)
            share = share if sorter["sortOrder"] == "Descending" else 1 - share
            scores[cluster["name"]] = _whole(share * weight)
    return scores


def _double(text: str | None) -> float | None:
    try:
        return None if text is None else parse_quantity(text).approximate
    except QuantityError:
        return None


def _whole(value: float) -> int:
    whole = int(value)
    if abs(value - whole) < 0.5:
        return whole
    return whole + (1 if value > 0 else -1)


def plain_rounds(case: Case, *, kubefleet: bool = False) -> Iterator[PlainRound]:
    """Pick one cluster a round until the caller stops; the last round is the one that finds no cluster."""
    policy = case["policy"]
    fleet = [
        (cluster["name"], cluster.get("labels", {})) for cluster in case["clusters"]
    ]
    passing = [
        (cluster["name"], cluster.get("labels", {}))
        for cluster in case["clusters"]
        if passes_filters(cluster, policy)
    ]
    affinity = affinity_scores(case["clusters"], policy)
    constraints = policy.get("topologySpreadConstraints", [])
    taken, was_here = placed_on(case, "current"), placed_on(case, "obsolete")

    def rounds() -> Iterator[PlainRound]:
        here = was_here
        while True:
            one = _round(
                fleet, passing, constraints, taken, affinity, here, kubefleet=kubefleet
            )
            yield one
            if one.winner is None:
                return
            taken.add(one.winner[-1])
            here = set() if kubefleet and constraints else was_here

    return rounds()


def plain_picks(case: Case, *, wanted: int, kubefleet: bool = False) -> list[Rank]:
    """Pick `wanted` more clusters, fewer where none is left."""
    rounds = islice(plain_rounds(case, kubefleet=kubefleet), wanted)
    return [
        plain_round.winner for plain_round in rounds if plain_round.winner is not None
    ]


def placed_on(case: Case, policy: str) -> set[str]:
    """Return the clusters with a scheduled or bound binding; one whose cluster leaves or has left dangles."""
    there = {
        cluster["name"] for cluster in case["clusters"] if not _is_leaving(cluster)
    }
    return {
        binding["cluster"]
        for binding in case.get("bindings", ())
        if binding["state"] != "Unscheduled"
        and binding["policy"] == policy
        and binding["cluster"] in there
    }


def _is_leaving(cluster: Case) -> bool:
    eligible = cluster.get("eligible", {"value": True})
    return not eligible["value"] and eligible.get("kind") == "leaving"


def _round(
    fleet: list[tuple[str, Labels]],
    passing: list[tuple[str, Labels]],
    constraints: list[Case],
    taken: set[str],
    affinity: Mapping[str, int],
    was_here: set[str],
    *,
    kubefleet: bool,
) -> PlainRound:
    """Count the groups over the whole fleet, judge them, judge every cluster, sort the clusters."""
    counts = [
        _count(fleet, constraint["topologyKey"], taken) for constraint in constraints
    ]
    judged = [
        _judge_groups(constraint, groups, kubefleet=kubefleet)
        for constraint, groups in zip(constraints, counts, strict=True)
    ]
    rules = [
        (
            constraint["topologyKey"],
            constraint.get("whenUnsatisfiable") != "ScheduleAnyway",
            groups,
        )
        for constraint, groups in zip(constraints, judged, strict=True)
    ]
    ranked: list[Rank] = []
    forbidden: list[str] = []
    for name, labels in passing:
        if name in taken:
            continue
        spread = 0
        is_forbidden = False
        for key, is_hard, groups in rules:
            group = labels.get(key)
            if group is not None:
                score, violates = groups[group]
                spread += score
                if violates and is_hard:
                    is_forbidden = True
        if is_forbidden:
            forbidden.append(name)
        else:
            ranked.append((spread, affinity[name], int(name in was_here), name))
    ranked.sort(reverse=True)
    return PlainRound(ranked, forbidden, counts, judged)


def _count(
    fleet: list[tuple[str, Labels]], key: str, taken: set[str]
) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, labels in fleet:
        group = labels.get(key)
        if group is not None:
            counts[group] = counts.get(group, 0) + (name in taken)
    return counts


def _judge_groups(
    constraint: Case, counts: Mapping[str, int], *, kubefleet: bool
) -> Judged:
    """Return for each group the score of one more cluster there, and whether it breaks the limit."""
    judged = {}
    limit, ascending = constraint.get("maxSkew", 1), sorted(counts.values())
    for group, count in counts.items():
        change, after = _one_more(count, ascending, kubefleet=kubefleet)
        violates = after > limit and (kubefleet or change == 1)
        judged[group] = (-1000 if violates else -change, violates)
    return judged


def _one_more(count: int, ascending: list[int], *, kubefleet: bool) -> tuple[int, int]:
    """Return the change of the skew, and the skew after it, when a group of `count` gets one more."""
    if len(ascending) == 1:
        return (1, 1) if kubefleet else (0, 0)
    smallest, largest = ascending[0], ascending[-1]
    others_smallest = ascending[1] if count == smallest else smallest
    after = max(largest, count + 1) - min(others_smallest, count + 1)
    return after - (largest - smallest), after
