"""Rules about affinity and tolerations."""

from collections.abc import Iterator
from dataclasses import replace

from clusters.fleet import CORDON_KEY, Taint
from placements.engine.checks.findings import (
    Case,
    Finding,
    Fix,
    Keys,
    Needs,
    Rule,
    Severity,
    key_counts,
    nearest,
    set_at,
)
from placements.engine.scheduling.filters.taint_toleration import untolerated
from placements.engine.scheduling.profile import profile_of
from placements.engine.scheduling.selectors import (
    label_requirements,
    match_labels,
    property_requirements,
)
from placements.manifests.affinity import ClusterSelectorTerm
from placements.manifests.policy import TolerationOperator

_AFFINITY: Keys = ("affinity", "clusterAffinity")
_REQUIRED: Keys = (
    *_AFFINITY,
    "requiredDuringSchedulingIgnoredDuringExecution",
    "clusterSelectorTerms",
)
_PREFERRED: Keys = (*_AFFINITY, "preferredDuringSchedulingIgnoredDuringExecution")


def _path(*keys: str | int) -> str:
    return "spec.policy" + "".join(
        f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys
    )


def unknown_names(case: Case) -> Iterator[Finding]:
    for index, term in enumerate(case.policy.required_terms):
        yield from _unknown_names(case, term, (*_REQUIRED, index))
    for index, place, term in _read_preferences(case):
        for finding in _unknown_names(case, term, place):
            evidence = (*finding.evidence, ("preferred", str(index)))
            yield replace(finding, severity=Severity.WARNING, evidence=evidence)


def _read_preferences(case: Case) -> Iterator[tuple[int, Keys, ClusterSelectorTerm]]:
    """Yield the preferred terms that the scheduling rules read, each with its place."""
    if profile_of(case.cycle).preference.reads_terms:
        yield from (
            (index, (*_PREFERRED, index, "preference"), term.preference)
            for index, term in enumerate(case.policy.preferred_terms)
        )


def _unknown_names(
    case: Case, term: ClusterSelectorTerm, place: Keys
) -> Iterator[Finding]:
    for key in dict.fromkeys(
        requirement.key for requirement in label_requirements(term.label_selector)
    ):
        if case.fleet.label(key).values:
            continue
        message, fix = f"No cluster has the label {key}.", None
        if guess := nearest(key, key_counts(case.fleet)):
            message += f" Did you mean {guess}?"
            fix = Fix(f"Use the key {guess}.", edits=_renamed(term, place, key, guess))
        path = _path(*place, "labelSelector")
        yield A01.finding(path, message, (key, ""), fix=fix, code="unknown-key")
    names = [
        (requirement.name, "propertySelector")
        for requirement in property_requirements(term)
    ]
    if term.property_sorter is not None:
        names.append((term.property_sorter.name, "propertySorter"))
    for name, field in dict(names).items():
        if all(text is None for text in case.fleet.property(name).texts):
            message = f"No cluster reports the property {name}."
            yield A01.finding(
                _path(*place, field), message, (name, ""), code="unknown-property"
            )


def preference_without_match(case: Case) -> Iterator[Finding]:
    for index, place, term in _read_preferences(case):
        is_known = not any(True for _ in _unknown_names(case, term, place))
        if is_known and not match_labels(term.label_selector, case.fleet).any():
            message = "No cluster matches: the preference has no effect."
            path = _path(*place, "labelSelector")
            yield A03.finding(
                path, message, ("preferred", str(index)), code="matches-nothing"
            )


def preferences_not_read(case: Case) -> Iterator[Finding]:
    if (
        case.policy.preferred_terms
        and not profile_of(case.cycle).preference.reads_terms
    ):
        message = (
            "Not read: the affinity rows of the options replace the preferred terms."
        )
        yield A05.finding(_path(*_PREFERRED), message, code="not-read")


def _renamed(
    term: ClusterSelectorTerm, at_term: Keys, key: str, guess: str
) -> tuple[tuple[Keys, object], ...]:
    """Return the edits that replace a key wherever a term requires it."""
    selector = term.label_selector
    place: Keys = ("policy", *at_term, "labelSelector")
    edits: list[tuple[Keys, object]] = []
    if selector and key in selector.match_labels:
        edits = [
            ((*place, "matchLabels", key), None),
            ((*place, "matchLabels", guess), selector.match_labels[key]),
        ]
    for at, expression in enumerate(selector.match_expressions if selector else ()):
        if expression.key == key:
            edits.append(((*place, "matchExpressions", at, "key"), guess))
    return tuple(edits)


