"""Rules about topology spread constraints."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from clusters.columns import ABSENT, Codes, Ints, LabelColumn
from placements.engine.advice.diagnosis import pinned_groups
from placements.engine.checks.findings import (
    MOST_NAMES,
    Case,
    Finding,
    Fix,
    Keys,
    Needs,
    NotCheckedError,
    Rule,
    Severity,
    counted,
    key_counts,
    nearest,
    set_at,
    some,
)
from placements.engine.exact.record import ExactRecord, ExactVerdict
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.spread.base import (
    MissingKeyPolicy,
    prefers_missing_key,
)
from placements.manifests.policy import (
    KeyType,
    TopologySpreadConstraint,
    WhenUnsatisfiable,
)

_FIELD = "topologySpreadConstraints"


_NO_EFFECT = "the constraint has no effect"
_WITHOUT_KEY = {
    MissingKeyPolicy.UNLIMITED: "not limited by the constraint, and often selected first",
    MissingKeyPolicy.EXCLUDED: "never selected",
    MissingKeyPolicy.LAST: "selected last",
    MissingKeyPolicy.OWN_GROUP: "together a domain of their own",
}
"""What is true of clusters without a topology key."""


def _constraints(
    case: Case,
) -> Iterator[tuple[int, TopologySpreadConstraint, str, tuple[str, str]]]:
    """Yield the constraints, each with its path and the evidence that its findings have in common."""
    yield from (
        (index, constraint, f"spec.policy.{_FIELD}[{index}]", (_FIELD, str(index)))
        for index, constraint in enumerate(
            case.policy.topology_spread_constraints if case.is_pick_n else ()
        )
    )


def _column(case: Case, constraint: TopologySpreadConstraint) -> LabelColumn:
    return case.fleet.topology(constraint.topology_key, constraint.topology_key_type)


def unknown_key(case: Case) -> Iterator[Finding]:
    strategy = profile_of(case.cycle).strategy
    for index, constraint, path, same in _constraints(case):
        if _column(case, constraint).values:
            continue
        is_excluding = strategy.missing_key(constraint) is MissingKeyPolicy.EXCLUDED
        effect = "no cluster can be selected" if is_excluding else _NO_EFFECT
        sort, guess, fix = "claim", None, None
        if constraint.topology_key_type is not KeyType.CLAIM:
            sort, guess = (
                "label",
                nearest(constraint.topology_key, key_counts(case.fleet)),
            )
        message = f"No cluster has the {sort} {constraint.topology_key}: {effect}."
        if guess:
            message += f" Did you mean {guess}?"
            place = ("policy", _FIELD, index, "topologyKey")
            fix = Fix(f"Use the key {guess}.", edits=((place, guess),))
        evidence = ((constraint.topology_key, ""), same)
        yield S01.finding(
            f"{path}.topologyKey", message, *evidence, fix=fix, code="unknown-key"
        )


def one_value(case: Case) -> Iterator[Finding]:
    strategy = profile_of(case.cycle).strategy
    for _, constraint, path, same in _constraints(case):
        column = _column(case, constraint)
        is_own_group = strategy.missing_key(constraint) is MissingKeyPolicy.OWN_GROUP
        if len(column.values) != 1 or (is_own_group and not column.is_present.all()):
            continue
        prefers = not column.is_present.all() and prefers_missing_key(
            strategy, constraint
        )
        effect = "clusters without it are preferred" if prefers else _NO_EFFECT
        message = f"{constraint.topology_key} has the value {column.values[0]} only: {effect}."
        yield S02.finding(f"{path}.topologyKey", message, same, code="single-group")


def nearly_unique(case: Case) -> Iterator[Finding]:
    for _, constraint, path, same in _constraints(case):
        codes = _column(case, constraint).codes
        _, sizes = np.unique(codes[codes >= 0], return_counts=True)
        alone = int((sizes == 1).sum())
        if len(case.fleet) > 5 and alone >= len(case.fleet) / 2:
            message = f"{constraint.topology_key} is nearly unique: nearly every cluster is its own domain."
            yield S03.finding(f"{path}.topologyKey", message, same)


def blocking_domain(case: Case) -> Iterator[Finding]:
    """Yield one finding for each key and cause: domains without a candidate are often many."""
    decision, blocking = case.decision, dict[tuple[str, Severity, str], list[str]]()
    for domain in pinned_groups(decision):
        cause = (
            domain.topology_key,
            Severity.ERROR,
            _minimum(domain.count, domain.has_candidates),
        )
        blocking.setdefault(cause, []).append(domain.group)
    for _, constraint, _, _ in _constraints(case):
        if constraint.when_unsatisfiable is WhenUnsatisfiable.DO_NOT_SCHEDULE:
            continue
        column = _column(case, constraint)
        ready, placed = (
            _counts(case, case.passes.nonzero()[0], constraint),
            _counts(case, decision.chosen, constraint),
        )
        if len(placed) < 2 or placed.max() - placed.min() <= constraint.max_skew:
            continue
        for at in np.nonzero((placed == placed.min()) & (ready <= placed))[0].tolist():
            cause = (
                constraint.topology_key,
                Severity.WARNING,
                _minimum(int(placed[at]), bool(ready[at])),
            )
            blocking.setdefault(cause, []).append(column.values[at])
    for (key, severity, minimum), domains in blocking.items():
        verb = "keeps" if len(domains) == 1 else "keep"
        message = f"{key}={some(domains)} {verb} the minimum {minimum}."
        evidence = tuple((key, domain) for domain in domains)
        fix = _correction(case) if severity is Severity.ERROR else None
        yield Finding("S04", severity, f"spec.policy.{_FIELD}", message, evidence, fix)


def _correction(case: Case) -> Fix | None:
    """Return the first correction by limits alone with which the scheduler reaches the number."""
    for correction in case.exact.corrections if case.exact else ():
        limits = [
            (element, to) for element, to in correction.changes if element.is_constraint
        ]
        if correction.greedy_reaches and len(limits) == len(correction.changes):
            words = " and ".join(f"{element.name} to {to}" for element, to in limits)
            edits = tuple(
                (("policy", _FIELD, element.index, "maxSkew"), to)
                for element, to in limits
            )
            return Fix(f"Set maxSkew of {words}.", edits=edits)
    return None


def _minimum(count: int, has_candidates: bool) -> str:
    cause = (
        "all candidates there are used"
        if has_candidates
        else "no cluster there is a candidate"
    )
    return f"at {count}: {cause}"


def _counts(case: Case, positions: Ints | Codes, one: TopologySpreadConstraint) -> Ints:
    """Return how many of the clusters are in each domain of a constraint."""
    column = _column(case, one)
    codes = column.codes[positions]
    return np.bincount(codes[codes != ABSENT], minlength=len(column.values))


def limit_without_effect(case: Case) -> Iterator[Finding]:
    number = case.policy.number_of_clusters or 0
    for index, constraint, path, same in _constraints(case):
        counts = _counts(case, case.passes.nonzero()[0], constraint)
        most = int(counts.max()) if len(counts) else 0
        largest = max(1, min(number, most) - 1)
        if (
            most
            and constraint.max_skew > largest
            and constraint.max_skew >= min(number, most)
        ):
            message = (
                f"maxSkew {constraint.max_skew} never limits anything: a domain gets at most {min(number, most)} "
                f"clusters. The largest value with an effect is {largest}."
            )
            place = ("policy", _FIELD, index, "maxSkew")
            fix = Fix(f"Set maxSkew to {largest}.", edits=((place, largest),))
            yield S05.finding(f"{path}.maxSkew", message, same, fix=fix)


def candidates_without_key(case: Case) -> Iterator[Finding]:
    strategy = profile_of(case.cycle).strategy
    for _, constraint, path, _ in _constraints(case):
        column = _column(case, constraint)
        lacking = np.nonzero(case.passes & ~column.is_present)[0].tolist()
        if not column.values or not lacking:
            continue
        names = some(case.fleet.names[at] for at in lacking)
        candidates = f"{counted(len(lacking), 'candidate')} without {constraint.topology_key} ({names})"
        message = f"{candidates}: {_WITHOUT_KEY[strategy.missing_key(constraint)]}."
        evidence = (constraint.topology_key, "(absent)")
        fix = None
        if constraint.topology_key_type is not KeyType.CLAIM:
            fix = _require_key(case, constraint.topology_key)
        yield S06.finding(
            f"{path}.topologyKey", message, evidence, fix=fix, code="clusters-lack-key"
        )


def _require_key(case: Case, key: str) -> Fix:
    """Return the fix that requires a label in every required term."""
    terms: Keys = (
        "policy",
        "affinity",
        "clusterAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "clusterSelectorTerms",
    )
    exists = {"key": key, "operator": "Exists"}
    edits: list[tuple[Keys, Any]]
    if not case.policy.required_terms:
        edits = [(terms, [{"labelSelector": {"matchExpressions": [exists]}}])]
    else:
        edits = [
            (
                (*terms, at, "labelSelector", "matchExpressions"),
                [
                    *(
                        expression.to_plain()
                        for expression in (
                            term.label_selector.match_expressions
                            if term.label_selector
                            else ()
                        )
                    ),
                    exists,
                ],
            )
            for at, term in enumerate(case.policy.required_terms)
        ]
    return Fix(f"Require the label {key}.", edits=tuple(edits))


def no_effect_today(case: Case) -> Iterator[Finding]:
    for index, constraint, path, same in _constraints(case):
        if not _column(case, constraint).values:
            continue
        if case.has_no_effect(set_at(_FIELD, index, value=None)):
            message = (
                f"If rescheduled today without the constraint on {constraint.topology_key},"
                " the same clusters are selected."
            )
            yield S07.finding(path, message, same)


def _exact(case: Case) -> ExactRecord | None:
    """Return the exact search of an unfulfilled PickN placement with constraints. Raise NotCheckedError."""
    if (
        not case.is_pick_n
        or case.decision.is_fulfilled
        or not case.policy.topology_spread_constraints
    ):
        return None
    if case.exact is None:
        raise NotCheckedError
    return case.exact


def more_are_possible(case: Case) -> Iterator[Finding]:
    exact, greedy = _exact(case), len(case.decision.picked_names)
    if exact and exact.is_possible and exact.low > max(greedy, case.placed):
        message = f"{exact.low} are possible, the scheduler finds {greedy}."
        fix = Fix("Plan the moves that reach them.")
        yield S08.finding(
            f"spec.policy.{_FIELD}", message, ("numberOfClusters", ""), fix=fix
        )


def impossible(case: Case) -> Iterator[Finding]:
    exact = _exact(case)
    if exact is None or exact.verdict is not ExactVerdict.IMPOSSIBLE:
        return
    wanted = case.policy.number_of_clusters or 0
    message = f"At most {exact.high} of {wanted} are possible."
    conflicts = [
        " with ".join(element.words(case.policy) for element in each)
        for each in exact.conflict
    ]
    if conflicts:
        message += f" Conflict: {'; '.join(conflicts[:MOST_NAMES])}."
    if exact.shopping:
        message += f" Possible with more clusters: {some(item.words for item in exact.shopping)}."
    pinned = tuple(
        (group.topology_key, group.group) for group in pinned_groups(case.decision)
    )
    place = ("policy", "numberOfClusters")
    fewer = Fix(f"Set numberOfClusters to {exact.high}.", edits=((place, exact.high),))
    evidence = (("numberOfClusters", ""), *pinned)
    fix = _correction(case) or fewer
    found = S09.finding("spec.policy.numberOfClusters", message, *evidence, fix=fix)
    if case.placed >= wanted:
        message += f" All {wanted} are placed and stay, unless rescheduled."
        found = replace(found, severity=Severity.WARNING, message=message)
    yield found


S01 = Rule("S01", Severity.ERROR, Needs.FLEET, "Unknown topology key", unknown_key)
S02 = Rule(
    "S02", Severity.WARNING, Needs.FLEET, "Topology key with one value", one_value
)
S03 = Rule(
    "S03",
    Severity.WARNING,
    Needs.FLEET,
    "Topology key that is nearly unique",
    nearly_unique,
)
S04 = Rule("S04", Severity.ERROR, Needs.DECISION, "Blocking domain", blocking_domain)
S05 = Rule(
    "S05", Severity.WARNING, Needs.FLEET, "maxSkew without effect", limit_without_effect
)
S06 = Rule(
    "S06",
    Severity.WARNING,
    Needs.FLEET,
    "Candidates without the key",
    candidates_without_key,
)
S07 = Rule(
    "S07",
    Severity.INFO,
    Needs.DECISION,
    "Constraint without effect today",
    no_effect_today,
)
S08 = Rule("S08", Severity.ERROR, Needs.EXACT, "More are possible", more_are_possible)
S09 = Rule("S09", Severity.ERROR, Needs.EXACT, "Number not possible today", impossible)
SPREAD = (S01, S02, S03, S04, S05, S06, S07, S08, S09)
