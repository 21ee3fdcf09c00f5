"""Plain evaluations of `ocm` and `kubernetes`, written for the tests from `rules/other-schedulers.md`.

Like `plain_evaluation.py`, on dictionaries, cluster by cluster and again in every round; it shares
nothing with the product. Numbers of `ocm` are fractions, so what is equal by the rules is equal here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor, log
from typing import Any, TypeAlias

from tests.engine.scheduling.plain_evaluation import (
    Case,
    affinity_scores,
    passes_filters,
    placed_on,
)

Domain: TypeAlias = tuple[str, ...]
"""A value of a topology key; nested, those of the keys before it come first."""
Entry: TypeAlias = tuple[str, Any, Any]
Terms: TypeAlias = list[tuple[Case, Mapping[str, int]]]
UNSET = "(unset)"


@dataclass(frozen=True)
class PlainRound:
    """One round: who could have been picked as (name, spread score, affinity score), best first."""

    ranked: list[Entry]
    forbidden: list[str]
    counts: list[dict[str, int]]


def plain_rounds(case: Case) -> Iterator[PlainRound]:
    """Pick one cluster a round until the caller stops; the last round is the one that finds no cluster."""
    judge = _ocm(case) if case["semantics"] == "ocm" else _kubernetes(case)
    picked: list[str] = []
    while True:
        one = judge(picked)
        yield one
        if not one.ranked:
            return
        picked.append(one.ranked[0][0])


def plain_counts(case: Case, placed: set[str]) -> list[dict[str, int]]:
    """Count the placed clusters by domain, an entry per constraint; nested names have `/` between levels."""
    constraints = case["policy"]["topologySpreadConstraints"]
    if case["semantics"] == "ocm":
        levels = _levels(case, _candidates(case))
        return [
            level.shares([name for name in placed if name in level.domain])
            for level in levels
        ]
    labels = {cluster["name"]: cluster["labels"] for cluster in case["clusters"]}
    return [
        _counts(constraint["topologyKey"], _counted(constraint, case), labels, placed)
        for constraint in constraints
    ]


def _is_hard(constraint: Case) -> bool:
    return constraint.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"


def _value(cluster: Case, term: Case) -> str | None:
    """Return the value that a topology key has on a cluster; claims are properties."""
    place = "properties" if term.get("topologyKeyType") == "Claim" else "labels"
    found: str | None = cluster[place].get(term["topologyKey"])
    return found


# ocm (rules/other-schedulers.md#ocm)


def _candidates(case: Case) -> list[Case]:
    constraints = case["policy"]["topologySpreadConstraints"]
    candidates = [
        cluster
        for cluster in case["clusters"]
        if passes_filters(cluster, case["policy"])
    ]
    if case["ocm"]["unsetPolicy"] == "exclude":
        candidates = [
            candidate
            for candidate in candidates
            if all(
                _value(candidate, constraint) is not None for constraint in constraints
            )
        ]
    return candidates


def _levels(case: Case, candidates: list[Case]) -> list["_Level"]:
    constraints = case["policy"]["topologySpreadConstraints"]
    return [
        _Level(candidates, constraints[: index + 1], case["ocm"])
        for index in range(len(constraints))
    ]


def _ocm(case: Case) -> Callable[[list[str]], PlainRound]:
    options = case["ocm"]
    candidates = _candidates(case)
    levels = _levels(case, candidates)
    affinity, preference = _preferences(case, candidates)

    def judge(picked: list[str]) -> PlainRound:
        left = [
            candidate["name"]
            for candidate in candidates
            if candidate["name"] not in picked
        ]
        contend = [
            name
            for name in left
            if not any(level.forbids(name, picked) for level in levels)
        ]
        spread = _strict(levels, contend, picked)
        keys = {name: (*spread[name], preference[name]) for name in contend}
        if options["mode"] == "weighted":
            spread, keys = _weighted(
                levels, contend, picked, preference, Fraction(str(options["u"]))
            )
        order = sorted(contend, key=lambda name: ([-key for key in keys[name]], name))
        ranked = [(name, spread[name], affinity[name]) for name in order]
        return PlainRound(
            ranked,
            sorted(set(left) - set(contend)),
            [level.shares(picked) for level in levels],
        )

    return judge


class _Level:
    """One Even term: the domain of every candidate, None for one that is outside, and its siblings."""

    def __init__(
        self, candidates: list[Case], constraints: list[Case], options: Case
    ) -> None:
        self.constraint = constraints[-1]
        above = constraints[:-1] if options["nested"] else []
        self.weights = options["domainWeights"].get(self.constraint["topologyKey"])
        self.family: dict[str, Domain] = {}
        self.domain: dict[str, Domain | None] = {}
        for candidate in candidates:
            family = tuple(_value(candidate, document) or UNSET for document in above)
            value = _value(candidate, self.constraint)
            is_outside = value is None and options["unsetPolicy"] == "free"
            self.family[candidate["name"]] = family
            self.domain[candidate["name"]] = (
                None if is_outside else (*family, value or UNSET)
            )
        self.domains = sorted({one for one in self.domain.values() if one is not None})

    def count(self, domain: Domain, picked: Iterable[str]) -> int:
        return sum(self.domain[name] == domain for name in picked)

    def siblings(self, family: Domain) -> list[Domain]:
        return [domain for domain in self.domains if domain[:-1] == family]

    def shares(self, picked: list[str]) -> dict[str, int]:
        return {"/".join(domain): self.count(domain, picked) for domain in self.domains}

    def forbids(self, name: str, picked: list[str]) -> bool:
        """m + 1 − the smallest among siblings > maxSkew."""
        domain = self.domain[name]
        if domain is None or not _is_hard(self.constraint):
            return False
        smallest = min(
            self.count(sibling, picked) for sibling in self.siblings(domain[:-1])
        )
        return self.count(domain, picked) + 1 - smallest > self.constraint["maxSkew"]

    def gaps(
        self, family: Domain, contend: list[str], picked: list[str]
    ) -> dict[Domain, int]:
        """How far each sibling is above the emptiest, or behind the one whose turn it is; negative."""
        counts = {
            sibling: self.count(sibling, picked) for sibling in self.siblings(family)
        }
        if not self.weights:
            return {one: min(counts.values()) - count for one, count in counts.items()}
        alive = {self.domain[name] for name in contend}
        turn = {
            one: (-Fraction(self._weight(one), 2 * count + 1), count)
            for one, count in counts.items()
            if one in alive
        }
        places = sorted(set(turn.values()))
        return {
            count: -places.index(turn[count]) if count in turn else 0
            for count in counts
        }

    def _weight(self, domain: Domain) -> int:
        weight: int = 1 if domain[-1] == UNSET else self.weights.get(domain[-1], 1)
        return weight

    def gap(self, name: str, contend: list[str], picked: list[str]) -> int:
        domain = self.domain[name]
        return 0 if domain is None else self.gaps(domain[:-1], contend, picked)[domain]

    def score(self, name: str, contend: list[str], picked: list[str]) -> int:
        """trunc(63·(gap − lowest)/(highest − lowest)) among the siblings; all equal is 0."""
        gaps = list(self.gaps(self.family[name], contend, picked).values())
        if not gaps or max(gaps) == min(gaps):
            return 0
        return (
            63
            * (self.gap(name, contend, picked) - min(gaps))
            // (max(gaps) - min(gaps))
        )


def _strict(
    levels: list[_Level], contend: list[str], picked: list[str]
) -> dict[str, Any]:
    return {
        name: tuple(level.gap(name, contend, picked) for level in levels)
        for name in contend
    }


def _weighted(
    levels: list[_Level],
    contend: list[str],
    picked: list[str],
    preference: Mapping[str, Fraction],
    u: Fraction,
) -> tuple[dict[str, Any], dict[str, tuple[Fraction, ...]]]:
    """Six bits a level, stretched over the contenders; then u·even + P, even, P."""
    packed = {}
    for name in contend:
        packed[name] = 0
        for level in levels:
            packed[name] = 64 * packed[name] + level.score(name, contend, picked)
    even = _stretched(packed, contend)
    return even, {
        name: (u * even[name] + preference[name], even[name], preference[name])
        for name in contend
    }


def _stretched(raw: Mapping[str, int], counted: Iterable[str]) -> dict[str, Fraction]:
    """Stretch to −100 to 100; all equal, or a single one, is 0."""
    values = [raw[name] for name in counted]
    low, high = min(values, default=0), max(values, default=0)
    if low == high:
        return {name: Fraction(0) for name in raw}
    return {
        name: Fraction(200 * (value - low), high - low) - 100
        for name, value in raw.items()
    }


def _preferences(
    case: Case, candidates: list[Case]
) -> tuple[Mapping[str, Any], dict[str, Fraction]]:
    """Return the affinity scores, of Affinity rows or preferred terms, and P, which adds the prioritizers."""
    options, names = case["ocm"], [candidate["name"] for candidate in candidates]
    scores: Mapping[str, Any] = affinity_scores(case["clusters"], case["policy"])
    if options["affinityTerms"]:
        scores = _stretched(
            {candidate["name"]: _rows(candidate, options) for candidate in candidates},
            names,
        )
    active = placed_on(case, "current") | placed_on(case, "obsolete")
    added = {
        name: Fraction(str(options["steadyWeight"])) * (name in active)
        for name in names
    }
    for name in names:
        added[name] += options["balanceWeight"] * _balance(name, case)
    for resource in ("cpu", "memory"):
        for name, score in _allocatable(resource, candidates).items():
            added[name] += options[f"{resource}Weight"] * score
    return scores, {name: scores[name] + added[name] for name in names}


def _rows(cluster: Case, options: Case) -> int:
    return sum(
        row["weight"]
        for term in options["affinityTerms"]
        for row in term["topologyWeights"]
        if _row_matches(_value(cluster, term), row)
    )


def _row_matches(value: str | None, row: Case) -> bool:
    return {
        "In": value in row.get("values", ()),
        "NotIn": value not in row.get("values", ()),
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }[row["operator"]]


def _balance(name: str, case: Case) -> int:
    used = {
        cluster["name"]: case["ocm"]["balance"].get(cluster["name"], 0)
        for cluster in case["clusters"]
    }
    most = max(used.values())
    return 2 * int(100 * (0.5 - (used[name] / most if most else 0)))


def _allocatable(resource: str, candidates: list[Case]) -> dict[str, int]:
    found = {
        candidate["name"]: int(candidate["resourceUsage"]["allocatable"][resource])
        for candidate in candidates
        if all(
            resource in candidate.get("resourceUsage", {}).get(key, {})
            for key in ("allocatable", "capacity")
        )
    }
    low, high = min(found.values(), default=0), max(found.values(), default=0)
    if low == high:
        return dict.fromkeys(found, 100)
    return {
        name: int(((value - low) / (high - low) - 0.5) * 200)
        for name, value in found.items()
    }


# kubernetes (rules/other-schedulers.md#kubernetes)


def _kubernetes(case: Case) -> Callable[[list[str]], PlainRound]:
    policy, constraints = case["policy"], case["policy"]["topologySpreadConstraints"]
    kept = placed_on(case, "current")
    labels = {cluster["name"]: cluster["labels"] for cluster in case["clusters"]}
    fit = [
        cluster["name"]
        for cluster in case["clusters"]
        if passes_filters(cluster, policy)
    ]
    affinity = affinity_scores(case["clusters"], policy)
    counted = [_counted(constraint, case) for constraint in constraints]
    soft = [
        index
        for index, constraint in enumerate(constraints)
        if not _is_hard(constraint)
    ]

    def judge(picked: list[str]) -> PlainRound:
        counts = [
            _counts(one["topologyKey"], names, labels, kept.union(picked))
            for one, names in zip(constraints, counted, strict=True)
        ]
        left = [name for name in fit if name not in kept and name not in picked]
        forbidden = [
            name
            for name in left
            if any(map(_forbids, constraints, counts, [labels[name]] * len(counts)))
        ]
        contend = [name for name in left if name not in forbidden]
        terms: Terms = [(constraints[index], counts[index]) for index in soft]
        spread = _normalised(terms, {name: labels[name] for name in contend})
        order = sorted(
            contend, key=lambda name: (-2 * spread[name] - affinity[name], name)
        )
        return PlainRound(
            [(name, spread[name], affinity[name]) for name in order],
            sorted(forbidden),
            counts,
        )

    return judge


def _counted(constraint: Case, case: Case) -> list[str]:
    """Name the clusters that count: all keys of the sort, affinity applied, taints by the policy."""
    policy = case["policy"]
    same = [
        one
        for one in policy["topologySpreadConstraints"]
        if _is_hard(one) == _is_hard(constraint)
    ]
    found = [
        cluster
        for cluster in case["clusters"]
        if all(each["topologyKey"] in cluster["labels"] for each in same)
    ]
    if constraint.get("nodeAffinityPolicy", "Honor") == "Honor":
        only_terms = {
            "affinity": policy.get("affinity", {}),
            "tolerations": [{"operator": "Exists"}],
        }
        usable = {"value": True}
        found = [
            one
            for one in found
            if passes_filters({**one, "eligible": usable}, only_terms)
        ]
    if constraint.get("nodeTaintsPolicy", "Ignore") == "Honor":
        only_taints = {"tolerations": policy.get("tolerations", [])}
        found = [one for one in found if passes_filters(one, only_taints)]
    return [one["name"] for one in found]


def _counts(
    key: str, counted: list[str], labels: Mapping[str, Any], placed: set[str]
) -> dict[str, int]:
    domains = sorted({labels[name][key] for name in counted})
    here = [labels[name][key] for name in counted if name in placed]
    return {domain: here.count(domain) for domain in domains}


def _forbids(
    constraint: Case, counts: Mapping[str, int], labels: Mapping[str, str]
) -> bool:
    """matchNum + 1 − minMatch > maxSkew, the minimum being 0 below minDomains."""
    if not _is_hard(constraint):
        return False
    domain = labels.get(constraint["topologyKey"])
    if domain is None or domain not in counts:
        return True
    enough = len(counts) >= constraint.get("minDomains", 1)
    return (
        counts[domain] + 1 - (min(counts.values()) if enough else 0)
        > constraint["maxSkew"]
    )


def _normalised(terms: Terms, contend: Mapping[str, Any]) -> dict[str, int]:
    """⌊100·(max + min − raw)/max⌋ among those with every key; max = 0 is 100, a missing key 0."""
    keys = [constraint["topologyKey"] for constraint, _ in terms]
    full = [
        name for name, labels in contend.items() if all(key in labels for key in keys)
    ]
    scores = dict.fromkeys(contend, 0)
    if not terms:
        return scores
    raw = dict.fromkeys(full, 0.0)
    for constraint, counts in terms:
        here = {name: contend[name][constraint["topologyKey"]] for name in full}
        weight = log(len(set(here.values())) + 2)
        for name in full:
            raw[name] += counts[here[name]] * weight + constraint["maxSkew"] - 1
    whole = {name: floor(value + 0.5) for name, value in raw.items()}
    most, least = max(whole.values(), default=0), min(whole.values(), default=0)
    return scores | {
        name: 100 * (most + least - one) // most if most else 100
        for name, one in whole.items()
    }