def term_without_effect(case: Case) -> Iterator[Finding]:
    terms = case.policy.required_terms
    for index in range(len(terms) if len(terms) > 1 else 0):
        if case.has_no_effect(set_at(*_REQUIRED, index, value=None)):
            message = (
                f"If rescheduled today, required term {index + 1} changes nothing:"
                " another term covers it."
            )
            yield A02.finding(
                _path(*_REQUIRED, index), message, ("required", str(index))
            )


def preference_without_effect(case: Case) -> Iterator[Finding]:
    for index in range(len(case.policy.preferred_terms) if case.is_pick_n else 0):
        if case.has_no_effect(set_at(*_PREFERRED, index, value=None)):
            message = f"If rescheduled today, preference {index + 1} changes nothing."
            if case.policy.topology_spread_constraints:
                message = f"{message[:-1]}: the topology score ranks first."
            yield A04.finding(
                _path(*_PREFERRED, index), message, ("preferred", str(index))
            )


def _taints(case: Case) -> list[Taint]:
    return list(
        dict.fromkeys(taint for taints in case.fleet.taint_sets for taint in taints)
    )


def without_taint(case: Case) -> Iterator[Finding]:
    taints = _taints(case)
    for index, toleration in enumerate(case.policy.tolerations):
        if len(untolerated(tuple(taints), (toleration,))) == len(taints):
            message = f"No cluster has a taint that the toleration of {toleration.key or 'every key'} matches."
            yield T01.finding(
                _path("tolerations", index), message, ("toleration", str(index))
            )


def tolerates_everything(case: Case) -> Iterator[Finding]:
    keys = sorted({taint.key for taint in _taints(case)} - {CORDON_KEY})
    for index, toleration in enumerate(case.policy.tolerations):
        if toleration.operator is TolerationOperator.EXISTS and not toleration.key:
            message = "Tolerates every taint, a cordon too: a drained cluster is selected again."
            tolerated = {
                (other.key, other.operator) for other in case.policy.tolerations
            }
            others = [
                other.to_plain()
                for at, other in enumerate(case.policy.tolerations)
                if at != index
            ]
            others += [
                {"key": key, "operator": "Exists"}
                for key in keys
                if (key, TolerationOperator.EXISTS) not in tolerated
            ]
            words = (
                f"Tolerate {', '.join(keys)} only."
                if keys
                else "Remove the toleration."
            )
            yield T02.finding(
                _path("tolerations", index),
                message,
                ("toleration", str(index)),
                fix=Fix(words, edits=((("policy", "tolerations"), others),)),
            )


def toleration_without_effect(case: Case) -> Iterator[Finding]:
    taints = _taints(case)
    for index, toleration in enumerate(case.policy.tolerations):
        if len(untolerated(tuple(taints), (toleration,))) == len(taints):
            continue
        if case.has_no_effect(set_at("tolerations", index, value=None)):
            message = (
                f"If rescheduled today without the toleration of {toleration.key or 'all taints'},"
                " the same clusters are selected."
            )
            evidence = ("toleration", str(index))
            yield T03.finding(_path("tolerations", index), message, evidence)


A01 = Rule(
    "A01", Severity.ERROR, Needs.FLEET, "Unknown label key or property", unknown_names
)
A02 = Rule(
    "A02",
    Severity.INFO,
    Needs.DECISION,
    "Required term without effect today",
    term_without_effect,
)
A03 = Rule(
    "A03",
    Severity.INFO,
    Needs.FLEET,
    "Preference that no cluster matches",
    preference_without_match,
)
A04 = Rule(
    "A04",
    Severity.INFO,
    Needs.DECISION,
    "Preference without effect today",
    preference_without_effect,
)
A05 = Rule(
    "A05",
    Severity.WARNING,
    Needs.FLEET,
    "Preferred terms that are not read",
    preferences_not_read,
)
T01 = Rule(
    "T01", Severity.INFO, Needs.FLEET, "Toleration without a taint", without_taint
)
T02 = Rule(
    "T02",
    Severity.WARNING,
    Needs.POLICY,
    "Toleration of every taint",
    tolerates_everything,
)
T03 = Rule(
    "T03",
    Severity.INFO,
    Needs.DECISION,
    "Toleration without effect today",
    toleration_without_effect,
)
AFFINITY = (A01, A02, A03, A04, A05, T01, T02, T03)
