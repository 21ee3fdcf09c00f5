"""Sentences about what would have to change, and about the traps that a decision ran into."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from placements.explain.wording import ELIGIBILITY_WORDS, counted, joined, taint_words
from placements.scheduling.advice.changes import Change, ChangeKind
from placements.scheduling.advice.feasibility import Bound, feasibility_bound
from placements.scheduling.advice.search import Suggestion
from placements.scheduling.advice.traps import (
    PinnedGroup,
    dead_end,
    favoured_without_key,
    over_limits,
    pinned_groups,
    stale_picks,
)
from placements.scheduling.decision import Decision
from placements.scheduling.fleet import EligibilityKind
from placements.scheduling.replay import Replay

Facts = Mapping[str, Any]
_NAMES_SHOWN = 5
_ALTERNATIVES_SHOWN = 12
_GROUPED = (ChangeKind.LEAVE, ChangeKind.LABEL)


def change_words(change: Change) -> str:
    """Name a change."""
    return _CHANGES[change.kind](change.facts)


def suggestion_sentence(suggestion: Suggestion) -> str:
    """Name a change that helps, and what else it would do."""
    words, effects = change_words(suggestion.change), effects_words(suggestion)
    return f"{words}  [{effects}]" if effects else words


def effects_words(suggestion: Suggestion) -> str:
    """Say who would then be placed, and who no longer; nothing where nobody moves."""
    effects = [("then placed:", suggestion.gains), ("no longer:", suggestion.losses)]
    return "; ".join(f"{verb} {_listed(names)}" for verb, names in effects if names)


def failure_sentences(suggestions: Iterable[Suggestion]) -> list[str]:
    """Name the changes that do not help; those that differ only in a cluster or a label share a line."""
    listed = list(suggestions)
    told = [_failure(one) for one in listed if one.change.kind not in _GROUPED]
    return told + _grouped([one.change for one in listed])


def untried_sentences(changes: Iterable[Change]) -> list[str]:
    """Name the changes that there was no time for, in the same way."""
    listed = list(changes)
    return [change_words(one) for one in listed if one.kind not in _GROUPED] + _grouped(listed)


def _grouped(changes: list[Change]) -> list[str]:
    leaving = [one.facts["cluster"] for one in changes if one.kind is ChangeKind.LEAVE]
    labels: dict[str, list[str]] = {}
    for one in changes:
        if one.kind is ChangeKind.LABEL:
            labels.setdefault(one.facts["key"], []).append(one.facts["value"] or "no value")
    sentences = [f"another label {key}: {_either(values)}" for key, values in labels.items()]
    return sentences + ([f"{_either(leaving)} leaving the fleet"] if leaving else [])


def _either(names: list[str]) -> str:
    left = len(names) - _ALTERNATIVES_SHOWN
    more = [counted(left, "other")] if left > 0 else []
    return joined([*names[:_ALTERNATIVES_SHOWN], *more], "or")


def _failure(one: Suggestion) -> str:
    if one.furthest is None:
        return change_words(one.change)
    field = _VALUE_OF[one.change.kind]
    first, last = one.change.facts[field], one.furthest.facts[field]
    span = f"{first} or {last}" if isinstance(first, str) else f"{first} to {last}"
    return _CHANGES[one.change.kind]({**one.change.facts, field: span})


def _listed(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN:,} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def trap_sentences(decision: Decision, *, most_steps: int = 20_000, with_bound: bool = True) -> Iterator[str]:
    """Name what an unfulfilled or surprising decision ran into; `most_steps` limits what is searched."""
    if decision.is_failed:
        return
    yield from (_pinned(one) for one in pinned_groups(decision))
    yield from _dead_end(decision, most_steps)
    yield from _over_limits(decision)
    for key, names in favoured_without_key(decision).items():
        yield f"picked without the label {key}, so no limit held there: {_listed(names)}"
    stale = stale_picks(decision)
    if stale:
        yield f"stale, placed still though a run from scratch would pass over: {_listed(stale)}"
    if with_bound and not decision.is_fulfilled:
        bound = feasibility_bound(decision.cycle)
        if bound is not None:
            yield bound_sentence(bound)


def _over_limits(decision: Decision) -> Iterator[str]:
    for over in over_limits(decision):
        is_skew = all(one.limits_skew for one in Replay(decision).step(1).spreads)
        was = f"the skew was {over.skew}"
        if over.lacks_domains:
            few = f"which counts as the emptiest with fewer than {over.lacks_domains} groups"
            was = f"the fullest group was {over.skew} above 0, {few},"
        elif not is_skew:
            was = f"the fullest group was {over.skew} above the emptiest"
        yield f"{over.topology_key}: {was} before the first pick, limit {over.max_skew}"


def bound_sentence(bound: Bound) -> str:
    """Say how many clusters can be reached."""
    return f"at most {bound.most:,} possible on this fleet" + ("" if bound.is_exact else " (an upper bound)")


def _pinned(one: PinnedGroup) -> str:
    cause = "its clusters are used up" if one.has_candidates else "no cluster of it can be picked"
    return f"pinned group: {one.topology_key}={one.group} holds the minimum at {one.count:,}: {cause}"


def _dead_end(decision: Decision, most_steps: int) -> Iterator[str]:
    found = dead_end(decision, most_steps=most_steps)
    if found is None:
        return
    if found.clusters is not None:
        names = joined(found.clusters)
        yield f"dead end: not found by picking one at a time, but {names} together break no hard limit"
    elif found.is_settled:
        yield "impossible: no larger set of clusters keeps all hard limits"
    else:
        yield "whether a larger set keeps all hard limits was not determined"


_REPORTS = {
    EligibilityKind.NO_AGENT: "a first report of the member agent",
    EligibilityKind.STALE_HEARTBEAT: "a fresh heartbeat",
    EligibilityKind.NOT_JOINED: "a report of having joined",
    EligibilityKind.NO_HEALTH: "a report of the health",
    EligibilityKind.UNHEALTHY: "a report of good health",
    EligibilityKind.UNSPECIFIED: "the eligibility",
    EligibilityKind.LEAVING: "the return",
}


def _report(facts: Facts) -> str:
    today = facts["reason"] or ELIGIBILITY_WORDS[EligibilityKind(facts["kind"])]
    return f"{_REPORTS[EligibilityKind(facts['kind'])]} of {facts['cluster']} (now: {today})"


def _label(facts: Facts) -> str:
    today = "none" if facts["today"] is None else facts["today"]
    if facts["value"] is None:
        return f"{facts['cluster']} without the label {facts['key']} (now {today})"
    return f"{facts['cluster']} labelled {facts['key']}={facts['value']} (now {today})"


def _hardness(facts: Facts) -> str:
    return f"{facts['topologyKey']} {facts['whenUnsatisfiable']}"


def _max_skew(facts: Facts) -> str:
    return f"{facts['topologyKey']} maxSkew {facts['maxSkew']} (now {facts['today']})"


def _requirement(facts: Facts) -> str:
    return f"{facts['requirement']} left out of required term {facts['term'] + 1}"


def _weight(facts: Facts) -> str:
    return f"weight {facts['weight']} in preferred term {facts['term'] + 1} (now {facts['today']})"


def _min_domains(facts: Facts) -> str:
    return f"{facts['topologyKey']} minDomains {facts['minDomains']} (now {facts['today']})"


def _counting(facts: Facts) -> str:
    return f"{facts['topologyKey']} {facts['field']} {facts['value']}"


def _option(facts: Facts) -> str:
    return f"{facts['option']} {_plain(facts['value'])} (now {_plain(facts['today'])})"


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_VALUE_OF = {
    ChangeKind.MIN_DOMAINS: "minDomains",
    ChangeKind.OPTION: "value",
    ChangeKind.NUMBER: "number",
    ChangeKind.MAX_SKEW: "maxSkew",
    ChangeKind.WEIGHT: "weight",
}
_CHANGES: dict[ChangeKind, Callable[[Facts], str]] = {
    ChangeKind.NUMBER: lambda facts: f"numberOfClusters {facts['number']} (now {facts['today']})",
    ChangeKind.MAX_SKEW: _max_skew,
    ChangeKind.MIN_DOMAINS: _min_domains,
    ChangeKind.COUNTED: _counting,
    ChangeKind.OPTION: _option,
    ChangeKind.WHEN_UNSATISFIABLE: _hardness,
    ChangeKind.DROP_CONSTRAINT: lambda facts: f"no spread constraint on {facts['topologyKey']}",
    ChangeKind.TOLERATION: lambda facts: f"a toleration for the taint {taint_words(facts)}",
    ChangeKind.DROP_TERM: lambda facts: f"required term {facts['term'] + 1} left out",
    ChangeKind.DROP_REQUIREMENT: _requirement,
    ChangeKind.LABEL: _label,
    ChangeKind.WEIGHT: _weight,
    ChangeKind.LEAVE: lambda facts: f"{facts['cluster']} leaving the fleet",
    ChangeKind.REPORT: _report,
    ChangeKind.NAME: lambda facts: f"{facts['name']} added to clusterNames",
}
