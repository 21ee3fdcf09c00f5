"""Sentences about what would have to change, and about the traps that a decision ran into."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from clusters.fleet import EligibilityKind
from fleetui.apimachinery.grouping import grouped
from fleetui.apimachinery.words import counted, joined, names_and_more, plain_word
from placements.engine.advice.changes import WHAT_ADDS, Change, ChangeKind
from placements.engine.advice.diagnosis import (
    favoured_without_key,
    feasibility_bound,
    over_limits,
    pinned_groups,
    stale_picks,
)
from placements.engine.advice.search import Suggestion
from placements.engine.exact.record import ExactRecord, ExactVerdict
from placements.engine.scheduling.decision import Decision
from placements.engine.scheduling.replay import Replay
from placements.engine.scheduling.spread.base import GroupStrategy
from placements.explain.exact import exact_sentences
from placements.explain.vocabulary import (
    ELIGIBILITY_WORDS,
    NAMES_SHOWN,
    Facts,
    taint_words,
    term_words,
    verb,
)
from placements.manifests.affinity import ClusterSelectorTerm

OUTDATED = "outdated at this decision"
_ALTERNATIVES_SHOWN = 12


def change_words(change: Change) -> str:
    words = _CHANGES[change.kind]
    if isinstance(words, str):
        return words.format(**change.facts)
    return words(change.facts)


def suggestion_sentence(suggestion: Suggestion) -> str:
    words, effects = change_words(suggestion.change), effects_words(suggestion)
    return f"{words}  [{effects}]" if effects else words


def effects_words(suggestion: Suggestion) -> str:
    """Return which clusters a change would select and deselect; empty where none changes."""
    effects = [("then selected:", suggestion.gains), ("deselected:", suggestion.losses)]
    return "; ".join(
        f"{verb} {names_and_more(names, NAMES_SHOWN)}"
        for verb, names in effects
        if names
    )


@dataclass(frozen=True, slots=True)
class FixLine:
    """A change that fulfils a placement; without a suggestion, clusters have to join."""

    words: str
    selected: str
    gives_up: str
    suggestion: Suggestion | None = None


def fix_lines(suggestions: Sequence[Suggestion], new_clusters: str) -> list[FixLine]:
    """Return the changes that fulfil a placement, and clusters that would have to join, in one order."""
    lines = list[FixLine]()
    for suggestion in suggestions:
        selected = names_and_more(suggestion.gains, NAMES_SHOWN) or "none"
        if len(suggestion.gains) > NAMES_SHOWN:
            selected = f"{len(suggestion.gains):,} clusters: {selected}"
        gives_up = _GIVES_UP.get(suggestion.change.kind, "nothing")
        lines.append(
            FixLine(change_words(suggestion.change), selected, gives_up, suggestion)
        )
    if new_clusters:
        # They come after what adds as well, such as a label, and before what weakens the policy.
        adds = sum(
            suggestion.change.acceptance <= WHAT_ADDS for suggestion in suggestions
        )
        lines.insert(adds, FixLine(new_clusters, "what joins", "nothing"))
    return lines


_GIVES_UP = {
    ChangeKind.LABEL: "nothing, if the label is true",
    ChangeKind.TOLERATION: "the guard of the taint",
    ChangeKind.PREFER_TERMS: "that only matching clusters are selected",
    ChangeKind.DROP_REQUIREMENT: "the requirement",
    ChangeKind.DROP_TERM: "the required term",
    ChangeKind.WHEN_UNSATISFIABLE: "the hard limit: the skew may exceed max skew",
    ChangeKind.MAX_SKEW: "some of the even spread",
    ChangeKind.MIN_DOMAINS: "some of the domains",
    ChangeKind.COUNTED: "domains that count",
    ChangeKind.OPTION: "the present rule",
    ChangeKind.DROP_CONSTRAINT: "the spread over this key",
    ChangeKind.FEWER: "the clusters that are missing",
}


def plausible(suggestions: Iterable[Suggestion]) -> list[Suggestion]:
    """Return the changes without numbers of another sign or magnitude, in their order."""

    def is_near(facts: Facts) -> bool:
        today = facts.get("today")
        names = ("weight", "number", "maxSkew", "minDomains")
        value = next((facts[name] for name in names if name in facts), None)
        return (
            not isinstance(today, int)
            or not isinstance(value, int)
            or (value * today >= 0 and abs(value) <= 10 * max(1, abs(today)))
        )

    return [
        suggestion for suggestion in suggestions if is_near(suggestion.change.facts)
    ]


def failure_sentences(suggestions: Sequence[Suggestion]) -> list[str]:
    """Return the changes that do not help; those that differ only in a cluster or a label share a line."""
    sentences = []
    for suggestion in suggestions:
        change = suggestion.change
        if change.kind is ChangeKind.LABEL:
            continue
        if suggestion.furthest is not None and change.kind in _VALUE_OF:
            field = _VALUE_OF[change.kind]
            first, last = change.facts[field], suggestion.furthest.facts[field]
            joint = "or" if isinstance(first, str) else "to"
            change = replace(
                change, facts={**change.facts, field: f"{first} {joint} {last}"}
            )
        sentences.append(change_words(change))
    return sentences + _grouped_sentences(
        [suggestion.change for suggestion in suggestions]
    )


def untried_sentences(changes: Sequence[Change]) -> list[str]:
    return [
        change_words(change)
        for change in changes
        if change.kind is not ChangeKind.LABEL
    ] + _grouped_sentences(changes)


def _grouped_sentences(changes: Sequence[Change]) -> list[str]:
    def either(names: list[str]) -> str:
        left = len(names) - _ALTERNATIVES_SHOWN
        more = [counted(left, "other")] if left > 0 else []
        return joined([*names[:_ALTERNATIVES_SHOWN], *more], "or")

    labels = grouped(
        (change.facts["key"], change.facts["value"])
        for change in changes
        if change.kind is ChangeKind.LABEL
    )
    return [f"another label {key}: {either(values)}" for key, values in labels.items()]


def trap_sentences(
    decision: Decision, *, exact: ExactRecord | None = None, with_bound: bool = True
) -> Iterator[str]:
    """Yield what an unfulfilled or surprising decision ran into; `exact` is its exact search."""
    if decision.is_failed:
        return
    if decision.not_found:
        yield f"named but not in the fleet: {names_and_more(decision.not_found, NAMES_SHOWN)}"
    for (key, count, has_candidates), pinned in groupby(
        pinned_groups(decision),
        key=attrgetter("topology_key", "count", "has_candidates"),
    ):
        blocking = [f"{key}={domain.group}" for domain in pinned]
        has = f"{names_and_more(blocking, NAMES_SHOWN)} {verb(len(blocking), 'has')}"
        selected = f"{count:,} selected clusters and " * (not has_candidates)
        yield (
            f"blocking domain{'s' * (len(blocking) > 1)}: {has} {selected}"
            f"no {'more ' * has_candidates}candidates, so the minimum stays at {count:,}"
        )
    if exact is not None:
        yield from exact_sentences(exact, decision.cycle.policy)
    yield from over_limit_sentences(decision)
    for key, names in favoured_without_key(decision).items():
        clusters = names_and_more(names, NAMES_SHOWN)
        yield f"selected without the label {key}, so the constraint was not enforced: {clusters}"
    stale = stale_picks(decision)
    if stale:
        yield f"{OUTDATED}, would not be selected if rescheduled: {names_and_more(stale, NAMES_SHOWN)}"
    has_number = exact is not None and exact.verdict is not ExactVerdict.OPEN
    if with_bound and not decision.is_fulfilled and not has_number:
        bound = feasibility_bound(decision.cycle)
        if bound is not None:
            yield bound_sentence(bound)


def over_limit_sentences(decision: Decision) -> Iterator[str]:
    """Yield the constraints whose skew was above the limit before the first step."""
    allowed = ""
    if decision.picked_names and decision.candidates is not None:
        what = "increases the skew"
        if not isinstance(decision.candidates.strategy, GroupStrategy):
            what = "is above max skew over the emptiest domain"
        allowed = f"; a selection is allowed unless it {what}"
    for over in over_limits(decision):
        was = f"the skew was {over.skew}"
        if over.lacks_domains:
            was = f"the fullest domain was {over.skew} above 0 (fewer than {over.lacks_domains} domains)"
        elif not all(spread.limits_skew for spread in Replay(decision).step(1).spreads):
            was = f"the fullest domain was {over.skew} above the emptiest"
        yield f"{over.topology_key}: {was} before the first step (maxSkew {over.max_skew}){allowed}"


def bound_sentence(bound: int) -> str:
    return f"maximum with the current fleet: {bound:,}"


_REPORTS = {
    EligibilityKind.NO_AGENT: "a first report of the member agent",
    EligibilityKind.STALE_HEARTBEAT: "a new heartbeat",
    EligibilityKind.NOT_JOINED: "a report of having joined",
    EligibilityKind.NO_HEALTH: "a report of the health",
    EligibilityKind.UNHEALTHY: "a report of good health",
    EligibilityKind.UNSPECIFIED: "readiness",
    EligibilityKind.LEAVING: "the return",
}


_VALUE_OF = {
    ChangeKind.MIN_DOMAINS: "minDomains",
    ChangeKind.OPTION: "value",
    ChangeKind.NUMBER: "number",
    ChangeKind.MAX_SKEW: "maxSkew",
    ChangeKind.WEIGHT: "weight",
}


def _term(facts: Facts) -> str:
    return term_words(ClusterSelectorTerm.model_validate(facts["selector"]))


_CHANGES: dict[ChangeKind, str | Callable[[Facts], str]] = {
    ChangeKind.NUMBER: "numberOfClusters {number} (now {today})",
    ChangeKind.FEWER: "numberOfClusters {number} (now {today})",
    ChangeKind.MAX_SKEW: "{topologyKey} maxSkew {maxSkew} (now {today})",
    ChangeKind.MIN_DOMAINS: "{topologyKey} minDomains {minDomains} (now {today})",
    ChangeKind.COUNTED: "{topologyKey} {field} {value}",
    ChangeKind.OPTION: lambda facts: (
        f"{facts['option']} {plain_word(facts['value'])} (now {plain_word(facts['today'])})"
    ),
    ChangeKind.WHEN_UNSATISFIABLE: (
        "{topologyKey} whenUnsatisfiable {whenUnsatisfiable} (now {today})"
    ),
    ChangeKind.DROP_CONSTRAINT: "no spread constraint on {topologyKey}",
    ChangeKind.TOLERATION: lambda facts: (
        f"a toleration for the taint {taint_words(facts)}"
    ),
    ChangeKind.PREFER_TERMS: lambda facts: (
        "prefer "
        + joined(
            [_term({"selector": selector}) for selector in facts["selectors"]], "or"
        )
        + " instead of requiring it"
    ),
    ChangeKind.DROP_TERM: lambda facts: f"without the required term {_term(facts)}",
    ChangeKind.DROP_REQUIREMENT: lambda facts: (
        f"without {facts['requirement']} in the required term {_term(facts)}"
    ),
    ChangeKind.LABEL: lambda facts: (
        f"{facts['cluster']} with label {facts['key']}={facts['value']}"
        f" (now {'none' if facts['today'] is None else facts['today']})"
    ),
    ChangeKind.WEIGHT: lambda facts: (
        f"weight {facts['weight']} of the preferred term {_term(facts)} (now {facts['today']})"
    ),
    ChangeKind.PREFERENCE: "a preferred term for {key}={value} with weight {weight}",
    ChangeKind.TERM: "a required term for {key}={value}",
    ChangeKind.REPORT: lambda facts: (
        f"{_REPORTS[EligibilityKind(facts['kind'])]} of {facts['cluster']}"
        f" (now: {facts['reason'] or ELIGIBILITY_WORDS[EligibilityKind(facts['kind'])]})"
    ),
    ChangeKind.NAME: "{name} added to clusterNames",
}
